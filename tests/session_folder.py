"""Where tests write: folders in memory, and one that all processes of a session share, pytest's own
and its workers'."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

MEMORY = Path("/dev/shm")
ROOM_BYTES = 8 << 30
"""More than a whole session needs."""
FOLDER = "CAMPAIGN_TESTS_FOLDER"
OWNER = "CAMPAIGN_TESTS_OWNER"


def write_in_memory() -> None:
    """Make temporary folders in memory, where there is room and programs may run: tests write
    stores hundreds of thousands of times, and a disk takes milliseconds for each ``fsync``. A
    ``TMPDIR`` that is given stays."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    room = os.statvfs(MEMORY)
    free_bytes = min(room.f_bavail * room.f_frsize, psutil.virtual_memory().available)
    if free_bytes >= ROOM_BYTES and not room.f_flag & os.ST_NOEXEC:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)


def session_folder() -> Path:
    """The folder. The process that asks first makes it, owns it and removes it when it ends; the
    processes that it starts find it in their environment."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="campaign-tests-")
        os.environ[OWNER] = str(os.getpid())
        atexit.register(shutil.rmtree, os.environ[FOLDER], ignore_errors=True)
    return Path(os.environ[FOLDER])


def owner() -> int:
    """The process that owns the folder."""
    session_folder()
    return int(os.environ[OWNER])


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder in it that ``make`` has filled: the process that asks first makes it for all."""
    folder = session_folder() / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            make(folder)
            (folder / "made").touch()
    return folder
