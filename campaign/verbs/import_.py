"""import: an existing table of measurements into a store."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.table.formats import FORMATS
from campaign.verbs.options import add_json
from campaign.verbs.printing import explain, print_json, say
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.table.windows import PowerLogs

SUMMARY = "import an existing table of measurements"
EXAMPLE = "campaign import campaign-demo/table.csv --store imported"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "table",
        metavar="TABLE",
        help="the table: CSV (also .gz, .bz2, .xz) or Parquet; a file of another tool (--from); or "
        "a folder that campaign export --crate wrote",
    )
    parser.add_argument("--store", required=True, metavar="S", help="the store to import into")
    parser.add_argument(
        "--map",
        metavar="MAP.toml",
        help="a map file: the names of the table's columns, and the factors to the standard units",
    )
    parser.add_argument(
        "--traces", metavar="FOLDER", help="the traces that campaign export wrote with the table"
    )
    parser.add_argument("--site", metavar="X", help="the site, for a table that does not name it")
    parser.add_argument(
        "--from",
        dest="layout",
        metavar="FORMAT",
        help=f"the tool that wrote the file (default: recognised): {', '.join(sorted(FORMATS))}",
    )
    parser.add_argument(
        "--set",
        dest="constants",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="a column of every row, as kernel=lu or core_mhz=2400 for a file without it; again "
        "for each",
    )
    parser.add_argument(
        "--power-log",
        dest="power_logs",
        action="append",
        default=[],
        metavar="LOG",
        help="a power log from nvidia-smi, dcgmi dmon, tegrastats, Slurm's profile or a loop over "
        "powercap; the table then has start and end instead of times and energies; repeat the "
        "option for more logs; NODE=LOG if the log does not name its node",
    )
    parser.add_argument(
        "--time-zone",
        metavar="Z",
        help="the time zone of local times in power logs and the table, such as Europe/Berlin or "
        "+01:00",
    )
    add_json(parser)


def _logs(arguments: Namespace) -> PowerLogs | None:
    """The power logs of the command line."""
    if not arguments.power_logs:
        if arguments.time_zone:
            raise ArgumentError(
                "--time-zone applies to --power-log; give --power-log, or leave it out"
            )
        return None
    if arguments.traces:
        raise ArgumentError("--traces and --power-log: leave out one of them")
    from campaign.table.power_logs import read_power_logs, read_zone  # noqa: PLC0415
    from campaign.table.windows import PowerLogs  # noqa: PLC0415

    zone = read_zone(arguments.time_zone) if arguments.time_zone else None
    logs = []
    for text in arguments.power_logs:
        node, equals, path = text.partition("=")
        if not equals or "/" in node:  # a path may contain =
            node, path = "", text
        logs.append((node, Path(path)))
    return PowerLogs(read_power_logs(logs, zone), zone)


def _constant(text: str) -> tuple[str, str | float]:
    """A column and its value, which is a number where the column holds numbers."""
    from campaign.table.map_file import is_number_column  # noqa: PLC0415
    from campaign.table.number_text import number  # noqa: PLC0415

    name, equals, value = text.partition("=")
    if not equals or not value:
        raise ArgumentError(f"--set {text}: must be COLUMN=VALUE, as core_mhz=2400")
    if not is_number_column(name) and name != "ranks":
        return name, value
    try:
        return name, number(value)
    except ValueError as error:
        raise ArgumentError(f"--set {text}: {error}") from None


def run(arguments: Namespace) -> int:
    """Import the whole table or nothing, and print the findings of the checks."""
    from campaign.results.findings import finding_texts, site_findings  # noqa: PLC0415
    from campaign.table.checking import listed  # noqa: PLC0415
    from campaign.table.importing import import_table  # noqa: PLC0415

    path, store_path = Path(arguments.table), Path(arguments.store)
    traces = Path(arguments.traces) if arguments.traces else None
    if path.is_dir():
        from campaign.table.crate import METADATA, crate_table  # noqa: PLC0415

        if (path / METADATA).is_file():
            path, traces = crate_table(path)
    if path.suffix == ".toml":
        raise ArgumentError(f"{path}: is a TOML file, not a table; --map takes a map file")
    imported = import_table(
        path,
        store_path,
        Path(arguments.map) if arguments.map else None,
        traces,
        arguments.site,
        arguments.layout,
        dict(map(_constant, arguments.constants)),
        _logs(arguments),
    )
    for text in imported.damage:
        say(text, sys.stderr)
    findings = [
        entry for site in imported.sites for entry in site_findings(imported.measurements, site)
    ]
    if arguments.json:
        print_json(
            {
                "table": str(path),
                "imported": imported.new,
                "failed": imported.failed,
                "already_there": imported.held,
                "notes": imported.notes,
                "disagreements": imported.disagreements,
                "findings": [
                    finding.as_dict() | {"site": finding.site, "point_ids": list(finding.point_ids)}
                    for finding in findings
                ],
            }
        )
        return 0
    for text in imported.notes:
        explain(text)
    if imported.disagreements:
        say(listed(imported.disagreements))
    for text in finding_texts(findings, False, "campaign import --json"):
        explain(text)
    again = f"; {imported.held} rows held already" if imported.held else ""
    failed = f", {imported.failed} of them failed," if imported.failed else ""
    say(f"{arguments.store}: {imported.new} measurements{failed} imported from {path}{again}")
    return 0
