"""Reading files that others name or write: regular ones only, and no more bytes than are expected.

A device or a pipe in place of a file may have no end.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MAX_BYTES = 1 << 30
"""Of an input file, and of what it holds once it is unpacked: a table of a few million rows."""
PART_BYTES = 16 << 20
LINKS = 40
"""So many links in a row are followed, as the system does."""


class NotRegular(OSError):
    """A folder, a device or a pipe is in place of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", str(path))


class TooLarge(OSError):
    """A file, or what is in it, has more bytes than are read."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        super().__init__(errno.EFBIG, f"has more than {most_bytes >> 20} MiB", str(path))


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it.

    Raises:
        NotRegular: it is not a regular file.
        OSError: it cannot be opened.
    """
    # O_NONBLOCK: opening a pipe must not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """All bytes of a file. Raises as :func:`open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def read_input(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """All bytes of a file that a user names. ``/dev/stdin`` and ``/dev/fd/N`` may be pipes.

    Raises:
        TooLarge: it has more than ``most_bytes``.
        NotRegular: it is not a regular file.
        OSError: it cannot be read.
    """
    with open_regular(path) if own_descriptor(path) is None else path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise TooLarge(path, most_bytes)
        parts: list[bytes] = []
        left = most_bytes
        while part := file.read(PART_BYTES):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise TooLarge(path, most_bytes)
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
