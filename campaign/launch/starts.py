"""Starts of workers: how many in a row have failed, when the next may be, and what a job wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BACKOFF_S = 5.0
MAX_BACKOFF_S = 300.0
TAIL_BYTES = 4096
TAIL_LINES = 5


@dataclass
class Starts:
    """A partition's jobs that ended before their worker had connected, since one did connect.

    Jobs that are seen to have ended at the same time count as one start.
    """

    most: int
    """How many may fail in a row."""
    failed: int = 0
    next_s: float = 0.0
    """The monotonic time before which no further job is submitted."""

    def fail(self, now_s: float) -> float:
        """Count a failed start; returns after how many seconds the next may be."""
        self.failed += 1
        wait_s = min(BACKOFF_S * 2.0 ** (self.failed - 1), MAX_BACKOFF_S)
        self.next_s = now_s + wait_s
        return wait_s

    def reset(self) -> None:
        """A worker has connected, or one that had connected was lost."""
        self.failed, self.next_s = 0, 0.0

    @property
    def spent(self) -> bool:
        """Whether as many starts have failed in a row as may."""
        return self.failed >= self.most

    def allowed(self, now_s: float) -> bool:
        """Whether a job may be submitted now."""
        return not self.spent and now_s >= self.next_s


def last_lines(log: Path) -> list[str]:
    """The last lines of a job's log that are not empty; none where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-TAIL_LINES:]
