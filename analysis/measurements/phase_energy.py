"""Where the measured energy goes: joules by phase, from a trace and the marks of a kernel's phases.

What :mod:`analysis.energy.breakdown` predicts from counts is here read from the meter (Choi &
Vuduc 2016, section IV). A phase that is shorter than the meter's period is blurred with its
neighbours: its joules are then its time at about the mean power of what surrounds it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.measurements.observations import FitError, refuse_other_ranks, setting_text
from dvfs.dataset import OK, PHASE_PREFIX, Columns
from dvfs.kernel_instance import KernelInstance, dataset_kernels
from dvfs.setting import Setting, axis_values, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

FASTEST, LEAST = "fastest", "least energy"
WINDOW = "window"
"""The channel that marks when each of several windows was."""


@dataclass(frozen=True, kw_only=True)
class PhaseSplit:
    """Measured energy of one iteration of a kernel at a setting by phase, the mean of its repeats.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``energy_j``, ``time_s``: float64 (phases,), J and s. ``at``: which of the kernel's measured
    settings this is, :data:`FASTEST`, :data:`LEAST` or both. ``period_s``: of the meter's readings,
    NaN where not known.
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
        """Of all phases' energy: float64 (phases,), NaN where that is not above 0."""
        whole = float(self.energy_j.sum())
        return self.energy_j / whole if whole > 0 else np.full(len(self.phases), math.nan)


def has_phases(channels: np.ndarray) -> bool:
    """Whether any trace marks a phase; ``channels``: text (traces,)."""
    return any(str(name).startswith(PHASE_PREFIX) for name in channels.tolist())


def phase_splits(dataset: xr.Dataset | Columns, site: str) -> tuple[list[PhaseSplit], list[str]]:
    """Every kernel of a site that marks phases, where it is fastest and where it takes the least
    energy; and notes on what could not be split.

    Fastest and least are by the means over the repeats that mark phases; of equal settings the
    first in order of clocks. Of the samples only those of the settings chosen are read.

    Args:
        dataset: a store's, with its traces.
        site: the site's name.
    """

    def column(name: str) -> np.ndarray:
        return np.asarray(dataset[name])

    if not has_phases(column("trace_channel")):
        return [], []
    channels = column("trace_channel").tolist()
    marks = np.array([str(name).startswith(PHASE_PREFIX) for name in channels], bool)
    marked = np.unique(column("trace_measurement")[marks])
    ok = (column("site") == site) & (column("status") == OK)
    ok &= (column("energy_j") > 0) & (column("time_s") > 0)
    known = dataset_kernels(dataset)
    kernels: dict[str, KernelInstance] = {}
    rows: dict[str, dict[Setting, list[int]]] = {}
    done = marked[ok[marked]]
    settings, setting_of = distinct_settings(*axis_values(dataset, done))
    for i, s in zip(done.tolist(), setting_of.tolist(), strict=True):
        kernel = known[str(column("kernel")[i]), str(column("params")[i])]
        kernels[kernel.label] = kernel
        rows.setdefault(kernel.label, {}).setdefault(settings[s], []).append(i)
    splits, notes = [], []
    for label in sorted(rows):
        by_setting = rows[label]
        together = np.concatenate(list(by_setting.values()))
        try:
            refuse_other_ranks(dataset, together, [label], np.zeros(len(together), np.int64))
        except FitError as why:
            notes.append(f"No energy by phase: {why}.")
            continue
        settings = sorted(by_setting)
        fastest, least = (
            min(settings, key=lambda s: float(column(name)[by_setting[s]].mean()))
            for name in ("time_s", "energy_j")
        )
        chosen = {fastest: FASTEST, least: LEAST}
        if fastest == least:
            chosen = {fastest: f"{FASTEST} and {LEAST}"}
        for setting, at in chosen.items():
            try:
                splits.append(
                    _mean_split(dataset, kernels[label], at, setting, by_setting[setting])
                )
            except FitError as why:
                notes.append(f"{label}: {why}.")
    return splits, notes


def _mean_split(
    dataset: xr.Dataset | Columns,
    kernel: KernelInstance,
    at: str,
    setting: Setting,
    rows: list[int],
) -> PhaseSplit:
    """One iteration's joules and seconds by phase, the mean over repeats.

    Raises:
        FitError: the repeats mark different phases, or no channel is marked as part of the energy.
    """
    joules, seconds, named, periods = [], [], [], []
    for row in rows:
        meters = json.loads(str(np.asarray(dataset["meters"])[row]) or "{}")
        channels = _counted(meters)
        split = phase_energy(dataset, row)
        missing = sorted(set(channels) - set(split["channel"].values.tolist()))
        if missing:
            raise FitError(f"no trace of {missing[0]} is kept in measurement {row}")
        one_s = float(np.asarray(dataset["time_s"])[row])
        iterations = max(1, round(float(split["marked_s"]) / one_s))
        joules.append(split["energy_j"].sel(channel=channels).sum("channel").values / iterations)
        seconds.append(split["time_s"].values / iterations)
        named.append(split["phase"].values.tolist())
        periods += [float(meters[channel].get("period_s") or math.nan) for channel in channels]
    if any(names != named[0] for names in named):
        raise FitError(f"its repeats at {setting_text(setting)} mark different phases")
    return PhaseSplit(
        **kernel.as_dict(),
        at=at,
        setting=setting,
        phases=[str(name) for name in named[0]],
        energy_j=np.mean(joules, axis=0),
        time_s=np.mean(seconds, axis=0),
        repeats=len(rows),
        period_s=max(periods),
    )


def _counted(meters: dict[str, dict[str, Any]]) -> list[str]:
    """The channels whose energies add up to that of the measurement.

    Raises:
        FitError: no channel is marked so.
    """
    names = [name for name, meter in meters.items() if meter.get("counts")]
    if not names:
        raise FitError("no energy by phase: no channel is marked as part of the measured energy")
    return names


def phase_energy(dataset: xr.Dataset | Columns, measurement: int) -> xr.Dataset:
    """Joules and seconds of each phase, over all windows, by the meter's channel.

    Of each window the marked part: its beginning, where a run has more iterations than are marked.

    Args:
        dataset: a store's, with its traces.
        measurement: the row.

    Returns:
        ``energy_j``, float64 (phase, channel), J; ``time_s``, float64 (phase,), s; ``share``,
        float64 (phase, channel), of all phases' energy; ``marked_s``, s from where the first
        phase of each window begins to where its last one ends. Phases in the order in which they
        begin.

    Raises:
        FitError: the measurement marks no phases, or no meter was read.
    """
    import xarray as xr  # noqa: PLC0415

    marks, joules = {}, {}
    windows_s = np.array([[-np.inf, np.inf]])
    for name, (time_s, value, unit) in _traces(dataset, measurement).items():
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
    energy_j = np.array(
        [[_energy_j(marks[phase], *joules[channel]) for channel in joules] for phase in phases]
    )
    whole = energy_j.sum(axis=0)
    share = np.divide(energy_j, whole, out=np.full_like(energy_j, np.nan), where=whole > 0)
    dims = ("phase", "channel")
    lengths_s = [float(np.diff(marks[phase], axis=1).sum()) for phase in phases]
    ends_s = np.concatenate(list(marks.values()))
    within = [ends_s[(ends_s[:, 0] >= a) & (ends_s[:, 0] <= b)] for a, b in windows_s]
    marked_s = sum(float(np.ptp(part)) for part in within if part.size)
    return xr.Dataset(
        {
            "energy_j": (dims, energy_j, {"units": "J"}),
            "time_s": ("phase", lengths_s, {"units": "s"}),
            "share": (dims, share, {"units": "1"}),
            "marked_s": ((), marked_s, {"units": "s"}),
        },
        {"phase": phases, "channel": list(joules)},
    )


def _traces(
    dataset: xr.Dataset | Columns, measurement: int
) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
    """Channel -> (seconds, values, unit) of a measurement's traces.

    They lie one after the other in a store, and are then read as one: each read costs
    milliseconds, however short.
    """
    rows = np.flatnonzero(np.asarray(dataset["trace_measurement"]) == measurement)
    if not len(rows):
        return {}
    starts, sizes = (np.asarray(dataset[name])[rows] for name in ("row_start", "row_size"))
    begin, end = int(starts.min()), int((starts + sizes).max())
    together = end - begin == int(sizes.sum())
    whole = read_samples(dataset, begin, end) if together else None
    traces = {}
    for row, start, size in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if whole is None:
            time_s, value = read_samples(dataset, start, start + size)
        else:
            time_s, value = (part[start - begin : start - begin + size] for part in whole)
        channel = str(np.asarray(dataset["trace_channel"])[row])
        traces[channel] = (time_s, value, str(np.asarray(dataset["trace_unit"])[row]))
    return traces


def read_samples(
    dataset: xr.Dataset | Columns, begin: int, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds and values of some samples of a store, float64 each."""
    time_ns, value = (np.asarray(dataset[name][begin:end]) for name in ("time_ns", "value"))
    return time_ns / 1e9, value


def _energy_j(spans_s: np.ndarray, time_s: np.ndarray, value: np.ndarray, unit: str) -> float:
    """Joules within spans (n, 2): of a counter its readings, of a power its integral."""
    if unit == "J":
        ends_j = np.interp(spans_s, time_s, value)
        return float((ends_j[:, 1] - ends_j[:, 0]).sum())
    # The trapezoidal rule up to any time: whole steps, and a part of the last one.
    steps_j = np.diff(time_s) * (value[1:] + value[:-1]) / 2
    until_j = np.concatenate([[0.0], np.cumsum(steps_j)])
    at = np.clip(spans_s, time_s[0], time_s[-1])
    step = np.clip(np.searchsorted(time_s, at, side="right") - 1, 0, len(time_s) - 2)
    here_w = np.interp(at, time_s, value)
    ends_j = until_j[step] + (at - time_s[step]) * (value[step] + here_w) / 2
    return float((ends_j[:, 1] - ends_j[:, 0]).sum())
