"""import and export."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from campaign.verbs.errors import BadArgument
from campaign.verbs.show import print_json


def import_(arguments: Namespace) -> int:
    """Read a table into a store, all of it or nothing."""
    from campaign.store.layout import create_store  # noqa: PLC0415
    from campaign.table import (  # noqa: PLC0415
        import_table,
        measurements_of,
        read_map,
        read_rows,
    )

    path = Path(arguments.table)
    mapping = read_map(Path(arguments.map) if arguments.map else None)
    # A table that is refused must not leave a new, empty store behind.
    measurements_of(path, read_rows(path, mapping), mapping)
    store = create_store(Path(arguments.store).resolve(), Path(arguments.store).name)
    fresh, held = import_table(path, store, mapping)
    if arguments.json:
        print_json({"table": str(path), "imported": fresh, "already_there": held})
    else:
        again = f"; {held} were there already" if held else ""
        print(f"{arguments.store}: {fresh} measurements imported from {path}{again}")
    return 0


def export(arguments: Namespace) -> int:
    """Write the measurements that are ok as CSV."""
    from campaign.store.layout import open_store  # noqa: PLC0415
    from campaign.table import export_table  # noqa: PLC0415

    table = export_table(open_store(Path(arguments.store)))
    try:
        table.to_csv(arguments.csv, index=False)
    except OSError as error:
        raise BadArgument(
            f"{arguments.csv}: can't be written ({error.strerror}); name another file"
        ) from None
    print(f"{arguments.csv}: {len(table)} measurements written")
    return 0
