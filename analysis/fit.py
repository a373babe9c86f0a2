"""Fitting the energy model: non-negative least squares on relative error, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, optimize, stats

from analysis.energy_model import MODELS, Term, design_matrix, model_terms
from analysis.observations import CantFit, Observations

CONFIDENCE = 0.95
MIN_SETTINGS_FOR_INTERVALS = 3


@dataclass(frozen=True)
class Fit:
    """Coefficients of one site, and how sure they are.

    ``value``, ``low``, ``high``: float64, in each term's unit; low and high are the 95 %
    interval, NaN where fewer than three settings were measured. ``covariance``: of the values,
    by resampling settings.
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
    condition_number: float
    dropped: list[dict[str, str]]

    def energy_j(self, data: Observations) -> np.ndarray:
        """Predicted joules of every row: float64 (rows,)."""
        return design_matrix(data, self.terms) @ self.value

    def as_dict(self) -> dict[str, Any]:
        """``campaign fit --json``: the coefficients with their units and intervals."""
        return {
            "site": self.site,
            "model": self.model,
            "voltage": self.voltage,
            "simulated": self.simulated,
            "n": self.n,
            "n_settings": self.n_settings,
            "condition_number": _finite(self.condition_number),
            "dropped": self.dropped,
            "coefficients": [
                {
                    "name": term.name,
                    "value": float(self.value[i]),
                    "unit": unit_of(term),
                    "low": _finite(self.low[i]),
                    "high": _finite(self.high[i]),
                }
                for i, term in enumerate(self.terms)
            ],
        }

    def to_store(self) -> dict[str, Any]:
        """What a store keeps of the fit; :meth:`from_store` makes the same fit of it."""
        return self.as_dict() | {
            "terms": [vars(term) for term in self.terms],
            "covariance": self.covariance.tolist(),
        }

    @classmethod
    def from_store(cls, kept: dict[str, Any]) -> Fit:
        """The fit of :meth:`to_store`."""
        rows = kept["coefficients"]

        def column(name: str) -> np.ndarray:
            return np.array([np.nan if r[name] is None else r[name] for r in rows], float)

        condition = kept["condition_number"]
        return cls(
            kept["site"],
            kept["simulated"],
            kept["model"],
            kept["voltage"],
            kept["n"],
            kept["n_settings"],
            [Term(**term) for term in kept["terms"]],
            column("value"),
            column("low"),
            column("high"),
            np.array(kept["covariance"], float),
            np.inf if condition is None else condition,
            kept["dropped"],
        )


def unit_of(term: Term) -> str:
    """A term's unit with what it is paid for: ``pJ/V^2 per flop``."""
    per = {"sp": "flop", "dp": "flop", "int": "op"}.get(term.of, "byte")
    return f"{term.unit} per {per}" if term.kind == "class" else term.unit


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def fit(data: Observations, model: str = "choi", intervals: bool = True) -> Fit:
    """Fit a site's coefficients.

    Minimises sum((E_predicted / E_measured - 1)^2) over coefficients >= 0, so that a kernel of
    a millijoule counts as much as one of a kilojoule. Intervals and covariance come from
    resampling whole settings: what the runs of one setting have in common (its true voltage,
    its temperature) is not averaged away by repeating them.

    Raises:
        CantFit: an unknown model, or fewer rows than terms.
    """
    if model not in MODELS:
        raise CantFit(f"unknown model {model!r}; known: {', '.join(MODELS)}")
    terms, dropped = model_terms(data, model)
    if len(data) < len(terms):
        raise CantFit(
            f"{len(data)} measurements can't tell {len(terms)} coefficients apart; "
            f"measure more settings or kernels"
        )
    weighted = design_matrix(data, terms) / data.energy_j[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    used = scale > 0
    dropped = dropped + [
        {"name": term.name, "why": "no measurement has any of it"}
        for term, use in zip(terms, used, strict=True)
        if not use
    ]
    terms = [term for term, use in zip(terms, used, strict=True) if use]
    weighted, scale = weighted[:, used] / scale[used], scale[used]
    value = solve(weighted, np.ones(len(data))) / scale
    covariance = np.full((len(terms), len(terms)), np.nan)
    if intervals:
        covariance = _resampled_covariance(weighted, data.setting) / np.outer(scale, scale)
    n_settings = len(np.unique(data.setting))
    spread = np.sqrt(np.diag(covariance))
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, max(n_settings - 1, 1)) * spread
    return Fit(
        data.site,
        data.simulated,
        model,
        data.voltage,
        len(data),
        n_settings,
        terms,
        value,
        np.maximum(value - reach, 0.0),
        value + reach,
        covariance,
        float(np.linalg.cond(weighted)),
        dropped,
    )


def solve(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """argmin over x >= 0 of |matrix x - target|.

    The rows are first reduced to a triangle, which leaves the minimum where it is.
    """
    if matrix.shape[0] > matrix.shape[1]:
        q, r = linalg.qr(matrix, mode="economic", check_finite=True)
        matrix, target = r, q.T @ target
    found, _ = optimize.nnls(matrix, target, maxiter=30 * matrix.shape[1])
    return np.asarray(found)


def _resampled_covariance(weighted: np.ndarray, setting: np.ndarray) -> np.ndarray:
    """The covariance of the solution over resamples of settings with replacement.

    A resample's normal equations are the sum of its settings' own. The factor S/(S - 1)
    corrects for the resamples being drawn from a sample.
    """
    groups = np.unique(setting)
    size = weighted.shape[1]
    if len(groups) < MIN_SETTINGS_FOR_INTERVALS:
        return np.full((size, size), np.nan)
    resamples = 400 if size <= 40 else 60
    gram = np.stack([weighted[setting == g].T @ weighted[setting == g] for g in groups])
    moment = np.stack([weighted[setting == g].sum(axis=0) for g in groups])
    generator = np.random.default_rng(0)
    found = np.empty((resamples, size))
    for i in range(resamples):
        drawn = np.bincount(
            generator.integers(len(groups), size=len(groups)), minlength=len(groups)
        )
        found[i] = _solve_normal(
            np.tensordot(drawn, gram, axes=1), np.tensordot(drawn, moment, axes=1)
        )
    covariance = np.atleast_2d(np.cov(found, rowvar=False))
    return covariance * len(groups) / (len(groups) - 1)


def _solve_normal(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """argmin over x >= 0 of x' gram x - 2 moment' x, by its factor; a trace of ridge keeps a
    resample that lacks a column solvable."""
    ridge = 1e-12 * max(float(np.trace(gram)) / len(gram), 1e-300)
    factor = linalg.cholesky(gram + ridge * np.eye(len(gram)), lower=False)
    target = linalg.solve_triangular(factor, moment, trans="T")
    found, _ = optimize.nnls(factor, target, maxiter=30 * len(gram))
    return np.asarray(found)


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
    """The coefficients at a setting: c_k V_dom^2 by class, and the power that no operation pays."""
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
    half = float(reach * np.sqrt(max(constant @ found.covariance @ constant, 0.0)))
    interval = (power_w, max(power_w - half, 0.0), power_w + half)
    return SettingCosts(core_mhz, mem_mhz, core_v, mem_v, operation, interval)
