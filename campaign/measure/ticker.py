"""Reads files of one whole number each on a fixed grid of times, in a compiled loop.

A kernel may hold Python's lock while it runs, which would delay a Python thread. The compiled loop
runs without the lock, so that it waits only for the clock and the system. Reading a file takes
some microseconds.
"""

# mypy: disable-error-code="no-untyped-def,call-overload"

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit, types

CLOCK_MONOTONIC, TIMER_ABSTIME = 1, 1
PR_SET_TIMERSLACK = 29
TEXT_BYTES = 64
"""More than the digits of a 64-bit number."""
CHUNK_S = 60.0
"""How long the loop runs before it hands over its readings, which needs Python's lock."""
FAILED = -(1 << 63)
"""Stands for a reading that was not a number. Another reading gives the error."""

_sleep = types.ExternalFunction(
    "clock_nanosleep", types.int32(types.int32, types.int32, types.intp, types.intp)
)
_now = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
_pread = types.ExternalFunction(
    "pread", types.intp(types.int32, types.intp, types.intp, types.intp)
)


@njit(nogil=True, cache=True)
def _tick(descriptors, begin_ns, period_ns, stop, times_ns, raw, text, spec):
    """Fill ``times_ns`` (n, 2) and ``raw`` (n, files) until ``stop`` is set; return the rows.

    ``text``: uint8 (TEXT_BYTES,) and ``spec``: int64 (2,) are buffers of the system calls. Late
    ticks are skipped. Ends early after a reading that failed.
    """
    filled = 0
    next_ns = begin_ns
    while filled < len(raw) and stop[0] == 0:
        spec[0], spec[1] = next_ns // 1_000_000_000, next_ns % 1_000_000_000
        _sleep(CLOCK_MONOTONIC, TIMER_ABSTIME, spec.ctypes.data, 0)
        _now(CLOCK_MONOTONIC, spec.ctypes.data)
        times_ns[filled, 0] = spec[0] * 1_000_000_000 + spec[1]
        failed = False
        for k in range(len(descriptors)):
            n_read = _pread(descriptors[k], text.ctypes.data, TEXT_BYTES, 0)
            value = 0
            first = 1 if n_read > 0 and text[0] == 45 else 0  # a minus
            end = first
            while end < n_read and 48 <= text[end] <= 57:
                value = value * 10 + (text[end] - 48)
                end += 1
            # A number alone, with or without the end of its line.
            whole = end == n_read or (end == n_read - 1 and text[end] == 10)
            failed = failed or not 1 <= end - first <= 18 or not whole
            raw[filled, k] = FAILED if failed else -value if first else value
        _now(CLOCK_MONOTONIC, spec.ctypes.data)
        now_ns = spec[0] * 1_000_000_000 + spec[1]
        times_ns[filled, 1] = now_ns
        filled += 1
        if failed:
            break
        next_ns += period_ns * max(1, (now_ns - next_ns) // period_ns + 1)
    return filled


@dataclass(frozen=True)
class Ticks:
    """``times_ns``: int64 (n, 2), before and after each round; ``raw``: int64 (n, files)."""

    times_ns: np.ndarray
    raw: np.ndarray


class Ticker(threading.Thread):
    """Reads open files on a grid of times, in a thread.

    Args:
        descriptors: of files that hold one whole number each.
        period_s: the time between two readings.
    """

    def __init__(self, descriptors: Sequence[int], period_s: float) -> None:
        super().__init__(name="ticker", daemon=True)
        self.cpu_s = 0.0
        self._descriptors = np.array(descriptors, np.int32)
        self._period_ns = max(1, round(period_s * 1e9))
        self._stop_flag = np.zeros(1, np.uint8)
        self._chunks: list[Ticks] = []

    def run(self) -> None:
        """Run the thread."""
        # By default the system may delay a wake-up by 50 us, to save power.
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        begin_s = time.thread_time()
        n = max(16, round(CHUNK_S * 1e9 / self._period_ns))
        text, spec = np.empty(TEXT_BYTES, np.uint8), np.empty(2, np.int64)
        next_ns = time.monotonic_ns()
        while not self._stop_flag[0]:
            times_ns = np.empty((n, 2), np.int64)
            raw = np.empty((n, self._descriptors.size), np.int64)
            filled = _tick(
                self._descriptors, next_ns, self._period_ns, self._stop_flag, times_ns, raw,
                text, spec,
            )  # fmt: skip
            self._chunks.append(Ticks(times_ns[:filled].copy(), raw[:filled].copy()))
            if filled < n:
                break
            next_ns = int(times_ns[-1, 1]) + self._period_ns
        self.cpu_s = time.thread_time() - begin_s

    def end(self) -> Ticks:
        """Stop, and return all readings."""
        self._stop_flag[0] = 1
        self.join()
        chunks = self._chunks or [Ticks(np.empty((0, 2), np.int64), np.empty((0, 0), np.int64))]
        return Ticks(
            np.concatenate([c.times_ns for c in chunks]), np.concatenate([c.raw for c in chunks])
        )


def compile_loop() -> None:
    """Compile or load the loop, so that this does not delay the first window."""
    buffers = np.empty((1, 2), np.int64), np.empty((1, 1), np.int64)
    stop = np.ones(1, np.uint8)
    none = np.empty(0, np.int32)
    _tick(none, 0, 1, stop, *buffers, np.empty(TEXT_BYTES, np.uint8), np.empty(2, np.int64))
