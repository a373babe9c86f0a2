"""init: a first site file, from this machine and its Slurm."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from campaign.verbs.printing import say
from dvfs.errors import ArgumentError

SUMMARY = "write a first site file for this node or cluster"
EXAMPLE = "campaign init -o mycluster.toml"
MORE = (
    "Asks Slurm for the partitions, and this node for its clocks and meters. Nothing is set, and "
    "no job is started. Run it on a node of the kind that will measure: a login node may have "
    "other clocks and meters. Comments say what could not be found. Where nodes differ in "
    "hardware, -o writes one file for each kind, the others with the name of a partition added; "
    "without -o the first is printed."
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="SITE.toml", help="the file to write (default: print it)"
    )
    parser.add_argument(
        "--name", metavar="X", help="the site's name (default: the cluster's or the node's)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file")


def run(arguments: Namespace) -> int:
    """Write or print the site file."""
    from campaign.doctor.site_draft import draft_sites  # noqa: PLC0415
    from dvfs.files import is_stream, write_output  # noqa: PLC0415
    from dvfs.input_files import FileError  # noqa: PLC0415

    path = None if arguments.output is None else Path(arguments.output)
    try:
        drafts = draft_sites(arguments.name, path=path)
    except FileError as error:
        if arguments.name is None:
            raise
        raise ArgumentError(f"--name {arguments.name}: {error.what}; {error.remedy}") from None
    if path is None:
        print(drafts[0].text, end="")
        return 0
    for draft in drafts:
        exists = os.path.lexists(draft.path) and not is_stream(draft.path)
        if exists and not arguments.force:
            raise ArgumentError(f"{draft.path} exists; give another name, or --force")
    for draft in drafts:
        try:
            write_output(draft.path, draft.text)
        except OSError as error:
            raise ArgumentError(f"{draft.path}: cannot be written: {error.strerror}") from None
        stream = sys.stderr if is_stream(draft.path) else None
        say(f"{draft.path}: check it, then run: campaign doctor {draft.path}", stream)
    return 0
