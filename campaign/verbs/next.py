"""next: the points that would improve the picks most, as a campaign file."""

from __future__ import annotations

import math
import shlex
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import options
from campaign.verbs.printing import explain, marked, mhz_text, print_json, print_table, say
from dvfs.errors import ArgumentError, UnsupportedError, reason
from dvfs.setting import Setting

if TYPE_CHECKING:
    from campaign.next.next_points import NextPoint, NextPoints

SUMMARY = "choose the measurements that would improve the picks most, as a campaign file"
MORE = (
    "The first five settings lie far from each other. After these, each point is the one whose "
    "measurement is expected to make the picks lose less, for its node-hours."
)
REASONS = {
    "spread": "to have settings far from each other",
    "pick": "to improve picks",
    "repeat": "measured again to improve picks",
    "anchor": "measured again to show a drift",
}
"""Reason of a choice -> its text."""
EXAMPLE = "campaign next campaign-demo/store --site jetson-tk1 --budget 2 --points 50"


def add_arguments(parser: ArgumentParser) -> None:
    options.add_store(parser)
    options.add_site(parser)
    parser.add_argument(
        "--budget",
        type=float,
        required=True,
        metavar="HOURS",
        help="the most node-hours that the points may take, by the estimate of campaign plan",
    )
    parser.add_argument("--points", type=int, metavar="N", help="at most N points")
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="K",
        help="only for this kernel of the campaign file (repeat for several)",
    )
    options.add_objective(parser)
    parser.add_argument(
        "--enough",
        type=float,
        default=0.5,
        metavar="PCT",
        help="choose nothing more once the picks are expected to lose at most this, in %%, on "
        "average (default: %(default)s)",
    )
    parser.add_argument(
        "--only-planned",
        action="store_true",
        help="choose among the settings of the campaign file (default: all legal ones of the site)",
    )
    parser.add_argument(
        "--like",
        metavar="SITE",
        help="choose the points that tell most of how the site differs from SITE, a site of the "
        "same chip or family that has a fit; for campaign fit --like",
    )
    parser.add_argument(
        "--anchors",
        type=int,
        default=4,
        metavar="N",
        help="measure up to N points again that were measured before, at most a tenth of all, so "
        "that campaign fit can warn of a drift; none with --like (default: %(default)s)",
    )
    parser.add_argument(
        "--campaign",
        metavar="C.toml",
        help="the campaign file with the kernels and the protocol (default: the one that was run "
        "last)",
    )
    parser.add_argument(
        "--partition",
        metavar="P",
        help="where to measure (default: the first partition of the campaign file)",
    )
    parser.add_argument("--output", metavar="F", help="write the campaign file to F")
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Choose the points; 0 also where there is nothing to measure."""
    from campaign.next.next_points import next_points  # noqa: PLC0415

    if not 0.0 < arguments.budget < math.inf:
        raise ArgumentError(f"--budget: found {arguments.budget:g}; must be node-hours above 0")
    if arguments.points is not None and arguments.points < 1:
        raise ArgumentError(f"--points: found {arguments.points}; must be 1 or more")
    if not arguments.enough >= 0.0:
        raise ArgumentError(f"--enough: found {arguments.enough:g}; must be 0 or more, in %")
    if arguments.anchors < 0:
        raise ArgumentError(f"--anchors: found {arguments.anchors}; must be 0 or more")
    store, site = options.store_and_site(arguments)
    output = Path(arguments.output) if arguments.output else None
    chosen = next_points(
        store,
        site,
        budget_h=arguments.budget,
        most=arguments.points,
        partition=arguments.partition,
        kernels=arguments.kernel,
        objective=arguments.objective,
        enough_pct=arguments.enough,
        only_planned=arguments.only_planned,
        like=arguments.like,
        anchors=arguments.anchors,
        campaign_file=Path(arguments.campaign) if arguments.campaign else None,
        beside=None if output is None else output.parent,
    )
    if output is not None and chosen.points:
        _write(output, chosen.campaign)
    if arguments.json:
        print_json(chosen.as_dict())
        return 0
    if chosen.like is None:
        _print_chosen(chosen)
    else:
        _print_like(chosen)
    if output is None and chosen.points:
        explain("to get them as a campaign file, add: --output next.toml")
    elif output is not None and chosen.points:
        command = f"campaign run {shlex.quote(str(output))} --store {shlex.quote(arguments.store)}"
        say(f"{output}: written; to measure these points: {command}")
    return 0


def _write(path: Path, text: str) -> None:
    from dvfs.files import write_output  # noqa: PLC0415

    try:
        write_output(path, text)
    except OSError as error:
        raise UnsupportedError(
            f"--output {path}: cannot be written: {reason(error, path)}"
        ) from None


def _planned(chosen: NextPoints) -> str:
    where = marked(f"{chosen.site}/{chosen.partition}", chosen.simulated)
    return (
        f"{where}: {chosen.kernels} kernels at {chosen.settings} settings, {chosen.measured:,} of "
        f"{chosen.planned:,} points measured"
    )


def _print_like(chosen: NextPoints) -> None:
    from analysis.energy.known_site import USUAL_SPREAD  # noqa: PLC0415

    explain(f"{_planned(chosen)}; like {chosen.like}")
    if chosen.points:
        rows = []
        for point in chosen.points:
            params = [f"{name}={v}" for name, v in point.params.items() if v is not None]
            rows.append([" ".join([point.kernel, *params]), _setting(point), point.node_hours])
        print_table(["kernel", "MHz", "node-hours"], rows)
    explain(
        f"{len(chosen.points)} points, {chosen.node_hours:.3g} node-hours; with them, fit --like "
        f"{chosen.like} is expected to err {chosen.error_ratio:.2f} times as much as a fit of all "
        f"points, where coefficients are about {100 * USUAL_SPREAD:.0f} % apart"
    )
    if not chosen.points:
        explain("nothing more is chosen: these are enough, or --budget holds none")


def _print_chosen(chosen: NextPoints) -> None:
    explain(f"{_planned(chosen)}; objective {chosen.objective}")
    if chosen.points:
        by_setting = Counter(map(_setting, chosen.points))
        hours: dict[str, float] = defaultdict(float)
        for point in chosen.points:
            hours[_setting(point)] += point.node_hours
        print_table(
            ["MHz", "kernels", "node-hours"],
            [[setting, count, hours[setting]] for setting, count in by_setting.most_common()],
        )
        count = Counter(point.why for point in chosen.points)
        reasons = ", ".join(f"{count[why]} {text}" for why, text in REASONS.items() if count[why])
        explain(f"{len(chosen.points)} points, {chosen.node_hours:.3g} node-hours: {reasons}")
    explain(_losses(chosen))


def _losses(chosen: NextPoints) -> str:
    now, then, more = chosen.expected_loss_pct, chosen.then_loss_pct, chosen.more_loss_pct
    if now is None or then is None or more is None:
        if chosen.points:
            return "what the picks lose can be said once five settings are measured"
        return "nothing is left to measure here"
    text = f"the picks are expected to lose {now:.2f} % on average now"
    if chosen.points:
        text += f", {then:.2f} % after these points"
    if chosen.ended == "settled":
        return f"{text}; no further measurement is expected to change a pick"
    if chosen.ended == "enough":
        return f"{text}; that is at most --enough, so no more is chosen"
    return f"{text}, and {more:.2f} % after one node-hour more"


def _setting(point: NextPoint) -> str:
    return mhz_text(Setting.of_row(vars(point)))
