"""The tables of published machines: Choi & Vuduc 2012, tables 2 to 5 and section 4.2."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.report.tables import Field, Row, Sheet
from analysis.rooflines.greenup import work_limits
from analysis.rooflines.platforms import Operation, Platform

MACHINE, CLASS = Field("platform", "platform"), Field("operation", "operation")


def platform_sheets(platforms: Sequence[Platform]) -> list[Sheet]:
    """Peaks, attained fractions, energies, caches, balances and limits of more work."""
    tables = [
        ("platform_peaks", "Stated peak rates", _peaks(platforms)),
        ("platform_attained", "Best attained rates", _attained(platforms)),
        ("platform_energies", "Energies and constant power", _energies(platforms)),
        ("platform_caches", "Energy per byte of caches", _caches(platforms)),
        ("platform_balances", "Balances and power", _balances(platforms)),
        ("platform_more_work", "How much more work pays", _more_work(platforms)),
    ]
    return [Sheet.of(name, caption, False, rows) for name, caption, rows in tables if rows]


def _operation(platform: Platform, operation: str) -> Operation:
    """The numbers of a class of operations, NaN if the platform lacks it."""
    return platform.operations.get(operation, Operation(math.nan, math.nan))


def _peaks(platforms: Sequence[Platform]) -> list[Row]:
    """Table 3: stated peaks and thermal design power."""
    return [
        {
            MACHINE: platform.name,
            Field("model", "model"): platform.model,
            Field("peak_sp_gflops", "single", "Gflop/s", -1): _operation(platform, "sp").gop_s,
            Field("peak_dp_gflops", "double", "Gflop/s", -1): _operation(platform, "dp").gop_s,
            Field("peak_gbs", "memory", "GB/s", -1): platform.gb_s,
            Field("tdp_w", "TDP", "W", -1): platform.tdp_w,
            Field("source", "source"): platform.source,
        }
        for platform in platforms
    ]


def _attained(platforms: Sequence[Platform]) -> list[Row]:
    """Section 4.2: the best rates of the microbenchmarks, and their fractions of the peaks."""
    return [
        {
            MACHINE: platform.name,
            CLASS: name,
            Field("gbs", "memory", "GB/s", -1): peak.attained_gb_s,
            Field("gbs_pct_peak", "of peak", "%", 1): 100.0 * peak.attained_gb_s / platform.gb_s,
            Field("gflops", "operations", "Gflop/s", -1): peak.attained_gop_s,
            Field("gflops_pct_peak", "of peak", "%", 1): 100.0 * peak.attained_gop_s / peak.gop_s,
        }
        for platform in platforms
        for name, peak in platform.operations.items()
        if math.isfinite(peak.attained_gop_s)
    ]


def _energies(platforms: Sequence[Platform]) -> list[Row]:
    """Table 4: energy per flop and byte, and constant power."""
    return [
        {
            MACHINE: platform.name,
            Field("eps_sp_pj", "single", "pJ/flop", -1): _operation(platform, "sp").eps_pj,
            Field("eps_dp_pj", "double", "pJ/flop", -1): _operation(platform, "dp").eps_pj,
            Field("eps_mem_pj", "memory", "pJ/B", -1): platform.eps_mem_pj,
            Field("const_power_w", "constant power", "W", -1): platform.constant_w,
        }
        for platform in platforms
    ]


def _caches(platforms: Sequence[Platform]) -> list[Row]:
    """Table 5: energy per byte of caches and shared memory."""
    return [
        {
            MACHINE: platform.name,
            Field("level", "level"): level,
            Field("eps_pj", "energy", "pJ/B", -1): pj,
        }
        for platform in platforms
        for level, pj in platform.caches_pj.items()
    ]


def _balances(platforms: Sequence[Platform]) -> list[Row]:
    """Table 2 for every machine: times, energies, balances, gaps and the limits of power."""
    return [
        {
            MACHINE: platform.name,
            CLASS: line.operation,
            Field("tau_op_ps", "time", "ps/flop", -1): 1e12 * line.tau_op_s,
            Field("tau_mem_ps", "time", "ps/B", -1): 1e12 * line.tau_mem_s,
            Field("b_tau", "time balance", "flop/B", -1): line.time_balance,
            Field("b_eps", "energy balance", "flop/B", -1): line.energy_balance,
            Field(
                "b_eps_effective", "with constant power", "flop/B", -1
            ): line.half_efficiency_intensity,
            Field("balance_gap", "gap", "", -1): line.balance_gap,
            Field("eta_op_pct", "energy in flops", "%", 1): 100.0 * line.op_efficiency,
            Field("op_power_w", "power of flops", "W", -1): line.op_power_w,
            Field("streaming_w", "moving data", "W", -1): line.power_limits_w[0],
            Field("most_w", "at most", "W", -1): line.power_limits_w[1],
            Field("computing_w", "computing", "W", -1): line.power_limits_w[2],
        }
        for platform in platforms
        for line in map(platform.line, platform.operations)
    ]


def _more_work(platforms: Sequence[Platform]) -> list[Row]:
    """Eqs. 17 and 27 to 29: the upper limits of the factor of operations."""
    return [
        {
            MACHINE: platform.name,
            CLASS: name,
            Field("intensity", "intensity", "flop/B", -1): limits.intensity,
            Field("faster_below_f", "faster", "", -1): limits.faster,
            Field("less_energy_below_f_halved", "half the bytes", "", -1): limits.halved,
            Field("less_energy_below_f_quartered", "a quarter", "", -1): limits.quartered,
            Field("less_energy_below_f_no_bytes", "no bytes", "", -1): limits.no_bytes,
            Field("memory_bound_greenup_low", "greenup from", "", -1): limits.greenup_low,
            Field("memory_bound_greenup_high", "to", "", -1): limits.greenup_high,
        }
        for platform in platforms
        for name in platform.operations
        for limits in work_limits(platform.line(name))
    ]
