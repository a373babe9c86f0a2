"""Files that others name or write, read with a limit; and files written whole.

Only regular files are read, and no more bytes than are expected: a device or a pipe in place of a
file may have no end.

A file is written under a new random name in the same folder (``.NAME.RANDOM.new``), and renamed
when it is on disk: who reads it sees the earlier file or the new one, never a part. Another user
who can write in the folder cannot lead the bytes elsewhere, and after an error, an interrupt or a
full disk the earlier file is as it was. The next writer of the same file removes what a killed one
has left.
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
"""Of an input file, and of what it holds once it is unpacked: a table of a few million rows."""
PART_BYTES = 16 << 20
LINKS = 40
"""So many links in a row are followed, as the system does."""


class NotRegularError(OSError):
    """A folder, a device or a pipe is in place of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", str(path))


class TooLargeError(OSError):
    """A file, or what is in it, has more bytes than are read."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        super().__init__(errno.EFBIG, f"has more than {most_bytes >> 20} MiB", str(path))


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it.

    Raises:
        NotRegularError: it is not a regular file.
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
        TooLargeError: it has more than ``most_bytes``.
        NotRegularError: it is not a regular file.
        OSError: it cannot be read.
    """
    with open_regular(path) if own_descriptor(path) is None else path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise TooLargeError(path, most_bytes)
        parts: list[bytes] = []
        left = most_bytes
        while part := file.read(PART_BYTES):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise TooLargeError(path, most_bytes)
        return b"".join(parts)


def own_descriptor(path: Path) -> int | None:
    """The descriptor of this process that ``/dev/stdin``, ``/dev/stdout``, ``/dev/fd/N`` or a link
    to one of them names; None for another path."""
    own = os.path.realpath("/proc/self/fd")
    for _ in range(LINKS):
        if os.path.realpath(path.parent) == own and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


NAME_CHARS = 50
"""Of a file's name, in its temporary one, which may have 255 bytes."""
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.new", re.DOTALL)


def temporary_of(name: str) -> str | None:
    """The name, or its begin, of the file that a temporary file was to become; None for another
    file."""
    found = TEMPORARY.fullmatch(name)
    return found[1] if found else None


@contextlib.contextmanager
def replacing(path: Path, durable: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of ``path`` when the block has ended without an error.

    It has the permissions of the file that it replaces; a new one has ``mode``, less the umask.
    ``durable``: it is on disk before it is renamed.

    Raises:
        OSError: it cannot be written, or what is at ``path`` may not be replaced.
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
    """A file to write for a user: as :func:`replacing`. A link stays, and its target is replaced; a
    pipe, a device, or ``/dev/stdout`` is written to as it is.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = own_descriptor(path)
    if not is_stream(path):
        with replacing(Path(os.path.realpath(path))) as file:
            yield file
        return
    sys.stdout.flush()  # what was printed before stands before it
    with path.open("wb") if descriptor is None else os.fdopen(os.dup(descriptor), "wb") as stream:
        yield stream


def is_stream(path: Path) -> bool:
    """Whether a path names a pipe, a device, or an open file of this process."""
    return own_descriptor(path) is not None or (
        path.exists() and not path.is_file() and not path.is_dir()
    )


def write_output(path: Path, data: bytes | str) -> None:
    """Write a file for a user; text as UTF-8. See :func:`writing_output`."""
    with writing_output(path) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def write_kept(path: Path, data: bytes) -> None:
    """Write a file of this user's cache, in a folder that is made. See :func:`replacing`.

    Others may not write it, whatever the umask: compiled code is run from there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o600) as file:
        file.write(data)


def _replaceable(path: Path) -> os.stat_result | None:
    """The state of the regular file at ``path``; None where there is none.

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
    """A new file, locked as long as it is open: (descriptor, path)."""
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
    """Remove temporary files of ``path`` that no process writes any more."""
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
    """Give a new file the permissions, and where that is allowed the owner, of an earlier one."""
    with contextlib.suppress(OSError):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode) & 0o777)
