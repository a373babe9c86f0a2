"""The classic energy roofline regression at one setting, with the energies of caches.

Choi & Vuduc 2012, eqs. 9 to 12: linear least squares on measurements at one setting, without
voltages. :mod:`analysis.energy.fit` fits all settings together; this is for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.energy.fitted import CONFIDENCE
from analysis.measurements.observations import FitError, Observations, setting_text
from analysis.rooflines.roofline import Roofline

MOST_CONDITION = 1e6
"""The condition number of unit-length columns above which coefficients cannot be separated."""
CACHE_LEVELS = ("l3", "l2", "l1", "shared")
"""The classes of bytes between memory and operations, the outermost first."""


@dataclass(frozen=True)
class Estimate:
    """A coefficient with its 95 % interval, in the coefficient's unit.

    ``p_value``: the probability of a value at least this far from 0 if the coefficient is 0
    (two-sided t test). The interval and the p-value are NaN without more rows than coefficients.
    """

    value: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Regression:
    """The coefficients of eq. 9 at one setting.

    ``eps_sp_j``, ``eps_dp_j``: J per flop, None for a precision that was not measured;
    ``delta_dp_j``: eps_dp - eps_sp, None unless both were measured; ``eps_mem_j``: J per byte of
    ``memory``; ``constant_w``: pi_0, W. ``r_squared``: of E / W about its mean. ``n``: rows.
    ``condition_number``: of the regressors, each scaled to length 1.
    """

    memory: str
    eps_sp_j: Estimate | None
    eps_dp_j: Estimate | None
    delta_dp_j: Estimate | None
    eps_mem_j: Estimate
    constant_w: Estimate
    r_squared: float
    n: int
    condition_number: float

    @property
    def eps_op_j(self) -> dict[str, float]:
        """Class of operations -> J per operation, for the measured classes."""
        by_class = {"sp": self.eps_sp_j, "dp": self.eps_dp_j}
        return {name: eps_j.value for name, eps_j in by_class.items() if eps_j is not None}

    def on(self, line: Roofline) -> Roofline:
        """The line with these energies (the model instantiation of section 4.2).

        Raises:
            FitError: the regression lacks an energy of the line's classes, or it is below 0.
        """
        eps_op_j = self.eps_op_j
        if line.operation not in eps_op_j or line.memory != self.memory:
            raise FitError(f"the regression has no energies of {line.operation} and {line.memory}")
        used = {
            f"an operation of {line.operation}": eps_op_j[line.operation],
            f"a byte of {line.memory}": self.eps_mem_j.value,
            "constant power": self.constant_w.value,
        }
        if negative := [name for name, value in used.items() if value < 0.0]:
            raise FitError(
                f"the regression at this setting puts {' and '.join(negative)} below 0, so these "
                f"measurements do not determine the energies; measure more intensities, or fit "
                f"several settings with campaign fit"
            )
        return replace(
            line,
            eps_op_j=eps_op_j[line.operation],
            eps_mem_j=self.eps_mem_j.value,
            constant_w=self.constant_w.value,
        )


@dataclass(frozen=True)
class CacheEnergy:
    """The energy of a byte of one cache level: ``eps_j``, J per byte.

    ``median_residual``: the median over the fitted rows of |modelled / measured energy - 1|, as in
    section 4.3. The interval ignores the uncertainty of the regression's coefficients.
    """

    level: str
    eps_j: Estimate
    median_residual: float


def regress(data: Observations, setting: int, memory: str = "dram") -> Regression:
    """Eq. 9 by ordinary least squares: E/W = eps_s + eps_mem Q/W + pi_0 T/W + delta eps_d R.

    ``setting``: index into ``data.settings``. The rows are those at the setting whose kernels have
    operations of one precision and bytes of ``memory``, and nothing else; R is 1 for double
    precision. The last term needs both precisions. As in the paper, coefficients may be negative.
    Each repeat of a kernel is a row.

    Intervals and p-values are those of least squares, for equal errors in E / W. Errors of meters
    are relative, so kernels with many bytes per operation outweigh the others, and the interval of
    eps_op in particular can be too narrow; :func:`analysis.energy.fit.fit` weights each row by its
    energy.

    Raises:
        FitError: too few such rows, or rows that cannot separate the coefficients; the message
            names the kernels that would.
    """
    from statsmodels.regression.linear_model import OLS  # noqa: PLC0415

    counts = _counts(data)
    flops = {name: counts.get(name, np.zeros(len(data))) for name in ("sp", "dp")}
    moved = counts.get(memory, np.zeros(len(data)))
    other_counts = sum(n for name, n in counts.items() if name not in ("sp", "dp", memory))
    one_precision = (flops["sp"] > 0) != (flops["dp"] > 0)
    rows = (data.setting == setting) & one_precision & (moved > 0) & ~(np.asarray(other_counts) > 0)
    where = f"{data.site} at {setting_text(data.settings[setting])}"
    remedy = (
        f"measure kernels of sp or dp operations and {memory} bytes alone, at intensities "
        f"well below and well above the time balance"
    )
    work = (flops["sp"] + flops["dp"])[rows]
    is_double = (flops["dp"] > 0)[rows]
    columns = [np.ones(len(work)), moved[rows] / work, data.time_s[rows] / work]
    has_both = bool(is_double.any() and not is_double.all())
    if has_both:
        columns.append(is_double.astype(float))
    if len(work) < len(columns):
        raise FitError(
            f"{where}: the {len(columns)} coefficients of the regression cannot be fitted to "
            f"{len(work)} measurements; {remedy}"
        )
    matrix = np.column_stack(columns)
    # Joules and seconds per operation are of the order of 1e-12: unscaled, statsmodels' rank and
    # condition would depend on the units.
    scale = np.linalg.norm(matrix, axis=0)
    condition = float(np.linalg.cond(matrix / scale))
    if condition > MOST_CONDITION:
        raise FitError(
            f"{where}: time and bytes rise together in these {len(work)} measurements (condition "
            f"number {condition:.2g}), so constant power cannot be separated; {remedy}"
        )
    energy_j = data.energy_j[rows] / work
    unit = float(np.mean(energy_j))
    result = OLS(energy_j / unit, matrix / scale).fit()
    contrasts = {"eps": [1, 0, 0], "mem": [0, 1, 0], "constant": [0, 0, 1]}
    if has_both:
        contrasts = {name: [*row, 0] for name, row in contrasts.items()}
        contrasts |= {"delta": [0, 0, 0, 1], "dp": [1, 0, 0, 1]}
    estimates = {
        name: _estimate(result, np.array(row) / scale, unit) for name, row in contrasts.items()
    }
    only_double = bool(is_double.all())
    return Regression(
        memory=memory,
        eps_sp_j=None if only_double else estimates["eps"],
        eps_dp_j=estimates["eps"] if only_double else estimates.get("dp"),
        delta_dp_j=estimates.get("delta"),
        eps_mem_j=estimates["mem"],
        constant_w=estimates["constant"],
        r_squared=float(result.rsquared),
        n=len(work),
        condition_number=condition,
    )


def cache_energies(data: Observations, setting: int, regression: Regression) -> list[CacheEnergy]:
    """The energy of a byte of each cache level, from the regression's residual (eqs. 11, 12).

    The rows of a level are those at ``setting`` of kernels that have bytes of it and otherwise only
    counts whose energy is known: operations, bytes of ``regression.memory`` and of outer levels.
    The ratio of eqs. 11 and 12 is fitted by least squares on the relative error; for one row this
    is the equation. A level without rows is omitted.
    """
    from statsmodels.regression.linear_model import OLS  # noqa: PLC0415

    counts = _counts(data)
    caches: list[CacheEnergy] = []
    for level in CACHE_LEVELS:
        terms = {*regression.eps_op_j, regression.memory, level, *(cache.level for cache in caches)}
        other_counts = np.asarray(sum(n for name, n in counts.items() if name not in terms))
        bytes_moved = counts.get(level, np.zeros(len(data)))
        rows = np.flatnonzero((data.setting == setting) & (bytes_moved > 0) & ~(other_counts > 0))
        if not len(rows):
            continue
        measured = data.take(rows)
        residual_j = measured.energy_j - modelled_energy_j(measured, regression, caches)
        result = OLS(residual_j / measured.energy_j, bytes_moved[rows] / measured.energy_j).fit()
        eps_j = _estimate(result, np.ones(1), 1.0)
        relative = np.abs(residual_j - eps_j.value * bytes_moved[rows]) / measured.energy_j
        caches.append(CacheEnergy(level, eps_j, float(np.median(relative))))
    return caches


def modelled_energy_j(
    data: Observations, regression: Regression, caches: Sequence[CacheEnergy] = ()
) -> np.ndarray:
    """Eq. 10: W eps_flop + Q eps_mem + sum Q_cache eps_cache + pi_0 T, J: float64 (rows,).

    T is measured. Classes of unknown energy add nothing.
    """
    eps_j = regression.eps_op_j | {regression.memory: regression.eps_mem_j.value}
    eps_j |= {cache.level: cache.eps_j.value for cache in caches}
    energy_j = regression.constant_w.value * data.time_s
    for name, n in _counts(data).items():
        energy_j = energy_j + eps_j.get(name, 0.0) * n
    return energy_j


def _counts(data: Observations) -> dict[str, np.ndarray]:
    """The counts of every class, 0 if unknown."""
    return {name: np.nan_to_num(values) for name, values in data.counts.items()}


def _estimate(result: Any, contrast: np.ndarray, unit: float) -> Estimate:
    """A linear combination of a statsmodels result's coefficients, in units of ``unit``."""
    value = float(contrast @ result.params) * unit
    if result.df_resid < 1:
        return Estimate(value, np.nan, np.nan, np.nan)
    tested = result.t_test(contrast)
    low, high = (tested.conf_int(alpha=1.0 - CONFIDENCE)[0] * unit).tolist()
    return Estimate(value, low, high, float(tested.pvalue))
