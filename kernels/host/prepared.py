"""A prepared kernel of independent parts, one for each thread, which run together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from kernels.host.ranks import Team
from kernels.kernel import Counts


class ThreadPart(Protocol):
    """One thread's data and compiled loop."""

    def run(self, iterations: int) -> None:
        """Run ``iterations`` times without the GIL."""

    def check(self) -> None:
        """Raise :class:`kernels.kernel.ResultError` unless the last run's result is right."""


def parts_on_node(threads: int, team: Team) -> int:
    """The threads of all ranks on this node, which share its caches and memory. Collective."""
    nodes = team.gather(os.uname().nodename)
    return threads * nodes.count(nodes[team.rank])


class PreparedParts:
    """Parts, each with one thread until :meth:`close`.

    The first part runs in the calling thread, so that running a single part costs only a call.
    """

    def __init__(self, makers: Sequence[Callable[[], ThreadPart]], counts: Counts | None) -> None:
        """Make every part in its thread, so that its pages are on that thread's NUMA node."""
        self._counts = counts
        self._threads = [ThreadPoolExecutor(max_workers=1) for _ in makers[1:]]
        try:
            made = [
                thread.submit(make) for thread, make in zip(self._threads, makers[1:], strict=True)
            ]
            self.parts: list[ThreadPart] = [makers[0](), *(part.result() for part in made)]
            # Compile now, so that nothing is compiled while the kernel is measured.
            self.run(1)
        except BaseException:
            self.close()
            raise

    def run(self, iterations: int) -> None:
        """Run every part ``iterations`` times, all parts at once."""
        started = [
            thread.submit(part.run, iterations)
            for thread, part in zip(self._threads, self.parts[1:], strict=True)
        ]
        self.parts[0].run(iterations)
        for future in started:
            future.result()

    def counts(self) -> Counts | None:
        """Operations of one iteration of all parts."""
        return self._counts

    def check(self) -> None:
        """Raise :class:`kernels.kernel.ResultError` unless every part's result is right."""
        for part in self.parts:
            part.check()

    def close(self) -> None:
        """End the threads and release the data."""
        for thread in self._threads:
            thread.shutdown()
        self._threads = []
        self.parts = []
