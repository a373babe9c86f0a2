"""Whether the model picks well for kernels measured at few settings: tried on the other kernels.

Kernels that were measured at every setting are taken, a quarter of them at a time, as if they had
been measured at the few settings alone. The model is fitted again, and picks for them. What these
picks lose is known, and so is what the best single setting loses: the one that is best on average
over the other kernels (:func:`analysis.choice.losses.rank_single_settings` says which). Where the
model's picks lose more, the kernel is better off with that setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.choice.averaged import apart, cautious, ratio_of_errors, weight_by_error
from analysis.choice.objectives import Objective
from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.process import fit_process
from analysis.measurements.cells import cell_means, first_rows
from analysis.measurements.observations import CantFit, Observations, kernel_names
from analysis.time.few_settings import LEAST_OTHERS, few_groups, few_setting_times
from analysis.time.kernel_roofline import fit_time

PARTS = 4
"""The other kernels are tried in so many parts, each with a fit of its own."""
SEED = 20261123


@dataclass(frozen=True, kw_only=True)
class FewTrial:
    """What was predicted for K kernels at S ``settings`` from the few, and what was measured.

    Energies in J, times in s, float64 (S, K); at the few settings the predicted ones are those
    measured. ``hidden``: bool (S,), the other settings. ``process_j``: predicted by
    :mod:`analysis.energy.process`.
    """

    settings: list[tuple[float, float]]
    hidden: np.ndarray
    predicted_j: np.ndarray
    predicted_s: np.ndarray
    process_j: np.ndarray
    measured_j: np.ndarray
    measured_s: np.ndarray

    def best_single(self, objective: Objective) -> tuple[float, float]:
        """The setting that is best on average over these kernels."""
        return self.settings[int(np.argmin(self._above(objective).mean(axis=1)))]

    def lost_pct(self, objective: Objective) -> tuple[float, float]:
        """What the model's picks lose and what the best single setting loses, each that of the
        other kernels: the means over the kernels, in % of the score."""
        above = self._above(objective)
        kernels = np.arange(above.shape[1])
        away = np.log(self.process_j / self.predicted_j)
        weight = self.process_weight
        averaged_j = cautious(self.predicted_j * np.exp(weight * away), apart(away, weight))
        picked = objective.score(averaged_j, self.predicted_s).argmin(axis=0)
        single = (above.sum(axis=1, keepdims=True) - above).argmin(axis=0)
        by_model, by_single = (100.0 * above[chosen, kernels].mean() for chosen in (picked, single))
        return float(by_model), float(by_single)

    @property
    def process_weight(self) -> float:
        """Of the process beside the model, by what they were off where nothing was measured."""
        return weight_by_error(*self._errors(), 1.0)

    @property
    def error_ratio(self) -> float:
        """How large the average's errors are beside the model's there, at most 1."""
        return ratio_of_errors(*self._errors(), self.process_weight, 1.0)

    def _errors(self) -> tuple[np.ndarray, np.ndarray]:
        of_model, of_process = (
            np.log(predicted / self.measured_j)[self.hidden]
            for predicted in (self.predicted_j, self.process_j)
        )
        return of_model, of_process

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
            trial = _tried(fitted, data, settings, whole)
        except CantFit:
            continue
        trials |= dict.fromkeys(labels, trial)
    return trials


def _tried(fitted: Fit, data: Observations, few: Sequence[int], whole: Sequence[str]) -> FewTrial:
    present = np.unique(data.setting)
    row = {label: i for i, label in enumerate(whole)}
    number = np.array([row.get(label, -1) for label in data.kernel.tolist()])
    measured_j, measured_s = (
        cell_means(data, whole, values)[:, present] for values in (data.energy_j, data.time_s)
    )
    log_j = cell_means(data, whole, np.log(data.energy_j))[:, present]
    predicted_j, predicted_s = measured_j.copy(), measured_s.copy()
    process_j = measured_j.copy()
    first = first_rows(data, whole)[:, present]
    hidden = np.flatnonzero(~np.isin(present, few))
    voltage = "known" if fitted.voltage in ("table", "measured") else fitted.voltage
    order = np.random.default_rng(SEED).permutation(len(whole))
    for part in np.array_split(order, PARTS):
        seen = ~np.isin(number, part) | np.isin(data.setting, few)
        training = data.take(seen)
        model = fit(training, fitted.model, voltage, robust=fitted.robust, intervals=False)
        there = data.take(first[np.ix_(part, hidden)].ravel())
        labels = [whole[i] for i in part]
        mhz = np.array([data.settings[present[i]] for i in hidden])
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
        by_process = fit_process(np.array(data.settings)[present], known).log_j(mhz)[part]
        process_j[np.ix_(part, hidden)] = np.exp(by_process)
    return FewTrial(
        settings=[data.settings[i] for i in present],
        hidden=~np.isin(present, few),
        predicted_j=predicted_j.T,
        predicted_s=predicted_s.T,
        process_j=process_j.T,
        measured_j=measured_j.T,
        measured_s=measured_s.T,
    )
