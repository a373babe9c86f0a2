"""What may be picked: kernels at every setting, with what energies and times may be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.choice.averaged import other_predictions
from analysis.choice.few_trial import FewErrors, FewTrial, few_trials
from analysis.choice.posterior import Cells, has_posterior, posteriors
from analysis.energy.fitted import Fit
from analysis.measurements.observations import CantFit, Observations, beside, kernel_names
from analysis.ties import equally_fast, time_noise
from analysis.time.few_settings import few_setting_times
from analysis.time.held_out_rooflines import ProfiledRun
from analysis.time.kernel_roofline import fit_time
from analysis.time.profile_times import profile_times
from analysis.time.refits import refit_times
from dvfs.setting import Setting, clock_columns

Volts = Mapping[Setting, tuple[float, float]]
"""Setting -> (core V, memory V)."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """A kernel at every setting that may be picked: arrays with one entry a setting.

    ``kernel``, ``params``, ``label``: as :class:`~analysis.measurements.kernels.KernelInstance`.
    ``energy_draws_j``, ``time_draws_s``: float64 (settings, draws), what energy and time may be,
    given how sure the coefficients, the surface and the times are; None without a covariance.
    ``time_error_s``: float64 (settings,), the standard error of the times by the noise of repeats
    (:mod:`analysis.ties`), where not measured that of one measurement; None for 0.
    ``apart``: float64 (settings,), the standard deviation of log energy among predictions
    (:mod:`analysis.choice.averaged`), 0 where measured and where picks need no caution.
    ``few``: what the model's picks lose for other kernels with as few settings; None where the
    kernel has more, or that could not be tried. ``time_error_pct``: of a profiled kernel, what the
    times of other kernels, predicted in the same way, are off by on average, in %; NaN where that
    could not be tried.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    settings: list[Setting]
    energy_j: np.ndarray
    time_s: np.ndarray
    measured: np.ndarray
    measured_j: np.ndarray
    """Mean measured energy; NaN where the kernel was not measured."""
    energy_draws_j: np.ndarray | None = None
    time_draws_s: np.ndarray | None = None
    time_error_s: np.ndarray | None = None
    apart: np.ndarray | None = None
    few: FewTrial | None = None
    time_error_pct: float = np.nan

    @property
    def equally_fast(self) -> np.ndarray:
        """bool (settings,): those whose times are tied with the least one."""
        error_s = np.zeros_like(self.time_s) if self.time_error_s is None else self.time_error_s
        return equally_fast(self.time_s, error_s)


def candidates(
    fitted: Fit, data: Observations, kernel: str, volts: Volts | None = None
) -> Candidates:
    """A kernel's candidates: :func:`all_candidates` of it alone."""
    return all_candidates(fitted, data, [kernel], volts)[kernel]


def all_candidates(
    fitted: Fit,
    data: Observations,
    kernels: Sequence[str] | None = None,
    volts: Volts | None = None,
    known_site: Observations | None = None,
    averaged: bool = True,
) -> dict[str, Candidates]:
    """Label -> a kernel (all by default, named by label) at every setting that may be picked.

    These are the measured ones, and those of ``volts``, further legal settings and their voltages.
    Time is the mean measured one where there is one, else the time model's of ``data``, which for
    a kernel with few settings learns from the others (:mod:`analysis.time.few_settings`), and from
    those of ``known_site``, the measurements of the site that the fit started from. ``averaged``:
    whether energies are averaged with other predictions (:mod:`analysis.choice.averaged`).

    Raises:
        CantFit: a kernel was not measured.
    """
    labels = list(kernels or kernel_names(data))
    code = {label: i for i, label in enumerate(labels)}
    number = np.array([code.get(label, -1) for label in data.kernel.tolist()], np.int64)
    if missing := sorted(set(labels) - {labels[i] for i in np.unique(number[number >= 0])}):
        raise CantFit(
            f"no measurements of kernel {missing[0]!r}; known: {', '.join(kernel_names(data)[:12])}"
        )
    measured = measured_volts(data)
    known = {**(volts or {}), **measured}
    settings = sorted(known)
    known = {setting: known[setting] for setting in settings}
    place = {setting: i for i, setting in enumerate(settings)}
    shape = (len(labels), len(settings))
    mine = np.flatnonzero(number >= 0)
    at = np.array([place.get(setting, -1) for setting in data.settings])[data.setting[mine]]
    cell = number[mine] * len(settings) + at
    repeats = np.bincount(cell, minlength=shape[0] * shape[1])

    def mean(values: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            total = np.bincount(cell, values[mine], len(repeats))
            return np.asarray((total / repeats).reshape(shape))

    timed = data if known_site is None else beside(data, known_site)
    times = fit_time(timed)
    core_mhz, mem_mhz = clock_columns(settings).T
    time_s = mean(data.time_s)
    missing_times = np.isnan(time_s)
    deviation = of_few = None
    time_std = times.spread / np.sqrt(np.maximum(repeats.reshape(shape), 1))
    trials: dict[str, FewTrial] = {}
    errors_of_few: dict[str, FewErrors] = {}
    others = None
    if missing_times.any():
        few = few_setting_times(timed, times, labels, core_mhz, mem_mhz)
        predicted = np.stack(
            [
                few[label].time_s if label in few else times.time_s(label, core_mhz, mem_mhz)
                for label in labels
            ]
        )
        time_s = np.where(missing_times, predicted, time_s)
        trials = few_trials(fitted, data, labels)
        if has_posterior(fitted):
            refits = refit_times(timed, times, labels, core_mhz, mem_mhz)
            own = missing_times & ~np.array([[label in few] for label in labels])
            deviation = {label: refits.deviation[label] * own[i] for label, i in code.items()}
            of_few = {label: few[label].root * missing_times[code[label]] for label in few}
            beyond = np.sqrt(
                [[0.0 if label in few else refits.variance[label]] for label in labels]
            )
            time_std = np.where(missing_times, beyond, time_std)
            if averaged:
                others = other_predictions(fitted, data, times, labels, known)
            if others is not None:
                for label, trial in trials.items():
                    i = code[label]
                    others.log_j[1, i] = _at(settings, trial, trial.regressed_log_j[label])
                    others.weights[:, i] = trial.weights[1:, None]
                    others.error_ratio[i] = trial.error_ratio
                    if trial.errors is not None:
                        errors_of_few[label] = FewErrors(
                            _at(settings, trial, trial.errors.log_j),
                            _at(settings, trial, trial.errors.log_s),
                            trial.errors.own_share,
                        )
    first = np.array([mine[np.flatnonzero(number[mine] == i)[0]] for i in range(len(labels))])
    there = at_settings(data.take(np.repeat(first, len(settings))), settings, known, time_s)
    cells = Cells(
        there=there,
        kernels=labels,
        repeats=repeats.reshape(shape),
        mean_log_j=mean(np.log(data.energy_j)),
        time_std=time_std,
        fitted_at=np.array([setting in measured for setting in settings]),
        time_deviation=deviation,
        time_of_few=of_few,
        others=others,
        errors_of_few=errors_of_few,
    )
    among = _judged(fitted, cells, mean(data.energy_j), repeats.reshape(shape) > 0)
    noise = time_noise(data, times)
    error = np.array([[noise[label]] for label in labels]) * time_s
    error /= np.sqrt(np.maximum(repeats.reshape(shape), 1))
    return {
        label: replace(one, few=trials.get(label), time_error_s=error[code[label]])
        for label, one in among.items()
    }


def _at(settings: list[Setting], trial: FewTrial, values: np.ndarray) -> np.ndarray:
    """``values`` (S, ...) at the settings of a trial, at M settings; NaN at those that it lacks."""
    found = np.full((len(settings), *values.shape[1:]), np.nan)
    found[[settings.index(setting) for setting in trial.settings]] = values
    return found


def at_settings(
    rows: Observations,
    settings: list[Setting],
    volts: Volts,
    time_s: np.ndarray,
) -> Observations:
    """The rows, M of each kernel together, at the M settings with their voltages and times."""
    n = len(rows) // len(settings)
    volt = np.tile(np.array([volts[setting] for setting in settings]), (n, 1))
    core_mhz, mem_mhz = np.tile(clock_columns(settings), (n, 1)).T
    return replace(
        rows,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=volt[:, 0],
        mem_v=volt[:, 1],
        time_s=time_s.reshape(-1),
        setting=np.tile(np.arange(len(settings)), n),
        settings=settings,
    )


def _judged(
    fitted: Fit, cells: Cells, measured_j: np.ndarray, measured: np.ndarray
) -> dict[str, Candidates]:
    """The candidates of each kernel of ``cells``, with their posterior where the fit has one."""
    there, shape = cells.there, cells.repeats.shape
    energy_j = fitted.energy_j(there).reshape(shape)
    time_s = there.time_s.reshape(shape)
    among = {
        label: Candidates(
            **there.instance(label).as_dict(),
            settings=there.settings,
            energy_j=energy_j[i],
            time_s=time_s[i],
            measured=measured[i],
            measured_j=measured_j[i],
        )
        for i, label in enumerate(cells.kernels)
    }
    if not has_posterior(fitted):
        return among
    return {
        label: replace(
            among[label],
            energy_j=posterior.energy_j,
            energy_draws_j=posterior.energy_draws_j,
            time_draws_s=posterior.time_draws_s,
            apart=posterior.apart,
        )
        for label, posterior in zip(cells.kernels, posteriors(fitted, cells, energy_j), strict=True)
    }


def profile_candidates(
    fitted: Fit,
    data: Observations,
    kernel: str,
    *,
    counts: Mapping[str, float],
    measured_s: float,
    measured_at: Setting,
    volts: Volts | None = None,
) -> Candidates:
    """A kernel that only has counts and a time at one setting, at every setting of the site.

    Its times elsewhere, and how unsure they are, are learned from the kernels of ``data``
    (:func:`~analysis.time.profile_times.profile_times`).

    Raises:
        CantFit: a class is counted that the fit has no coefficient of, or the times of the site
            cannot be predicted from counts.
    """
    classes = operation_classes(fitted)
    if not classes:
        raise CantFit(
            f"the fit of {fitted.site} has no operation classes, so energy cannot be predicted "
            f"from counts; measure kernels with counts"
        )
    if strange := sorted(set(counts) - classes):
        raise CantFit(
            f"the fit of {fitted.site} has no class {strange[0]!r}; it has "
            f"{', '.join(sorted(classes))}"
        )
    measured = measured_volts(data)
    known = {**(volts or {}), **measured}
    settings = sorted(known)
    n = len(settings)
    run = ProfiledRun(counts, measured_s, measured_at)
    times = profile_times(data, run, *clock_columns(settings).T)
    rows = replace(
        data.take(np.zeros(n, np.int64)),
        kernel=np.full(n, kernel, object),
        instances={},
        counts={name: np.full(n, counts.get(name, 0.0)) for name in data.counts},
    )
    here = np.array([[setting == measured_at for setting in settings]])
    unknown = np.full((1, n), np.nan)
    cells = Cells(
        there=at_settings(rows, settings, known, times.time_s),
        kernels=[kernel],
        repeats=np.zeros((1, n), np.int64),
        mean_log_j=unknown,
        time_std=np.zeros((1, n)),
        fitted_at=np.array([setting in measured for setting in settings]),
        time_of_few={kernel: times.root},
    )
    among = _judged(fitted, cells, unknown, here)[kernel]
    return replace(among, time_error_pct=times.error_pct)


def operation_classes(fitted: Fit) -> set[str]:
    """The classes of operations that a fit has coefficients of."""
    return {term.of for term in fitted.terms if term.pays_for == "operation"}


def measured_volts(data: Observations) -> dict[Setting, tuple[float, float]]:
    """The mean core and memory voltage of every setting that was measured."""
    n = np.bincount(data.setting, minlength=len(data.settings))
    with np.errstate(invalid="ignore"):
        core_v, mem_v = (
            np.bincount(data.setting, volt, minlength=len(n)) / n
            for volt in (data.core_v, data.mem_v)
        )
    return {data.settings[s]: (float(core_v[s]), float(mem_v[s])) for s in np.flatnonzero(n)}
