"""Folders, files and locks that belong to this user alone.

Root replays journals, so a file that another user could have placed there must not be read: a
folder or file that is a link, has another owner or is writable by others is refused.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path

from sites.clocks.shared.control import ClocksError

CHILD_S = 1.0
"""How long a child of a killed process may hold a lock: until it is killed, or runs a program."""
LARGEST_BYTES = 16 * 2**20
"""Far above the journal of a node with a thousand CPUs."""


class ClocksInUseError(ClocksError):
    """Another process has set clocks with the same control; ``pid`` is None if unknown."""

    def __init__(self, what: str, remedy: str, pid: int | None) -> None:
        super().__init__(what, remedy)
        self.pid = pid


class OwnershipError(Exception):
    """A folder or file that is not this user's alone."""


def open_folder(path: Path) -> int:
    """Open a folder of this user and return its descriptor.

    Raises:
        OwnershipError: it is a link, not a folder, or others may write in it.
        OSError: it does not exist or cannot be opened.
    """
    parent = path.parent.stat()
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        raise OwnershipError(f"everybody may rename files in {path.parent}")
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (NotADirectoryError, PermissionError) as error:
        raise OwnershipError(
            f"{path} is a link, not a folder, or another user's ({error})"
        ) from None
    except OSError:
        if path.is_symlink():
            raise OwnershipError(f"{path} is a link") from None
        raise
    try:
        _check_owner(os.fstat(folder), path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _check_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():
        raise OwnershipError(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OwnershipError(f"{path} can be written by others")
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise OwnershipError(f"{path} has another hard link")


def _open_owned(folder: int, path: Path, name: str, flags: int) -> int:
    try:
        # O_NONBLOCK: opening must not wait if somebody placed a pipe there.
        opened = os.open(
            name,
            flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK,
            0o600,
            dir_fd=folder,
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OwnershipError(
            f"{path / name} is a link or cannot be opened ({error.strerror})"
        ) from None
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OwnershipError(f"{path / name} is not a regular file")
        _check_owner(status, path / name)
    except BaseException:
        os.close(opened)
        raise
    return opened


def read_owned(folder: int, path: Path, name: str) -> str:
    """The text of a file in an open folder.

    Raises:
        FileNotFoundError: it does not exist.
        OwnershipError: it does not belong to this user alone.
    """
    with os.fdopen(_open_owned(folder, path, name, os.O_RDONLY), "rb") as file:
        return file.read(LARGEST_BYTES).decode(errors="replace")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_ended(pid: bytes) -> bool:
    """Whether a process has ended or is a zombie; False where ``pid`` is not a number."""
    try:
        return pid.isdigit() and b") Z " in Path(f"/proc/{int(pid)}/stat").read_bytes()
    except OSError:
        return True


def take_lock(folder: int, path: Path, stem: str) -> int:
    """Lock ``stem.lock`` in an open folder and return its descriptor.

    A child of a process that was killed while it started a program may hold the lock for a moment:
    this waits for it.

    Raises:
        ClocksInUseError: another process holds the lock.
        ClocksError: the file does not belong to this user alone.
    """
    name = f"{stem}.lock"
    try:
        lock = _open_owned(folder, path, name, os.O_RDWR | os.O_CREAT)
    except OwnershipError as error:
        raise ClocksError(str(error), f"remove it: `sudo rm -r {path / name}`") from None
    try:
        deadline_s = time.monotonic() + CHILD_S
        while not _locked(lock):
            if time.monotonic() >= deadline_s or not _has_ended(os.pread(lock, 32, 0).strip()):
                raise BlockingIOError
            time.sleep(0.01)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        text = os.pread(lock, 32, 0).strip()
        os.close(lock)
        pid = int(text) if text.isdigit() else None
        if pid is None:
            raise ClocksInUseError(
                f"{path / name} is held by another process",
                f"wait for it; `fuser {path / name}` shows which process it is",
                None,
            ) from None
        raise ClocksInUseError(
            f"{path / name} is held by process {pid}, which has set these clocks",
            f"wait until it ends, or stop it: `kill {pid}`",
            pid,
        ) from None
    except BaseException:
        os.close(lock)
        raise
    return lock
