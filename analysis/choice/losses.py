"""What the choice of a setting loses: picks beside simple rules, kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from analysis.choice.objectives import ENERGY, Objective
from analysis.measurements.observations import Observations, rows_by_kernel
from analysis.ties import equally_fast, first_least, highest, time_noise
from dvfs.setting import Setting

SEED = 20140519
RESAMPLES = 2000
RESAMPLED_FROM = 10
"""From this many kernels on, the interval of a mean is estimated by resampling them."""
CHOOSERS = {
    "picks": "picks",
    "physics": "physics fit",
    "race_to_halt": "race to halt",
    "race_to_halt_best": "race to halt, best tie",
    "highest_clocks": "highest clocks",
    "best_single": "best single setting",
    "perf_per_watt": "NVML's perf per watt",
    "random": "random setting",
}
"""Who chooses the setting: the name in JSON, and the name in reports."""


def best_single_setting(data: Observations, objective: Objective) -> Setting | None:
    """The measured setting that is best on average over all kernels
    (:func:`rank_single_settings`); None where no kernel was measured at two."""
    rank = rank_single_settings(data, objective)
    return data.settings[int(np.argmin(rank))] if np.isfinite(rank).any() else None


def better_than(scores: np.ndarray, chosen: int, other: int) -> tuple[float, float]:
    """How much more the other setting is expected to cost than the chosen one, in %, and the
    probability that it costs more; of draws (settings, draws) of the score.

    A setting is not better than itself: 0 and 0.
    """
    if chosen == other:
        return 0.0, 0.0
    more = scores[other] / scores[chosen] - 1.0
    return float(more.mean() * 100.0), float(np.mean(more > 0.0))


@dataclass(frozen=True)
class Chooser:
    """What one rule for choosing settings loses against the best measured one, over all cases."""

    mean_lost_pct: float
    max_lost_pct: float
    exact: float
    """In how many cases the choice was the best; the expected number where there are several."""


@dataclass(frozen=True, kw_only=True)
class CaseLoss:
    """How far each chooser's setting is above a kernel's best measured one, in % of the score.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``picks_pct``: of the posterior's picks; ``physics_pct``: of those by the physics fit.
    ``random_pct``, ``most_pct``: over all its settings, the mean and the most;
    ``random_exact``: how likely a random setting is the best. ``best_single_pct``,
    ``best_single_most_pct``, ``best_single_exact``: the same over the folds that predicted the
    kernel, each with the setting that was best over the kernels that it was fitted on; NaN where
    no such setting is among those judged, as in a holdout. ``race_to_halt_best_pct``: of the
    equally fast settings, that of the least score. ``highest_clocks_pct``: of the site's
    highest clocks (:func:`highest_clocks`), NaN where they are not among those judged.
    ``perf_per_watt_pct``: of the measured setting nearest to the core clock that NVML's power
    model takes for the one of the best performance per watt; NaN where no record has it.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    picks_pct: float
    physics_pct: float
    race_to_halt_pct: float
    random_pct: float
    most_pct: float
    random_exact: float
    best_single_pct: float = np.nan
    best_single_most_pct: float = np.nan
    best_single_exact: float = np.nan
    race_to_halt_best_pct: float = np.nan
    highest_clocks_pct: float = np.nan
    perf_per_watt_pct: float = np.nan


@dataclass(frozen=True)
class Predicted:
    """Predicted energies (J) and times (s) of rows, float64 (rows,), NaN where there is none."""

    energy_j: np.ndarray
    time_s: np.ndarray


@dataclass(frozen=True)
class FoldRankings:
    """How good each fold takes each setting to be for all kernels together.

    ``fold``: int64 (rows,), the fold that predicted each row, -1 for none. ``rank``: float64
    (folds, settings), 0 for the best single setting, infinite where the fold has no rows.
    """

    fold: np.ndarray
    rank: np.ndarray


def highest_clocks(settings: Sequence[Setting]) -> int | None:
    """The index of the setting that has both the highest core and the highest memory clock, and no
    power limit or the highest.

    A clock that no setting has counts as its highest. None where no setting has both, or profiles
    differ there.
    """
    clocks = [
        {mhz for setting in settings if (mhz := setting.clocks[i]) is not None} for i in (0, 1)
    ]
    top = tuple(max(of_domain, default=None) for of_domain in clocks)
    at = [i for i, setting in enumerate(settings) if setting.clocks == top]
    if len({settings[i].profile for i in at}) > 1:
        return None
    return max(at, key=lambda i: settings[i].power_limit_w or np.inf, default=None)


def rank_single_settings(data: Observations, objective: Objective) -> np.ndarray:
    """Each setting's rank as a single setting for all kernels: float64 (settings,), 0 the best.

    Kernels measured at fewer than two settings do not count: they show no setting to be better.
    Best is the least mean of the score above each kernel's best, among the settings and over the
    kernels of :func:`comparable`; settings of fewer kernels come after; infinite where none was.
    """
    shape = (len(data.settings), len(data.kernels))
    cell = data.setting * shape[1] + data.kernel
    n = np.bincount(cell, minlength=shape[0] * shape[1])
    there = (n > 0).reshape(shape)
    there &= there.sum(axis=0) > 1
    energy_j, time_s = (
        (np.bincount(cell, values, len(n)) / np.maximum(n, 1)).reshape(shape)
        for values in (data.energy_j, data.time_s)
    )
    # A setting where a kernel was not measured must not be its best one, nor count.
    with np.errstate(invalid="ignore"):  # of a kernel without rows all is 0
        score = objective.score(*(np.where(there, v, v.max(axis=0)) for v in (energy_j, time_s)))
    least = np.where(there, score, np.inf).min(axis=0)
    above = np.where(there, score / least - 1.0, 0.0)
    measured = there.sum(axis=1)
    counted, among = comparable(there.T)
    mean = np.where(
        among,
        above[:, counted].sum(axis=1) / np.maximum(there[:, counted].sum(axis=1), 1),
        above.sum(axis=1) / np.maximum(measured, 1),
    )
    # equal but for rounding: the first, on every processor
    fewer = np.where(among, -np.inf, -measured)
    order = np.lexsort([np.arange(len(mean)), mean.round(9), fewer])
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order))
    return np.where(measured > 0, rank, np.inf)


def comparable(there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The kernels and the settings that single settings are compared by: bool (kernels,) and
    (settings,). ``there``: bool (kernels, settings), where kernels were measured.

    The settings at which at least so many kernels were measured, and the kernels measured at all of
    them, with the number that leaves most to compare. So a kernel with few settings takes no others
    away, and all settings have the same kernels. Where none are left, all kernels, and the settings
    of most.
    """
    count = there.sum(axis=0)
    best: tuple[np.ndarray, np.ndarray] = (
        np.ones(len(there), bool),
        np.asarray(count == count.max(initial=0)),
    )
    most = 0
    for least in np.unique(count)[::-1].tolist():
        settings = count >= least
        kernels = there[:, settings].all(axis=1)
        compared = int(kernels.sum()) * (int(settings.sum()) - 1)
        if compared > most:
            best = np.asarray(kernels), np.asarray(settings)
            most = compared
    return best


def _by_setting(data: Observations, rows: np.ndarray, *more: np.ndarray) -> tuple[np.ndarray, ...]:
    """The settings of some rows, and there the means over repeats of energy, time and ``more``."""
    settings, index = np.unique(data.setting[rows], return_inverse=True)
    n = np.bincount(index)
    values = (data.energy_j, data.time_s, *more)
    return settings, *(np.bincount(index, value[rows]) / n for value in values)


def case_losses(
    data: Observations,
    predicted: Predicted,
    physics: Predicted | None = None,
    *,
    objective: Objective = ENERGY,
    rankings: FoldRankings | None = None,
    noise: Mapping[str, float] | None = None,
) -> list[CaseLoss]:
    """What the picks by ``predicted`` and by ``physics`` (by default the same) lose, kernel by
    kernel.

    A case is a kernel that was measured at two settings or more; repeats are averaged, and rows
    without a prediction (NaN) left out. A pick loses what its measured score has above the least
    measured score of the kernel. Race to halt takes the fastest measured setting, of equally fast
    ones that of the highest clocks (:mod:`analysis.ties`; ``noise`` is its
    :func:`~analysis.ties.time_noise`, by default that of ``data``).
    """
    noise = time_noise(data) if noise is None else noise
    top = highest_clocks(data.settings)
    known = np.isfinite(predicted.energy_j)
    fold = None if rankings is None else rankings.fold[known]
    physics = predicted if physics is None else physics
    data = data.take(known)
    by_row = [
        values[known] for one in (predicted, physics) for values in (one.energy_j, one.time_s)
    ]
    cases = []
    for kernel, rows in rows_by_kernel(data):
        settings, measured_j, time_s, *means = _by_setting(data, rows, *by_row)
        if len(settings) < 2:
            continue
        repeats = np.unique(data.setting[rows], return_counts=True)[1]
        tied = equally_fast(time_s, noise[kernel] * time_s / np.sqrt(repeats))
        raced = highest([data.settings[s] for s in settings], tied, time_s)
        at_top = np.flatnonzero(settings == (-1 if top is None else top))
        score = objective.score(measured_j, time_s)
        over_pct = (score / score.min() - 1.0) * 100.0
        single: dict[str, Any] = {}
        if rankings is not None and fold is not None:
            single = _best_single(rankings, fold[rows], settings, over_pct)
        cases.append(
            CaseLoss(
                **data.instance(kernel).as_dict(),
                picks_pct=float(over_pct[first_least(objective.score(*means[:2]))]),
                physics_pct=float(over_pct[first_least(objective.score(*means[2:]))]),
                race_to_halt_pct=float(over_pct[raced]),
                race_to_halt_best_pct=float(over_pct[tied].min()),
                highest_clocks_pct=float(over_pct[at_top[0]]) if len(at_top) else np.nan,
                random_pct=float(over_pct.mean()),
                most_pct=float(over_pct.max()),
                random_exact=float(np.mean(over_pct == 0.0)),
                perf_per_watt_pct=_perf_per_watt(data, settings, over_pct),
                **single,
            )
        )
    return cases


def _best_single(
    rankings: FoldRankings, fold: np.ndarray, settings: np.ndarray, over_pct: np.ndarray
) -> dict[str, float]:
    """What each fold's best single setting, of those judged, loses one kernel."""
    rank = rankings.rank[np.ix_(np.unique(fold), settings)]
    rank = rank[np.isfinite(rank).any(axis=1)]
    if not len(rank):
        return {}
    lost_pct = over_pct[rank.argmin(axis=1)]
    return {
        "best_single_pct": float(lost_pct.mean()),
        "best_single_most_pct": float(lost_pct.max()),
        "best_single_exact": float(np.mean(lost_pct == 0.0)),
    }


def _perf_per_watt(data: Observations, settings: np.ndarray, over_pct: np.ndarray) -> float:
    """What NVML's choice loses one kernel; of several memory clocks it takes the highest."""
    core_mhz, mem_mhz = data.mhz[settings].T
    apart_mhz = np.abs(core_mhz - data.perf_per_watt_mhz)
    if not np.isfinite(apart_mhz).any():
        return np.nan
    order = np.lexsort([-mem_mhz, apart_mhz])  # NaN comes last
    return float(over_pct[order[0]])


def losses_by_chooser(cases: Sequence[CaseLoss]) -> dict[str, Chooser]:
    """The choosers of :data:`CHOOSERS` over all cases; empty without cases.

    The best single setting, the highest clocks and NVML's choice are left out where some case has
    none.
    """
    if not cases:
        return {}
    # Of each chooser its mean and most by case, and how often it was the best.
    by_case = {
        "picks": [(case.picks_pct, case.picks_pct, case.picks_pct == 0.0) for case in cases],
        "physics": [
            (case.physics_pct, case.physics_pct, case.physics_pct == 0.0) for case in cases
        ],
        "race_to_halt": [
            (case.race_to_halt_pct, case.race_to_halt_pct, case.race_to_halt_pct == 0.0)
            for case in cases
        ],
        "race_to_halt_best": [
            (
                case.race_to_halt_best_pct,
                case.race_to_halt_best_pct,
                case.race_to_halt_best_pct == 0,
            )
            for case in cases
        ],
        "highest_clocks": [
            (case.highest_clocks_pct, case.highest_clocks_pct, case.highest_clocks_pct == 0.0)
            for case in cases
        ],
        "best_single": [
            (case.best_single_pct, case.best_single_most_pct, case.best_single_exact)
            for case in cases
        ],
        "perf_per_watt": [
            (case.perf_per_watt_pct, case.perf_per_watt_pct, case.perf_per_watt_pct == 0.0)
            for case in cases
        ],
        "random": [(case.random_pct, case.most_pct, case.random_exact) for case in cases],
    }
    columns = {name: np.array(lost, float).T for name, lost in by_case.items()}
    return {
        name: Chooser(float(mean.mean()), float(most.max()), float(exact.sum()))
        for name, (mean, most, exact) in columns.items()
        if np.isfinite(mean).all()
    }


@dataclass(frozen=True)
class Contest:
    """How much more another chooser loses than the picks, in % of the score, over kernels.

    ``verdict``: ``picks`` or the other's name where the 95 % interval of the mean leaves out 0,
    otherwise ``open``: these measurements do not show which is better.
    """

    mean_gain_pct: float
    low_pct: float
    high_pct: float
    verdict: str


def contest(cases: Sequence[CaseLoss], other: str = "race_to_halt") -> Contest:
    """The picks against ``race_to_halt``, ``highest_clocks``, ``best_single`` or
    ``perf_per_watt``; the interval by resampling kernels, with few by t. Cases that the other has
    no choice for do not count."""
    gain = np.array([getattr(case, f"{other}_pct") - case.picks_pct for case in cases], float)
    return gain_contest(gain[np.isfinite(gain)], other)


def gain_contest(gain: np.ndarray, other: str) -> Contest:
    """The same of what the other loses more, kernel by kernel: float64 (kernels,), in %."""
    mean = float(gain.mean()) if len(gain) else 0.0
    if len(gain) < 2:
        return Contest(mean, -np.inf, np.inf, "open")
    half = special.stdtrit(len(gain) - 1, 0.975) * float(gain.std(ddof=1)) / np.sqrt(len(gain))
    low, high = mean - half, mean + half
    if len(gain) >= RESAMPLED_FROM:
        drawn = np.random.default_rng(SEED).integers(len(gain), size=(RESAMPLES, len(gain)))
        low, high = np.percentile(gain[drawn].mean(axis=1), [2.5, 97.5])
    verdict = "picks" if low > 0 else other if high < 0 else "open"
    return Contest(mean, float(low), float(high), verdict)
