"""A user's program that misbehaves as long as a file is there; what the ``command`` kernel runs.

``python bad_program.py HOW FILE``; HOW is one of :data:`WAYS`.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

MEMORY_BYTES = 1 << 28
"""More than this it does not get: the machine is not to be harmed."""


def hang() -> None:
    """It ignores SIGTERM, and so do its children, one of them in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ignoring = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    for apart in (False, True):
        subprocess.Popen([sys.executable, "-S", "-c", ignoring], start_new_session=apart)
    time.sleep(600)


def crash() -> None:
    """A segmentation fault."""
    os.kill(os.getpid(), signal.SIGSEGV)


def crash_parent() -> None:
    """What starts it, the measuring subprocess, has a segmentation fault."""
    os.kill(os.getppid(), signal.SIGSEGV)
    time.sleep(600)


def garbage() -> None:
    """A megabyte of bytes that are no text, with control characters, and no newline at the end."""
    block = bytes(range(256)) * 16
    for stream in (sys.stdout.buffer, sys.stderr.buffer):
        for _ in range(128):
            stream.write(block)
        stream.flush()
    os._exit(3)


def memory() -> None:
    """It takes all that it gets; refused more, it is killed, as the kernel does it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    taken = []
    try:
        while True:
            taken.append(b"\1" * (1 << 20))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)


WAYS = {
    "hang": hang,
    "crash": crash,
    "crash-parent": crash_parent,
    "garbage": garbage,
    "memory": memory,
}

if __name__ == "__main__":
    if Path(sys.argv[2]).exists():
        WAYS[sys.argv[1]]()
