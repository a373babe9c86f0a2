"""Waiting for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(is_so: Callable[[], T], timeout_s: float = 30.0, period_s: float = 0.05) -> T:
    """The first true value of ``is_so``. It fails where there is none in so many seconds."""
    end_s = time.monotonic() + timeout_s
    while not (value := is_so()):
        assert time.monotonic() < end_s, f"not so after {timeout_s:g} s"
        time.sleep(period_s)
    return value
