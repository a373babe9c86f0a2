"""Threads that stay awake from a method's first phase to its last.

A thread that waits for a lock sleeps, and its core with it; to wake can take longer than a phase
does, on virtual machines by milliseconds. So, as OpenMP's do, the threads here spin between the
phases of one evaluation, and let whoever else wants their core have it. Between evaluations they
sleep.
"""

# mypy: disable-error-code="no-untyped-def,call-overload"

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from numba import njit, types

END = -1
_yield = types.ExternalFunction("sched_yield", types.int32())


@njit(nogil=True, cache=True)
def _wait(number, while_it_is):
    """Spin while ``number[0]`` is so; what it is then."""
    while number[0] == while_it_is:
        _yield()
    return number[0]


@njit(nogil=True, cache=True)
def _wait_for_zero(number):
    """Spin until ``number[0]`` is 0."""
    while number[0] != 0:
        _yield()


class WorkerThreads:
    """``threads`` threads, the caller's among them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1)
        self._lock = threading.Lock()
        self._round = np.zeros(1, np.int64)
        self._busy = np.zeros(1, np.int64)
        self._task: Callable[[], None] | None = None
        self._error: BaseException | None = None

    @contextmanager
    def awake(self) -> Iterator[None]:
        """In its body the other threads are awake, or about to be."""
        others = [self._pool.submit(self._serve) for _ in range(self.threads - 1)]
        try:
            yield
        finally:
            self._round[0] = END
            for other in others:
                if not other.cancel():
                    other.result()
            self._round[0] = 0

    def run(self, task: Callable[[], None]) -> None:
        """Call ``task`` on every thread that is awake, once on each; returns when all are done.

        A thread that wakes later takes no part, so a task hands its work out by itself.
        """
        with self._lock:
            self._task, self._error = task, None
        self._round[0] += 1
        try:
            task()
        finally:
            with self._lock:
                self._task = None
            _wait_for_zero(self._busy)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _serve(self) -> None:
        """What another thread does: each round's task, if it is there in time."""
        seen = 0
        while (seen := _wait(self._round, seen)) != END:
            with self._lock:
                task = self._task
                if task is None:
                    continue
                self._busy[0] += 1
            try:
                task()
            except BaseException as error:  # raised by run()
                self._error = error
            finally:
                with self._lock:
                    self._busy[0] -= 1
