"""settings: which settings were measured, and how often."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from campaign.verbs.options import add_json, add_store
from campaign.verbs.printing import print_json, print_table

SUMMARY = "list the settings that were measured"
EXAMPLE = "campaign settings campaign-demo/store"
COLUMNS = ["site", "core_mhz", "mem_mhz"]


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    add_store(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print one row for each site and setting."""
    from campaign.results import open_store  # noqa: PLC0415  (heavy imports only when it runs)

    table = open_store(arguments.store).scalars[COLUMNS].to_dataframe()
    counted = table.groupby(COLUMNS, dropna=False).size()
    rows = [[*setting, int(number)] for setting, number in counted.items()]
    if arguments.json:
        print_json(rows)
    else:
        print_table(["site", "core MHz", "memory MHz", "measurements"], rows)
    return 0
