"""A fork server (:mod:`campaign.measure.forkserver`) that measures points one after another, as a
child of this process or in a job step."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sites.slurm_environment import run_slurm, slurm_environment, step_environment

GRACE_S = 3.0
PR_SET_PDEATHSIG = 1
STEP_NAME = "measure"
"""The name of the steps in which a worker measures, one at a time, and of the steps inside them for
the ranks of a user's program."""

_LIBC = ctypes.CDLL(None)


class PointServer:
    """A running fork server. ``launcher``: the command line of srun; empty for a child of this
    process. A launcher's messages go to ``log``, and it ends with this process."""

    def __init__(self, launcher: list[str], setup_file: Path, log: Path | None = None) -> None:
        self.launcher = launcher
        with contextlib.ExitStack() as stack:
            output = None if log is None else stack.enter_context(log.open("wb"))
            self.process = subprocess.Popen(
                [*launcher, sys.executable, "-m", "campaign.measure.forkserver", str(setup_file)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                env=step_environment() if launcher else None,
                preexec_fn=end_with_parent if launcher else None,  # noqa: PLW1509
            )

    @property
    def running(self) -> bool:
        """Whether the server still runs."""
        return self.process.poll() is None

    def ask(self, request: dict[str, Any], limit_s: float | None) -> tuple[int | None, bool]:
        """Request the measurement of a point; returns (exit status, whether its time ran out).

        Raises:
            EOFError: the server has ended.
            TimeoutError: no answer within ``limit_s``.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101
        until_s = None if limit_s is None else time.monotonic() + limit_s
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise EOFError from None
        while True:
            remaining_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
            if not select.select([stdout], [], [], remaining_s)[0]:
                raise TimeoutError
            line = stdout.readline()
            if not line:
                raise EOFError
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a line of a TaskProlog
                answer = json.loads(line)
                return answer["exit"], answer["timed_out"]

    def end(self, wait_s: float = GRACE_S + 2.0) -> int | None:
        """Ask the server to end, and end it after ``wait_s``; returns the exit status."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101
        with contextlib.suppress(OSError):
            stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(wait_s)
        if self.launcher:
            end_launcher(self.process)
        elif self.running:
            self.process.kill()
            self.process.wait()
        stdout.close()
        return self.process.returncode


def end_with_parent() -> None:
    """Let this process, a new child, get SIGTERM when its parent dies. srun and mpiexec forward
    it."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def end_launcher(process: subprocess.Popen[bytes]) -> None:
    """End srun or mpiexec, and all processes that it started, if it still runs.

    After SIGTERM srun also ends a task that ignores the signal. Killing srun with its whole
    process group would leave the task running: srun's helper, which ends it, would be dead too.
    """
    if process.poll() is not None:
        return
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
        return
    kill_steps()
    process.kill()
    process.wait()


def kill_steps() -> None:
    """Kill the processes of the measuring steps of this job; outside Slurm do nothing."""
    if steps := _step_ids():
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(
                ["scancel", "--signal=KILL", *steps],
                check=False,
                timeout=60,
                env=slurm_environment(),
            )


def _step_ids() -> list[str]:
    """The ids of this job's steps with the name :data:`STEP_NAME`; none outside Slurm."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return []
    try:
        listing = ["squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%i|%j"]
        steps = run_slurm(listing, slurm_environment(), 60.0)
    except subprocess.SubprocessError:  # the controller does not answer
        return []
    rows = (line.partition("|") for line in steps.stdout.splitlines())
    return [step for step, _, name in rows if name == STEP_NAME]
