"""failures: the failed attempts by kernel, reason and node, with the last output of each group."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from campaign.verbs.options import add_all, add_json, add_store
from campaign.verbs.printing import (
    MOST_ROWS,
    WIDTH,
    began_text,
    explain,
    print_json,
    print_table,
    say,
    shortened,
)

if TYPE_CHECKING:
    from campaign.results.failures import FailureGroup

SUMMARY = "show what failed by kernel, reason and node, with the last output of one of each"
MORE = (
    "A point that waits is measured again by a campaign that runs, or by the next run; one that "
    "failed is measured again with campaign run --retry-failed only."
)
EXAMPLE = "campaign failures campaign-demo/store"
TEXT_LINES = 8
"""The number of last lines of an output that are printed without ``--all``."""


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--kernel", metavar="K", help="failures of this kernel only")
    parser.add_argument("--node", metavar="N", help="failures on this node only")
    add_all(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the failures by group."""
    from campaign.results import open_store  # noqa: PLC0415

    failures = open_store(arguments.store).failures(arguments.kernel, arguments.node)
    if arguments.json:
        print_json(failures.as_dict())
        return 0
    groups = failures.groups
    if not groups:
        of_kernel = "" if arguments.kernel is None else f" of {arguments.kernel}"
        on_node = "" if arguments.node is None else f" on node {arguments.node}"
        say(f"no attempt{of_kernel}{on_node} has failed")
        return 0
    attempts, failed = failures.count("attempts"), failures.count("failed")
    waiting, measured = failures.count("waiting"), failures.count("measured_since")
    points = failed + waiting + measured
    say(
        f"{attempts} failed attempt{'s' * (attempts != 1)} at {points} "
        f"point{'s' * (points != 1)}: {failed} point{'s' * (failed != 1)} failed, {waiting} "
        f"wait{'s' * (waiting == 1)} for another attempt, {measured} "
        f"{'was' if measured == 1 else 'were'} measured later"
    )
    header = ["kernel", "reason", "node", "site", "attempts", "failed", "waiting", "measured later"]
    rows = [
        [
            shortened(group.kernel, 18),
            group.reason,
            *(shortened(text, 12) for text in (group.node, group.site)),
            *(group.attempts, group.failed, group.waiting, group.measured_since),
        ]
        for group in groups
    ]
    print_table(header, rows, arguments.all)
    for group in groups if arguments.all else groups[:MOST_ROWS]:
        say()
        _print_last(group, arguments.all)
    return 0


def _print_last(group: FailureGroup, every_line: bool) -> None:
    from analysis.figures.labels import setting_label  # noqa: PLC0415

    on_node = f" on node {group.node}" if group.node else ""
    subject = f"{shortened(group.instance.label, 60)} at {setting_label(group.setting)}"
    explain(
        f"{subject}: {group.reason}{on_node}{began_text(group.start_unix_s)}, "
        f"attempt {group.attempt + 1}, point {group.point_id}"
    )
    lines = [
        part
        for line in group.text.splitlines()
        for part in textwrap.wrap(line, WIDTH - 4, break_on_hyphens=False) or [""]
    ]
    left_out = 0 if every_line else max(len(lines) - TEXT_LINES, 0)
    if left_out:
        say(f"    ({left_out} lines before these; --all prints them)")
    for line in lines[left_out:]:
        say(f"    {line}")
