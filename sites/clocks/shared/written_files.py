"""Small files of the kernel that a clock control writes and later restores.

A file of sysfs or debugfs takes a value with one write(2), and a read shows which value it took.
The values found are recorded before the first write (:mod:`sites.clocks.shared.journal`) and
restored byte for byte, in the opposite order of the writes.

A lower and an upper limit are written as a pair, because the lower limit must never be above the
upper one: cpufreq and devfreq refuse or change such values. So the upper limit is written first,
unless it would fall below the present lower limit.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sites.clocks.shared.control import ClocksError, IllegalClockError
from sites.clocks.shared.journal import Entry, Journal, PutBack, at_last, signals_wait
from sites.clocks.shared.kernel_files import (
    GONE,
    SETTLE_S,
    is_taken,
    not_a_value,
    read_text,
    settled,
    unavailable,
    whole_number,
    write_text,
)

VALUE = re.compile(r"[A-Za-z0-9_<>.-]{1,64}\n?")
"""The content of such a file: a number or a name. A journal cannot write other text."""
UNSUPPORTED = "<unsupported>"
"""The content of scaling_setspeed under governors without one. The kernel refuses to write it, and
restores it with the governor."""
REFUSED = (errno.EINVAL, errno.ERANGE, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class File:
    """A file below the root, and its text: to be written, or found before.

    ``follows``: the hardware changes it, so a restored value is not read back.
    ``within``: the largest difference between a written number and the hardware's rounded one.
    """

    path: str
    text: str
    follows: bool = False
    within: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)


@dataclass(frozen=True)
class Limits:
    """The files of a lower and an upper limit (whole numbers), and their texts: to be written, or
    found before."""

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
        journal: of the control.
        absent: the remedy in messages about a missing file.
        instead: path -> the file whose text is restored if that of ``path`` cannot be read.
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

    def write(self, values: Sequence[Value]) -> None:
        """Write these values in order, and restore files written before that ``values`` lack.

        Raises:
            IllegalClockError: a value was refused, or the hardware took another one.
            ClocksError: a file is missing or forbidden, or another process has set them.
        """
        if values:
            self._keep_found(values)
        for value in values:
            _write(self.root, value, self.absent)
        for value in values:
            self._read_back(value)
        written = {value.paths for value in values}
        left_out = [value for paths, value in self.found.items() if paths not in written]
        _raise_failed(put_back_values(self.root, left_out))

    def restore(self) -> None:
        """Restore all files; a failure does not stop the others.

        Raises:
            ClocksError: some could not be restored; the journal keeps them, and a further
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
        """The text of a file before the first write, or now if it was not written yet.

        Raises:
            ClocksError: it cannot be read.
        """
        for value in self.found.values():
            if path in value.paths:
                return dict(_texts(value))[path]
        return read_text(self.root, path, self.absent)

    def _keep_found(self, values: Sequence[Value]) -> None:
        """Hold the journal and record in it the present values of these files."""
        with signals_wait():
            self.journal.hold()
            new = [value for value in values if value.paths not in self.found]
            if not new:
                return
            try:
                for value in new:
                    self.found[value.paths] = self._read_found(value)
                self.journal.write([_entry(value) for value in self.found.values()])
            except BaseException:
                for value in new:
                    self.found.pop(value.paths, None)
                if not self.found:
                    self.journal.forget()
                raise

    def _read_found(self, requested: Value) -> Value:
        texts = [self._read_restorable(path) for path in requested.paths]
        if isinstance(requested, File):
            if requested.within:
                whole_number(texts[0], self.root / requested.path)
            return File(requested.path, texts[0], requested.follows)
        for path, text in zip(requested.paths, texts, strict=True):
            whole_number(text, self.root / path)
        return Limits(*requested.paths, *texts)

    def _read_restorable(self, path: str) -> str:
        try:
            text = read_text(self.root, path, self.absent)
            if not VALUE.fullmatch(text):
                raise ClocksError(*not_a_value(self.root / path, text))
        except ClocksError:
            if path not in self.instead:
                raise
            text = read_text(self.root, self.instead[path], self.absent)
        return text

    def _read_back(self, requested: Value) -> None:
        within = requested.within if isinstance(requested, File) else 0
        for path, text in _texts(requested):
            shown = settled(partial(read_text, self.root, path, self.absent), text, within=within)
            if not is_taken(shown, text, within):
                raise IllegalClockError(
                    f"{self.root / path}: {text.strip()} was requested, and the hardware took "
                    f"{shown.strip() or 'nothing'}"
                )


def put_back_values(root: Path, values: Sequence[Value]) -> PutBack:
    """Restore values, the last written first."""
    done: list[str] = []
    gone: list[str] = []
    failed: list[str] = []
    deadline_s = time.monotonic() + SETTLE_S  # for all of them: a node may have hundreds
    for value in reversed(values):
        try:
            changed = _put_back_one(root, value, deadline_s)
        except OSError as error:
            where = root / value.paths[0] if error.filename is None else Path(error.filename)
            line = f"{where} ({error.strerror}), which held {_in_words(value)}"
            (gone if error.errno in GONE else failed).append(line)
        else:
            if changed:
                done.append(f"{', '.join(str(root / p) for p in value.paths)}: {_in_words(value)}")
    return PutBack(tuple(done), tuple(gone), tuple(failed))


def put_back_entries(root: Path, entries: Iterable[Entry], writes: Sequence[str]) -> PutBack:
    """Check all values of a journal, then restore them.

    Args:
        root: ``/``, or a recorded tree.
        entries: of the journal.
        writes: patterns of the paths, below the root, of all files that the control can write.

    Raises:
        ValueError, KeyError, TypeError: an entry that the control cannot have written; nothing was
            restored.
    """
    values = []
    for entry in entries:
        value = _value(entry)
        for path, text in _texts(value):
            _check(root, path, text, writes)
        values.append(value)
    return put_back_values(root, values)


def _check(root: Path, path: str, text: str, writes: Sequence[str]) -> None:
    if ".." in path.split("/") or not any(re.fullmatch(pattern, path) for pattern in writes):
        raise ValueError(f"it does not write {path!r}")
    if not VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is not a value for {path}")
    if not (root / path).resolve().is_relative_to(root.resolve() / "sys"):
        raise ValueError(f"{path!r} leads out of sys")


def _put_back_one(root: Path, value: Value, deadline_s: float) -> bool:
    """Restore a value and read it back; False if the file already held it.

    Raises:
        OSError: it failed, with the file's name.
    """
    if all(_reads(root / path) == text for path, text in _texts(value)):
        return False
    if isinstance(value, File):
        if value.text.strip() == UNSUPPORTED:
            return False
        write_text(root / value.path, value.text)
        if value.follows:
            return True
    else:
        _write_limits(root, value)
    for path, text in _texts(value):
        left_s = deadline_s - time.monotonic()
        shown = settled(partial(_reads_or_nothing, root / path), text, left_s)
        if shown != text:
            raise OSError(errno.EINVAL, f"it holds {shown.strip()!r} now", str(root / path))
    return True


def _reads(path: Path) -> str | None:
    """A file's text; None if it cannot be read. It is an error if the file is gone."""
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
            raise IllegalClockError(f"{path}: the kernel refused {_in_words(value)}") from None
        raise unavailable(path, error, absent, "w") from None


def _write_limits(root: Path, limits: Limits) -> None:
    low, high = root / limits.low, root / limits.high
    try:
        present_low = int(low.read_text())
    except (OSError, ValueError):
        # The legal order is unknown. The upper limit is written last in any case, and also first,
        # in case the lower limit would be above it.
        with contextlib.suppress(OSError):
            write_text(high, limits.high_text)
        present_low = int(limits.high_text) + 1
    if int(limits.high_text) >= present_low:
        write_text(high, limits.high_text)
        write_text(low, limits.low_text)
    else:
        write_text(low, limits.low_text)
        write_text(high, limits.high_text)


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
            raise TypeError("a file that is not text")
        return File(path, text, follows)
    (low, high), (low_text, high_text) = entry["limits"], entry["found"]
    if not all(isinstance(text, str) for text in (low, high, low_text, high_text)):
        raise TypeError("a limit that is not text")
    int(low_text), int(high_text)
    return Limits(low, high, low_text, high_text)


def _raise_failed(back: PutBack) -> None:
    if back.gone or back.failed:
        raise ClocksError(
            "not restored: " + "; ".join((*back.failed, *back.gone)),
            "set them by hand; the next start also tries again",
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
