"""Small files of the kernel that a clock control writes, and puts back as they were found.

A file of sysfs or debugfs takes a value with one write(2), and a read shows which value it took.
The values found are recorded before the first write (:mod:`sites.clocks.shared.journal`) and put
back byte for byte, in the opposite order of the writes.

A lower and an upper limit are written as a pair: at no time may the lower be above the upper,
which kernels refuse or mend in their own way (cpufreq and devfreq alike). So the upper is written
first, unless it would fall below the present lower limit.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sites.clocks.shared.control import ClockNotLegal, ClocksUnavailable, Right
from sites.clocks.shared.journal import Entry, Journal, PutBack, at_last, signals_wait

SETTLE_S = 1.0
"""How long the hardware may take: drivers answer within some ms (a relock of a PLL, a mailbox)."""
FIRST_WAIT_S = 0.001
LONGEST_WAIT_S = 0.02
VALUE = re.compile(r"[A-Za-z0-9_<>.-]{1,64}\n?")
"""What such a file holds: a number or a name. No journal may write anything else."""
UNSUPPORTED = "<unsupported>"
"""What scaling_setspeed holds under governors that have none. The kernel refuses it, and puts it
back with the governor."""
GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR)
FORBIDDEN = (errno.EACCES, errno.EPERM)
REFUSED = (errno.EINVAL, errno.ERANGE, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class File:
    """A file below the root, and the text that it held or shall hold.

    ``follows``: the hardware changes it by itself, so that it is not read back when put back.
    """

    path: str
    text: str
    follows: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)


@dataclass(frozen=True)
class Limits:
    """The files of a lower and an upper limit, whole numbers, and what they held or shall hold."""

    low: str
    high: str
    low_text: str
    high_text: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.low, self.high)


Value = File | Limits


class WrittenFiles:
    """The files that one control writes.

    Args:
        root: ``/``, or a recorded tree.
        journal: the control's.
        absent: what would bring a missing file, for messages.
        instead: path -> the file whose text is put back where that one's cannot be read.
    """

    def __init__(
        self,
        root: Path,
        journal: Journal,
        absent: str,
        instead: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.journal = journal
        self.absent = absent
        self.instead = dict(instead or {})
        self.found: dict[tuple[str, ...], Value] = {}
        at_last(self, _give_up, journal, root, self.found)

    def write(self, wanted: Sequence[Value]) -> None:
        """Write these values, in order, and put back what was written before and is not wanted.

        Raises:
            ClockNotLegal: a value was refused, or another was taken.
            ClocksUnavailable: a file is missing or forbidden, or another process has them set.
        """
        if wanted:
            self._keep_found(wanted)
        for each in wanted:
            _write(self.root, each, self.absent)
        for each in wanted:
            self._read_back(each)
        kept = {each.paths for each in wanted}
        rest = [each for key, each in self.found.items() if key not in kept]
        _raise_failed(put_back_values(self.root, rest))

    def restore(self) -> None:
        """Put all back; every file is tried.

        Raises:
            ClocksUnavailable: what could not be put back; the journal keeps it, and a further
                call tries again.
        """
        if not self.journal.held:
            return
        with signals_wait():
            back = put_back_values(self.root, list(self.found.values()))
            if not back.gone and not back.failed:
                self.found.clear()
                self.journal.forget()
        _raise_failed(back)

    def as_found(self, path: str) -> str:
        """The text of a file before the first write, whether or not it came yet.

        Raises:
            ClocksUnavailable: it cannot be read.
        """
        for each in self.found.values():
            if path in each.paths:
                return dict(_texts(each))[path]
        return read_text(self.root, path, self.absent)

    def _keep_found(self, wanted: Sequence[Value]) -> None:
        """Hold the journal and have it keep what these files hold now."""
        with signals_wait():
            for line in self.journal.hold():
                logging.getLogger(__name__).warning("%s", line)
            new = [each for each in wanted if each.paths not in self.found]
            if not new:
                return
            try:
                for each in new:
                    self.found[each.paths] = self._read_found(each)
                self.journal.write([_entry(each) for each in self.found.values()])
            except BaseException:
                for each in new:
                    self.found.pop(each.paths, None)
                if not self.found:
                    self.journal.forget()
                raise

    def _read_found(self, wanted: Value) -> Value:
        texts = [self._read_restorable(path) for path in wanted.paths]
        if isinstance(wanted, File):
            return File(wanted.path, texts[0], wanted.follows)
        for path, text in zip(wanted.paths, texts, strict=True):
            whole_number(text, self.root / path)
        return Limits(*wanted.paths, *texts)

    def _read_restorable(self, path: str) -> str:
        try:
            text = read_text(self.root, path, self.absent)
            if not VALUE.fullmatch(text):
                raise ClocksUnavailable(*_not_a_value(self.root / path, text))
        except ClocksUnavailable:
            if path not in self.instead:
                raise
            text = read_text(self.root, self.instead[path], self.absent)
        return text

    def _read_back(self, wanted: Value) -> None:
        for path, text in _texts(wanted):
            taken = settled(partial(read_text, self.root, path, self.absent), text)
            if taken.strip() != text.strip():
                raise ClockNotLegal(
                    f"{self.root / path}: {text.strip()} was asked for, and the hardware took "
                    f"{taken.strip() or 'nothing'}"
                )


def right_to_write(control: str, root: Path, pattern: str) -> Right:
    """Whether this user may write every file below ``root`` that matches a glob pattern."""
    files = sorted(root.glob(pattern))
    if not files:
        return Right(control, False, f"{root / pattern} does not exist")
    closed = next((file for file in files if not os.access(file, os.W_OK)), None)
    if closed is not None:
        folder = closed.parent
        remedy = f"run as root, or as root: chgrp GROUP {folder}/* && chmod g+w {folder}/*"
        return Right(control, False, f"{closed} is not writable by this user", remedy)
    user = "as root" if os.geteuid() == 0 else f"as user {os.getuid()}"
    return Right(control, True, f"{len(files)} files are writable ({user})")


def settled(read: Callable[[], str], wanted: str, bound_s: float = SETTLE_S) -> str:
    """What ``read`` returns when it is ``wanted``, or last after ``bound_s``."""
    deadline_s = time.monotonic() + bound_s
    wait_s = FIRST_WAIT_S
    while True:
        text = read()
        if text.strip() == wanted.strip() or time.monotonic() >= deadline_s:
            return text
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def read_text(root: Path, path: str, absent: str) -> str:
    """The text of a file.

    Raises:
        ClocksUnavailable: it cannot be read.
    """
    try:
        return (root / path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise _unavailable(root / path, error, absent, "r") from None


def read_number(root: Path, path: str, absent: str) -> int:
    """The whole number that a file holds.

    Raises:
        ClocksUnavailable: it cannot be read, or holds none.
    """
    return whole_number(read_text(root, path, absent), root / path)


def whole_number(text: str, path: Path) -> int:
    """``text`` as a whole number.

    Raises:
        ClocksUnavailable: it is none.
    """
    if not re.fullmatch(r"[0-9]{1,18}\s*", text):
        raise ClocksUnavailable(*_not_a_value(path, text))
    return int(text)


def optional_number(root: Path, path: str) -> int | None:
    """The whole number that a file holds, where the hardware tells it; else None."""
    with contextlib.suppress(OSError, ValueError):
        return int((root / path).read_text())
    return None


def put_back_values(root: Path, found: Sequence[Value]) -> PutBack:
    """Put back what was found, the last written first; each that cannot be is named."""
    done: list[str] = []
    gone: list[str] = []
    failed: list[str] = []
    deadline_s = time.monotonic() + SETTLE_S  # for all of them: a node may have hundreds
    for each in reversed(found):
        try:
            changed = _put_back_one(root, each, deadline_s)
        except OSError as error:
            where = root / each.paths[0] if error.filename is None else Path(error.filename)
            line = f"{where} ({error.strerror}), which held {_in_words(each)}"
            (gone if error.errno in GONE else failed).append(line)
        else:
            if changed:
                done.append(f"{', '.join(str(root / p) for p in each.paths)}: {_in_words(each)}")
    return PutBack(tuple(done), tuple(gone), tuple(failed))


def put_back_entries(root: Path, found: Iterable[Entry], writes: Sequence[str]) -> PutBack:
    """Put back what a journal tells, after a check of all of it.

    Args:
        root: ``/``, or a recorded tree.
        found: the journal's entries.
        writes: patterns, of whole paths below the root, of all that the control can write.

    Raises:
        ValueError, KeyError, TypeError: an entry that the control cannot have written; nothing was
            put back.
    """
    values = []
    for each in found:
        value = _value(each)
        for path, text in _texts(value):
            _check(root, path, text, writes)
        values.append(value)
    return put_back_values(root, values)


def _check(root: Path, path: str, text: str, writes: Sequence[str]) -> None:
    if ".." in path.split("/") or not any(re.fullmatch(each, path) for each in writes):
        raise ValueError(f"it writes no {path!r}")
    if not VALUE.fullmatch(text):
        raise ValueError(f"no value for {path}: {text!r}")
    if not (root / path).resolve().is_relative_to(root.resolve() / "sys"):
        raise ValueError(f"{path!r} leads out of sys")


def _put_back_one(root: Path, found: Value, deadline_s: float) -> bool:
    """Put a value back and read it back; False where it was so already.

    Raises:
        OSError: it could not be, with the file's name.
    """
    if all(_reads(root / path) == text for path, text in _texts(found)):
        return False
    if isinstance(found, File):
        if found.text.strip() == UNSUPPORTED:
            return False
        write_text(root / found.path, found.text)
        if found.follows:
            return True
    else:
        _write_limits(root, found)
    for path, text in _texts(found):
        left_s = deadline_s - time.monotonic()
        taken = settled(partial(_reads_or_nothing, root / path), text, left_s)
        if taken != text:
            raise OSError(errno.EINVAL, f"it holds {taken.strip()!r} now", str(root / path))
    return True


def _reads(path: Path) -> str | None:
    """A file's text; None where it cannot be read. That it is gone is an error."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None
    except OSError as error:
        if error.errno in GONE:
            raise
        return None


def _reads_or_nothing(path: Path) -> str:
    return _reads(path) or ""


def _write(root: Path, value: Value, absent: str) -> None:
    try:
        if isinstance(value, File):
            write_text(root / value.path, value.text)
        else:
            _write_limits(root, value)
    except OSError as error:
        path = Path(error.filename or root / value.paths[0])
        if error.errno in REFUSED:
            raise ClockNotLegal(f"{path}: the kernel refused {_in_words(value)}") from None
        raise _unavailable(path, error, absent, "w") from None


def _write_limits(root: Path, limits: Limits) -> None:
    low, high = root / limits.low, root / limits.high
    try:
        present_low = int(low.read_text())
    except (OSError, ValueError):
        # Nothing tells which order is legal. The upper limit is written last in any case, and
        # before as well, in case that the lower one would be above it.
        with contextlib.suppress(OSError):
            write_text(high, limits.high_text)
        present_low = int(limits.high_text) + 1
    if int(limits.high_text) >= present_low:
        write_text(high, limits.high_text)
        write_text(low, limits.low_text)
    else:
        write_text(low, limits.low_text)
        write_text(high, limits.high_text)


def write_text(path: Path, text: str) -> None:
    """Write a value with a single write(2); it makes no file where there is none.

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


def _texts(value: Value) -> tuple[tuple[str, str], ...]:
    if isinstance(value, File):
        return ((value.path, value.text),)
    return ((value.low, value.low_text), (value.high, value.high_text))


def _in_words(value: Value) -> str:
    return " to ".join(text.strip() for _, text in _texts(value))


def _entry(value: Value) -> dict[str, Any]:
    if isinstance(value, File):
        return {"file": value.path, "found": value.text, "follows": value.follows}
    return {"limits": list(value.paths), "found": [value.low_text, value.high_text]}


def _value(entry: Entry) -> Value:
    if "file" in entry:
        path, text, follows = entry["file"], entry["found"], entry["follows"]
        if not isinstance(path, str) or not isinstance(text, str) or not isinstance(follows, bool):
            raise TypeError("a file that is no text")
        return File(path, text, follows)
    (low, high), (low_text, high_text) = entry["limits"], entry["found"]
    if not all(isinstance(each, str) for each in (low, high, low_text, high_text)):
        raise TypeError("a limit that is no text")
    int(low_text), int(high_text)
    return Limits(low, high, low_text, high_text)


def _raise_failed(back: PutBack) -> None:
    if back.gone or back.failed:
        raise ClocksUnavailable(
            "not put back: " + "; ".join((*back.failed, *back.gone)),
            "set it by hand; the next start tries again",
        )


def _give_up(journal: Journal, root: Path, found: dict[tuple[str, ...], Value]) -> None:
    if not journal.held:
        return
    with signals_wait():
        back = put_back_values(root, list(found.values()))
        if back.gone or back.failed:
            journal.let_go()
        else:
            journal.forget()


def _not_a_value(path: Path, text: str) -> tuple[str, str]:
    return (
        f"{path} holds {text[:40]!r}, which is no value of a clock",
        "see what the driver says in `dmesg`",
    )


def _unavailable(
    path: Path, error: OSError | UnicodeDecodeError, absent: str, access: str
) -> ClocksUnavailable:
    if isinstance(error, UnicodeDecodeError):
        return ClocksUnavailable(f"{path} holds no text", "see what the driver says in `dmesg`")
    if error.errno in GONE:
        return ClocksUnavailable(f"{path} is not there ({error.strerror})", absent)
    verb = {"r": "read", "w": "written"}[access]
    remedy = "see what the driver says in `dmesg`"
    if error.errno in FORBIDDEN:
        remedy = (
            f"run as root with sudo, or give a group access, as root, with `chgrp GROUP {path} && "
            f"chmod g+{access} {path}`, and for every boot with a udev rule or in /etc/tmpfiles.d"
        )
    elif error.errno == errno.EROFS:
        remedy = "mount it writable: `mount -o remount,rw /sys`; containers have it read only"
    return ClocksUnavailable(f"{path} cannot be {verb}: {error.strerror}", remedy)
