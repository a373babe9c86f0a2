"""Progress for people: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from campaign.launch.snapshot import PartitionNow
from dvfs.dataset import COMPLETE
from dvfs.extras import missing_extra
from dvfs.printable import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_EVERY_S = 10.0
UNCHANGED_EVERY_S = 600.0
MAX_NOTES = 20


def progress_for(quiet: bool = False) -> PlainProgress:
    """Bars if standard error is a terminal, otherwise lines."""
    if sys.stderr.isatty() and not quiet:
        return BarProgress()
    return PlainProgress(quiet)


class PlainProgress:
    """A line for each partition ("site/partition") on standard error, at its end,
    and every ten seconds if it has changed, else every ten minutes."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.total: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.notes = 0
        self.recent: deque[str] = deque(maxlen=MAX_NOTES)
        """The last messages."""
        self.now: Mapping[str, PartitionNow] = {}
        self._last: dict[str, tuple[object, float]] = {}
        self._began = time.monotonic()
        self._shown = self._began

    def start(self, points: dict[str, int], dashboards: dict[str, str]) -> None:
        """The number of points to measure and the dashboard's address of each partition."""
        self.total = dict(points)
        self.done = dict.fromkeys(points, 0)
        self.failed = dict.fromkeys(points, 0)
        self._began = self._shown = time.monotonic()
        missing = missing_extra("bokeh")
        for partition, count in points.items():
            dashboard = f"dashboard {dashboards[partition]}" if missing is None else str(missing)
            self._say(f"{partition}: {count} points to measure; {dashboard}")

    def point_finished(self, partition: str, status: str, will_retry: bool) -> None:
        """Count a point that was measured, or failed."""
        if not will_retry:
            if status in COMPLETE:
                self.done[partition] += 1
            else:
                self.failed[partition] += 1
        self._show(partition)

    def left(self, partition: str) -> int:
        """The number of a partition's points that are not done yet."""
        return self.total[partition] - self.done[partition] - self.failed[partition]

    def show(self, now: Mapping[str, PartitionNow]) -> None:
        """Show the state of the active partitions."""
        self.now = now
        if time.monotonic() - self._shown >= PLAIN_EVERY_S:
            self._show_lines()

    def _show(self, partition: str) -> None:
        if time.monotonic() - self._shown >= PLAIN_EVERY_S or self.left(partition) == 0:
            self._show_lines()

    def _show_lines(self) -> None:
        self._shown = time.monotonic()
        for name in self.total:
            key = (self.done[name], self.failed[name], name in self.now and self.now[name].key)
            last_key, last_s = self._last.get(name, (None, 0.0))
            if key != last_key or self._shown - last_s >= UNCHANGED_EVERY_S:
                self._last[name] = (key, self._shown)
                self._say(self.line(name))

    def line(self, partition: str) -> str:
        """A partition's line; empty if this run measures no point of it."""
        if partition not in self.total:
            return ""
        finished = self.done[partition] + self.failed[partition]
        spent_s = time.monotonic() - self._began
        end = (
            f"about {spent_s / finished * self.left(partition):.0f} s left"
            if finished
            else "no estimate yet"
        )
        now = f"; {self.now[partition]}" if partition in self.now and self.left(partition) else ""
        return (
            f"{partition}: {self.done[partition]} done, {self.failed[partition]} failed, "
            f"{self.left(partition)} left, {end}{printable(now)}"
        )

    def note(self, text: str, *lines: str) -> None:
        """Show a message, and further lines indented."""
        self.notes += 1
        self.recent.append("\n".join((text, *lines)))
        if self.notes <= MAX_NOTES:
            self._say("\n    ".join(printable(line) for line in (text, *lines)))
        elif self.notes == MAX_NOTES + 1:
            self._say("more failures are not shown; `campaign status` lists them")

    def _say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def stop(self) -> None:
        """End the display."""


class BarProgress(PlainProgress):
    """A bar for each partition."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console, RenderableType  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text  # noqa: PLC0415

        progress = self

        class Bars(Progress):
            """The bars, and below them a line for each partition that is not done."""

            def get_renderables(self) -> Iterable[RenderableType]:
                yield from super().get_renderables()
                for name, now in progress.now.items():
                    yield Text(printable(f"{name}: {now}"), no_wrap=True, overflow="ellipsis")

        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]} failed"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def start(self, points: dict[str, int], dashboards: dict[str, str]) -> None:
        super().start(points, dashboards)
        for partition, count in points.items():
            self._tasks[partition] = self._bars.add_task(partition, total=count, failed=0)
        self._bars.start()

    def show(self, now: Mapping[str, PartitionNow]) -> None:
        self.now = now

    def _show(self, partition: str) -> None:
        finished = self.done[partition] + self.failed[partition]
        self._bars.update(self._tasks[partition], completed=finished, failed=self.failed[partition])

    def _say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self.now = {}
        self._bars.stop()
