"""A fit: its form, the coefficients of a site, their predictions, and costs at a setting.

A form is the terms (choi or choi+clock) and the origin of the voltage. ``--model auto --voltage
auto`` chooses among them.

The fitting is in :mod:`analysis.energy.fit`, which takes much longer to import.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse, special

from analysis.energy.curves import Curves, at_voltage
from analysis.energy.likeness import Likeness
from analysis.energy.models import (
    AUTO,
    ESTIMATED,
    MODEL_NAMES,
    MODELS,
    VOLTAGE_NAMES,
)
from analysis.energy.terms.registry import sparse_design_matrix
from analysis.energy.terms.term import OperatingPoint, Term
from analysis.measurements.observations import FitError, Observations
from dvfs.errors import unknown_name
from dvfs.setting import Setting, clock_columns

CONFIDENCE = 0.95
"""The probability of every interval."""


@dataclass(frozen=True)
class Form:
    """``model``: a name in :data:`~analysis.energy.models.MODELS`; ``voltage``: known, unit or an
    estimated family."""

    model: str
    voltage: str


@dataclass(frozen=True)
class TriedForm:
    """A form that was tried, its error out of fold, and its distance from the best form.

    ``behind_pct``: mean of its error less the best form's; ``behind_std_pct``: the standard error
    of that difference over settings.
    """

    form: Form
    error_pct: float
    behind_pct: float
    behind_std_pct: float


def forms(data: Observations, model: str, voltage: str) -> list[Form]:
    """Return the forms that ``model`` and ``voltage`` allow, the simplest first.

    Known voltages are used where there are any; else V = 1 comes before the estimated families.

    Raises:
        FitError: an unknown name.
    """
    if model not in MODEL_NAMES:
        raise FitError(unknown_name("model", model, MODEL_NAMES))
    if voltage not in VOLTAGE_NAMES:
        raise FitError(unknown_name("voltage", voltage, VOLTAGE_NAMES))
    if voltage == "known" and data.voltage == "unit":
        raise FitError(
            f"no voltage of {data.site} is known; give the site's table, or --voltage auto"
        )
    if voltage != AUTO:
        voltages: tuple[str, ...] = (voltage,)
    elif data.voltage == "unit":
        voltages = ("unit", *ESTIMATED)
    else:
        voltages = ("known",)
    models = tuple(MODELS) if model == AUTO else (model,)
    return [Form(name, source) for name in models for source in voltages]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Coefficients of one site, with their uncertainty.

    ``value``, ``low``, ``high``: float64, in each term's unit; low and high are the 95 %
    interval, NaN where fewer than three settings were measured. ``deviations``: float64
    (n, terms), whose products sum to the covariance of the values given the form, by leaving
    settings out; ``deviations_with_choice``: the same with the form chosen again without each
    setting, as in the intervals; NaN where low and high are. ``freedom``: degrees of freedom of
    Student's t in the intervals. ``voltage``: measured, table, unit (V = 1), or the estimated
    family (floor, free): then ``curves`` hold V(f), relative to the highest clock. ``tried``,
    ``why``: the forms that were compared, and the reason for this one. ``outliers``: rows far from
    the model; ``confounded``: terms that these measurements cannot separate. ``unproven_clocks``:
    nothing showed that some measurements ran at the requested settings; ``stated_clocks``: an
    imported table states their clocks. ``estimated_energies``: some energies were estimated, not
    measured. ``like``: the difference from the site whose fit this one started from, None where it
    started from none.
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
    deviations: np.ndarray
    deviations_with_choice: np.ndarray
    freedom: float
    condition_number: float
    dropped: list[dict[str, str]]
    curves: Curves
    tried: list[TriedForm] = field(default_factory=list)
    why: str = ""
    robust: bool = False
    outliers: list[dict[str, Any]] = field(default_factory=list)
    confounded: list[dict[str, Any]] = field(default_factory=list)
    unproven_clocks: bool = False
    stated_clocks: bool = False
    estimated_energies: bool = False
    like: Likeness | None = None

    @property
    def covariance(self) -> np.ndarray:
        """The covariance of the values given the form: float64 (terms, terms)."""
        return np.asarray(self.deviations.T @ self.deviations)

    @property
    def covariance_with_choice(self) -> np.ndarray:
        """The covariance of the values, the form chosen again: float64 (terms, terms)."""
        return np.asarray(self.deviations_with_choice.T @ self.deviations_with_choice)

    def energy_j(self, data: Observations) -> np.ndarray:
        """Return predicted joules of every row: float64 (rows,)."""
        return np.asarray(self.sparse_parts_j(data).sum(axis=1))

    def parts_j(self, data: Observations) -> np.ndarray:
        """Return predicted joules of every row by term: float64 (rows, terms)."""
        return np.asarray(self.sparse_parts_j(data).toarray())

    def sparse_parts_j(self, data: Observations) -> sparse.csr_array:
        """Return :meth:`parts_j` as a sparse array: most terms of single kernels are 0 in a row."""
        parts = sparse_design_matrix(at_voltage(data, self.voltage, self.curves), self.terms)
        return sparse.csr_array(parts * self.value)

    def as_dict(self) -> dict[str, Any]:
        """``campaign fit --json``: the coefficients with their units and intervals. Errors of tried
        forms have two decimals: smaller differences count as none
        (:data:`analysis.energy.fit.NEGLIGIBLE_PCT`)."""
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
                    "error_pct": round(tried.error_pct, 2),
                    "behind_pct": round(tried.behind_pct, 2),
                    "behind_std_pct": round(tried.behind_std_pct, 2),
                }
                for tried in self.tried
            ],
            "robust": self.robust,
            "outliers": self.outliers,
            "confounded": self.confounded,
            "unproven_clocks": self.unproven_clocks,
            "stated_clocks": self.stated_clocks,
            "estimated_energies": self.estimated_energies,
            "like": None if self.like is None else self.like.as_dict(),
        }


def deviations_of(covariance: np.ndarray) -> np.ndarray:
    """Return deviations (p, p) whose products sum to a covariance (p, p): its symmetric root, as
    other roots depend on the processor; NaN (1, p) where the covariance is not known."""
    if not np.isfinite(covariance).all():
        return np.full((1, len(covariance)), np.nan)
    spread, axes = np.linalg.eigh(covariance)
    return np.asarray((axes * np.sqrt(np.maximum(spread, 0.0))) @ axes.T)


def finite(value: float) -> float | None:
    """Return a number for JSON: None for infinities and NaN, which JSON lacks."""
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class SettingCosts:
    """The costs of operations and of time at one setting (Choi & Vuduc 2016, Table I).

    ``operation_pj``: class -> (pJ, low, high) of one operation; ``constant_w``: (W, low, high).
    """

    setting: Setting
    core_v: float
    mem_v: float
    operation_pj: dict[str, tuple[float, float, float]]
    constant_w: tuple[float, float, float]


def costs_at(fitted: Fit, setting: Setting, core_v: float, mem_v: float) -> SettingCosts:
    """Return the costs at a setting: pJ by class of operations, and constant power.

    Where the fit took V = 1 or estimated voltages, ``core_v`` and ``mem_v`` are not used.
    """
    ((core_mhz, mem_mhz),) = clock_columns([setting]).tolist()
    if fitted.voltage in ("unit", *ESTIMATED):
        core_v, mem_v = (
            float(curve.at(np.array([clock]))[0])
            for curve, clock in ((fitted.curves.core, core_mhz), (fitted.curves.mem, mem_mhz))
        )
    point = OperatingPoint(core_mhz, mem_mhz, core_v, mem_v)
    operation_pj = {}
    watts = np.zeros(len(fitted.terms))
    for i, term in enumerate(fitted.terms):
        if term.pays_for == "operation":
            cost = term.cost(point)
            low, high = float(fitted.low[i] * cost), float(fitted.high[i] * cost)
            operation_pj[term.of] = (float(fitted.value[i] * cost), low, high)
        elif term.pays_for == "time":
            watts[i] = term.cost(point)
    reach = special.stdtrit(fitted.freedom, (1 + CONFIDENCE) / 2)
    power_w = float(watts @ fitted.value)
    half = float(reach * np.linalg.norm(fitted.deviations_with_choice @ watts))
    interval = (power_w, max(power_w - half, 0.0), power_w + half)
    return SettingCosts(setting, core_v, mem_v, operation_pj, interval)


def costs_run_at(fitted: Fit, data: Observations, setting: int) -> SettingCosts:
    """:func:`costs_at` the mean clocks and voltages that the rows of a setting ran at, which under
    a power limit are others than it asks for. ``setting``: an index into ``data.settings``."""
    rows = data.setting == setting
    core_mhz, mem_mhz, core_v, mem_v = (
        float(values[rows].mean())
        for values in (data.core_mhz, data.mem_mhz, data.core_v, data.mem_v)
    )
    return costs_at(fitted, Setting.of(core_mhz, mem_mhz), core_v, mem_v)
