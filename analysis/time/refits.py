"""How unsure predicted times are: every kernel's roofline refitted without each setting in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.discrepancy import share_beside, shrunk, widening
from analysis.energy.refits import jackknife_deviations
from analysis.measurements.observations import Observations
from analysis.time.kernel_roofline import TimeModel, fits_without


@dataclass(frozen=True)
class TimeRefits:
    """Log times at M settings, by kernel.

    ``deviation``: kernel -> float64 (S, M), the jackknife's deviations, a row a setting left out;
    ``variance``: kernel -> what log times differ from the model by, out of fold, beyond these.
    """

    deviation: dict[str, np.ndarray]
    variance: dict[str, float]


def refit_times(
    data: Observations,
    model: TimeModel,
    kernels: Sequence[str],
    core_mhz: np.ndarray,
    mem_mhz: np.ndarray,
) -> TimeRefits:
    """The refits of ``model``, at the settings ``core_mhz``, ``mem_mhz`` (M,).

    Widened, as the settings are few, to have Student's 95 % points, but no further from the model
    than a time that may be anywhere within what the clocks allow (:func:`allowed_log_s`).
    """
    settings = np.unique(data.setting)
    deviation, square, known, widest = {}, [], [], {}
    for kernel in kernels:
        mine = data.take(data.kernel == kernel)
        paced_s = np.tile(model.paced_s[kernel], (len(settings), 1))
        fold = np.full(len(mine), -1)
        for left_out, without in fits_without(model, mine):
            fold[left_out] = np.searchsorted(settings, mine.setting[left_out][0])
            paced_s[fold[left_out][0]] = without
        log_s = np.log(model.paced_times_s(paced_s, core_mhz, mem_mhz))
        refits = np.log(model.paced_times_s(paced_s, mine.core_mhz, mine.mem_mhz))
        own_fold = refits[fold, np.arange(len(mine))]
        away = np.where(fold >= 0, np.log(mine.time_s) - own_fold, np.nan)
        deviation[kernel] = jackknife_deviations(log_s)
        low, high = allowed_log_s(mine, core_mhz, mem_mhz)
        off = np.log(model.time_s(kernel, core_mhz, mem_mhz)) - (low + high) / 2.0
        widest[kernel] = np.sqrt(np.maximum(high - low, 0.0) ** 2 / 12.0 + off**2)
        predicted = np.isfinite(away)
        square.append(away[predicted] ** 2)
        known.append((jackknife_deviations(refits)[:, predicted] ** 2).sum(axis=0))
    wider = widening(len(settings) - 1)
    deviation = {k: _at_most(wider * values, widest[k]) for k, values in deviation.items()}
    n = np.array([len(part) for part in square])
    if not n.any():
        return TimeRefits(deviation, dict.fromkeys(kernels, 0.0))
    mean = np.array([part.sum() for part in square]) / np.maximum(n, 1)
    variance = float(mean @ n / n.sum()) * shrunk(mean, n)
    share = share_beside(np.concatenate(square), np.concatenate(known), np.repeat(variance, n))
    variance = variance * share * wider**2
    return TimeRefits(deviation, dict(zip(kernels, variance.tolist(), strict=True)))


def allowed_log_s(
    mine: Observations, core_mhz: np.ndarray, mem_mhz: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The least and the highest log times of a kernel at M settings, whatever its roofline.

    From a measured time, no time grows by more than the clock that falls most, or falls by more
    than the clock that grows most. Both are float64 (M,).
    """
    settings, index = np.unique(mine.setting, return_inverse=True)
    log_s = np.bincount(index, np.log(mine.time_s)) / np.bincount(index)
    from_mhz = mine.mhz[settings]
    slower = np.zeros((2, len(settings), len(core_mhz)))
    for domain, mhz in enumerate((core_mhz, mem_mhz)):
        if np.isfinite(from_mhz[:, domain]).all() and np.isfinite(mhz).all():
            slower[domain] = np.log(from_mhz[:, [domain]] / mhz)
    low = (log_s[:, None] + np.minimum(slower.min(axis=0), 0.0)).max(axis=0)
    high = (log_s[:, None] + np.maximum(slower.max(axis=0), 0.0)).min(axis=0)
    return low, high


def _at_most(deviation: np.ndarray, widest: np.ndarray) -> np.ndarray:
    """Deviations (S, M) scaled so that none of the M standard deviations is above ``widest``."""
    std = np.sqrt((deviation**2).sum(axis=0))
    return np.asarray(deviation * np.minimum(1.0, widest / np.maximum(std, 1e-300)))
