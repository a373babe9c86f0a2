"""A driver that outlives the terminal: a process in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from campaign.launch.snapshot import ENDING, MEASURING, read_snapshot
from campaign.store.layout import Store

LOOK_S = 0.1


def driver_log(store: Store) -> Path:
    """The file of a driver's output that has no terminal; its folder is made."""
    log = store.root / "logs" / "driver.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def command_line(words: Sequence[str]) -> list[str]:
    """The command line of this program with the interpreter that runs now. A folder ``campaign``
    in the working directory is not taken for it (``-P``)."""
    return [sys.executable, "-P", "-m", "campaign", *words]


def start_detached(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start this program with ``words`` in a session of its own. SIGHUP does not end it, and its
    output is added to ``log``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a new process inherits
    try:
        # What lies there may be of another user of the store's group.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(log, flags, 0o666), "ab") as output:
            return subprocess.Popen(
                command_line(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    finally:
        signal.signal(signal.SIGHUP, before)


def wait_until_measuring(process: subprocess.Popen[bytes], store: Store) -> int | None:
    """Wait until a driver measures; its exit code where it has ended instead."""
    while True:
        exit_code = process.poll()
        if exit_code is not None:
            return exit_code
        snapshot = read_snapshot(store)
        if (
            snapshot is not None
            and snapshot.pid == process.pid
            and snapshot.phase in (MEASURING, ENDING)
        ):
            return None
        time.sleep(LOOK_S)
