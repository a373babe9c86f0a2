"""Worker threads that stay awake between the phases of an evaluation.

A thread that waits for a lock sleeps, and its core may sleep too. Waking up can take longer than a
phase, on virtual machines by milliseconds. So these threads, like OpenMP's, spin between the phases
of one evaluation, and yield their core to any other thread that needs it. Between evaluations they
sleep.
"""

# mypy: disable-error-code="no-untyped-def,call-overload"

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit, types

END = -1
PARTS_PER_THREAD = 4
"""The parts of each thread's share of a loop, so that all threads end at about the same time."""
_yield = types.ExternalFunction("sched_yield", types.int32())


@njit(nogil=True, cache=True)
def _wait(number, while_it_is):
    """Spin while ``number[0]`` is ``while_it_is``, and return its new value."""
    while number[0] == while_it_is:
        _yield()
    return number[0]


@njit(nogil=True, cache=True)
def _wait_for_zero(number):
    """Spin until ``number[0]`` is 0."""
    while number[0] != 0:
        _yield()


class WorkerThreads:
    """``threads`` threads, including the calling thread."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._pool = ThreadPoolExecutor(max(threads - 1, 1))  # starts no thread before it is used
        self._lock = threading.Lock()
        self._round = np.zeros(1, np.int64)
        self._busy = np.zeros(1, np.int64)
        self._task: Callable[[], None] | None = None
        self._error: BaseException | None = None

    @contextmanager
    def awake(self) -> Iterator[None]:
        """A context in which the other threads are awake or waking up."""
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
        """Call ``task`` once on every thread that is awake, and return when all calls have ended.

        A thread that wakes up too late does not call it, so a task must distribute its work itself.
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

    def share(self, n: int, work: Callable[[int, int], Any], parts: int = PARTS_PER_THREAD) -> None:
        """Call ``work(first, last)`` for parts of 0 to n, on all threads that are awake."""
        if self.threads == 1 or n < 2:
            work(0, n)
            return
        cuts = np.linspace(0, n, min(self.threads * parts, n) + 1).astype(int).tolist()
        remaining = deque(pairwise(cuts))

        def take() -> None:
            while remaining:
                try:
                    first, last = remaining.popleft()
                except IndexError:  # another thread took it
                    return
                work(first, last)

        self.run(take)

    def share_groups(self, column: np.ndarray, work: Callable[[int, int], Any]) -> None:
        """Call ``work(first, last)`` for parts of sorted rows; rows of equal number in one part."""
        cuts = np.append(np.flatnonzero(np.diff(column, prepend=-1)), len(column)).tolist()
        self.share(len(cuts) - 1, lambda a, b: work(cuts[a], cuts[b]))

    def _serve(self) -> None:
        """The loop of the other threads: each round's task, if the thread is awake in time."""
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
