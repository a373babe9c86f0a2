"""What picks and simple rules for choosing a setting lose, kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from analysis.choice.objectives import ENERGY, Objective
from analysis.measurements.observations import (
    Observations,
    cell_means,
    kernel_names,
    kernel_numbers,
)
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
"""The rules that choose a setting: name in JSON -> name in reports."""


def best_single_setting(data: Observations, objective: Objective) -> Setting | None:
    """Return the measured setting that is best on average over all kernels
    (:func:`rank_single_settings`); None where no kernel was measured at two settings."""
    rank = rank_single_settings(data, objective)
    return data.settings[int(np.argmin(rank))] if np.isfinite(rank).any() else None


def better_than(scores: np.ndarray, chosen: int, alternative: int) -> tuple[float, float]:
    """Return how much more the alternative is expected to cost than the chosen setting, in %, and
    the probability that it costs more.

    ``scores``: draws of the score, (settings, draws). 0 and 0 for the chosen setting itself.
    """
    if chosen == alternative:
        return 0.0, 0.0
    more = scores[alternative] / scores[chosen] - 1.0
    return float(more.mean() * 100.0), float(np.mean(more > 0.0))


@dataclass(frozen=True)
class Chooser:
    """What one rule loses against the best measured setting, over all cases."""

    mean_lost_pct: float
    max_lost_pct: float
    exact: float
    """In how many cases the choice was the best; the expected number for random choices."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseLoss:
    """How much each chooser's setting costs above a kernel's best measured one, in % of the score.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``lost_pct``: name of :data:`CHOOSERS` -> float64, the losses at the settings that it may take,
    which are equally likely; none where no setting that it may take is judged. ``picks`` and
    ``physics`` are the picks of the posterior and of the physics fit; ``race_to_halt_best`` is the
    equally fast setting of least score; ``highest_clocks`` the site's highest clocks
    (:func:`highest_clocks`); ``best_single`` has a loss for each fold that predicted the kernel, at
    the best single setting of its training rows; ``perf_per_watt`` is the measured setting nearest
    to the core clock at which NVML's power model has the best performance per watt; ``random`` has
    the losses at all of the kernel's settings.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    lost_pct: Mapping[str, np.ndarray]

    def mean_pct(self, chooser: str) -> float:
        """What a chooser loses on average; NaN where no setting that it may take is judged."""
        lost_pct = self.lost_pct[chooser]
        return float(lost_pct.mean()) if len(lost_pct) else np.nan


@dataclass(frozen=True)
class Predicted:
    """Predicted energies (J) and times (s) of rows, float64 (rows,); NaN: no prediction."""

    energy_j: np.ndarray
    time_s: np.ndarray


@dataclass(frozen=True)
class FoldRankings:
    """Each fold's ranking of the settings for all kernels together.

    ``fold``: int64 (rows,), the fold that predicted each row, -1 for none. ``rank``: float64
    (folds, settings), 0 for the best single setting, infinite where the fold has no rows.
    """

    fold: np.ndarray
    rank: np.ndarray


def highest_clocks(settings: Sequence[Setting]) -> int | None:
    """Return the index of the setting with the highest core and the highest memory clock, and
    without a power limit or with the highest.

    A domain without clocks does not count. None where no setting has both, or several profiles do.
    """
    clocks = [
        {mhz for setting in settings if (mhz := setting.clocks[i]) is not None} for i in (0, 1)
    ]
    top = tuple(max(domain_mhz, default=None) for domain_mhz in clocks)
    indices = [i for i, setting in enumerate(settings) if setting.clocks == top]
    if len({settings[i].profile for i in indices}) > 1:
        return None
    return max(indices, key=lambda i: settings[i].power_limit_w or np.inf, default=None)


def rank_single_settings(data: Observations, objective: Objective) -> np.ndarray:
    """Rank each setting as a single setting for all kernels: float64 (settings,), 0 for the best.

    The best has the least mean of the score above each kernel's best, among the settings and over
    the kernels of :func:`comparable`. Settings with fewer kernels come after these; infinite
    without kernels. Kernels measured at fewer than two settings do not count: they compare nothing.
    """
    shape = (len(data.settings), len(data.kernels))
    cell = data.setting * shape[1] + data.kernel
    n = np.bincount(cell, minlength=shape[0] * shape[1])
    measured = (n > 0).reshape(shape)
    measured &= measured.sum(axis=0) > 1
    energy_j, time_s = (
        (np.bincount(cell, values, len(n)) / np.maximum(n, 1)).reshape(shape)
        for values in (data.energy_j, data.time_s)
    )
    # A setting where a kernel was not measured must not be its best one, nor count.
    with np.errstate(invalid="ignore"):  # of a kernel without rows all is 0
        score = objective.score(*(np.where(measured, v, v.max(axis=0)) for v in (energy_j, time_s)))
    least = np.where(measured, score, np.inf).min(axis=0)
    above = np.where(measured, score / least - 1.0, 0.0)
    n_kernels = measured.sum(axis=1)
    counted, is_compared = comparable(measured.T)
    mean = np.where(
        is_compared,
        above[:, counted].sum(axis=1) / np.maximum(measured[:, counted].sum(axis=1), 1),
        above.sum(axis=1) / np.maximum(n_kernels, 1),
    )
    # Rounded: of equal means the first is taken, on every processor.
    fewer = np.where(is_compared, -np.inf, -n_kernels)
    order = np.lexsort([np.arange(len(mean)), mean.round(9), fewer])
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order))
    return np.where(n_kernels > 0, rank, np.inf)


def comparable(measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernels and the settings that single settings are compared by: bool (kernels,) and
    (settings,). ``measured``: bool (kernels, settings).

    These are all settings at which at least n kernels were measured, and the kernels measured at
    all of these settings, with the n that leaves the most comparisons. So a kernel with few
    settings excludes no setting, and every setting has the same kernels. If no n leaves a
    comparison: all kernels, and the settings with the most kernels.
    """
    count = measured.sum(axis=0)
    best: tuple[np.ndarray, np.ndarray] = (
        np.ones(len(measured), bool),
        np.asarray(count == count.max(initial=0)),
    )
    most = 0
    for least in np.unique(count)[::-1].tolist():
        settings = count >= least
        kernels = measured[:, settings].all(axis=1)
        compared = int(kernels.sum()) * (int(settings.sum()) - 1)
        if compared > most:
            best = np.asarray(kernels), np.asarray(settings)
            most = compared
    return best


def case_losses(
    data: Observations,
    predicted: Predicted,
    physics: Predicted | None = None,
    *,
    objective: Objective = ENERGY,
    rankings: FoldRankings | None = None,
    noise: Mapping[str, float] | None = None,
) -> list[CaseLoss]:
    """Return what the picks by ``predicted`` and by ``physics`` (by default the same) lose, and
    what the simple rules lose, kernel by kernel.

    A case is a kernel that was measured at two settings or more. Repeats are averaged; rows
    without a prediction (NaN) are left out. A loss is the measured score above the least measured
    score of the kernel. Race to halt takes the fastest measured setting; of equally fast ones the
    one with the highest clocks (:mod:`analysis.ties`). ``noise``: from
    :func:`~analysis.ties.time_noise`, by default of ``data``.
    """
    noise = time_noise(data) if noise is None else noise
    top = highest_clocks(data.settings)
    physics = predicted if physics is None else physics
    is_predicted = np.isfinite(predicted.energy_j)
    rows = slice(None) if is_predicted.all() else np.flatnonzero(is_predicted)
    data = data.take(rows)
    labels, number = kernel_names(data), kernel_numbers(data)
    all_means = [
        cell_means(data, labels, values)
        for values in (
            *(data.energy_j, data.time_s),
            *(predicted.energy_j[rows], predicted.time_s[rows]),
            *(physics.energy_j[rows], physics.time_s[rows]),
        )
    ]
    repeats = np.zeros((len(labels), len(data.settings)), np.int64)
    np.add.at(repeats, (number, data.setting), 1)
    folds = np.zeros((len(labels), 0 if rankings is None else len(rankings.rank)), bool)
    if rankings is not None:
        folds[number, rankings.fold[rows]] = True
    cases = []
    for k, kernel in enumerate(labels):
        settings = np.flatnonzero(repeats[k])
        if len(settings) < 2:
            continue
        measured_j, time_s, *means = (values[k, settings] for values in all_means)
        tied = equally_fast(time_s, noise[kernel] * time_s / np.sqrt(repeats[k, settings]))
        raced = highest([data.settings[s] for s in settings], tied, time_s)
        score = objective.score(measured_j, time_s)
        over_pct = (score / score.min() - 1.0) * 100.0
        no_loss = np.zeros(0)
        lost_pct = {
            "picks": over_pct[first_least(objective.score(*means[:2]))],
            "physics": over_pct[first_least(objective.score(*means[2:]))],
            "race_to_halt": over_pct[raced],
            "race_to_halt_best": over_pct[tied].min(),
            "highest_clocks": over_pct[settings == top] if top is not None else no_loss,
            "best_single": over_pct[_best_single(rankings.rank[folds[k]][:, settings])]
            if rankings is not None
            else no_loss,
            "perf_per_watt": over_pct[_perf_per_watt(data, settings)],
            "random": over_pct,
        }
        cases.append(
            CaseLoss(
                **data.instance(kernel).as_dict(),
                lost_pct={name: np.atleast_1d(lost) for name, lost in lost_pct.items()},
            )
        )
    return cases


def _best_single(rank: np.ndarray) -> np.ndarray:
    """Return each fold's best single setting; folds without one are left out. ``rank``: float64
    (folds, settings), as in :class:`FoldRankings`."""
    return np.asarray(rank[np.isfinite(rank).any(axis=1)].argmin(axis=1))


def _perf_per_watt(data: Observations, settings: np.ndarray) -> np.ndarray:
    """Return the index into ``settings`` of the one at NVML's clock, of several memory clocks the
    highest; none where the clock is not known."""
    core_mhz, mem_mhz = data.mhz[settings].T
    distance_mhz = np.abs(core_mhz - data.perf_per_watt_mhz)
    if not np.isfinite(distance_mhz).any():
        return np.zeros(0, np.int64)
    return np.lexsort([-mem_mhz, distance_mhz])[:1]  # NaN comes last


def losses_by_chooser(cases: Sequence[CaseLoss]) -> dict[str, Chooser]:
    """Return the losses of each of :data:`CHOOSERS` over all cases; empty without cases.

    A chooser is left out where it has no setting in some case.
    """
    choosers = {}
    for name in CHOOSERS if cases else ():
        lost = [case.lost_pct[name] for case in cases]
        if all(map(len, lost)):
            choosers[name] = Chooser(
                mean_lost_pct=float(np.mean([lost_pct.mean() for lost_pct in lost])),
                max_lost_pct=float(max(lost_pct.max() for lost_pct in lost)),
                exact=float(np.sum([np.mean(lost_pct == 0.0) for lost_pct in lost])),
            )
    return choosers


@dataclass(frozen=True)
class Contest:
    """How much more another chooser loses than the picks, in % of the score, over kernels.

    ``verdict``: ``picks`` or the other's name where the 95 % interval of the mean excludes 0,
    otherwise ``open``: these measurements do not show which is better.
    """

    mean_gain_pct: float
    low_pct: float
    high_pct: float
    verdict: str


def contest(cases: Sequence[CaseLoss], rival: str = "race_to_halt") -> Contest:
    """Compare the picks with a rival: ``race_to_halt``, ``highest_clocks``, ``best_single`` or
    ``perf_per_watt``. Cases in which the rival has no setting do not count. The interval is from
    resampled kernels, with few kernels from Student's t."""
    gain = np.array([case.mean_pct(rival) - case.mean_pct("picks") for case in cases], float)
    return gain_contest(gain[np.isfinite(gain)], rival)


def gain_contest(gain: np.ndarray, rival: str) -> Contest:
    """:func:`contest` from how much more the rival loses: float64 (kernels,), in %."""
    mean = float(gain.mean()) if len(gain) else 0.0
    if len(gain) < 2:
        return Contest(mean, -np.inf, np.inf, "open")
    half = special.stdtrit(len(gain) - 1, 0.975) * float(gain.std(ddof=1)) / np.sqrt(len(gain))
    low, high = mean - half, mean + half
    if len(gain) >= RESAMPLED_FROM:
        drawn = np.random.default_rng(SEED).integers(len(gain), size=(RESAMPLES, len(gain)))
        low, high = np.percentile(gain[drawn].mean(axis=1), [2.5, 97.5])
    verdict = "picks" if low > 0 else rival if high < 0 else "open"
    return Contest(mean, float(low), float(high), verdict)
