"""Jobs that ran, as Slurm's accounting has them (sacct): their arms, energies and times.

Measured with Slurm 22.05 (docs/policy.md has the traps):

- A job's energy comes from its ``.extern`` row (PrologFlags=Contain), otherwise of ``.batch``,
  which is the first node's alone, otherwise of its only step. The allocation's row sums steps.
- Empty and 0 mean that nothing was read. A counter that was reset gives almost 2^64.
- A node's energy is the whole node's: jobs that share one have no energy of their own.
- ReqCPUFreqMax is what a step asked for, of steps of srun alone; AveCPUFreq is no clock.
"""

from __future__ import annotations

import datetime
import math
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path

from dvfs.errors import ArgumentError, known_names
from dvfs.input_files import FileError, read_text
from sites.slurm_environment import run_slurm, slurm_environment

MARK = "dvfs="
"""Begins the word of a job's comment that records the entry, the setting and the arm."""
COLUMNS = (
    *("JobID", "User", "JobName", "State", "Start", "End", "ElapsedRaw"),
    *("ConsumedEnergyRaw", "ReqCPUFreqMax", "NNodes", "NodeList", "Comment"),
)
"""What is read; a table may have more."""
MORE_COLUMNS = ("JobIDRaw", "SubmitLine")
"""What is read where it is there: SLURM_JOB_ID of an array's task, and what tells inputs apart."""
MAKE_IT = "make it so: sacct --allusers --parsable2 --format={}"
DELIMITER = "\x1f"
"""Between sacct's columns where it is asked here: comments may hold what it uses by default."""
SACCT_S = 600.0
MOST_J = 2**63
"""A reading from here on is a counter that was reset."""
MOST_NODES = 100_000
SHARED = "shared a node"
FAILED_STEPS = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT", "DEADLINE", "BOOT_FAIL")
"""States of a step whose work is not whole. A script may cancel a step on purpose, as a monitor."""
CLOCK_DIGITS = 0.006
"""Slurm shows clocks with three digits: 2.13G may be 2133 MHz."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that ran. ``mark``: the entry and setting of its comment, ``arm``: the arm; both empty
    where the policy did not touch it. ``why_not``: why it cannot be compared, empty where it can.
    ``energy_j``: None where there is none, and ``no_energy`` says why."""

    id: str
    """As sacct shows it."""
    raw_id: str
    """SLURM_JOB_ID in the job."""
    user: str
    input: str
    mark: str
    arm: str
    start_s: float
    end_s: float
    time_s: float
    nodes: tuple[str, ...]
    energy_j: float | None
    no_energy: str = ""
    why_not: str = ""
    asked_mhz: tuple[float, ...] = ()
    """The core clocks that its steps asked for."""
    proven: bool | None = None
    """Whether its clocks were read back; None where nothing says so."""


def ask_sacct(since: str) -> str:
    """What sacct has of all users' jobs since a date.

    Raises:
        ArgumentError: sacct is not here, fails, or gives no answer.
    """
    argv = (
        *("sacct", "--allusers", "--parsable2", f"--delimiter={DELIMITER}", "--starttime", since),
        *("--endtime", "now", f"--format={','.join((*COLUMNS, *MORE_COLUMNS))}"),
    )
    try:
        done = run_slurm(argv, slurm_environment(), SACCT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArgumentError(
            f"--since: sacct cannot be asked here ({error}); give its table: --jobs F"
        ) from None
    if done.returncode:
        raise ArgumentError(
            f"--since: sacct ended with {done.returncode}: {done.stderr.strip()[-300:]}; give its "
            f"table: --jobs F"
        )
    return done.stdout


def read_jobs_file(path: Path) -> list[Job]:
    """The jobs of a table that ``sacct --parsable2`` wrote.

    Raises:
        FileError: it cannot be read, or is no such table.
    """
    return read_jobs(read_text(path), str(path))


def read_jobs(text: str, where: str = "sacct") -> list[Job]:
    """The jobs of sacct's table.

    Raises:
        FileError: a column is missing, or a row cannot be read.
    """
    make_it = MAKE_IT.format(",".join((*COLUMNS, *MORE_COLUMNS)))
    runs = job_rows(text, where, COLUMNS, make_it)
    return without_shared([_job(run, where) for run in runs])


def job_rows(
    text: str, where: str, needed: Sequence[str], make_it: str
) -> list[list[dict[str, str]]]:
    """The rows of each job, its own first and then its steps', by column; ``_line`` is their line.
    ``needed``: columns that the table must have. ``make_it``: the remedy for another table.

    Raises:
        FileError: a column is missing, or a row cannot be read.
    """
    runs: list[list[dict[str, str]]] = []
    latest: dict[str, list[dict[str, str]]] = {}
    for row in _rows(text, where, needed, make_it):
        base, _, step = row["JobID"].partition(".")
        if not step:
            if base in latest and latest[base][0].get("Start") == row.get("Start"):
                raise FileError(
                    f"job {base} twice", "give each job once", f"{where}:{row['_line']}"
                )
            latest[base] = []
            runs.append(latest[base])
        if base in latest:  # else a step whose job began before
            latest[base].append(row)
    return runs


def _rows(text: str, where: str, needed: Sequence[str], make_it: str) -> Iterator[dict[str, str]]:
    """Rows by column; ``_line`` is their line. A value with a line end is put together again."""
    lines = text.splitlines()
    header = lines[0] if lines else ""
    delimiter = header[5:6] if header.startswith("JobID") else ""
    if not delimiter or delimiter.isalnum():
        raise FileError(
            "not a table of sacct: its first line must begin with JobID",
            make_it,
            f"{where}:1",
        )
    if not text.endswith("\n"):
        raise FileError(
            "the last line has no end: the table was cut", "write it again", f"{where}:{len(lines)}"
        )
    names = header.split(delimiter)
    for name in needed:
        if name not in names:
            raise FileError(
                f"no column {name}; {known_names(name, names, 'columns')}",
                make_it,
                f"{where}:1",
            )
    begins = re.compile(rf"\d[\w+.,\[\]%-]*{re.escape(delimiter)}")
    whole: list[tuple[int, str]] = []
    for number, line in enumerate(lines[1:], 2):
        if begins.match(line) or not whole:
            whole.append((number, line))
        else:  # a name or comment of several lines
            whole[-1] = (whole[-1][0], f"{whole[-1][1]}\n{line}")
    for number, line in whole:
        fields = line.split(delimiter, len(names) - 1)  # the last one may hold the delimiter
        if len(fields) < len(names):
            raise FileError(
                f"{len(fields)} values in a table of {len(names)} columns",
                "write the table again",
                f"{where}:{number}",
            )
        yield dict(zip(names, fields, strict=True)) | {"_line": str(number)}


def _job(rows: Sequence[dict[str, str]], where: str) -> Job:
    job, *steps = rows
    mark, arm = marked(job["Comment"])
    energy_j, no_energy = job_energy(job, steps)
    ended_well = job["State"].split(" ")[0] == "COMPLETED"
    why = failed_step(steps) if ended_well else f"state {job['State'].split(' ')[0]}"
    if "+" in job["JobID"]:
        why = "part of a heterogeneous job"
    start_s, end_s = (time_of(job, name, where) for name in ("Start", "End"))
    elapsed_s = _number(job["ElapsedRaw"])
    if elapsed_s is None or elapsed_s <= 0:
        why = why or "no time"
    clocks = (clock_mhz(step["ReqCPUFreqMax"]) for step in steps)
    return Job(
        id=job["JobID"],
        raw_id=job.get("JobIDRaw") or job["JobID"],
        user=job["User"],
        input=job.get("SubmitLine") or job["JobName"],
        mark=mark,
        arm=arm,
        start_s=start_s,
        end_s=end_s,
        time_s=elapsed_s or 0.0,
        nodes=tuple(expand_nodes(job["NodeList"], f"{where}:{job['_line']}")),
        energy_j=energy_j,
        no_energy=no_energy,
        why_not=why,
        asked_mhz=tuple(mhz for mhz in clocks if mhz),
    )


def failed_step(steps: Sequence[dict[str, str]]) -> str:
    """The step of srun that failed, and how; empty where none did. The state of a job is that of
    its script, which may go on after a step and end well."""
    for step in steps:
        number, state = step["JobID"].partition(".")[2], step.get("State", "").partition(" ")[0]
        if number.isdigit() and state in FAILED_STEPS:
            return f"step {number} {state}"
    return ""


def marked(comment: str) -> tuple[str, str]:
    """The entry's mark and the arm that a comment records; the last one counts."""
    for word in reversed(comment.split()):
        if word.startswith(MARK):
            mark, _, arm = word.removeprefix(MARK).rpartition(":")
            return mark, arm
    return "", ""


def job_energy(job: dict[str, str], steps: Sequence[dict[str, str]]) -> tuple[float | None, str]:
    """The energy of a job in J, or why there is none."""
    by_step = {step["JobID"].partition(".")[2]: step for step in steps}
    if "extern" in by_step:
        row = by_step["extern"]
    elif "batch" in by_step:
        if job["NNodes"] != "1":
            return None, "several nodes without PrologFlags=Contain"
        row = by_step["batch"]
    elif len(by_step) == 1:
        (row,) = by_step.values()
    else:
        return None, "several steps without PrologFlags=Contain"
    return row_energy(row)


def row_energy(row: dict[str, str]) -> tuple[float | None, str]:
    """The energy of a row in J, or why there is none."""
    value = _number(row["ConsumedEnergyRaw"])
    if not value:
        return None, "no energy was read"
    if value >= MOST_J:
        return None, "the energy counter was reset"
    return value, ""


def without_shared(jobs: Sequence[Job]) -> list[Job]:
    """The jobs; those that shared a node with another one have no energy of their own."""
    shared = sharing([(job.start_s, job.end_s, job.nodes) for job in jobs])
    return [
        replace(job, energy_j=None, no_energy=SHARED) if i in shared else job
        for i, job in enumerate(jobs)
    ]


def sharing(uses: Sequence[tuple[float, float, Sequence[str]]]) -> set[int]:
    """Which uses of nodes, each with its start and end in s, share a node with another one."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for i, (*_, nodes) in enumerate(uses):
        for node in nodes:
            by_node[node].append(i)
    shared: set[int] = set()
    for on_node in by_node.values():
        on_node.sort(key=lambda i: uses[i][0])
        last = -1
        for i in on_node:
            if last >= 0 and uses[i][0] < uses[last][1]:
                shared |= {i, last}
            if last < 0 or uses[i][1] > uses[last][1]:
                last = i
    return shared


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def time_of(row: dict[str, str], name: str, where: str) -> float:
    """A local time of sacct in s; of a job that still runs the present one."""
    text = row[name]
    if text in ("Unknown", "None", ""):
        return datetime.datetime.now().timestamp()
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise FileError(
            f"{name}: found {text!r}",
            "must be a time such as 2026-11-28T21:44:22; where a name holds the delimiter, write "
            "the table with a --delimiter that none has",
            f"{where}:{row['_line']}",
        ) from None  # fmt: skip


def clock_mhz(text: str) -> float | None:
    """A clock as sacct shows it, in MHz: ``2.40G``, ``852M``; None where it shows none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", text)
    if found is None or float(found[1]) == 0.0:
        return None
    return float(found[1]) * {"": 1e-3, "K": 1e-3, "M": 1.0, "G": 1e3}[found[2]]


def expand_nodes(text: str, where: str = "NodeList") -> list[str]:
    """The nodes of Slurm's list: ``n[01-03,7],gpu1`` is n01, n02, n03, n7 and gpu1.

    Raises:
        FileError: it names more nodes than any cluster has.
    """
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        if part == "None assigned":
            continue
        pieces = [
            list(islice(_numbers(piece[1:-1]), MOST_NODES)) if piece.startswith("[") else [piece]
            for piece in re.findall(r"\[[^\]]*\]|[^\[\]]+", part)
        ]
        if len(nodes) + math.prod(map(len, pieces)) >= MOST_NODES:
            raise FileError(f"NodeList has {MOST_NODES} nodes or more", "check it", where)
        nodes += ["".join(words) for words in product(*pieces)]
    return nodes


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not dash:
            yield part
        elif low.isdigit() and high.isdigit():
            yield from (f"{i:0{len(low)}d}" for i in range(int(low), int(high) + 1))
