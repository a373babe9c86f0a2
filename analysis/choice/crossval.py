"""Cross-validation: the model's error on energy out of fold, and what its picks lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.choice.losses import (
    SEED,
    CaseLoss,
    Chooser,
    FoldRankings,
    Predicted,
    case_losses,
    contest,
    losses_by_chooser,
    rank_single_settings,
)
from analysis.choice.objectives import Objective
from analysis.choice.objectives import objective as objective_of
from analysis.energy.fit import PreparedRows, fit
from analysis.energy.models import AUTO, FormRequest
from analysis.measurements.observations import (
    FitError,
    Observations,
    distinct_kernels,
    kernel_names,
    measured_volts,
    pooled,
    rows_by_kernel,
    setting_text,
)
from analysis.predict.site import SitePosterior, site_posterior
from analysis.rooflines.class_roofline import fit_class_roofline
from analysis.rooflines.roofline import fastest_setting
from analysis.ties import time_noise
from dvfs.errors import unknown_name
from dvfs.setting import Setting

SCHEMES = (
    "leave-one-setting-out",
    "leave-one-core-clock-out",
    "leave-one-memory-clock-out",
    "holdout",
    "kfold:K",
    "leave-one-kernel-out",
    "leave-one-node-out",
    "leave-one-site-out",
)
OTHER_SCHEMES = ("few:M", "leave-one-variant-out", "variants-kfold:K")
"""Schemes of :mod:`analysis.choice.few_crossval` and :mod:`analysis.choice.variant_crossval`."""
FEW_SETTINGS = 12
"""Up to so many settings of a holdout are named in text."""
TIMES = ("measured", "predicted", "profile")
HELD = ("leave-one-setting-out", "leave-one-kernel-out", "leave-one-node-out", "kfold")
"""Schemes whose folds leave out so little that the prior's sizes are estimated from all rows."""


def folds(data: Observations, scheme: str, train: Sequence[Setting] | None) -> Iterator[np.ndarray]:
    """bool masks (rows,) of the rows that each fold of a scheme predicts.

    ``train``: for ``holdout``, the settings to fit on; without it a random half.

    Raises:
        FitError: an unknown scheme, or one that these measurements do not allow.
    """
    present = np.unique(data.setting)
    if scheme == "leave-one-setting-out":
        # All limits of a pair of clocks: a limit that is not reached leaves the same setting.
        at = [data.settings[s] for s in present]
        of_clocks = len({setting.clocks for setting in at}) > 1
        groups: dict[Setting, list[int]] = {}
        for s, setting in zip(present.tolist(), at, strict=True):
            without = replace(setting, power_limit_w=None)
            groups.setdefault(without if of_clocks else setting, []).append(s)
        if len(groups) < 2:
            raise FitError("leave-one-setting-out needs measurements at two settings or more")
        yield from (np.isin(data.setting, group) for group in groups.values())
    elif scheme in ("leave-one-core-clock-out", "leave-one-memory-clock-out"):
        domain = scheme.split("-")[2]
        mhz = data.mhz[data.setting, ("core", "memory").index(domain)]
        clocks = np.unique(mhz[np.isfinite(mhz)])
        if len(clocks) < 2:
            raise FitError(f"{scheme} needs measurements at two {domain} clocks or more")
        yield from (mhz == clock for clock in clocks)
    elif scheme == "holdout":
        yield _holdout(data, present, train)
    elif scheme == "leave-one-kernel-out":
        yield from (data.kernel == number for number in np.unique(data.kernel))
    elif scheme == "leave-one-node-out":
        nodes = np.array([] if data.node is None else sorted(set(data.node.tolist()) - {""}))
        if len(nodes) < 2:
            raise FitError("leave-one-node-out needs measurements of two named nodes or more")
        yield from (data.node == node for node in nodes)
    elif scheme.startswith("kfold:"):
        parts = _parts(data, scheme)
        fold = np.random.default_rng(SEED).permutation(len(data)) % parts
        yield from (fold == k for k in range(parts))
    elif scheme == "leave-one-site-out":
        raise FitError("leave-one-site-out needs two sites or more")
    else:
        near = "leave-one-setting-out" if scheme == "leave-one-out" else scheme
        text = unknown_name("scheme", near, (*SCHEMES, *OTHER_SCHEMES))
        raise FitError(text.replace(repr(near), repr(scheme), 1))


def _parts(data: Observations, scheme: str) -> int:
    """The number K of ``kfold:K``."""
    text = scheme.removeprefix("kfold:")
    parts = int(text) if text.isdigit() else 0
    if len(data) < 2:
        raise FitError(f"{scheme} needs two measurements or more; there is one")
    if not 2 <= parts <= len(data):
        raise FitError(
            f"found {scheme!r}; kfold:K divides the {len(data)} measurements of {data.site} into "
            f"K folds: give a whole number K from 2 to {len(data)}"
        )
    return parts


def _holdout(
    data: Observations, present: np.ndarray, train: Sequence[Setting] | None
) -> np.ndarray:
    if train is None:
        # At random: every second one in order would be one memory clock of two.
        half = -(-len(present) // 2)
        chosen = np.random.default_rng(SEED).permutation(present)[:half]
    else:
        stray = [setting for setting in train if setting not in data.settings]
        if stray:
            raise FitError(
                f"holdout trains on {setting_text(stray[0])}, which was not measured; "
                f"a measured setting is {data.settings[-1].option_text}"
            )
        chosen = np.array([data.settings.index(setting) for setting in train])
    test = ~np.isin(data.setting, chosen)
    if not test.any():
        raise FitError("holdout leaves no setting to predict; train on fewer")
    return test


@dataclass(frozen=True, kw_only=True)
class CrossValidation:
    """The physics fit and the picks of the posterior, judged out of fold.

    ``predicted_j``: float64 (rows,), each row predicted by the fit without it; NaN
    where no fold predicted it. ``error_pct``, ``time_error_pct``: float64, of the predicted rows
    alone; the latter of the times that the model was given, 0 where they are the measured ones.
    ``fold_error_pct``: float64 (folds,), the mean of ``error_pct`` in each fold that predicted a
    row.
    ``form``: what each fold's fit was asked for. ``chosen``: the forms that the folds have, and in
    how many folds; ``model`` and ``voltage`` are the first. ``train``, ``test``: of a holdout, the
    settings that it fitted on and those that it predicted; empty otherwise. ``objective``: what
    the picks of ``cases`` minimise. ``picks_error_pct``: as ``error_pct``, of the posterior's
    energies. ``with_predicted_times``: where the measured times were given, what picks lose without
    them; None where these cannot be predicted for every case.
    """

    site: str
    simulated: bool
    scheme: str
    model: str
    voltage: str
    form: FormRequest
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
    picks_error_pct: np.ndarray
    with_predicted_times: Chooser | None = None
    train: Sequence[Setting] = ()
    test: Sequence[Setting] = ()

    @property
    def choosers(self) -> dict[str, Chooser]:
        """What picks lose, beside race to halt, the best single setting and chance."""
        return losses_by_chooser(self.cases)

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --json``."""
        error = self.error_pct
        choosers = self.choosers
        if self.with_predicted_times is not None:
            choosers["picks_predicted_time"] = self.with_predicted_times
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
            "picks_mape_pct": float(self.picks_error_pct.mean()),
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


def _clocks(settings: Sequence[Setting]) -> list[dict[str, float | str | None]]:
    return [at.as_dict() for at in settings]


def _spread_pct(error_pct: np.ndarray) -> dict[str, float]:
    return {
        "std_pct": float(error_pct.std(ddof=1)) if error_pct.size > 1 else 0.0,
        "min_pct": float(error_pct.min()),
        "max_pct": float(error_pct.max()),
    }


class _FoldResults:
    """What the folds predict, gathered fold by fold."""

    def __init__(
        self,
        data: Observations,
        objective: Objective,
        form: FormRequest,
        found: SitePosterior | None = None,
    ) -> None:
        """``found``: the posterior of all rows, whose sizes are held; None: each fold has one."""
        self.data, self.objective, self.form = data, objective, form
        self.held = None if found is None else (found, found.cells(data))
        self.prepared = PreparedRows(data)
        self.physics_j, self.picks_j, self.given_s = np.full((3, len(data)), np.nan)
        self.untimed = np.full((2, len(data)), np.nan)
        self.fold = np.full(len(data), -1)
        self.rankings: list[np.ndarray] = []
        self.rough_time = 0.0
        self.forms: Counter[tuple[str, str]] = Counter()

    def add(self, test: np.ndarray, time: str) -> None:
        """Fit without the rows ``test`` (bool), and predict them by fit and posterior."""
        data = self.data
        training, held_out = data.take(~test), data.take(test)
        form = self.form
        fitted = fit(
            training,
            form.model,
            form.voltage,
            robust=form.robust,
            intervals=False,
            part_of=self.prepared,
        )
        self.forms[fitted.model, fitted.voltage] += 1
        if self.held is None:
            found = site_posterior(training, measured_volts(data), kernels=kernel_names(data))
            cells = found.cells(data)
        else:
            found, cells = self.held
        self.rough_time = found.rough_time
        known = cells.take(~test)
        also = cells.take(test) if time == "measured" else None
        predicted = found.from_cells(known, also).of_rows(held_out)
        measured = np.isin(held_out.kernel, training.kernel)
        if time == "measured":
            untimed = found.from_cells(known).of_rows(held_out)
            self.untimed[:, test] = np.where(measured, [untimed.energy_j, untimed.time_s], np.nan)
            predicted = Predicted(
                predicted.energy_j / predicted.time_s * held_out.time_s, held_out.time_s
            )
        elif time == "profile":
            predicted = replace(predicted, time_s=_profile_times(data, training, held_out))
            measured = np.zeros(len(held_out), bool)
        rows = np.flatnonzero(test)
        can = np.isfinite(predicted.time_s) & _predictable(training, held_out)
        given = replace(held_out, time_s=predicted.time_s).take(can)
        self.given_s[rows] = predicted.time_s
        self.physics_j[rows[can]] = fitted.energy_j(given)
        # Nothing but counts is known of a kernel that was not measured.
        physics_j = self.physics_j[rows]
        self.picks_j[rows] = np.where(measured, predicted.energy_j, physics_j)
        self.picks_j[rows[~can]] = np.nan
        self.fold[rows] = len(self.rankings)
        self.rankings.append(rank_single_settings(training, self.objective))

    def judged(
        self, scheme: str, time: str, labelled: Observations, repeats: Observations | None = None
    ) -> CrossValidation:
        """The errors over all folds, and the losses of the kernels as ``labelled`` names them.

        ``repeats``: what shows the noise of times; by default ``labelled``.
        """
        data = self.data
        known = np.flatnonzero(np.isfinite(self.physics_j))
        if not len(known):
            raise FitError(
                "no fold could be predicted; measure more settings, or kernels with counts"
            )
        (model, voltage), _ = self.forms.most_common(1)[0]
        error_pct, picks_error_pct = (
            np.abs(of[known] / data.energy_j[known] - 1.0) * 100.0
            for of in (self.physics_j, self.picks_j)
        )
        in_fold = np.bincount(self.fold[known], minlength=1)
        noise = time_noise(labelled if repeats is None else repeats, self.rough_time)
        untimed = None
        if np.isfinite(self.untimed[:, known]).all():
            cases = case_losses(
                labelled, Predicted(*self.untimed), objective=self.objective, noise=noise
            )
            untimed = losses_by_chooser(cases).get("picks")
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
            predicted_j=self.physics_j,
            error_pct=error_pct,
            fold_error_pct=sums[in_fold > 0] / in_fold[in_fold > 0],
            time_error_pct=np.abs(self.given_s[known] / data.time_s[known] - 1.0) * 100.0,
            cases=case_losses(
                labelled,
                Predicted(self.picks_j, self.given_s),
                Predicted(self.physics_j, self.given_s),
                objective=self.objective,
                rankings=FoldRankings(self.fold, np.array(self.rankings)),
                noise=noise,
            ),
            with_predicted_times=untimed,
            picks_error_pct=picks_error_pct,
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
    found: SitePosterior | None = None,
) -> CrossValidation:
    """Fit without each fold in turn, and predict the fold; the same by the posterior.

    What ``model`` and ``voltage`` leave open is chosen anew in each fold, from its own rows
    alone; so are voltages that are estimated.

    ``scheme``: one of :data:`SCHEMES`. ``train``: for ``holdout``, the
    settings to fit on (the rest is predicted); without it a random half. ``time``: ``measured``
    gives both the measured time of what they predict, ``predicted`` the posterior's time,
    ``profile`` that given the kernel's counts and its time at the fastest setting alone.
    ``objective``: what the picks minimise and are judged by
    (:func:`analysis.choice.objectives.objective`). ``found``: the posterior of all measurements,
    where it has been made already.

    Raises:
        FitError: an unknown scheme, time or objective, or a scheme that these measurements do not
            allow.
    """
    if time not in TIMES:
        raise FitError(unknown_name("time", time, TIMES))
    asked = objective_of(objective), FormRequest(model, voltage, robust)
    if scheme == "leave-one-kernel-out" and not data.has_counts.all():
        raise FitError("leave-one-kernel-out needs operation counts; these kernels have none")
    masks = list(folds(data, scheme, train))
    if not scheme.startswith(HELD):
        found = None
    elif found is None:
        found = site_posterior(data, measured_volts(data))
    results = _FoldResults(data, *asked, found)
    for test in masks:
        results.add(test, time)
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
        FitError: fewer than two sites, or sites that know voltages in different ways.
    """
    if len(sites) < 2:
        raise FitError("leave-one-site-out needs two sites or more")
    if len({data.voltage for data in sites}) > 1:
        known = ", ".join(f"{data.site}: {data.voltage}" for data in sites)
        raise FitError(
            f"the voltages of these sites have different origins ({known}), so one model cannot "
            f"be fitted to them; use sites of one origin"
        )
    data, place = pooled(sites)
    results = _FoldResults(data, objective_of(objective), FormRequest(model, voltage, robust))
    for i in range(len(sites)):
        results.add(place == i, TIMES[0])
    # One kernel at two sites is two cases.
    labels = data.labels.tolist()
    by_site = [f"{sites[i].site}: {label}" for i, label in zip(place, labels, strict=True)]
    instances = {
        label: replace(data.instance(kernel), label=label)
        for label, kernel in zip(by_site, labels, strict=True)
    }
    kernels, kernel = distinct_kernels(by_site)
    labelled = replace(data, kernel=kernel, kernels=kernels, instances=instances)
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
        FitError: nothing can be predicted, or the voltages of the two have different origins.
    """
    if training.voltage != data.voltage:
        raise FitError(
            f"the voltages have different origins ({training.voltage} in the store that is fitted "
            f"on, {data.voltage} in this one); use stores of one origin"
        )
    both, place = pooled([training, data])
    both = replace(both, site=data.site)
    results = _FoldResults(both, objective_of(objective), FormRequest(model, voltage, robust))
    results.add(place == 1, TIMES[0])
    # What a kernel's times differ by between the stores is no noise.
    judged = results.judged("fitted-on", TIMES[0], both, both.take(place == 1))
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


def _profile_times(
    data: Observations, training: Observations, held_out: Observations
) -> np.ndarray:
    """The times of held-out rows, (rows,), by the class roofline of the training rows, from each
    kernel's counts and its time at the fastest setting: that alone is taken of the kernel."""
    ceilings, base = fit_class_roofline(training), fastest_setting(training)
    time_s = np.full(len(held_out), np.nan)
    for kernel, rows in rows_by_kernel(held_out):
        profile = data.take(data.of_kernel(kernel) & (data.setting == base))
        if not len(profile):
            continue
        time_s[rows] = ceilings.time_s(
            {name: float(values[0]) for name, values in profile.counts.items()},
            float(profile.time_s.mean()),
            data.settings[base],
            held_out.core_mhz[rows],
            held_out.mem_mhz[rows],
        )
    return time_s


def _predictable(training: Observations, held_out: Observations) -> np.ndarray:
    """bool (rows,): kernels with counts, and those without that the training rows have, too."""
    return np.asarray(held_out.has_counts | np.isin(held_out.kernel, training.kernel))
