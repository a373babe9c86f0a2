"""A DVFS-aware roofline in time for each kernel, fitted on its measurements.

T = c + ((a / f_core)^p + (b / f_mem)^p)^(1/p): what no clock paces, and what the core's and the
memory's clocks pace, overlapping the better the larger p is (p = 1: one after the other; a large
p: the maximum of the roofline). p is shared by the kernels of a site.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.measurements.observations import Observations, kernel_names

EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
NORMAL_MEDIAN = 0.6745
"""The median of the absolute value of a standard normal number."""
FIXED_SHARES = np.concatenate([[0.0], np.geomspace(0.005, 0.2, 12), np.linspace(0.25, 0.95, 15)])
"""The shares of a kernel's shortest time that are tried as c."""


@dataclass(frozen=True)
class TimeModel:
    """``exponent`` p, and kernel -> (a, b, c) in s, a and b at the highest clocks (``top_mhz``).

    ``spread``: the relative standard deviation of measured times about the model, from the
    median of the deviations, so that a time that jumped does not widen it.
    """

    exponent: float
    paced_s: dict[str, tuple[float, float, float]]
    top_mhz: tuple[float, float]
    spread: float = 0.0

    def time_s(self, kernel: str, core_mhz: np.ndarray, mem_mhz: np.ndarray) -> np.ndarray:
        """Predicted seconds at settings; NaN for a kernel that was not measured."""
        if kernel not in self.paced_s:
            return np.full(np.shape(core_mhz), np.nan)
        a, b, c = self.paced_s[kernel]
        core, mem = _ratios(core_mhz, mem_mhz, self.top_mhz)
        paced = (a * core) ** self.exponent + (b * mem) ** self.exponent
        return np.asarray(c + paced ** (1.0 / self.exponent))


def _ratios(
    core_mhz: np.ndarray, mem_mhz: np.ndarray, top_mhz: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """f_top / f of both domains; 0 for a domain that is not there."""
    core, mem = (
        np.nan_to_num(top / np.asarray(mhz, float), nan=0.0)
        for top, mhz in zip(top_mhz, (core_mhz, mem_mhz), strict=True)
    )
    return core, mem


def fit_time(data: Observations) -> TimeModel:
    """Fit every kernel for every exponent; keep the exponent with the least relative error."""
    tops = [
        float(np.nanmax(mhz)) if np.isfinite(mhz).any() else np.nan
        for mhz in (data.core_mhz, data.mem_mhz)
    ]
    top_mhz = (tops[0], tops[1])
    core, mem = _ratios(data.core_mhz, data.mem_mhz, top_mhz)
    rows = {kernel: np.flatnonzero(data.kernel == kernel) for kernel in kernel_names(data)}
    best: tuple[float, TimeModel] | None = None
    for p in EXPONENTS:
        paced_s, error = {}, 0.0
        for kernel, mine in rows.items():
            paced_s[kernel], lost = _fit_kernel(core[mine], mem[mine], data.time_s[mine], p)
            error += lost
        if best is None or error < best[0]:
            best = (error, TimeModel(p, paced_s, top_mhz))
    assert best is not None  # noqa: S101
    model = best[1]
    deviation = np.empty(len(data))
    for kernel, mine in rows.items():
        predicted_s = model.time_s(kernel, data.core_mhz[mine], data.mem_mhz[mine])
        deviation[mine] = np.abs(predicted_s / data.time_s[mine] - 1.0)
    return replace(model, spread=float(np.median(deviation)) / NORMAL_MEDIAN)


def fit_without(
    model: TimeModel, mine: Observations, kernel: str, left_out: np.ndarray
) -> TimeModel:
    """The model of one kernel from its rows ``mine`` but those ``left_out``, the exponent given."""
    core, mem = _ratios(mine.core_mhz[~left_out], mine.mem_mhz[~left_out], model.top_mhz)
    paced_s, _ = _fit_kernel(core, mem, mine.time_s[~left_out], model.exponent)
    return replace(model, paced_s={kernel: paced_s})


def _fit_kernel(
    core: np.ndarray, mem: np.ndarray, time_s: np.ndarray, p: float
) -> tuple[tuple[float, float, float], float]:
    """(a, b, c) of one kernel, and the sum of its squared relative errors.

    For a fixed c, (T - c)^p is linear in a^p and b^p: two unknowns >= 0, weighted so that the
    error of T counts relative to T. Every c of the grid is solved at once.
    """
    shortest_s = float(time_s.min())
    relative = time_s[:, None] / shortest_s  # powers of seconds would overflow
    rest = relative - FIXED_SHARES
    weight = 1.0 / (p * rest ** (p - 1.0) * relative)
    target = rest**p * weight
    x, y = core[:, None] ** p * weight, mem[:, None] ** p * weight
    xx, xy, yy = (x * x).sum(0), (x * y).sum(0), (y * y).sum(0)
    xt, yt = (x * target).sum(0), (y * target).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = xx * yy - xy * xy
        both = ((yy * xt - xy * yt) / determinant, (xx * yt - xy * xt) / determinant)
        one = (xt / xx, np.zeros_like(xt))
        other = (np.zeros_like(yt), yt / yy)
    paced, least = (0.0, 0.0, 1.0), np.inf
    for a, b in (both, one, other):
        legal = np.isfinite(a) & np.isfinite(b) & (a >= 0) & (b >= 0)
        a, b = np.where(legal, a, 0.0), np.where(legal, b, 0.0)  # noqa: PLW2901
        clocked = core[:, None] ** p * a + mem[:, None] ** p * b
        error = (((FIXED_SHARES + clocked ** (1.0 / p)) / relative - 1.0) ** 2).sum(0)
        i = int(np.argmin(np.where(legal, error, np.inf)))
        if legal[i] and error[i] < least:
            least = float(error[i])
            paced = (float(a[i] ** (1 / p)), float(b[i] ** (1 / p)), float(FIXED_SHARES[i]))
    if not np.isfinite(least):  # no clock is known at all: the mean is what there is
        paced = (0.0, 0.0, float(relative.mean()))
        least = float(((paced[2] / relative - 1.0) ** 2).sum())
    a, b, c = (part * shortest_s for part in paced)
    return (a, b, c), least
