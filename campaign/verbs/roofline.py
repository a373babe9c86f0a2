"""roofline: balances, power limits and the regression of a site at one setting."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from campaign.verbs.options import add_fit, add_json, add_site, add_store, store_and_site
from campaign.verbs.printing import answer, explain, marked, print_fields, print_json, print_table
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    from analysis.rooflines.greenup import Trade
    from campaign.results.fits import FitSource

SUMMARY = "show peaks and balances at a setting, and whether fast kernels are efficient there"
EXAMPLE = """campaign roofline campaign-demo/store --site jetson-tk1 --cap-w 15
  campaign roofline --platform gtx-580 --trade 2,1.5,4"""
MORE = (
    "A balance is the number of operations per byte at which computing and moving data take "
    "equally long (balance in time), or cost equal energy (balance in energy). Fast is "
    "efficient: a kernel that computes as fast as it can has at least half of the best energy "
    "efficiency at this setting (predict says whether another setting takes less). Energies are "
    "those of the kept fit, or else of a regression on the measurements at this setting alone. "
    "--platform shows a machine of a paper or of a platform file in place of a site of a store."
)
MOST_PAIRS = 3
"""The most pairs of classes for which the table of more work has every intensity, and is shown even
with a cap."""


TRADE_KEYS = ("intensity", "f", "m", "speedup", "greenup", "powerup", "case", "saves")


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser, needed=False)
    add_site(parser)
    parser.add_argument(
        "--setting", metavar="CORE,MEM", help="in MHz (default: the fastest setting)"
    )
    parser.add_argument(
        "--cap-w",
        type=float,
        metavar="W",
        help="also show which kernels a limit on power, in watts, would slow down, and by how much",
    )
    add_fit(parser, None)
    parser.add_argument(
        "--platform",
        nargs="?",
        const="",
        metavar="P",
        help="a machine as papers print it; without a name: list them; or a platform file (.toml)",
    )
    parser.add_argument(
        "--trade",
        action="append",
        metavar="I,F,M",
        help="speedup, greenup and powerup of an algorithm of I operations per byte that does F "
        "times the operations on a part 1/M of the bytes (repeat)",
    )
    parser.add_argument(
        "--refined",
        metavar="KERNEL",
        help="the peak of a kernel's mix of instructions (fmm_u), measured on this node, or with "
        "--platform gtx-580 by what it issues",
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the bounds of time, energy and power at a setting."""
    if arguments.refined is not None:
        return _run_refined(arguments)
    if arguments.platform is not None:
        return _run_platform(arguments)
    if not arguments.store:
        raise ArgumentError("roofline: name a store, or a paper's machine with --platform")
    store, site = store_and_site(arguments)
    result = store.roofline(
        site,
        arguments.setting,
        arguments.cap_w,
        arguments.fit,
        _trades(arguments),
    )
    return answer(arguments.json, result.as_dict, lambda: _print(result.as_dict(), result.source))


def _names_a_store(arguments: Namespace) -> bool:
    return bool(arguments.store or arguments.site or arguments.setting or arguments.fit)


def _run_refined(arguments: Namespace) -> int:
    if _names_a_store(arguments):
        raise ArgumentError("--refined: takes no store, --site, --setting or --fit")
    from campaign.results.rooflines import refined_peaks  # noqa: PLC0415

    rows = refined_peaks(arguments.refined, arguments.platform or None)
    if arguments.json:
        print_json(rows)
        return 0
    where = arguments.platform or "this node, one thread"
    explain(
        f"{arguments.refined} on {where}: Gflop/s of multiply-adds alone, the most that the mix of "
        f"instructions allows, and a loop of this mix that loads nothing"
    )
    print_fields(
        rows,
        {
            "root": "root",
            "ways": "ways",
            "flops": "flops",
            "multiply-adds": "multiply_adds_gflop_s",
            "refined": "refined_gflop_s",
            "% of it": "refined_pct",
            "loop": "loop_gflop_s",
        },
    )
    return 0


def _run_platform(arguments: Namespace) -> int:
    if _names_a_store(arguments):
        raise ArgumentError(
            "--platform: shows a machine of a paper, without a store, --site, --setting or --fit; "
            "campaign figures S --platform P draws both"
        )
    if not arguments.platform:
        return _list_platforms(arguments.json)
    from campaign.results.rooflines import platform_roofline  # noqa: PLC0415

    shown = platform_roofline(arguments.platform, arguments.cap_w, _trades(arguments)).as_dict()
    return answer(arguments.json, lambda: shown, lambda: _print_platform(shown))


def _trades(arguments: Namespace) -> list[Trade]:
    from analysis.rooflines.greenup import Trade  # noqa: PLC0415

    trades = []
    for text in arguments.trade or []:
        try:
            intensity, f, m = map(float, text.split(","))
        except ValueError:
            intensity = f = m = math.nan
        if not (0.0 < intensity < math.inf and 1.0 <= f < math.inf and m >= 1.0):
            raise ArgumentError(
                f"--trade: found {text!r}; write I,F,M: operations per byte (above 0), times the "
                f"operations (1 or more), and by what the bytes are divided (1 or more, or inf), "
                f"such as 2,1.5,4"
            )
        trades.append(Trade(intensity, f, m))
    return trades


def _list_platforms(as_json: bool) -> int:
    from analysis.rooflines.platforms import platform_summaries  # noqa: PLC0415

    rows = platform_summaries()
    table = [
        [row["platform"], row["model"], ", ".join(row["operations"]), row["source"]] for row in rows
    ]
    header = ["platform", "model", "classes", "source"]
    return answer(as_json, lambda: rows, lambda: print_table(header, table))


def _print_platform(shown: dict[str, Any]) -> None:
    explain(f"{shown['platform']}: {shown['model']}; {shown['source']}")
    if shown["note"]:
        explain(shown["note"])
    pairs = shown["pairs"]
    _columns(
        pairs,
        {
            "Gop/s": "gop_s",
            "attained Gop/s": "attained_gop_s",
            "% of Gop/s": "attained_op_pct",
            "GB/s": "gb_s",
            "attained GB/s": "attained_gb_s",
            "% of GB/s": "attained_mem_pct",
            "pJ/op": "eps_op_pj",
            "pJ/B": "eps_mem_pj",
            "pi_0 W": "constant_w",
        },
    )
    _print_lines(pairs)
    for level, pj in shown["caches_pj"].items():
        explain(f"bytes of {level}: {pj:g} pJ/B")
    tdp_w = shown["tdp_w"]
    for pair in pairs:
        if pair["most_w"] > tdp_w:
            explain(
                f"{_name(pair)}: the model's most power of "
                f"{pair['most_w']:.4g} W is above the stated thermal design power of {tdp_w:g} W; "
                f"--cap-w shows what a cap does"
            )
    for pair in pairs:
        if "cap" in pair:
            _print_cap(pair)


def _print(shown: dict[str, Any], source: FitSource | None) -> None:
    from analysis.measurements.observations import setting_text  # noqa: PLC0415
    from campaign.results.fits import ESTIMATED_ENERGIES  # noqa: PLC0415

    pairs = shown["pairs"]
    site = marked(shown["site"], shown["simulated"])
    explain(f"{site} at {setting_text(Setting.of_row(shown))}")
    if source:
        explain(str(source))
    elif shown["estimated_energies"]:
        explain(ESTIMATED_ENERGIES)
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
    _print_lines(pairs)
    explain("This is about one setting; campaign predict compares settings.")
    _print_regression(shown)
    for pair in pairs:
        if "cap" in pair:
            _print_cap(pair)


def _print_lines(pairs: list[dict[str, Any]]) -> None:
    """Print what a site and a platform have in common: balances, verdicts, and more work."""
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
        explain(f"{_name(pair)}: {pair['verdict']}")
        if pair.get("energy_missing"):
            explain(f"{_name(pair)}: {pair['energy_missing']}")
    _print_trades(pairs)
    if len(pairs) <= MOST_PAIRS or not any("cap" in pair for pair in pairs):
        _print_more_work([pair for pair in pairs if pair["more_work"]])


def _print_trades(pairs: list[dict[str, Any]]) -> None:
    rows = [
        [_name(pair), *(row[key] for key in TRADE_KEYS)]
        for pair in pairs
        for row in pair.get("trades", [])
    ]
    if rows:
        explain("\nf times the operations on a part 1/m of the bytes:")
        print_table(["pair", "op/B", *TRADE_KEYS[1:]], rows)


def _print_more_work(pairs: list[dict[str, Any]]) -> None:
    if not pairs:
        return
    explain("")
    explain(
        "more operations for fewer bytes: a change saves time or energy if it takes less than so "
        "many times the operations; with no bytes at all, this is also the greatest greenup (how "
        "many times less energy); the last column: the greenup of a change that stays memory-bound:"
    )
    rows = []
    for pair in pairs:
        limits = pair["more_work"]
        for limit in limits if len(pairs) <= MOST_PAIRS else limits[1:3]:
            low, high = limit["memory_bound_greenup_low"], limit["memory_bound_greenup_high"]
            rows.append(
                [
                    _name(pair),
                    limit["intensity"],
                    limit["faster_below_f"],
                    *limit["less_energy_below_f"].values(),
                    "-" if math.isnan(low) else f"{low:.3g} to {high:.3g}",
                ]
            )
    print_table(["pair", "op/B", "time", "energy: bytes/2", "bytes/4", "no bytes", "greenup"], rows)
    if len(pairs) <= MOST_PAIRS:
        for pair in pairs:
            explain(f"{_name(pair)}: {pair['work_advice']}")


def _columns(pairs: list[dict[str, Any]], columns: dict[str, str]) -> None:
    print_fields([{"pair": _name(pair), **pair} for pair in pairs], {"pair": "pair", **columns})


def _name(pair: dict[str, Any]) -> str:
    return f"{pair['operation']}/{pair['memory']}"


def _print_regression(shown: dict[str, Any]) -> None:
    regression = shown["regression"]
    if regression is None:
        explain(f"\nno regression: {shown['regression_missing']}")
        return
    explain(
        f"\nregression at this setting alone: {regression['n']} measurements, R^2 "
        f"{regression['r_squared']:.5f}, condition number {regression['condition_number']:.3g}"
    )
    columns = {"coefficient": "name"} | {key: key for key in ("value", "low", "high", "unit")}
    print_fields(regression["coefficients"], columns | {"p-value": "p_value"})
    below = [row["name"] for row in regression["coefficients"] if math.isnan(row["value"])]
    if below:
        explain(
            f"not determined by these measurements (least squares gives less than 0): "
            f"{', '.join(below)}"
        )


def _print_cap(pair: dict[str, Any]) -> None:
    cap = pair["cap"]
    name = _name(pair)
    if not cap["binds"]:
        explain(f"\n{name}: a cap of {cap['cap_w']:g} W never binds")
        return
    low, high = cap["from_intensity"], cap["to_intensity"]
    which = f"of {low:.4g} to {high:.4g} op/B" if low > 0 or high < math.inf else "of any intensity"
    explain(f"\n{name}: a cap of {cap['cap_w']:g} W slows kernels {which}")
    print_fields(
        cap["at"],
        {
            "op/B": "intensity",
            "W": "power_w",
            "capped W": "capped_power_w",
            "Gop/s": "gop_s",
            "capped Gop/s": "capped_gop_s",
            "slower %": "slowdown_pct",
            "Gop/J": "gop_j",
            "capped Gop/J": "capped_gop_j",
        },
    )
