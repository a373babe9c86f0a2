"""The node-hours of a store while a run goes on: counted, written now and then, and limited."""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from collections.abc import Mapping

from campaign.launch.outcome import limit_option, limit_text
from campaign.launch.progress import ShowsProgress
from campaign.plan.estimate import estimates
from campaign.plan.plan import Plan
from campaign.store.hours import (
    FOLDER,
    JobTime,
    PartitionHours,
    RunHours,
    Spent,
    hours_text,
    merged,
    read_hours,
    spent,
    total,
)
from campaign.store.layout import Store

WRITE_EVERY_S = 10.0
"""A driver that is killed leaves what it knew so long before."""


class NodeHours:
    """What the runs of a store have spent: the earlier ones, and this one as it goes on.

    Where its file cannot be written, one message says so, and the run goes on.
    """

    def __init__(self, store: Store, progress: ShowsProgress, most: float | None) -> None:
        """``most``: the node-hours that all runs together may spend; None for no limit."""
        self.most = most
        self._progress = progress
        name = f"{time.time():.0f}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._store = store
        self._name = f"{FOLDER}/{name}.json"
        self._earlier, damage = read_hours(store)
        for text in damage:
            progress.note(text)
        self._own: dict[str, PartitionHours] = {}
        self._missing: set[str] = set()
        self._written_s = -math.inf
        self._failed = False

    def begin(self, label: str, measured_before: bool) -> None:
        """A partition's run begins. ``measured_before``: whether it has measurements, those of
        versions too that counted no hours."""
        self._own[label] = PartitionHours()
        if measured_before and label not in self._earlier:
            self._missing.add(label)

    def knows(self, label: str, job_id: str) -> bool:
        """Whether a job is one of an earlier run."""
        return label in self._earlier and job_id in self._earlier[label].jobs

    def add(self, label: str, jobs: Mapping[str, JobTime]) -> None:
        """What is known now of a partition's jobs."""
        now = {label: PartitionHours.model_construct(jobs=dict(jobs), whole=False)}
        self._own |= merged([{label: self._own[label]}, now])

    def end(self, label: str, all_seen: bool) -> None:
        """A partition's jobs have ended. ``all_seen``: whether Slurm has listed them since."""
        self._own[label].whole = all_seen and label not in self._missing

    def spent(self) -> dict[str, Spent]:
        """ "site/partition" -> what all runs have spent so far."""
        return {label: spent(part) for label, part in merged([self._earlier, self._own]).items()}

    def reached(self, more_s: float = 0.0) -> str:
        """That the limit is reached, by what is known and ``more_s`` node-seconds; empty where it
        is not."""
        if self.most is None or self._known_hours() + more_s / 3600.0 < self.most:
            return ""
        return limit_text(self.most)

    def _known_hours(self) -> float:
        return total(self.spent().values()).node_hours or 0.0

    def estimate_note(self, plan: Plan, left: Mapping[tuple[str, str], int]) -> str:
        """That the limit is expected to be reached before the campaign is complete; empty where it
        is not. ``left``: (site, partition) -> the points that this run is to measure."""
        if self.most is None or self.reached():
            return ""
        known_h = self._known_hours()
        left_h = sum(
            entry.nodes * entry.wall_s / 3600.0 * left[entry.site, entry.partition] / entry.points
            for entry in estimates(plan.points.parts, plan.campaign.protocol, plan.sites, {})
            if (entry.site, entry.partition) in left
        )
        if known_h + left_h <= self.most:
            return ""
        return (
            f"the points that are left are estimated to take {hours_text(left_h)} node-hours, and "
            f"{hours_text(known_h)} are spent: more than{limit_option(self.most)}, where this run "
            f"stops in order"
        )

    def write(self, now: bool = False) -> None:
        """Write this run's file where it is due, or ``now``."""
        if not now and time.monotonic() - self._written_s < WRITE_EVERY_S:
            return
        self._written_s = time.monotonic()
        hours = RunHours.model_construct(partitions=self._own)
        try:
            self._store.write_json(self._name, hours.model_dump(mode="json"))
        except OSError as error:
            text = f"{self._name}: the node-hours of this run cannot be written ({error.strerror})"
            if not self._failed:
                self._progress.note(f"{text}; later runs and campaign status will not know them")
            self._failed = True
