"""Fitting the energy model: non-negative least squares on relative error, with intervals."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from analysis.dataset import class_unit
from analysis.energy.choosing import MIN_SETTINGS, Choice, Tried, choose
from analysis.energy.forms import AUTO, Form, forms
from analysis.energy.surface import Surface, fit_surface
from analysis.energy.terms import Term, design_matrix
from analysis.energy.training import (
    Curves,
    Found,
    Training,
    at_voltage,
    predict,
    prepare,
    solve_form,
)
from analysis.energy.voltage import ESTIMATED
from analysis.measurements.observations import CantFit, Observations, setting_text

CONFIDENCE = 0.95
MIN_SETTINGS_FOR_INTERVALS = 3
MIN_NODES_FOR_INTERVALS = 3
OUTLIER_DEVIATIONS = 6.0
"""How many robust standard deviations make a row an outlier: one in 500 million by chance."""
HUBER = 1.345
"""Huber's constant: 95 % efficient where the errors are normal."""
ROBUST_ROUNDS = 12
ALIKE = 0.03
"""Of columns of length 1, a singular value below this: two with a correlation above 0.999."""
PART_OF_DIRECTION = 0.15
OUT_OF_REACH = 3.0
"""A form that is more than these standard errors behind the best is not tried again when a
setting is left out."""


@dataclass(frozen=True)
class Fit:
    """Coefficients of one site, and how sure they are.

    ``value``, ``low``, ``high``: float64, in each term's unit; low and high are the 95 %
    interval, NaN where fewer than three settings were measured. ``covariance``: of the values
    given the form, by leaving settings out; ``covariance_with_choice``: the same with the form
    chosen again without each setting, as the intervals have it. ``voltage``: measured, table,
    unit (V = 1), or the family that was estimated (floor, free): then ``curves`` hold V(f),
    relative to the highest clock. ``surface``: what the terms leave over, None where it is not
    part of the model. ``tried``, ``why``: the forms that were compared, and why this one.
    ``outliers``: rows far from the model; ``confounded``: terms that these settings can't tell
    apart.
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
    tried: list[Tried] = field(default_factory=list)
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
                    "unit": unit_of(term),
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
                    "model": each.form.model,
                    "voltage": each.form.voltage,
                    "error_pct": each.error_pct,
                    "behind_pct": each.behind_pct,
                    "behind_std_pct": each.behind_std_pct,
                }
                for each in self.tried
            ],
            "robust": self.robust,
            "outliers": self.outliers,
            "confounded": self.confounded,
        }


def unit_of(term: Term) -> str:
    """A term's unit with what it is paid for: ``pJ/V^2 per flop``."""
    return f"{term.unit} per {class_unit(term.of)}" if term.kind == "class" else term.unit


def finite(value: float) -> float | None:
    """A number as JSON can say it: None for infinities and NaN."""
    return float(value) if np.isfinite(value) else None


def fit(
    data: Observations,
    model: str = AUTO,
    voltage: str = AUTO,
    robust: bool = False,
    intervals: bool = True,
) -> Fit:
    """Fit a site's coefficients.

    Minimises sum(w (E_predicted / E_measured - 1)^2) over coefficients >= 0, so that a kernel of
    a millijoule counts as much as one of a kilojoule. Where the measurements bring uncertainties
    of their own, w falls with them; ``robust`` also lowers w for rows far from the model (Huber).
    ``model`` and ``voltage``: names of :mod:`analysis.energy.forms`; what they leave open is
    chosen by cross-validation (:func:`analysis.energy.choosing.choose`).

    Intervals and covariance come from leaving whole settings out: what the runs of one setting
    have in common (its true voltage, its temperature) is not averaged away by repeating them.
    Without each setting the form is chosen again, so that the intervals count what the choice
    leaves unsure. With three nodes or more, what the runs of a node have in common is added.

    Raises:
        CantFit: an unknown model or voltage, or fewer rows than terms.
    """
    if not len(data):
        raise CantFit("no measurement is left to fit; measure more kernels or settings")
    candidates, surfaces = forms(data, model, voltage)
    choice, weight = _chosen(data, candidates, surfaces, robust)
    training, found = choice.training, choice.found
    if len(data) < len(training.terms):
        raise CantFit(
            f"{len(data)} measurements can't tell {len(training.terms)} coefficients apart; "
            f"measure more settings or kernels"
        )
    place = {term.name: i for i, term in enumerate(training.equations.terms)}
    seen = at_voltage(data, choice.form.voltage, found.curves)
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
    predicted_j = predict(training, found)
    surface = fit_surface(data, predicted_j) if choice.form.surface else None
    if surface is not None:
        predicted_j = predicted_j * (1.0 + surface.at(data))
    value = found.value[order]
    covariance, freedom = np.full((len(terms), len(terms)), np.nan), np.inf
    with_choice = covariance
    if intervals:
        of_nodes, freedom = _node_covariance(choice, data, weight)
        by_setting = _without_each_setting(choice)
        again = _choosing_without_each_setting(choice, by_setting, candidates, data, weight)
        covariance, with_choice = (
            (_jackknife(left_out) + of_nodes)[np.ix_(order, order)]
            for left_out in (by_setting, again)
        )
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(np.diag(with_choice))
    return Fit(
        data.site,
        data.simulated,
        choice.form.model,
        data.voltage if choice.form.voltage == "known" else choice.form.voltage,
        len(data),
        len(training.mhz),
        terms,
        value,
        np.maximum(value - reach, 0.0),
        value + reach,
        covariance,
        with_choice,
        float(np.linalg.cond(unit)) if intervals else np.nan,
        dropped,
        found.curves,
        surface,
        choice.tried,
        choice.why,
        robust,
        _outliers(data, predicted_j) if intervals else [],
        _confounded(terms, unit) if intervals else [],
    )


def _chosen(
    data: Observations, candidates: list[Form], surfaces: tuple[bool, ...], robust: bool
) -> tuple[Choice, np.ndarray | None]:
    """The form with its solution, and the rows' weights, None where all count the same."""
    choice = choose(data, candidates, surfaces)
    known = data.energy_std_j is not None and bool(np.isfinite(data.energy_std_j).any())
    if not (known or robust):
        return choice, None
    weight = np.ones(len(data))
    for _ in range(ROBUST_ROUNDS if robust else 2):
        residual = predict(choice.training, choice.found) / data.energy_j - 1.0
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
        choice = replace(choice, training=training, found=solve_form(training, None, choice.found))
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


def _jackknife(left_out: np.ndarray) -> np.ndarray:
    """The covariance (p, p) of p coefficients from float64 (S, p), a setting left out in each.

    (S - 1)/S sum (x_-s - mean)(x_-s - mean)'.
    """
    n = len(left_out)
    if n < MIN_SETTINGS_FOR_INTERVALS:
        return np.full((left_out.shape[1], left_out.shape[1]), np.nan)
    off = left_out - left_out.mean(axis=0)
    return np.asarray(off.T @ off * (n - 1) / n)


def _without(training: Training, found: Found, block: int) -> np.ndarray:
    weight = np.ones(len(training.equations.settings))
    weight[block] = 0.0
    return solve_form(training, weight, found).value


def _without_each_setting(choice: Choice) -> np.ndarray:
    """The coefficients without each setting in turn, the form given: float64 (S, p)."""
    blocks = range(len(choice.training.equations.settings))
    return np.stack([_without(choice.training, choice.found, block) for block in blocks])


def _choosing_without_each_setting(
    choice: Choice,
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
        each.form
        for each in choice.tried
        if each.form in candidates and each.behind_pct <= OUT_OF_REACH * each.behind_std_pct
    ]
    if len(near) < 2 or len(settings) <= MIN_SETTINGS:
        return given
    names = [term.name for term in choice.training.equations.terms]
    left_out = given.copy()
    for block, setting in enumerate(settings):
        kept = np.flatnonzero(data.setting != setting)
        chosen = choose(data.take(kept), near, (False,))
        if (chosen.form.terms, chosen.form.voltage) == (choice.form.terms, choice.form.voltage):
            continue
        training, found = chosen.training, chosen.found
        if weight is not None:
            training = prepare(data.take(kept), chosen.form, weight[kept])
            found = solve_form(training, None, found)
        terms = training.equations.terms
        values = {term.name: value for term, value in zip(terms, found.value, strict=True)}
        left_out[block] = [values.get(name, 0.0) for name in names]
    return left_out


def _node_covariance(
    choice: Choice, data: Observations, weight: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """What the runs of a node have in common adds to the covariance (p, p); degrees of freedom.

    The two-way sum of Cameron, Gelbach and Miller (J. Bus. Econ. Stat. 29, 2011): settings plus
    nodes less their crossings. 0 with fewer than three nodes.
    """
    training, found = choice.training, choice.found
    none = np.zeros((len(found.value), len(found.value)))
    freedom = max(len(training.mhz) - 1, 1)
    if data.node is None:
        return none, freedom
    nodes, at = np.unique(data.node.astype(str), return_inverse=True)
    if len(nodes) < MIN_NODES_FOR_INTERVALS:
        return none, freedom
    seen = at_voltage(data, training.form.voltage, found.curves)
    fixed = replace(training.form, voltage="known")
    of_nodes = none.copy()
    for sign, group in ((1, at), (-1, at * len(data.settings) + data.setting)):
        _, number = np.unique(group, return_inverse=True)
        by_group = replace(
            seen,
            setting=number.astype(np.int64),
            settings=[(float(i), float(i)) for i in range(int(number.max()) + 1)],
        )
        prepared = prepare(by_group, fixed, weight)
        # The terms must be the training's, whatever varies among these voltages.
        if [t.name for t in prepared.equations.terms] != [t.name for t in training.equations.terms]:
            return none, freedom
        blocks = range(len(prepared.equations.settings))
        of_nodes += sign * _jackknife(
            np.stack([_without(prepared, found, block) for block in blocks])
        )
    # A difference of two estimates: where it is negative, nodes have nothing in common.
    spread, axes = np.linalg.eigh(of_nodes)
    return np.asarray((axes * np.maximum(spread, 0.0)) @ axes.T), min(freedom, len(nodes) - 1)


def _outliers(data: Observations, predicted_j: np.ndarray) -> list[dict[str, Any]]:
    """Rows far from what the whole model says, by a robust standard deviation of its residuals."""
    residual = np.log(np.maximum(predicted_j, 1e-300) / data.energy_j)
    centre = np.median(residual)
    spread = np.median(np.abs(residual - centre)) / stats.norm.ppf(0.75)
    if not spread > 0:
        return []
    far = np.flatnonzero(np.abs(residual - centre) > OUTLIER_DEVIATIONS * spread)
    far = far[np.argsort(-np.abs(residual[far] - centre))]
    return [
        {
            **data.instance(str(data.kernel[i])).as_dict(),
            "setting": setting_text(data.settings[data.setting[i]]),
            "energy_j": float(data.energy_j[i]),
            "predicted_j": float(predicted_j[i]),
            "deviations": float(np.abs(residual[i] - centre) / spread),
        }
        for i in far
    ]


def _confounded(terms: list[Term], unit: np.ndarray) -> list[dict[str, Any]]:
    """Groups of shared terms that together all but repeat each other, and what would part them.

    ``unit``: float64 (rows, terms), columns of length 1. A direction in which the coefficients
    can move while the predictions stay is a singular vector of a small singular value.
    """
    shared = [i for i, term in enumerate(terms) if term.kind != "lumped"]
    _, size, directions = np.linalg.svd(unit[:, shared], full_matrices=False)
    groups: list[set[int]] = []
    for direction in directions[size < ALIKE]:
        group = {shared[j] for j in np.flatnonzero(np.abs(direction) > PART_OF_DIRECTION)}
        for other in [each for each in groups if each & group]:
            group |= other
            groups.remove(other)
        groups.append(group)
    found = []
    for group in groups:
        members = [terms[i] for i in sorted(group)]
        found.append({"terms": [t.name for t in members], "remedy": _remedy(members)})
    return found


def _remedy(members: list[Term]) -> str:
    classes = [t.of for t in members if t.kind == "class"]
    if len(classes) > 1:
        return f"measure kernels whose ratios of {' to '.join(classes)} differ"
    if classes:
        return f"measure kernels that do little {classes[0]} for their time, and such that do much"
    domains = sorted({t.domain for t in members if t.domain})
    named = " and ".join({"core": "core", "mem": "memory"}[d] for d in domains)
    return f"measure more {named} clocks, at voltages that differ more"


@dataclass(frozen=True)
class SettingCosts:
    """What operations and waiting cost at one setting (seed 003, Table I).

    ``operation_pj``: class -> (pJ, low, high) of one operation; ``constant_w``: (W, low, high).
    """

    core_mhz: float
    mem_mhz: float
    core_v: float
    mem_v: float
    operation_pj: dict[str, tuple[float, float, float]]
    constant_w: tuple[float, float, float]


def costs_at(
    found: Fit, core_mhz: float, mem_mhz: float, core_v: float, mem_v: float
) -> SettingCosts:
    """The coefficients at a setting: c_k V_dom^2 by class, and the power that no operation pays.

    Where the fit took V = 1 or estimated its voltages, these stand in place of those given.
    """
    if found.voltage in ("unit", *ESTIMATED):
        core_v, mem_v = (
            float(curve.at(np.array([clock]))[0])
            for curve, clock in ((found.curves.core, core_mhz), (found.curves.mem, mem_mhz))
        )
    square = {"core": core_v**2, "mem": mem_v**2}
    volt = {"core": core_v, "mem": mem_v}
    mhz = {"core": core_mhz, "mem": mem_mhz}
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, max(found.n_settings - 1, 1))
    operation = {}
    constant = np.zeros(len(found.terms))
    for i, term in enumerate(found.terms):
        match term.kind:
            case "class":
                factor = square[term.domain]
                operation[term.of] = (
                    float(found.value[i] * factor),
                    float(found.low[i] * factor),
                    float(found.high[i] * factor),
                )
            case "leak":
                constant[i] = volt[term.domain]
            case "misc":
                constant[i] = 1.0
            case "clock":
                constant[i] = square[term.domain] * mhz[term.domain]
    power_w = float(constant @ found.value)
    half = float(reach * np.sqrt(max(constant @ found.covariance_with_choice @ constant, 0.0)))
    interval = (power_w, max(power_w - half, 0.0), power_w + half)
    return SettingCosts(core_mhz, mem_mhz, core_v, mem_v, operation, interval)
