"""report: the HTML file that a person reads."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from campaign.verbs.options import add_fit, add_store
from campaign.verbs.printing import say

SUMMARY = "write the report: one HTML file"
EXAMPLE = "campaign report campaign-demo/store -o report.html"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``campaign report``."""
    add_store(parser)
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="F", help="default: %(default)s"
    )
    add_fit(parser)


def run(arguments: Namespace) -> int:
    """Write the report of a store; prints the path of the file."""
    from campaign.results import open_store  # noqa: PLC0415
    from dvfs.files import is_stream  # noqa: PLC0415

    path = open_store(arguments.store).report(arguments.output, arguments.fit)
    say(f"report: {path}", sys.stderr if is_stream(path) else None)
    return 0
