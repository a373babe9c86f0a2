"""Machines as papers print them, from Python: their rooflines, and their figures as files.

>>> from campaign.platforms import platform_roofline
>>> platform_roofline("gtx-580").to_pandas()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.rooflines.at_setting import CapTooLow
from analysis.rooflines.platforms import (
    Platform,
    UnknownPlatform,
    find_platform,
    platform_rooflines,
)
from campaign.errors import BadArgument
from campaign.extras import explain_missing
from campaign.reporting import FORMATS, WrittenFile
from campaign.result_tables import RooflineResult
from sites.whole_files import write_output

if TYPE_CHECKING:
    from analysis.report.content import ReportContent


def platform_named(name: str) -> Platform:
    """A machine as papers print it, by its name, such as ``gtx-580``.

    Raises:
        BadArgument: there is no such platform.
    """
    try:
        return find_platform(name)
    except UnknownPlatform as error:
        raise BadArgument(f"--platform: {error}") from None


def platform_roofline(name: str, cap_w: float | None = None) -> RooflineResult:
    """The rooflines of a machine as papers print it, by its name.

    Raises:
        BadArgument: there is no such platform, or the cap is below its constant power.
    """
    try:
        return RooflineResult(platform_rooflines(platform_named(name), cap_w), None)
    except CapTooLow as error:
        raise BadArgument(f"--cap-w: {error}") from None


def write_platform_figures(
    platforms: Sequence[Platform],
    folder: Path,
    content: ReportContent | None = None,
    cap_w: float | None = None,
    formats: Sequence[str] = FORMATS,
) -> Iterator[WrittenFile]:
    """Write the figures and tables of machines as papers print them.

    ``content``: sites that are drawn beside them. Two machines or more are also drawn together.

    Raises:
        BadArgument: a cap at or below a platform's constant power.
        MissingExtra: matplotlib, which draws the files, is not installed.
        OSError: a file cannot be written.
    """
    from analysis.figures.paper import figure_files  # noqa: PLC0415
    from analysis.figures.platforms import comparison_figures, platform_figures  # noqa: PLC0415
    from analysis.report.platform_sheets import platform_sheets  # noqa: PLC0415
    from analysis.report.site_figures import site_lines  # noqa: PLC0415
    from analysis.report.tables import as_csv, as_tex  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = [(f, False) for platform in platforms for f in platform_figures(platform, cap_w)]
    except ValueError as error:
        raise BadArgument(f"--cap-w: {error}") from None
    lines = [(p.name, p.line(operation)) for p in platforms for operation in p.operations]
    sites = content.sites if content else []
    lines += [(site.site, line) for site in sites for line in site_lines(site)]
    simulated = any(site.simulated for site in sites)
    figures += [(figure, simulated) for figure in comparison_figures(lines, simulated)]
    for figure, marked in figures:
        with explain_missing():
            drawn = figure_files(figure, marked, formats)
        for kind, text in drawn.items():
            path = folder / f"{figure.name}.{kind}"
            write_output(path, text)
            yield WrittenFile(path, marked)
    for sheet in platform_sheets(platforms):
        for kind, table in (("csv", as_csv(sheet)), ("tex", as_tex(sheet))):
            path = folder / f"{sheet.name}.{kind}"
            write_output(path, table)
            yield WrittenFile(path, False)
