"""GEOPM's reports as rows: a region of a host is a measurement.

A report (geopmctl, geopmlaunch --geopm-report) is YAML: for each host a list ``Regions`` with
``sync-runtime (s)``, ``package-energy (J)``, ``dram-energy (J)`` and, where the node has GPUs,
``gpu-energy (J)``; and totals of them (geopm_report(7)). These are sums over the samples in which
all CPUs of the application were in the region. ``runtime (s)`` is another time, a mean over the
processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from campaign.table.delimited import read_table_text
from campaign.table.formats import UNTRIED, Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from dvfs.input_files import FileError

MARKERS = (b"GEOPM Version:", b"\nHosts:")
TIME = "sync-runtime (s)"
ENERGIES = ("package-energy (J)", "dram-energy (J)", "gpu-energy (J)")
CLOCK = "frequency (Hz)"
REMEDY = "give the file of --geopm-report"
ABOUT = FormatDescription(
    name="geopm",
    tool="GEOPM",
    versions=UNTRIED,
    reads="a report (YAML): package, DRAM and GPU energy by region and host",
    traps="the time is `sync-runtime (s)`, which the energies are of; totals are left out; "
    "`frequency (Hz)` is what was achieved",
    rows="regions",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether it has the first lines of a report."""
    return all(marker in head for marker in MARKERS)


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """Regions as columns, with all their fields as labels; and what was noticed.

    Raises:
        FileError: it is no report, or a region has no runtime.
    """
    import yaml  # noqa: PLC0415

    text, notes = read_table_text(path)
    try:
        report = yaml.safe_load(text)
        regions = [
            (str(host), region)
            for host, host_report in report["Hosts"].items()
            for region in host_report.get("Regions") or ()
        ]
        rows = [_row(host, dict(region)) for host, region in regions if region[TIME]]
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise FileError("is no report of GEOPM", REMEDY, str(path)) from None
    if not rows:
        raise FileError("has no regions that were sampled", REMEDY, str(path))
    begins = (line.strip().startswith(("- region:", "region:")) for line in text.splitlines())
    lines = [i for i, begin in enumerate(begins, 1) if begin]
    lines = lines if len(lines) == len(regions) else [1] * len(regions)
    notes.append(f"{path}: totals count the regions' joules again, and are left out")
    if unsampled := len(regions) - len(rows):
        notes.append(
            f"{path}: regions without a sample ({TIME} of 0) have no measured energy and are left "
            f"out; regions: {unsampled}"
        )
    sampled = [line for line, (_, region) in zip(lines, regions, strict=True) if region[TIME]]
    return columns_of(zip(sampled, rows, strict=True)), notes


def _row(host: str, region: dict[str, Any]) -> dict[str, Any]:
    energies = [float(region[name]) for name in ENERGIES if name in region]
    achieved = region.get(CLOCK)
    return region | {
        "kernel": str(region["region"]),
        "node": host,
        "time_s": float(region[TIME]),
        "energy_j": sum(energies) if energies else None,
        "core_mhz_achieved": None if achieved is None else float(achieved) * 1e-6,
    }
