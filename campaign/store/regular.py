"""Files are read only where they are files: a device or a pipe in the place of one has no end."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


class NotRegular(OSError):
    """What is in the place of a file is a folder, a device or a pipe."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "is not a regular file", str(path))


def open_regular(path: Path) -> BufferedReader:
    """A file, opened to be read.

    Raises:
        NotRegular: it is none.
        OSError: it can't be opened.
    """
    # O_NONBLOCK: a pipe must not make the opening wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(path)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """All bytes of a file; raises as :func:`open_regular`."""
    with open_regular(path) as file:
        return file.read()
