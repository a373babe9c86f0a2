"""Reading a store: one xarray Dataset of measurements and their traces.

Readers take no lock and write nothing. A generation is checked when it is opened. If a file of it
is removed later (because two newer generations exist), reading it is an error, and never gives a
missing value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
import zarr
from zarr.storage import LocalStore, WrapperStore

from campaign.store.columns import (
    CHUNK_SAMPLES,
    FAILURE_COLUMNS,
    PADDING,
    SAMPLE_ATTRIBUTES,
    SAMPLES,
    SHARD_SAMPLES,
    TABLES,
    attributes,
    missing_column,
)
from campaign.store.current_state import summary_and_states
from campaign.store.generation import MISSING, Generation, reading
from campaign.store.journal import CUT_OFF
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.mixtures import mixtures
from campaign.store.records import JournalTail, StoreContents, measurement_row, read_contents
from campaign.store.rows import stored
from campaign.store.samples import wrong_descriptions
from campaign.store.setups import perf_per_watt_mhz, setup_uses
from campaign.store.shard import BadChunkError, read_shard
from dvfs.dataset import (
    BOOLEAN_COLUMNS,
    FAILURES,
    INTEGER_COLUMNS,
    MEASUREMENT_COLUMNS,
    TRACE_COLUMNS,
    TRACE_INTEGER_COLUMNS,
    TRACE_TEXT_COLUMNS,
    is_float_column,
)
from dvfs.files import NotRegularError

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer

LAZY: dict[str, Any] = {
    "chunks": None,
    "consolidated": False,
    "decode_times": False,
    "decode_timedelta": False,
}
"""How xarray opens the index: values are read when used, and seconds stay numbers."""
OPEN_AGAIN = "if a campaign is running, open the store again, otherwise run the campaign again"


@dataclass(frozen=True)
class Tables:
    """The scalars of a store: a row for each measurement, each trace, and each failed attempt.

    A row of ``traces`` has the row of its ``measurement``, and its samples are those from
    ``row_start`` to ``row_start + row_size`` of the store's ``time_ns`` and ``value``.
    """

    measurements: pd.DataFrame
    traces: pd.DataFrame
    failures: pd.DataFrame


class WrittenStore(WrapperStore[LocalStore]):
    """A folder of Zarr arrays with a known list of files. A missing file is an error, where Zarr
    itself would return missing values."""

    def __init__(self, folder: Path, files: frozenset[str]) -> None:
        super().__init__(LocalStore(folder, read_only=True))
        self._files = files

    async def get(self, key: str, *how: Any, **options: Any) -> Buffer | None:
        """See :meth:`zarr.abc.store.Store.get`."""
        path = self._store.root / key
        data = None
        if key not in self._files or path.is_file():  # a device in its place may have no end
            data = await super().get(key, *how, **options)
        if data is None and key in self._files:
            raise DamagedStoreError(f"{path}: is missing; {OPEN_AGAIN}")
        return data


def _tables_of(generation: Generation) -> WrittenStore:
    start = "tables.zarr/"
    names = (name for name in generation.files if name.startswith(start))
    return WrittenStore(generation.tables, frozenset(n.removeprefix(start) for n in names))


def open_tables(generation: Generation) -> zarr.Group:
    """A generation's tables, for reading.

    Raises:
        DamagedStoreError: they cannot be opened.
    """
    with reading(generation.tables):
        return zarr.open_group(_tables_of(generation), mode="r", zarr_format=3)


def current_tables(store: Store) -> tuple[Tables, JournalTail]:
    """All scalars of the store, in memory, and the journals' records that are not compacted yet.

    The traces of measurements that are still in a journal are not in ``traces``.

    Raises:
        DamagedStoreError: every generation is damaged.
    """
    contents = read_contents(store)
    with reading(store.index):
        return _merged(contents), contents.tail


def _merged(contents: StoreContents) -> Tables:
    """The generation's tables together with the scalars of the journals, one row for a point."""
    if contents.generation is None:
        frames = {
            name: pd.DataFrame({column: [] for column in columns})
            for name, columns in (
                ("measurements", MEASUREMENT_COLUMNS),
                ("traces", TRACE_COLUMNS),
                ("failures", FAILURE_COLUMNS),
            )
        }
    else:
        group = open_tables(contents.generation)
        frames = {name: read_table(group, name) for name in ("measurements", "traces", "failures")}
    measurements, traces = frames["measurements"], frames["traces"]
    if contents.accepted:
        fresh = pd.DataFrame([measurement_row(entry.scalars) for entry in contents.accepted])
        row_of = dict(zip(measurements["point_id"], range(len(measurements)), strict=True))
        rows = [row_of.setdefault(point_id, len(row_of)) for point_id in fresh["point_id"]]
        fresh.index = pd.Index(rows)
        traces = traces[~traces["measurement"].isin(rows)]
        kept = measurements.drop(index=[row for row in rows if row < len(measurements)])
        measurements = _concat(kept, fresh).sort_index()
    failed = [
        measurement_row(entry.scalars)
        for entry in contents.tail.entries
        if entry.scalars["status"] in FAILURES
    ]
    failures = frames["failures"]
    if failed:
        failures = _concat(failures, pd.DataFrame(failed)[list(FAILURE_COLUMNS)])
    return Tables(
        measurements.reset_index(drop=True),
        traces[traces["row_size"] > 0].reset_index(drop=True),
        failures.reset_index(drop=True),
    )


def read_table(group: zarr.Group, table: str) -> pd.DataFrame:
    """A whole table. A column that an earlier version did not write has its missing value."""
    arrays = group[table]
    assert isinstance(arrays, zarr.Group)  # noqa: S101
    names = sorted(arrays.array_keys())  # Zarr lists them in the folder's arbitrary order
    frame = pd.DataFrame({name: read_column(group, f"{table}/{name}") for name in names})
    for name in TABLES[table][1]:
        if name not in frame:
            frame[name] = missing_column(name, len(frame))
    return frame


def read_column(tables: zarr.Group, name: str) -> np.ndarray:
    """A whole column, ``table/column``; text as objects.

    Raises:
        DamagedStoreError: it cannot be read.
    """
    with reading(Path(name)):
        array = tables[name]
        assert isinstance(array, zarr.Array)  # noqa: S101
        values = np.asarray(array[:])
    return values.astype(object) if values.dtype.kind == "T" else values


def _concat(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    return new if not len(old) else pd.concat([old, new])


def as_dataset(frame: pd.DataFrame, dimension: str) -> xr.Dataset:
    """A table as a Dataset along one dimension, with units; missing counts are NaN."""
    variables: dict[str, Any] = {}
    for name in frame.columns:
        column = frame[name]
        if is_float_column(name):
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        elif name in INTEGER_COLUMNS or name in TRACE_INTEGER_COLUMNS:
            values = column.to_numpy(dtype=np.int64)
        elif name in BOOLEAN_COLUMNS:
            values = column.to_numpy(dtype=bool)
        else:
            values = column.astype(str).to_numpy(dtype=object)
        variables[name] = (dimension, values, attributes(name))
    return xr.Dataset(variables)


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
            tables = _merged(contents)
            dataset = as_dataset(tables.measurements, "measurement")
            traces = as_dataset(tables.traces, "trace")
        names = {name: f"trace_{name}" for name in (*TRACE_TEXT_COLUMNS, "measurement")}
        dataset = dataset.merge(traces.rename_vars(names))
    if contents.generation is not None and contents.generation.samples_end:
        spans = tuple(traces[name].values for name in ("row_start", "row_size"))
        dataset = dataset.merge(_samples(store, contents.generation, chunk_samples, *spans))
    return dataset.assign_attrs(_attributes(store, contents))


def read_scalars(store: Store) -> xr.Dataset:
    """The Dataset of :func:`open_dataset` without samples and traces, in memory.

    Raises:
        DamagedStoreError: it cannot be read.
    """
    contents = read_contents(store)
    with reading(store.index):
        if contents.generation is not None and not contents.accepted:
            dataset = _opened(contents.generation, "measurements").load()
        else:
            dataset = as_dataset(_merged(contents).measurements, "measurement")
    return dataset.assign_attrs(_attributes(store, contents))


def _attributes(store: Store, contents: StoreContents) -> dict[str, Any]:
    # A record that is cut off was never acknowledged, or is being written.
    places = contents.tail.damage
    lost = [place for place in places if not place[2].startswith(CUT_OFF)]
    for name, at, what in lost[:1]:
        raise DamagedStoreError(
            f"{store.journals / name}: byte {at}: {what} (damaged records: {len(lost)}); run the "
            f"campaign again to measure their points again, or import again to go on without them"
        )
    summary, _ = summary_and_states(contents)
    uses, _ = setup_uses(store, summary.get("setups", {}), contents.tail.setups)
    return {
        "store": str(store.root),
        "damaged_records": len(contents.damage),
        "mixtures": json.dumps([mixture.as_dict() for mixture in mixtures(uses)]),
        "perf_per_watt_mhz": json.dumps(perf_per_watt_mhz(uses)),
    }


def _opened(generation: Generation, table: str) -> xr.Dataset:
    dataset: xr.Dataset = xr.open_zarr(_tables_of(generation), group=table, **LAZY)
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
