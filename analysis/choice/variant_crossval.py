"""Cross-validation of variants: errors of their predictions, and what picks among them lose.

A variant's time is the sum of its counts at prices fitted to the other variants; its energy is by
the site's model (Choi & Vuduc 2016, eq. 9), fitted without the variant. The layout follows
Prajapati 2019, Table B.3: the number of picks that are not the best, and the root mean square and
the maximum of the losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.choice.objectives import TIME, Objective
from analysis.choice.objectives import objective as objective_of
from analysis.choice.variant_prices import times_without
from analysis.energy.fit import fit
from analysis.energy.models import AUTO
from analysis.measurements.observations import FitError, Observations, kernel_numbers
from analysis.measurements.variants import CLOCKS, MeasuredVariants
from dvfs.setting import distinct_settings

LEAVE_ONE_OUT = "leave-one-variant-out"
KFOLD = "variants-kfold:"
SCHEMES = (LEAVE_ONE_OUT, f"{KFOLD}K")
CLOSE = 1.2
"""Variants within this factor of the best count as close: a choice is mostly among these."""
FEWEST = 3
"""With fewer variants of a problem no choice can be judged."""
SEED = 0


@dataclass(frozen=True, kw_only=True)
class ProblemErrors:
    """The errors and losses of one problem.

    Errors are root mean squares in % of the measured value, over all variants and over the close
    ones: those within 20 % of the least of their setting. ``cases``: the number of settings, at
    each of which one of ``variants`` is picked; ``wrong``: the number of picks that are not the
    best; ``lost_rms_pct``, ``lost_max_pct``: the losses of the picks. NaN without energies or
    predictions."""

    problem: Mapping[str, object]
    variants: int
    cases: int
    wrong: int
    lost_rms_pct: float
    lost_max_pct: float
    time_error_pct: float
    time_error_close_pct: float
    energy_error_pct: float
    energy_error_close_pct: float


@dataclass(frozen=True, kw_only=True)
class VariantCrossValidation:
    """Costs of variants predicted by models fitted without them, and what picks lose.

    ``predicted_s``, ``predicted_j``: float64 (rows,) of ``variants``. ``time``: whether energies
    were predicted from ``measured`` or ``predicted`` times.
    """

    variants: MeasuredVariants
    scheme: str
    n_folds: int
    objective: str
    time: str
    predicted_s: np.ndarray
    predicted_j: np.ndarray
    problems: tuple[ProblemErrors, ...]

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --scheme leave-one-variant-out --json``."""
        return {
            "site": self.variants.site,
            "simulated": self.variants.simulated,
            "kernel": self.variants.kernel,
            "scheme": self.scheme,
            "n_folds": self.n_folds,
            "n": len(self.variants),
            "objective": self.objective,
            "time": self.time,
            "unproven_clocks": self.variants.unproven_clocks,
            "problems": [vars(problem) for problem in self.problems],
        }


def cross_validate_variants(
    variants: MeasuredVariants,
    data: Observations | None,
    scheme: str = LEAVE_ONE_OUT,
    *,
    objective: str = "energy",
    time: str = "measured",
    model: str = AUTO,
    voltage: str = AUTO,
    robust: bool = False,
) -> VariantCrossValidation:
    """Predict each variant by models fitted without it.

    ``data``: the site's measurements for the energy model; None without energies. ``scheme``: one
    of :data:`SCHEMES`. ``time``: ``measured`` or ``predicted``, the time that predicts an energy.

    Raises:
        FitError: too few variants, an unknown scheme or objective, or energies are missing.
    """
    judged_by = objective_of(objective)
    if data is None and judged_by != TIME:
        raise FitError(
            f"no energy of {variants.kernel} at {variants.site} was measured; use --objective time"
        )
    predicted_s = np.full(len(variants), np.nan)
    predicted_j = np.full(len(variants), np.nan)
    row_of = None if data is None else _rows_of(variants, data)
    number = 0
    for left_out in folds(len(variants.instances), scheme):
        number += 1
        test = left_out[variants.variant]
        predicted_s[test] = times_without(variants, test)[test]
        if data is not None and row_of is not None:
            given_s = predicted_s if time == "predicted" else variants.time_s
            labels = [variants.instances[i].label for i in np.flatnonzero(left_out).tolist()]
            training = data.take(kernel_numbers(data, labels) < 0)
            fitted = fit(training, model, voltage, robust=robust, intervals=False)
            test_rows = replace(data.take(row_of[test]), time_s=given_s[test])
            predicted_j[test] = fitted.energy_j(test_rows)
    problems = tuple(
        _judged(variants, problem, predicted_s, predicted_j, judged_by, time)
        for problem in range(len(variants.problems))
        if len(set(variants.variant[variants.problem == problem].tolist())) >= FEWEST
    )
    if not problems:
        raise FitError(
            f"no problem of {variants.kernel} at {variants.site} has {FEWEST} variants or more"
        )
    if not any(problem.cases for problem in problems):
        raise FitError(
            f"no variant of {variants.kernel} at {variants.site} can be predicted from the others: "
            f"a time is predicted from counts, at prices of variants that differ in numbers alone"
        )
    return VariantCrossValidation(
        variants=variants,
        scheme=scheme,
        n_folds=number,
        objective=judged_by.name,
        time=time,
        predicted_s=predicted_s,
        predicted_j=predicted_j,
        problems=problems,
    )


def folds(count: int, scheme: str) -> Iterator[np.ndarray]:
    """Yield for each fold the mask of the variants that it predicts, bool (variants,)."""
    if count < FEWEST:
        raise FitError(
            f"{scheme} needs {FEWEST} variants or more; there {'is' if count == 1 else 'are'} "
            f"{count}: measure more"
        )
    if scheme == LEAVE_ONE_OUT:
        folds = count
    else:
        text = scheme.removeprefix(KFOLD)
        folds = int(text) if scheme.startswith(KFOLD) and text.isdigit() else 0
        if not 2 <= folds <= count:
            raise FitError(
                f"found {scheme!r}; {KFOLD}K divides the {count} variants into K folds: give a "
                f"whole number K from 2 to {count}"
            )
    fold = np.random.default_rng(SEED).permutation(count) % folds
    yield from (fold == place for place in range(folds))


def _rows_of(variants: MeasuredVariants, data: Observations) -> np.ndarray:
    """Return for each row of ``variants`` the row of ``data`` with its variant and setting."""
    labels = data.labels.tolist()
    row_of = {
        (label, data.settings[setting]): row
        for row, (label, setting) in enumerate(zip(labels, data.setting.tolist(), strict=True))
    }
    rows = []
    for variant, setting in zip(variants.variant.tolist(), variants.settings, strict=True):
        key = (variants.instances[variant].label, setting)
        if key not in row_of:
            raise FitError(
                f"{key[0]} has a time and no energy at a setting; measure it again, or use "
                f"--objective time"
            )
        rows.append(row_of[key])
    return np.array(rows)


def _judged(
    variants: MeasuredVariants,
    problem: int,
    predicted_s: np.ndarray,
    predicted_j: np.ndarray,
    judged_by: Objective,
    time: str,
) -> ProblemErrors:
    in_problem = variants.problem == problem
    chosen_s = predicted_s if time == "predicted" or judged_by == TIME else variants.time_s
    _, number = distinct_settings(*(variants.clocks[name] for name in CLOCKS))
    lost, wrong, close = [], 0, np.zeros(len(variants), bool)
    for setting in np.unique(number[in_problem]):
        rows = np.flatnonzero(in_problem & (number == setting))
        actual = judged_by.score(variants.energy_j[rows], variants.time_s[rows])
        expected = judged_by.score(predicted_j[rows], chosen_s[rows])
        close[rows] = actual <= CLOSE * actual.min()
        if np.isfinite(expected).any():
            pick = int(np.nanargmin(expected))
            lost.append((actual[pick] / actual.min() - 1.0) * 100.0)
            wrong += int(actual[pick] > actual.min())

    def error_pct(predicted: np.ndarray, measured: np.ndarray, rows: np.ndarray) -> float:
        relative = predicted[rows] / measured[rows] - 1.0
        relative = relative[np.isfinite(relative)]
        return float(np.sqrt(np.mean(relative**2)) * 100.0) if len(relative) else np.nan

    return ProblemErrors(
        problem=variants.problems[problem],
        variants=len(set(variants.variant[in_problem].tolist())),
        cases=len(lost),
        wrong=wrong,
        lost_rms_pct=float(np.sqrt(np.mean(np.square(lost)))) if lost else np.nan,
        lost_max_pct=max(lost, default=np.nan),
        time_error_pct=error_pct(predicted_s, variants.time_s, in_problem),
        time_error_close_pct=error_pct(predicted_s, variants.time_s, in_problem & close),
        energy_error_pct=error_pct(predicted_j, variants.energy_j, in_problem),
        energy_error_close_pct=error_pct(predicted_j, variants.energy_j, in_problem & close),
    )
