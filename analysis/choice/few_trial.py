"""Whether the model picks well for kernels measured at few settings: tried on the other kernels.

Kernels that were measured at every setting are taken, a quarter of them at a time, as if they had
been measured at the few settings alone. The model is fitted again, and picks for them. What these
picks lose is known, and so is what the best single setting loses: the one that is best on average
over the other kernels (:func:`analysis.choice.losses.rank_single_settings` says which). Where the
model's picks lose more, the kernel is better off with that setting.

How far these kernels were from what was predicted says how unsure the prediction of another is:
it differs from its prediction as one of them did, at all settings together (the bootstrap of
residuals, Efron & Tibshirani 1993, section 9.4, with whole kernels). But a pick is the least of
many predictions, which is easily one that is too low, so that it would be said to be the best too
often. A share of the errors is therefore taken as each setting's own, with the same variance: that
with which the picks of the others, each judged by the errors of the rest, are as often the best as
they are said to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.choice.averaged import apart, cautious, ratio_of_errors, weights_by_error
from analysis.choice.few_energies import regressed_log_j
from analysis.choice.objectives import Objective
from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.process import fit_process
from analysis.measurements.cells import cell_means, first_rows
from analysis.measurements.observations import CantFit, Observations, kernel_names
from analysis.time.few_settings import LEAST_OTHERS, few_groups, few_setting_times
from analysis.time.kernel_roofline import fit_time
from dvfs.setting import Setting

PARTS = 4
"""The other kernels are tried in so many parts, each with a fit of its own."""
SEED = 20261123
ENOUGH_ERRORS = 20
"""The errors of so many other kernels are taken for what those of another may be."""
SHARES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, *(step / 10 for step in range(1, 11)))
LEAST_DRAWS = 400
"""By which each of the other kernels' picks is judged."""
TIE = 1e-9
"""Of log energies."""


@dataclass(frozen=True)
class FewErrors:
    """What N other kernels were off by at settings: ``log_j``, ``log_s``, logarithms of energies
    and of times, float64 (settings, N), NaN where that is not known. ``own_share``: a draw of
    log energies is sqrt(1 - own_share^2) times the errors of one of the kernels, and own_share
    times errors that are each setting's own, of the same variance."""

    log_j: np.ndarray
    log_s: np.ndarray
    own_share: float


@dataclass(frozen=True, kw_only=True)
class FewTrial:
    """What was predicted for K kernels at S ``settings`` from the few, and what was measured.

    Energies in J, times in s, float64 (S, K); at the few settings the predicted ones are those
    measured. ``hidden``: bool (S,), the other settings. ``others_j``: (2, S, K), predicted by
    :mod:`analysis.energy.process` and by :mod:`analysis.choice.few_energies`; ``regressed_log_j``:
    the latter's log energies, (S,), of each kernel that has the few settings alone.
    """

    settings: list[Setting]
    hidden: np.ndarray
    predicted_j: np.ndarray
    predicted_s: np.ndarray
    others_j: np.ndarray
    measured_j: np.ndarray
    measured_s: np.ndarray
    regressed_log_j: Mapping[str, np.ndarray]

    def best_single(self, objective: Objective) -> Setting:
        """The setting that is best on average over these kernels."""
        return self.settings[int(np.argmin(self._above(objective).mean(axis=1)))]

    def lost_pct(self, objective: Objective) -> tuple[float, float]:
        """What the model's picks lose and what the best single setting loses, each that of the
        other kernels: the means over the kernels, in % of the score."""
        above = self._above(objective)
        kernels = np.arange(above.shape[1])
        picked = objective.score(self._cautious_j(), self.predicted_s).argmin(axis=0)
        single = (above.sum(axis=1, keepdims=True) - above).argmin(axis=0)
        by_model, by_single = (100.0 * above[chosen, kernels].mean() for chosen in (picked, single))
        return float(by_model), float(by_single)

    @property
    def weights(self) -> np.ndarray:
        """Of the model and the others, (3,), by their errors where nothing was measured."""
        return weights_by_error(self._errors(), 1.0)

    @property
    def error_ratio(self) -> float:
        """How large the average's errors are beside the model's there, at most 1."""
        return ratio_of_errors(self._errors(), self.weights, 1.0)

    @cached_property
    def errors(self) -> FewErrors | None:
        """How far the kernels were from the average of the predictions and from their times; None
        where there are fewer than :data:`ENOUGH_ERRORS` kernels."""
        if self.measured_j.shape[1] < ENOUGH_ERRORS:
            return None
        log_j = np.log(self.measured_j / self._mean_j())
        log_s = np.log(self.measured_s / self.predicted_s)
        hidden = self.hidden[:, None]
        return FewErrors(
            np.where(hidden, log_j, np.nan), np.where(hidden, log_s, np.nan), self._own_share(log_j)
        )

    def _own_share(self, errors: np.ndarray) -> float:
        """That of :data:`SHARES` with which picks of the least energy are said to be the best most
        nearly as often as they are. ``errors``: of log energy, (S, K)."""
        log_j = np.log(self._mean_j())
        picked = self._cautious_j().argmin(axis=0)
        best = (self.measured_j.argmin(axis=0) == picked).sum()
        settings, kernels = errors.shape
        repeats = -(-LEAST_DRAWS // (kernels - 1))
        normal = np.random.default_rng(SEED).normal(size=(settings, repeats * (kernels - 1)))
        own = np.sqrt(np.mean(errors**2, axis=1, keepdims=True)) * normal
        said = np.zeros(len(SHARES))
        for k in range(kernels):
            of_others = np.tile(np.delete(errors, k, axis=1), repeats)
            for i, share in enumerate(SHARES):
                drawn = log_j[:, [k]] + np.sqrt(1.0 - share**2) * of_others + share * own
                said[i] += np.mean(drawn[picked[k]] <= drawn.min(axis=0) + TIE)
        return SHARES[int(np.argmin(np.abs(said - best)))]

    def _mean_j(self) -> np.ndarray:
        mean_away = np.tensordot(self.weights[1:], self._away(), 1)
        return np.asarray(self.predicted_j * np.exp(mean_away))

    def _cautious_j(self) -> np.ndarray:
        return cautious(self._mean_j(), apart(self._away(), self.weights[1:]))

    def _away(self) -> np.ndarray:
        return np.log(self.others_j / self.predicted_j)

    def _errors(self) -> list[np.ndarray]:
        return [
            np.log(predicted_j / self.measured_j)[self.hidden]
            for predicted_j in (self.predicted_j, *self.others_j)
        ]

    def _above(self, objective: Objective) -> np.ndarray:
        """How far each setting's score is above the kernel's least."""
        score = objective.score(self.measured_j, self.measured_s)
        return np.asarray(score / score.min(axis=0) - 1.0)


def few_trials(fitted: Fit, data: Observations, kernels: Sequence[str]) -> dict[str, FewTrial]:
    """The trial of each of ``kernels`` that was measured at few settings.

    Empty where fewer than five kernels were measured at every setting, or no model can be fitted
    to their few settings.
    """
    groups = few_groups(data, kernels)
    if not groups:
        return {}
    present = np.unique(data.setting)
    whole = [
        label
        for label in kernel_names(data)
        if len(np.unique(data.setting[data.kernel == label])) == len(present)
    ]
    if len(whole) < LEAST_OTHERS:
        return {}
    trials: dict[str, FewTrial] = {}
    for settings, labels in groups.items():
        try:
            trial = _tried(fitted, data, settings, whole, labels)
        except CantFit:
            continue
        trials |= dict.fromkeys(labels, trial)
    return trials


def _tried(
    fitted: Fit,
    data: Observations,
    few: Sequence[int],
    whole: Sequence[str],
    kernels: Sequence[str],
) -> FewTrial:
    present = np.unique(data.setting)
    row = {label: i for i, label in enumerate(whole)}
    number = np.array([row.get(label, -1) for label in data.kernel.tolist()])
    measured_j, measured_s = (
        cell_means(data, whole, values)[:, present] for values in (data.energy_j, data.time_s)
    )
    log_j = cell_means(data, whole, np.log(data.energy_j))[:, present]
    predicted_j, predicted_s = measured_j.copy(), measured_s.copy()
    process_j, regressed_j = measured_j.copy(), measured_j.copy()
    first = first_rows(data, whole)[:, present]
    hidden = np.flatnonzero(~np.isin(present, few))
    regressed = regressed_log_j(data, few, whole, kernels)
    regressed_j[:, hidden] = np.exp(regressed[: len(whole), hidden])
    voltage = "known" if fitted.voltage in ("table", "measured") else fitted.voltage
    order = np.random.default_rng(SEED).permutation(len(whole))
    for part in np.array_split(order, PARTS):
        seen = ~np.isin(number, part) | np.isin(data.setting, few)
        training = data.take(seen)
        model = fit(training, fitted.model, voltage, robust=fitted.robust, intervals=False)
        there = data.take(first[np.ix_(part, hidden)].ravel())
        labels = [whole[i] for i in part]
        mhz = data.mhz[present[hidden]]
        times = fit_time(training)
        stacked = few_setting_times(training, times, labels, *mhz.T)
        time_s = np.array(
            [
                stacked[label].time_s if label in stacked else times.time_s(label, *mhz.T)
                for label in labels
            ]
        )
        energy_j = model.energy_j(replace(there, time_s=time_s.ravel()))
        predicted_s[np.ix_(part, hidden)] = time_s
        predicted_j[np.ix_(part, hidden)] = energy_j.reshape(time_s.shape)
        known = log_j.copy()
        known[np.ix_(part, hidden)] = np.nan
        by_process = fit_process(data.mhz[present], known).log_j(mhz)[part]
        process_j[np.ix_(part, hidden)] = np.exp(by_process)
    return FewTrial(
        settings=[data.settings[i] for i in present],
        hidden=~np.isin(present, few),
        predicted_j=predicted_j.T,
        predicted_s=predicted_s.T,
        others_j=np.stack([process_j.T, regressed_j.T]),
        measured_j=measured_j.T,
        measured_s=measured_s.T,
        regressed_log_j=dict(zip(kernels, regressed[len(whole) :], strict=True)),
    )
