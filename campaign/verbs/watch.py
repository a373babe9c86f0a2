"""watch: the state of a run, from the snapshots that its driver writes into the store."""

from __future__ import annotations

import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from campaign.launch.interrupts import INTERRUPTED, ignore_further
from campaign.verbs.options import add_json, add_store
from campaign.verbs.printing import marked, print_json, say
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.launch.snapshot import PartitionSnapshot, Snapshot
    from campaign.store.layout import Store

SUMMARY = "watch a run from anywhere that sees its store; ends when the run ends"
EXAMPLE = "campaign watch campaign-demo/store"
MORE = (
    "Only reads; several may watch one run. It ends with the run's exit code. Ctrl-C ends the "
    "watching and leaves the run alone."
)
LOOK_S = 1.0
PLAIN_EVERY_S = 10.0


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--once", action="store_true", help="show how the run stands now, and end")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Show the run until it ends; return its exit code, or 1 where its driver is gone."""
    from pathlib import Path  # noqa: PLC0415

    from campaign.launch.snapshot import driver_state  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    store = open_store(Path(arguments.store).resolve())
    if arguments.once or arguments.json:
        snapshot = _read(store)
        state = driver_state(snapshot)
        if arguments.json:
            print_json(snapshot.as_dict() | {"driver": state})
        else:
            say("\n".join(_lines(snapshot, state)))
        return _exit_code(snapshot, state)
    try:
        return _watch(store)
    except KeyboardInterrupt:
        ignore_further()
        quoted = shlex.quote(arguments.store)
        print(
            f"campaign: the run goes on; watch it again with: campaign watch {quoted}",
            file=sys.stderr,
        )
        return INTERRUPTED


def _watch(store: Store) -> int:
    from campaign.launch.snapshot import ENDED, GONE, driver_state  # noqa: PLC0415

    shown: list[str] = []
    notes: tuple[str, ...] = ()
    shown_s = 0.0
    while True:
        snapshot = _read(store)
        state = driver_state(snapshot)
        ends = state in (ENDED, GONE)
        for note in snapshot.notes[_shown_count(notes, snapshot.notes) :]:
            say(note)
        notes = snapshot.notes
        if ends or not shown or time.monotonic() - shown_s >= PLAIN_EVERY_S:
            shown_s = time.monotonic()
            lines = _lines(snapshot, state)
            for line in lines:
                if line not in shown:
                    say(line)
            sys.stdout.flush()
            shown = lines
        if ends:
            return _exit_code(snapshot, state)
        time.sleep(LOOK_S)


def _shown_count(earlier: tuple[str, ...], messages: tuple[str, ...]) -> int:
    """The number of first messages that are the last of ``earlier``; both are ends of one growing
    list."""
    return next(
        n for n in range(len(messages), -1, -1) if messages[:n] == earlier[len(earlier) - n :]
    )


def _read(store: Store) -> Snapshot:
    """The store's snapshot. Where it cannot be read, as may happen on a network file system while
    the file is replaced, it is read a second time.

    Raises:
        ArgumentError: no run has written a snapshot.
        DamagedStoreError: it cannot be read.
    """
    from campaign.launch.snapshot import read_snapshot  # noqa: PLC0415
    from campaign.store.layout import DamagedStoreError  # noqa: PLC0415

    try:
        snapshot = read_snapshot(store)
    except DamagedStoreError:
        time.sleep(LOOK_S)
        snapshot = read_snapshot(store)
    if snapshot is None:
        raise ArgumentError(
            f"{store.root}: no run that can be watched has measured into this store; for what it "
            f"holds: campaign status {shlex.quote(str(store.root))}"
        )
    return snapshot


def _lines(snapshot: Snapshot, state: str) -> list[str]:
    """The lines shown for a run: one for each partition, then one for the driver."""
    from campaign.launch.snapshot import ENDED, GONE, SILENT, WAITING  # noqa: PLC0415

    driver = f"the driver, process {snapshot.pid} on {snapshot.host},"
    written = time.strftime("%H:%M:%S", time.localtime(snapshot.written_unix_s))
    driver_line = {
        ENDED: snapshot.end,
        WAITING: f"the driver's job waits in Slurm's queue (squeue --name={snapshot.job})",
        GONE: f"{driver} is gone without an end, after {written}; what was measured is kept. To go "
        f"on: {snapshot.resume}",
        SILENT: f"{driver} has written nothing since {written}. Where it is gone, what was "
        f"measured is kept. To go on: {snapshot.resume}",
    }.get(state, f"{driver} is {snapshot.phase}")
    parts = (
        marked((state != ENDED and part.line) or _counts(part), part.simulated)
        for part in snapshot.partitions
    )
    return [*parts, driver_line]


def _counts(part: PartitionSnapshot) -> str:
    return f"{part.label}: {part.done} done, {part.failed} failed, {part.left} left"


def _exit_code(snapshot: Snapshot, state: str) -> int:
    from campaign.launch.snapshot import GONE, SILENT  # noqa: PLC0415

    if snapshot.exit_code is not None:
        return snapshot.exit_code
    return 1 if state in (GONE, SILENT) else 0
