"""Where the measured energy goes: joules by phase, from a trace and the marks of a kernel's phases.

What :mod:`analysis.breakdown` predicts from counts is here read off the meter (seed 003, section
IV). A phase that is shorter than the meter's period is blurred with its neighbours: its joules are
then its time at about the mean power of what surrounds it.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from analysis.observations import CantFit

PHASE = "phase:"
"""What the channel of a trace that marks a phase begins with."""


def phase_energy(dataset: xr.Dataset, measurement: int) -> xr.Dataset:
    """Joules and seconds of each phase in a window, by the meter's channel.

    The window's marked part: its beginning, where a run has more iterations than are marked.

    Args:
        dataset: a store's, with its traces.
        measurement: the row.

    Returns:
        ``energy_j``, float64 (phase, channel), J; ``time_s``, float64 (phase,), s; ``share``,
        float64 (phase, channel), of all phases' energy. Phases in the order in which they begin.

    Raises:
        CantFit: the measurement marks no phases, or no meter was read.
    """
    rows = np.flatnonzero(dataset["trace_measurement"].values == measurement)
    marks, joules = {}, {}
    for row in rows.tolist():
        name = str(dataset["trace_channel"].values[row])
        start, size = int(dataset["row_start"].values[row]), int(dataset["row_size"].values[row])
        samples = dataset[["time_ns", "value"]].isel(sample=slice(start, start + size))
        time_s, value = samples["time_ns"].values / 1e9, samples["value"].values
        if name.startswith(PHASE):
            marks[name.removeprefix(PHASE)] = time_s.reshape(-1, 2)
        else:
            joules[name] = (time_s, value, str(dataset["trace_unit"].values[row]))
    if not marks or not joules:
        what = "no phases are marked" if not marks else "no meter was read"
        raise CantFit(f"no energy by phase of measurement {measurement}: {what}")
    phases = sorted(marks, key=lambda name: float(marks[name][0, 0]))
    energy_j = np.array(
        [[_energy_j(marks[phase], *joules[channel]) for channel in joules] for phase in phases]
    )
    whole = energy_j.sum(axis=0)
    share = np.divide(energy_j, whole, out=np.full_like(energy_j, np.nan), where=whole > 0)
    dims = ("phase", "channel")
    lengths_s = [float(np.diff(marks[phase], axis=1).sum()) for phase in phases]
    return xr.Dataset(
        {
            "energy_j": (dims, energy_j, {"units": "J"}),
            "time_s": ("phase", lengths_s, {"units": "s"}),
            "share": (dims, share, {"units": "1"}),
        },
        {"phase": phases, "channel": list(joules)},
    )


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
