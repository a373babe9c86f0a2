"""compare: what changed between two stores, or in one before and after a change."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from campaign.verbs.options import add_all, add_json, add_store
from campaign.verbs.printing import (
    explain,
    marked,
    mhz_text,
    print_json,
    print_table,
    say,
    shortened,
)
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    from analysis.comparison.changes import Change
    from campaign.results.comparison import Comparison

SUMMARY = "compare two stores, two sites, or one before and after a change of driver or firmware"
MORE = (
    "Points that both have are compared by the ratios of their times and energies, with intervals "
    "from the noise of repeats, nodes and drift. What is significant is corrected for the number "
    "of comparisons (Benjamini-Hochberg): between equal stores, 5 % of the comparisons at most "
    "report a change."
)
EXAMPLE = "campaign compare campaign-demo/store campaign-demo/store --fail-above 1"


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("other", nargs="?", metavar="B", help="the store to compare S with")
    parser.add_argument(
        "--before",
        metavar="X",
        help="of one store: what was measured before this date (UTC), or the set-ups with these "
        "ids, with commas (default: all that is not --after)",
    )
    parser.add_argument(
        "--after",
        metavar="X",
        help="of one store: what was measured since this date (UTC), or the set-ups with these "
        "ids, with commas (default: all that is not --before)",
    )
    parser.add_argument(
        "--site",
        action="append",
        metavar="X",
        help="twice: of one store, compare the second site with the first at common settings, or "
        "without any at the highest clocks of each",
    )
    parser.add_argument(
        "--fail-above",
        type=float,
        metavar="PCT",
        help="end with 1 where a time or an energy has risen significantly, by more than PCT %%",
    )
    parser.add_argument(
        "--alike-nodes",
        action="store_true",
        help="treat all nodes as equal where the two sides were measured on different ones",
    )
    add_all(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the comparison; return 1 where there is a regression above ``--fail-above``."""
    from campaign.results import open_store  # noqa: PLC0415

    limit = arguments.fail_above
    if limit is not None and not limit >= 0.0:
        raise ArgumentError(f"--fail-above: found {limit:g}; must be 0 or more, such as 2.5")
    second_store = None if arguments.other is None else open_store(arguments.other)
    comparison = open_store(arguments.store).compare(
        second_store,
        before=arguments.before,
        after=arguments.after,
        sites=arguments.site,
        alike_nodes=arguments.alike_nodes,
    )
    regressions = [] if limit is None else comparison.regressions(limit)
    if arguments.json:
        print_json(comparison.as_dict())
    else:
        _print(comparison, arguments.all)
        if limit is not None:
            say()
            explain(f"{len(regressions)} significant increases of more than {limit:g} %")
    return 1 if regressions else 0


def _print(comparison: Comparison, every_row: bool) -> None:
    explain(f"before: {comparison.before}")
    explain(f"after: {comparison.after}")
    names = {site.site: marked(site.site, site.simulated) for site in comparison.sites}
    for site in comparison.sites:
        noise = ", ".join(
            f"{quantity} {_pct(value)} (drift between repeats of the plan {_pct(drift)})"
            for (quantity, value), drift in zip(
                site.noise_pct.items(), site.drift_pct.values(), strict=True
            )
            if math.isfinite(value)
        )
        explain(
            f"{names[site.site]}: {site.common} points in both, {site.only_before} only before, "
            f"{site.only_after} only after; noise of one measurement: {noise or 'not known'}"
        )
        for note in site.notes:
            explain(f"  {note}")
    if comparison.setup_changes:
        say("what changed in the set-ups (measurements):")
    for change in comparison.setup_changes:
        explain(f"  {change}")
    for level, title in (("site", "sites"), ("kernel", "kernels"), ("point", "points")):
        at_level = [change for change in comparison.changes if change.level == level]
        significant = [change for change in at_level if change.significant]
        say()
        say(f"{title}: {len(significant)} of {len(at_level)} ratios changed significantly")
        shown = at_level if every_row or level == "site" else significant
        if shown:
            ordered = sorted(shown, key=lambda c: (not c.significant, -abs(math.log(c.ratio))))
            _print_changes(ordered, level, names, every_row)


def _print_changes(
    changes: Sequence[Change], level: str, names: dict[str, str], every_row: bool
) -> None:
    def row(change: Change) -> list[Any]:
        place = [shortened(names[change.site], 22)]
        place += [shortened(change.kernel, 24)] if level != "site" else []
        if level == "point":
            place += [mhz_text(Setting.of_row(vars(change)))]
        limits = ((limit - 1.0) * 100.0 for limit in (change.low, change.high))
        numbers = [f"{value:+.2f}" if math.isfinite(value) else "-" for value in limits]
        p = f"{change.adjusted_p:.2g}" if math.isfinite(change.adjusted_p) else "-"
        verdict = "yes" if change.significant else "no"
        return [*place, change.quantity, f"{change.change_pct:+.2f}", *numbers, p, verdict]

    where = ["site", *(["kernel"] if level != "site" else []), *(["MHz"] * (level == "point"))]
    header = [*where, "quantity", "change %", "95 % from", "to", "p corrected", "significant"]
    print_table(header, [row(change) for change in changes], every_row)


def _pct(value: float) -> str:
    return f"{value:.2g} %" if math.isfinite(value) else "not known"
