"""export: a store's measurements as a table."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from campaign.errors import BadArgument
from campaign.verbs.options import add_store
from campaign.verbs.printing import say

SUMMARY = "export the successful measurements as a table"
EXAMPLE = "campaign export campaign-demo/store --csv table.csv"


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    add_store(parser)
    parser.add_argument("--csv", required=True, metavar="F", help="the CSV file to write")


def run(arguments: Namespace) -> int:
    """Write the table."""
    from campaign.store.layout import open_store  # noqa: PLC0415
    from campaign.table.exporting import export_table  # noqa: PLC0415

    table = export_table(open_store(Path(arguments.store)))
    try:
        table.to_csv(arguments.csv, index=False)
    except OSError as error:
        raise BadArgument(
            f"{arguments.csv}: cannot be written ({error.strerror or error}); name another file"
        ) from None
    say(f"{arguments.csv}: {len(table)} measurements written")
    return 0
