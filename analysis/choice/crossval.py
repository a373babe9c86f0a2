"""Cross-validation: the model's error on energy out of fold, and what its picks lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    with_equal_mem_volts,
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
"""Texts name up to so many settings of a holdout."""
TIMES = ("measured", "predicted", "profile")
HELD = ("leave-one-setting-out", "leave-one-kernel-out", "leave-one-node-out", "kfold")
"""Schemes whose folds are so small that the prior's hyperparameters come from all rows."""


def folds(data: Observations, scheme: str, train: Sequence[Setting] | None) -> Iterator[np.ndarray]:
    """Yield for each fold of a scheme the mask of the rows that it predicts, bool (rows,).

    ``train``: for ``holdout``, the settings to fit on; without it a random half.

    Raises:
        FitError: an unknown scheme, or one that these measurements do not allow.
    """
    present = np.unique(data.setting)
    if scheme == "leave-one-setting-out":
        # All limits of a pair of clocks: a limit that is not reached leaves the same setting.
        settings = [data.settings[s] for s in present]
        several_clocks = len({setting.clocks for setting in settings}) > 1
        groups: dict[Setting, list[int]] = {}
        for s, setting in zip(present.tolist(), settings, strict=True):
            unlimited = replace(setting, power_limit_w=None)
            groups.setdefault(unlimited if several_clocks else setting, []).append(s)
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
        nodes = sorted(set(data.node.tolist()) - {""})
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
        closest = "leave-one-setting-out" if scheme == "leave-one-out" else scheme
        text = unknown_name("scheme", closest, (*SCHEMES, *OTHER_SCHEMES))
        raise FitError(text.replace(repr(closest), repr(scheme), 1))


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

    ``predicted_j``: float64 (rows,), each row predicted by a fit without it; NaN where no fold
    predicted it. ``error_pct``: float64 (predicted rows,), the error of the energies;
    ``time_error_pct``: the error of the times that the model used, 0 where it used measured ones;
    ``picks_error_pct``: the error of the posterior's energies. ``fold_error_pct``: float64
    (folds,), the mean of ``error_pct`` in each fold that predicted a row.
    ``not_fitted``: class -> rows that count it and were predicted by fits without a kernel that
    does, as if its operations took no energy.
    ``form``: the options of each fold's fit. ``chosen``: the forms that the folds chose, and in how
    many folds; ``model`` and ``voltage`` name the most frequent one. ``train``, ``test``: the
    settings that a holdout fitted and predicted; empty for other schemes. ``objective``: what the
    picks of ``cases`` minimise. ``with_predicted_times``: where the model used measured times, what
    picks lose with predicted ones; None where some case has no predicted times.
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
    not_fitted: Mapping[str, int] = field(default_factory=dict)
    train: Sequence[Setting] = ()
    test: Sequence[Setting] = ()

    @property
    def choosers(self) -> dict[str, Chooser]:
        """What picks and the simple rules lose."""
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
            **({"not_fitted": dict(self.not_fitted)} if self.not_fitted else {}),
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
    return [setting.as_dict() for setting in settings]


def _spread_pct(error_pct: np.ndarray) -> dict[str, float]:
    return {
        "std_pct": float(error_pct.std(ddof=1)) if error_pct.size > 1 else 0.0,
        "min_pct": float(error_pct.min()),
        "max_pct": float(error_pct.max()),
    }


class _FoldResults:
    """The predictions of the folds, collected fold by fold."""

    def __init__(
        self,
        data: Observations,
        objective: Objective,
        form: FormRequest,
        posterior: SitePosterior | None = None,
    ) -> None:
        """``posterior``: of all rows; its hyperparameters stay fixed. None: each fold fits one."""
        # Without the nodes, which these fits do not use, a fold's rows are sooner taken.
        self.data = replace(data, node=np.broadcast_to("", len(data)))
        self.objective, self.form = objective, form
        self.held = None if posterior is None else (posterior, posterior.cells(data))
        self.prepared = PreparedRows(data)
        self.physics_j, self.picks_j, self.given_s = np.full((3, len(data)), np.nan)
        self.untimed = np.full((2, len(data)), np.nan)
        self.fold = np.full(len(data), -1)
        self.rankings: list[np.ndarray] = []
        self.rough_time = 0.0
        self.forms: Counter[tuple[str, str]] = Counter()
        self.not_fitted: Counter[str] = Counter()

    def add(self, test: np.ndarray, time: str) -> None:
        """Fit without the rows ``test`` (bool), and predict them by the fit and the posterior."""
        data = self.data
        training, held_out = data.take(~test), data.take(test)
        fitted = fit(training, **vars(self.form), intervals=False, part_of=self.prepared)
        self.forms[fitted.model, fitted.voltage] += 1
        if self.held is None:
            posterior = site_posterior(training, measured_volts(data), kernels=kernel_names(data))
            cells = posterior.cells(data)
        else:
            posterior, cells = self.held
        self.rough_time = posterior.rough_time
        held_out_cells = posterior.cells(held_out)
        training_cells = cells - held_out_cells
        timed_cells = held_out_cells if time == "measured" else None
        predicted = posterior.from_cells(training_cells, timed_cells).of_rows(held_out)
        measured = np.isin(held_out.kernel, training.kernel)
        if time == "measured":
            untimed = posterior.from_cells(training_cells).of_rows(held_out)
            self.untimed[:, test] = np.where(measured, [untimed.energy_j, untimed.time_s], np.nan)
            predicted = Predicted(
                predicted.energy_j / predicted.time_s * held_out.time_s, held_out.time_s
            )
        elif time == "profile":
            predicted = replace(predicted, time_s=_profile_times(data, training, held_out))
            measured = np.zeros(len(held_out), bool)
        rows = np.flatnonzero(test)
        predictable = np.isfinite(predicted.time_s) & _predictable(training, held_out)
        timed = replace(held_out, time_s=predicted.time_s).take(predictable)
        for name, counts in timed.counts.items():
            if (counts > 0).any() and not (training.counts[name] > 0).any():
                self.not_fitted[name] += int((counts > 0).sum())
        self.given_s[rows] = predicted.time_s
        self.physics_j[rows[predictable]] = fitted.energy_j(timed)
        # A kernel that was not measured has only its counts.
        physics_j = self.physics_j[rows]
        self.picks_j[rows] = np.where(measured, predicted.energy_j, physics_j)
        self.picks_j[rows[~predictable]] = np.nan
        self.fold[rows] = len(self.rankings)
        self.rankings.append(rank_single_settings(training, self.objective))

    def judged(
        self, scheme: str, time: str, labelled: Observations, repeats: Observations | None = None
    ) -> CrossValidation:
        """Return the errors over all folds and the losses of each kernel.

        ``labelled``: the rows with the kernel labels of the cases. ``repeats``: the rows from which
        the noise of times is estimated; by default ``labelled``.
        """
        data = self.data
        predicted = np.flatnonzero(np.isfinite(self.physics_j))
        if not len(predicted):
            raise FitError(_why_nothing_is_predicted(scheme, time))
        (model, voltage), _ = self.forms.most_common(1)[0]
        error_pct, picks_error_pct = (
            np.abs(energy_j[predicted] / data.energy_j[predicted] - 1.0) * 100.0
            for energy_j in (self.physics_j, self.picks_j)
        )
        in_fold = np.bincount(self.fold[predicted], minlength=1)
        noise = time_noise(labelled if repeats is None else repeats, self.rough_time)
        untimed = None
        if np.isfinite(self.untimed[:, predicted]).all():
            cases = case_losses(
                labelled, Predicted(*self.untimed), objective=self.objective, noise=noise
            )
            untimed = losses_by_chooser(cases).get("picks")
        sums = np.bincount(self.fold[predicted], error_pct, minlength=1)
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
            n=len(predicted),
            n_folds=len(self.rankings),
            predicted_j=self.physics_j,
            error_pct=error_pct,
            fold_error_pct=sums[in_fold > 0] / in_fold[in_fold > 0],
            time_error_pct=np.abs(self.given_s[predicted] / data.time_s[predicted] - 1.0) * 100.0,
            cases=case_losses(
                labelled,
                Predicted(self.picks_j, self.given_s),
                Predicted(self.physics_j, self.given_s),
                objective=self.objective,
                rankings=FoldRankings(self.fold, np.array(self.rankings)),
                noise=noise,
            ),
            with_predicted_times=untimed,
            not_fitted=dict(sorted(self.not_fitted.items())),
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
    posterior: SitePosterior | None = None,
) -> CrossValidation:
    """Predict each fold by a fit and a posterior without it.

    Each fold chooses what ``model`` and ``voltage`` leave open, and estimates voltages, from its
    training rows alone.

    ``scheme``: one of :data:`SCHEMES`. ``train``: for ``holdout``, the settings to fit on; the
    others are predicted; a random half by default. ``time``: the time from which fit and posterior
    predict an energy: ``measured``, ``predicted`` (by the posterior), or ``profile`` (from the
    kernel's counts and its time at the fastest setting).
    ``objective``: what the picks minimise and are judged by
    (:func:`analysis.choice.objectives.objective`). ``posterior``: that of all measurements, where
    it exists already.

    Raises:
        FitError: an unknown scheme, time or objective, or a scheme that these measurements do not
            allow.
    """
    if time not in TIMES:
        raise FitError(unknown_name("time", time, TIMES))
    goal, form = objective_of(objective), FormRequest(model, voltage, robust)
    if scheme == "leave-one-kernel-out" and not data.has_counts.all():
        raise FitError("leave-one-kernel-out needs operation counts; these kernels have none")
    masks = list(folds(data, scheme, train))
    if not scheme.startswith(HELD):
        posterior = None
    elif posterior is None:
        posterior = site_posterior(data, measured_volts(data))
    results = _FoldResults(data, goal, form, posterior)
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
    """Predict each site by a fit to all other sites, which shows whether they share a model.

    A kernel without counts is predicted where another site measured it with the same parameters.

    Raises:
        FitError: fewer than two sites, or voltages of different origins.
    """
    if len(sites) < 2:
        raise FitError("leave-one-site-out needs two sites or more")
    if len({data.voltage for data in sites}) > 1:
        origins = ", ".join(f"{data.site}: {data.voltage}" for data in sites)
        raise FitError(
            f"the voltages of these sites have different origins ({origins}), so one model cannot "
            f"be fitted to them; use sites of one origin"
        )
    data, site_index = pooled(sites)
    results = _FoldResults(data, objective_of(objective), FormRequest(model, voltage, robust))
    for i in range(len(sites)):
        results.add(site_index == i, TIMES[0])
    # One kernel at two sites is two cases.
    labels = data.labels.tolist()
    site_labels = [f"{sites[i].site}: {label}" for i, label in zip(site_index, labels, strict=True)]
    instances = {
        label: replace(data.instance(kernel), label=label)
        for label, kernel in zip(site_labels, labels, strict=True)
    }
    kernels, kernel = distinct_kernels(site_labels)
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
    """Fit other measurements of the site, and predict these: for example an application by the fit
    of microbenchmarks (Choi & Vuduc 2016, section IV-B).

    ``training``: measurements of another store. Not predicted are rows of ``data`` at settings
    whose voltage the fit lacks, and kernels without counts that ``training`` lacks. The times are
    the measured ones.

    Raises:
        FitError: nothing can be predicted, or the voltages of the two have different origins.
    """
    pooled_data, store_index = pooled(with_equal_voltages(training, data))
    pooled_data = replace(pooled_data, site=data.site)
    results = _FoldResults(
        pooled_data, objective_of(objective), FormRequest(model, voltage, robust)
    )
    results.add(store_index == 1, TIMES[0])
    # A difference of a kernel's times between the stores is not noise.
    judged = results.judged("fitted-on", TIMES[0], pooled_data, pooled_data.take(store_index == 1))
    return replace(judged, predicted_j=judged.predicted_j[store_index == 1])


def with_equal_voltages(
    training: Observations, data: Observations
) -> tuple[Observations, Observations]:
    """Return both for a fit of ``training`` that predicts ``data``: without memory voltages where
    one of them has none.

    Raises:
        FitError: their voltages have different origins.
    """
    if training.voltage != data.voltage:
        raise FitError(
            f"the voltages have different origins ({training.voltage} in the store that is fitted "
            f"on, {data.voltage} in this one); use stores of one origin"
        )
    training, data = with_equal_mem_volts([training, data])
    return training, data


def form_text(judged: CrossValidation) -> str:
    """Say whether the form of the model was given, or each fold chose it (nested)."""
    if not judged.form.is_chosen:
        return f"The form of the model was given: {judged.model}, voltage {judged.voltage}."
    counted = "; ".join(
        f"{form['model']}, voltage {form['voltage']}: {form['folds']}" for form in judged.chosen
    )
    return (
        f"The form of the model is chosen anew in each fold, from the rows that it is fitted on "
        f"(folds by form: {counted})."
    )


def halves_text(judged: CrossValidation) -> str:
    """Say which settings a holdout fitted on, and how many it predicted."""
    named = f": {', '.join(map(setting_text, judged.train))}" * (len(judged.train) <= FEW_SETTINGS)
    return (
        f"Fitted on {len(judged.train)} of {len(judged.train) + len(judged.test)} settings{named}. "
        f"The other {len(judged.test)} were predicted, and settings are chosen among these."
    )


def _profile_times(
    data: Observations, training: Observations, held_out: Observations
) -> np.ndarray:
    """Return the times of held-out rows, (rows,), by the class roofline of the training rows.

    Of each held-out kernel it uses the counts and the time at the fastest setting alone."""
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


def _why_nothing_is_predicted(scheme: str, time: str) -> str:
    """The reason and the remedy, if no fold predicted a row."""
    if time == "predicted" and scheme == "leave-one-kernel-out":
        return (
            "a kernel that was not measured has no predicted time; use --time measured, or --time "
            "profile"
        )
    if scheme == "fitted-on":
        return (
            "no energy could be predicted: a kernel needs counts in both stores, or measurements "
            "without counts in both"
        )
    return "no fold could be predicted; measure more settings, or kernels with counts"


def _predictable(training: Observations, held_out: Observations) -> np.ndarray:
    """Return bool (rows,): whether a fit of the training rows has what the row's energy takes.

    A row without counts takes its kernel's lumped coefficients, which come from training rows
    without counts. A row with counts takes the classes' coefficients; its kernel has lumped ones as
    well if training rows lack counts, which fits only if other training rows have them.
    """
    trained = np.zeros((2, len(training.kernels)), bool)
    trained[training.has_counts.astype(int), training.kernel] = True
    without, with_counts = trained[:, held_out.kernel]
    return np.asarray(np.where(held_out.has_counts, with_counts | ~without, without))
