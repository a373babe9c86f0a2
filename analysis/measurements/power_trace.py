"""The trace of one measurement: power against time, with the measured windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.measurements.phase_energy import WINDOW, read_samples
from dvfs.dataset import OK, PHASE_PREFIX, Columns
from dvfs.kernel_instance import kernel_instances
from dvfs.setting import AXES, Setting


@dataclass(frozen=True, kw_only=True)
class PowerTrace:
    """Power against time of one measurement.

    ``channels``: channel -> (seconds from the start of the window, watts), float64 (samples,)
    each. ``windows_s``: float64 (windows, 2), start and end of each measured window, s.
    """

    kernel: str
    setting: Setting
    iterations: int
    time_s: float
    energy_j: float
    windows_s: np.ndarray
    channels: Mapping[str, tuple[np.ndarray, np.ndarray]]


def power_trace(columns: Columns, site: str) -> PowerTrace | None:
    """The trace of the site's measurement whose mean power is the median; None if no measurement
    has a trace of power or energy. Reads only its samples. ``columns``: a store's, with its traces.
    """

    power_w = columns["energy_j"] / columns["time_s"]
    usable = (columns["site"] == site) & (columns["status"] == OK)
    usable &= np.isfinite(power_w) & (power_w > 0)
    has_power = np.isin(columns["trace_unit"].astype(object), ("W", "J"))
    rows = np.unique(columns["trace_measurement"][has_power & (columns["row_size"] > 1)])
    rows = rows[usable[rows]]
    if not len(rows):
        return None
    return row_trace(columns, int(rows[np.argsort(power_w[rows], kind="stable")[len(rows) // 2]]))


def row_trace(columns: Columns, row: int) -> PowerTrace | None:
    """The trace of the measurement ``row``; None if it has no trace of power or energy. Reads only
    its samples. ``columns``: a store's, with its traces."""

    unit = columns["trace_unit"].astype(object)
    scalars = {name: columns[name][row] for name in ("time_s", "energy_j", "iterations")}
    windows_s = np.array([[0.0, scalars["time_s"] * scalars["iterations"]]])
    channels = {}
    for i in np.flatnonzero(columns["trace_measurement"] == row):
        name = str(columns["trace_channel"][i])
        first, size = int(columns["row_start"][i]), int(columns["row_size"][i])
        if name.startswith(PHASE_PREFIX) or (name != WINDOW and unit[i] not in ("W", "J")):
            continue
        time_s, value = read_samples(columns, first, first + size)
        if name == WINDOW:
            windows_s = time_s.reshape(-1, 2)
        elif unit[i] == "W":
            channels[name] = (time_s, value)
        else:  # a meter that counts energy: the mean power between two readings
            # The readings of each window count from 0: no power is known from one to the next.
            step = (np.diff(time_s) > 0) & (np.diff(value) >= 0)
            middle = (time_s[1:] + time_s[:-1]) / 2.0
            channels[name] = (middle[step], np.diff(value)[step] / np.diff(time_s)[step])
    if not channels:
        return None
    kernel, params = (str(columns[name][row]) for name in ("kernel", "params"))
    return PowerTrace(
        kernel=kernel_instances([(kernel, params)])[kernel, params].label,
        setting=Setting.of_row({n: columns[n][row] for n in AXES}),
        iterations=int(scalars["iterations"]),
        time_s=float(scalars["time_s"]),
        energy_j=float(scalars["energy_j"]),
        windows_s=windows_s,
        channels=channels,
    )
