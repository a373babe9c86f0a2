"""Counts the node-hours of a store during a run, writes them now and then, and limits them."""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from collections.abc import Mapping

from campaign.launch.outcome import limit_option, limit_text
from campaign.launch.progress import PlainProgress
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
"""The interval of writing: a killed driver loses the node-hours since the last time."""


class NodeHours:
    """The node-hours of a store's earlier runs, and of this one as it continues.

    If the file cannot be written, the run prints one message and continues.
    """

    def __init__(self, store: Store, progress: PlainProgress, most: float | None) -> None:
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
        """Begin to count a partition. ``measured_before``: whether it has measurements, including
        those of versions that counted no hours."""
        self._own[label] = PartitionHours()
        if measured_before and label not in self._earlier:
            self._missing.add(label)

    def knows(self, label: str, job_id: str) -> bool:
        """Whether an earlier run has recorded a job."""
        return label in self._earlier and job_id in self._earlier[label].jobs

    def add(self, label: str, jobs: Mapping[str, JobTime]) -> None:
        """Record the present times of a partition's jobs."""
        now = {label: PartitionHours.model_construct(jobs=dict(jobs), whole=False)}
        self._own |= merged([{label: self._own[label]}, now])

    def end(self, label: str, all_seen: bool) -> None:
        """End the count of a partition. ``all_seen``: whether Slurm has listed its ended jobs."""
        self._own[label].whole = all_seen and label not in self._missing

    def spent(self) -> dict[str, Spent]:
        """ "site/partition" -> the node-hours of all runs so far."""
        return {label: spent(part) for label, part in merged([self._earlier, self._own]).items()}

    def reached(self, more_s: float = 0.0) -> str:
        """The sentence that the known node-hours and ``more_s`` node-seconds reach the limit; empty
        if they do not."""
        if self.most is None or self._known_hours() + more_s / 3600.0 < self.most:
            return ""
        return limit_text(self.most)

    def _known_hours(self) -> float:
        return total(self.spent().values()).node_hours or 0.0

    def estimate_note(self, plan: Plan, n_missing: Mapping[tuple[str, str], int]) -> str:
        """The sentence that the run will probably reach the limit before the campaign is complete;
        else empty. ``n_missing``: (site, partition) -> the number of points to measure."""
        if self.most is None or self.reached():
            return ""
        known_h = self._known_hours()
        left_h = sum(
            entry.nodes
            * entry.wall_s
            / 3600.0
            * n_missing[entry.site, entry.partition]
            / entry.points
            for entry in estimates(plan.points.parts, plan.campaign.protocol, plan.sites, {})
            if (entry.site, entry.partition) in n_missing
        )
        if known_h + left_h <= self.most:
            return ""
        return (
            f"the points that are left are estimated to take {hours_text(left_h)} node-hours, and "
            f"{hours_text(known_h)} are spent: more than{limit_option(self.most)}, where this run "
            f"stops in order"
        )

    def write(self, now: bool = False) -> None:
        """Write this run's file if it is due, or at once with ``now``."""
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
