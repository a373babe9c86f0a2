"""figures: every figure and table of a site as files for a paper."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs.options import add_fit, add_store, read_setting
from campaign.verbs.printing import marked, say
from dvfs.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from analysis.report.content import ReportContent

SUMMARY = "write every figure and table as files for a paper"
EXAMPLE = """campaign figures campaign-demo/store --site jetson-tk1 -o figures
  campaign figures fmm-store --kernel fmm --fitted-on campaign-demo/store -o figures
  campaign figures --platform gtx-580 --platform gtx-680 -o figures"""
MORE = (
    "Figures as SVG, PDF and PNG, tables as CSV and LaTeX (booktabs). --platform draws machines of "
    "papers, without a store or beside its sites."
)


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser, needed=False)
    parser.add_argument("--site", metavar="X", help="one site (default: all)")
    parser.add_argument(
        "-o", "--output", default="figures", metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--format",
        action="append",
        choices=("svg", "pdf", "png"),
        help="of the figures (repeat; default: all)",
    )
    parser.add_argument(
        "--cap-w", type=float, metavar="W", help="draw a cap on power in watts into the rooflines"
    )
    parser.add_argument(
        "--setting",
        metavar="CORE,MEM",
        help="of the rooflines and the energies by class (default: the fastest)",
    )
    parser.add_argument(
        "--kernel",
        action="append",
        metavar="K",
        help="only this kernel, by its name without parameters (repeat; default: all)",
    )
    parser.add_argument(
        "--fitted-on",
        metavar="STORE",
        help="energies by a fit of the measurements of this store, without those of --kernel",
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="CORE,MEM",
        help="a setting that the holdout fits on (repeat; default: a random half)",
    )
    parser.add_argument(
        "--platform",
        action="append",
        metavar="P",
        help="a machine as papers print it, by its name in campaign roofline --platform, or a "
        "platform file (repeat)",
    )
    add_fit(parser)


def run(arguments: Namespace) -> int:
    """Write the figures and tables; prints a line for each file."""
    from campaign.results.report import FORMATS, write_figures  # noqa: PLC0415
    from campaign.results.rooflines import platform_named, write_platform_figures  # noqa: PLC0415

    if not (arguments.store or arguments.platform):
        raise ArgumentError("name a store, or a paper's machine with --platform")
    platforms = [platform_named(name) for name in arguments.platform or []]
    folder, cap_w = Path(arguments.output), arguments.cap_w
    formats = arguments.format or FORMATS
    content = _content(arguments) if arguments.store else None
    files = [] if content is None else [write_figures(content, folder, cap_w, formats)]
    if platforms:
        files.append(write_platform_figures(platforms, folder, content, cap_w, formats))
    written = 0
    try:
        for file in chain(*files):
            say(marked(str(file.path), file.simulated))
            written += 1
    except OSError as error:
        raise ArgumentError(
            f"{error.filename or folder}: cannot be written ({error.strerror}); name another folder"
        ) from None
    for site in content.sites if content else []:
        if site.why_no_fit:
            say(f"{site.site}: no energy model: {site.why_no_fit}")
    if not written:
        raise UnsupportedError("nothing to draw; the lines above say why")
    return 0


def _content(arguments: Namespace) -> ReportContent:
    from campaign.results.report import report_content  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    store = open_store(Path(arguments.store))
    content = report_content(
        store,
        arguments.site,
        arguments.fit,
        train=[read_setting(text, "--train") for text in arguments.train or []] or None,
        setting=read_setting(arguments.setting, "--setting") if arguments.setting else None,
        kernels=arguments.kernel or [],
        fitted_on=open_store(Path(arguments.fitted_on)) if arguments.fitted_on else None,
    )
    if not content.sites:
        from analysis.measurements.observations import site_names  # noqa: PLC0415
        from campaign.store.tables import read_columns  # noqa: PLC0415
        from dvfs.errors import unknown_name  # noqa: PLC0415

        sites = site_names(read_columns(store))
        raise ArgumentError(
            f"--site: {unknown_name('site', arguments.site, sites)}"
            if arguments.site and sites
            else f"{arguments.store}: no measurements; run a campaign, or import a table"
        )
    return content
