"""Small files of sysfs that a meter keeps open, and the errors of reading them.

A meter that samples keeps its files open and reads each from its start, so that a reading costs
one look at the path and one read.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from sites.meters.shared.meter import MeterUnreadable


@dataclass(frozen=True)
class Remedies:
    """What would mend a file that can't be read, by what happened; ``{path}`` is its path."""

    denied: str
    gone: str
    other: str


class KeptFile:
    """A small file of sysfs that is kept open, and opened again where another took its path.

    Raises:
        MeterUnreadable: it can't be opened.
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
        # An inode's number is not given again while it is open, so this tells files apart.
        self._identity = (status.st_dev, status.st_ino)

    def read(self) -> bytes:
        """The file's first 64 bytes, now.

        Raises:
            MeterUnreadable: it is gone or forbidden.
        """
        try:
            status = os.stat(self.path)  # noqa: PTH116 - a third of the time of Path.stat
            if (status.st_dev, status.st_ino) != self._identity:
                self._open()
            return os.pread(self.descriptor, 64, 0)
        except OSError as error:
            raise explain(self.path, error, self.remedies) from error

    def read_number(self) -> int:
        """The whole number, not below zero, that the file holds now.

        Raises:
            MeterUnreadable: as :meth:`read`; or it does not hold one such number.
        """
        return parse_number(self.path, self.read(), self.remedies)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def parse_number(path: str, text: bytes, remedies: Remedies) -> int:
    """The whole number, not below zero, in the text of a file.

    Raises:
        MeterUnreadable: it is something else.
    """
    digits = text.removesuffix(b"\n")
    if not digits.isdigit():
        held = "is empty" if not text else f"holds {text[:40]!r}, not a number"
        raise MeterUnreadable(f"{path} {held}", remedies.other.replace("{path}", path))
    return int(digits)


def explain(path: str, error: OSError, remedies: Remedies) -> MeterUnreadable:
    """The error of opening or reading a file, as a meter's, with the remedy that fits."""
    if isinstance(error, PermissionError):
        what, remedy = f"{path} is not readable by this user", remedies.denied
    elif error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
        what, remedy = f"{path} is not there", remedies.gone
    else:
        what, remedy = f"{path}: {error.strerror}", remedies.other
    return MeterUnreadable(what, remedy.replace("{path}", path))
