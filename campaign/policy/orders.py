"""A policy's orders of a day in plain values, which `campaign exec` applies and stores as JSON."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from dvfs.errors import ArgumentError, known_names
from dvfs.setting import Setting

POLICY, CONTROL = "policy", "control"
"""The arms: jobs that get their entry's setting, and the jobs at the cluster's defaults with which
they are compared."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """An entry. ``match``: key -> pattern, empty for all jobs. ``holds``: whether it is applied."""

    name: str
    kernel: str | None
    match: Mapping[str, str]
    setting: Setting
    mark: str
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The entries, the most specific first, and the rules for control jobs and opting out: see
    :class:`Policy`."""

    entries: tuple[Order, ...]
    seed: int
    control_threshold: int
    comment: str
    variable: str

    def order(self, kernel: str | None, job: Mapping[str, str]) -> Order | None:
        """The entry of a name or kernel; by default the job's.

        Raises:
            ArgumentError: no entry has the name, or it is no longer applied.
        """
        if kernel is None:
            held = (entry for entry in self.entries if entry.holds)
            return next((entry for entry in held if fits(entry.match, job)), None)
        named = [e for e in self.entries if e.kernel == kernel]
        named = named or [e for e in self.entries if e.name == kernel]
        if not named:
            names = [entry.name for entry in self.entries]
            raise ArgumentError(f"no entry {kernel!r}; {known_names(kernel, names, 'entries')}")
        if not named[0].holds:
            raise ArgumentError(f"entry {named[0].name!r} holds no more")
        return named[0]

    def opts_out(self, comment: str, environment: Mapping[str, str]) -> bool:
        """Whether a job's user opted out."""
        return self.comment in comment.split() or self.variable in environment

    def arm(self, job_id: str) -> str:
        """The arm of a job whose id is known: policy or control.

        The first 8 hexadecimal digits of SHA-256 of ``SEED:JOB_ID`` are compared with the share of
        control jobs, of 2^32. A shell can compute the same.
        """
        digest = hashlib.sha256(f"{self.seed}:{job_id}".encode()).hexdigest()
        return CONTROL if int(digest[:8], 16) < self.control_threshold else POLICY


def fits(match: Mapping[str, str], job: Mapping[str, str]) -> bool:
    """Whether a job with these values matches; an unknown value does not."""
    return all(
        name in job and fnmatch.fnmatchcase(job[name], pattern) for name, pattern in match.items()
    )
