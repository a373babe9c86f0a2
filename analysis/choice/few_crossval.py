"""What picks lose with few measurements: all kernels at few settings, new kernels at even fewer.

A draw takes M settings at random. All kernels count as measured there and nowhere else. With
``new``, a tenth of the kernels at a time is new: it counts as measured at ``new`` of these settings
alone. A holdout is one draw with given settings. The picks are made as by ``campaign predict``,
among all settings of the site, and judged by the measurements there.
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
"""So many parts of the kernels are new, one part at a time."""
DRAWS = 3
FEW_CHOOSERS = {
    "picks": "picks",
    "best_measured": "best measured setting",
    "highest_clocks": "highest clocks",
    "best_single": "best single setting",
    "race_to_halt": "race to halt",
    "random": "random setting",
}
"""The rules that choose a setting: name in JSON -> name for people."""


@dataclass(frozen=True, kw_only=True)
class FewCase:
    """A kernel's losses in a draw by each of :data:`FEW_CHOOSERS`, in % of the score.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``random_max_lost_pct``, ``random_exact``: the largest loss of a random setting, and the
    probability that it is the best. ``expected_loss_pct``, ``best_probability``: of the pick.
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
    """Picks judged draw by draw. ``settings``: the number at which all kernels count as measured;
    ``new``: the number at which new kernels do, None without new kernels."""

    site: str
    simulated: bool
    settings: int
    new: int | None
    draws: int
    objective: str
    cases: list[FewCase]

    def against(self, rival: str) -> Contest | None:
        """Compare the picks with ``highest_clocks`` or ``best_single``, each kernel's losses
        averaged over the draws; None where the rival has no setting in some case."""
        gains: dict[str, list[float]] = {}
        for case in self.cases:
            more_pct = case.lost_pct[rival] - case.lost_pct["picks"]
            gains.setdefault(case.label, []).append(more_pct)
        gain = np.array([np.mean(losses) for losses in gains.values()])
        return gain_contest(gain, rival) if np.isfinite(gain).all() else None

    @property
    def choosers(self) -> dict[str, Chooser]:
        """Each chooser's losses over all cases."""
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
            f"against_{rival}": vars(result)
            for rival in ("highest_clocks", "best_single")
            if (result := self.against(rival))
        }


def choosers(cases: Sequence[FewCase]) -> dict[str, Chooser]:
    """Return the losses of each of :data:`FEW_CHOOSERS` over the cases. A chooser is left out where
    it has no setting in some case."""
    lost = {name: np.array([case.lost_pct[name] for case in cases]) for name in FEW_CHOOSERS}
    by_name = {
        name: Chooser(float(lost_pct.mean()), float(lost_pct.max()), float(np.sum(lost_pct == 0.0)))
        for name, lost_pct in lost.items()
        if np.isfinite(lost_pct).all()
    }
    by_chance = {
        "max_lost_pct": max(case.random_max_lost_pct for case in cases),
        "exact": sum(case.random_exact for case in cases),
    }
    return by_name | {"random": replace(by_name["random"], **by_chance)}


def few_cross_validate(
    data: Observations,
    settings: int | None,
    new: int | None = None,
    *,
    draws: int = DRAWS,
    objective: str = "energy",
) -> FewCrossValidation:
    """Judge the picks as if all kernels were measured at ``settings`` settings (None: all), and,
    with ``new``, new kernels at ``new`` of these.

    Only kernels that were measured at every setting are judged.

    Raises:
        FitError: more settings than were measured, or no kernel was measured at all of them.
    """
    goal = objective_of(objective)
    present = np.unique(data.setting)
    settings = len(present) if settings is None else settings
    most = len(present) if new is not None else len(present) - 1
    if most < 1:
        raise FitError(f"few:M needs measurements at two settings or more; {data.site} has one")
    if not 1 <= settings <= most:
        reason = "" if new is not None else ", as it leaves some settings to predict"
        raise FitError(
            f"found few:{settings}; {data.site} was measured at {len(present)} settings: give a "
            f"whole number M from 1 to {most}{reason}"
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
    """Judge the picks from the rows ``fitted_on`` alone, bool (rows,), for the kernels that were
    measured at every setting.
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
    """Return the cases of a fold."""
    other_kernels = data.take(fold.other_kernels)
    rank = rank_single_settings(other_kernels, goal)[truth.settings]
    judged = picks(
        data.take(fold.training),
        fold.judged,
        objective=goal.name,
        volts=measured_volts(data),
    )
    cases = []
    for pick in judged:
        above = truth.above_pct[truth.row[pick.label]]
        lost_pct = {
            "picks": above[truth.column[pick.setting]],
            "best_measured": above[truth.least(pick.label, fold.judged_settings)],
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
    """``judged``: labels of the kernels whose picks are judged; ``judged_settings``: numbers of the
    settings at which these count as measured; ``training``: bool (rows,), the rows that picks may
    use; ``other_kernels``: bool (rows,), those that choose the best single setting."""

    draw: int
    judged: list[str]
    judged_settings: np.ndarray
    training: np.ndarray
    other_kernels: np.ndarray


def few_folds(
    data: Observations, kernels: list[str], settings: int, new: int | None, draws: int
) -> Iterator[FewFold]:
    """Yield the folds of :func:`few_cross_validate`, which judge ``kernels``."""
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
            judged_settings = rng.choice(chosen, new, replace=False)
            other_kernels = inside & (kernel_numbers(data, judged) < 0)
            yield FewFold(
                draw,
                judged,
                judged_settings,
                other_kernels | (inside & np.isin(data.setting, judged_settings)),
                other_kernels,
            )


@dataclass(frozen=True)
class FewTruth:
    """The measured scores that judge picks, of the K kernels that were measured at all S settings.

    ``row``: kernel's label -> row; ``above_pct``: float64 (K, S), each score above the kernel's
    least; ``fastest``: each kernel's column of the fastest setting; ``top``: the column of the
    highest clocks, None where no setting has both; ``settings``: the numbers of the settings;
    ``column``: setting -> column."""

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
        complete = np.flatnonzero(np.isfinite(time_s).all(axis=1))
        energy_j, time_s = energy_j[complete], time_s[complete]
        clocks = [data.settings[s] for s in settings.tolist()]
        noise = site_time_noise(data, measured_volts(data))
        raced = []
        for k, times in zip(complete.tolist(), time_s, strict=True):
            kernel_settings = data.setting[data.of_kernel(labels[k])]
            repeats = np.bincount(kernel_settings, minlength=len(data.settings))[settings]
            raced.append(fastest(clocks, times, noise[labels[k]] * times / np.sqrt(repeats)))
        score = goal.score(energy_j.T, time_s.T).T
        least = score.min(axis=1, keepdims=True)
        return cls(
            row={labels[k]: i for i, k in enumerate(complete.tolist())},
            above_pct=(score / least - 1.0) * 100.0,
            fastest=raced,
            top=highest_clocks(clocks),
            settings=settings,
            column={setting: i for i, setting in enumerate(clocks)},
        )

    def least(self, label: str, among: np.ndarray) -> int:
        """Return the column of the kernel's best setting among ``among``."""
        columns = np.flatnonzero(np.isin(self.settings, among))
        return int(columns[np.argmin(self.above_pct[self.row[label], columns])])
