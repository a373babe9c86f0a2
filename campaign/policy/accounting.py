"""Jobs from Slurm's accounting (sacct): their arms, energies and times.

Measured with Slurm 22.05 (docs/policy.md has the traps):

- A job's energy is in its ``.extern`` row (PrologFlags=Contain), otherwise in ``.batch``, which
  has the first node alone, otherwise in its only step. The allocation's row sums steps.
- Empty and 0 mean that nothing was read. A counter that was reset gives almost 2^64.
- An energy is of whole nodes: jobs that share a node have no separate energy.
- ReqCPUFreqMax is the requested clock, only of steps of srun; AveCPUFreq is no clock.
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

from dvfs.errors import ArgumentError, known_names
from dvfs.input_files import FileError
from sites.slurm_environment import run_slurm, slurm_environment

MARK = "dvfs="
"""Prefix of the word in a job's comment that records the entry, the setting and the arm."""
COLUMNS = (
    *("JobID", "User", "JobName", "State", "Start", "End", "ElapsedRaw"),
    *("ConsumedEnergyRaw", "ReqCPUFreqMax", "NNodes", "NodeList", "Comment"),
)
"""The required columns; a table may have more."""
MORE_COLUMNS = ("JobIDRaw", "SubmitLine")
"""Optional columns: SLURM_JOB_ID of an array's task, and the command, which identifies inputs."""
MAKE_IT = "make it so: sacct --allusers --parsable2 --format={}"
DELIMITER = "\x1f"
"""The delimiter of our calls of sacct: comments may contain the default one."""
SACCT_S = 600.0
MOST_J = 2**63
"""Readings from this one on come from a counter that was reset."""
MOST_NODES = 100_000
SHARED = "shared a node"
FAILED_STEPS = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT", "DEADLINE", "BOOT_FAIL")
"""States of an incomplete step. CANCELLED is none: a script may cancel a step, as a monitor."""
CLOCK_DIGITS = 0.006
"""Slurm shows clocks with three digits: 2.13G may be 2133 MHz."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that ran. ``mark``: the entry and setting of its comment, ``arm``: the arm; both empty
    if no policy was applied. ``why_not``: why it cannot be compared, empty if it can.
    ``energy_j``: None if there is none, for the reason ``no_energy``."""

    id: str
    """The id that sacct shows."""
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
    """The core clocks that its steps requested."""
    proven: bool | None = None
    """Whether its clocks were read back; None if not known."""


def ask_sacct(since: str) -> str:
    """Sacct's table of all users' jobs since a date.

    Raises:
        ArgumentError: sacct is not installed, fails, or times out.
    """
    argv = (
        *("sacct", "--allusers", "--parsable2", f"--delimiter={DELIMITER}", "--starttime", since),
        *("--endtime", "now", f"--format={','.join((*COLUMNS, *MORE_COLUMNS))}"),
    )
    try:
        process = run_slurm(argv, slurm_environment(), SACCT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArgumentError(
            f"--since: sacct cannot be asked here ({error}); give its table: --jobs F"
        ) from None
    if process.returncode:
        raise ArgumentError(
            f"--since: sacct ended with {process.returncode}: {process.stderr.strip()[-300:]}; "
            f"give its table: --jobs F"
        )
    return process.stdout


def read_jobs(text: str, where: str = "sacct") -> list[Job]:
    """The jobs of a table that ``sacct --parsable2`` wrote; ``where``: its place, for messages.

    Raises:
        FileError: a column is missing, or a row cannot be read.
    """
    make_it = MAKE_IT.format(",".join((*COLUMNS, *MORE_COLUMNS)))
    runs = job_rows(text, where, COLUMNS, make_it)
    return without_shared([_job(run, where) for run in runs])


def job_rows(
    text: str, where: str, needed: Sequence[str], make_it: str
) -> list[list[dict[str, str]]]:
    """For each job a list of rows: the job's, then its steps'. A row is column -> text, and
    ``_line`` -> its line. ``needed``: required columns. ``make_it``: the remedy for other tables.

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
    """The rows, column -> text, and ``_line`` -> line. Values with line breaks are joined again."""
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
    records: list[tuple[int, str]] = []
    for number, line in enumerate(lines[1:], 2):
        if begins.match(line) or not records:
            records.append((number, line))
        else:  # a name or comment of several lines
            records[-1] = (records[-1][0], f"{records[-1][1]}\n{line}")
    for number, line in records:
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
    """The step of srun that failed, and its state; empty if none failed. The state of a job is that
    of its script, which may continue after a failed step and succeed."""
    for step in steps:
        number, state = step["JobID"].partition(".")[2], step.get("State", "").partition(" ")[0]
        if number.isdigit() and state in FAILED_STEPS:
            return f"step {number} {state}"
    return ""


def marked(comment: str) -> tuple[str, str]:
    """The entry's mark and the arm in a comment; the last ones if there are several."""
    for word in reversed(comment.split()):
        if word.startswith(MARK):
            mark, _, arm = word.removeprefix(MARK).rpartition(":")
            return mark, arm
    return "", ""


def job_energy(job: dict[str, str], steps: Sequence[dict[str, str]]) -> tuple[float | None, str]:
    """The energy of a job in J, or None and the reason."""
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
    """The energy of a row in J, or None and the reason."""
    value = _number(row["ConsumedEnergyRaw"])
    if not value:
        return None, "no energy was read"
    if value >= MOST_J:
        return None, "the energy counter was reset"
    return value, ""


def without_shared(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, without the energies of those that shared a node with another job."""
    shared = sharing([(job.start_s, job.end_s, job.nodes) for job in jobs])
    return [
        replace(job, energy_j=None, no_energy=SHARED) if i in shared else job
        for i, job in enumerate(jobs)
    ]


def sharing(uses: Sequence[tuple[float, float, Sequence[str]]]) -> set[int]:
    """The indices of uses (start in s, end in s, nodes) that share a node with another one."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for i, (*_, nodes) in enumerate(uses):
        for node in nodes:
            by_node[node].append(i)
    shared: set[int] = set()
    for node_uses in by_node.values():
        node_uses.sort(key=lambda i: uses[i][0])
        latest = -1
        for i in node_uses:
            if latest >= 0 and uses[i][0] < uses[latest][1]:
                shared |= {i, latest}
            if latest < 0 or uses[i][1] > uses[latest][1]:
                latest = i
    return shared


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None


def time_of(row: dict[str, str], name: str, where: str) -> float:
    """A local time of sacct as Unix time in s; the present time for a job that still runs."""
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
    """The clock in MHz in a text of sacct (``2.40G``, ``852M``); None if there is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", text)
    if match is None or float(match[1]) == 0.0:
        return None
    return float(match[1]) * {"": 1e-3, "K": 1e-3, "M": 1.0, "G": 1e3}[match[2]]


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
