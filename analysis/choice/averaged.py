"""Energies where a kernel was not measured: two predictions, averaged.

One is the energy model's, the other that of a process that knows no physics
(:mod:`analysis.energy.process`). With few settings neither is good everywhere: the model goes on
rising or falling where its form or its voltage is wrong, the process knows nothing beyond the
measured clocks. Their average is often better than either (Bates & Granger 1969). The weights are
inverse to the mean squared errors at settings that were left out, taken to the power
S / (S + 8) for S settings: few settings cannot show which is better, and equal weights are hard
to beat then (Stock & Watson 2004).

Where the two differ, both may be wrong, and the least of many settings is easily one whose energy
is underestimated. So a pick is chosen by the mean plus half the standard deviation between the two
(:data:`CAUTION`): a measured setting is left for one that was not measured where both expect a
gain, or one of them a clear gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.fitted import Fit
from analysis.energy.process import fit_process, left_out_log_j
from analysis.energy.refits import Refits
from analysis.measurements.cells import cell_means, first_rows
from analysis.measurements.observations import Observations, kernel_names
from analysis.time.kernel_roofline import TimeModel, fits_without

CAUTION = 0.5
"""Of the standard deviation between the two predictions, in log energy."""
HALF_WAY = 8
"""With so many settings, weights are half way (as powers) between equal and inverse to errors."""
LEAST_VARIANCE = 1e-12
LEAST_RATIO = 0.5
"""How much surer the average may be than the model: the errors of few settings are few."""


@dataclass(frozen=True, kw_only=True)
class SecondPrediction:
    """By the process: ``log_j`` float64 (K, M), log energies of K kernels at M settings, and its
    ``weight`` (K,) beside the model, 0 to 1. ``error_ratio``: (K,), how large the average's errors
    are beside the model's, out of fold, at most 1."""

    log_j: np.ndarray
    weight: np.ndarray
    error_ratio: np.ndarray


def weight_by_error(model_error: np.ndarray, process_error: np.ndarray, power: float) -> float:
    """The weight of the process from errors of log energy, NaN where either has none."""
    known = np.isfinite(model_error) & np.isfinite(process_error)
    if not known.any():
        return 0.5
    of_model, of_process = (
        max(float(np.mean(error[known] ** 2)), LEAST_VARIANCE) ** power
        for error in (model_error, process_error)
    )
    return of_model / (of_model + of_process)


def ratio_of_errors(
    of_model: np.ndarray, of_process: np.ndarray, weight: float, power: float
) -> float:
    """Root mean square of the average's errors of log energy over that of the model's, at most 1
    and at least :data:`LEAST_RATIO`, to a ``power`` that draws it towards 1. Errors are NaN where
    either has none."""
    known = np.isfinite(of_model) & np.isfinite(of_process)
    if not known.any():
        return 1.0
    averaged = (1.0 - weight) * of_model[known] + weight * of_process[known]
    ratio = np.sqrt(np.mean(averaged**2) / max(np.mean(of_model[known] ** 2), LEAST_VARIANCE))
    return float(np.clip(ratio, LEAST_RATIO, 1.0)) ** power


def apart(difference: np.ndarray, weight: np.ndarray | float) -> np.ndarray:
    """The standard deviation between two predictions that differ by ``difference``."""
    return np.asarray(np.sqrt(weight * (1.0 - weight)) * np.abs(difference))


def cautious(energy_j: np.ndarray, between: np.ndarray) -> np.ndarray:
    """The energies that a pick goes by, higher where two predictions are ``between`` apart."""
    return np.asarray(energy_j * np.exp(CAUTION * between))


def second_prediction(
    fitted: Fit,
    data: Observations,
    times: TimeModel,
    kernels: list[str],
    settings: list[tuple[float, float]],
) -> SecondPrediction | None:
    """The process's prediction for ``kernels`` at M ``settings``, from all kernels of ``data``.

    None where the fit has no refits to tell how good the model is.
    """
    present = np.unique(data.setting)
    if fitted.refits is None or len(fitted.refits.value) != len(present):
        return None
    labels = kernel_names(data)
    measured = cell_means(data, labels, np.log(data.energy_j))[:, present]
    process = fit_process(np.array(data.settings)[present], measured)
    power = len(present) / (len(present) + HALF_WAY)
    of_model = _model_left_out(fitted, data, times, labels, present) - measured
    of_process = left_out_log_j(process) - measured
    weight = weight_by_error(of_model, of_process, power)
    ratio = ratio_of_errors(of_model, of_process, weight, power)
    row = {label: i for i, label in enumerate(labels)}
    log_j = process.log_j(np.array(settings))[[row[label] for label in kernels]]
    ones = np.ones(len(kernels))
    return SecondPrediction(log_j=log_j, weight=weight * ones, error_ratio=ratio * ones)


def _model_left_out(
    fitted: Fit, data: Observations, times: TimeModel, labels: list[str], present: np.ndarray
) -> np.ndarray:
    """Log energies of each setting by the refit without it and times without it: (K, S)."""
    assert fitted.refits is not None  # noqa: S101
    first = first_rows(data, labels)[:, present]
    time_s = np.full(first.shape, np.nan)
    place = {int(setting): i for i, setting in enumerate(present)}
    for k, label in enumerate(labels):
        mine = data.take(data.kernel == label)
        for left_out, paced_s in fits_without(times, mine):
            at = int(np.flatnonzero(left_out)[0])
            clocks = mine.core_mhz[[at]], mine.mem_mhz[[at]]
            time_s[k, place[int(mine.setting[at])]] = times.paced_times_s(
                np.array([paced_s]), *clocks
            )[0, 0]
    log_j = np.full(first.shape, np.nan)
    values, curves = fitted.refits.value, fitted.refits.curves
    for i in range(len(present)):
        known = np.isfinite(time_s[:, i])
        if not known.any():
            continue
        there = replace(data.take(first[known, i]), time_s=time_s[known, i])
        refit = Refits(values[[i]], curves[i : i + 1])
        joules = refit.energy_j(there, fitted.voltage, fitted.terms)[0]
        log_j[known, i] = np.log(np.where(joules > 0, joules, np.nan))
    return log_j
