"""Measures each point in a separate subprocess, and returns its record as bytes.

The subprocess is a fork of a warm interpreter (:mod:`campaign.measure.forkserver`). This runs on
the worker's node or, if Slurm sets the clocks, in a job step with the setting. A kernel with ranks
runs in a separate job step, or in a local ``mpiexec``. The kernel ``command`` starts the ranks of a
user's program; one process on each node measures them (:mod:`campaign.measure.mpi`).

If a job step leaves no result, the messages of srun and slurmstepd tell why. The exit status alone
would blame the kernel: srun ends with status 0 after a node failure, and after its step daemon was
killed. The messages are those recorded from Slurm 22.05, and the strings in its srun and
slurmstepd.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any

from campaign.measure.__main__ import UnwrittenRecordError, request_environment
from campaign.measure.mpi import (
    measuring_mpiexec,
    measuring_ranks,
    program_ranks,
    ranks_mpi,
    step_size,
)
from campaign.measure.point_life import PartitionSetup
from campaign.measure.point_server import (
    GRACE_S,
    STEP_NAME,
    PointServer,
    end_launcher,
    end_with_parent,
    kill_steps,
)
from campaign.plan.point import Point
from campaign.store.journal import TornRecordError, encode, scalars_of
from campaign.store.layout import UnwritableStoreError
from campaign.store.measurement import Measurement
from dvfs.dataset import CLOCK_NOT_LEGAL, KERNEL_FAILED, NODE_LOST, TIMED_OUT
from dvfs.extras import MissingExtraError
from kernels.host.output import beginning_and_end
from kernels.host.ranks import node_name
from sites.clocks.slurm import refusal, step_flags
from sites.slurm_environment import step_environment

LOG_CHARS = 2000
FIRST_CHARS = 100_000
SIGNALS_FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
ENDED_FROM_OUTSIDE = {code for s in SIGNALS_FROM_OUTSIDE for code in (-s, 128 + s)}
"""Exit statuses of a subprocess that was ended from outside: by a job's cancellation, the OOM
killer, or a node that goes down. The point itself may be measurable."""
STEP_PAUSE_S = 5.0
STEP_WAIT_S = 600.0
"""How long a worker retries the start of a step while Slurm does not answer."""
STEP_START_S = 60.0
"""The time that a step may need to start, in addition to the time limit of its first point."""
STEP_END_S = 60.0
"""The time that srun may need to print why a step has ended."""


class StepEnd(Enum):
    """Why a step left no result."""

    NO_ANSWER = auto()
    """Slurm did not answer; the step can be started again, in the same allocation."""
    GONE = auto()
    """The worker's job has ended: no step can start in it."""
    LOST = auto()
    """Slurm lost or ended the step; another attempt may succeed."""
    OUT_OF_MEMORY = auto()
    """The step reached its memory limit; another attempt would reach it too."""
    REFUSED = auto()
    """Slurm cannot start such a step in the allocation, now or later."""
    KERNEL = auto()
    """None of these: the program ended by itself."""


STEP_END_PATTERNS = {
    StepEnd.NO_ANSWER: (
        r"srun: error: .*(Unable to contact slurm controller|Socket timed out|Zero Bytes were"
        r" transmitted|temporarily unavailable|Connection refused)"
    ),
    StepEnd.GONE: (
        r"srun: error: (.* has expired|.* already completing or completed"
        r"|Unable to confirm allocation|.*[Ee]xpired or invalid job|.*Invalid job id)"
    ),
    StepEnd.OUT_OF_MEMORY: (
        r"(srun|slurmstepd\S*): error: .*(oom.kill event|Out Of Memory|OOM Killed|out-of-memory)"
    ),
    StepEnd.LOST: (
        r"(srun|slurmstepd\S*): error: .*(Node failure|NODE_FAIL|DUE TO (NODE FAILURE|PREEMPTION"
        r"|JOB REQUEUE|TIME LIMIT)|STEPD TERMINATED|Timed out waiting for job step"
        r"|credential|Communication connection failure|aborted before step completely launched"
        r"|mpi/pmi2: )"
    ),
    StepEnd.REFUSED: (
        r"srun: error: (.*Requested node configuration is not available|Only allocated \d+ nodes"
        r"|Unable to create step)"
    ),
}
"""The first pattern that matches the start of a line decides. After a node failure the job may be
gone."""


def step_end(output: str) -> StepEnd:
    """Return why a step left no result, from the last lines of its output."""
    for end, pattern in STEP_END_PATTERNS.items():
        if re.search(f"^{pattern}", output, re.MULTILINE):
            return end
    return StepEnd.KERNEL


STEP_STATUS = {
    StepEnd.LOST: (NODE_LOST, "Slurm lost or ended the job step"),
    StepEnd.OUT_OF_MEMORY: (KERNEL_FAILED, "out of memory in a job step"),
    StepEnd.REFUSED: (KERNEL_FAILED, "Slurm cannot start the job step"),
}
"""The status and text of a point whose step left no result."""


class LostAllocationError(Exception):
    """The worker's Slurm job has ended, or the worker is ending, so that nothing can start. The
    point has not failed."""


class UnwritableScratchError(UnwritableStoreError):
    """The scratch folder of a partition's nodes cannot be written to. No point has failed."""


class SubprocessRunner:
    """Measures points in subprocesses, which share one scratch folder.

    Raises:
        UnwritableScratchError: the folder cannot be made.
    """

    def __init__(self, setup: PartitionSetup, scratch: Path | None = None) -> None:
        self.setup = setup
        self._server: PointServer | None = None
        self._closed = False
        try:
            self._make_folder(scratch)
        except OSError as error:
            raise UnwritableScratchError(
                f"{error.filename or scratch}: {error.strerror}; make room in the partition's "
                f"local_directory, or set another folder"
            ) from None

    def _make_folder(self, scratch: Path | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=scratch_prefix(), dir=scratch))
        # Locked while this process lives: a lock that another process gets marks a dead worker.
        new_lock = self.folder / "lock.new"
        self._lock = os.open(new_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new_lock.rename(self.folder / "lock")
        remove_dead_scratch(self.folder.parent)
        self.result, self.log = self.folder / "result", self.folder / "log"
        self.step_log = self.folder / "step.log"
        self.setup_file = self.folder / "setup.json"
        self.setup_file.write_text(json.dumps(self.setup.as_dict()))

    def measure(self, point: Point, attempt: int) -> bytes:
        """Measure a point. Returns a whole record, also for a failure.

        Raises:
            UnwritableScratchError: two attempts to write to the scratch folder failed.
            LostAllocationError: the worker's Slurm job has ended, or Slurm does not answer for
                :data:`STEP_WAIT_S`.
        """
        until_s = time.monotonic() + STEP_WAIT_S
        while (record := self._measured(point, attempt)) is None:
            if time.monotonic() >= until_s:
                raise LostAllocationError(
                    f"Slurm does not answer: {beginning_and_end(_output(self.log))}"
                )
            time.sleep(STEP_PAUSE_S)
        return record

    def _measured(self, point: Point, attempt: int) -> bytes | None:
        """See :meth:`measure`; None if no step could start because Slurm does not answer."""
        set_by_slurm = self.setup.site.clocks.in_steps
        run_in_server = self._run_in_step if set_by_slurm else self._run_forked
        ranks = measuring_ranks(point, self.setup.site)
        run, messages = (run_in_server, self.step_log) if ranks == 1 else (self._launch, self.log)
        for _ in range(2):
            started_unix_s = time.time()
            try:
                for path in (self.result, self.log):
                    with _in_scratch(path):
                        path.unlink(missing_ok=True)
                exit_code, timed_out = run(point, attempt)
            except UnwrittenRecordError as unwritten:
                problem = str(unwritten)
                continue
            except (OSError, MissingExtraError) as error:
                return _failure(point, attempt, started_unix_s, KERNEL_FAILED, str(error))
            if exit_code != os.EX_IOERR:
                break
            problem = beginning_and_end(_output(self.log))
        else:
            raise UnwritableScratchError(
                f"{self.folder}: the result cannot be written ({problem}); make room in the "
                f"partition's local_directory, or set another folder"
            )
        if set_by_slurm and (refused := refusal(_output(messages)[:FIRST_CHARS])):
            text = f"Slurm does not set the clocks ({point.setting}): {refused}"
            return _failure(point, attempt, started_unix_s, CLOCK_NOT_LEGAL, text)
        ranks_started = program_ranks(point, self.setup.site) > 1
        result = None if timed_out else self.result
        record, output = _record_or_output(ranks_started, self.log, result)
        if record is not None:
            return record
        excerpt = beginning_and_end(output)
        if timed_out:
            limit_s = self.setup.protocol.timeout_s
            text = f"killed after {limit_s:g} s; output: {excerpt}"
            return _failure(point, attempt, started_unix_s, TIMED_OUT, text)
        end = _step_end(output[-LOG_CHARS:])
        if end == StepEnd.NO_ANSWER:
            return None
        if end == StepEnd.GONE:
            raise LostAllocationError(excerpt)
        text = f"the measuring subprocess ended with {_exit_name(exit_code)}; output: {excerpt}"
        status = NODE_LOST if exit_code in ENDED_FROM_OUTSIDE else KERNEL_FAILED
        if end in STEP_STATUS:
            status, reason = STEP_STATUS[end]
            text = f"{reason}; output: {excerpt}"
        return _failure(point, attempt, started_unix_s, status, text)

    def _request(self, point: Point, attempt: int) -> dict[str, Any]:
        return {
            "point": point.as_dict(),
            "attempt": attempt,
            "result": str(self.result),
            "log": str(self.log),
            "timeout_s": self.setup.protocol.timeout_s,
        }

    def _run_forked(self, point: Point, attempt: int) -> tuple[int | None, bool]:
        code = None
        for _ in range(2):
            if self._closed:
                raise LostAllocationError("this worker ends")
            if self._server is None:
                self._server = PointServer([], self.setup_file)
            try:
                return self._server.ask(self._request(point, attempt), None)
            except EOFError:  # it was killed, perhaps together with its child: try again
                code = self._end_server()
        raise OSError(f"the fork server ended with {_exit_name(code)}")

    def _run_in_step(self, point: Point, attempt: int) -> tuple[int | None, bool]:
        """Measure in the step of the point's setting; start it if it does not run."""
        if self._closed:
            raise LostAllocationError("this worker ends")
        words = launcher(point, self.setup)
        if self._server is not None and (
            self._server.launcher != words or not self._server.running
        ):
            self._end_server()
        limit_s = self.setup.protocol.timeout_s + 3.0 * GRACE_S
        if self._server is None:
            with _in_scratch(self.step_log):
                self._server = PointServer(words, self.setup_file, self.step_log)
            limit_s += STEP_START_S
        try:
            code, timed_out = self._server.ask(self._request(point, attempt), limit_s)
        except EOFError:
            code, timed_out = self._end_server(STEP_END_S), False
        except TimeoutError:
            code, timed_out = None, True
        if not self.result.exists():
            # Slurm may give the reason only when the step has ended. The next point starts another.
            self._end_server()
            with contextlib.suppress(OSError), self.log.open("ab") as file:
                file.write(self.step_log.read_bytes())
        return code, timed_out

    def _end_server(self, wait_s: float = GRACE_S + 2.0) -> int | None:
        server, self._server = self._server, None
        return None if server is None else server.end(wait_s)

    def _launch(self, point: Point, attempt: int) -> tuple[int | None, bool]:
        if self.setup.site.clocks.in_steps:
            self._end_server()  # its step sets other clocks
        argv = [
            *launcher(point, self.setup),
            *(sys.executable, "-m", "campaign.measure", str(self.result)),
        ]
        with _in_scratch(self.log):
            output = self.log.open("wb")
        with output:
            process = subprocess.Popen(
                argv,
                env=step_environment() | request_environment(self.setup, point, attempt),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509
            )
            try:
                return process.wait(self.setup.protocol.timeout_s), False
            except subprocess.TimeoutExpired:
                return None, True
            finally:
                end_launcher(process)

    def close(self) -> None:
        """End the fork server, with its step, and remove the scratch folder. A point that another
        thread is measuring is lost."""
        self._closed = True
        self._end_server()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


@contextlib.contextmanager
def _in_scratch(path: Path) -> Iterator[None]:
    """Turn OSError into UnwrittenRecordError: the point has not failed."""
    try:
        yield
    except OSError as error:
        raise UnwrittenRecordError(f"{path}: {error.strerror}") from None


def scratch_prefix() -> str:
    """The prefix of the names of this node's scratch folders. Nodes may share the parent folder."""
    return f"campaign-{platform.node()}-"


def remove_dead_scratch(parent: Path) -> None:
    """Remove the scratch folders of this user's killed workers on this node."""
    for path in parent.glob(f"{scratch_prefix()}*"):
        with contextlib.suppress(OSError):  # another user's, or removed meanwhile
            lock = os.open(path / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def launcher(point: Point, setup: PartitionSetup) -> list[str]:
    """The command that starts the measuring program: srun in a Slurm job, mpiexec for ranks."""
    if "SLURM_JOB_ID" in os.environ:
        return step_words(point, setup, int(os.environ.get("SLURM_CPUS_ON_NODE", "1")))
    ranks = measuring_ranks(point, setup.site)
    return [measuring_mpiexec(), "-n", str(ranks)] if ranks > 1 else []


def step_words(point: Point, setup: PartitionSetup, cores: int) -> list[str]:
    """srun and its options for the step of a point. ``cores``: allocated on each node."""
    ranks = measuring_ranks(point, setup.site)
    mpi = ranks_mpi(setup.site, point.partition) if ranks > 1 else "none"
    words = [
        "srun",
        "--export=ALL",
        *step_size(setup.site, ranks, cores),
        f"--job-name={STEP_NAME}",
        "--overlap",
        "--kill-on-bad-exit=1",
        "--quiet",
    ]
    if mpi is not None:
        words.append(f"--mpi={mpi}")
    if setup.site.clocks.in_steps:
        words += step_flags(point.setting, setup.site.clocks.device)
    return words


def _record_or_output(
    ranks_started: bool, log: Path, result: Path | None
) -> tuple[bytes | None, str]:
    """The record of a measuring process; or None, and the output that explains why it has none.

    If the step of a program's ranks failed, and not the program, its record is dropped, as if the
    measuring step had failed. ``ranks_started``: whether there is a step of ranks.
    """
    output = _output(log)
    with contextlib.suppress(OSError, TornRecordError):
        record = b"" if result is None else result.read_bytes()
        scalars = scalars_of(record)
        output = scalars["text"]
        failed = ranks_started and scalars["status"] == KERNEL_FAILED
        if not failed or _step_end(output) == StepEnd.KERNEL:
            return record, ""
    if ranks_started:
        kill_steps()  # an srun that was killed leaves its ranks
    return None, output


def _output(log: Path) -> str:
    try:
        return log.read_text("utf-8", "replace")
    except OSError:
        return ""


def _step_end(output: str) -> StepEnd:
    """See :func:`step_end`; outside Slurm there are no steps."""
    return step_end(output) if "SLURM_JOB_ID" in os.environ else StepEnd.KERNEL


def _exit_name(code: int | None) -> str:
    if code is None:
        return "no exit status"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit status {code}"


def _failure(point: Point, attempt: int, start_unix_s: float, status: str, text: str) -> bytes:
    return encode(
        Measurement(
            point=point,
            status=status,
            text=text,
            attempt=attempt,
            node=node_name(),
            start_unix_s=start_unix_s,
        )
    )
