"""``python -m campaign.measure SETUP.json POINT.json RESULT``: measure one point and end.

A job step or an MPI launcher starts it on every rank. Rank 0 writes the record, whole or not at
all.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from campaign.measure.point_life import PartitionSetup, measure
from campaign.plan.point import Point
from campaign.store.journal import encode


def end(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the process through its ``finally`` blocks, so that clocks are restored."""
    raise SystemExit(128 + number)


def first_out_of_memory() -> None:
    """Make this process the first that the system ends when memory runs out, so that the kernel
    is ended and the worker survives to record the failure."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main(setup_file: str, point_file: str, result: str) -> None:
    """Measure the point of ``point_file`` as ``setup_file`` says; the record goes to ``result``."""
    signal.signal(signal.SIGTERM, end)
    first_out_of_memory()
    setup = PartitionSetup.from_dict(json.loads(Path(setup_file).read_text()))
    asked = json.loads(Path(point_file).read_text())
    write_record(setup, Point.from_dict(asked["point"]), asked["attempt"], Path(result))


class RecordUnwritten(Exception):
    """A point was measured, but its record cannot be written. The process ends with EX_IOERR."""


def write_record(setup: PartitionSetup, point: Point, attempt: int, result: Path) -> None:
    """Measure, and on rank 0 put the record at ``result``.

    Raises:
        RecordUnwritten: it cannot be written.
    """
    measurement = measure(setup, point, attempt)
    if measurement is not None:
        new = result.with_suffix(".new")
        try:
            new.write_bytes(encode(measurement))
            new.rename(result)
        except OSError as error:
            raise RecordUnwritten(f"{new}: {error.strerror}") from None


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RecordUnwritten as unwritten:
        print(unwritten, file=sys.stderr)
        sys.exit(os.EX_IOERR)
