"""How unsure predicted times are: every kernel's roofline refitted without each setting in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.discrepancy import shrunk
from analysis.energy.refits import jackknife_deviations
from analysis.measurements.observations import Observations
from analysis.time.kernel_roofline import TimeModel, fit_without


@dataclass(frozen=True)
class TimeRefits:
    """Log times at M settings, by kernel.

    ``deviation``: kernel -> float64 (S, M), the jackknife's deviations, a row a setting left out;
    ``variance``: kernel -> the mean square of log times less those predicted, out of fold.
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
    """The refits of ``model``, at the settings ``core_mhz``, ``mem_mhz`` (M,)."""
    settings = np.unique(data.setting)
    deviation, square = {}, []
    for kernel in kernels:
        mine = data.take(data.kernel == kernel)
        log_s = np.tile(np.log(model.time_s(kernel, core_mhz, mem_mhz)), (len(settings), 1))
        away = [np.zeros(0)]
        for i, setting in enumerate(settings):
            left_out = mine.setting == setting
            if left_out.any() and not left_out.all():
                without = fit_without(model, mine, kernel, left_out)
                log_s[i] = np.log(without.time_s(kernel, core_mhz, mem_mhz))
                there = mine.take(left_out)
                there_s = without.time_s(kernel, there.core_mhz, there.mem_mhz)
                away.append(np.log(there.time_s / there_s))
        deviation[kernel] = jackknife_deviations(log_s)
        square.append(np.concatenate(away) ** 2)
    n = np.array([len(part) for part in square])
    if not n.any():
        return TimeRefits(deviation, dict.fromkeys(kernels, 0.0))
    mean = np.array([part.sum() for part in square]) / np.maximum(n, 1)
    variance = float(mean @ n / n.sum()) * shrunk(mean, n)
    return TimeRefits(deviation, dict(zip(kernels, variance.tolist(), strict=True)))
