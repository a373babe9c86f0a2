"""Bounded reading of input files, and atomic writing.

Reading accepts only regular files, up to a limit of bytes: a device or a pipe may have no end.

Writing creates a new random name in the same folder (``.NAME.RANDOM.new``) and renames it when it
is on disk: a reader sees the earlier file or the new one, never a part. Another user with write
access to the folder cannot redirect the bytes, and after an error, an interrupt or a full disk the
earlier file is unchanged. The next writer of the file removes the temporary file of a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 1 << 30
"""The limit of an input file, also when unpacked: a table of a few million rows."""
PART_BYTES = 16 << 20
LINKS = 40
"""The longest chain of links that is followed, as in the kernel."""


class NotRegularError(OSError):
    """The path is a folder, a device or a pipe, not a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", str(path))


class TooLargeError(OSError):
    """A file, packed or unpacked, exceeds the limit of bytes."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        super().__init__(errno.EFBIG, f"has more than {most_bytes >> 20} MiB", str(path))


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        NotRegularError: the path is not a regular file.
        OSError: it cannot be opened.
    """
    # O_NONBLOCK: opening a pipe must not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """All bytes of a file. Raises as :func:`open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def read_input(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """All bytes of a file that a user names. ``/dev/stdin`` and ``/dev/fd/N`` may be pipes.

    Raises:
        TooLargeError: the file has more than ``most_bytes``.
        NotRegularError: the path is not a regular file.
        OSError: it cannot be read.
    """
    with open_regular(path) if own_descriptor(path) is None else path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise TooLargeError(path, most_bytes)
        parts: list[bytes] = []
        remaining = most_bytes
        while part := file.read(PART_BYTES):
            parts.append(part)
            remaining -= len(part)
            if remaining < 0:
                raise TooLargeError(path, most_bytes)
        return b"".join(parts)


def own_descriptor(path: Path) -> int | None:
    """The descriptor of this process behind ``/dev/stdin``, ``/dev/stdout``, ``/dev/fd/N`` or a
    link to one of them; None for another path."""
    descriptors = os.path.realpath("/proc/self/fd")
    for _ in range(LINKS):
        if os.path.realpath(path.parent) == descriptors and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


NAME_CHARS = 50
"""Characters of a file's name that its temporary name, of at most 255 bytes, keeps."""
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.new", re.DOTALL)


def temporary_of(name: str) -> str | None:
    """The first :data:`NAME_CHARS` of the name that a temporary file was to get; None for another
    file."""
    found = TEMPORARY.fullmatch(name)
    return found[1] if found else None


@contextlib.contextmanager
def replacing(path: Path, durable: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block ends without an error.

    It gets the permissions of the file that it replaces; a new file gets ``mode``, less the umask.
    ``durable``: sync it to disk before the rename.

    Raises:
        OSError: it cannot be written, or ``path`` may not be replaced.
    """
    try:
        before = _replaceable(path)
        _remove_left(path)
        descriptor, temporary = _create(path, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if before is not None:
                    _take_owner(descriptor, before)
                yield file
                file.flush()
                if durable:
                    os.fsync(descriptor)
                temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:  # names the file, which a user knows, and not the temporary one
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


@contextlib.contextmanager
def writing_output(path: Path) -> Iterator[BinaryIO]:
    """Open an output file of a user: as :func:`replacing`, but a link stays and its target is
    replaced, and a pipe, a device or ``/dev/stdout`` is written directly.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = own_descriptor(path)
    if not is_stream(path):
        with replacing(Path(os.path.realpath(path))) as file:
            yield file
        return
    sys.stdout.flush()  # keeps the order of earlier output
    with path.open("wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb") as stream:
        yield stream


def is_stream(path: Path) -> bool:
    """Whether a path names a pipe, a device, or an open file of this process."""
    return own_descriptor(path) is not None or (
        path.exists() and not path.is_file() and not path.is_dir()
    )


def write_output(path: Path, data: bytes | str) -> None:
    """Write an output file of a user; text as UTF-8. See :func:`writing_output`."""
    with writing_output(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_kept(path: Path, data: bytes) -> None:
    """Write a file of this user's cache, and create its folder. See :func:`replacing`.

    Other users cannot write it, whatever the umask: the cache holds compiled code that runs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600) as file:
        file.write(data)


def _replaceable(path: Path) -> os.stat_result | None:
    """The status of the regular file at ``path``; None if there is none.

    Raises:
        OSError: it is a folder, or this user may not write to it.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, os.strerror(21), str(path))
    if not stat.S_ISREG(status.st_mode):
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    return status


def _create(path: Path, mode: int) -> tuple[int, Path]:
    """Create a temporary file, locked while it is open: (descriptor, path)."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        new = path.with_name(f".{path.name[:NAME_CHARS]}.{secrets.token_hex(8)}.new")
        descriptor = os.open(new, flags, mode)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if new.exists():
            return descriptor, new
        os.close(descriptor)  # _remove_left of another process was quicker than the lock


def _remove_left(path: Path) -> None:
    """Remove temporary files of ``path`` that no process is writing."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed
        for name in os.listdir(path.parent):  # noqa: PTH208  (quick in a large folder)
            if temporary_of(name) == path.name[:NAME_CHARS]:
                with contextlib.suppress(OSError):  # another process writes it, or has removed it
                    _remove_unlocked(path.with_name(name))


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


def _take_owner(descriptor: int, before: os.stat_result) -> None:
    """Give a new file the permissions of an earlier one, and its owner if allowed."""
    with contextlib.suppress(OSError):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
