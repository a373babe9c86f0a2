"""roofline: balances, power limits and the regression of a site at one setting."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.verbs.errors import BadArgument
from campaign.verbs.modelling import kept_fit, site_data
from campaign.verbs.show import print_json, print_table, say

if TYPE_CHECKING:
    from analysis.measurements.observations import Observations
    from analysis.rooflines.regression import CacheEnergy, Regression
    from analysis.rooflines.roofline import Roofline

CAPPED_AT = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The intensities at which a cap's effect is shown, in units of B_tau."""


def roofline(arguments: Namespace) -> int:
    """Print what time, energy and power are bounded by at a setting, and if racing to halt pays."""
    from analysis.measurements.observations import MEMORY_CLASSES, CantFit  # noqa: PLC0415
    from analysis.rooflines.regression import cache_energies, regress  # noqa: PLC0415
    from analysis.rooflines.roofline import pair_points  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    store = open_store(Path(arguments.store))
    data = site_data(store, arguments.site)
    setting = _setting(data, arguments.setting)
    points = pair_points(data, setting)
    if not points:
        here = data.take(data.setting == setting)
        remedy = "measure such, or name another --setting"
        if not here.has_counts.any():
            remedy = "its measurements have no counts of operations and bytes; import them with n_*"
        raise BadArgument(
            f"{arguments.site}: no kernels of one class of operations and one of bytes, at two "
            f"intensities, were measured at {_named(data.settings[setting])} MHz; {remedy}"
        )
    memory = next((name for name in MEMORY_CLASSES if name in data.counts), MEMORY_CLASSES[0])
    regression: Regression | None = None
    missing = ""
    caches: list[CacheEnergy] = []
    try:
        regression = regress(data, setting, memory)
        caches = cache_energies(data, setting, regression)
    except CantFit as error:
        missing = str(error)
    try:
        found = kept_fit(store, arguments.site)
    except BadArgument:
        found = None
    pairs = []
    for each in points:
        line, energy_from = _line(data, (each.operation, each.memory), setting, found, regression)
        pairs.append(_pair(line, len(each.kernels), energy_from, arguments.cap_w))
    core_mhz, mem_mhz = data.settings[setting]
    shown = {
        "site": data.site,
        "simulated": data.simulated,
        "core_mhz": core_mhz,
        "mem_mhz": mem_mhz,
        "pairs": pairs,
        "regression": _regression(regression, caches) if regression else None,
        "regression_missing": missing or None,
    }
    if arguments.json:
        print_json(shown)
    else:
        _print(shown)
    return 0


def _setting(data: Observations, text: str | None) -> int:
    """The index of the setting that ``--setting`` names, or of the fastest."""
    from analysis.rooflines.roofline import fastest_setting  # noqa: PLC0415

    if text is None:
        return fastest_setting(data)
    for index, pair in enumerate(data.settings):
        if text.replace(" ", "") == _named(pair):
            return index
    known = [_named(pair) for pair in data.settings]
    raise BadArgument(
        f"--setting: found {text!r}; must be one that {data.site} was measured at: "
        f"{' '.join(known[:16])}{' ...' if len(known) > 16 else ''}"
    )


def _named(pair: tuple[float, float]) -> str:
    return ",".join(f"{mhz:g}" for mhz in pair if not math.isnan(mhz)) or "as-found"


def _line(
    data: Observations,
    classes: tuple[str, str],
    setting: int,
    found: Any,
    regression: Regression | None,
) -> tuple[Roofline, str | None]:
    """The roofline of two classes, with the energies of the first that has them."""
    from analysis.measurements.observations import CantFit  # noqa: PLC0415
    from analysis.rooflines.roofline import roofline as roofline_of  # noqa: PLC0415

    if found is not None:
        try:
            return roofline_of(data, *classes, setting, found), "fit"
        except CantFit:  # The fit left the class out; the regression may have it.
            pass
    line = roofline_of(data, *classes, setting)
    try:
        return (regression.on(line), "regression") if regression else (line, None)
    except CantFit:
        return line, None


def _pair(
    line: Roofline, kernels: int, energy_from: str | None, cap_w: float | None
) -> dict[str, Any]:
    from analysis.rooflines.roofline import verdict  # noqa: PLC0415

    low_w, most_w, high_w = line.power_limits_w
    shown = {
        "operation": line.operation,
        "memory": line.memory,
        "kernels": kernels,
        "energy_from": energy_from,
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
        "race_to_halt": line.race_to_halt,
        "verdict": verdict(line),
        "streaming_w": low_w,
        "most_w": most_w,
        "computing_w": high_w,
    }
    if cap_w is not None and energy_from is not None:
        shown["cap"] = _capped(line, cap_w)
    return shown


def _capped(line: Roofline, cap_w: float) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415

    from analysis.rooflines.power_cap import CappedRoofline  # noqa: PLC0415

    try:
        capped = CappedRoofline(line, cap_w)
    except ValueError as error:
        raise BadArgument(f"--cap-w: {error}") from None
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
    reach = capped.capped_intensities
    return {
        "cap_w": cap_w,
        "binds": reach is not None,
        "from_intensity": reach[0] if reach else None,
        "to_intensity": reach[1] if reach else None,
        "at": [dict(zip(columns, row, strict=True)) for row in rows],
    }


def _regression(found: Regression, caches: list[CacheEnergy]) -> dict[str, Any]:
    estimates = [
        ("eps_sp", "pJ per flop", 1e12, found.eps_sp_j),
        ("eps_dp", "pJ per flop", 1e12, found.eps_dp_j),
        ("delta_eps_dp", "pJ per flop", 1e12, found.delta_dp_j),
        (f"eps_{found.memory}", "pJ per byte", 1e12, found.eps_mem_j),
        ("pi_0", "W", 1.0, found.constant_w),
        *((f"eps_{each.level}", "pJ per byte", 1e12, each.eps_j) for each in caches),
    ]
    return {
        "n": found.n,
        "r_squared": found.r_squared,
        "condition_number": found.condition_number,
        "coefficients": [
            {
                "name": name,
                "value": each.value * factor,
                "low": each.low * factor,
                "high": each.high * factor,
                "unit": unit,
                "p_value": each.p_value,
            }
            for name, unit, factor, each in estimates
            if each is not None
        ],
        "cache_median_residual_pct": {each.level: 100.0 * each.median_residual for each in caches},
    }


def _print(shown: dict[str, Any]) -> None:
    from analysis.measurements.observations import setting_text  # noqa: PLC0415

    simulated = " (simulated)" if shown["simulated"] else ""
    pairs = shown["pairs"]
    say(f"{shown['site']}{simulated} at {setting_text((shown['core_mhz'], shown['mem_mhz']))}")
    _columns(
        pairs,
        {
            "kernels": "kernels",
            "Gop/s": "gop_s",
            "GB/s": "gb_s",
            "pJ/op": "eps_op_pj",
            "pJ/B": "eps_mem_pj",
            "pi_0 W": "constant_w",
            "energies from": "energy_from",
        },
    )
    say("\nbalances, operations per byte: in time, in energy, in energy with constant power")
    _columns(
        pairs,
        {
            "B_tau": "time_balance",
            "B_eps": "energy_balance",
            "B^_eps": "effective_balance",
            "B_eps/B_tau": "balance_gap",
            "B^_eps/B_tau": "effective_gap",
            "streaming W": "streaming_w",
            "most W": "most_w",
            "computing W": "computing_w",
        },
    )
    say()
    for pair in pairs:
        say(f"{pair['operation']}/{pair['memory']}: {pair['verdict']}")
    _print_regression(shown)
    for pair in pairs:
        if "cap" in pair:
            _print_cap(pair)


def _columns(pairs: list[dict[str, Any]], columns: dict[str, str]) -> None:
    print_table(
        ["pair", *columns],
        [
            [f"{pair['operation']}/{pair['memory']}", *(pair[key] for key in columns.values())]
            for pair in pairs
        ],
    )


def _print_regression(shown: dict[str, Any]) -> None:
    found = shown["regression"]
    if found is None:
        say(f"\nno regression: {shown['regression_missing']}")
        return
    say(
        f"\nregression at this setting alone: {found['n']} measurements, R^2 "
        f"{found['r_squared']:.5f}, condition number {found['condition_number']:.3g}"
    )
    columns = ["name", "value", "low", "high", "unit", "p_value"]
    print_table(
        ["coefficient", *columns[1:-1], "p"],
        [[each[key] for key in columns] for each in found["coefficients"]],
    )


def _print_cap(pair: dict[str, Any]) -> None:
    cap = pair["cap"]
    name = f"{pair['operation']}/{pair['memory']}"
    if not cap["binds"]:
        say(f"\n{name}: a cap of {cap['cap_w']:g} W never binds")
        return
    say(
        f"\n{name}: a cap of {cap['cap_w']:g} W slows kernels of {cap['from_intensity']:.4g} to "
        f"{cap['to_intensity']:.4g} op/B"
    )
    headings = {
        "op/B": "intensity",
        "W": "power_w",
        "capped W": "capped_power_w",
        "Gop/s": "gop_s",
        "capped Gop/s": "capped_gop_s",
        "slower %": "slowdown_pct",
        "Gop/J": "gop_j",
        "capped Gop/J": "capped_gop_j",
    }
    print_table(list(headings), [[row[key] for key in headings.values()] for row in cap["at"]])
