"""Prices that predict a site's variants: seconds and joules for each count.

Prices of time are fitted family by family, by non-negative least squares on the relative error.
Prices of energy are fitted to all families together at one setting: constant power, and joules for
each count, by least absolute deviations on a tenth of the variants (Prajapati 2019, section B.7.1);
the other variants judge them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.costs.linear_cost import LEAST_ABSOLUTE, LinearCost, fit_linear_cost
from analysis.costs.stencil_time import PredictionError
from analysis.energy.fitted import Fit
from analysis.measurements.observations import FitError, Observations
from analysis.measurements.variants import CLOCKS, MeasuredVariants
from dvfs.setting import Setting, clock_columns, distinct_settings

TRAINED = 10
"""The fit takes one of so many variants, and at least :data:`FEWEST` for each term."""
FEWEST = 3
TIME_TERM = "constant power"
SEED = 0


@dataclass(frozen=True, kw_only=True)
class EnergyPrices:
    """Prices of energy at one ``setting``: ``cost`` has the constant power, which multiplies the
    measured time, and joules for each count. ``test_error_pct``: root mean square relative error
    of the ``tested`` variants that were not fitted."""

    setting: Setting
    cost: LinearCost
    tested: int
    test_error_pct: float


def fit_times(variants: MeasuredVariants, intervals: bool = True) -> list[LinearCost | None]:
    """Return the prices of time of each family, in the order of ``variants.families``; None where
    too few variants were measured."""
    return [
        _fitted(variants, variants.family == family, intervals)
        for family in range(len(variants.families))
    ]


def times_without(variants: MeasuredVariants, test: np.ndarray) -> np.ndarray:
    """Return times (rows,): those of the rows ``test`` (bool) predicted from the other rows of
    their families; NaN elsewhere, and where these are too few."""
    time_s = np.full(len(variants), np.nan)
    for family in np.unique(variants.family[test]):
        in_family = variants.family == family
        fitted = _fitted(variants, in_family & ~test, False)
        if fitted is not None:
            rows = in_family & test
            time_s[rows] = fitted.of({name: c[rows] for name, c in variants.time_terms.items()})
    return time_s


def _fitted(variants: MeasuredVariants, rows: np.ndarray, intervals: bool) -> LinearCost | None:
    terms = {name: values[rows] for name, values in variants.time_terms.items()}
    try:
        return fit_linear_cost(terms, variants.time_s[rows], intervals=intervals)
    except PredictionError:
        return None


def fit_energies(variants: MeasuredVariants) -> EnergyPrices | None:
    """Return the prices of energy at the setting with the most variants, of several the one with
    the highest clocks; None where too few variants have an energy and counts."""
    has_energy = np.isfinite([variants.energy_j, *variants.counts.values()]).all(axis=0)
    if not has_energy.any():
        return None
    _, setting_index = distinct_settings(*(variants.clocks[name][has_energy] for name in CLOCKS))
    numbers = np.bincount(setting_index)
    best = int(np.flatnonzero(numbers == numbers.max())[-1])
    rows = np.flatnonzero(has_energy)[setting_index == best]
    setting = variants.settings[rows[0]]
    columns = {TIME_TERM: variants.time_s, **variants.counts}
    needed = FEWEST * len(columns)
    rows = np.random.default_rng(SEED).permutation(rows)
    trained = rows[: max(len(rows) // TRAINED, needed)]
    tested = rows[len(trained) :]
    if len(trained) < needed or not len(tested):
        return None
    terms = {name: column[trained] for name, column in columns.items()}
    cost = fit_linear_cost(terms, variants.energy_j[trained], LEAST_ABSOLUTE)
    predicted = cost.of({name: column[tested] for name, column in columns.items()})
    error = np.sqrt(np.mean((predicted / variants.energy_j[tested] - 1.0) ** 2))
    return EnergyPrices(
        setting=setting, cost=cost, tested=len(tested), test_error_pct=error * 100.0
    )


def price_record(cost: LinearCost, unit: str) -> dict[str, Any]:
    """Return prices as a fit's file stores them."""

    def number(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return {
        "n": cost.n,
        "error_pct": cost.error * 100.0,
        "inseparable": [list(group) for group in cost.inseparable],
        "prices": [
            {
                "name": term,
                "value": float(value),
                "unit": "W" if term == TIME_TERM else unit,
                "low": number(low),
                "high": number(high),
            }
            for term, value, low, high in zip(
                cost.terms, cost.value, cost.low, cost.high, strict=True
            )
        ],
    }


def energies_j(
    fitted: Fit,
    data: Observations,
    counts: Mapping[str, np.ndarray],
    time_s: np.ndarray,
    setting: Setting,
    volts: tuple[float, float],
) -> np.ndarray:
    """Return the energies (n,) of variants at one setting (Choi & Vuduc 2016, eq. 9), in J.

    ``data``: the measurements of the fit; ``counts``: the site's classes -> operations (n,);
    ``time_s``: (n,); ``volts``: core and memory voltage at the setting.

    Raises:
        FitError: the variants count a class for which the fit has no coefficient.
    """
    classes = {term.of for term in fitted.terms if term.pays_for == "operation"}
    left_out = {entry["name"].removeprefix("c0_") for entry in fitted.dropped}
    for name, values in counts.items():
        if values.any() and name not in classes | left_out:
            raise FitError(
                f"the fit of {fitted.site} has no class {name!r}; it has "
                f"{', '.join(sorted(classes)) or 'none'}: measure a kernel that counts it, and fit "
                f"again"
            )
    n = len(time_s)
    zero = np.zeros(n)
    (mhz,) = clock_columns([setting])
    rows = replace(
        data.take(np.zeros(n, np.int64)),
        kernel=np.full(n, "", object),
        instances={},
        core_mhz=np.full(n, mhz[0]),
        mem_mhz=np.full(n, mhz[1]),
        core_v=np.full(n, volts[0]),
        mem_v=np.full(n, volts[1]),
        time_s=time_s,
        counts={name: counts.get(name, zero) for name in data.counts},
        setting=np.zeros(n, np.int64),
        settings=[setting],
    )
    return fitted.energy_j(rows)
