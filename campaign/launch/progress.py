"""Progress for people: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from analysis.dataset import OK
from campaign.printable import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_EVERY_S = 10.0
MAX_NOTES = 20


def progress_for(quiet: bool = False) -> PlainProgress:
    """Bars when standard error is a terminal, else a line now and then."""
    if sys.stderr.isatty() and not quiet:
        return BarProgress()
    return PlainProgress(quiet)


class PlainProgress:
    """A line on standard error every ten seconds, and one a partition at its end."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.total: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.notes = 0
        self._began = time.monotonic()
        self._shown = self._began

    def start(self, lanes: dict[str, int], dashboards: dict[str, str]) -> None:
        """See :class:`campaign.launch.drive.Progress`."""
        self.total = dict(lanes)
        self.done = dict.fromkeys(lanes, 0)
        self.failed = dict.fromkeys(lanes, 0)
        self._began = self._shown = time.monotonic()
        for lane, count in lanes.items():
            self._say(f"{lane}: {count} points to measure; dashboard {dashboards[lane]}")

    def landed(self, lane: str, status: str, will_retry: bool) -> None:
        """See :class:`campaign.launch.drive.Progress`."""
        if not will_retry:
            if status == OK:
                self.done[lane] += 1
            else:
                self.failed[lane] += 1
        self._show(lane)

    def left(self, lane: str) -> int:
        """Points of a lane that have not come back for good."""
        return self.total[lane] - self.done[lane] - self.failed[lane]

    def _show(self, lane: str) -> None:
        now = time.monotonic()
        if now - self._shown >= PLAIN_EVERY_S or self.left(lane) == 0:
            self._shown = now
            for name in self.total:
                self._say(self._line(name))

    def _line(self, lane: str) -> str:
        back = self.done[lane] + self.failed[lane]
        spent_s = time.monotonic() - self._began
        end = f"{spent_s / back * self.left(lane):.0f} s to the end" if back else "no pace yet"
        return (
            f"{lane}: {self.done[lane]} done, {self.failed[lane]} failed, "
            f"{self.left(lane)} left, {end}"
        )

    def note(self, text: str) -> None:
        """See :class:`campaign.launch.drive.Progress`."""
        self.notes += 1
        if self.notes <= MAX_NOTES:
            self._say(printable(text))
        elif self.notes == MAX_NOTES + 1:
            self._say("further failures are in the store; see `campaign status`")

    def _say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """See :class:`campaign.launch.drive.Progress`."""


class BarProgress(PlainProgress):
    """A bar a partition."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def start(self, lanes: dict[str, int], dashboards: dict[str, str]) -> None:
        super().start(lanes, dashboards)
        for lane, count in lanes.items():
            self._tasks[lane] = self._bars.add_task(lane, total=count, failed=0)
        self._bars.start()

    def _show(self, lane: str) -> None:
        back = self.done[lane] + self.failed[lane]
        self._bars.update(self._tasks[lane], completed=back, failed=self.failed[lane])

    def _say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._bars.stop()
