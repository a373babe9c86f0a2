"""Dask's timers by a clock that never goes back; imported for its effect.

Dask holds back messages for milliseconds, and repeats what it does now and then, until the time of
day has passed a mark (distributed's batched.py, Tornado's IOLoop.time). When a node's clock is set
back by an hour in between, its worker says nothing for an hour, and the driver waits for it.

To be imported before any event loop runs, by the driver and, as Dask's preload, by workers.
"""

from __future__ import annotations

import time

from distributed import batched
from distributed.comm import core
from tornado.ioloop import IOLoop


def _now(self: IOLoop) -> float:
    return time.monotonic()


# Both at once: what the one makes of its clock, it gives to the other to wait for.
batched.time = core.time = time.monotonic
IOLoop.time = _now  # type: ignore[method-assign]
