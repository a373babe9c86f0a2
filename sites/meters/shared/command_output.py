"""Run a command within a time limit, without a shell, and return its output."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sites.meters.shared.meter import MeterError
from sites.slurm_environment import slurm_environment

PROGRAM_FOLDERS = (Path("usr/bin"), Path("usr/sbin"), Path("bin"), Path("sbin"))
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
STEP_S = 0.1
"""The longest time until a command that must stop is killed."""


def find_program(name: str, root: Path) -> str | None:
    """The path of a program on PATH or in sbin, or below a root that is not ``/``; or None."""
    if root == Path("/"):
        folders = [
            os.environ.get("PATH", os.defpath),
            *(f"/{folder}" for folder in PROGRAM_FOLDERS),
        ]
    else:
        folders = [str(root / folder) for folder in PROGRAM_FOLDERS]
        name = Path(name).name
    return shutil.which(name, path=os.pathsep.join(folders))


def run_command(
    command: Sequence[str],
    limit_s: float,
    remedy: str,
    stop: threading.Event | None = None,
    dies_with_us: bool = False,
) -> str:
    """Run a command with the C locale and return its output.

    Args:
        command: its words.
        limit_s: after this time, it and its child processes are killed.
        remedy: how to fix a failure.
        stop: when this event is set, the command is killed.
        dies_with_us: the kernel kills it if the thread that waits for it is killed.

    Raises:
        MeterError: it cannot be started, fails, or takes too long.
    """
    shown = " ".join(command)
    try:
        # In a new session, so that its child processes can be killed with it.
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=slurm_environment() | {"LC_ALL": "C"},
            start_new_session=True,
            preexec_fn=partial(_die_with, os.getpid()) if dies_with_us else None,  # noqa: PLW1509
        )
    except OSError as error:
        raise MeterError(f"`{shown}` cannot be run: {error.strerror}", remedy) from error
    end = time.monotonic() + limit_s
    while True:
        remaining_s = end - time.monotonic()
        is_stopped = stop is not None and stop.is_set()
        if remaining_s <= 0 or is_stopped:
            _kill(process)
            why = "was stopped" if is_stopped else f"took more than {limit_s:g} s"
            raise MeterError(f"`{shown}` {why}", remedy)
        try:
            output, errors = process.communicate(timeout=min(STEP_S, remaining_s))
            break
        except subprocess.TimeoutExpired:
            continue
    if process.returncode != 0:
        output_text = shown_text(errors) or shown_text(output) or "nothing"
        raise MeterError(
            f"`{shown}` failed with status {process.returncode} (output: {output_text})", remedy
        )
    return output


def _die_with(parent: int) -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent was killed before the call
        os._exit(1)


def shown_text(output: str) -> str:
    """The beginning of a program's output in one line, for a message."""
    return " ".join("".join(filter(_is_shown, output[:2000])).split())[:200]


def _is_shown(character: str) -> bool:
    return character.isprintable() or character.isspace()


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.communicate()
