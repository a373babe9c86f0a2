"""report: the HTML file that a person reads."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from campaign.verbs.options import add_fit, add_json, add_store
from campaign.verbs.printing import print_computed, say

SUMMARY = "write the report: one HTML file; or print its tables as JSON"
EXAMPLE = "campaign report campaign-demo/store -o report.html"


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="F", help="default: %(default)s"
    )
    add_fit(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Write the report of a store and print the path of the file; or print its tables."""
    from campaign.results import open_store  # noqa: PLC0415
    from dvfs.files import is_stream  # noqa: PLC0415

    store = open_store(arguments.store)
    if arguments.json:
        print_computed(store.report_tables(arguments.fit))
        return 0
    path = store.report(arguments.output, arguments.fit)
    say(f"report: {path}", sys.stderr if is_stream(path) else None)
    return 0
