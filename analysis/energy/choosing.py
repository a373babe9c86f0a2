"""Choosing a form: cross-validation within the rows at hand, by the one-standard-error rule.

Every form is fitted without a group of settings in turn and predicts that group. The form with
the least mean relative error is the best; chosen is the simplest whose error is not more than one
standard error larger (Breiman, Friedman, Olshen and Stone, Classification and Regression Trees,
1984, section 3.4.3), the error being that of the difference, setting by setting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.energy.forms import Form
from analysis.energy.training import (
    FormSolution,
    PreparedRows,
    Training,
    predict,
    prepare,
    solve_form,
)
from analysis.measurements.observations import Observations

GROUPS = 8
"""Folds; with fewer settings each is a fold of its own."""
SEED = 19840101
NEGLIGIBLE_PCT = 0.01
"""A difference of errors below this is none: on noise-free data the rest is rounding."""
MIN_SETTINGS = 3
"""With fewer settings none can be held out, and nothing be compared. Then all terms are taken,
since every synchronous chip has a clock tree, and coefficients that are not needed come out as 0;
and the simplest voltage."""


@dataclass(frozen=True)
class TriedForm:
    """A form that was tried: its error out of fold, and by how much it is behind the best.

    ``behind_pct``: mean difference of the error to the best form's; ``behind_std_pct``: its
    standard error over settings.
    """

    form: Form
    error_pct: float
    behind_pct: float
    behind_std_pct: float


@dataclass(frozen=True)
class FormChoice:
    """The form chosen, the training and solution of it, and what was tried."""

    form: Form
    training: Training
    solution: FormSolution
    tried: list[TriedForm]
    why: str


def choose(
    data: Observations,
    candidates: list[Form],
    weight: np.ndarray | None = None,
    part_of: PreparedRows | None = None,
) -> FormChoice:
    """Choose among ``candidates``, the simplest first.

    ``weight``: float64 (rows,), 1 by default. ``part_of``: rows that include ``data``, whose sums
    are taken where all rows count the same. Candidates that estimate more numbers than there are
    rows are left out, unless all do.
    """
    sums = part_of if weight is None else None
    trainings = [
        (sums and sums.part(data, form)) or prepare(data, form, weight) for form in candidates
    ]
    if with_enough_rows := [t for t in trainings if t.numbers <= len(data)]:
        trainings = with_enough_rows
        candidates = [training.form for training in trainings]
    solutions = [solve_form(training) for training in trainings]
    n = len(trainings[0].equations.settings)
    if n < MIN_SETTINGS or len(candidates) == 1:
        at = next(
            i
            for i, form in reversed(list(enumerate(candidates)))
            if form.voltage == candidates[0].voltage
        )
        asked = len(candidates) == 1
        why = (
            "the model and the voltage were given"
            if asked
            else f"there are too few settings ({n}) to compare models, so all terms are used"
        )
        return FormChoice(candidates[at], trainings[at], solutions[at], [], why)
    groups = np.random.default_rng(SEED).permutation(n) % min(GROUPS, n)
    errors = [
        _errors(training, _out_of_fold(training, solution, groups))
        for training, solution in zip(trainings, solutions, strict=True)
    ]
    at, tried, why = _simplest_near_best(candidates, errors)
    return FormChoice(candidates[at], trainings[at], solutions[at], tried, why)


def _simplest_near_best(
    candidates: list[Form], errors: list[np.ndarray]
) -> tuple[int, list[TriedForm], str]:
    """The first candidate within one standard error of the best; all of them; and why."""
    means = np.array([error.mean() for error in errors])
    best = int(np.argmax(means <= means.min() + NEGLIGIBLE_PCT))
    tried = []
    for form, error in zip(candidates, errors, strict=True):
        behind = error - errors[best]
        std = float(behind.std(ddof=1) / np.sqrt(len(behind)))
        tried.append(TriedForm(form, float(error.mean()), float(behind.mean()), std))
    near = [t.behind_pct <= max(t.behind_std_pct, NEGLIGIBLE_PCT) for t in tried]
    chosen = near.index(True)
    mine, other = tried[chosen], tried[best]
    name = f"{mine.form.model} with voltage {mine.form.voltage}"
    if chosen == best:
        why = (
            f"{name} has the smallest error on settings left out of the fit, "
            f"{mine.error_pct:.2f} %, of the {len(tried)} models compared"
        )
    else:
        why = (
            f"{name} is the simplest model within one standard error of the best: its error on "
            f"settings left out is {mine.error_pct:.2f} %, that of {other.form.model} with "
            f"voltage {other.form.voltage} {other.error_pct:.2f} % (standard error of the "
            f"difference {mine.behind_std_pct:.2f})"
        )
    return chosen, tried, why


def _out_of_fold(training: Training, whole: FormSolution, groups: np.ndarray) -> np.ndarray:
    """Joules, float64 (rows,), each row by the fit without the group of its setting.

    ``groups``: int64 (S,), 0 to G - 1, the group of each setting.
    """
    without = [
        solve_form(training, np.where(groups == group, 0.0, 1.0), whole)
        for group in range(int(groups.max()) + 1)
    ]
    return predict(training, without, groups)


def _errors(training: Training, predicted_j: np.ndarray) -> np.ndarray:
    """Mean relative error in % by setting, out of fold: float64 (S,)."""
    return training.by_setting(np.abs(predicted_j / training.data.energy_j - 1.0)) * 100.0
