"""import and export."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from campaign.verbs.errors import BadArgument
from campaign.verbs.show import print_finding, print_json, say


def import_(arguments: Namespace) -> int:
    """Read a table into a store, all of it or nothing, and say what stands against fitting it."""
    from analysis.quality import check  # noqa: PLC0415
    from campaign.store.dataset import as_dataset  # noqa: PLC0415
    from campaign.store.layout import create_store  # noqa: PLC0415
    from campaign.table.checking import checked_rows, listed  # noqa: PLC0415
    from campaign.table.importing import import_rows  # noqa: PLC0415
    from campaign.table.map_file import read_map  # noqa: PLC0415
    from campaign.table.reading import read_table  # noqa: PLC0415

    path = Path(arguments.table)
    mapping = read_map(Path(arguments.map) if arguments.map else None)
    # A table that is refused must not leave a new, empty store behind.
    checked = checked_rows(read_table(path, mapping), mapping)
    store = create_store(Path(arguments.store).resolve(), Path(arguments.store).name)
    imported = import_rows(checked, store, mapping)
    for text in imported.damage:
        say(text, sys.stderr)
    dataset = as_dataset(imported.measurements, "measurement")
    found = [(site, finding) for site in imported.sites for finding in check(dataset, site)]
    if arguments.json:
        ids = dataset["point_id"].values
        print_json(
            {
                "table": str(path),
                "imported": imported.new,
                "already_there": imported.held,
                "disagreements": checked.disagreements,
                "findings": [
                    {"site": site, **finding.as_dict()} | {"point_ids": ids[finding.rows].tolist()}
                    for site, finding in found
                ],
            }
        )
        return 0
    if checked.disagreements:
        say(listed(checked.disagreements))
    for site, finding in found:
        print_finding(site, finding, dataset)
    again = f"; {imported.held} were there already" if imported.held else ""
    say(f"{arguments.store}: {imported.new} measurements imported from {path}{again}")
    return 0


def export(arguments: Namespace) -> int:
    """Write the measurements that are ok as CSV."""
    from campaign.store.layout import open_store  # noqa: PLC0415
    from campaign.table.exporting import export_table  # noqa: PLC0415

    table = export_table(open_store(Path(arguments.store)))
    try:
        table.to_csv(arguments.csv, index=False)
    except OSError as error:
        raise BadArgument(
            f"{arguments.csv}: can't be written ({error.strerror}); name another file"
        ) from None
    say(f"{arguments.csv}: {len(table)} measurements written")
    return 0
