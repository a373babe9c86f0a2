"""Supervises a partition's workers that run in jobs, and replaces those that end, within limits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.launch.job_queue import QueueWatch
from campaign.launch.scheduler import Phase, Scheduler
from campaign.launch.snapshot import PartitionNow, duration

BACKOFF_S = 5.0
MAX_BACKOFF_S = 300.0
TAIL_BYTES = 4096
TAIL_LINES = 5
SUBMISSION_S = 20.0
"""The time after which a job without an id counts as not accepted."""
START_S = 120.0
"""How long a job may run before its worker connects: a busy file system may delay the start of
Python, and the worker gives up after a minute without a connection."""
FRESH_S = 60.0
"""The age of a job up to which the scheduler is asked more often."""
JobKey = tuple[str, str | None]
"""A worker's name and the id of its job, None before it has one."""
Note = tuple[str, ...]
"""A message for people, and its further lines."""


@dataclass
class Starts:
    """A partition's failed starts, which are jobs that ended before their worker had connected,
    since the last worker connected. Jobs that are found ended at the same time count as one."""

    most: int
    """The most failures in a row."""
    failed: int = 0
    next_s: float = 0.0
    """The monotonic time before which no further job is submitted."""

    def fail(self, now_s: float) -> float:
        """Count a failed start. Returns the time, in s, to wait before the next."""
        self.failed += 1
        wait_s = min(BACKOFF_S * 2.0 ** (self.failed - 1), MAX_BACKOFF_S)
        self.next_s = now_s + wait_s
        return wait_s

    def reset(self) -> None:
        """Start counting anew: a worker has connected, or a connected one was lost."""
        self.failed, self.next_s = 0, 0.0

    @property
    def spent(self) -> bool:
        """Whether the most failures in a row are reached."""
        return self.failed >= self.most

    def allowed(self, now_s: float) -> bool:
        """Whether a job may be submitted now."""
        return not self.spent and now_s >= self.next_s


def last_lines(log: Path) -> list[str]:
    """The last lines of a job's log that are not empty; none without a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()][-TAIL_LINES:]


@dataclass(kw_only=True)
class JobWorkers:
    """The workers of a running partition.

    dask-jobqueue notices neither a job that was cancelled before its worker connected, nor one
    whose worker could not start. So this class removes an unconnected worker if its job is neither
    waiting nor running, or runs for too long without it. The removal cancels the job, and scaling
    up submits another one.
    """

    cluster: Any
    scheduler: Scheduler
    label: str
    """site/partition, for messages."""
    job_name: str
    logs: Path
    watch: QueueWatch
    starts: Starts
    no_answer_s: float
    """How long the scheduler may give no answer while no worker is connected."""
    given_up: str = ""
    """Why the partition starts no more workers and has none; empty otherwise."""
    _connected: frozenset[str] = frozenset()
    _none_since_s: float = field(default_factory=time.monotonic)
    """The monotonic time, as all below, from which no worker is connected, if none is."""
    _absent_s: dict[JobKey, float] = field(default_factory=dict)
    """Unconnected worker -> the time when it was first seen so."""
    _running_s: dict[JobKey, float] = field(default_factory=dict)
    """Unconnected worker -> the time when its job was first seen running."""
    _never_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """(job id, reason for which it can never start) -> the time of the first look with it."""
    _pending_s: dict[str, float] = field(default_factory=dict)
    """Id of a waiting job -> the time when it was first seen waiting."""
    _job_ids: dict[str, str] = field(default_factory=dict)
    """Worker -> the id of its job."""
    _lost_s: dict[str, float] = field(default_factory=dict)
    """Id of a job -> the time when its worker, which this class did not remove, disconnected."""

    @property
    def starting(self) -> bool:
        """Whether a worker is expected soon, or a job to end without one."""
        now_s = time.monotonic()
        return bool(self._running_s) or any(
            now_s - since_s < FRESH_S for since_s in self._absent_s.values()
        )

    def supervise(self, n_workers: int) -> list[Note]:
        """Replace lost workers, up to ``n_workers`` in all. Returns messages for people."""
        connected = frozenset(
            str(worker["id"]) for worker in self.cluster.scheduler_info["workers"].values()
        )
        absent = {
            (str(name), job.job_id): job
            for name, job in dict(self.cluster.workers).items()
            if str(name) not in connected
        }
        # Read after the job ids: a look that begins later includes these jobs.
        now_s = time.monotonic()
        self._job_ids |= {
            str(name): job.job_id
            for name, job in dict(self.cluster.workers).items()
            if job.job_id and name in self.cluster.worker_spec
        }
        if connected != self._connected:
            lost = [self._job_ids.pop(name, None) for name in self._connected - connected]
            self._lost_s |= {job_id: now_s for job_id in lost if job_id is not None}
            self._connected = connected
            self._none_since_s = now_s
            self.starts.reset()
        self._absent_s = {key: self._absent_s.get(key, now_s) for key in absent}
        self._running_s = {key: s for key, s in self._running_s.items() if key in absent}
        messages = self._lost_jobs(now_s)
        gone = [key for key in absent if self._has_gone(key, now_s)]
        if gone:
            self._remove({name for name, _ in gone})
            ended = [job_id for _, job_id in gone if job_id is not None]
            if ended:
                messages += self._failed_start(ended, now_s)
        if not self.given_up:
            messages += self._never_starts()
        silent_s = self.watch.silent_since
        if silent_s is not None and not connected:
            unanswered_s = now_s - max(silent_s, self._none_since_s)
            if unanswered_s >= self.no_answer_s:
                self.given_up = (
                    f"{self.scheduler.title} has not answered for {duration(unanswered_s)}, and no "
                    f"worker is connected ({self.watch.problem})"
                )
        # After a failed submission Dask lists a worker that does not exist.
        existing = min(len(self.cluster.worker_spec), len(self.cluster.workers))
        if existing < n_workers and silent_s is None and self.starts.allowed(now_s):
            self.cluster.scale(n_workers)
        self._release_surplus(n_workers)
        return messages

    def _lost_jobs(self, now_s: float) -> list[Note]:
        """A message for each job that has ended while its worker was connected."""
        look = self.watch.look
        messages: list[Note] = []
        for job_id, since_s in list(self._lost_s.items()):
            job = next((listed for listed in look.jobs if listed.id == job_id), None)
            ends = job is not None and job.phase != Phase.OVER and now_s - since_s < START_S
            if look.began_s <= since_s or ends:
                continue
            del self._lost_s[job_id]
            state = "it is not in the queue" if job is None else job.state
            messages.append(
                (
                    f"{self.label}: job {job_id} ended while its worker was connected ({state}); "
                    f"its points are measured in another job",
                )
            )
        return messages

    def _never_starts(self) -> list[Note]:
        """Start no more jobs if the scheduler reports twice that one can never start. Twice,
        because right after a submission it may give a wrong reason."""
        look, earlier_s = self.watch.look, self._never_s
        self._never_s = {}
        for job in look.named(self.job_name).values():
            waits = job.phase == Phase.WAITING
            change = self.scheduler.remedy(job.reason) if waits else None
            if change is None:
                continue
            key = (job.id, job.reason)
            self._never_s[key] = earlier_s.get(key, look.began_s)
            if look.began_s > self._never_s[key] and not self.starts.spent:
                self.starts.failed = self.starts.most
                reason = f"job {job.id} can never start ({job.reason}); {change}"
                if not self._connected:
                    self.given_up = reason
                return [(f"{self.label}: {reason}",)]
        return []

    def now(self) -> PartitionNow:
        """The partition's jobs and workers, for people."""
        jobs = list(self.watch.look.named(self.job_name).values())
        pending = [job for job in jobs if job.phase == Phase.WAITING]
        now_s = time.monotonic()
        self._pending_s = {job.id: self._pending_s.get(job.id, now_s) for job in pending}
        longest = min(pending, key=lambda job: self._pending_s[job.id], default=None)
        return PartitionNow(
            workers=len(self._connected),
            running=sum(job.phase == Phase.RUNNING for job in jobs),
            pending=len(pending),
            pending_s=0.0 if longest is None else now_s - self._pending_s[longest.id],
            reason="" if longest is None else longest.reason,
            silent=self.watch.silent_since is not None,
        )

    def _release_surplus(self, n_workers: int) -> None:
        """End the jobs of idle workers beyond ``n_workers``, first those whose worker has not
        connected yet. A worker that measures stays."""
        spec = [str(name) for name in self.cluster.worker_spec]
        if len(spec) <= n_workers:
            return
        waiting = [name for name in spec if name not in self._connected]
        unneeded = [*waiting, *self.cluster.sync(self._idle)]
        self._remove(set(unneeded[: len(spec) - n_workers]))

    async def _idle(self) -> list[str]:
        """The names of the workers without a task."""
        workers = self.cluster.scheduler.workers.values()
        return [str(worker.name) for worker in workers if not worker.processing]

    def _has_gone(self, key: JobKey, now_s: float) -> bool:
        """Whether an unconnected worker has failed: its job has ended, was not accepted, or has run
        for too long without it."""
        _, job_id = key
        if job_id is None:
            return now_s - self._absent_s[key] >= SUBMISSION_S
        if self.watch.look.began_s <= self._absent_s[key]:
            return False  # the job may be younger than the look
        job = self.watch.look.named(self.job_name).get(job_id)
        if job is None or job.phase == Phase.ENDING or job.held:
            return True
        if job.phase != Phase.RUNNING:
            self._running_s.pop(key, None)
            return False
        return now_s - self._running_s.setdefault(key, now_s) >= START_S

    def _remove(self, names: set[str]) -> None:
        """Remove workers from the cluster, which cancels their jobs."""
        spec = self.cluster.worker_spec
        for name in [name for name in spec if str(name) in names]:
            del spec[name]
            self._job_ids.pop(str(name), None)
        self.cluster.scale(len(spec))  # Dask now compares its workers with the specification

    def _failed_start(self, job_ids: list[str], now_s: float) -> list[Note]:
        """Count jobs that ended before their worker connected as one failed start."""
        wait_s = self.starts.fail(now_s)
        log = self.logs / f"{self.job_name}-{job_ids[-1]}.log"
        lines = last_lines(log)
        jobs = f"job {', '.join(job_ids)} ended before its worker had connected"
        if len(job_ids) > 1:
            jobs = f"jobs {', '.join(job_ids)} ended before their workers had connected"
        count = f"{self.starts.failed} of {self.starts.most} in a row"
        then = f"the next is submitted in {wait_s:g} s"
        if self.starts.spent and self._connected:
            then = f"no more are submitted; {len(self._connected)} other workers go on"
        elif self.starts.spent:
            then = "the partition is given up in this run"
            log_end = f"ends: {lines[-1]}" if lines else "is empty or missing"
            self.given_up = (
                f"{self.starts.failed} jobs in a row ended before their worker had connected; the "
                f"log of job {job_ids[-1]}, {log}, {log_end}"
            )
        text = f"{self.label}: {jobs} ({count}); {then}; the log {log}"
        return [(f"{text} ends:", *lines) if lines else (f"{text} is empty or missing",)]
