"""What a driver writes about its run while it runs: the snapshot, the page and the metrics.

The planned points are counted once, from the states that the driver has read anyway; from then on
each finished point changes one count, so that a snapshot costs the same at any size of the store.
"""

from __future__ import annotations

import math
import os
import shlex
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from campaign.launch.metrics_text import metrics_text
from campaign.launch.outcome import limit_option
from campaign.launch.partition_now import PartitionNow
from campaign.launch.progress import ShowsProgress
from campaign.launch.snapshot import (
    ENDED,
    MEASURING,
    STARTING,
    SUBMITTED,
    PartitionSnapshot,
    SettingCounts,
    Snapshot,
)
from campaign.launch.status_page import status_page
from campaign.plan.plan import Plan
from campaign.plan.point import Point
from campaign.store.hours import Spent
from campaign.store.layout import METRICS, PAGE, SNAPSHOT, Store, replace_file
from campaign.store.seal import sealed
from campaign.store.states import NEVER, State
from dvfs.dataset import COMPLETE
from dvfs.setting import AXES, Setting

SNAPSHOT_EVERY_S = 2.0
PAGE_EVERY_S = 10.0
DONE, FAILED, LEFT = range(3)

Counts = dict[Setting, list[int]]
"""Setting -> the numbers of points done, failed and left."""


class LiveStatus:
    """Counts a run's points, and writes how it stands into the store now and then.

    Nothing of a run depends on these files: where they cannot be written, one message says so.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        progress: ShowsProgress,
        campaign_file: Path | None,
        max_node_hours: float | None = None,
        verb: str = "run",
    ) -> None:
        self.spent: Mapping[str, Spent] = {}
        """"site/partition" -> the node-hours of all runs so far."""
        self.resume = resume_command(campaign_file, store, verb)
        """The command that goes on with the campaign, without a limit of node-hours."""
        self._plan = plan
        self._store = store
        self._progress = progress
        self._counts: dict[tuple[str, str], Counts] = {}
        self._energy_j: dict[str, float] = {}
        self._now: Mapping[str, PartitionNow] = {}
        self._snapshot_s = self._page_s = -math.inf
        self._failed = False
        began_unix_s = time.time()
        self._base = Snapshot(
            campaign=plan.campaign.name,
            store=str(store.root),
            host=socket.gethostname(),
            pid=os.getpid(),
            job="",
            phase=STARTING,
            began_unix_s=began_unix_s,
            written_unix_s=began_unix_s,
            resume=self.resume + limit_option(max_node_hours),
            max_node_hours=max_node_hours,
        )

    def count(
        self, points: Iterable[Point], state: Mapping[str, State], todo: Collection[str]
    ) -> None:
        """Count the planned points. ``todo``: the ids of those that this run measures."""
        self._counts = {partition: {} for partition in self._plan.partitions}
        for point in points:
            complete = state.get(point.id, NEVER)[0] in COMPLETE
            kind = DONE if complete else LEFT if point.id in todo else FAILED
            self._of(point)[kind] += 1

    def add(self, points: Iterable[Point]) -> None:
        """Count further points that this run measures."""
        for point in points:
            self._of(point)[LEFT] += 1

    def _of(self, point: Point) -> list[int]:
        return self._counts[point.site, point.partition].setdefault(point.setting, [0, 0, 0])

    def point_finished(
        self, point: Point, status: str, energy_j: float | None, will_retry: bool
    ) -> None:
        """A point was measured, or failed."""
        if will_retry:
            return
        counts = self._of(point)
        counts[LEFT] -= 1
        counts[DONE if status in COMPLETE else FAILED] += 1
        if status in COMPLETE and energy_j is not None:
            label = f"{point.site}/{point.partition}"
            self._energy_j[label] = self._energy_j.get(label, 0.0) + energy_j

    def show(self, now: Mapping[str, PartitionNow]) -> None:
        """Write the files that are due, with how the partitions stand that are not done."""
        self._now = now
        if self._base.phase != MEASURING:
            self.enter(MEASURING)
        elif time.monotonic() - self._snapshot_s >= SNAPSHOT_EVERY_S:
            self._write(time.monotonic() - self._page_s >= PAGE_EVERY_S)

    def enter(self, phase: str) -> None:
        """Write all files, in another phase of the run."""
        self._base = replace(self._base, phase=phase)
        self._write(True)

    def submitted(self, job: str) -> None:
        """Write all files: the driver's own job of this name waits in Slurm's queue."""
        self._base = replace(self._base, job=job)
        self.enter(SUBMITTED)

    def end(self, exit_code: int, text: str) -> None:
        """Write all files for the last time: how the run ended."""
        self._now = {}
        self._base = replace(self._base, exit_code=exit_code, end=text)
        self.enter(ENDED)

    def _write(self, page_too: bool) -> None:
        self._snapshot_s = time.monotonic()
        snapshot = self._snapshot()
        files = {SNAPSHOT: sealed(SNAPSHOT, snapshot.as_dict())}
        if page_too:
            self._page_s = self._snapshot_s
            texts = {PAGE: status_page(snapshot), METRICS: metrics_text(snapshot)}
            files |= {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        try:
            for name, data in files.items():
                replace_file(self._store.root / name, data, False)
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._progress.note(
                    f"{self._store.root}: how the run stands cannot be written "
                    f"({error.strerror}); campaign watch and {PAGE} show what was written last"
                )

    def _snapshot(self) -> Snapshot:
        return replace(
            self._base,
            written_unix_s=time.time(),
            notes=tuple(self._progress.recent),
            partitions=tuple(
                self._partition(site, partition, counts)
                for (site, partition), counts in self._counts.items()
            ),
        )

    def _partition(self, site: str, partition: str, counts: Counts) -> PartitionSnapshot:
        label = f"{site}/{partition}"
        spent = self.spent.get(label, Spent())
        by_clock = sorted(counts.items(), key=lambda item: item[0])
        return PartitionSnapshot(
            site=site,
            partition=partition,
            simulated=self._plan.sites[site].is_simulated,
            slurm=self._plan.sites[site].partitions[partition].has_jobs,
            line=self._progress.line(label),
            energy_j=self._energy_j.get(label),
            node_hours=spent.node_hours,
            node_hours_complete=spent.complete,
            now=self._now.get(label),
            settings=tuple(
                SettingCounts(
                    **{name: getattr(setting, name) for name in AXES},
                    done=done,
                    failed=failed,
                    left=left,
                )
                for setting, (done, failed, left) in by_clock
            ),
        )


def resume_command(campaign_file: Path | None, store: Store, verb: str = "run") -> str:
    """The command that goes on with a campaign."""
    file = "CAMPAIGN.toml" if campaign_file is None else shlex.quote(str(campaign_file.resolve()))
    return f"campaign {verb} {file} --store {shlex.quote(str(store.root))}"
