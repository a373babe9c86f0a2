"""Cross-validation: the model's error on energy out of fold, and what its picks lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.choice.fold_times import with_predicted_time, with_profile_time
from analysis.choice.folds import folds
from analysis.choice.losses import (
    CaseLoss,
    Chooser,
    FoldRankings,
    case_losses,
    contest,
    kernel_numbers,
    losses_by_chooser,
    rank_single_settings,
)
from analysis.choice.objectives import Objective
from analysis.choice.objectives import objective as objective_of
from analysis.choice.stacked import process_energies, stacked_energies
from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.models import AUTO, Form
from analysis.measurements.observations import (
    CantFit,
    Observations,
    pooled,
    setting_text,
)
from analysis.ties import time_noise
from analysis.unknown_name import unknown_name
from dvfs.setting import Setting

FEW_SETTINGS = 12
"""Up to so many settings of a holdout are named in text."""
TIMES = ("measured", "predicted", "profile")


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """A model judged out of fold.

    ``predicted_j``: float64 (rows,), each row predicted by the model fitted without it; NaN
    where no fold predicted it. ``error_pct``, ``time_error_pct``: float64, of the predicted rows
    alone; the latter of the times that the model was given, 0 where they are the measured ones.
    ``fold_error_pct``: float64 (folds,), the mean of ``error_pct`` in each fold that predicted a
    row.
    ``form``: what each fold's fit was asked for. ``chosen``: the forms that the folds have, and in
    how many folds; ``model`` and ``voltage`` are the first. ``train``, ``test``: of a holdout, the
    settings that it fitted on and those that it predicted; empty otherwise. ``objective``: what
    the picks of ``cases`` minimise. ``with_predicted_times``: where the model was given the
    measured times, what it loses with the times that a time model of the same fold predicts; None
    where these cannot be predicted for every case.
    ``stacked_error_pct``, ``stacked_cases``: as ``error_pct`` and ``cases``, of the average with a
    prediction that knows no physics (:mod:`analysis.choice.stacked`); empty where that cannot
    predict all rows.
    """

    site: str
    simulated: bool
    scheme: str
    model: str
    voltage: str
    form: Form
    chosen: list[dict[str, Any]]
    time: str
    objective: str
    n: int
    n_folds: int
    predicted_j: np.ndarray
    error_pct: np.ndarray
    fold_error_pct: np.ndarray
    time_error_pct: np.ndarray
    cases: list[CaseLoss]
    stacked_error_pct: np.ndarray
    stacked_cases: list[CaseLoss]
    with_predicted_times: Chooser | None = None
    train: Sequence[Setting] = ()
    test: Sequence[Setting] = ()

    @property
    def choosers(self) -> dict[str, Chooser]:
        """What the model's picks lose, beside race to halt, the best single setting and chance."""
        return losses_by_chooser(self.cases)

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --json``."""
        error = self.error_pct
        choosers = self.choosers
        if self.with_predicted_times is not None:
            choosers["model_predicted_time"] = self.with_predicted_times
        if self.stacked_cases:
            choosers["stacked"] = losses_by_chooser(self.stacked_cases)["model"]
        return {
            "site": self.site,
            "simulated": self.simulated,
            "scheme": self.scheme,
            "model": self.model,
            "voltage": self.voltage,
            "form": vars(self.form) | {"chosen_in_each_fold": self.form.is_chosen},
            "chosen": self.chosen,
            **({"train": _clocks(self.train), "test": _clocks(self.test)} if self.train else {}),
            "n": self.n,
            "n_folds": self.n_folds,
            "mape_pct": float(error.mean()),
            **_spread_pct(error),
            "folds": {
                "mean_pct": float(self.fold_error_pct.mean()),
                **_spread_pct(self.fold_error_pct),
            },
            "time_mape_pct": float(self.time_error_pct.mean()),
            "stacked_mape_pct": _mean(self.stacked_error_pct),
            "decision": {
                "cases": len(self.cases),
                "time": self.time,
                "objective": self.objective,
            }
            | {name: vars(chooser) for name, chooser in choosers.items()}
            | ({"best_measured": vars(Chooser(0.0, 0.0, len(self.cases)))} if self.cases else {}),
            "against_race_to_halt": vars(contest(self.cases)),
            "against_highest_clocks": vars(contest(self.cases, "highest_clocks")),
            "against_best_single": vars(contest(self.cases, "best_single")),
        } | (
            {"against_perf_per_watt": vars(contest(self.cases, "perf_per_watt"))}
            if "perf_per_watt" in self.choosers
            else {}
        )


def _clocks(settings: Sequence[Setting]) -> list[dict[str, float | None]]:
    return [{"core_mhz": at.core_mhz, "mem_mhz": at.mem_mhz} for at in settings]


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _spread_pct(error_pct: np.ndarray) -> dict[str, float]:
    return {
        "std_pct": float(error_pct.std(ddof=1)) if error_pct.size > 1 else 0.0,
        "min_pct": float(error_pct.min()),
        "max_pct": float(error_pct.max()),
    }


class _FoldResults:
    """What the folds predict, gathered fold by fold."""

    def __init__(self, data: Observations, objective: Objective, form: Form) -> None:
        self.data, self.objective, self.form = data, objective, form
        self.predicted_j = np.full(len(data), np.nan)
        self.given_s = np.full(len(data), np.nan)
        self.with_predicted_times = np.full((2, len(data)), np.nan)
        self.process_j = np.full(len(data), np.nan)
        self.number = kernel_numbers(data)
        self.fold = np.full(len(data), -1)
        self.rankings: list[np.ndarray] = []
        self.forms: Counter[tuple[str, str]] = Counter()

    def add(
        self, fitted: Fit, training: Observations, held_out: Observations, test: np.ndarray
    ) -> None:
        """Predict the rows ``test`` (bool) by a fold's fit; ``held_out``: those rows, with the
        times that the model is given."""
        self.forms[fitted.model, fitted.voltage] += 1
        known = _predictable(training, held_out)
        rows = np.flatnonzero(test)
        self.given_s[rows] = held_out.time_s
        self.predicted_j[rows[known]] = fitted.energy_j(held_out.take(known))
        self.fold[rows] = len(self.rankings)
        number = self.number[~test]
        self.rankings.append(rank_single_settings(training, number, self.objective))

    def add_predicted_times(
        self, fitted: Fit, training: Observations, held_out: Observations, test: np.ndarray
    ) -> None:
        """Predict the same rows a second time, with times of a time model of the fold. Of a kernel
        that the fold lacks none can be predicted."""
        if not set(held_out.kernel.tolist()) <= set(training.kernel.tolist()):
            return
        there = with_predicted_time(training, held_out)
        known = np.isfinite(there.time_s) & _predictable(training, there)
        rows = np.flatnonzero(test)[known]
        there = there.take(known)
        self.with_predicted_times[:, rows] = fitted.energy_j(there), there.time_s

    def add_process(self, training: Observations, held_out: Observations, test: np.ndarray) -> None:
        """Predict the same rows without physics."""
        self.process_j[test] = process_energies(training, held_out)

    def judged(self, scheme: str, time: str, labelled: Observations) -> CrossValidation:
        """The errors over all folds, and the losses of the kernels as ``labelled`` names them."""
        data = self.data
        known = np.flatnonzero(np.isfinite(self.predicted_j))
        if not len(known):
            raise CantFit(
                "no fold could be predicted; measure more settings, or kernels with counts"
            )
        (model, voltage), _ = self.forms.most_common(1)[0]
        error_pct = np.abs(self.predicted_j[known] / data.energy_j[known] - 1.0) * 100.0
        in_fold = np.bincount(self.fold[known], minlength=1)
        rankings = FoldRankings(self.fold, np.array(self.rankings))
        noise = time_noise(data)
        if labelled is not data:  # its kernels have other names
            noise = {
                new: noise[old]
                for new, old in zip(labelled.kernel.tolist(), data.kernel.tolist(), strict=True)
            }
        also_j, also_s = self.with_predicted_times
        also = None
        if np.isfinite(also_j[known]).all():
            cases = case_losses(labelled, also_j, also_s, objective=self.objective, noise=noise)
            also = losses_by_chooser(cases).get("model")
        stacked_j = stacked_energies(
            data, self.predicted_j, self.process_j, self.given_s, self.fold, self.objective
        )
        of_stacked = np.flatnonzero(np.isfinite(stacked_j))
        stacked_error_pct = np.abs(stacked_j[of_stacked] / data.energy_j[of_stacked] - 1.0) * 100.0
        sums = np.bincount(self.fold[known], error_pct, minlength=1)
        return CrossValidation(
            site=data.site,
            simulated=data.simulated,
            scheme=scheme,
            model=model,
            voltage=voltage,
            form=self.form,
            chosen=[
                {"model": model, "voltage": voltage, "folds": folds}
                for (model, voltage), folds in self.forms.most_common()
            ],
            time=time,
            objective=self.objective.name,
            n=len(known),
            n_folds=len(self.rankings),
            predicted_j=self.predicted_j,
            error_pct=error_pct,
            fold_error_pct=sums[in_fold > 0] / in_fold[in_fold > 0],
            time_error_pct=np.abs(self.given_s[known] / data.time_s[known] - 1.0) * 100.0,
            cases=case_losses(
                labelled,
                self.predicted_j,
                self.given_s,
                objective=self.objective,
                rankings=rankings,
                noise=noise,
            ),
            with_predicted_times=also,
            stacked_error_pct=stacked_error_pct,
            stacked_cases=case_losses(
                labelled, stacked_j, self.given_s, objective=self.objective, noise=noise
            ),
        )


def cross_validate(
    data: Observations,
    scheme: str,
    model: str = AUTO,
    *,
    voltage: str = AUTO,
    robust: bool = False,
    time: str = "measured",
    train: Sequence[Setting] | None = None,
    objective: str = "energy",
) -> CrossValidation:
    """Fit without each fold in turn, and predict the fold.

    What ``model`` and ``voltage`` leave open is chosen anew in each fold, from its own rows
    alone; so are voltages that are estimated.

    ``scheme``: one of :data:`analysis.choice.folds.SCHEMES`. ``train``: for ``holdout``, the
    settings to fit on (the rest is predicted); without it a random half. ``time``: ``measured``
    gives the model the measured time of what it predicts, ``predicted`` the time of a time model
    fitted on the same rows, ``profile`` a time from the kernel's counts and its time at the
    fastest setting.
    ``objective``: what the picks minimise and are judged by
    (:func:`analysis.choice.objectives.objective`).

    Raises:
        CantFit: an unknown scheme, time or objective, or a scheme that these measurements do not
            allow.
    """
    if time not in TIMES:
        raise CantFit(unknown_name("time", time, TIMES))
    results = _FoldResults(data, objective_of(objective), Form(model, voltage, robust))
    for test in folds(data, scheme, train):
        training, held_out = data.take(~test), data.take(test)
        if scheme == "leave-one-kernel-out" and not data.has_counts.all():
            raise CantFit("leave-one-kernel-out needs operation counts; these kernels have none")
        fitted = fit(training, model, voltage, robust=robust, intervals=False)
        if time == "predicted":
            held_out = with_predicted_time(training, held_out)
        elif time == "profile":
            held_out = with_profile_time(data, training, held_out)
        else:
            results.add_predicted_times(fitted, training, held_out, test)
        results.add(fitted, training, held_out, test)
        results.add_process(training, held_out, test)
    judged = results.judged(scheme, time, data)
    if scheme != "holdout":
        return judged
    fitted_at, predicted_at = (
        [data.settings[s] for s in np.unique(data.setting[rows])] for rows in (~test, test)
    )
    return replace(judged, train=fitted_at, test=predicted_at)


def leave_one_site_out(
    sites: Sequence[Observations],
    model: str = AUTO,
    voltage: str = AUTO,
    *,
    robust: bool = False,
    objective: str = "energy",
) -> CrossValidation:
    """Fit on all sites but one in turn, and predict that one: do they share a model?

    A kernel without counts is predicted where another site measured it with the same parameters.

    Raises:
        CantFit: fewer than two sites, or sites that know voltages in different ways.
    """
    if len(sites) < 2:
        raise CantFit("leave-one-site-out needs two sites or more")
    if len({data.voltage for data in sites}) > 1:
        known = ", ".join(f"{data.site}: {data.voltage}" for data in sites)
        raise CantFit(
            f"the voltages of these sites have different origins ({known}), so one model cannot "
            f"be fitted to them; use sites of one origin"
        )
    data, place = pooled(sites)
    results = _FoldResults(data, objective_of(objective), Form(model, voltage, robust))
    for i in range(len(sites)):
        training, held_out = data.take(place != i), data.take(place == i)
        fitted = fit(training, model, voltage, robust=robust, intervals=False)
        results.add(fitted, training, held_out, place == i)
    # One kernel at two sites is two cases.
    by_site = np.array([f"{sites[i].site}: {k}" for i, k in zip(place, data.kernel, strict=True)])
    instances = {
        label: replace(data.instance(kernel), label=label)
        for label, kernel in zip(by_site.tolist(), data.kernel.tolist(), strict=True)
    }
    labelled = replace(data, kernel=by_site.astype(object), instances=instances)
    return results.judged("leave-one-site-out", TIMES[0], labelled)


def fitted_elsewhere(
    training: Observations,
    data: Observations,
    model: str = AUTO,
    voltage: str = AUTO,
    *,
    robust: bool = False,
    objective: str = "energy",
) -> CrossValidation:
    """Fit on other measurements of the site, and predict these: an application by the fit of
    microbenchmarks (Choi & Vuduc 2016, section IV-B).

    ``training``: measurements of another store. Rows of ``data`` at settings whose voltage the
    fit does not know, and of kernels that have no counts and that ``training`` lacks, are not
    predicted. The times are the measured ones.

    Raises:
        CantFit: nothing can be predicted, or the voltages of the two have different origins.
    """
    if training.voltage != data.voltage:
        raise CantFit(
            f"the voltages have different origins ({training.voltage} in the store that is fitted "
            f"on, {data.voltage} in this one); use stores of one origin"
        )
    both, place = pooled([training, data])
    both = replace(both, site=data.site)
    results = _FoldResults(both, objective_of(objective), Form(model, voltage, robust))
    own = both.take(place == 0)
    fitted = fit(own, model, voltage, robust=robust, intervals=False)
    results.add(fitted, own, both.take(place == 1), place == 1)
    judged = results.judged("fitted-on", TIMES[0], both)
    return replace(judged, predicted_j=judged.predicted_j[place == 1])


def form_text(judged: CrossValidation) -> str:
    """Whether the form of the model was given, or chosen by each fold (nested), for people."""
    if not judged.form.is_chosen:
        return f"The form of the model was given: {judged.model}, voltage {judged.voltage}."
    counted = "; ".join(
        f"{one['model']}, voltage {one['voltage']}: {one['folds']}" for one in judged.chosen
    )
    return (
        f"The form of the model is chosen anew in each fold, from the rows that it is fitted on "
        f"(folds by form: {counted})."
    )


def halves_text(judged: CrossValidation) -> str:
    """Which settings a holdout fitted on, and how many it predicted, for people."""
    few = f": {', '.join(map(setting_text, judged.train))}" * (len(judged.train) <= FEW_SETTINGS)
    return (
        f"Fitted on {len(judged.train)} of {len(judged.train) + len(judged.test)} settings{few}. "
        f"The other {len(judged.test)} were predicted, and settings are chosen among these."
    )


def _predictable(training: Observations, held_out: Observations) -> np.ndarray:
    """bool (rows,): kernels with counts, and those without that the training rows have, too."""
    known = set(training.kernel.tolist())
    return held_out.has_counts | np.array([k in known for k in held_out.kernel.tolist()], bool)
