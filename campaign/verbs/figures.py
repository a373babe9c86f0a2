"""figures: every figure and table of a site as files for a paper."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from campaign.errors import BadArgument, CannotDo
from campaign.verbs.options import add_store, read_setting
from campaign.verbs.printing import say

SUMMARY = "write every figure and table as files for a paper"
EXAMPLE = "campaign figures campaign-demo/store --site jetson-tk1 -o figures"
MORE = "Figures as SVG, PDF and PNG, tables as CSV and LaTeX (booktabs)."


def add_arguments(parser: ArgumentParser) -> None:
    """The arguments of ``campaign figures``."""
    add_store(parser)
    parser.add_argument("--site", metavar="X", help="one site (default: all)")
    parser.add_argument(
        "-o", "--output", default="figures", metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--cap-w", type=float, metavar="W", help="draw a cap on power in watts into the rooflines"
    )
    parser.add_argument(
        "--setting", metavar="CORE,MEM", help="the rooflines' setting (default: the fastest)"
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="CORE,MEM",
        help="a setting that the holdout fits on (repeat; default: a random half)",
    )


def run(arguments: Namespace) -> int:
    """Write the figures and tables; prints a line for each file."""
    from campaign.reporting import report_content, write_figures  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    content = report_content(
        open_store(Path(arguments.store)),
        arguments.site,
        train=[read_setting(text, "--train") for text in arguments.train or []],
        setting=read_setting(arguments.setting, "--setting") if arguments.setting else None,
    )
    if not content.sites:
        raise BadArgument(
            f"{arguments.store}: no measurements"
            + (f" of site {arguments.site!r}" if arguments.site else "")
            + "; run a campaign, or import a table"
        )
    written = 0
    try:
        for file in write_figures(content, Path(arguments.output), arguments.cap_w):
            say(f"{file.path}{' (simulated)' if file.simulated else ''}")
            written += 1
    except OSError as error:
        raise CannotDo(f"{error.filename}: cannot write ({error.strerror})") from None
    for site in content.sites:
        if site.why_no_fit:
            say(f"{site.site}: no energy model: {site.why_no_fit}")
    if not written:
        raise CannotDo("nothing to draw; the lines above say why")
    return 0
