"""One measurement's trace, as an array with its time and units."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dvfs.dataset import PHASE_PREFIX
from dvfs.errors import ArgumentError

WINDOW = "window"
"""The channel that marks the windows of a measurement that has several."""


def trace_of(dataset: xr.Dataset, point_id: str, channel: str | None = None) -> xr.DataArray:
    """The samples of one channel of one measurement, in memory.

    Args:
        dataset: of :func:`campaign.store.dataset.open_dataset`. Only this trace's samples are read.
        point_id: the measurement's ``point_id``.
        channel: the channel; it may be left out where the measurement has one meter's channel.

    Returns:
        float64 along ``time``, in the unit that its attribute ``units`` says. The coordinate
        ``time`` is in s from the start of the first window (negative: before it).

    Raises:
        ArgumentError: there is no such measurement, or not one such trace.
    """
    rows = np.flatnonzero(dataset["point_id"].values == point_id)
    if not rows.size:
        raise ArgumentError(f"no measurement of point {point_id!r} is in the store")
    traces = np.flatnonzero(dataset["trace_measurement"].values == rows[0])
    names = dataset["trace_channel"].values[traces].tolist()
    wanted = [
        (trace, name)
        for trace, name in zip(traces.tolist(), names, strict=True)
        if (name == channel if channel else not name.startswith(PHASE_PREFIX) and name != WINDOW)
    ]
    if len(wanted) != 1:
        there = ", ".join(sorted(names)) or "none (a trace is kept once the run has ended)"
        asked = f"no channel {channel!r}" if channel else "name one channel"
        raise ArgumentError(f"point {point_id}: {asked}; its channels: {there}")
    trace, name = wanted[0]
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
