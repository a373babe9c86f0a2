"""roofline: balances, power limits and the regression of a site at one setting."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from campaign.verbs.options import SITE_HELP, add_fit, add_json, add_store
from campaign.verbs.printing import explain, print_json, print_table

if TYPE_CHECKING:
    from campaign.fits import FitSource

SUMMARY = "show balances in time and energy at a setting, and whether racing to halt pays"
EXAMPLE = "campaign roofline campaign-demo/store --site jetson-tk1 --cap-w 15"
MORE = "Energies are those of the stored fit, or else of the regression at that setting."


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    add_store(parser)
    parser.add_argument("--site", required=True, metavar="X", help=SITE_HELP)
    parser.add_argument(
        "--setting", metavar="CORE,MEM", help="in MHz (default: the fastest setting)"
    )
    parser.add_argument(
        "--cap-w", type=float, metavar="W", help="show what a cap on power in watts would do"
    )
    add_fit(parser, None)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print what bounds time, energy and power at a setting."""
    from campaign.results import open_store  # noqa: PLC0415

    result = open_store(arguments.store).roofline(
        arguments.site, arguments.setting, arguments.cap_w, arguments.fit
    )
    if arguments.json:
        print_json(result.as_dict())
    else:
        _print(result.as_dict(), result.source)
    return 0


def _print(shown: dict[str, Any], source: FitSource | None) -> None:
    from analysis.measurements.observations import setting_text  # noqa: PLC0415

    simulated = " (simulated)" if shown["simulated"] else ""
    pairs = shown["pairs"]
    explain(f"{shown['site']}{simulated} at {setting_text((shown['core_mhz'], shown['mem_mhz']))}")
    if source:
        explain(str(source))
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
    explain("")
    explain(
        "balances in operations per byte: B_tau in time, B_eps in energy, B^_eps in energy with "
        "the constant power pi_0; power when only moving data, at most, and when only computing:"
    )
    _columns(
        pairs,
        {
            "B_tau": "time_balance",
            "B_eps": "energy_balance",
            "B^_eps": "effective_balance",
            "B_eps/B_tau": "balance_gap",
            "B^_eps/B_tau": "effective_gap",
            "moving W": "streaming_w",
            "at most W": "most_w",
            "computing W": "computing_w",
        },
    )
    explain("")
    for pair in pairs:
        explain(f"{pair['operation']}/{pair['memory']}: {pair['verdict']}")
    explain("This is about one setting; campaign predict compares settings.")
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
    regression = shown["regression"]
    if regression is None:
        explain(f"\nno regression: {shown['regression_missing']}")
        return
    explain(
        f"\nregression at this setting alone: {regression['n']} measurements, R^2 "
        f"{regression['r_squared']:.5f}, condition number {regression['condition_number']:.3g}"
    )
    columns = ["name", "value", "low", "high", "unit", "p_value"]
    print_table(
        ["coefficient", *columns[1:-1], "p-value"],
        [[row[key] for key in columns] for row in regression["coefficients"]],
    )


def _print_cap(pair: dict[str, Any]) -> None:
    cap = pair["cap"]
    name = f"{pair['operation']}/{pair['memory']}"
    if not cap["binds"]:
        explain(f"\n{name}: a cap of {cap['cap_w']:g} W never binds")
        return
    low, high = cap["from_intensity"], cap["to_intensity"]
    which = f"of {low:.4g} to {high:.4g} op/B" if low > 0 or high < math.inf else "of any intensity"
    explain(f"\n{name}: a cap of {cap['cap_w']:g} W slows kernels {which}")
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
