"""Energies where a kernel was not measured: several predictions, averaged.

One is the energy model's, another that of a process that knows no physics
(:mod:`analysis.energy.process`). With few settings neither is good everywhere: the model goes on
rising or falling where its form or its voltage is wrong, the process knows nothing beyond the
measured clocks. A third averages all forms that the model could have had, over the voltage curves
that devices have (:mod:`analysis.energy.averaged_forms`). The average of predictions is often
better than each of them (Bates & Granger 1969). The weights are inverse to the mean squared errors
at settings that were left out, taken to the power S / (S + 8) for S settings: few settings cannot
show which is better, and equal weights are hard to beat then (Stock & Watson 2004).

Where both clocks vary, the forms are corrected by a process of what they leave unexplained, and
the process alone counts half where a surface over both clocks would have no setting left to be
judged by (:data:`COEFFICIENTS`). Where one clock varies, the forms take the place of the one form
that was chosen.

A kernel with few settings beside many with all has a prediction by regression over these in place
of the forms (:mod:`analysis.choice.few_energies`). There the weights come from a trial on the
others (:mod:`analysis.choice.few_trial`), which has errors enough to be inverse to them.

Where half of the kernels or more lack settings that others have, the processes are those of
:mod:`analysis.energy.joint_process`, which state how sure they are of each prediction. There
the mean squared errors, and so the weights, are not the same everywhere: they are the stated
variances times the factor by which these were too small where each measured cell was left out. So
errors at the ends of the clocks, which are hard to predict, do not decide on settings between.

Where the predictions differ, all may be wrong, and the least of many settings is easily one whose
energy is underestimated. So a pick is chosen by the mean plus half the standard deviation among
them (:data:`CAUTION`): a measured setting is left for one that was not measured where all expect a
gain, or some a clear gain. Weights that differ from cell to cell have done that already: a
prediction counts little where it is unsure, and picks then go by the mean alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.averaged_forms import AveragedForms, average_forms, varying_domains
from analysis.energy.fitted import Fit
from analysis.energy.joint_process import fit_joint_process, have_own_settings
from analysis.energy.process import fit_process, left_out_log_j
from analysis.energy.refits import Refits
from analysis.measurements.cells import cell_means, first_rows
from analysis.measurements.observations import Observations, kernel_names
from analysis.time.kernel_roofline import TimeModel, fits_without
from dvfs.setting import Setting, clock_columns

CAUTION = 0.5
"""Of the standard deviation among the predictions, in log energy."""
HALF_WAY = 8
"""With so many settings, weights are half way (as powers) between equal and inverse to errors."""
COEFFICIENTS = 6
"""Of a quadratic of both clocks: no more settings cannot show how good a surface is that knows
nothing but these."""
FEW_WEIGHT = 0.5
"""What the process counts there."""
LEAST_VARIANCE = 1e-12
LEAST_RATIO = 0.5
"""How much surer the average may be than the model: the errors of few settings are few."""


@dataclass(frozen=True, kw_only=True)
class OtherPredictions:
    """Those of the process, and of the averaged forms or the regression: ``log_j`` float64
    (2, K, M), log energies of K kernels at M settings, NaN where there is none, and their
    ``weights`` (2, K, M), with the model's 1 in all. ``error_ratio``: (K,), how large the average's
    errors are beside the model's, out of fold, at most 1."""

    log_j: np.ndarray
    weights: np.ndarray
    error_ratio: np.ndarray


def weights_by_error(errors: Sequence[np.ndarray], power: float) -> np.ndarray:
    """The weights of predictions from their errors of log energy, NaN where one has none."""
    known = np.isfinite(errors).all(axis=0)
    if not known.any():
        return np.full(len(errors), 1.0 / len(errors))
    return _inverse(np.array([np.mean(error[known] ** 2) for error in errors]), power)


def _inverse(squares: np.ndarray, power: float) -> np.ndarray:
    """The weights of predictions whose errors have these mean squares, (P, ...)."""
    inverse = squares.clip(LEAST_VARIANCE) ** -power
    return np.asarray(inverse / inverse.sum(axis=0))


@dataclass(frozen=True)
class _LeftOut:
    """What is known of a prediction: the log energy of each measured cell from the other
    measurements, ``log_j`` (K, S), NaN where there is none, and the variances that the prediction
    states of its errors, of these ``left_out_variance`` (K, S), and ``variance`` (K, M) at all
    settings; None where it states none."""

    log_j: np.ndarray
    left_out_variance: np.ndarray | None = None
    variance: np.ndarray | None = None


def _mean_square(
    prediction: _LeftOut, error: np.ndarray, known: np.ndarray, left_out: bool
) -> np.ndarray:
    """Of the errors of a prediction, by its ``error`` (K, S) at the cells that are ``known``: (K,
    M), or (K, S) if ``left_out``, or (1, 1) where it is the same everywhere."""
    square = error[known] ** 2
    if prediction.left_out_variance is None or prediction.variance is None:
        return np.full((1, 1), square.mean())
    too_small = np.mean(square / prediction.left_out_variance[known])
    return np.asarray(
        too_small * (prediction.left_out_variance if left_out else prediction.variance)
    )


def _weights(
    predictions: Sequence[_LeftOut],
    errors: Sequence[np.ndarray],
    prior: np.ndarray,
    power: float,
    left_out: bool = False,
) -> np.ndarray:
    """The weights of P predictions by their ``errors``: (P, K, M), or (P, K, S) if ``left_out``, K
    and the last being 1 where they are the same everywhere. ``prior``: (3,), factors; 0 for a
    prediction that is not used."""
    used = [i for i in range(len(errors)) if prior[i] > 0]
    known = np.asarray(np.isfinite([errors[i] for i in used]).all(axis=0))
    squares = [np.ones((1, 1))] * len(used)
    if known.any():
        squares = [_mean_square(predictions[i], errors[i], known, left_out) for i in used]
    counted = _inverse(np.array(np.broadcast_arrays(*squares)), power) * prior[used, None, None]
    weights = np.zeros((len(errors), *counted.shape[1:]))
    weights[used] = counted / counted.sum(axis=0)
    return weights


def ratio_of_errors(errors: Sequence[np.ndarray], weights: np.ndarray, power: float) -> float:
    """Root mean square of the average's errors of log energy over that of the model's, the first,
    at most 1 and at least :data:`LEAST_RATIO`, to a ``power`` that draws it towards 1. Errors are
    NaN where one has none; ``weights``: (P,), or of the shape of ``errors``."""
    known = np.isfinite(errors).all(axis=0)
    if not known.any():
        return 1.0
    averaged = (_beside(weights, np.asarray(errors)) * errors).sum(axis=0)[known]
    of_model = np.mean(errors[0][known] ** 2)
    ratio = np.sqrt(np.mean(averaged**2) / max(of_model, LEAST_VARIANCE))
    return float(np.clip(ratio, LEAST_RATIO, 1.0)) ** power


def apart(away: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The standard deviation among predictions: the model's, and others that are ``away`` from it
    (P, ...), of these ``weights``, (P,) or of the shape of ``away``."""
    weights = _beside(weights, away)
    square = (weights * away**2).sum(axis=0) - (weights * away).sum(axis=0) ** 2
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def _beside(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """``weights``, (P,) or (P, ...), with as many axes as ``values`` (P, ...)."""
    return weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))


def cautious(energy_j: np.ndarray, between: np.ndarray) -> np.ndarray:
    """The energies that a pick goes by, higher where predictions are ``between`` apart."""
    return np.asarray(energy_j * np.exp(CAUTION * between))


def other_predictions(
    fitted: Fit,
    data: Observations,
    times: TimeModel,
    kernels: list[str],
    volts: Mapping[Setting, tuple[float, float]],
) -> OtherPredictions | None:
    """Those of the process and of the averaged forms for ``kernels`` at M settings, from all
    kernels of ``data``. ``volts``: the settings, sorted, and their voltages.

    None where the fit has no refits to tell how good the model is.
    """
    present = np.unique(data.setting)
    if fitted.refits is None or len(fitted.refits.value) != len(present):
        return None
    labels = kernel_names(data)
    mhz, measured_mhz = clock_columns(volts), data.mhz[present]
    domains = varying_domains(mhz)
    measured = cell_means(data, labels, np.log(data.energy_j))[:, present]
    by_process, process = _by_process(
        measured_mhz, measured, mhz, mhz if len(domains) == 1 else None
    )
    power = len(present) / (len(present) + HALF_WAY)
    left_out_s = _times_left_out(data, times, labels, present)
    model = _LeftOut(_model_left_out(fitted, data, left_out_s, labels, present))
    predictions = [model, process]
    log_j = np.stack([by_process, np.full((len(labels), len(mhz)), np.nan)])
    prior = np.ones(3)
    if domains:
        settings = list(volts)
        place = [settings.index(data.settings[setting]) for setting in present]
        forms = _averaged_forms(data, times, labels, volts, domains, place, left_out_s)
        log_j[1], left_out = forms.log_j, _LeftOut(forms.left_out_log_j[:, place])
        if len(domains) == 2:
            unexplained_log_j, unexplained = _by_process(
                measured_mhz, measured - forms.log_j[:, place], mhz, None
            )
            log_j[1] += unexplained_log_j
            left_out = replace(unexplained, log_j=left_out.log_j + unexplained.log_j)
            prior[1] = FEW_WEIGHT if len(present) <= COEFFICIENTS else 1.0
        predictions.append(left_out)
    if len(domains) == 1:
        prior[0] = 0.0  # the forms take the model's place
    errors = [one.log_j - measured for one in predictions]
    weights = np.zeros((3, *log_j.shape[1:]))
    weights[: len(errors)] = _weights(predictions, errors, prior, power)
    where_left_out = _weights(predictions, errors, prior, power, left_out=True)
    ratio = ratio_of_errors(errors, where_left_out, power)
    row = {label: i for i, label in enumerate(labels)}
    rows = [row[label] for label in kernels]
    return OtherPredictions(
        log_j=log_j[:, rows],
        weights=weights[1:, rows],
        error_ratio=np.full(len(kernels), ratio),
    )


def _by_process(
    measured_mhz: np.ndarray, log_j: np.ndarray, mhz: np.ndarray, range_mhz: np.ndarray | None
) -> tuple[np.ndarray, _LeftOut]:
    """From log energies (K, S) at the settings ``measured_mhz``, those at ``mhz`` (M, 2): (K, M).
    ``range_mhz``: as of :func:`~analysis.energy.process.fit_process`."""
    if have_own_settings(log_j):
        joint = fit_joint_process(measured_mhz, log_j, range_mhz)
        at, left_out = joint.at(mhz), joint.left_out()
        return at.log_j, _LeftOut(left_out.log_j, left_out.variance, at.variance)
    process = fit_process(measured_mhz, log_j, range_mhz)
    return process.log_j(mhz), _LeftOut(left_out_log_j(process))


def _averaged_forms(
    data: Observations,
    times: TimeModel,
    labels: list[str],
    volts: Mapping[Setting, tuple[float, float]],
    domains: Sequence[int],
    place: list[int],
    left_out_s: np.ndarray,
) -> AveragedForms:
    """The forms' log energies of all kernels at the settings of ``volts``. ``place``: which of
    these the S settings of ``data`` that have rows are; ``left_out_s``: (K, S)."""
    present = np.unique(data.setting)

    def cells(values: np.ndarray) -> np.ndarray:
        whole = np.full((len(labels), len(volts)), np.nan)
        whole[:, place] = values
        return whole

    log_j, time_s = (
        cells(cell_means(data, labels, values)[:, present])
        for values in (np.log(data.energy_j), data.time_s)
    )
    mhz, volt = clock_columns(volts), np.array(list(volts.values()))
    if data.voltage == "unit":  # where none is known, V = 1 stands for it
        volt = np.full(volt.shape, np.nan)
    predicted_s = np.stack([times.time_s(label, *mhz.T) for label in labels])
    return average_forms(
        mhz[:, domains],
        volt[:, domains],
        log_j,
        np.where(np.isnan(time_s), predicted_s, time_s),
        cells(left_out_s),
    )


def _times_left_out(
    data: Observations, times: TimeModel, labels: list[str], present: np.ndarray
) -> np.ndarray:
    """The time of each kernel at each setting as predicted without it: (K, S)."""
    time_s = np.full((len(labels), len(present)), np.nan)
    place = {int(setting): i for i, setting in enumerate(present)}
    for k, label in enumerate(labels):
        mine = data.take(data.kernel == label)
        for left_out, paced_s in fits_without(times, mine):
            at = int(np.flatnonzero(left_out)[0])
            clocks = mine.core_mhz[[at]], mine.mem_mhz[[at]]
            time_s[k, place[int(mine.setting[at])]] = times.paced_times_s(
                np.array([paced_s]), *clocks
            )[0, 0]
    return time_s


def _model_left_out(
    fitted: Fit,
    data: Observations,
    time_s: np.ndarray,
    labels: list[str],
    present: np.ndarray,
) -> np.ndarray:
    """Log energies of each setting by the refit without it, with times without it, ``time_s``:
    (K, S)."""
    assert fitted.refits is not None  # noqa: S101
    first = first_rows(data, labels)[:, present]
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
