"""Ctrl-C and the workers on this machine.

A terminal sends SIGINT to all of its processes. The driver answers it, and ends its workers; a
worker that took it for itself would print a traceback and lose the point that it measures.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from types import FrameType

from distributed import Worker


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """While processes are started: SIGINT is blocked in this thread, in the threads that it starts,
    and in their processes, until these have called :func:`dask_setup`."""
    resource_tracker.ensure_running()  # as it starts, it lets SIGINT through again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def dask_setup(worker: Worker) -> None:
    """Dask's preload of a worker. The handler does nothing, since what a process ignores is also
    ignored by the programs that it starts."""
    signal.signal(signal.SIGINT, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _nothing(number: int, frame: FrameType | None) -> None:
    """What a worker does at SIGINT."""
