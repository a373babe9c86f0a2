"""A kernel of which only its counts and its time at one setting are known.

Its times come from the class roofline (:mod:`analysis.rooflines.class_roofline`), its energies
from the physics fit with these times. How far they may be off is seen from the other kernels
with counts: each is predicted in the same way, by a roofline and a fit without it. The profiled
kernel differs from its prediction as they do, at all settings together; those with like rates of
operations count more, as far as that predicts the errors of kernels left out (:data:`WIDTHS`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.models import KNOWN
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
"""The other kernels are left out in so many parts."""
SEED = 20261124
WIDTHS = (np.inf, 1.0, 0.5, 0.25, 0.1, 0.05)
"""How far rates may be apart, in units of what those of all kernels differ by, to be like."""


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
) -> Profiled:
    """The energies and times of a profiled kernel at the settings of ``volts``, sorted.

    Raises:
        FitError: there are too few kernels with counts.
    """
    settings = sorted(volts)
    data = data.take(data.has_counts)
    roofline, whole = fit_class_roofline(data), fit(data, intervals=False)
    n = np.array([[counts.get(name, 0.0) for name in data.counts]])
    run = n, np.array([measured_s])
    tried = _tried(data, whole, run, measured_at, settings, volts)
    rng = np.random.default_rng(SEED)
    if tried is not None:
        weight = _weights(tried.rates, n[0] / measured_s, np.hstack([*tried.off]))
        log_s, log_j = tried.predicted + tried.off
    else:
        off = roofline.spread * rng.normal(size=(DRAWS, len(settings)))
        off[:, settings.index(measured_at)] = 0.0
        both = _predicted(data, roofline, whole, *run, measured_at, settings, volts)
        log_s, log_j = (log + off for log in both)
        weight = np.full(DRAWS, 1.0 / DRAWS)
    # Student's t about the weighted mean: so many kernels are as good as those that count.
    many = max(1.0 / float((weight**2).sum()), 2.0)
    wide = np.sqrt((many + 1.0) / rng.chisquare(many - 1.0, DRAWS))
    of_kernel = rng.normal(size=(len(weight), DRAWS)) * np.sqrt(weight)[:, None] * wide
    medians, draws = [], []
    for log in (log_j, log_s):
        mean = weight @ log
        medians.append(np.exp(mean))
        draws.append(np.exp(mean[:, None] + (log - mean).T @ of_kernel))
    return Profiled(*medians, *draws)


def _weights(rates: np.ndarray, of_profile: np.ndarray, off: np.ndarray) -> np.ndarray:
    """How much each of J kernels counts, (J,): ``rates`` (J, C), those ``of_profile`` (C,), and
    ``off``: their errors (J, n)."""
    of_kernels, of_own = (log_rates(of, rates.max(axis=0)) for of in (rates, of_profile))
    apart = ((of_kernels[:, None] - of_kernels) ** 2).sum(axis=2)
    usual = max(float(apart.mean()), 1e-300)
    best = None
    for width in WIDTHS:
        left_out = np.exp(-0.5 * apart / (usual * width**2)) * ~np.eye(len(rates), dtype=bool)
        total = left_out.sum(axis=1, keepdims=True)
        expected = left_out @ off / np.maximum(total, 1e-300)
        error = float(((off - expected) ** 2).mean())
        if best is None or error < best[0]:
            best = error, width
    assert best is not None  # noqa: S101
    far = ((of_kernels - of_own) ** 2).sum(axis=1)
    weight = np.exp(-0.5 * (far - far.min()) / (usual * best[1] ** 2))
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
    """Log times and log energies, (K, S), of kernels with ``counts`` (K, C) and the times (K,) at
    one setting."""
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
    core_v, mem_v = np.tile([volts[one] for one in settings], (size, 1)).T
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
    """J other kernels, each predicted without itself and a part of the others: their ``rates`` at
    the profile's setting (J, C), and log times and log energies, (2, J, S): how far the measured
    ones were ``off``, and what is ``predicted`` of the profiled kernel without the same part."""

    rates: np.ndarray
    off: np.ndarray
    predicted: np.ndarray


def _tried(
    data: Observations,
    whole: Fit,
    run: tuple[np.ndarray, np.ndarray],
    measured_at: Setting,
    settings: Sequence[Setting],
    volts: Volts,
) -> _Tried | None:
    """The kernels that were measured at ``measured_at``; at settings that one lacks it is off as at
    the nearest that it has. None without such kernels, or where too few are left without a part."""
    if measured_at not in data.settings:
        return None
    labels = kernel_names(data)
    there = [data.settings.index(one) if one in data.settings else -1 for one in settings]
    log_s, log_j = (
        np.where(np.array(there) >= 0, cell_means(data, labels, np.log(values))[:, there], np.nan)
        for values in (data.time_s, data.energy_j)
    )
    here = log_s[:, settings.index(measured_at)]
    rows = first_rows(data, labels).max(axis=1)
    counts = np.column_stack([np.nan_to_num(values[rows]) for values in data.counts.values()])
    voltage = "known" if whole.voltage in KNOWN else whole.voltage
    off, predicted, judged = [], [], []
    order = np.random.default_rng(SEED).permutation(np.flatnonzero(np.isfinite(here)))
    for part in np.array_split(order, min(PARTS, len(order))):
        rest = data.take(kernel_numbers(data, [labels[k] for k in part]) < 0)
        try:
            roofline = fit_class_roofline(rest)
            fitted = fit(rest, whole.model, voltage, intervals=False)
        except FitError:
            continue
        runs = np.vstack([counts[part], run[0]]), np.append(np.exp(here[part]), run[1])
        both = np.array(_predicted(data, roofline, fitted, *runs, measured_at, settings, volts))
        off.append(np.array([log_s[part], log_j[part]]) - both[:, :-1])
        predicted.append(np.repeat(both[:, -1:], len(part), axis=1))
        judged.append(part)
    if not off:
        return None
    errors = np.concatenate(off, axis=1)
    logs = np.log(np.where(np.isnan(clock_columns(settings)), 1.0, clock_columns(settings)))
    far = np.abs(logs[:, None] - logs).sum(axis=2)
    for k in range(errors.shape[1]):
        has = np.flatnonzero(np.isfinite(errors[0, k]))
        errors[:, k] = errors[:, k][:, has[np.argmin(far[:, has], axis=1)]]
    of = np.concatenate(judged)
    rates = counts[of] / np.exp(here[of, None])
    return _Tried(rates, errors, np.concatenate(predicted, axis=1))
