"""The pick: the setting chosen for a kernel, what it saves, and what it costs in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from analysis.fit import Fit
from analysis.observations import CantFit, Observations, kernel_names
from analysis.time_model import fit_time

OBJECTIVES = ("energy", "edp", "ed2p", "time")


@dataclass(frozen=True)
class Pick:
    """The chosen setting of a kernel; savings and slowdown are against its fastest setting.

    ``measured``: whether this kernel was measured there (its time is then the measured one).
    """

    kernel: str
    core_mhz: float
    mem_mhz: float
    energy_j: float
    time_s: float
    saving_pct: float
    slowdown_pct: float
    measured: bool


@dataclass(frozen=True)
class Candidates:
    """A kernel at every setting that may be picked: arrays with one entry a setting."""

    kernel: str
    settings: list[tuple[float, float]]
    energy_j: np.ndarray
    time_s: np.ndarray
    measured: np.ndarray
    measured_j: np.ndarray
    """Mean measured energy; NaN where the kernel was not measured."""


def candidates(
    found: Fit,
    data: Observations,
    kernel: str,
    volts: Mapping[tuple[float, float], tuple[float, float]] | None = None,
) -> Candidates:
    """A kernel's predicted energy, and its time, at every measured setting and those of ``volts``.

    ``volts``: further legal settings -> (core V, memory V). Time is the mean measured one where
    there is one, else that of the time model.
    """
    mine = data.take(data.kernel == kernel)
    if not len(mine):
        raise CantFit(
            f"no measurements of kernel {kernel!r}; known: {', '.join(kernel_names(data)[:12])}"
        )
    known_volts = {
        data.settings[s]: (
            float(data.core_v[data.setting == s].mean()),
            float(data.mem_v[data.setting == s].mean()),
        )
        for s in np.unique(data.setting)
    }
    known_volts = {**(volts or {}), **known_volts}
    settings = sorted(known_volts)
    core_mhz, mem_mhz = np.array(settings).T
    time_s = fit_time(mine).time_s(kernel, core_mhz, mem_mhz)
    measured = np.zeros(len(settings), bool)
    measured_j = np.full(len(settings), np.nan)
    at = {data.settings[s]: s for s in np.unique(mine.setting)}
    for i, setting in enumerate(settings):
        if setting in at:
            rows = mine.setting == at[setting]
            measured[i] = True
            time_s[i] = mine.time_s[rows].mean()
            measured_j[i] = mine.energy_j[rows].mean()
    volt = np.array([known_volts[s] for s in settings])
    first = mine.take(np.zeros(len(settings), np.int64))
    there = replace(
        first,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=volt[:, 0],
        mem_v=volt[:, 1],
        time_s=time_s,
    )
    return Candidates(kernel, settings, found.energy_j(there), time_s, measured, measured_j)


def pick(among: Candidates, objective: str = "energy", max_slowdown: float | None = None) -> Pick:
    """The best candidate by an objective, at most ``max_slowdown`` (a fraction) slower.

    ``edp`` is energy times time, ``ed2p`` energy times time squared.

    Raises:
        CantFit: an unknown objective.
    """
    weight = {"energy": 0.0, "edp": 1.0, "ed2p": 2.0}
    if objective not in OBJECTIVES:
        raise CantFit(f"unknown objective {objective!r}; known: {', '.join(OBJECTIVES)}")
    energy_j, time_s = among.energy_j, among.time_s
    score = time_s if objective == "time" else energy_j * time_s ** weight[objective]
    fastest = int(np.argmin(time_s))
    if max_slowdown is not None:
        score = np.where(time_s <= time_s[fastest] * (1.0 + max_slowdown), score, np.inf)
    best = int(np.argmin(score))
    return Pick(
        among.kernel,
        *among.settings[best],
        float(energy_j[best]),
        float(time_s[best]),
        float((1.0 - energy_j[best] / energy_j[fastest]) * 100.0),
        float((time_s[best] / time_s[fastest] - 1.0) * 100.0),
        bool(among.measured[best]),
    )


def picks(
    found: Fit,
    data: Observations,
    kernels: list[str] | None = None,
    objective: str = "energy",
    max_slowdown: float | None = None,
    volts: Mapping[tuple[float, float], tuple[float, float]] | None = None,
) -> list[Pick]:
    """The pick of each kernel (all by default), by name."""
    return [
        pick(candidates(found, data, kernel, volts), objective, max_slowdown)
        for kernel in kernels or kernel_names(data)
    ]
