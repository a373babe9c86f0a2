"""How sure a fit's coefficients are: settings and nodes left out, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.energy.choosing import MIN_SETTINGS, NEGLIGIBLE_PCT, FormChoice, choose
from analysis.energy.curves import at_voltage
from analysis.energy.forms import Form
from analysis.energy.training import FormSolution, Training, prepare, solve_form
from analysis.measurements.observations import Observations
from dvfs.setting import Setting

MIN_SETTINGS_FOR_INTERVALS = 3
MIN_NODES_FOR_INTERVALS = 3
OUT_OF_REACH = 3.0
"""A form that is more than these standard errors behind the best is not tried again when a
setting is left out."""


def jackknife_deviations(left_out: np.ndarray) -> np.ndarray:
    """Deviations (S, n) whose products sum to the jackknife's covariance of n numbers.

    sqrt((S - 1) / S) (x_-s - mean), of float64 (S, n) that were found without each of S settings
    (Efron & Tibshirani 1993, section 11.5).
    """
    n = len(left_out)
    return np.asarray((left_out - left_out.mean(axis=0)) * np.sqrt((n - 1) / n))


def coefficient_deviations(left_out: np.ndarray) -> np.ndarray:
    """Deviations (S, p) whose products sum to the covariance of p coefficients, of float64 (S, p),
    a setting left out in each (:func:`jackknife_deviations`); NaN with too few settings."""
    if len(left_out) < MIN_SETTINGS_FOR_INTERVALS:
        return np.full((1, left_out.shape[1]), np.nan)
    return jackknife_deviations(left_out)


def without_each_setting(training: Training, solution: FormSolution) -> list[FormSolution]:
    """The coefficients and curves without each setting in turn, the form given: S of them."""
    left_out = []
    for block in range(len(training.equations.settings)):
        weight = np.ones(len(training.equations.settings))
        weight[block] = 0.0
        left_out.append(solve_form(training, weight, solution, other_knees=True))
    return left_out


def choosing_without_each_setting(
    choice: FormChoice,
    given: np.ndarray,
    candidates: list[Form],
    data: Observations,
    weight: np.ndarray | None,
) -> np.ndarray:
    """The coefficients without each setting in turn, the form chosen again: float64 (S, p).

    ``given``: float64 (S, p), those with the form given. A coefficient that the form chosen
    then does not have is 0 in it.
    """
    settings = choice.training.equations.settings
    near = [
        tried.form
        for tried in choice.tried
        if tried.form in candidates
        and tried.behind_pct <= max(OUT_OF_REACH * tried.behind_std_pct, NEGLIGIBLE_PCT)
    ]
    if len(near) < 2 or len(settings) <= MIN_SETTINGS:
        return given
    names = [term.name for term in choice.training.equations.terms]
    left_out = given.copy()
    for block, setting in enumerate(settings):
        kept = np.flatnonzero(data.setting != setting)
        chosen = choose(data.take(kept), near)
        if chosen.form == choice.form:
            continue
        training, solution = chosen.training, chosen.solution
        if weight is not None:
            training = prepare(data.take(kept), chosen.form, weight[kept])
            solution = solve_form(training, None, solution)
        terms = training.equations.terms
        values = {term.name: value for term, value in zip(terms, solution.value, strict=True)}
        left_out[block] = [values.get(name, 0.0) for name in names]
    return left_out


def node_deviations(
    choice: FormChoice, data: Observations, weight: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Deviations (n, p) whose products sum to what the runs of a node have in common adds to the
    covariance; degrees of freedom.

    The two-way sum of Cameron, Gelbach and Miller (J. Bus. Econ. Stat. 29, 2011): settings plus
    nodes less their crossings. None with fewer than three nodes.
    """
    training, solution = choice.training, choice.solution
    none = np.zeros((0, len(solution.value)))
    freedom = max(len(training.mhz) - 1, 1)
    if data.node is None:
        return none, freedom
    nodes, at = np.unique(data.node.astype(str), return_inverse=True)
    if len(nodes) < MIN_NODES_FOR_INTERVALS:
        return none, freedom
    seen = at_voltage(data, training.form.voltage, solution.curves)
    fixed = replace(training.form, voltage="known")
    signs, of_groups = [], []
    for sign, group in ((1, at), (-1, at * len(data.settings) + data.setting)):
        _, number = np.unique(group, return_inverse=True)
        by_group = replace(
            seen,
            setting=number.astype(np.int64),
            settings=[Setting(float(i)) for i in range(int(number.max()) + 1)],
        )
        prepared = prepare(by_group, fixed, weight)
        # The terms must be the training's, whatever varies among these voltages.
        if [t.name for t in prepared.equations.terms] != [t.name for t in training.equations.terms]:
            return none, freedom
        left_out = without_each_setting(prepared, solution)
        deviations = coefficient_deviations(np.stack([without.value for without in left_out]))
        of_groups.append(deviations)
        signs.append(np.full(len(deviations), float(sign)))
    # A difference of two estimates: where it is negative, nodes have nothing in common. It has
    # as few dimensions as there are groups.
    directions, triangle = np.linalg.qr(np.concatenate(of_groups).T)
    spread, axes = np.linalg.eigh((triangle * np.concatenate(signs)) @ triangle.T)
    of_nodes = np.sqrt(np.maximum(spread, 0.0))[:, None] * (directions @ axes).T
    return of_nodes, min(freedom, len(nodes) - 1)
