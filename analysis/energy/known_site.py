"""A fit from few measurements and the fit of a site like it: of the same chip, or of its family.

The coefficients are a Gaussian around those of the known site (a Bayesian linear regression with
an informative prior: Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, sections 14.8 and 15.1).
Their prior covariance is

    C + s^2 (diag(x^2) + x x')

with the known coefficients x, their covariance C, and s, how far two such sites are apart: each
coefficient by itself, and all together, as where a meter sits elsewhere. The voltage curves are
those of the known site; where they were estimated, how far they fall from the highest clock may be
off by s too. Each measurement differs from the model by as much as the known site's do
(:mod:`analysis.energy.scatter`).

s is found from the measurements: the mean of its logarithm, given what they are
(:data:`SPREADS`, a wide prior about :data:`USUAL_SPREAD`). Where it is large, the known site
teaches little, and the fit says so.
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
"""Where sites are farther apart, coefficients of one say little about another: at 40 %, a fit from
eight chosen points errs by 2.7 %, and so does one whose coefficients may be anything
(``benchmarks/like_sites.py``)."""
LEAST_NOISE = 1e-6
"""A thousandth, squared: the least that repeats are taken to differ by."""
ANYTHING = 3.0
"""The spread of coefficients that may be anything."""


def fit_like(
    data: Observations, known: Fit, known_data: Observations, known_volts: Volts | None = None
) -> Fit:
    """Fit a site's coefficients, starting from those of a site like it.

    ``known_data``: the measurements of the known fit. ``known_volts``: the voltages of the known
    site's settings, which are taken where the fit has used them and ``data`` has none.

    Raises:
        FitError: there is no measurement, or the known fit does not say how sure it is.
    """
    if not len(data):
        raise FitError("no measurement is left to fit; measure a few points")
    if not np.isfinite(known.deviations).all():
        raise FitError(
            f"the fit of {known.site} does not say how sure it is, for its measurements are at "
            f"fewer than three settings; measure more there, or fit without --like"
        )
    scatter = Scatter.of(known, known_data)
    known = _with_curves(data, known, known_volts or {})
    rows = _Rows.of(data, known, scatter)
    spread = _spread(rows)
    curves = rows.curves(rows.solved(spread))
    rows = _Rows.of(data, known, scatter, curves)
    numbers, covariance = rows.solved(spread), rows.posterior(spread)
    p = len(rows.terms)
    value = numbers[:p]
    deviations = deviations_of(covariance[:p, :p])
    reach = special.ndtri((1 + CONFIDENCE) / 2) * np.sqrt(np.diag(covariance)[:p])
    # What the known site's measurements could not separate, these few can't either.
    known_value = np.append(known.value, np.ones(p - len(known.value)))
    gain = np.where(known_value > 0, value / np.maximum(known_value, 1e-300), 1.0)
    low, high = (np.append(end, np.ones(p - len(end))) * gain for end in (known.low, known.high))
    likeness = Likeness(
        site=known.site,
        spread_pct=100.0 * spread,
        most_spread_pct=100.0 * MOST_SPREAD,
        error_pct=rows.left_out_error_pct(spread),
        as_it_is_error_pct=float(np.mean(np.abs(rows.away)) * 100.0),
        alone_error_pct=rows.left_out_error_pct(ANYTHING),
    )
    return replace(
        known,
        site=data.site,
        simulated=data.simulated or known.simulated,
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
        why=f"that of {known.site}, from whose coefficients this fit starts",
        robust=False,
        outliers=[],
        confounded=[],
        unproven_clocks=data.unproven_clocks or known.unproven_clocks,
        stated_clocks=data.stated_clocks or known.stated_clocks,
        estimated_energies=data.estimated_energies or known.estimated_energies,
        like=likeness,
    )


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The measurements as linear equations, each divided by its energy.

    n rows, p terms, q numbers: the terms' coefficients, and by how much the fall of each
    estimated voltage curve is larger. ``columns``: float64 (n, q); ``noise``: (n, n), the
    covariance of what the model lacks; ``start``: (q,); ``fixed``, ``scaled``: (q, q), the prior
    covariance is fixed + s^2 scaled. ``away``: (n,), 1 less what ``start`` predicts.
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
        cls, data: Observations, known: Fit, scatter: Scatter, curves: Curves | None = None
    ) -> _Rows:
        """``curves``: those to take, which are then not found again."""
        seen = at_voltage(data, known.voltage, curves or known.curves)
        more = _more_terms(seen, known)
        terms = [*known.terms, *more]
        columns = design_matrix(seen, terms) / data.energy_j[:, None]
        p = len(known.terms)
        start = np.concatenate([known.value, np.zeros(len(more))])
        fixed, scaled = np.zeros((2, len(terms), len(terms)))
        fixed[:p, :p] = known.covariance
        scaled[:p, :p] = np.diag(known.value**2) + np.outer(known.value, known.value)
        for i in range(p, len(terms)):
            positive = columns[:, i][columns[:, i] > 0]
            fixed[i, i] = 1.0 / np.median(positive) ** 2 if len(positive) else 0.0
        if curves is None and known.voltage in ESTIMATED:
            of_curves = [
                _by_fall(columns, terms, start, domain, volts)
                for domain, volts in ((CORE, seen.core_v), (MEM, seen.mem_v))
            ]
            columns = np.column_stack([columns, *of_curves])
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
            known_curves=known.curves,
        )

    @property
    def away(self) -> np.ndarray:
        return np.asarray(1.0 - self.columns @ self.start)

    def prior(self, spread: float) -> np.ndarray:
        """(q, q)."""
        return np.asarray(self.fixed + spread**2 * self.scaled)

    def covariance(self, spread: float) -> np.ndarray:
        """Of ``away``, (n, n)."""
        return np.asarray(self.noise + self.columns @ self.prior(spread) @ self.columns.T)

    def log_evidence(self, spread: float) -> float:
        """The logarithm of how likely ``away`` is, but for a constant."""
        held = self.covariance(spread)
        return float(
            -0.5 * (np.linalg.slogdet(held)[1] + self.away @ np.linalg.solve(held, self.away))
        )

    def solved(self, spread: float) -> np.ndarray:
        """The most likely numbers with coefficients >= 0: float64 (q,)."""
        prior = self.prior(spread)
        scale = np.sqrt(np.diag(prior))
        free = scale > 0
        held = (prior / np.outer(scale, scale).clip(1e-300))[np.ix_(free, free)]
        whole = np.linalg.cholesky(held + 1e-9 * np.eye(int(free.sum())))
        root = np.linalg.cholesky(self.noise)
        by_row = np.linalg.solve(root, (self.columns * scale)[:, free])
        by_prior = np.linalg.inv(whole)
        away = np.linalg.solve(root, self.away)
        # The unknowns are how far the numbers are from the start, in standard deviations.
        least = np.full(len(scale), -np.inf)
        p = len(self.terms)
        least[:p] = -self.start[:p] / np.where(free[:p], scale[:p], 1.0)
        solution = optimize.lsq_linear(
            np.vstack([by_row, by_prior]),
            np.concatenate([away, np.zeros(len(by_prior))]),
            bounds=(np.minimum(least[free], -1e-12), np.inf),
        )
        numbers = self.start.copy()
        numbers[free] += solution.x * scale[free]
        numbers[:p] = np.maximum(numbers[:p], 0.0)
        return numbers

    def posterior(self, spread: float) -> np.ndarray:
        """The covariance of the numbers given the rows, (q, q)."""
        prior = self.prior(spread)
        towards = prior @ self.columns.T
        return np.asarray(prior - towards @ np.linalg.solve(self.covariance(spread), towards.T))

    def left_out_error_pct(self, spread: float) -> float | None:
        """Mean relative error of the rows, each predicted from the others, in %.

        From the inverse of their covariance (Rasmussen and Williams 2006, eq. 5.12).
        """
        if len(self.noise) < 2:
            return None
        inverse = np.linalg.inv(self.covariance(spread))
        return float(np.mean(np.abs(inverse @ self.away / np.diag(inverse))) * 100.0)

    def curves(self, numbers: np.ndarray) -> Curves:
        """The known curves, falling from the highest clock as much more as the numbers say."""
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
    """How far the sites are apart: the mean logarithm of s, given the rows."""
    far = np.log(SPREADS / USUAL_SPREAD) / np.log(FACTOR)
    likely = np.array([rows.log_evidence(spread) for spread in SPREADS]) - 0.5 * far**2
    weight = np.exp(likely - likely.max())
    return float(np.exp(weight @ np.log(SPREADS) / weight.sum()))


def _with_curves(data: Observations, known: Fit, known_volts: Volts) -> Fit:
    """The known fit as it applies to ``data``: with the known site's voltages as curves where it
    was fitted with them, and ``data`` has none."""
    if known.voltage in NOT_KNOWN or data.voltage != "unit":
        return known
    known_mhz = clock_columns(known_volts)
    known_v = np.array(list(known_volts.values()), float).reshape(-1, 2)
    curves, tops = [], {}
    for place, domain in enumerate((CORE, MEM)):
        mhz, volts = known_mhz[:, place], known_v[:, place]
        clocks = np.unique(mhz[np.isfinite(mhz)])
        if not len(clocks):
            curves.append(LEVEL)
            tops[domain] = 1.0
            continue
        at = np.array([volts[mhz == clock].mean() for clock in clocks])
        curves.append(VoltageCurve(clocks, at / at[-1]))
        tops[domain] = float(at[-1])
    gain = np.array(
        [tops[CORE] ** term.core_power * tops[MEM] ** term.mem_power for term in known.terms]
    )
    return replace(
        known,
        voltage="free",
        value=known.value * gain,
        low=known.low * gain,
        high=known.high * gain,
        deviations=known.deviations * gain,
        curves=Curves(curves[0], curves[1], NO_CURVES.numbers),
    )


def _more_terms(data: Observations, known: Fit) -> list[Term]:
    """Terms of operations and of kernels that the known site did not have."""
    terms, _ = model_terms(data, known.model, known.voltage in ESTIMATED)
    paid = {(term.pays_for, term.of) for term in known.terms}
    return [
        term for term in terms if term.pays_for != "time" and (term.pays_for, term.of) not in paid
    ]


def _by_fall(
    columns: np.ndarray, terms: list[Term], start: np.ndarray, domain: str, volts: np.ndarray
) -> np.ndarray:
    """How the rows change where a domain's voltage falls faster from the highest clock, (n,)."""
    power = np.array([term.volt_power if term.domain == domain else 0 for term in terms])
    return np.asarray((columns * power) @ start * (1.0 - 1.0 / volts))


def _noise(data: Observations, scatter: Scatter) -> np.ndarray:
    """The covariance of the rows' relative errors: float64 (n, n)."""
    labels = data.labels.tolist()
    of_cell = np.array([scatter.own * scatter.scale.get(label, 1.0) for label in labels])
    noise = np.array([scatter.noise.get(label, 0.0) for label in labels]) + LEAST_NOISE
    if data.energy_std_j is not None:
        noise += np.nan_to_num(data.energy_std_j / data.energy_j) ** 2
    same_kernel = data.kernel[:, None] == data.kernel[None, :]
    same_setting = data.setting[:, None] == data.setting[None, :]
    # Without repeats at the known site a cell's own is noise for the most part.
    same_cell = same_kernel & same_setting if scatter.noise else np.eye(len(data))
    return np.asarray(
        scatter.kernel * same_kernel
        + scatter.setting * same_setting
        + of_cell * same_cell
        + np.diag(noise)
    )


def _grown(matrix: np.ndarray, more: int) -> np.ndarray:
    """A square matrix with as many further rows and columns of zeros."""
    return np.pad(matrix, (0, more))
