"""What picks lose with few measurements: all kernels at few settings, or new ones at fewer still.

A draw takes M settings at random, where all kernels count as measured; the rest is not looked at.
With ``new``, a tenth of the kernels at a time is new in addition: measured at so many of these
settings alone. A holdout is one draw, whose settings are given. The picks are made as by ``campaign
predict``, among all settings of the site, and are judged by what was measured there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.choice.losses import (
    SEED,
    Chooser,
    Contest,
    gain_contest,
    highest_clocks,
    rank_single_settings,
)
from analysis.choice.objectives import Objective
from analysis.choice.objectives import objective as objective_of
from analysis.choice.pick import picks
from analysis.measurements.observations import (
    FitError,
    Observations,
    cell_means,
    kernel_names,
    kernel_numbers,
    measured_volts,
)
from analysis.predict.site import site_time_noise
from analysis.ties import fastest
from dvfs.setting import Setting

PARTS = 10
"""New kernels are tried a tenth of all at a time."""
DRAWS = 3
FEW_CHOOSERS = {
    "picks": "picks",
    "best_measured": "best measured setting",
    "highest_clocks": "highest clocks",
    "best_single": "best single setting",
    "race_to_halt": "race to halt",
    "random": "random setting",
}
"""Who chooses the setting: the name in JSON, and the name for people."""


@dataclass(frozen=True, kw_only=True)
class FewCase:
    """What each chooser of :data:`FEW_CHOOSERS` loses a kernel in a draw, in % of the score.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``random_max_lost_pct``, ``random_exact``: the most that a random setting loses, and how likely
    it is the best. ``expected_loss_pct``, ``best_probability``: as the pick states them.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    draw: int
    lost_pct: Mapping[str, float]
    random_max_lost_pct: float
    random_exact: float
    expected_loss_pct: float
    best_probability: float


@dataclass(frozen=True, kw_only=True)
class FewCrossValidation:
    """Picks judged draw by draw. ``settings``: at how many all kernels count as measured;
    ``new``: at how many a new one does, None without new ones."""

    site: str
    simulated: bool
    settings: int
    new: int | None
    draws: int
    objective: str
    cases: list[FewCase]

    def against(self, other: str) -> Contest | None:
        """The picks against ``highest_clocks`` or ``best_single``, each kernel's losses averaged
        over the draws; None where it has no choice."""
        gains: dict[str, list[float]] = {}
        for case in self.cases:
            more_pct = case.lost_pct[other] - case.lost_pct["picks"]
            gains.setdefault(case.label, []).append(more_pct)
        gain = np.array([np.mean(of) for of in gains.values()])
        return gain_contest(gain, other) if np.isfinite(gain).all() else None

    @property
    def choosers(self) -> dict[str, Chooser]:
        """What each chooser loses over all cases, and how often it was the best."""
        return choosers(self.cases)

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --scheme few:M --json``."""
        return {
            "site": self.site,
            "simulated": self.simulated,
            "scheme": f"few:{self.settings}",
            "new": self.new,
            "draws": self.draws,
            "expected_loss_pct": float(np.mean([case.expected_loss_pct for case in self.cases])),
            "decision": {"cases": len(self.cases), "objective": self.objective}
            | {name: vars(chooser) for name, chooser in self.choosers.items()},
        } | {
            f"against_{other}": vars(made)
            for other in ("highest_clocks", "best_single")
            if (made := self.against(other))
        }


def choosers(cases: Sequence[FewCase]) -> dict[str, Chooser]:
    """What each chooser of :data:`FEW_CHOOSERS` loses over the cases, and how often it was the
    best; the highest clocks are left out where no setting has both."""
    lost = {name: np.array([case.lost_pct[name] for case in cases]) for name in FEW_CHOOSERS}
    made = {
        name: Chooser(float(of.mean()), float(of.max()), float(np.sum(of == 0.0)))
        for name, of in lost.items()
        if np.isfinite(of).all()
    }
    by_chance = {
        "max_lost_pct": max(case.random_max_lost_pct for case in cases),
        "exact": sum(case.random_exact for case in cases),
    }
    return made | {"random": replace(made["random"], **by_chance)}


def few_cross_validate(
    data: Observations,
    settings: int | None,
    new: int | None = None,
    *,
    draws: int = DRAWS,
    objective: str = "energy",
) -> FewCrossValidation:
    """Judge the picks where all kernels were measured at ``settings`` of the settings (all where
    None), and, with ``new``, some at so few of these.

    Only kernels that were measured at every setting are judged.

    Raises:
        FitError: more settings than there are, or no kernel that was measured at all of them.
    """
    goal = objective_of(objective)
    present = np.unique(data.setting)
    settings = len(present) if settings is None else settings
    most = len(present) if new is not None else len(present) - 1
    if most < 1:
        raise FitError(f"few:M needs measurements at two settings or more; {data.site} has one")
    if not 1 <= settings <= most:
        rest = "" if new is not None else ", as it leaves some settings to predict"
        raise FitError(
            f"found few:{settings}; {data.site} was measured at {len(present)} settings: give a "
            f"whole number M from 1 to {most}{rest}"
        )
    if new is not None and not 1 <= new <= settings:
        raise FitError(f"new kernels need 1 to {settings} settings; found {new}")
    truth = FewTruth.of(data, goal)
    if not truth.row:
        raise FitError("no kernel was measured at every setting; measure some at all of them")
    cases = []
    for fold in few_folds(data, list(truth.row), settings, new, draws):
        cases += _judged_picks(data, truth, fold, goal)
    return FewCrossValidation(
        site=data.site,
        simulated=data.simulated,
        settings=settings,
        new=new,
        draws=draws,
        objective=goal.name,
        cases=cases,
    )


def judge_holdout(
    data: Observations,
    fitted_on: np.ndarray,
    *,
    objective: str = "energy",
) -> list[FewCase]:
    """The picks among all settings, of the kernels that were measured at all of them, where only
    the rows ``fitted_on``, bool (rows,), are looked at.
    """
    goal = objective_of(objective)
    truth = FewTruth.of(data, goal)
    if not truth.row:
        return []
    trained = np.unique(data.setting[fitted_on])
    fold = FewFold(0, list(truth.row), trained, fitted_on, fitted_on)
    return _judged_picks(data, truth, fold, goal)


def _judged_picks(
    data: Observations, truth: FewTruth, fold: FewFold, goal: Objective
) -> list[FewCase]:
    """The cases of a fold."""
    others = data.take(fold.others)
    rank = rank_single_settings(others, goal)[truth.settings]
    made = picks(
        data.take(fold.seen),
        fold.judged,
        objective=goal.name,
        volts=measured_volts(data),
    )
    cases = []
    for pick in made:
        above = truth.above_pct[truth.row[pick.label]]
        lost_pct = {
            "picks": above[truth.column[pick.setting]],
            "best_measured": above[truth.least(pick.label, fold.own)],
            "highest_clocks": np.nan if truth.top is None else above[truth.top],
            "best_single": above[int(np.argmin(rank))] if np.isfinite(rank).any() else np.nan,
            "race_to_halt": above[truth.fastest[truth.row[pick.label]]],
            "random": above.mean(),
        }
        cases.append(
            FewCase(
                kernel=pick.kernel,
                params=pick.params,
                label=pick.label,
                draw=fold.draw,
                lost_pct={name: float(lost) for name, lost in lost_pct.items()},
                random_max_lost_pct=float(above.max()),
                random_exact=float(np.mean(above == 0.0)),
                expected_loss_pct=pick.expected_loss_pct,
                best_probability=pick.best_probability,
            )
        )
    return cases


@dataclass(frozen=True)
class FewFold:
    """``judged``: labels of the kernels whose picks are judged; ``own``: numbers of the settings
    that these count as measured at; bool (rows,): ``seen``, what picks may use, and ``others``,
    those of it by which the best single setting is chosen."""

    draw: int
    judged: list[str]
    own: np.ndarray
    seen: np.ndarray
    others: np.ndarray


def few_folds(
    data: Observations, kernels: list[str], settings: int, new: int | None, draws: int
) -> Iterator[FewFold]:
    """The folds of :func:`few_cross_validate`, of which ``kernels`` are to be judged."""
    for draw in range(draws):
        rng = np.random.default_rng((SEED, draw))
        chosen = rng.choice(np.unique(data.setting), settings, replace=False)
        inside = np.isin(data.setting, chosen)
        if new is None:
            yield FewFold(draw, kernels, chosen, inside, inside)
            continue
        order = rng.permutation(len(kernels))
        for part in np.array_split(order, min(PARTS, len(kernels))):
            judged = [kernels[i] for i in part]
            few = rng.choice(chosen, new, replace=False)
            others = inside & (kernel_numbers(data, judged) < 0)
            yield FewFold(draw, judged, few, others | (inside & np.isin(data.setting, few)), others)


@dataclass(frozen=True)
class FewTruth:
    """What picks are judged by. ``row``: label -> row, of kernels that were measured everywhere;
    ``above_pct``: float64 (K, S), how far each score is above the kernel's least; ``fastest``:
    K columns of settings; ``top``: the column of the highest clocks, None where no setting has
    both; ``settings``: the numbers of the S settings; ``column``: the place of each."""

    row: dict[str, int]
    above_pct: np.ndarray
    fastest: Sequence[int]
    top: int | None
    settings: np.ndarray
    column: Mapping[Setting, int]

    @classmethod
    def of(cls, data: Observations, goal: Objective) -> FewTruth:
        settings = np.unique(data.setting)
        labels = kernel_names(data)
        energy_j, time_s = (
            cell_means(data, labels, values)[:, settings] for values in (data.energy_j, data.time_s)
        )
        whole = np.flatnonzero(np.isfinite(time_s).all(axis=1))
        energy_j, time_s = energy_j[whole], time_s[whole]
        clocks = [data.settings[s] for s in settings.tolist()]
        noise = site_time_noise(data, measured_volts(data))
        raced = []
        for k, times in zip(whole.tolist(), time_s, strict=True):
            of = data.setting[data.of_kernel(labels[k])]
            repeats = np.bincount(of, minlength=len(data.settings))[settings]
            raced.append(fastest(clocks, times, noise[labels[k]] * times / np.sqrt(repeats)))
        score = goal.score(energy_j.T, time_s.T).T
        least = score.min(axis=1, keepdims=True)
        return cls(
            row={labels[k]: i for i, k in enumerate(whole.tolist())},
            above_pct=(score / least - 1.0) * 100.0,
            fastest=raced,
            top=highest_clocks(clocks),
            settings=settings,
            column={setting: i for i, setting in enumerate(clocks)},
        )

    def least(self, label: str, among: np.ndarray) -> int:
        """The column of the kernel's best setting among some."""
        columns = np.flatnonzero(np.isin(self.settings, among))
        return int(columns[np.argmin(self.above_pct[self.row[label], columns])])
