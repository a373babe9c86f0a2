"""Small files of sysfs that a meter keeps open, and the errors of reading them.

A meter keeps its files open and reads each from its start, so that a reading costs one stat of the
path and one read.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from sites.meters.shared.meter import MeterError


@dataclass(frozen=True)
class Remedies:
    """How to fix a file that cannot be read, for each error; ``{path}`` stands for its path."""

    denied: str
    gone: str
    other: str


class KeptFile:
    """A small file of sysfs that stays open, and is opened again if it was replaced.

    Raises:
        MeterError: it cannot be opened.
    """

    def __init__(self, path: str, remedies: Remedies) -> None:
        self.path = path
        self.remedies = remedies
        self.descriptor = -1
        """The open file; -1: closed."""
        self._identity = (-1, -1)
        try:
            self._open()
        except OSError as error:
            raise explain(path, error, remedies) from error

    def _open(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        self.close()
        self.descriptor = descriptor
        status = os.fstat(descriptor)
        # An inode number is not reused while the file is open, so it identifies the file.
        self._identity = (status.st_dev, status.st_ino)

    def read(self) -> bytes:
        """The present first 64 bytes of the file.

        Raises:
            MeterError: it is gone or forbidden.
        """
        try:
            status = os.stat(self.path)  # noqa: PTH116 - a third of the time of Path.stat
            if (status.st_dev, status.st_ino) != self._identity:
                self._open()
            return os.pread(self.descriptor, 64, 0)
        except OSError as error:
            raise explain(self.path, error, self.remedies) from error

    def read_number(self) -> int:
        """The non-negative integer in the file at present.

        Raises:
            MeterError: as :meth:`read`; or the file holds something else.
        """
        return parse_number(self.path, self.read(), self.remedies)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def parse_number(path: str, text: bytes, remedies: Remedies) -> int:
    """The non-negative integer in the text of a file.

    Raises:
        MeterError: it is something else.
    """
    digits = text.removesuffix(b"\n")
    if not digits.isdigit():
        held = "is empty" if not text else f"holds {text[:40]!r}, not a number"
        raise MeterError(f"{path} {held}", remedies.other.replace("{path}", path))
    return int(digits)


def read_bytes(path: Path, remedies: Remedies) -> bytes:
    """A file's content, read once.

    Raises:
        MeterError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise explain(str(path), error, remedies) from error


def read_once(path: Path, remedies: Remedies) -> int:
    """The non-negative integer that a file holds, read once.

    Raises:
        MeterError: it cannot be read, or holds something else.
    """
    return parse_number(str(path), read_bytes(path, remedies), remedies)


def read_text(path: Path, remedies: Remedies) -> str:
    """A file's text without the white space around it, read once.

    Raises:
        MeterError: it cannot be read.
    """
    return read_bytes(path, remedies).decode("utf-8", errors="replace").strip()


def explain(path: str, error: OSError, remedies: Remedies) -> MeterError:
    """The error of opening or reading a file as MeterError, with its remedy."""
    if isinstance(error, PermissionError):
        problem, remedy = f"{path} is not readable by this user", remedies.denied
    elif error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
        problem, remedy = f"{path} is not there", remedies.gone
    else:
        problem, remedy = f"{path}: {error.strerror}", remedies.other
    return MeterError(problem, remedy.replace("{path}", path))
