"""Reading a store: one xarray Dataset of measurements and their traces.

Readers take no lock and write nothing. A generation is checked when it is opened. If a file of it
is removed later (because two newer generations exist), reading it is an error, and never gives a
missing value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from campaign.store.columns import (
    CHUNK_SAMPLES,
    PADDING,
    SAMPLE_ATTRIBUTES,
    SAMPLES,
    SHARD_SAMPLES,
    TABLES,
    attributes,
    missing_column,
)
from campaign.store.generation import MISSING, Generation, reading
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.records import JournalTail, read_contents
from campaign.store.rows import stored
from campaign.store.samples import wrong_descriptions
from campaign.store.shard import BadChunkError, read_shard
from campaign.store.tables import (
    OPEN_AGAIN,
    attributes_of,
    failure_columns,
    measurement_columns,
    read_columns,
    stored_tables,
    trace_columns,
)
from dvfs.dataset import (
    BOOLEAN_COLUMNS,
    INTEGER_COLUMNS,
    TRACE_INTEGER_COLUMNS,
    TRACE_TEXT_COLUMNS,
    Columns,
    is_float_column,
)
from dvfs.files import NotRegularError

LAZY: dict[str, Any] = {
    "chunks": None,
    "consolidated": False,
    "decode_times": False,
    "decode_timedelta": False,
}
"""How xarray opens the index: values are read when used, and seconds stay numbers."""


@dataclass(frozen=True)
class Tables:
    """The scalars of a store: a row for each measurement, each trace, and each failed attempt.

    A row of ``traces`` has the row of its ``measurement``, and its samples are those from
    ``row_start`` to ``row_start + row_size`` of the store's ``time_ns`` and ``value``.
    """

    measurements: pd.DataFrame
    traces: pd.DataFrame
    failures: pd.DataFrame


def current_tables(store: Store) -> tuple[Tables, JournalTail]:
    """All scalars of the store, in memory, and the journals' records that are not compacted yet.

    The traces of measurements that are still in a journal are not in ``traces``.

    Raises:
        DamagedStoreError: every generation is damaged.
    """
    contents = read_contents(store)
    columns = (measurement_columns(contents), trace_columns(contents), failure_columns(contents))
    with reading(store.index):
        tables = [pd.DataFrame(dict(each)) for each in columns]
    return Tables(*tables), contents.tail


def as_dataset(frame: pd.DataFrame, dimension: str) -> xr.Dataset:
    """A table as a Dataset along one dimension, with units; missing counts are NaN."""
    columns: dict[str, np.ndarray] = {}
    for name in frame.columns:
        values = frame[name]
        if is_float_column(name):
            columns[name] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        elif name in INTEGER_COLUMNS or name in TRACE_INTEGER_COLUMNS:
            columns[name] = values.to_numpy(dtype=np.int64)
        elif name in BOOLEAN_COLUMNS:
            columns[name] = values.to_numpy(dtype=bool)
        else:
            columns[name] = values.astype(str).to_numpy(dtype=object)
    return _dataset_of(columns, dimension)


def _dataset_of(columns: Mapping[str, np.ndarray], dimension: str) -> xr.Dataset:
    return xr.Dataset(
        {name: (dimension, values, attributes(name)) for name, values in columns.items()}
    )


def read_scalars(store: Store) -> xr.Dataset:
    """The Dataset of :func:`open_dataset` without samples and traces, in memory.

    Raises:
        DamagedStoreError: it cannot be read.
    """
    return scalars_of(read_columns(store))


def scalars_of(columns: Columns) -> xr.Dataset:
    """The measurements' columns as a Dataset."""
    return _dataset_of(columns, "measurement").assign_attrs(columns.attrs)


def open_dataset(store: Store, chunk_samples: int = CHUNK_SAMPLES) -> xr.Dataset:
    """All measurements of a store, and the samples of those that are compacted.

    Dimensions: ``measurement`` (a row of the measurements table), ``trace`` (one channel of one
    measurement: ``trace_measurement`` is its row; its samples are those from ``row_start`` to
    ``row_start + row_size``), ``sample`` (lazy: ``time_ns`` int64 from the window's start,
    ``value`` float64 in the trace's unit). Samples that belong to no trace are missing: ``value``
    is NaN, ``time_ns`` the least int64. Nothing is written, so that another user's store opens
    too. Values are read when they are used; while records are still in journals, the scalars are
    in memory.

    Args:
        store: the store.
        chunk_samples: samples of a Dask chunk. The default reads a single trace quickly;
            :data:`campaign.store.columns.SHARD_SAMPLES`, a file each, reads all traces about
            three times as fast.

    Raises:
        DamagedStoreError: every generation is damaged; or the file of a value in use is missing.
    """
    contents = read_contents(store)
    with reading(store.index):
        if contents.generation is not None and not contents.accepted:
            dataset = _opened(contents.generation, "measurements")
            traces = _opened(contents.generation, "traces")
            full = np.flatnonzero(traces["row_size"].values > 0)
            if full.size < traces.sizes["trace"]:
                traces = traces.isel(trace=full)
        else:
            dataset = _dataset_of(measurement_columns(contents), "measurement")
            traces = _dataset_of(trace_columns(contents), "trace")
        names = {name: f"trace_{name}" for name in (*TRACE_TEXT_COLUMNS, "measurement")}
        dataset = dataset.merge(traces.rename_vars(names))
    if contents.generation is not None and contents.generation.samples_end:
        spans = tuple(traces[name].values for name in ("row_start", "row_size"))
        dataset = dataset.merge(_samples(store, contents.generation, chunk_samples, *spans))
    return dataset.assign_attrs(attributes_of(store, contents))


def _opened(generation: Generation, table: str) -> xr.Dataset:
    dataset: xr.Dataset = xr.open_zarr(stored_tables(generation), group=table, **LAZY)
    dimension, columns = TABLES[table]
    for name in columns:
        if name not in dataset:  # an earlier version wrote the table
            values = stored(missing_column(name, dataset.sizes[dimension]))
            dataset[name] = (dimension, values, attributes(name))
    for held in dataset.data_vars:
        dataset[held].attrs = attributes(str(held))  # an earlier version may have written others
    return dataset[sorted(map(str, dataset.data_vars))]


class Samples:
    """The samples of an array that belong to a generation, as an array for Dask."""

    ndim = 1

    def __init__(self, folder: Path, name: str, generation: Generation, unused: np.ndarray) -> None:
        self.dtype = np.dtype(SAMPLES[name])
        self.shape = (generation.samples_end,)
        self._folder, self._name, self._shards = folder, name, generation.shards
        self._unused = unused
        """int64 (n, 2), sorted: the samples from, to that belong to no trace."""

    def __getitem__(self, key: tuple[slice]) -> np.ndarray:
        wanted = range(self.shape[0])[key[0]]
        if not wanted:
            return np.empty(0, self.dtype)
        low, high = sorted((wanted[0], wanted[-1]))
        return self._read(low, high + 1)[:: wanted.step]

    def _read(self, low: int, high: int) -> np.ndarray:
        parts, first = [], low
        while low < high:
            number, start = divmod(low, SHARD_SAMPLES)
            end = min(SHARD_SAMPLES, start + high - low)
            parts.append(self._shard(number, start, end))
            low += end - start
        read = parts[0] if len(parts) == 1 else np.concatenate(parts)
        from_gap = np.searchsorted(self._unused[:, 1], first, side="right")
        to_gap = np.searchsorted(self._unused[:, 0], high)
        if from_gap < to_gap:
            read = read.copy()
            for start, stop in self._unused[from_gap:to_gap].tolist():
                read[max(start - first, 0) : stop - first] = PADDING[self._name]
        return read

    def _shard(self, number: int, start: int, end: int) -> np.ndarray:
        name = f"{self._name}/c/{number}"
        if self._shards[name] == MISSING:
            return np.full(end - start, PADDING[self._name], self.dtype)  # no trace is in it
        try:
            return read_shard(self._folder / name, self.dtype, start, end)
        except BadChunkError as error:
            raise DamagedStoreError(
                f"{error}; campaign status --verify lists the points, and campaign run measures "
                f"them again"
            ) from None
        except (FileNotFoundError, NotRegularError):
            raise DamagedStoreError(f"{self._folder / name}: is missing; {OPEN_AGAIN}") from None

    def __dask_tokenize__(self) -> object:
        return str(self._folder / self._name), sorted(self._shards.items()), self._unused


def _unused(row_start: np.ndarray, row_size: np.ndarray, samples_end: int) -> np.ndarray:
    """The samples (from, to; int64 (n, 2)) that belong to no trace: padding, and what is left of
    traces that were measured again."""
    order = np.argsort(row_start, kind="stable")
    starts = np.append(row_start[order], samples_end)
    ends = np.append(0, (row_start + row_size)[order])
    return np.stack([ends, starts], axis=1)[ends < starts]


def _samples(
    store: Store,
    generation: Generation,
    chunk_samples: int,
    row_start: np.ndarray,
    row_size: np.ndarray,
) -> xr.Dataset:
    """The samples of a generation, lazy. A compaction that was killed, or is running, may have
    written more samples after them."""
    import dask.array as da  # noqa: PLC0415

    wrong = wrong_descriptions(store, generation.samples_end)
    if wrong:
        raise DamagedStoreError(
            f"{store.traces / wrong[0]}: does not describe the {generation.samples_end} samples "
            f"that were written; run or import again to repair it"
        )
    variables = {}
    unused = _unused(row_start, row_size, generation.samples_end)
    for name in SAMPLES:
        samples = da.from_array(
            Samples(store.traces, name, generation, unused),
            chunk_samples,
            asarray=False,
            fancy=False,
        )
        labels = dict(SAMPLE_ATTRIBUTES[name])
        encoding = {"_FillValue": labels.pop("_FillValue")} if "_FillValue" in labels else {}
        variables[name] = xr.Variable("sample", samples, labels, encoding)
    return xr.Dataset(variables)
