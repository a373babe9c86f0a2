"""Reads a store into one xarray Dataset of measurements and their traces.

Readers take no lock and write nothing. Opening a generation checks it. If one of its files is
removed later (because two newer generations exist), reading that file is an error, and never gives
a missing value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from campaign.store.columns import (
    CHUNK_SAMPLES,
    SAMPLE_ATTRIBUTES,
    TABLES,
    TRACE_NAMES,
    attributes,
    missing_column,
)
from campaign.store.generation import Generation, reading
from campaign.store.layout import Store
from campaign.store.records import JournalTail, read_contents
from campaign.store.samples import stored_samples
from campaign.store.table_files import written_tables
from campaign.store.tables import (
    attributes_of,
    failure_columns,
    measurement_columns,
    trace_columns,
)
from dvfs.dataset import PHASE_PREFIX, Columns
from dvfs.errors import ArgumentError

LAZY: dict[str, Any] = {
    "chunks": None,
    "consolidated": False,
    "decode_times": False,
    "decode_timedelta": False,
}
"""How xarray opens the index: it reads values when they are used, and seconds stay numbers."""
WINDOW = "window"
"""The channel that marks the windows of a measurement with several windows."""


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

    ``traces`` lacks the traces of measurements that are still in a journal.

    Raises:
        DamagedStoreError: every generation is damaged.
    """
    contents = read_contents(store)
    columns = (measurement_columns(contents), trace_columns(contents), failure_columns(contents))
    with reading(store.index):
        tables = [pd.DataFrame(dict(table)) for table in columns]
    return Tables(*tables), contents.tail


def _dataset_of(columns: Mapping[str, np.ndarray], dimension: str) -> xr.Dataset:
    return xr.Dataset(
        {name: (dimension, values, attributes(name)) for name, values in columns.items()}
    )


def scalars_of(columns: Columns) -> xr.Dataset:
    """The measurements' columns as a Dataset."""
    return _dataset_of(columns, "measurement").assign_attrs(columns.attrs)


def open_dataset(store: Store, chunk_samples: int = CHUNK_SAMPLES) -> xr.Dataset:
    """All measurements of a store, and the samples of those that are compacted.

    Dimensions: ``measurement`` (a row of the measurements table), ``trace`` (one channel of one
    measurement: ``trace_measurement`` is its row; its samples are those from ``row_start`` to
    ``row_start + row_size``), ``sample`` (lazy: ``time_ns`` int64 from the window's start,
    ``value`` float64 in the trace's unit). Samples that belong to no trace are missing: ``value``
    is NaN, ``time_ns`` the least int64. Nothing is written, so that another user's store opens too.
    Values are read when they are used; but while journals still have records, the scalars are in
    memory.

    Args:
        store: the store.
        chunk_samples: samples of a Dask chunk. The default reads a single trace quickly;
            :data:`campaign.store.columns.SHARD_SAMPLES`, a file each, reads all traces about
            three times as fast.

    Raises:
        DamagedStoreError: every generation is damaged; or a file is missing when it is used.
    """
    contents = read_contents(store)
    with reading(store.index):
        if contents.generation.number and not contents.accepted:
            dataset = _opened(contents.generation, "measurements")
            traces = _opened(contents.generation, "traces")
            full = np.flatnonzero(traces["row_size"].values > 0)
            if full.size < traces.sizes["trace"]:
                traces = traces.isel(trace=full)
        else:
            dataset = _dataset_of(measurement_columns(contents), "measurement")
            traces = _dataset_of(trace_columns(contents), "trace")
        dataset = dataset.merge(traces.rename_vars(TRACE_NAMES))
    if contents.generation.samples_end:
        import dask.array as da  # noqa: PLC0415

        spans = tuple(traces[name].values for name in ("row_start", "row_size"))
        for name, samples in stored_samples(store, contents.generation, *spans).items():
            labels = dict(SAMPLE_ATTRIBUTES[name])
            encoding = {"_FillValue": labels.pop("_FillValue")} if "_FillValue" in labels else {}
            lazy = da.from_array(samples, chunk_samples, asarray=False, fancy=False)
            dataset[name] = xr.Variable("sample", lazy, labels, encoding)
    return dataset.assign_attrs(attributes_of(store, contents))


def _opened(generation: Generation, table: str) -> xr.Dataset:
    tables = written_tables(generation).as_zarr()
    dataset: xr.Dataset = xr.open_zarr(tables, group=table, **LAZY)
    dimension, columns = TABLES[table]
    for name in columns:
        if name not in dataset:  # an earlier version wrote the table
            values = missing_column(name, dataset.sizes[dimension])
            if values.dtype.kind == "O":
                values = values.astype(np.dtypes.StringDType())  # as Zarr reads texts
            dataset[name] = (dimension, values, attributes(name))
    for variable in dataset.data_vars:
        dataset[variable].attrs = attributes(
            str(variable)
        )  # an earlier version may have written others
    return dataset[sorted(map(str, dataset.data_vars))]


def trace_of(dataset: xr.Dataset, point_id: str, channel: str | None = None) -> xr.DataArray:
    """The samples of one channel of one measurement, in memory.

    Args:
        dataset: of :func:`open_dataset`. Only this trace's samples are read.
        point_id: the measurement's ``point_id``.
        channel: the channel; not needed if the measurement has one meter's channel only.

    Returns:
        float64 along ``time``, in the unit of its attribute ``units``. The coordinate ``time`` is
        in s from the start of the first window (negative: before it).

    Raises:
        ArgumentError: there is no such measurement, or not exactly one such trace.
    """
    rows = np.flatnonzero(dataset["point_id"].values == point_id)
    if not rows.size:
        raise ArgumentError(f"no measurement of point {point_id!r} is in the store")
    traces = np.flatnonzero(dataset["trace_measurement"].values == rows[0])
    names = dataset["trace_channel"].values[traces].tolist()
    matches = [
        (trace, name)
        for trace, name in zip(traces.tolist(), names, strict=True)
        if (name == channel if channel else not name.startswith(PHASE_PREFIX) and name != WINDOW)
    ]
    if len(matches) != 1:
        channels = ", ".join(sorted(names)) or "none (a trace is kept once the run has ended)"
        problem = f"no channel {channel!r}" if channel else "name one channel"
        raise ArgumentError(f"point {point_id}: {problem}; its channels: {channels}")
    trace, name = matches[0]
    start, size = (int(dataset[column].values[trace]) for column in ("row_start", "row_size"))
    samples = dataset[["time_ns", "value"]].isel(sample=slice(start, start + size)).load()
    time = ("time", samples["time_ns"].values / 1e9, {"long_name": "time", "units": "s"})
    return xr.DataArray(
        samples["value"].values,
        coords={"time": time},
        dims="time",
        name=name,
        attrs={"long_name": name, "units": str(dataset["trace_unit"].values[trace])},
    )
