"""Run a program at a setting, with the site's meters, and append what was measured to a file.

The program runs as it would without this process: its output, environment, exit status and signals
are the same. Four processes share the work:

- this one sets the clocks, reads the meters, waits, restores the clocks and writes the record;
- the program's process is forked first, waits until the clocks are set, and becomes the program.
  The operating system kills it if this process dies;
- a witness in the same process group detects which signals were sent to the group;
- a watcher, in a separate session, restores the clocks if this process was killed.

No error here keeps the program from running: it then runs at the clocks as found, and a line on
standard error and the record state the reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dvfs.setting import AS_FOUND, Setting

if TYPE_CHECKING:
    from campaign.measure.sampler import Sampler, UsedMeter
    from campaign.policy.exec_inputs import NodeSite
    from sites.clocks import ClockControl

FORMAT = 1
PERIOD_S = 0.1
"""The time between two readings of the meters and the clocks."""
NOT_FORWARDED = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),
}
"""Signals that do not go on to the program: those that cannot be caught, those by which a shell
stops and continues a job, SIGCHLD, and faults of this process."""
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these two, and a program would inherit that."""
PR_SET_PDEATHSIG = 1
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""The exit codes of a shell."""


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The options of a run. ``setting``: AS_FOUND leaves the clocks alone. ``facts``: more entries
    of the record (entry, arm, kernel). ``problems``: errors so far, a line each."""

    site: NodeSite | None
    setting: Setting = AS_FOUND
    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()
    root: Path = Path("/")


def become(argv: Sequence[str]) -> NoReturn:
    """Become a program, with the environment with which this process was started."""
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], list(argv), _first_environment())  # noqa: S606
    except FileNotFoundError:
        code, why = NOT_FOUND, "no such program; check its name and PATH"
    except OSError as error:
        code, why = NOT_EXECUTABLE, f"{error.strerror}; it must be an executable file"
    os.write(2, f"campaign: {argv[0]}: {why}\n".encode())
    os._exit(code)


def _first_environment() -> dict[bytes, bytes]:
    """The environment of this process's start; Python adds to it (LC_CTYPE) in the locale C."""
    try:
        lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environb)
    pairs = (line.partition(b"=") for line in lines)
    return {name: value for name, equals, value in pairs if equals}


def _open_missing() -> list[int]:
    """Open those of the descriptors 0 to 2 that are closed, so that no other file gets them."""
    opened = []
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
        opened.append(descriptor)
    os.close(descriptor)
    return opened


class _Witness:
    """A process of this group that blocks signals and so shows which were sent to the whole group,
    as by a terminal or ``kill -- -PGID``, or to all of a job's processes: the program has these
    already. Equal signals within a millisecond may be one for it and two for this process."""

    def __init__(self) -> None:
        questions, self._question_end = os.pipe()
        self._answers, answer_end = os.pipe()
        parent = os.getpid()
        libc = ctypes.CDLL(None)
        self._pid = os.fork()
        if self._pid == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            with contextlib.suppress(BaseException):
                os.close(self._question_end)
                _redirect_to_null()
                while os.getppid() == parent and (number := os.read(questions, 1)):
                    os.write(answer_end, b"y" if signal.sigtimedwait([number[0]], 0) else b"n")
            os._exit(0)
        os.close(questions)
        os.close(answer_end)

    def has_received(self, number: int) -> bool:
        """Whether the witness, too, received a signal that this process received."""
        with contextlib.suppress(OSError):
            # The kernel signals a group under a lock that this call waits for.
            os.setpgid(0, os.getpgid(0))
        try:
            os.write(self._question_end, bytes([number]))
            return os.read(self._answers, 1) == b"y"
        except OSError:  # it was killed
            return False

    def end(self) -> None:
        """End the process."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _redirect_to_null() -> None:
    """Close input and output, so that a reader of the output sees its end with the program's."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


class _Program:
    """The program's process, which waits for :meth:`go`."""

    def __init__(self, argv: Sequence[str]) -> None:
        closed = _open_missing()
        self._waited_for = signal.valid_signals() - NOT_FORWARDED | {signal.SIGCHLD}
        # An ignored SIGCHLD would never come. The program gets the handling back.
        before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited_for)
        self._witness = _Witness()
        start, self._start_end = os.pipe()
        parent = os.getpid()
        libc = ctypes.CDLL(None)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._start_end)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent or os.read(start, 1) != b"g":
                os._exit(1)
            for descriptor in closed:
                os.close(descriptor)
            if before == signal.SIG_IGN:
                signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            become(argv)
        os.close(start)
        # A reader of the program's output sees its end when the program ends, not this process.
        with open(os.devnull, "r+b", buffering=0) as null:  # noqa: PTH123
            os.dup2(null.fileno(), 0)
            os.dup2(null.fileno(), 1)

    def go(self) -> None:
        """Start the program."""
        with contextlib.suppress(BrokenPipeError):  # it was killed meanwhile
            os.write(self._start_end, b"g")
        os.close(self._start_end)

    def wait(self) -> int:
        """Forward signals until the program has ended; return its exit status as of waitpid(2)."""
        while True:
            received = signal.sigwaitinfo(self._waited_for)
            if received.si_signo == signal.SIGCHLD:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self._witness.end()
                    return status
            elif not (_from_slurm(received) or self._witness.has_received(received.si_signo)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, received.si_signo)

    def unblock_signals(self) -> None:
        """Let signals end this process: the program has ended, and the clocks are restored."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _from_slurm(received: signal.struct_siginfo) -> bool:
    """Whether Slurm's step daemon sent a signal: it signals all processes of a step, in turn."""
    try:
        return Path(f"/proc/{received.si_pid}/comm").read_text().startswith("slurmstepd")
    except OSError:
        return False


class _Watcher:
    """A process that restores the clocks if this process is killed.

    It has a separate session, so that signals to this process's group do not end it.
    """

    def __init__(self, root: Path) -> None:
        alive, self._alive = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._alive)
                os.setsid()
                _redirect_to_null()
                if os.read(alive, 1) == b"":
                    from sites.clocks.shared.journal import restore_left_over  # noqa: PLC0415

                    restore_left_over(root)
            finally:
                os._exit(0)
        os.close(alive)

    def end(self) -> None:
        """End the process without a restoration."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._alive, b"e")
        os.close(self._alive)
        os.waitpid(self._pid, 0)


def run_program(argv: Sequence[str], request: RunRequest, records: Path | None) -> int:
    """Run a program, append the record to the file ``records``, if any, and end as the program did.

    Returns the program's exit code; if a signal ended it, this process ends by that signal.
    """
    program = _Program(argv)
    run = _Run(request, program.pid)
    with contextlib.ExitStack() as stack:
        sampler = run.prepare(stack)
        start_unix_s, start_ns = time.time(), time.monotonic_ns()
        program.go()
        # A thread, so that the program's end is noticed without delay.
        importing = threading.Thread(target=run.preload_modules)
        importing.start()
        status = program.wait()
        end_ns = time.monotonic_ns() - start_ns
        importing.join()
        measured = run.measured(sampler, start_ns, end_ns)
    program.unblock_signals()
    record = {
        "format": FORMAT,
        **_job(argv),
        **request.facts,
        "start": _in_utc(start_unix_s),
        "time_s": end_ns / 1e9,
        **measured,
        "exit": os.waitstatus_to_exitcode(status),
        "problems": [*request.problems, *run.problems],
    }
    for line in record["problems"]:
        print(f"campaign: {line}", file=sys.stderr)
    if records is not None:
        try:
            append_record(records, record)
        except OSError as error:
            print(f"campaign: {records}: no record ({error.strerror})", file=sys.stderr)
    return _end_as(status)


class _Run:
    """The clocks and meters of a program's run. ``process``: the program's id."""

    def __init__(self, request: RunRequest, process: int) -> None:
        self.request = request
        self.process = process
        self.problems: list[str] = []
        self._set = False

    def prepare(self, stack: contextlib.ExitStack) -> Sampler | None:
        """Set the clocks and start to read meters and clocks; None if nothing can be read."""
        site = self.request.site
        if site is None or site.is_simulated:
            if site is not None:
                self.problems.append(f"{site.name} is simulated: nothing is set or measured")
            return None
        from sites.clocks import CONTROLS, open_control  # noqa: PLC0415
        from sites.clocks.shared.core_clock import work_in  # noqa: PLC0415

        has_setting = self.request.setting != AS_FOUND
        if has_setting and CONTROLS.load(site.clocks.control).ABOUT.sets_clocks:
            stack.callback(_Watcher(self.request.root).end)
        try:
            with work_in(self.process):
                clocks = open_control(site, self.request.root)
            stack.callback(clocks.restore)
            if has_setting:
                clocks.set(self.request.setting)
                self._set = True
            return self._sampler(site, clocks, stack)
        except Exception as error:  # the program runs whatever happens here
            self.problems.append(f"{self.request.setting}: not set: {error}")
            return None

    def _sampler(
        self, site: NodeSite, clocks: ClockControl, stack: contextlib.ExitStack
    ) -> Sampler | None:
        meters: list[UsedMeter] = []
        try:
            from campaign.measure.sampler import Sampler, UsedMeter  # noqa: PLC0415
            from sites.meters import open_meter  # noqa: PLC0415

            for entry in site.meters:
                meter = open_meter(entry.kind, entry.options, self.request.root)
                stack.callback(meter.close)
                meters.append(UsedMeter(meter, entry.use))
            sampler = Sampler(meters, clocks, PERIOD_S, lead_s=0.0, compiled=False)
            sampler.begin()
        except Exception as error:
            self.problems.append(f"not measured: {error}")
            return None
        return sampler

    def preload_modules(self) -> None:
        """Import, while the program runs, the modules that its end needs."""
        import datetime  # noqa: F401, PLC0415
        import hashlib  # noqa: F401, PLC0415
        import json  # noqa: F401, PLC0415
        import pwd  # noqa: F401, PLC0415

        if self.request.site is not None and self.request.site.meters:
            from campaign.measure import energy  # noqa: F401, PLC0415

    def measured(self, sampler: Sampler | None, start_ns: int, end_ns: int) -> dict[str, Any]:
        """The record's entries on clocks and energy; unknown values are None."""
        facts: dict[str, Any] = {
            "core_mhz": self.request.setting.core_mhz,
            "mem_mhz": self.request.setting.clocks[1],
            "set": self._set,
            "clock_proof": None,
            "core_mhz_achieved": None,
            "mem_mhz_achieved": None,
            "energy_j": None,
            "energy_std_j": None,
        }
        if sampler is None:
            return facts
        try:
            sampler.end()
            achieved = sampler.achieved_setting()
            facts |= {
                "core_mhz_achieved": achieved.core_mhz,
                "mem_mhz_achieved": achieved.clocks[1],
                "clock_proof": self._proof(achieved),
            }
            facts |= {k: v for k, v in sampler.conditions().items() if k == "throttled"}
            if sampler.meters:
                from campaign.measure.energy import node_energy, refuse_stopped  # noqa: PLC0415

                traces = sampler.traces(start_ns)
                refuse_stopped(traces, end_ns)
                total = node_energy(traces, 0, end_ns).total
                if math.isfinite(total.energy_j):
                    facts |= {"energy_j": total.energy_j, "energy_std_j": total.std_j}
        except Exception as error:  # a meter failed; the program has ended
            self.problems.append(f"not measured: {error}")
        return facts

    def _proof(self, achieved: Setting) -> str | None:
        """``not achieved`` if a clock that was read differs from the one that was set by more than
        the site's tolerance; ``read back`` if all that were set were read; otherwise None."""
        site = self.request.site
        if not self._set or site is None:
            return None
        pairs = zip(self.request.setting.clocks, achieved.clocks, strict=True)
        set_pairs = [(set_mhz, read_mhz) for set_mhz, read_mhz in pairs if set_mhz is not None]
        allowed = site.clocks.tolerance_pct / 100.0
        if any(
            read_mhz is not None and abs(read_mhz / set_mhz - 1.0) > allowed
            for set_mhz, read_mhz in set_pairs
        ):
            return "not achieved"
        return None if any(read_mhz is None for _, read_mhz in set_pairs) else "read back"


def _job(argv: Sequence[str]) -> dict[str, Any]:
    """The job, user and program of a run. Arguments may hold secrets: only their hash is kept."""
    import hashlib  # noqa: PLC0415

    variables = {
        "job_id": "SLURM_JOB_ID",
        "step_id": "SLURM_STEP_ID",
        "job_name": "SLURM_JOB_NAME",
        "partition": "SLURM_JOB_PARTITION",
    }
    return {
        "node": os.uname().nodename,
        "user": _user(),
        **{key: os.environ.get(name) for key, name in variables.items()},
        "nodes": _nodes(),
        "program": Path(argv[0]).name,
        "input": hashlib.sha256("\0".join(argv).encode("utf-8", "surrogateescape")).hexdigest()[
            :12
        ],
    }


def _nodes() -> int:
    """The number of nodes of the program's step, or of its job outside a step, as in a batch
    script."""
    text = os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_JOB_NUM_NODES") or "1"
    return int(text) if text.isdecimal() else 1


def _in_utc(unix_s: float) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")


def _user() -> str:
    """The user's name; the user's number if this node does not know the name."""
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append a line of JSON, whole or not at all; only this user may read the file."""
    import json  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    line = json.dumps(record).encode() + b"\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if os.write(descriptor, line) < len(line):
            os.ftruncate(descriptor, before.st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def default_records() -> Path | None:
    """``~/.local/state/dvfs-campaign/exec.jsonl`` of this user; None for a user without a home."""
    home = os.environ.get("XDG_STATE_HOME")
    if not home:
        try:
            home = str(Path.home() / ".local" / "state")
        except RuntimeError:
            return None
    return Path(home) / "dvfs-campaign" / "exec.jsonl"


def _end_as(status: int) -> int:
    """Return the program's exit code; if a signal ended the program, end by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    import resource  # noqa: PLC0415

    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
    os.kill(os.getpid(), -code)
    return 128 - code  # the signal stops a process only
