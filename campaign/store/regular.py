"""Reads regular files only: a device or a pipe in place of a file may have no end."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


class NotRegular(OSError):
    """A folder, a device or a pipe is in place of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", str(path))


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
