"""``python -m campaign.measure RESULT``: measure one point and end.

A job step or an MPI launcher starts it on every rank. The request is in the environment, which both
pass on to all nodes: a worker's files exist on its node only. Rank 0 writes the record atomically.
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

REQUEST_VARIABLE = "CAMPAIGN_POINT"
"""The environment variable with the request; see :func:`request_environment`."""


def end(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: end through the ``finally`` blocks, so that clocks are restored."""
    raise SystemExit(128 + number)


def first_out_of_memory() -> None:
    """Make the OOM killer choose this process first, so that the worker survives and records the
    failure."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def request_environment(setup: PartitionSetup, point: Point, attempt: int) -> dict[str, str]:
    """The environment variable with the request for :func:`main`: JSON, compressed, as base64."""
    request = {"setup": setup.as_dict(), "point": point.as_dict(), "attempt": attempt}
    packed = base64.b64encode(zlib.compress(json.dumps(request).encode()))
    return {REQUEST_VARIABLE: packed.decode()}


def main(result: str) -> None:
    """Measure the point that the environment requests; write the record to ``result``."""
    signal.signal(signal.SIGTERM, end)
    first_out_of_memory()
    packed = os.environ.pop(REQUEST_VARIABLE)
    request = json.loads(zlib.decompress(base64.b64decode(packed)))
    setup = PartitionSetup.from_dict(request["setup"])
    point, attempt = Point.from_dict(request["point"]), request["attempt"]
    try:
        if os.environ.get("SLURM_PROCID", "0") == "0":
            write_record(setup, point, attempt, Path(result))
        else:  # perhaps on a node without the worker's folder, and rank 0 of another MPI world
            measure(setup, point, attempt)
    finally:
        # A signal may have come before the point restored its clocks.
        put_back_held()


class UnwrittenRecordError(Exception):
    """A point was measured, but its record cannot be written. The process ends with EX_IOERR."""


def write_record(setup: PartitionSetup, point: Point, attempt: int, result: Path) -> None:
    """Measure, and on rank 0 write the record to ``result``.

    Raises:
        UnwrittenRecordError: the record cannot be written.
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
