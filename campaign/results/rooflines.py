"""Rooflines of a site at a setting and of platforms, which are machines as papers print them.

>>> from campaign.results.rooflines import platform_roofline
>>> platform_roofline("gtx-580").to_pandas()
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from analysis.rooflines.at_setting import NoPairsError, rooflines_at
from analysis.rooflines.platforms import PLATFORMS, Operation, Platform, platform_rooflines
from analysis.rooflines.power_cap import CapError
from analysis.rooflines.roofline import fastest_setting
from campaign.results.report import FORMATS, WrittenFile, write_drawn
from campaign.results.tables import RooflineResult
from dvfs.errors import ArgumentError, unknown_name
from dvfs.input_files import FileModel, read_file
from dvfs.setting import Setting
from sites.site_file import Name, NotNegative, OneLine, Positive

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations
    from analysis.report.content import ReportContent
    from analysis.rooflines.greenup import Trade
    from kernels.fmm_u.variants import Root, Ways

SHOWN = 16
"""The number of settings that an error names."""
REFINED = "fmm_u"
"""The kernel that has a refined peak, from its mix of instructions."""


class PlatformOperation(FileModel):
    """A class of operations of a platform file."""

    gop_s: Positive
    """Peak, in 1e9 operations/s."""
    eps_pj: NotNegative
    """Energy of an operation, in pJ."""
    attained_gop_s: Positive | None = None
    """Highest measured rate, in 1e9 operations/s."""
    attained_gb_s: Positive | None = None
    """Highest measured rate of memory, in GB/s."""


class PlatformFile(FileModel):
    """A validated platform file. Read it with :func:`read_platform`."""

    name: Name
    """The platform's name in figures and tables."""
    model: OneLine = ""
    """The machine (default: its name)."""
    source: OneLine = ""
    """Where its constants are from (default: the file)."""
    gb_s: Positive
    """Peak of memory, in GB/s."""
    eps_mem_pj: NotNegative
    """Energy of a byte of memory, in pJ."""
    constant_w: NotNegative
    """Constant power, in W."""
    tdp_w: Positive | None = None
    """Thermal design power, in W."""
    operations: dict[Name, PlatformOperation] = Field(min_length=1)
    """Class -> its constants."""
    caches_pj: dict[Name, NotNegative] = Field(default_factory=dict)
    """Cache -> energy of a byte, in pJ."""


def read_platform(path: Path) -> Platform:
    """The platform that a file describes.

    Raises:
        FileError: the file cannot be read, or is not a platform file.
    """
    file, _ = read_file(path, PlatformFile)
    return Platform(
        name=file.name,
        model=file.model or file.name,
        source=file.source or path.name,
        operations={
            name: Operation(
                row.gop_s, row.eps_pj, row.attained_gop_s or math.nan, row.attained_gb_s or math.nan
            )
            for name, row in file.operations.items()
        },
        gb_s=file.gb_s,
        eps_mem_pj=file.eps_mem_pj,
        constant_w=file.constant_w,
        tdp_w=file.tdp_w or math.nan,
        caches_pj=file.caches_pj,
    )


def site_rooflines(
    data: Observations,
    fit: Fit | None,
    setting: Setting | str | None,
    cap_w: float | None,
    trades: Sequence[Trade] = (),
) -> dict[str, Any]:
    """The rooflines of a site as ``campaign roofline --json`` prints them. ``setting``: by default
    the fastest.

    Raises:
        ArgumentError: the setting was not measured, or not by kernels of varied intensity; or the
            cap is too low.
    """
    index = fastest_setting(data) if setting is None else _setting_index(data, setting)
    try:
        return rooflines_at(data, index, fit, cap_w, trades)
    except NoPairsError as error:
        raise ArgumentError(f"{data.site}: {error}") from None
    except CapError as error:
        raise ArgumentError(f"--cap-w: {error}") from None


def _setting_index(data: Observations, setting: Setting | str) -> int:
    text = setting.replace(" ", "") if isinstance(setting, str) else setting.option_text
    measured = [pair.option_text for pair in data.settings]
    if text in measured:
        return measured.index(text)
    raise ArgumentError(
        f"--setting: found {text!r}; must be one that {data.site} was measured at: "
        f"{' '.join(measured[:SHOWN])}{' ...' if len(measured) > SHOWN else ''}"
    )


def platform_named(name: str) -> Platform:
    """The built-in platform of this name, such as ``gtx-580`` (in upper or lower case), or the
    platform of a file whose path ends in ``.toml``.

    Raises:
        ArgumentError: there is no such platform.
        FileError: the file cannot be read, or is no platform file.
    """
    if name.endswith(".toml"):
        return read_platform(Path(name))
    if name.lower() not in PLATFORMS:
        raise ArgumentError(f"--platform: {unknown_name('platform', name, PLATFORMS)}")
    return PLATFORMS[name.lower()]


def platform_roofline(
    name: str, cap_w: float | None = None, trades: Sequence[Trade] = ()
) -> RooflineResult:
    """The rooflines of a platform. ``name``: see :func:`platform_named`. ``trades``: also compute
    the effect of these changes of an algorithm.

    Raises:
        ArgumentError: there is no such platform, or the cap is below its constant power.
        FileError: as for :func:`platform_named`.
    """
    try:
        return RooflineResult(platform_rooflines(platform_named(name), cap_w, trades), None)
    except CapError as error:
        raise ArgumentError(f"--cap-w: {error}") from None


def refined_peaks(kernel: str, platform: str | None = None) -> list[dict[str, Any]]:
    """The highest rates that a kernel's mix of instructions allows (Choi & Vuduc 2012, section
    5.4), a row each: measured on this node with one thread, in single precision, for all ways to
    compute a root; or computed from the issue rates of a platform.

    Raises:
        ArgumentError: the kernel or platform has no refined peak, or the node cannot compile the
            kernel.
        FileError: as for :func:`platform_named`.
    """
    if kernel != REFINED:
        raise ArgumentError(
            f"--refined: found {kernel!r}; the kernel with a refined peak: {REFINED}"
        )
    from kernels.fmm_u.variants import flops, instructions  # noqa: PLC0415

    if platform is not None:
        mix = instructions("estimate", "one")
        issue = platform_named(platform).issue
        if issue is None:
            raise ArgumentError(
                f"--refined: {platform} has no issue rates; give --platform gtx-580, or none to "
                f"measure this node"
            )
        adds_and_muls = mix["add"] + mix["mul"]
        refined_rate = issue.peak_flop_s(mix["fma"], adds_and_muls, mix["estimate"])
        fma_rate = issue.peak_flop_s(1, 0, 0)
        return [_refined("estimate", "one", flops(mix), fma_rate, refined_rate, math.nan)]
    try:
        from kernels.fmm_u.peak import PeakMeter  # noqa: PLC0415
        from kernels.host.vectors import HOST  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        raise ArgumentError(f"--refined: this node cannot compile {kernel}: {error}") from None
    roots: tuple[Root, ...] = ("sqrt", "estimate", "newton1")
    roots = roots[:1] if HOST.estimate == "neon" else roots
    all_ways: tuple[Ways, ...] = ("one", "both")
    mixes = [(root, ways) for root in roots for ways in all_ways]
    meter = PeakMeter([("single", *mix) for mix in mixes], 8 * HOST.bytes)
    meter.measure()
    rows = []
    for root, ways in mixes:
        mix_flops, peak = flops(instructions(root, ways)), meter.peak("single", root, ways)
        pair_flops = mix_flops / (1 if ways == "one" else 2)  # flops of an interaction
        fma_rate = 2.0 * peak.rates_per_s["fma"] * peak.interactions / (1 if ways == "one" else 2)
        bound_rate, loop_rate = pair_flops * peak.bound_per_s, pair_flops * peak.mix_per_s
        rows.append(_refined(root, ways, mix_flops, fma_rate, bound_rate, loop_rate))
    return rows


def _refined(
    root: str,
    ways: str,
    mix_flops: int,
    fma_rate: float,
    bound_rate: float,
    loop_rate: float,
) -> dict[str, Any]:
    return {
        "precision": "single",
        "root": root,
        "ways": ways,
        "flops": mix_flops,
        "multiply_adds_gflop_s": fma_rate / 1e9,
        "refined_gflop_s": bound_rate / 1e9,
        "loop_gflop_s": loop_rate / 1e9,
        "refined_pct": 100.0 * bound_rate / fma_rate,
    }


def write_platform_figures(
    platforms: Sequence[Platform],
    folder: Path,
    content: ReportContent | None = None,
    cap_w: float | None = None,
    formats: Sequence[str] = FORMATS,
) -> Iterator[WrittenFile]:
    """Write the figures and tables of platforms; yields each file as it is written.

    ``content``: sites to draw in the same figures. Two platforms or more are also drawn together.

    Raises:
        ArgumentError: two platforms of one name, a platform without energies, or a cap at or below
            a platform's constant power.
        MissingExtraError, OSError: see :func:`campaign.results.report.write_drawn`.
    """
    from analysis.figures.rooflines import comparison_figures, platform_figures  # noqa: PLC0415
    from analysis.report.platform_sheets import platform_sheets  # noqa: PLC0415
    from analysis.report.site_figures import site_lines  # noqa: PLC0415

    names = [platform.name for platform in platforms]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(
                f"--platform: two have the name {name!r}, by which files and lines are told apart; "
                f"change name in one of the files"
            )
    for platform in platforms:
        for name, operation in platform.operations.items():
            if not (operation.eps_pj or platform.eps_mem_pj or platform.constant_w):
                raise ArgumentError(
                    f"--platform: {platform.name} has no energy of {name}, which the figures draw: "
                    f"found 0 for eps_pj, eps_mem_pj and constant_w; give one of them"
                )
    try:
        figures = [(f, False) for platform in platforms for f in platform_figures(platform, cap_w)]
    except CapError as error:
        raise ArgumentError(f"--cap-w: {error}") from None
    lines = [(p.name, p.line(operation)) for p in platforms for operation in p.operations]
    sites = content.sites if content else []
    lines += [(site.site, line) for site in sites for line in site_lines(site)]
    simulated = any(site.simulated for site in sites)
    figures += [(figure, simulated) for figure in comparison_figures(lines, simulated)]
    yield from write_drawn(folder, figures, platform_sheets(platforms), formats)
