"""What is shown of a partition while it measures: its jobs, workers and current point."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PartitionNow:
    """A partition's jobs in Slurm's queue (none where it has no Slurm), and its workers."""

    workers: int = 0
    """How many are connected."""
    running: int = 0
    pending: int = 0
    pending_s: float = 0.0
    """How long the longest of the pending jobs has been pending."""
    reason: str = ""
    """Why, as squeue says."""
    silent: bool = False
    """Whether Slurm does not answer."""
    measuring: str = ""
    """The kernel and the setting of a point that is measured now."""

    @property
    def key(self) -> tuple[int | str | bool, ...]:
        """What does not change by itself."""
        return (self.workers, self.running, self.pending, self.reason, self.silent)

    def __str__(self) -> str:
        parts = [f"{self.workers} worker{'s' * (self.workers != 1)}"]
        if self.running or self.pending:
            jobs = f"jobs: {self.running} running"
            if self.pending:
                jobs += f", {self.pending} pending for {duration(self.pending_s)} ({self.reason})"
            parts.append(jobs)
        if self.silent:
            parts.append("Slurm does not answer")
        if self.measuring:
            parts.append(f"now {self.measuring}")
        return "; ".join(parts)


def duration(seconds: float) -> str:
    """A duration for people, in its two largest units."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days} d {h} h"
    if hours:
        return f"{hours} h {m} min"
    return f"{m} min {s} s" if minutes else f"{s} s"
