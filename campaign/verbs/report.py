"""report: the HTML file that a person reads."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from campaign.verbs.errors import CantDo
from campaign.verbs.show import say

SUMMARY = "write the report: one HTML file"
EXAMPLE = "campaign report campaign-demo/store -o report.html"


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``campaign report``."""
    parser.add_argument("store", metavar="S")
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="F", help="default: %(default)s"
    )


def run(arguments: Namespace) -> int:
    """Write the report of a store; prints the path of the file."""
    from analysis.report.page import render  # noqa: PLC0415
    from campaign.reporting import report_content  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    output = Path(arguments.output)
    page = render(report_content(open_store(Path(arguments.store))))
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CantDo(f"{output}: cannot write the report ({error.strerror})") from None
    say(f"report: {output}")
    return 0
