"""The rooflines of a site at one setting, and the regression there, as plain numbers for output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from analysis.energy.fitted import Fit
from analysis.measurements.observations import FitError, Observations, setting_text
from analysis.rooflines.greenup import Trade, traded, work_advice, work_limits
from analysis.rooflines.power_cap import CappedRoofline
from analysis.rooflines.regression import (
    CacheEnergy,
    Estimate,
    Regression,
    cache_energies,
    regress,
)
from analysis.rooflines.roofline import Roofline, pair_rooflines, verdict
from dvfs.dataset import MEMORY_CLASSES

CAPPED_AT = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The intensities of the rows that show a cap's effect, in units of B_tau."""


class NoPairsError(Exception):
    """No pair of classes was measured at several intensities; the message has the remedy."""


def rooflines_at(
    data: Observations,
    setting: int,
    fit: Fit | None,
    cap_w: float | None = None,
    trades: Sequence[Trade] = (),
) -> dict[str, Any]:
    """The rooflines of every pair of classes at a setting: ``campaign roofline --json``.

    ``setting``: index into ``data.settings``. ``fit``: the source of the energies; without it, or
    for classes that it lacks, the regression at that setting. ``cap_w``: add the effect of a cap on
    power. ``trades``: add the effects of these changes.

    Raises:
        NoPairsError: no kernels of one class of operations and one of bytes, at two intensities.
        CapError: a cap that is not above the constant power.
    """
    lines = pair_rooflines(data, setting, fit)
    if not lines:
        at_setting = data.take(data.setting == setting)
        remedy = "measure such kernels, or name another setting"
        if not at_setting.has_counts.any():
            remedy = "its measurements have no counts of operations and bytes; import them as n_*"
        raise NoPairsError(
            f"a roofline needs kernels that count one class of operations and one of bytes, at two "
            f"intensities; none was measured at {setting_text(data.settings[setting])}; {remedy}"
        )
    memory = next((name for name in MEMORY_CLASSES if name in data.counts), MEMORY_CLASSES[0])
    regression: Regression | None = None
    missing = None
    caches: list[CacheEnergy] = []
    try:
        regression = regress(data, setting, memory)
        caches = cache_energies(data, setting, regression)
    except FitError as error:
        missing = str(error)
    pairs = []
    for points, fitted in lines:
        line, energy_from, reason = _with_energies(fitted, regression, missing)
        origin = {
            "kernels": len(points.kernels),
            "energy_from": energy_from,
            "energy_missing": reason,
        }
        pairs.append(line_as_dict(line, cap_w if energy_from else None, trades) | origin)
    return {
        "site": data.site,
        "simulated": data.simulated,
        **data.settings[setting].as_dict(),
        "pairs": pairs,
        "regression": _regression(regression, caches) if regression else None,
        "regression_missing": missing,
    }


def _with_energies(
    line: Roofline, regression: Regression | None, missing: str | None
) -> tuple[Roofline, str | None, str | None]:
    """A roofline, with the energies of the regression if it has none of a fit; their source
    (``fit``, ``regression`` or None); and if None the reason, ``missing`` without a regression."""
    if not math.isnan(line.eps_op_j):
        return line, "fit", None
    if regression is None:
        return line, None, missing
    try:
        return regression.on(line), "regression", None
    except FitError as error:
        return line, None, str(error)


def line_as_dict(
    line: Roofline, cap_w: float | None = None, trades: Sequence[Trade] = ()
) -> dict[str, Any]:
    """A roofline as plain numbers: peaks, energies, balances, power, and limits of more work.

    ``cap_w``, ``trades``: as in :func:`rooflines_at`.

    Raises:
        CapError: a cap that is not above the constant power.
    """
    low_w, most_w, high_w = line.power_limits_w
    entries = {
        "operation": line.operation,
        "memory": line.memory,
        "gop_s": 1e-9 / line.tau_op_s,
        "gb_s": 1e-9 / line.tau_mem_s,
        "eps_op_pj": 1e12 * line.eps_op_j,
        "eps_mem_pj": 1e12 * line.eps_mem_j,
        "constant_w": line.constant_w,
        "time_balance": line.time_balance,
        "energy_balance": line.energy_balance,
        "effective_balance": line.half_efficiency_intensity,
        "balance_gap": line.balance_gap,
        "effective_gap": line.effective_gap,
        "fast_is_efficient": line.fast_is_efficient,
        "verdict": verdict(line),
        "streaming_w": low_w,
        "most_w": most_w,
        "computing_w": high_w,
        "more_work": [limits.as_dict() for limits in work_limits(line)],
        "work_advice": work_advice(line),
    }
    if trades:
        entries["trades"] = [traded(line, trade) for trade in trades]
    if cap_w is not None:
        entries["cap"] = _capped(line, cap_w)
    return entries


def _capped(line: Roofline, cap_w: float) -> dict[str, Any]:
    """The effect of a cap: its range of intensities, and rows at :data:`CAPPED_AT`."""
    capped = CappedRoofline(line, cap_w)
    intensity = line.time_balance * np.array(CAPPED_AT)
    columns = {
        "intensity": intensity,
        "power_w": line.power_w(intensity),
        "capped_power_w": capped.power_w(intensity),
        "gop_s": 1e-9 * line.speed_ops_s(intensity),
        "capped_gop_s": 1e-9 * capped.speed_ops_s(intensity),
        "slowdown_pct": 100.0 * (capped.slowdown(intensity) - 1.0),
        "gop_j": 1e-9 * line.efficiency_ops_j(intensity),
        "capped_gop_j": 1e-9 * capped.efficiency_ops_j(intensity),
    }
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    interval = capped.capped_intensities
    return {
        "cap_w": cap_w,
        "binds": interval is not None,
        "from_intensity": interval[0] if interval else None,
        "to_intensity": interval[1] if interval else None,
        "at": [dict(zip(columns, row, strict=True)) for row in rows],
    }


def _estimate(estimate: Estimate, factor: float, signed: bool) -> dict[str, float]:
    """A coefficient in another unit. ``signed``: it may be negative; otherwise a negative value
    shows that the measurements do not determine it, and all its numbers are NaN."""
    if estimate.value < 0.0 and not signed:
        estimate = Estimate(np.nan, np.nan, np.nan, np.nan)
    return {
        "value": estimate.value * factor,
        "low": estimate.low * factor if signed else max(estimate.low * factor, 0.0),
        "high": estimate.high * factor,
        "p_value": estimate.p_value,
    }


def _regression(regression: Regression, caches: list[CacheEnergy]) -> dict[str, Any]:
    estimates = [
        ("eps_sp", "pJ per flop", 1e12, regression.eps_sp_j),
        ("eps_dp", "pJ per flop", 1e12, regression.eps_dp_j),
        ("delta_eps_dp", "pJ per flop", 1e12, regression.delta_dp_j),
        (f"eps_{regression.memory}", "pJ per byte", 1e12, regression.eps_mem_j),
        ("pi_0", "W", 1.0, regression.constant_w),
        *((f"eps_{cache.level}", "pJ per byte", 1e12, cache.eps_j) for cache in caches),
    ]
    return {
        "n": regression.n,
        "r_squared": regression.r_squared,
        "condition_number": regression.condition_number,
        "coefficients": [
            {"name": name, "unit": unit, **_estimate(estimate, factor, name.startswith("delta"))}
            for name, unit, factor, estimate in estimates
            if estimate is not None
        ],
        "cache_median_residual_pct": {
            cache.level: 100.0 * cache.median_residual for cache in caches
        },
    }
