"""A ``campaign run`` in a family of processes of its own, which can be identified and signalled."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.small_campaign import NAME

ROOT = Path(__file__).parents[2]
MARK = "FAULT_RUN"
"""The environment variable by which a run's processes are known, whoever their parent is."""
STORE = "store"


@dataclass(frozen=True)
class Running:
    """A run that was started."""

    process: subprocess.Popen[bytes]
    mark: str
    output: Path

    def ended(self) -> bool:
        """Whether the driver has ended."""
        return self.process.poll() is not None

    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text("utf-8", "replace")


def start(
    folder: Path,
    mark: str,
    environment: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
    output: str = "output",
    program: Sequence[str | Path] = (sys.executable, "-m", "campaign"),
) -> Running:
    """Start ``campaign run`` on the campaign and the store in ``folder``."""
    path = folder / output
    words = [*program, "run", folder / NAME, "--store", folder / STORE, *more]
    with path.open("wb") as file:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**(environment if environment is not None else os.environ), MARK: mark},
        )
    return Running(process, mark, path)


def new_mark() -> str:
    """A mark that no other run has."""
    return uuid.uuid4().hex


def wait(running: Running, limit_s: float) -> int | None:
    """The driver's exit code; None, and all is killed, if it does not end in time."""
    try:
        return running.process.wait(limit_s)
    except subprocess.TimeoutExpired:
        kill_marked(running.mark)
        running.process.wait()
        return None


def last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def points_said(text: str) -> tuple[int, int] | None:
    """(measured, planned) as a run's last line says; None where it does not."""
    counts = re.search(r"(\d+) of (\d+) points measured", last_line(text))
    return (int(counts[1]), int(counts[2])) if counts else None


def points_acknowledged(text: str) -> int:
    """How many points a run has reported as measured, at least; also of a killed run."""
    done = dict(re.findall(r"(?m)^(\S+): (\d+) done, ", text))
    said = points_said(text)
    return max(sum(map(int, done.values())), said[0] if said else 0)


def measured_again(text: str, planned: int, measured: int) -> list[str]:
    """What is wrong if a run that began on a store of ``measured`` points measures more than the
    rest: the others were lost on its way, and no number is known."""
    asked = sum(map(int, re.findall(r"(?m)^\S+: (\d+) points to measure", text)))
    again = asked - (planned - measured)
    return [f"{again} points that were measured are measured again"] if again > 0 else []


@dataclass(frozen=True)
class Member:
    """A process of a run's family: its id, its parent's, its words. A fork server's children have
    its words, and are distinguished from it by their parent."""

    pid: int
    parent: int
    words: str


def family(mark: str) -> list[Member]:
    """The processes of a run that live now."""
    wanted = f"{MARK}={mark}".encode()
    members = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if after_name[0] in "ZX":
                continue
            words = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            members.append(Member(int(folder.name), int(after_name[1]), words))
    return members


def workers(running: Running) -> list[int]:
    """Dask's worker processes."""
    return [m.pid for m in family(running.mark) if "spawn_main" in m.words]


def fork_servers(running: Running) -> list[int]:
    """The warm interpreters, without the children that they forked."""
    members = [m for m in family(running.mark) if "campaign.measure.forkserver" in m.words]
    pids = {m.pid for m in members}
    return [m.pid for m in members if m.parent not in pids]


def everyone(running: Running) -> list[int]:
    """All of them, the driver first; not one that has ended: its id may be another's by now."""
    others = [m.pid for m in family(running.mark) if m.pid != running.process.pid]
    return others if running.ended() else [running.process.pid, *others]


def kill(pids: Sequence[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to processes, if they still live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_marked(mark: str) -> None:
    """Kill what lives of a run."""
    for _ in range(100):
        left = [m.pid for m in family(mark)]
        if not left:
            return
        kill(left)
        time.sleep(0.05)


def left_alive(mark: str, limit_s: float) -> list[Member]:
    """The processes of a run that have not ended by themselves in so long."""
    wait_until(lambda: not family(mark), limit_s, 0.1)
    return family(mark)


def wait_until(holds: Callable[[], object], limit_s: float, period_s: float = 0.005) -> bool:
    """Wait until something holds; whether it came to."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(period_s)
    return True


def journal_bytes(store: Path) -> int:
    """How many bytes the journals hold now."""
    total = 0
    with contextlib.suppress(OSError):
        for path in (store / "journals").iterdir():
            with contextlib.suppress(OSError):
                total += path.stat().st_size
    return total
