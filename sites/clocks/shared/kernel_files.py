"""Read and write small files of sysfs and debugfs, with errors that say how to fix them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path

from sites.clocks.shared.control import ClocksError, Right

SETTLE_S = 1.0
"""How long the hardware may take: drivers answer within a few ms (a PLL relock, a mailbox)."""
FIRST_WAIT_S = 0.001
LONGEST_WAIT_S = 0.02
GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR)
CPUS = "sys/devices/system/cpu"
CHECK_DRIVER = "check the driver's messages in `dmesg`"
FORBIDDEN = (errno.EACCES, errno.EPERM)


def read_text(root: Path, path: str, absent: str) -> str:
    """The text of a file.

    Raises:
        ClocksError: it cannot be read.
    """
    try:
        return (root / path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise unavailable(root / path, error, absent, "r") from None


def read_number(root: Path, path: str, absent: str) -> int:
    """The whole number that a file holds.

    Raises:
        ClocksError: it cannot be read, or holds something else.
    """
    return whole_number(read_text(root, path, absent), root / path)


def whole_number(text: str, path: Path) -> int:
    """``text`` as a whole number.

    Raises:
        ClocksError: it is something else.
    """
    if not re.fullmatch(r"[0-9]{1,18}\s*", text):
        raise ClocksError(*not_a_value(path, text))
    return int(text)


def optional_number(root: Path, path: str) -> int | None:
    """The whole number that a file holds; None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return int((root / path).read_text())
    return None


def optional_text(root: Path, path: str) -> str:
    """The text of a file without spaces around it; empty if there is none."""
    try:
        return (root / path).read_text("utf-8", "replace").strip()
    except OSError:
        return ""


@cache
def is_amd(root: Path) -> bool:
    """Whether the processor is AMD's, or Hygon's, which is like it."""
    return re.search("AuthenticAMD|HygonGenuine", optional_text(root, "proc/cpuinfo")) is not None


def cpu_list(text: str) -> set[int]:
    """The numbers in a list of CPUs such as ``0-7,16``.

    Raises:
        ValueError: it is something else, or a range ends before it begins.
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        if match is None:
            raise ValueError(f"{part!r} is neither a CPU nor a range of CPUs")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part!r} ends before it begins")
        numbers.update(range(first, last + 1))
    return numbers


def offline_cpus(root: Path, cpus: set[int]) -> set[int]:
    """The offline ones of ``cpus``. Their files exist, and cannot be read (EBUSY).

    Format: the kernel's Documentation/admin-guide/cputopology.rst.
    """
    try:
        return cpus - cpu_list((root / CPUS / "online").read_text())
    except (OSError, ValueError):
        return {cpu for cpu in cpus if optional_number(root, f"{CPUS}/cpu{cpu}/online") == 0}


def write_text(path: Path, text: str) -> None:
    """Write a value with a single write(2); a missing file is not created.

    Raises:
        OSError: with the file's name.
    """
    file = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(file)


def is_taken(text: str, requested: str, within: int = 0) -> bool:
    """Whether a file holds what was written, or a whole number that is at most ``within`` off."""
    if text.strip() == requested.strip():
        return True
    is_number = within > 0 and re.fullmatch(r"[0-9]{1,18}\s*", text) is not None
    return is_number and abs(int(text) - int(requested)) <= within


def settled(
    read_file: Callable[[], str], requested: str, bound_s: float = SETTLE_S, within: int = 0
) -> str:
    """The text from ``read_file`` once it is ``requested`` (see :func:`is_taken`), or after
    ``bound_s``."""
    deadline_s = time.monotonic() + bound_s
    wait_s = FIRST_WAIT_S
    while True:
        text = read_file()
        if is_taken(text, requested, within) or time.monotonic() >= deadline_s:
            return text
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def right_to_write(control: str, root: Path, pattern: str, skipped: Collection[Path] = ()) -> Right:
    """Whether this user may write every file below ``root`` that matches a glob pattern."""
    files = sorted(set(root.glob(pattern)) - set(skipped))
    if not files:
        return Right(control, False, f"{root / pattern} does not exist")
    return right_to_write_files(control, files)


def right_to_write_files(control: str, files: Sequence[Path]) -> Right:
    """Whether this user may write all of these files."""
    closed = next((file for file in files if not os.access(file, os.W_OK)), None)
    if closed is not None:
        folder = closed.parent
        remedy = f"run as root, or as root: chgrp GROUP {folder}/* && chmod g+w {folder}/*"
        return Right(control, False, f"{closed} is not writable by this user", remedy)
    user = "as root" if os.geteuid() == 0 else f"as user {os.getuid()}"
    return Right(control, True, f"{len(files)} files are writable ({user})")


def not_a_value(path: Path, text: str) -> tuple[str, str]:
    """The error, as (what, remedy), for a file whose text is not a clock value."""
    return (
        f"{path} holds {text[:40]!r}, which is not a clock value",
        CHECK_DRIVER,
    )


def unavailable(
    path: Path, error: OSError | UnicodeDecodeError, absent: str, access: str
) -> ClocksError:
    """The error of reading (``access`` "r") or writing ("w") a file, with its remedy."""
    if isinstance(error, UnicodeDecodeError):
        return ClocksError(f"{path} does not hold text", CHECK_DRIVER)
    if error.errno in GONE:
        return ClocksError(f"{path} does not exist ({error.strerror})", absent)
    verb = {"r": "read", "w": "written"}[access]
    remedy = CHECK_DRIVER
    if error.errno in FORBIDDEN:
        remedy = (
            f"run as root with sudo, or give a group access, as root, with `chgrp GROUP {path} && "
            f"chmod g+{access} {path}`, and for every boot with a udev rule or in /etc/tmpfiles.d"
        )
    elif error.errno == errno.EROFS:
        remedy = "mount it writable: `mount -o remount,rw /sys`; in containers it is read-only"
    return ClocksError(f"{path} cannot be {verb}: {error.strerror}", remedy)
