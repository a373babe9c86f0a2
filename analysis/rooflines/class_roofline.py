"""The time of a kernel at any setting, from its operation counts and its time at one setting.

A roofline with one ceiling for each class of operations, proportional to the clock of the class's
domain:

    roof(f) = (sum_k (n_k tau_k f_top / f_dom)^p)^(1/p)

p, for imperfect overlap, and tau_k, the seconds of one operation at the highest clocks, are fitted
to all kernels with counts. The time that a kernel takes beyond its roof at the measured setting
(latency, dependences) scales with the core clock, the memory clock or none, in shares common to all
kernels; each launch has a fixed overhead. So one measured time shows a kernel's distance from its
roof, and its counts give the roof at other settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.measurements.observations import (
    FitError,
    Observations,
    cell_means,
    kernel_names,
    kernel_numbers,
)
from analysis.rooflines.roofline import fastest_setting
from dvfs.setting import Setting, clock_columns

NORMAL_MEDIAN = 0.6745
"""The median of the absolute value of a standard normal variable."""
MIN_KERNELS = 5
FIRST_EXPONENT = 6.0
FIRST_OVERHEAD = 0.1
"""The start value of the overhead, as a share of the shortest measured time."""
HOLD = 0.3
"""The weight of the parameters' distances from their start values among the residuals."""
OUTLYING = 0.05
"""Residuals of log time beyond this count less: some kernels have limits that the model lacks."""


@dataclass(frozen=True)
class ClassRoofline:
    """The fitted model of times.

    ``tau_s``: class -> seconds of one operation at ``top_mhz``, (core, memory). ``shares``: of the
    time beyond the roof that scale with (the core clock, the memory clock, neither).
    """

    tau_s: dict[str, float]
    domains: dict[str, str]
    exponent: float
    shares: tuple[float, float, float]
    overhead_s: float
    top_mhz: tuple[float, float]
    spread: float
    """The relative standard deviation of predicted times, from the median of the deviations."""

    def time_s(
        self,
        counts: Mapping[str, float],
        measured_s: float,
        measured_at: Setting,
        core_mhz: np.ndarray,
        mem_mhz: np.ndarray,
    ) -> np.ndarray:
        """Predicted seconds at settings, float64; at ``measured_at`` this is ``measured_s``."""
        names = list(self.tau_s)
        n = np.array([[np.nan_to_num(counts.get(name, 0.0)) for name in names]])
        ((measured_core, measured_mem),) = clock_columns([measured_at])
        core = np.append(np.asarray(core_mhz, float), measured_core)
        mem = np.append(np.asarray(mem_mhz, float), measured_mem)
        tau = np.array([self.tau_s[name] for name in names])
        is_mem = np.array([self.domains[name] == "mem" for name in names], bool)
        time_s = _times(
            n * tau,
            is_mem,
            exponent=self.exponent,
            shares=np.array(self.shares),
            overhead_s=self.overhead_s,
            measured_s=np.array([measured_s]),
            core=_slower(core, self.top_mhz[0]),
            mem=_slower(mem, self.top_mhz[1]),
        )
        return time_s[0, :-1]


def _slower(mhz: np.ndarray, top: float) -> np.ndarray:
    """f_top / f, 1 where there is no clock."""
    return np.where(np.isfinite(mhz), top / np.where(np.isfinite(mhz), mhz, 1.0), 1.0)


def _times(
    busy_s: np.ndarray,
    is_mem: np.ndarray,
    *,
    exponent: float,
    shares: np.ndarray,
    overhead_s: float,
    measured_s: np.ndarray,
    core: np.ndarray,
    mem: np.ndarray,
) -> np.ndarray:
    """Seconds (kernels, settings); the last setting is the measured one.

    ``busy_s``: float64 (kernels, classes), seconds of each class alone at the highest clocks.
    """
    largest = np.maximum(busy_s.max(axis=1, keepdims=True), 1e-300)  # keeps powers in range
    power = (busy_s / largest) ** exponent
    core_p, mem_p = (power[:, side].sum(axis=1)[:, None] for side in (~is_mem, is_mem))
    roof = largest * (core_p * core**exponent + mem_p * mem**exponent) ** (1.0 / exponent)
    fixed = np.minimum(overhead_s, 0.98 * measured_s)[:, None]
    running = measured_s[:, None] - fixed
    fraction = np.minimum(1.0, running / np.maximum(roof[:, -1:], 1e-300))
    beyond = np.maximum(running - roof[:, -1:], 0.0)
    scaling = shares[0] * core / core[-1] + shares[1] * mem / mem[-1] + shares[2]
    return np.asarray(fixed + roof * fraction + beyond * scaling)


def fit_class_roofline(data: Observations) -> ClassRoofline:
    """Fit the ceilings to the kernels with counts, each with its time at the fastest setting.

    Raises:
        FitError: fewer than five kernels with counts were measured at the site's fastest setting.
    """
    from scipy import optimize  # noqa: PLC0415

    data = data.take(data.has_counts)
    if not len(data):
        raise FitError("no kernel has operation counts; times cannot be predicted from counts")
    base = fastest_setting(data)
    kernels = kernel_names(data.take(data.setting == base))
    if len(kernels) < MIN_KERNELS:
        raise FitError(
            f"{len(kernels)} kernels with counts were measured at the fastest setting; predicting "
            f"times from counts needs at least {MIN_KERNELS}"
        )
    data = data.take(kernel_numbers(data, kernels) >= 0)
    kernel = kernel_numbers(data, kernels)
    names = [name for name, values in data.counts.items() if np.nan_to_num(values).any()]
    is_mem = np.array([data.domains[name] == "mem" for name in names], bool)
    time_s = cell_means(data, kernels, data.time_s)
    first = np.unique(kernel, return_index=True)[1]
    n = np.column_stack([np.nan_to_num(data.counts[name])[first] for name in names])
    mhz = data.mhz[[*range(len(data.settings)), base]]
    top_mhz = [float(np.nanmax(mhz[:, i])) if np.isfinite(mhz[:, i]).any() else 1.0 for i in (0, 1)]
    core, mem = _slower(mhz[:, 0], top_mhz[0]), _slower(mhz[:, 1], top_mhz[1])
    measured_s = time_s[:, base]
    slower = np.where(is_mem, mem[-1], core[-1])
    tau = 1.0 / np.maximum((n / measured_s[:, None]).max(axis=0) * slower, 1e-300)
    measured = np.isfinite(time_s)
    shortest = float(measured_s.min())

    def parameters(x: np.ndarray) -> tuple[np.ndarray, float, np.ndarray, float]:
        shares = np.exp([x[-3], x[-2], 0.0])
        return (
            tau * np.exp(x[: len(names)]),
            1.5 + float(np.exp(x[-4])),
            shares / shares.sum(),
            shortest * float(np.exp(x[-1])),
        )

    start = np.zeros(len(names) + 4)
    start[-4] = np.log(FIRST_EXPONENT - 1.5)
    start[-3:] = 1.0, -1.0, np.log(FIRST_OVERHEAD)

    def residual(x: np.ndarray) -> np.ndarray:
        fitted, exponent, shares, overhead_s = parameters(x)
        times = _times(
            n * fitted,
            is_mem,
            exponent=exponent,
            shares=shares,
            overhead_s=overhead_s,
            measured_s=measured_s,
            core=core,
            mem=mem,
        )
        return np.append(np.log(times[:, :-1] / time_s)[measured], HOLD * (x - start))

    solution = optimize.least_squares(residual, start, loss="soft_l1", f_scale=OUTLYING)
    fitted, exponent, shares, overhead_s = parameters(solution.x)
    return ClassRoofline(
        tau_s=dict(zip(names, map(float, fitted), strict=True)),
        domains={name: data.domains[name] for name in names},
        exponent=exponent,
        shares=(float(shares[0]), float(shares[1]), float(shares[2])),
        overhead_s=overhead_s,
        top_mhz=(top_mhz[0], top_mhz[1]),
        spread=float(np.median(np.abs(solution.fun[: int(measured.sum())]))) / NORMAL_MEDIAN,
    )
