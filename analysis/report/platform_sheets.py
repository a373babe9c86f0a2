"""The tables of machines as papers print them: Choi & Vuduc 2012, tables 2 to 5 and section 4.2."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.report.tables import Field, Sheet
from analysis.rooflines.more_work import work_limits
from analysis.rooflines.platforms import Platform

MACHINE, CLASS = Field("platform", "platform"), Field("operation", "operation")


def platform_sheets(platforms: Sequence[Platform]) -> list[Sheet]:
    """Peaks, attained fractions, energies, caches, balances and limits of more work."""
    sheets = [
        peaks_sheet(platforms),
        attained_sheet(platforms),
        energies_sheet(platforms),
        caches_sheet(platforms),
        balances_sheet(platforms),
        work_sheet(platforms),
    ]
    return [sheet for sheet in sheets if sheet.rows]


def peaks_sheet(platforms: Sequence[Platform]) -> Sheet:
    """Table 3: stated peaks and thermal design power."""
    rows: list[list[str | float]] = [
        [
            platform.name,
            platform.model,
            *(
                platform.operations[name].gop_s if name in platform.operations else math.nan
                for name in ("sp", "dp")
            ),
            platform.gb_s,
            platform.tdp_w,
            platform.source,
        ]
        for platform in platforms
    ]
    fields = [
        MACHINE,
        Field("model", "model"),
        Field("peak_sp_gflops", "single", "Gflop/s", -1),
        Field("peak_dp_gflops", "double", "Gflop/s", -1),
        Field("peak_gbs", "memory", "GB/s", -1),
        Field("tdp_w", "TDP", "W", -1),
        Field("source", "source"),
    ]
    return Sheet("platform_peaks", "Stated peak rates", False, fields, rows)


def attained_sheet(platforms: Sequence[Platform]) -> Sheet:
    """Section 4.2: the best of the microbenchmarks, and their fractions of the peaks."""
    rows: list[list[str | float]] = [
        [
            platform.name,
            name,
            of.attained_gb_s,
            100.0 * of.attained_gb_s / platform.gb_s,
            of.attained_gop_s,
            100.0 * of.attained_gop_s / of.gop_s,
        ]
        for platform in platforms
        for name, of in platform.operations.items()
        if math.isfinite(of.attained_gop_s)
    ]
    fields = [
        MACHINE,
        CLASS,
        Field("gbs", "memory", "GB/s", -1),
        Field("gbs_pct_peak", "of peak", "%", 1),
        Field("gflops", "operations", "Gflop/s", -1),
        Field("gflops_pct_peak", "of peak", "%", 1),
    ]
    return Sheet("platform_attained", "Best attained rates", False, fields, rows)


def energies_sheet(platforms: Sequence[Platform]) -> Sheet:
    """Table 4: energy per flop and byte, and constant power."""
    rows: list[list[str | float]] = [
        [
            platform.name,
            *(
                platform.operations[name].eps_pj if name in platform.operations else math.nan
                for name in ("sp", "dp")
            ),
            platform.eps_mem_pj,
            platform.constant_w,
        ]
        for platform in platforms
    ]
    fields = [
        MACHINE,
        Field("eps_sp_pj", "single", "pJ/flop", -1),
        Field("eps_dp_pj", "double", "pJ/flop", -1),
        Field("eps_mem_pj", "memory", "pJ/B", -1),
        Field("const_power_w", "constant power", "W", -1),
    ]
    return Sheet("platform_energies", "Energies and constant power", False, fields, rows)


def caches_sheet(platforms: Sequence[Platform]) -> Sheet:
    """Table 5: energy per byte of caches and shared memory."""
    rows: list[list[str | float]] = [
        [platform.name, level, pj]
        for platform in platforms
        for level, pj in platform.caches_pj.items()
    ]
    fields = [MACHINE, Field("level", "level"), Field("eps_pj", "energy", "pJ/B", -1)]
    return Sheet("platform_caches", "Energy per byte of caches", False, fields, rows)


def balances_sheet(platforms: Sequence[Platform]) -> Sheet:
    """Table 2 for every machine: times, energies, balances, gaps and the limits of power."""
    rows: list[list[str | float]] = []
    for platform in platforms:
        for name in platform.operations:
            line = platform.line(name)
            rows.append(
                [
                    platform.name,
                    name,
                    1e12 * line.tau_op_s,
                    1e12 * line.tau_mem_s,
                    line.time_balance,
                    line.energy_balance,
                    line.half_efficiency_intensity,
                    line.balance_gap,
                    100.0 * line.op_efficiency,
                    line.op_power_w,
                    *line.power_limits_w,
                ]
            )
    fields = [
        MACHINE,
        CLASS,
        Field("tau_op_ps", "time", "ps/flop", -1),
        Field("tau_mem_ps", "time", "ps/B", -1),
        Field("b_tau", "time balance", "flop/B", -1),
        Field("b_eps", "energy balance", "flop/B", -1),
        Field("b_eps_effective", "with constant power", "flop/B", -1),
        Field("balance_gap", "gap", "", -1),
        Field("eta_op_pct", "energy in flops", "%", 1),
        Field("op_power_w", "power of flops", "W", -1),
        Field("streaming_w", "moving data", "W", -1),
        Field("most_w", "at most", "W", -1),
        Field("computing_w", "computing", "W", -1),
    ]
    return Sheet("platform_balances", "Balances and power", False, fields, rows)


def work_sheet(platforms: Sequence[Platform]) -> Sheet:
    """Eqs. 17 and 27 to 29: what the factor of more operations must stay below."""
    rows: list[list[str | float]] = [
        [
            platform.name,
            name,
            limits.intensity,
            limits.faster,
            limits.halved,
            limits.quartered,
            limits.no_bytes,
            limits.greenup_low,
            limits.greenup_high,
        ]
        for platform in platforms
        for name in platform.operations
        for limits in work_limits(platform.line(name))
    ]
    fields = [
        MACHINE,
        CLASS,
        Field("intensity", "intensity", "flop/B", -1),
        Field("faster_below_f", "faster", "", -1),
        Field("less_energy_below_f_halved", "half the bytes", "", -1),
        Field("less_energy_below_f_quartered", "a quarter", "", -1),
        Field("less_energy_below_f_no_bytes", "no bytes", "", -1),
        Field("memory_bound_greenup_low", "greenup from", "", -1),
        Field("memory_bound_greenup_high", "to", "", -1),
    ]
    return Sheet("platform_more_work", "How much more work pays", False, fields, rows)
