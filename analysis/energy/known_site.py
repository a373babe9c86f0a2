"""A fit from few measurements and the fit of a site like it: of the same chip, or of its family.

The coefficients are a Gaussian around those of the known site (a Bayesian linear regression with
an informative prior: Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, sections 14.8 and 15.1).
Their prior covariance is

    C + s^2 (diag(x^2) + x x')

with the known coefficients x, their covariance C, and s, the relative difference of two such sites:
of each coefficient by itself, and of all together, as by a meter at another place. The voltage
curves are the known site's; where they were estimated, their fall from the highest clock may differ
by s too. Measurements scatter about the model as the known site's do
(:mod:`analysis.energy.scatter`).

s comes from the posterior mean of its logarithm, given the measurements (:data:`SPREADS`, a wide
prior about :data:`USUAL_SPREAD`). Where s is large, the known site helps little, and the fit says
so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, special

from analysis.energy.curves import LEVEL, NO_CURVES, Curves, VoltageCurve, at_voltage
from analysis.energy.fitted import CONFIDENCE, Fit, deviations_of
from analysis.energy.likeness import Likeness
from analysis.energy.models import ESTIMATED, NOT_KNOWN
from analysis.energy.scatter import Scatter
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.energy.terms.term import CORE, MEM, Term
from analysis.energy.voltage import LOWEST_V
from analysis.measurements.observations import FitError, Observations
from dvfs.setting import Volts, clock_columns

SPREADS = np.geomspace(0.005, 1.0, 25)
USUAL_SPREAD, FACTOR = 0.15, 3.0
"""The prior of s: log-normal, one standard deviation a factor."""
MOST_SPREAD = 0.25
"""Where sites differ more, coefficients of one say little about another: at 40 %, a fit from eight
chosen points errs by 2.7 %, and so does one with unrestricted coefficients
(``benchmarks/like_sites.py``)."""
LEAST_NOISE = 1e-6
"""The least variance of repeats: a thousandth, squared."""
ANYTHING = 3.0
"""The spread of coefficients that are in effect unrestricted."""


def fit_like(
    data: Observations, known_fit: Fit, known_data: Observations, known_volts: Volts | None = None
) -> Fit:
    """Fit a site's coefficients, starting from the fit of a site like it.

    ``known_data``: the measurements of the known fit. ``known_volts``: the voltages of the known
    site's settings, used where that fit used them and ``data`` has none, or where only one of the
    sites has memory voltages.

    Raises:
        FitError: there is no measurement, or the known fit has no intervals.
    """
    if not len(data):
        raise FitError("no measurement is left to fit; measure a few points")
    if not np.isfinite(known_fit.deviations).all():
        raise FitError(
            f"the fit of {known_fit.site} does not say how sure it is, for its measurements are at "
            f"fewer than three settings; measure more there, or fit without --like"
        )
    scatter = Scatter.of(known_fit, known_data)
    if data.voltage == "unit" or data.mem_volts_known != known_data.mem_volts_known:
        known_fit = _with_curves(known_fit, known_volts or {})
    rows = _Rows.of(data, known_fit, scatter)
    spread = _spread(rows)
    curves = rows.curves(rows.solved(spread))
    rows = _Rows.of(data, known_fit, scatter, curves)
    numbers, covariance = rows.solved(spread), rows.posterior(spread)
    p = len(rows.terms)
    value = numbers[:p]
    deviations = deviations_of(covariance[:p, :p])
    reach = special.ndtri((1 + CONFIDENCE) / 2) * np.sqrt(np.diag(covariance)[:p])
    # These few measurements cannot separate what the known site's could not.
    start_value = np.append(known_fit.value, np.ones(p - len(known_fit.value)))
    gain = np.where(start_value > 0, value / np.maximum(start_value, 1e-300), 1.0)
    low, high = (
        np.append(end, np.ones(p - len(end))) * gain for end in (known_fit.low, known_fit.high)
    )
    likeness = Likeness(
        site=known_fit.site,
        spread_pct=100.0 * spread,
        most_spread_pct=100.0 * MOST_SPREAD,
        error_pct=rows.left_out_error_pct(spread),
        as_it_is_error_pct=float(np.mean(np.abs(rows.residual)) * 100.0),
        alone_error_pct=rows.left_out_error_pct(ANYTHING),
    )
    return replace(
        known_fit,
        site=data.site,
        simulated=data.simulated or known_fit.simulated,
        n=len(data),
        n_settings=len(np.unique(data.setting)),
        terms=rows.terms,
        value=value,
        low=np.maximum(np.minimum(value - reach, low), 0.0),
        high=np.maximum(value + reach, high),
        deviations=deviations,
        deviations_with_choice=deviations,
        freedom=np.inf,
        condition_number=np.nan,
        curves=curves,
        tried=[],
        why=f"that of {known_fit.site}, from whose coefficients this fit starts",
        robust=False,
        outliers=[],
        confounded=[],
        unproven_clocks=data.unproven_clocks or known_fit.unproven_clocks,
        stated_clocks=data.stated_clocks or known_fit.stated_clocks,
        estimated_energies=data.estimated_energies or known_fit.estimated_energies,
        like=likeness,
    )


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The measurements as linear equations, each divided by its energy.

    n rows, p terms, q unknowns: the terms' coefficients, and the relative change of the fall of
    each estimated voltage curve. ``columns``: float64 (n, q); ``noise``: (n, n), the covariance of
    the model's errors; ``start``: (q,), the prior mean; ``fixed``, ``scaled``: (q, q), the prior
    covariance is fixed + s^2 scaled. ``residual``: (n,), 1 less the prediction by ``start``.
    """

    terms: list[Term]
    columns: np.ndarray
    noise: np.ndarray
    start: np.ndarray
    fixed: np.ndarray
    scaled: np.ndarray
    known_curves: Curves

    @classmethod
    def of(
        cls, data: Observations, known_fit: Fit, scatter: Scatter, curves: Curves | None = None
    ) -> _Rows:
        """``curves``: the voltage curves to use; None: ``known_fit``'s, with unknowns."""
        voltage_data = at_voltage(data, known_fit.voltage, curves or known_fit.curves)
        further_terms = _more_terms(voltage_data, known_fit)
        terms = [*known_fit.terms, *further_terms]
        columns = design_matrix(voltage_data, terms) / data.energy_j[:, None]
        p = len(known_fit.terms)
        start = np.concatenate([known_fit.value, np.zeros(len(further_terms))])
        fixed, scaled = np.zeros((2, len(terms), len(terms)))
        fixed[:p, :p] = known_fit.covariance
        scaled[:p, :p] = np.diag(known_fit.value**2) + np.outer(known_fit.value, known_fit.value)
        for i in range(p, len(terms)):
            positive = columns[:, i][columns[:, i] > 0]
            fixed[i, i] = 1.0 / np.median(positive) ** 2 if len(positive) else 0.0
        if curves is None and known_fit.voltage in ESTIMATED:
            curve_columns = [
                _by_fall(columns, terms, start, domain, volts)
                for domain, volts in ((CORE, voltage_data.core_v), (MEM, voltage_data.mem_v))
            ]
            columns = np.column_stack([columns, *curve_columns])
            start = np.concatenate([start, np.zeros(2)])
            fixed, scaled = (_grown(matrix, 2) for matrix in (fixed, scaled))
            scaled[-2:, -2:] = np.eye(2)
        noise = _noise(data, scatter)
        return cls(
            terms=terms,
            columns=columns,
            noise=noise,
            start=start,
            fixed=fixed,
            scaled=scaled,
            known_curves=known_fit.curves,
        )

    @property
    def residual(self) -> np.ndarray:
        return np.asarray(1.0 - self.columns @ self.start)

    def prior(self, spread: float) -> np.ndarray:
        """Return the prior covariance, (q, q)."""
        return np.asarray(self.fixed + spread**2 * self.scaled)

    def covariance(self, spread: float) -> np.ndarray:
        """Return the covariance of ``residual``, (n, n)."""
        return np.asarray(self.noise + self.columns @ self.prior(spread) @ self.columns.T)

    def log_evidence(self, spread: float) -> float:
        """Return the log density of ``residual``, up to a constant."""
        covariance, residual = self.covariance(spread), self.residual
        square = residual @ np.linalg.solve(covariance, residual)
        return float(-0.5 * (np.linalg.slogdet(covariance)[1] + square))

    def solved(self, spread: float) -> np.ndarray:
        """Return the most likely unknowns with coefficients >= 0: float64 (q,)."""
        prior = self.prior(spread)
        scale = np.sqrt(np.diag(prior))
        free = scale > 0
        correlation = (prior / np.outer(scale, scale).clip(1e-300))[np.ix_(free, free)]
        prior_root = np.linalg.cholesky(correlation + 1e-9 * np.eye(int(free.sum())))
        noise_root = np.linalg.cholesky(self.noise)
        by_row = np.linalg.solve(noise_root, (self.columns * scale)[:, free])
        by_prior = np.linalg.inv(prior_root)
        residual = np.linalg.solve(noise_root, self.residual)
        # Solve for the distance from the start, in prior standard deviations.
        least = np.full(len(scale), -np.inf)
        p = len(self.terms)
        least[:p] = -self.start[:p] / np.where(free[:p], scale[:p], 1.0)
        solution = optimize.lsq_linear(
            np.vstack([by_row, by_prior]),
            np.concatenate([residual, np.zeros(len(by_prior))]),
            bounds=(np.minimum(least[free], -1e-12), np.inf),
        )
        numbers = self.start.copy()
        numbers[free] += solution.x * scale[free]
        numbers[:p] = np.maximum(numbers[:p], 0.0)
        return numbers

    def posterior(self, spread: float) -> np.ndarray:
        """Return the covariance of the unknowns given the rows, (q, q)."""
        prior = self.prior(spread)
        cross = prior @ self.columns.T
        return np.asarray(prior - cross @ np.linalg.solve(self.covariance(spread), cross.T))

    def left_out_error_pct(self, spread: float) -> float | None:
        """Return the mean relative error of the rows, each predicted from the others, in %.

        From the inverse of their covariance (Rasmussen and Williams 2006, eq. 5.12).
        """
        if len(self.noise) < 2:
            return None
        inverse = np.linalg.inv(self.covariance(spread))
        return float(np.mean(np.abs(inverse @ self.residual / np.diag(inverse))) * 100.0)

    def curves(self, numbers: np.ndarray) -> Curves:
        """Return the known curves, their falls from the highest clock changed by ``numbers``."""
        if len(numbers) == len(self.terms):
            return self.known_curves
        core, mem = (
            VoltageCurve(curve.mhz, np.clip(1.0 - (1.0 + more) * (1.0 - curve.volt), LOWEST_V, 1.0))
            for curve, more in zip(
                (self.known_curves.core, self.known_curves.mem), numbers[-2:], strict=True
            )
        )
        return Curves(core, mem, np.zeros(0))


def _spread(rows: _Rows) -> float:
    """Return s, the difference of the sites, by the mean of its logarithm given the rows."""
    deviation = np.log(SPREADS / USUAL_SPREAD) / np.log(FACTOR)
    likely = np.array([rows.log_evidence(spread) for spread in SPREADS]) - 0.5 * deviation**2
    weight = np.exp(likely - likely.max())
    return float(np.exp(weight @ np.log(SPREADS) / weight.sum()))


def _with_curves(known_fit: Fit, known_volts: Volts) -> Fit:
    """Return the known fit with the known site's voltages as curves where it was fitted with
    them."""
    if known_fit.voltage in NOT_KNOWN:
        return known_fit
    known_mhz = clock_columns(known_volts)
    known_v = np.array(list(known_volts.values()), float).reshape(-1, 2)
    curves, tops = [], {}
    for column, domain in enumerate((CORE, MEM)):
        mhz, volts = known_mhz[:, column], known_v[:, column]
        clocks = np.unique(mhz[np.isfinite(mhz)])
        if not len(clocks):
            curves.append(LEVEL)
            tops[domain] = 1.0
            continue
        clock_volts = np.array([volts[mhz == clock].mean() for clock in clocks])
        curves.append(VoltageCurve(clocks, clock_volts / clock_volts[-1]))
        tops[domain] = float(clock_volts[-1])
    gain = np.array(
        [tops[CORE] ** term.core_power * tops[MEM] ** term.mem_power for term in known_fit.terms]
    )
    return replace(
        known_fit,
        voltage="free",
        value=known_fit.value * gain,
        low=known_fit.low * gain,
        high=known_fit.high * gain,
        deviations=known_fit.deviations * gain,
        curves=Curves(curves[0], curves[1], NO_CURVES.numbers),
    )


def _more_terms(data: Observations, known_fit: Fit) -> list[Term]:
    """Return the terms of operations and kernels that the known site lacks."""
    terms, _ = model_terms(data, known_fit.model, known_fit.voltage in ESTIMATED)
    paid = {(term.pays_for, term.of) for term in known_fit.terms}
    return [
        term for term in terms if term.pays_for != "time" and (term.pays_for, term.of) not in paid
    ]


def _by_fall(
    columns: np.ndarray, terms: list[Term], start: np.ndarray, domain: str, volts: np.ndarray
) -> np.ndarray:
    """Return the derivative of the rows by the fall of a domain's voltage from the highest clock,
    (n,)."""
    power = np.array([term.volt_power if term.domain == domain else 0 for term in terms])
    return np.asarray((columns * power) @ start * (1.0 - 1.0 / volts))


def _noise(data: Observations, scatter: Scatter) -> np.ndarray:
    """Return the covariance of the rows' relative errors: float64 (n, n)."""
    labels = data.labels.tolist()
    cell_variance = np.array([scatter.cell * scatter.scale.get(label, 1.0) for label in labels])
    noise = np.array([scatter.noise.get(label, 0.0) for label in labels]) + LEAST_NOISE
    noise += np.nan_to_num(data.energy_std_j / data.energy_j) ** 2
    same_kernel = data.kernel[:, None] == data.kernel[None, :]
    same_setting = data.setting[:, None] == data.setting[None, :]
    # Without repeats at the known site the scatter of cells is mostly noise.
    same_cell = same_kernel & same_setting if scatter.noise else np.eye(len(data))
    return np.asarray(
        scatter.kernel * same_kernel
        + scatter.setting * same_setting
        + cell_variance * same_cell
        + np.diag(noise)
    )


def _grown(matrix: np.ndarray, more: int) -> np.ndarray:
    """Return a square matrix with ``more`` further rows and columns of zeros."""
    return np.pad(matrix, (0, more))
