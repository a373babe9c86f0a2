"""A DVFS-aware roofline in time for each kernel, fitted on its measurements.

T = c + ((a / f_core)^p + (b / f_mem)^p)^(1/p): what no clock paces, and what the core's and the
memory's clocks pace, overlapping the better the larger p is (p = 1: one after the other; a large
p: the maximum of the roofline). p is shared by the kernels of a site.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        return self.paced_times_s(np.array([self.paced_s[kernel]]), core_mhz, mem_mhz)[0]

    def paced_times_s(
        self, paced_s: np.ndarray, core_mhz: np.ndarray, mem_mhz: np.ndarray
    ) -> np.ndarray:
        """Seconds (K, M) at M settings of kernels whose (a, b, c) are ``paced_s`` (K, 3)."""
        return self.ratio_times_s(paced_s, *clock_ratios(core_mhz, mem_mhz, self.top_mhz))

    def ratio_times_s(self, paced_s: np.ndarray, core: np.ndarray, mem: np.ndarray) -> np.ndarray:
        """The same, given the ratios f_top / f (M,) of both domains in place of the clocks."""
        a, b, c = paced_s.T[:, :, None]
        paced = (a * core) ** self.exponent + (b * mem) ** self.exponent
        return np.asarray(c + paced ** (1.0 / self.exponent))


def clock_ratios(
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
    rows = {kernel: np.flatnonzero(data.kernel == kernel) for kernel in kernel_names(data)}
    times = {kernel: SettingTimes.of(data.take(mine), top_mhz) for kernel, mine in rows.items()}
    best: tuple[float, TimeModel] | None = None
    for p in EXPONENTS:
        fits = {kernel: kernel_times.sums(p).fit() for kernel, kernel_times in times.items()}
        error = sum(lost for _, lost in fits.values())
        if best is None or error < best[0]:
            paced_s = {kernel: paced for kernel, (paced, _) in fits.items()}
            best = (error, TimeModel(p, paced_s, top_mhz))
    assert best is not None  # noqa: S101
    model = best[1]
    deviation = np.empty(len(data))
    for kernel, mine in rows.items():
        predicted_s = model.time_s(kernel, data.core_mhz[mine], data.mem_mhz[mine])
        deviation[mine] = np.abs(predicted_s / data.time_s[mine] - 1.0)
    return replace(model, spread=float(np.median(deviation)) / NORMAL_MEDIAN)


def fits_without(
    model: TimeModel, mine: Observations
) -> Iterator[tuple[np.ndarray, tuple[float, float, float]]]:
    """Each setting's rows among ``mine``, those of one kernel, as bool (N,), and the kernel's
    (a, b, c) from the other rows, the exponent given. Nothing where there is one setting only."""
    times = SettingTimes.of(mine, model.top_mhz)
    sums = times.sums(model.exponent)
    for i in range(sums.n.size if sums.n.size > 1 else 0):
        left_out = times.setting == i
        if times.time_s[left_out].min() == sums.shortest_s:  # the shares tried follow the others
            kept = SettingTimes.of(mine.take(~left_out), model.top_mhz).sums(model.exponent)
        else:
            kept = sums.without(i)
        yield left_out, kept.fit()[0]


@dataclass(frozen=True)
class SettingTimes:
    """The times (N,) of one kernel in s; each row's setting as an index (N,) into ``core`` and
    ``mem`` (S,), the ratios f_top / f there."""

    time_s: np.ndarray
    setting: np.ndarray
    core: np.ndarray
    mem: np.ndarray

    @classmethod
    def of(cls, mine: Observations, top_mhz: tuple[float, float]) -> SettingTimes:
        _, first, setting = np.unique(mine.setting, return_index=True, return_inverse=True)
        core, mem = clock_ratios(mine.core_mhz[first], mine.mem_mhz[first], top_mhz)
        return cls(mine.time_s, setting, core, mem)

    def sums(self, p: float) -> SettingSums:
        """With T in units of the shortest: for a fixed c, (T - c)^p is linear in a^p and b^p, a
        row weighted so that the error of T counts relative to T."""
        shortest_s = float(self.time_s.min())
        relative = self.time_s / shortest_s  # powers of seconds would overflow
        rest = relative[:, None] - FIXED_SHARES
        power = rest ** (p - 1.0)
        weight = 1.0 / (p * power * relative[:, None])
        n = np.bincount(self.setting).astype(float)
        mean = self._by_setting(1.0 / relative) / n
        return SettingSums(
            p=p,
            shortest_s=shortest_s,
            core=self.core[:, None] ** p,
            mem=self.mem[:, None] ** p,
            weight=self._by_setting(weight**2),
            target=self._by_setting(power * rest * weight**2),
            n=n,
            total=self._by_setting(relative),
            inverse=mean,
            scatter=self._by_setting((1.0 / relative - mean[self.setting]) ** 2),
        )

    def _by_setting(self, values: np.ndarray) -> np.ndarray:
        order = np.argsort(self.setting, kind="stable")
        starts = np.searchsorted(self.setting[order], np.arange(len(self.core)))
        return np.add.reduceat(values[order], starts, axis=0)


@dataclass(frozen=True, kw_only=True)
class SettingSums:
    """What the fit of one kernel needs of its rows, by setting (S, 1) or, for every share tried as
    c, (S, shares): ``core``, ``mem`` ratios to the power p; sums of squared weights, and of these
    times (T - c)^p; ``n`` rows, the ``total`` of T, the mean ``inverse`` of 1 / T and its sum of
    squares about that, ``scatter``."""

    p: float
    shortest_s: float
    core: np.ndarray
    mem: np.ndarray
    weight: np.ndarray
    target: np.ndarray
    n: np.ndarray
    total: np.ndarray
    inverse: np.ndarray
    scatter: np.ndarray

    def without(self, i: int) -> SettingSums:
        arrays = ("core", "mem", "weight", "target", "n", "total", "inverse", "scatter")
        kept = np.delete(np.arange(self.n.size), i)
        return replace(self, **{name: getattr(self, name).take(kept, 0) for name in arrays})

    def fit(self) -> tuple[tuple[float, float, float], float]:
        """(a, b, c) of one kernel, and the sum of its squared relative errors.

        Two unknowns >= 0; every c of the grid is solved at once.
        """
        x, y = self.core, self.mem
        xx, xy, yy = ((u * self.weight).sum(0) for u in (x * x, x * y, y * y))
        xt, yt = (x * self.target).sum(0), (y * self.target).sum(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            determinant = xx * yy - xy * xy
            both = ((yy * xt - xy * yt) / determinant, (xx * yt - xy * xt) / determinant)
            one = (xt / xx, np.zeros_like(xt))
            other = (np.zeros_like(yt), yt / yy)
        paced, least = (0.0, 0.0, 1.0), np.inf
        for a, b in (both, one, other):
            legal = np.flatnonzero(np.isfinite(a) & np.isfinite(b) & (a >= 0) & (b >= 0))
            if not len(legal):
                continue
            a, b = a[legal], b[legal]  # noqa: PLW2901
            predicted = FIXED_SHARES[legal] + (x * a + y * b) ** (1.0 / self.p)
            error = self._error(predicted)
            i = int(np.argmin(error))
            if error[i] < least:
                least = float(error[i])
                paced = (a[i] ** (1 / self.p), b[i] ** (1 / self.p), FIXED_SHARES[legal[i]])
        if not np.isfinite(least):  # no clock is known at all: the mean is what there is
            paced = (0.0, 0.0, self.total.sum() / self.n.sum())
            least = float(self._error(np.full((len(self.n), 1), paced[2]))[0])
        a, b, c = (float(part) * self.shortest_s for part in paced)
        return (a, b, c), least

    def _error(self, predicted: np.ndarray) -> np.ndarray:
        """The sums of squared relative errors (k,) of predictions (S, k)."""
        n, inverse, scatter = self.n[:, None], self.inverse[:, None], self.scatter[:, None]
        squares = n * (predicted * inverse - 1.0) ** 2 + predicted**2 * scatter
        return np.asarray(squares.sum(0))
