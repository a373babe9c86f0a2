"""Checks of a policy's promises: its jobs are compared with control jobs."""

from __future__ import annotations

import datetime
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy import special

from analysis.comparison.arms import ArmChange, change_between_arms
from campaign.policy.accounting import CLOCK_DIGITS, SHARED, Job, without_shared
from campaign.policy.orders import CONTROL, POLICY
from campaign.policy.policy_file import Entry, Policy, Promise
from dvfs.errors import ArgumentError
from dvfs.input_files import FileError, read_text

KEPT, BROKEN, OPEN, NO_PROMISE = "kept", "not kept", "open", "no promise"
FEWEST_USERS = 6
"""With at least this many users, a cluster of the estimate is the jobs of one user; with fewer, the
jobs of one user and input."""
MOST_MORE = 1e7
FALSE_ALARMS = 0.05
"""The probability that a policy that keeps all promises is called not kept."""
LEAST_CHANGE_PCT = -100.0 + 1e-6
"""The logarithm of a ratio needs one above 0."""


@dataclass(frozen=True, kw_only=True)
class EntryVerdict:
    """The verdict on an entry. ``saving_pct`` and ``slowdown_pct``: measured, with 95 % intervals
    (low, high), None if nothing can be compared. ``because``: which of the two decides, or is still
    uncertain. ``policy_jobs``, ``control_jobs``, ``users``: numbers of the compared jobs.
    ``more_jobs``: how many more jobs of the same mix would decide, None if not known or not needed.
    ``apart``: reason -> number of the entry's jobs that are not compared."""

    entry: str
    kernel: str | None
    verdict: str
    because: str
    policy_jobs: int
    control_jobs: int
    users: int
    promise: Promise | None
    saving_pct: float | None
    saving_pct_95: tuple[float, float] | None
    slowdown_pct: float | None
    slowdown_pct_95: tuple[float, float] | None
    more_jobs: int | None
    apart: dict[str, int]

    @property
    def is_kept(self) -> bool | None:
        """Whether the promise was kept; None if that is open, or nothing was promised."""
        return {KEPT: True, BROKEN: False}.get(self.verdict)

    def as_dict(self) -> dict[str, Any]:
        """``entries`` of ``campaign verify --json``."""
        promise = None if self.promise is None else self.promise.model_dump()
        return vars(self) | {"promise": promise}


@dataclass(frozen=True)
class Verification:
    """The verdict on each entry. ``other_marks``: mark -> number of jobs, for marks of no entry:
    another policy's, or of a setting that was changed since."""

    verdicts: tuple[EntryVerdict, ...]
    other_marks: dict[str, int]


def verify(policy: Policy, jobs: Iterable[Job]) -> Verification:
    """Compare each entry's promise with its jobs, whose comments or records have its mark."""
    by_mark: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_mark[job.mark].append(job)
    by_mark.pop("", None)
    delivered = [_delivered(policy, e, by_mark.pop(e.mark, [])) for e in policy.all_entries]
    broken = _surely_broken([entry.p_kept for entry in delivered])
    promises = sum(entry.p_kept is not None for entry in delivered)
    verdicts = [_verdict(entry, i in broken, promises) for i, entry in enumerate(delivered)]
    return Verification(tuple(verdicts), {mark: len(jobs) for mark, jobs in by_mark.items()})


def _surely_broken(p_kept: Sequence[float | None]) -> set[int]:
    """The indices of the promises that are not kept, with at most 5 % false alarms over all entries
    (Holm 1979). ``p_kept``: None for no promise, or no jobs."""
    by_p = sorted((p, number) for number, p in enumerate(p_kept) if p is not None)
    broken: set[int] = set()
    for rank, (p, number) in enumerate(by_p):
        if p > FALSE_ALARMS / (len(by_p) - rank):
            break
        broken.add(number)
    return broken


@dataclass(frozen=True)
class _Delivered:
    """An entry, its compared jobs, their changes of energy and time, and the jobs left out."""

    entry: Entry
    jobs: Sequence[Job]
    energy: ArmChange | None
    time: ArmChange | None
    apart: dict[str, int]

    @property
    def limits(self) -> dict[str, tuple[ArmChange, float]]:
        """Name -> the change to compare with the promise, and its promised upper limit in %."""
        promise = self.entry.promise
        if promise is None:
            return {}
        most_energy_pct = max(-promise.saving_pct_95[0], LEAST_CHANGE_PCT)
        most_time_pct = max(promise.slowdown_pct_95[1], LEAST_CHANGE_PCT)
        pairs = {"saving": (self.energy, most_energy_pct), "slowdown": (self.time, most_time_pct)}
        return {name: (change, most) for name, (change, most) in pairs.items() if change}

    @property
    def p_each(self) -> dict[str, float]:
        """The p-values of the hypotheses that the saving, and the slowdown, are as promised."""
        return {name: change.p_at_most(most) for name, (change, most) in self.limits.items()}

    @property
    def p_kept(self) -> float | None:
        """The p-value of the hypothesis that the promise is kept (Bonferroni)."""
        return 2.0 * min(self.p_each.values()) if self.limits else None


def _delivered(policy: Policy, entry: Entry, jobs: Sequence[Job]) -> _Delivered:
    reasons: Counter[str] = Counter()
    followed: list[Job] = []
    for job in jobs:
        why = job.why_not or _did_not_follow(policy, entry, job)
        if why:
            reasons[why] += 1
        else:
            followed.append(job)
    compared = _in_both_arms(followed)
    reasons["no job of the other arm by the same user with the same input"] += len(followed) - len(
        compared
    )
    with_energy = _in_both_arms([job for job in compared if job.energy_j is not None])
    reasons.update(job.no_energy for job in compared if job.energy_j is None)
    return _Delivered(
        entry,
        compared,
        _change(with_energy, lambda job: job.energy_j or math.nan),
        _change(compared, lambda job: job.time_s),
        {why: count for why, count in reasons.items() if count},
    )


def _verdict(delivered: _Delivered, is_broken: bool, promises: int) -> EntryVerdict:
    energy, time = delivered.energy, delivered.time
    verdict, because, more = _judge(delivered, is_broken, promises)
    return EntryVerdict(
        entry=delivered.entry.name,
        kernel=delivered.entry.kernel,
        verdict=verdict,
        because=because,
        policy_jobs=sum(job.arm == POLICY for job in delivered.jobs),
        control_jobs=sum(job.arm == CONTROL for job in delivered.jobs),
        users=len({job.user for job in delivered.jobs}),
        promise=delivered.entry.promise,
        saving_pct=None if energy is None else -energy.change_pct,
        saving_pct_95=None if energy is None else (-energy.high_pct, -energy.low_pct),
        slowdown_pct=None if time is None else time.change_pct,
        slowdown_pct_95=None if time is None else (time.low_pct, time.high_pct),
        more_jobs=more,
        apart=delivered.apart,
    )


def _in_both_arms(jobs: Sequence[Job]) -> list[Job]:
    """The jobs whose user and input have jobs in both arms."""
    arms: dict[tuple[str, str], set[str]] = defaultdict(set)
    for job in jobs:
        arms[job.user, job.input].add(job.arm)
    return [job for job in jobs if len(arms[job.user, job.input]) == 2]


def _did_not_follow(policy: Policy, entry: Entry, job: Job) -> str:
    """The reason why a job did not run at its arm's clocks; empty if it did or nothing shows it."""
    if job.arm not in (POLICY, CONTROL):
        return f"arm {job.arm or '-'}"
    if job.proven is not None:
        return "" if job.proven or job.arm == CONTROL else "clocks not set or not achieved"
    core_mhz = entry.clocks.core_mhz
    if policy.device != "cpu" or core_mhz is None:
        return ""  # sacct does not show a GPU's clocks
    as_asked = [abs(mhz / core_mhz - 1.0) <= CLOCK_DIGITS for mhz in job.asked_mhz]
    if job.arm == CONTROL:
        return "a control job whose steps asked for a clock" if job.asked_mhz else ""
    return "" if as_asked and all(as_asked) else "no step asked for the clock"


def _change(jobs: Sequence[Job], value: Callable[[Job], float]) -> ArmChange | None:
    """The change by the policy. Blocks are pairs of user and input; clusters are users if there are
    enough, else blocks."""
    if not jobs:
        return None
    users = [job.user for job in jobs]
    blocks = [(job.user, job.input) for job in jobs]
    return change_between_arms(
        np.array([value(job) for job in jobs]),
        np.array([job.arm == POLICY for job in jobs]),
        _numbered(blocks),
        _numbered(users if len(set(users)) >= FEWEST_USERS else blocks),
        np.array([job.start_s for job in jobs]),
    )


def _numbered(keys: Sequence[Any]) -> np.ndarray:
    number: dict[Any, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)


def _judge(delivered: _Delivered, is_broken: bool, promises: int) -> tuple[str, str, int | None]:
    """The verdict, the changes that decide it, and how many more jobs would decide an open one.

    Not kept: see :func:`_surely_broken`. Kept: the 95 % interval of the saving is not below the
    promised one, and that of the slowdown not above it. Otherwise open.
    """
    if delivered.entry.promise is None:
        return NO_PROMISE, "", None
    limits = delivered.limits
    if is_broken:
        p_each = delivered.p_each
        return BROKEN, min(p_each, key=p_each.__getitem__), None
    missing = [name for name in ("saving", "slowdown") if name not in limits]
    if missing:
        return OPEN, missing[0], None
    unsure = {
        name: _more(change, most_pct, promises)
        for name, (change, most_pct) in limits.items()
        if change.high_pct > most_pct
    }
    if not unsure:
        return KEPT, "", None
    needed = [math.inf if more is None else more for more in unsure.values()]
    most_jobs = max(needed)
    return OPEN, " and ".join(unsure), None if math.isinf(most_jobs) else int(most_jobs)


def _more(change: ArmChange, limit_pct: float, promises: int) -> int | None:
    """How many more jobs of the same mix decide, if the estimate stays: the side of the interval
    towards the limit shrinks with the root of the number of jobs. For a promise that is not kept,
    its level is corrected for all promises. None if the estimate is at the limit."""
    gap = change.change_pct - limit_pct
    side = change.high_pct - change.change_pct
    if gap > 0:
        level_one, level_all = (1.0 - FALSE_ALARMS / 2 / n for n in (1, promises))
        freedom = change.freedom
        ratio = special.stdtrit(freedom, level_all) / special.stdtrit(freedom, level_one)
        side = (change.change_pct - change.low_pct) * ratio
    if abs(gap) < 1e-9:
        return None
    more = change.jobs * ((side / gap) ** 2 - 1.0)
    return max(math.ceil(more), 0) if more < MOST_MORE else None


class Record(BaseModel):
    """The fields used here of a line that ``campaign exec`` appended; see
    :mod:`campaign.measure.program_run`."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    format: Literal[1]
    job_id: str | None
    step_id: str | None
    user: str
    node: str
    input: str
    mark: str | None = None
    arm: str | None = None
    start: datetime.datetime
    time_s: float
    energy_j: float | None
    set: bool
    clock_proof: str | None
    exit: int
    nodes: int | None = None


def read_records(paths: Iterable[Path]) -> list[Job]:
    """The jobs of files that ``campaign exec`` appended to. A line in several files counts once.

    The records of one step's nodes are one job. A program that ran several times in a job is
    several jobs. Runs that shared a node have no energy, for policies of CPUs and of GPUs.

    Raises:
        FileError: a line is not such a record.
    """
    lines_read: set[str] = set()
    runs: dict[tuple[str | None, ...], list[list[Record]]] = defaultdict(list)
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if line in lines_read:
                continue
            lines_read.add(line)
            try:
                record = Record.model_validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(map(str, first["loc"])) or "the line"
                raise FileError(
                    f"not a record of campaign exec: {key}: {first['msg']}",
                    "remove the line",
                    f"{path}:{number}",
                ) from None
            _add_to_run(runs[record.job_id, record.step_id, record.input], record)
    jobs = without_shared([_job_of_records(run) for of_step in runs.values() for run in of_step])
    return [job for job in jobs if job.mark and job.arm]


def _add_to_run(runs: list[list[Record]], record: Record) -> None:
    """Add a record to the run of its step that other nodes recorded at the same time, or as a new
    run if there is none."""
    end = record.start + datetime.timedelta(seconds=record.time_s)
    for run in runs if record.job_id else ():
        if record.node not in {recorded.node for recorded in run} and all(
            recorded.start < end
            and record.start < recorded.start + datetime.timedelta(seconds=recorded.time_s)
            for recorded in run
        ):
            run.append(record)
            return
    runs.append([record])


def _job_of_records(records: Sequence[Record]) -> Job:
    """The job of the records of a step's nodes: the sum of the energies if every node has one, and
    the longest time. A node that could not read the policy has no mark."""
    marked_record = next((record for record in records if record.mark and record.arm), records[0])
    energies = [record.energy_j or 0.0 for record in records]
    no_energy = "" if all(energy > 0.0 for energy in energies) else "no energy was read"
    if len(records) < (marked_record.nodes or 1):
        no_energy = "not every node has a record"
    time_s = max(record.time_s for record in records)
    failed = [record.exit for record in records if record.exit != 0]
    why = f"exit {failed[0]}" if failed else "" if time_s > 0.0 else "no time"
    return Job(
        id=marked_record.job_id or "",
        raw_id=marked_record.job_id or "",
        user=marked_record.user,
        input=marked_record.input,
        mark=marked_record.mark or "",
        arm=marked_record.arm or "",
        start_s=marked_record.start.timestamp(),
        end_s=marked_record.start.timestamp() + time_s,
        time_s=time_s,
        nodes=tuple(record.node for record in records),
        energy_j=None if no_energy else sum(energies),
        no_energy=no_energy,
        why_not=why,
        proven=all(r.set and r.clock_proof != "not achieved" for r in records),
    )


def joined(jobs: Sequence[Job], records: Sequence[Job]) -> list[Job]:
    """Jobs of the accounting and of records. A job in both is taken from the record, without
    energy if the accounting shows that it shared a node."""
    measured = {job.raw_id for job in records if job.raw_id}
    shared = {job.raw_id for job in jobs if job.no_energy == SHARED}
    return [
        *(job for job in jobs if job.raw_id not in measured),
        *(
            replace(job, energy_j=None, no_energy=SHARED) if job.raw_id in shared else job
            for job in records
        ),
    ]


METRICS: dict[str, tuple[str, Callable[[EntryVerdict], float | None]]] = {
    "promised_saving_percent": (
        "Energy that the entry promises to save.",
        lambda verdict: None if verdict.promise is None else verdict.promise.saving_pct,
    ),
    "saving_percent": ("Energy that its jobs saved.", lambda verdict: verdict.saving_pct),
    "saving_low_percent": (
        "The lower end of the 95 % interval.",
        lambda verdict: verdict.saving_pct_95 and verdict.saving_pct_95[0],
    ),
    "saving_high_percent": (
        "The upper end of the 95 % interval.",
        lambda verdict: verdict.saving_pct_95 and verdict.saving_pct_95[1],
    ),
    "promised_slowdown_percent": (
        "Time that the entry promises to add at most.",
        lambda verdict: None if verdict.promise is None else verdict.promise.slowdown_pct_95[1],
    ),
    "slowdown_percent": ("Time that its jobs took more.", lambda verdict: verdict.slowdown_pct),
    "slowdown_low_percent": (
        "The lower end of the 95 % interval.",
        lambda verdict: verdict.slowdown_pct_95 and verdict.slowdown_pct_95[0],
    ),
    "slowdown_high_percent": (
        "The upper end of the 95 % interval.",
        lambda verdict: verdict.slowdown_pct_95 and verdict.slowdown_pct_95[1],
    ),
    "policy_jobs": ("Jobs at the entry's setting.", lambda verdict: verdict.policy_jobs),
    "control_jobs": ("Jobs left at the defaults.", lambda verdict: verdict.control_jobs),
    "promise_kept": (
        "1 where the promise was kept, 0 where not; without a value it is open.",
        lambda verdict: verdict.is_kept,
    ),
}
"""Name -> help text, and the function from a verdict to the value."""


def metrics_text(policy: Policy, verdicts: Sequence[EntryVerdict]) -> str:
    """The verdicts in Prometheus's text format; unknown values have no line."""
    lines = []
    for name, (about, value_of) in METRICS.items():
        lines += [f"# HELP dvfs_policy_{name} {about}", f"# TYPE dvfs_policy_{name} gauge"]
        for verdict in verdicts:
            value = value_of(verdict)
            if value is not None:
                # Names of sites and entries have no character that a label would escape.
                labels = f'site="{policy.site}",entry="{verdict.entry}"'
                lines.append(f"dvfs_policy_{name}{{{labels}}} {value:g}")
    return "\n".join([*lines, ""])


def check_since(text: str) -> str:
    """A date or time as sacct takes it.

    Raises:
        ArgumentError: it is neither.
    """
    try:
        return datetime.datetime.fromisoformat(text).isoformat(timespec="seconds")
    except ValueError:
        raise ArgumentError(f"--since: found {text!r}; must be a date such as 2026-11-01") from None
