"""Fitting the energy model: non-negative least squares on relative error, with intervals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from analysis.energy.choosing import FormChoice, TriedForm, choose
from analysis.energy.forms import Form, forms
from analysis.energy.intervals import (
    CONFIDENCE,
    choosing_without_each_setting,
    jackknife,
    node_covariance,
    without_each_setting,
)
from analysis.energy.models import AUTO, ESTIMATED
from analysis.energy.remarks import inseparable, outliers
from analysis.energy.surface import Surface, fit_surface
from analysis.energy.terms.registry import design_matrix
from analysis.energy.terms.term import OperatingPoint, Term
from analysis.energy.training import Curves, at_voltage, predict, prepare, solve_form
from analysis.measurements.observations import CantFit, Observations

HUBER = 1.345
"""Huber's constant: 95 % efficient where the errors are normal."""
ROBUST_ROUNDS = 12


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Coefficients of one site, and how sure they are.

    ``value``, ``low``, ``high``: float64, in each term's unit; low and high are the 95 %
    interval, NaN where fewer than three settings were measured. ``covariance``: of the values
    given the form, by leaving settings out; ``covariance_with_choice``: the same with the form
    chosen again without each setting, as the intervals have it. ``voltage``: measured, table,
    unit (V = 1), or the family that was estimated (floor, free): then ``curves`` hold V(f),
    relative to the highest clock. ``surface``: the residuals as a smooth surface, None where it
    is not part of the model. ``tried``, ``why``: the forms that were compared, and why this one.
    ``outliers``: rows far from the model; ``confounded``: terms that these measurements cannot
    separate.
    """

    site: str
    simulated: bool
    model: str
    voltage: str
    n: int
    n_settings: int
    terms: list[Term]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    covariance: np.ndarray
    covariance_with_choice: np.ndarray
    condition_number: float
    dropped: list[dict[str, str]]
    curves: Curves
    surface: Surface | None = None
    tried: list[TriedForm] = field(default_factory=list)
    why: str = ""
    robust: bool = False
    outliers: list[dict[str, Any]] = field(default_factory=list)
    confounded: list[dict[str, Any]] = field(default_factory=list)

    def energy_j(self, data: Observations) -> np.ndarray:
        """Predicted joules of every row: float64 (rows,)."""
        return self.parts_j(data).sum(axis=1)

    def parts_j(self, data: Observations) -> np.ndarray:
        """Predicted joules of every row by term: float64 (rows, terms).

        What the surface adds is shared out in proportion, so that the parts are the prediction.
        """
        parts = design_matrix(at_voltage(data, self.voltage, self.curves), self.terms) * self.value
        if self.surface is not None:
            parts *= 1.0 + self.surface.at(data)[:, None]
        return np.asarray(parts)

    def as_dict(self) -> dict[str, Any]:
        """``campaign fit --json``: the coefficients with their units and intervals."""
        return {
            "site": self.site,
            "model": self.model,
            "voltage": self.voltage,
            "simulated": self.simulated,
            "n": self.n,
            "n_settings": self.n_settings,
            "condition_number": finite(self.condition_number),
            "dropped": self.dropped,
            "coefficients": [
                {
                    "name": term.name,
                    "value": float(self.value[i]),
                    "unit": term.unit,
                    "low": finite(self.low[i]),
                    "high": finite(self.high[i]),
                }
                for i, term in enumerate(self.terms)
            ],
            "voltage_curves": {
                name: {"mhz": curve.mhz.tolist(), "relative_v": curve.volt.tolist()}
                for name, curve in (("core", self.curves.core), ("mem", self.curves.mem))
                if len(curve.mhz) > 1
            },
            "why": self.why,
            "tried": [
                {
                    "model": tried.form.model,
                    "voltage": tried.form.voltage,
                    "error_pct": tried.error_pct,
                    "behind_pct": tried.behind_pct,
                    "behind_std_pct": tried.behind_std_pct,
                }
                for tried in self.tried
            ],
            "robust": self.robust,
            "outliers": self.outliers,
            "confounded": self.confounded,
        }


def finite(value: float) -> float | None:
    """A number for JSON, which has no infinities and no NaN: None for these."""
    return float(value) if np.isfinite(value) else None


def fit(
    data: Observations,
    model: str = AUTO,
    voltage: str = AUTO,
    *,
    robust: bool = False,
    intervals: bool = True,
) -> Fit:
    """Fit a site's coefficients.

    Minimises sum(w (E_predicted / E_measured - 1)^2) over coefficients >= 0, so that a kernel of
    a millijoule counts as much as one of a kilojoule. Where the measurements bring uncertainties
    of their own, w falls with them; ``robust`` also lowers w for rows far from the model (Huber).
    ``model`` and ``voltage``: names of :mod:`analysis.energy.models`; what they leave open is
    chosen by cross-validation (:func:`analysis.energy.choosing.choose`).

    Intervals and covariance come from leaving whole settings out: what the runs of one setting
    have in common (its true voltage, its temperature) is not averaged away by repeating them.
    Without each setting the form is chosen again, so that the intervals include the uncertainty
    of the choice. With three nodes or more, what the runs of a node have in common is added.

    Raises:
        CantFit: an unknown model or voltage, or fewer rows than terms.
    """
    if not len(data):
        raise CantFit("no measurement is left to fit; measure more kernels or settings")
    candidates, surfaces = forms(data, model, voltage)
    choice, weight = _chosen(data, candidates, surfaces, robust)
    training, solution = choice.training, choice.solution
    if len(data) < len(training.terms):
        raise CantFit(
            f"{len(training.terms)} coefficients cannot be fitted to {len(data)} measurements; "
            f"measure more settings or kernels"
        )
    place = {term.name: i for i, term in enumerate(training.equations.terms)}
    seen = at_voltage(data, choice.form.voltage, solution.curves)
    weighted = design_matrix(seen, training.terms) / data.energy_j[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    used = scale > 0
    dropped = training.dropped + [
        {"name": term.name, "why": "no measurement has any of it"}
        for term, use in zip(training.terms, used, strict=True)
        if not use
    ]
    terms = [term for term, use in zip(training.terms, used, strict=True) if use]
    order = np.array([place[term.name] for term in terms])
    unit = weighted[:, used] / scale[used]
    predicted_j = predict(training, solution)
    surface = fit_surface(data, predicted_j) if choice.form.surface else None
    if surface is not None:
        predicted_j = predicted_j * (1.0 + surface.at(data))
    value = solution.value[order]
    covariance, freedom = np.full((len(terms), len(terms)), np.nan), np.inf
    with_choice = covariance
    if intervals:
        of_nodes, freedom = node_covariance(choice, data, weight)
        by_setting = without_each_setting(choice)
        chosen_again = choosing_without_each_setting(choice, by_setting, candidates, data, weight)
        covariance, with_choice = (
            (jackknife(left_out) + of_nodes)[np.ix_(order, order)]
            for left_out in (by_setting, chosen_again)
        )
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(np.diag(with_choice))
    return Fit(
        site=data.site,
        simulated=data.simulated,
        model=choice.form.model,
        voltage=data.voltage if choice.form.voltage == "known" else choice.form.voltage,
        n=len(data),
        n_settings=len(training.mhz),
        terms=terms,
        value=value,
        low=np.maximum(value - reach, 0.0),
        high=value + reach,
        covariance=covariance,
        covariance_with_choice=with_choice,
        condition_number=float(np.linalg.cond(unit)) if intervals else np.nan,
        dropped=dropped,
        curves=solution.curves,
        surface=surface,
        tried=choice.tried,
        why=choice.why,
        robust=robust,
        outliers=outliers(data, predicted_j) if intervals else [],
        confounded=inseparable(terms, unit) if intervals else [],
    )


def _chosen(
    data: Observations, candidates: list[Form], surfaces: tuple[bool, ...], robust: bool
) -> tuple[FormChoice, np.ndarray | None]:
    """The form with its solution, and the rows' weights, None where all count the same."""
    choice = choose(data, candidates, surfaces)
    known = data.energy_std_j is not None and bool(np.isfinite(data.energy_std_j).any())
    if not (known or robust):
        return choice, None
    weight = np.ones(len(data))
    for _ in range(ROBUST_ROUNDS if robust else 2):
        residual = predict(choice.training, choice.solution) / data.energy_j - 1.0
        fresh = _own_weight(data, residual) if known else np.ones(len(data))
        if robust:
            deviation = np.abs(residual) * np.sqrt(fresh)
            spread = float(np.median(deviation)) / stats.norm.ppf(0.75)
            far = deviation > HUBER * spread
            fresh[far] *= HUBER * spread / deviation[far]
        settled = bool(np.max(np.abs(fresh - weight)) < 1e-3)
        weight = fresh
        if settled:
            break
        training = prepare(data, choice.form, weight)
        solution = solve_form(training, None, choice.solution)
        choice = replace(choice, training=training, solution=solution)
    return choice, weight


def _own_weight(data: Observations, residual: np.ndarray) -> np.ndarray:
    """Weights from the measurements' own relative uncertainties, 1 for the surest.

    A residual's variance is the model's plus the measurement's own; the model's is what the
    residuals have beyond the measurements' (by moments). A row without one has the median.
    """
    assert data.energy_std_j is not None  # noqa: S101
    own = (data.energy_std_j / data.energy_j) ** 2
    own = np.where(np.isfinite(own), own, np.nanmedian(own))
    of_model = max(float(np.mean(residual**2) - np.mean(own)), 0.0)
    variance = of_model + np.maximum(own, 1e-12)
    return np.asarray(variance.min() / variance)


@dataclass(frozen=True)
class SettingCosts:
    """What operations and waiting cost at one setting (Choi & Vuduc 2016, Table I).

    ``operation_pj``: class -> (pJ, low, high) of one operation; ``constant_w``: (W, low, high).
    """

    core_mhz: float
    mem_mhz: float
    core_v: float
    mem_v: float
    operation_pj: dict[str, tuple[float, float, float]]
    constant_w: tuple[float, float, float]


def costs_at(
    fitted: Fit, core_mhz: float, mem_mhz: float, core_v: float, mem_v: float
) -> SettingCosts:
    """The coefficients at a setting: pJ by class of operations, and the power that time costs.

    Where the fit took V = 1 or estimated its voltages, these are used instead of those given.
    """
    if fitted.voltage in ("unit", *ESTIMATED):
        core_v, mem_v = (
            float(curve.at(np.array([clock]))[0])
            for curve, clock in ((fitted.curves.core, core_mhz), (fitted.curves.mem, mem_mhz))
        )
    at = OperatingPoint(core_mhz, mem_mhz, core_v, mem_v)
    operation_pj = {}
    watts = np.zeros(len(fitted.terms))
    for i, term in enumerate(fitted.terms):
        if term.pays_for == "operation":
            cost = term.cost(at)
            low, high = float(fitted.low[i] * cost), float(fitted.high[i] * cost)
            operation_pj[term.of] = (float(fitted.value[i] * cost), low, high)
        elif term.pays_for == "time":
            watts[i] = term.cost(at)
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, max(fitted.n_settings - 1, 1))
    power_w = float(watts @ fitted.value)
    half = float(reach * np.sqrt(max(watts @ fitted.covariance_with_choice @ watts, 0.0)))
    interval = (power_w, max(power_w - half, 0.0), power_w + half)
    return SettingCosts(core_mhz, mem_mhz, core_v, mem_v, operation_pj, interval)
