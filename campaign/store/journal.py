"""A journal: the records of one worker, in the order in which they were written.

A record is a fixed head (magic, lengths, CRC32C of both parts), the measurement's scalars as JSON,
and its traces as compressed arrays; or a set-up as JSON, which later records refer to. A record is
acknowledged after fdatasync. Each writer creates a separate file with O_EXCL, so that no two
writers append to one file. Checksums detect a record that is cut off or damaged; the other records
stay valid.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import math
import os
import re
import socket
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import google_crc32c
import numpy as np

from campaign.plan.point import ID_CHARS, Point
from campaign.store.layout import JOURNAL_SUFFIX, sync
from campaign.store.measurement import Measurement, Trace
from campaign.store.setups import setup_id
from dvfs.dataset import STATUSES
from dvfs.files import open_regular
from dvfs.printable import printable

if TYPE_CHECKING:
    from numcodecs.blosc import Blosc

MAGIC = b"DVFS"
LENGTHS = struct.Struct("<4sIQII")
"""magic, bytes of the scalars, bytes of the traces, CRC32C of the scalars, of the traces."""
HEAD = struct.Struct("<4sIQIII")
"""LENGTHS and their CRC32C: a damaged length must not reach into the next record."""
MAX_SCALARS_BYTES = 1 << 24
MAX_UNIX_S = 1e12
TEXTS = ("status", "text", "node", "voltage_origin", "clock_proof", "setup")
NUMBERS = (
    "start_unix_s",
    "time_s",
    "energy_j",
    "energy_std_j",
    "core_mhz_achieved",
    "mem_mhz_achieved",
    "core_mhz_timed",
    "core_v",
    "mem_v",
)
NOT_IN_EARLIER: dict[str, Any] = {"clock_proof": "", "core_mhz_timed": math.nan, "setup": ""}
"""The scalars that records of earlier versions lack, with their missing values."""
UNPACKED = struct.Struct("<4xI")
"""A Blosc buffer's header: four bytes of versions and sizes, then the size of the unpacked data."""
POINT_ID = re.compile(rb'"id":"([0-9a-f]{%d})"' % ID_CHARS)


SETUP = "setup_record"
"""The only key in the JSON of a set-up's record."""


CUT_OFF = "cut off"
"""The start of the text of a :class:`TornRecordError` for a record without its end."""


class TornRecordError(Exception):
    """Bytes of a journal are not a whole record."""


@dataclass(frozen=True)
class JournalEntry:
    """The place of a record, and its scalars. :func:`read` reads its traces."""

    path: Path
    offset: int
    end: int
    scalars: dict[str, Any]

    @property
    def point_id(self) -> str:
        """The id of the point that was measured."""
        return str(self.scalars["point"]["id"])


@functools.cache
def packing() -> Blosc:
    """The codec of traces. It shuffles bytes: compared with a shuffle of bits, steps of time
    compress four times as fast, to the same size; values twice as fast, to a sixth more. Speed
    matters more, as a journal lasts only until it is compacted."""
    from numcodecs import blosc  # noqa: PLC0415  (most readers of journals need no trace)

    blosc.use_threads = False  # a forked child would start Blosc's threads for every record
    return blosc.Blosc(cname="lz4", clevel=1, shuffle=blosc.SHUFFLE)


def encode(measurement: Measurement) -> bytes:
    """A measurement as the bytes of one record."""
    scalars = {
        name: getattr(measurement, name)
        for name in measurement.__dataclass_fields__
        if name not in ("point", "traces")
    }
    scalars["point"] = measurement.point.as_dict()
    parts: list[bytes] = []
    descriptions = []
    for trace in measurement.traces:
        if not trace.time_ns.size:
            continue  # without a reading there is no trace
        steps_ns = trace.time_ns.astype("<i8")
        steps_ns[1:] -= trace.time_ns[:-1]
        time_ns = packing().encode(steps_ns)
        value = packing().encode(np.ascontiguousarray(trace.value))
        parts += [time_ns, value]
        descriptions.append(
            {
                "channel": trace.channel,
                "domain": trace.domain,
                "unit": trace.unit,
                "samples": int(trace.time_ns.size),
                "dtype": trace.value.dtype.str,
                "time_bytes": len(time_ns),
                "value_bytes": len(value),
            }
        )
    scalars["traces"] = descriptions
    return _record(scalars, parts)


def encode_setup(record: Mapping[str, Any]) -> bytes:
    """A set-up's record (:mod:`campaign.store.setups`) as the bytes of one record of a journal. It
    must be on disk before a measurement that refers to it."""
    return _record({SETUP: record}, [])


def _record(scalars: Mapping[str, Any], traces: Sequence[bytes]) -> bytes:
    text = json.dumps(scalars, separators=(",", ":")).encode()
    crc = functools.reduce(google_crc32c.extend, traces, 0)
    head = LENGTHS.pack(MAGIC, len(text), sum(map(len, traces)), google_crc32c.value(text), crc)
    return b"".join([head, struct.pack("<I", google_crc32c.value(head)), text, *traces])


def decode(record: bytes) -> Measurement:
    """The measurement in the bytes of :func:`encode`.

    Raises:
        TornRecordError: the bytes are cut off, damaged, or not a record.
    """
    scalars, payload = _parts(record)
    try:
        return Measurement(
            point=Point.from_dict(scalars["point"]),
            traces=tuple(_traces(scalars["traces"], payload)),
            **{name: value for name, value in scalars.items() if name not in ("point", "traces")},
        )
    except Exception as error:  # from another program: Blosc may raise anything
        raise TornRecordError(
            f"the record's values cannot be read ({printable(str(error))})"
        ) from None


def scalars_of(record: bytes) -> dict[str, Any]:
    """The scalars of a record. Checks its traces, but does not unpack them.

    Raises:
        TornRecordError: the bytes are cut off, damaged, or not a record.
    """
    return _parts(record)[0]


def _parts(record: bytes) -> tuple[dict[str, Any], bytes]:
    scalars, text_end, end = _scalars(record, len(record))
    payload = record[text_end:end]
    if google_crc32c.value(payload) != HEAD.unpack_from(record)[4]:
        raise TornRecordError("the traces' checksum does not match")
    return scalars, payload


def _scalars(record: bytes, size: int) -> tuple[dict[str, Any], int, int]:
    """The scalars at the start of ``record``, the end of their text, and the end of the record."""
    if len(record) < HEAD.size:
        raise TornRecordError(f"{CUT_OFF} in its head")
    magic, text_bytes, payload_bytes, text_crc, _, head_crc = HEAD.unpack_from(record)
    if magic != MAGIC or google_crc32c.value(record[: LENGTHS.size]) != head_crc:
        raise TornRecordError("no record begins here")
    text_end = HEAD.size + text_bytes
    end = text_end + payload_bytes
    if end > size:
        raise TornRecordError(CUT_OFF)
    text = record[HEAD.size : text_end]
    if google_crc32c.value(text) != text_crc:
        raise TornRecordError("the scalars' checksum does not match")
    try:
        scalars = json.loads(text)
        if isinstance(scalars.get(SETUP), dict):
            return scalars, text_end, end
        scalars = {**NOT_IN_EARLIER, **scalars}
        _check(scalars)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise TornRecordError("the scalars are not those of a measurement") from None
    return scalars, text_end, end


def _check(scalars: Any) -> None:
    """Raise an error if these, which another program may have written, are not the scalars of a
    measurement."""
    point = Point.from_dict(scalars["point"])
    texts = (point.id, point.site, point.partition, point.label, point.params)
    valid = (
        all(isinstance(text, str) for text in (*texts, *(scalars[name] for name in TEXTS)))
        and all(isinstance(scalars[name], int | float) for name in NUMBERS)
        and all(isinstance(value, int | float | None) for value in point.setting.numbers)
        and isinstance(point.setting.profile, str | None)
        and all(
            isinstance(whole, int) and abs(whole) < 1 << 63
            for whole in (point.ranks, point.repeat, scalars["iterations"], scalars["attempt"])
        )
        and type(scalars["start_unix_s"]) in (int, float)
        and abs(scalars["start_unix_s"]) < MAX_UNIX_S
        and all(isinstance(scalars[name], dict) for name in ("meters", "provenance"))
        and isinstance(flags := scalars["provenance"].get("flags", []), list)
        and all(isinstance(flag, str) for flag in flags)
        and isinstance(scalars["counts"], dict | None)
        and all(isinstance(n, int | float) for n in (scalars["counts"] or {}).values())
        and scalars["status"] in STATUSES
        and isinstance(scalars["traces"], list)
    )
    if not valid or not re.fullmatch(f"[0-9a-f]{{{ID_CHARS}}}", point.id):
        raise ValueError


def _traces(descriptions: list[dict[str, Any]], payload: bytes) -> Iterator[Trace]:
    codec = packing()
    offset = 0
    for trace in descriptions:
        time_end = offset + trace["time_bytes"]
        value_end = time_end + trace["value_bytes"]
        dtype = np.dtype(trace["dtype"])
        parts = (payload[offset:time_end], payload[time_end:value_end])
        for part, item_bytes in zip(parts, (8, dtype.itemsize), strict=True):
            # Before unpacking: a few damaged bytes may claim to be gigabytes.
            if UNPACKED.unpack_from(part)[0] != trace["samples"] * item_bytes:
                raise ValueError("the number of samples does not match")
        time_ns = np.frombuffer(codec.decode(parts[0]), "<i8").cumsum()
        value = np.frombuffer(codec.decode(parts[1]), dtype)
        yield Trace(trace["channel"], trace["domain"], trace["unit"], time_ns, value)
        offset = value_end


class JournalWriter(contextlib.AbstractContextManager["JournalWriter"]):
    """Appends records to a new journal in ``folder``. A record is on disk when append returns."""

    def __init__(self, folder: Path) -> None:
        # On NFS a shared lock needs the right to read, an exclusive one the right to write.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        while True:
            name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}{JOURNAL_SUFFIX}"
            self.path = folder / name
            self._file = os.open(self.path, flags, 0o644)
            # Locked while this process lives: only a journal without this lock is removed.
            fcntl.flock(self._file, fcntl.LOCK_SH)
            if self.path.exists():
                break
            os.close(self._file)  # a compaction removed it before it was locked
        sync(folder)

    def append(self, *records: bytes) -> None:
        """Write records and wait until they are on disk."""
        view = memoryview(records[0] if len(records) == 1 else b"".join(records))
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file, and remove a journal without records."""
        empty = os.fstat(self._file).st_size == 0
        os.close(self._file)
        if empty:
            self.path.unlink(missing_ok=True)

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Scan:
    """The records of a journal, and its damaged parts.

    ``end``: the byte from which to scan again when the journal has grown. ``damage``: (byte,
    description). A record that is still being written looks like damage at the end. ``setups``: id
    -> the record of a set-up.
    """

    entries: list[JournalEntry]
    end: int
    damage: list[tuple[int, str]]
    setups: dict[str, dict[str, Any]] = field(default_factory=dict)


def scan(path: Path, start: int = 0) -> Scan:
    """The undamaged records of a journal from byte ``start`` on.

    The scan reads heads and scalars only; :func:`read` checks the traces. After damage the scan
    continues at the next record, so that one damaged byte costs one record.
    """
    entries: list[JournalEntry] = []
    damage: list[tuple[int, str]] = []
    setups: dict[str, dict[str, Any]] = {}
    end = start
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        position: int | None = start
        while position is not None and position < size:
            file.seek(position)
            head = file.read(HEAD.size)
            try:
                if len(head) == HEAD.size and head[:4] == MAGIC:
                    head += file.read(min(HEAD.unpack(head)[1], MAX_SCALARS_BYTES))
                scalars, _, length = _scalars(head, size - position)
            except TornRecordError as torn:
                begin, position = position, _next_magic(file, position + 1)
                if not damage or damage[-1][0] < end:
                    damage.append((begin, f"{torn}{_point_in(file, begin, position)}"))
                continue
            if SETUP in scalars:
                setups[setup_id(scalars[SETUP])] = scalars[SETUP]
            else:
                entries.append(JournalEntry(path, position, position + length, scalars))
            position = end = position + length
    return Scan(entries, end, damage, setups)


def _point_in(file: BinaryIO, start: int, end: int | None) -> str:
    """The point of a damaged record as a phrase; empty if its id is damaged too."""
    file.seek(start)
    data = file.read(min(1 << 16 if end is None else end - start, 1 << 16))
    match = POINT_ID.search(data)
    return f", of point {match[1].decode()}" if match else ""


def _next_magic(file: BinaryIO, start: int) -> int | None:
    """The next byte at which a record may begin, or None."""
    block = 1 << 20
    while True:
        file.seek(start)
        data = file.read(block)
        position = data.find(MAGIC)
        if position >= 0:
            return start + position
        if len(data) < block:
            return None
        start += block - len(MAGIC) + 1


def remove_if_done(path: Path, consumed: int) -> bool:
    """Remove a journal if it has no writer, and no whole record from byte ``consumed`` on. Returns
    whether it was removed."""
    with path.open("r+b") as file:
        if not _lock_alone(file):
            return False
        if os.fstat(file.fileno()).st_size != consumed and scan(path, consumed).entries:
            return False
        path.unlink()
    return True


def has_writer(path: Path) -> bool:
    """Whether a process may still write to a journal."""
    with path.open("r+b") as file:
        return not _lock_alone(file)


def _lock_alone(file: BinaryIO) -> bool:
    """Lock a file until it is closed. Returns whether no other process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def read(entry: JournalEntry, journal: BinaryIO | None = None) -> Measurement:
    """The measurement of an entry, with its traces. ``journal``: its open file, if any.

    Raises:
        TornRecordError: the record is damaged.
    """
    if journal is None:
        with open_regular(entry.path) as file:
            return read(entry, file)
    journal.seek(entry.offset)
    return decode(journal.read(entry.end - entry.offset))
