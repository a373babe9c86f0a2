"""``python -m campaign.measure RESULT``: measure one point and end.

A job step or an MPI launcher starts it on every rank. What to measure is in the environment, which
both hand on to all nodes: a worker's files are on its node alone. Rank 0 writes the record, whole
or not at all.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sys
import zlib
from pathlib import Path
from types import FrameType

from campaign.measure.point_life import PartitionSetup, measure
from campaign.plan.point import Point
from campaign.store.journal import encode
from campaign.store.measurement import Measurement
from sites.clocks.shared.journal import put_back_held

ASKED = "CAMPAIGN_POINT"
"""The environment variable that says what to measure; see :func:`asked_in_environment`."""


def end(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the process through its ``finally`` blocks, so that clocks are restored."""
    raise SystemExit(128 + number)


def first_out_of_memory() -> None:
    """Make this process the first that the system ends when memory runs out, so that the kernel
    is ended and the worker survives to record the failure."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def asked_in_environment(setup: PartitionSetup, point: Point, attempt: int) -> dict[str, str]:
    """The variable that tells :func:`main` what to measure: JSON, compressed, as base64."""
    asked = {"setup": setup.as_dict(), "point": point.as_dict(), "attempt": attempt}
    return {ASKED: base64.b64encode(zlib.compress(json.dumps(asked).encode())).decode()}


def main(result: str) -> None:
    """Measure what the environment asks for; the record goes to ``result``."""
    signal.signal(signal.SIGTERM, end)
    first_out_of_memory()
    asked = json.loads(zlib.decompress(base64.b64decode(os.environ.pop(ASKED))))
    setup = PartitionSetup.from_dict(asked["setup"])
    point, attempt = Point.from_dict(asked["point"]), asked["attempt"]
    try:
        if os.environ.get("SLURM_PROCID", "0") == "0":
            write_record(setup, point, attempt, Path(result))
        else:  # on a node without the worker's folder, perhaps, and rank 0 of a world of its own
            measure(setup, point, attempt)
    finally:
        # A signal may have come before the point restored its clocks.
        put_back_held()


class UnwrittenRecordError(Exception):
    """A point was measured, but its record cannot be written. The process ends with EX_IOERR."""


def write_record(setup: PartitionSetup, point: Point, attempt: int, result: Path) -> None:
    """Measure, and on rank 0 put the record at ``result``.

    Raises:
        UnwrittenRecordError: it cannot be written.
    """

    def keep(measurement: Measurement) -> None:
        new = result.with_suffix(".new")
        try:
            new.write_bytes(encode(measurement))
            new.rename(result)
        except OSError as error:
            raise UnwrittenRecordError(f"{new}: {error.strerror}") from None

    measure(setup, point, attempt, keep)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except UnwrittenRecordError as unwritten:
        print(unwritten, file=sys.stderr)
        sys.exit(os.EX_IOERR)
