"""``python -m campaign.measure JOB.json POINT.json RESULT``: measure one point and end.

What a job step or an MPI launcher starts, once a rank. Rank 0 writes the record, whole or not
at all.
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
    """Ask the system to end this process before any other when memory runs out: the kernel that
    took it, and not the worker that would tell of it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def main(job_file: str, point_file: str, result: str) -> None:
    """Measure the point of ``point_file`` as ``job_file`` says; the record goes to ``result``."""
    signal.signal(signal.SIGTERM, end)
    first_out_of_memory()
    job = PartitionSetup.from_dict(json.loads(Path(job_file).read_text()))
    asked = json.loads(Path(point_file).read_text())
    write_record(job, Point.from_dict(asked["point"]), asked["attempt"], Path(result))


class RecordUnwritten(Exception):
    """A point was measured, and its record can't be written; a process ends with EX_IOERR."""


def write_record(job: PartitionSetup, point: Point, attempt: int, result: Path) -> None:
    """Measure, and on rank 0 put the record at ``result``.

    Raises:
        RecordUnwritten: the disk does not take it.
    """
    measurement = measure(job, point, attempt)
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
