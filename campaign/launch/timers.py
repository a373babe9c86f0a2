"""Makes Dask's timers use a clock that never goes back. Importing the module is enough.

Dask delays messages by some milliseconds, and repeats some of its work now and then, until the
time of day has passed a deadline (distributed's batched.py and comm/core.py, Tornado's
IOLoop.time). If a node's clock is set back by an hour, its worker is silent for an hour, and the
driver waits for it.

Import this before any event loop runs: in the driver, and in workers as Dask's preload.
tests/campaign/test_timers.py fails if one of the replaced parts has moved.
"""

from __future__ import annotations

import time

from distributed import batched
from distributed.comm import core
from tornado.ioloop import IOLoop


def _now(self: IOLoop) -> float:
    return time.monotonic()


# Replace all three: Dask passes deadlines of its clock to Tornado, which waits by its own clock.
batched.time = core.time = time.monotonic  # type: ignore[attr-defined]  # they do not export it
IOLoop.time = _now  # type: ignore[method-assign]
