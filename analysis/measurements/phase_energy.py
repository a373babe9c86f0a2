"""Measured energy by phase, from a trace and the marks of a kernel's phases.

This reads from the meter what :mod:`analysis.energy.breakdown` predicts from counts (Choi & Vuduc
2016, section IV). A phase that is shorter than the meter's period is blurred with its neighbours:
its energy is its time multiplied by about the mean power around it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measurements.observations import FitError, refuse_other_ranks, setting_text
from dvfs.dataset import OK, PHASE_PREFIX, Columns
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting, axis_values, distinct_settings

FASTEST, LEAST = "fastest", "least energy"
WINDOW = "window"
"""The channel that marks the start and end of each window."""


@dataclass(frozen=True, kw_only=True)
class PhaseSplit:
    """Measured energy of one iteration of a kernel at a setting by phase, the mean of its repeats.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``energy_j``, ``time_s``: float64 (phases,), J and s. ``at``: whether this is the kernel's
    :data:`FASTEST` measured setting, the one of :data:`LEAST` energy, or both. ``period_s``: the
    period of the meter's readings, NaN if unknown.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    at: str
    setting: Setting
    phases: list[str]
    energy_j: np.ndarray
    time_s: np.ndarray
    repeats: int
    period_s: float

    @property
    def share(self) -> np.ndarray:
        """The share of all phases' energy: float64 (phases,), NaN if that is not above 0."""
        whole = float(self.energy_j.sum())
        return self.energy_j / whole if whole > 0 else np.full(len(self.phases), math.nan)


def phase_splits(columns: Columns, site: str) -> tuple[list[PhaseSplit], list[str]]:
    """The split of every kernel of a site that marks phases, at its fastest setting and at the one
    of least energy; and notes on kernels that could not be split.

    Both settings are by the means over the repeats that mark phases; of equal ones, the first in
    the order of settings. Only the samples of these settings are read.

    Args:
        columns: a store's, with its traces.
        site: the site's name.
    """

    channels = columns["trace_channel"].tolist()
    marks = np.array([str(name).startswith(PHASE_PREFIX) for name in channels], bool)
    if not marks.any():
        return [], []
    marked = np.unique(columns["trace_measurement"][marks])
    ok = (columns["site"] == site) & (columns["status"] == OK)
    ok &= (columns["energy_j"] > 0) & (columns["time_s"] > 0)
    instances = columns.kernels_by_pair
    kernels: dict[str, KernelInstance] = {}
    rows: dict[str, dict[Setting, list[int]]] = {}
    done = marked[ok[marked]]
    settings, setting_of = distinct_settings(*axis_values(columns, done))
    for i, s in zip(done.tolist(), setting_of.tolist(), strict=True):
        kernel = instances[str(columns["kernel"][i]), str(columns["params"][i])]
        kernels[kernel.label] = kernel
        rows.setdefault(kernel.label, {}).setdefault(settings[s], []).append(i)
    splits, notes = [], []
    for label in sorted(rows):
        by_setting = rows[label]
        all_rows = np.concatenate(list(by_setting.values()))
        try:
            refuse_other_ranks(columns, all_rows, [label], np.zeros(len(all_rows), np.int64))
        except FitError as why:
            notes.append(f"No energy by phase: {why}.")
            continue
        settings = sorted(by_setting)
        fastest, least = (
            min(settings, key=lambda s: float(columns[name][by_setting[s]].mean()))
            for name in ("time_s", "energy_j")
        )
        chosen = {fastest: FASTEST, least: LEAST}
        if fastest == least:
            chosen = {fastest: f"{FASTEST} and {LEAST}"}
        for setting, at in chosen.items():
            try:
                splits.append(
                    _mean_split(columns, kernels[label], at, setting, by_setting[setting])
                )
            except FitError as why:
                notes.append(f"{label}: {why}.")
    return splits, notes


def _mean_split(
    columns: Columns,
    kernel: KernelInstance,
    at: str,
    setting: Setting,
    rows: list[int],
) -> PhaseSplit:
    """The energy and time of each phase in one iteration, the mean over repeats.

    Raises:
        FitError: the repeats mark different phases, or no channel counts toward the energy.
    """
    joules, seconds, phases, periods = [], [], [], []
    for row in rows:
        meters = json.loads(str(columns["meters"][row]) or "{}")
        channels = _counted(meters)
        split = phase_energy(columns, row)
        missing = sorted(set(channels) - set(split.energy_j))
        if missing:
            raise FitError(f"no trace of {missing[0]} is kept in measurement {row}")
        iteration_s = float(columns["time_s"][row])
        iterations = max(1, round(split.marked_s / iteration_s))
        of_channels = [split.energy_j[channel] for channel in channels]
        joules.append(np.sum(of_channels, axis=0) / iterations)
        seconds.append(split.time_s / iterations)
        phases.append(split.phases)
        periods += [float(meters[channel].get("period_s") or math.nan) for channel in channels]
    if any(names != phases[0] for names in phases):
        raise FitError(f"its repeats at {setting_text(setting)} mark different phases")
    return PhaseSplit(
        **kernel.as_dict(),
        at=at,
        setting=setting,
        phases=phases[0],
        energy_j=np.mean(joules, axis=0),
        time_s=np.mean(seconds, axis=0),
        repeats=len(rows),
        period_s=max(periods),
    )


def _counted(meters: dict[str, dict[str, Any]]) -> list[str]:
    """The channels whose energies add up to the measurement's energy.

    Raises:
        FitError: no channel counts toward it.
    """
    names = [name for name, meter in meters.items() if meter.get("counts")]
    if not names:
        raise FitError("no energy by phase: no channel is marked as part of the measured energy")
    return names


@dataclass(frozen=True)
class MarkedPhases:
    """The phases of one measurement, over the marked parts of all windows: the beginning of a
    window that runs more iterations than it marks.

    ``phases``: in the order of their first start. ``energy_j``: channel -> float64 (phases,), J.
    ``time_s``: float64 (phases,), s. ``marked_s``: the sum over windows of the time from the start
    of the first phase to the end of the last, s.
    """

    phases: list[str]
    energy_j: Mapping[str, np.ndarray]
    time_s: np.ndarray
    marked_s: float


def phase_energy(columns: Columns, measurement: int) -> MarkedPhases:
    """The energy by channel and the time of each phase of a measurement.

    Args:
        columns: a store's, with its traces.
        measurement: the row.

    Raises:
        FitError: the measurement marks no phases, or no meter was read.
    """
    marks, joules = {}, {}
    windows_s = np.array([[-np.inf, np.inf]])
    for name, (time_s, value, unit) in _traces(columns, measurement).items():
        if name.startswith(PHASE_PREFIX):
            marks[name.removeprefix(PHASE_PREFIX)] = time_s.reshape(-1, 2)
        elif name == WINDOW:
            windows_s = time_s.reshape(-1, 2)
        else:
            joules[name] = (time_s, value, unit)
    if not marks or not joules:
        what = "no phases are marked" if not marks else "no meter was read"
        raise FitError(f"no energy by phase of measurement {measurement}: {what}")
    phases = sorted(marks, key=lambda name: float(marks[name][0, 0]))
    ends_s = np.concatenate(list(marks.values()))
    within = [ends_s[(ends_s[:, 0] >= a) & (ends_s[:, 0] <= b)] for a, b in windows_s]
    return MarkedPhases(
        phases=phases,
        energy_j={
            channel: np.array([_energy_j(marks[phase], *readings) for phase in phases])
            for channel, readings in joules.items()
        },
        time_s=np.array([np.diff(marks[phase], axis=1).sum() for phase in phases]),
        marked_s=sum(float(np.ptp(part)) for part in within if part.size),
    )


def _traces(columns: Columns, measurement: int) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
    """Channel -> (seconds, values, unit) of a measurement's traces.

    A store keeps them contiguously, so that one read suffices: each read costs milliseconds.
    """
    rows = np.flatnonzero(columns["trace_measurement"] == measurement)
    if not len(rows):
        return {}
    starts, sizes = (columns[name][rows] for name in ("row_start", "row_size"))
    begin, end = int(starts.min()), int((starts + sizes).max())
    is_contiguous = end - begin == int(sizes.sum())
    whole = read_samples(columns, begin, end) if is_contiguous else None
    traces = {}
    for row, start, size in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if whole is None:
            time_s, value = read_samples(columns, start, start + size)
        else:
            time_s, value = (part[start - begin : start - begin + size] for part in whole)
        channel = str(columns["trace_channel"][row])
        traces[channel] = (time_s, value, str(columns["trace_unit"][row]))
    return traces


def read_samples(columns: Columns, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The seconds and values of a range of samples, float64 each."""
    time_ns, value = (np.asarray(columns.arrays[name][begin:end]) for name in ("time_ns", "value"))
    return time_ns / 1e9, value


def _energy_j(spans_s: np.ndarray, time_s: np.ndarray, value: np.ndarray, unit: str) -> float:
    """The energy within spans (n, 2), J: by a counter's readings, or the integral of a power."""
    if unit == "J":
        ends_j = np.interp(spans_s, time_s, value)
        return float((ends_j[:, 1] - ends_j[:, 0]).sum())
    # The trapezoidal rule up to any time: whole steps, and a part of the last one.
    steps_j = np.diff(time_s) * (value[1:] + value[:-1]) / 2
    until_j = np.concatenate([[0.0], np.cumsum(steps_j)])
    ends_s = np.clip(spans_s, time_s[0], time_s[-1])
    step = np.clip(np.searchsorted(time_s, ends_s, side="right") - 1, 0, len(time_s) - 2)
    ends_w = np.interp(ends_s, time_s, value)
    ends_j = until_j[step] + (ends_s - time_s[step]) * (value[step] + ends_w) / 2
    return float((ends_j[:, 1] - ends_j[:, 0]).sum())
