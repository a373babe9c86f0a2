"""figures: every figure and table of a site as files for a paper."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs.errors import BadArgument, CantDo
from campaign.verbs.show import say

if TYPE_CHECKING:
    from analysis.report.content import SiteReport


def figures(arguments: Namespace) -> int:
    """Write the figures as SVG and PDF and the tables as CSV and LaTeX; a line a file.

    With several sites each has a folder of its own.
    """
    from campaign.store.layout import open_store  # noqa: PLC0415
    from campaign.store.site_record import site_file_name  # noqa: PLC0415
    from campaign.verbs.reporting import report_content  # noqa: PLC0415

    sites = report_content(open_store(Path(arguments.store)), arguments.site).sites
    if not sites:
        raise BadArgument(
            f"{arguments.store}: no measurements"
            + (f" of site {arguments.site!r}" if arguments.site else "")
            + "; run a campaign, or import a table"
        )
    folder = Path(arguments.output)
    written = 0
    for site in sites:
        inside = folder / Path(site_file_name(site.site)).stem if len(sites) > 1 else folder
        for name, content in _files(site, arguments.cap_w):
            path = inside / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError as error:
                raise CantDo(f"{path}: can't be written ({error.strerror})") from None
            say(f"{path}{' (simulated)' if site.simulated else ''}")
            written += 1
        if site.why_no_fit:
            say(f"{site.site}: no energy model: {site.why_no_fit}")
    if not written:
        raise CantDo("nothing could be drawn; see the lines above for why")
    return 0


def _files(site: SiteReport, cap_w: float | None) -> Iterator[tuple[str, bytes]]:
    """(name, content) of every file of a site, figures first."""
    from analysis.figures.standalone import pdf_bytes, svg_text  # noqa: PLC0415
    from analysis.report.site_figures import site_figures, site_sheets  # noqa: PLC0415
    from analysis.report.tables import as_csv, as_tex  # noqa: PLC0415

    for figure in site_figures(site, cap_w).all:
        yield f"{figure.name}.svg", svg_text(figure, site.simulated).encode()
        yield f"{figure.name}.pdf", pdf_bytes(figure, site.simulated)
    for sheet in site_sheets(site):
        yield f"{sheet.name}.csv", as_csv(sheet).encode()
        yield f"{sheet.name}.tex", as_tex(sheet).encode()
