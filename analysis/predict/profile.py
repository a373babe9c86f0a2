"""Prediction of a kernel from its counts and its time at one setting.

Its times come from the class roofline (:mod:`analysis.rooflines.class_roofline`), its energies
from the physics fit with these times. The other kernels with counts show the errors: each is
predicted in the same way, by a roofline and a fit without it. The profiled kernel's errors are
distributed as theirs, at all settings together. Kernels with similar rates of operations count
more, as far as that predicts the errors of kernels left out (:data:`WIDTHS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.models import NOT_KNOWN, FormRequest
from analysis.measurements.observations import (
    FitError,
    Observations,
    cell_means,
    first_rows,
    kernel_names,
    kernel_numbers,
)
from analysis.predict.posterior import DRAWS
from analysis.predict.site import log_rates
from analysis.rooflines.class_roofline import ClassRoofline, fit_class_roofline
from dvfs.setting import Setting, Volts, clock_columns

PARTS = 10
"""The other kernels are left out in so many groups."""
SEED = 20261124
WIDTHS = (np.inf, 1.0, 0.5, 0.25, 0.1, 0.05)
"""Candidate widths of the similarity of rates, relative to the mean difference of kernels."""


@dataclass(frozen=True)
class Profiled:
    """``energy_j``, ``time_s``: medians at S settings; and draws, float64 (S, draws) each."""

    energy_j: np.ndarray
    time_s: np.ndarray
    energy_draws_j: np.ndarray
    time_draws_s: np.ndarray


def profiled(
    data: Observations,
    counts: Mapping[str, float],
    measured_s: float,
    measured_at: Setting,
    volts: Volts,
    form: FormRequest,
) -> Profiled:
    """Return the energies and times of a profiled kernel at the settings of ``volts``, sorted.

    ``form``: the options of the physics fits.

    Raises:
        FitError: there are too few kernels with counts.
    """
    settings = sorted(volts)
    data = data.take(data.has_counts)
    roofline, whole = fit_class_roofline(data), fit(data, **vars(form), intervals=False)
    n = np.array([[counts.get(name, 0.0) for name in data.counts]])
    run = n, np.array([measured_s])
    tried = _tried(data, whole, form.robust, run, measured_at, settings, volts)
    rng = np.random.default_rng(SEED)
    if tried is not None:
        weight = _weights(tried.rates, n[0] / measured_s, np.hstack([*tried.off]))
        log_s, log_j = tried.predicted + tried.off
    else:
        off = roofline.spread * rng.normal(size=(DRAWS, len(settings)))
        off[:, settings.index(measured_at)] = 0.0
        predicted = _predicted(data, roofline, whole, *run, measured_at, settings, volts)
        log_s, log_j = (log + off for log in predicted)
        weight = np.full(DRAWS, 1.0 / DRAWS)
    # Student's t about the weighted mean, with the effective number of kernels.
    n_effective = max(1.0 / float((weight**2).sum()), 2.0)
    wide = np.sqrt((n_effective + 1.0) / rng.chisquare(n_effective - 1.0, DRAWS))
    of_kernel = rng.normal(size=(len(weight), DRAWS)) * np.sqrt(weight)[:, None] * wide
    medians, draws = [], []
    for log in (log_j, log_s):
        mean = weight @ log
        medians.append(np.exp(mean))
        draws.append(np.exp(mean[:, None] + (log - mean).T @ of_kernel))
    return Profiled(*medians, *draws)


def _weights(rates: np.ndarray, profile_rates: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Return the weights of J kernels, (J,), from their ``rates`` (J, C), the ``profile_rates``
    (C,), and their errors ``off`` (J, n)."""
    kernel_features, profile_features = (
        log_rates(rate, rates.max(axis=0)) for rate in (rates, profile_rates)
    )
    distance = ((kernel_features[:, None] - kernel_features) ** 2).sum(axis=2)
    usual = max(float(distance.mean()), 1e-300)
    best = None
    for width in WIDTHS:
        left_out = np.exp(-0.5 * distance / (usual * width**2)) * ~np.eye(len(rates), dtype=bool)
        total = left_out.sum(axis=1, keepdims=True)
        expected = left_out @ off / np.maximum(total, 1e-300)
        error = float(((off - expected) ** 2).mean())
        if best is None or error < best[0]:
            best = error, width
    assert best is not None  # noqa: S101
    profile_distance = ((kernel_features - profile_features) ** 2).sum(axis=1)
    weight = np.exp(-0.5 * (profile_distance - profile_distance.min()) / (usual * best[1] ** 2))
    return np.asarray(weight / weight.sum())


def _predicted(
    data: Observations,
    roofline: ClassRoofline,
    fitted: Fit,
    counts: np.ndarray,
    measured_s: np.ndarray,
    measured_at: Setting,
    settings: Sequence[Setting],
    volts: Volts,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log times and log energies, (K, S), of kernels with ``counts`` (K, C) and times (K,)
    at one setting."""
    mhz = clock_columns(settings)
    names = list(data.counts)
    time_s = np.array(
        [
            roofline.time_s(dict(zip(names, n, strict=True)), t, measured_at, *mhz.T)
            for n, t in zip(counts, measured_s, strict=True)
        ]
    )
    size, S = time_s.shape
    core_mhz, mem_mhz = np.tile(mhz, (size, 1)).T
    core_v, mem_v = np.tile([volts[setting] for setting in settings], (size, 1)).T
    rows = replace(
        data.take(np.zeros(size * S, np.int64)),
        kernel=np.full(size * S, "", object),
        instances={},
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=core_v,
        mem_v=mem_v,
        time_s=time_s.ravel(),
        counts={name: np.repeat(counts[:, i], S) for i, name in enumerate(names)},
        setting=np.tile(np.arange(S), size),
        settings=list(settings),
    )
    return np.log(time_s), np.log(fitted.energy_j(rows)).reshape(size, S)


@dataclass(frozen=True)
class _Tried:
    """J other kernels, each predicted without its group: their ``rates`` at the profile's setting
    (J, C), and, in log times and log energies, (2, J, S): ``off``, measured less predicted, and
    ``predicted``, of the profiled kernel without the same group."""

    rates: np.ndarray
    off: np.ndarray
    predicted: np.ndarray


def _tried(
    data: Observations,
    whole: Fit,
    robust: bool,
    run: tuple[np.ndarray, np.ndarray],
    measured_at: Setting,
    settings: Sequence[Setting],
    volts: Volts,
) -> _Tried | None:
    """Predict the kernels that were measured at ``measured_at``, each without its group. At a
    setting that a kernel lacks its error is that at its nearest setting. None without such kernels,
    or with too few outside their groups."""
    if measured_at not in data.settings:
        return None
    labels = kernel_names(data)
    columns = [
        data.settings.index(setting) if setting in data.settings else -1 for setting in settings
    ]
    log_s, log_j = (
        np.where(
            np.array(columns) >= 0, cell_means(data, labels, np.log(values))[:, columns], np.nan
        )
        for values in (data.time_s, data.energy_j)
    )
    measured_log_s = log_s[:, settings.index(measured_at)]
    rows = first_rows(data, labels).max(axis=1)
    counts = np.column_stack([np.nan_to_num(values[rows]) for values in data.counts.values()])
    voltage = whole.voltage if whole.voltage in NOT_KNOWN else "known"
    off, predicted, judged = [], [], []
    order = np.random.default_rng(SEED).permutation(np.flatnonzero(np.isfinite(measured_log_s)))
    for part in np.array_split(order, min(PARTS, len(order))):
        training = data.take(kernel_numbers(data, [labels[k] for k in part]) < 0)
        try:
            roofline = fit_class_roofline(training)
            fitted = fit(training, whole.model, voltage, robust=robust, intervals=False)
        except FitError:
            continue
        runs = np.vstack([counts[part], run[0]]), np.append(np.exp(measured_log_s[part]), run[1])
        predicted_logs = np.array(
            _predicted(data, roofline, fitted, *runs, measured_at, settings, volts)
        )
        off.append(np.array([log_s[part], log_j[part]]) - predicted_logs[:, :-1])
        predicted.append(np.repeat(predicted_logs[:, -1:], len(part), axis=1))
        judged.append(part)
    if not off:
        return None
    errors = np.concatenate(off, axis=1)
    logs = np.log(np.where(np.isnan(clock_columns(settings)), 1.0, clock_columns(settings)))
    distance = np.abs(logs[:, None] - logs).sum(axis=2)
    for k in range(errors.shape[1]):
        has = np.flatnonzero(np.isfinite(errors[0, k]))
        errors[:, k] = errors[:, k][:, has[np.argmin(distance[:, has], axis=1)]]
    judged_kernels = np.concatenate(judged)
    rates = counts[judged_kernels] / np.exp(measured_log_s[judged_kernels, None])
    return _Tried(rates, errors, np.concatenate(predicted, axis=1))
