"""Events that the Linux kernel counts: their names, and opening one with perf_event_open(2).

Names are written as perf writes them (perf-list(1)): ``instructions``, ``task-clock``, ``r01c7``
(a raw event of the processor), or ``SOURCE/term,term=value/``, whose terms are named in the files
``format/*`` and ``events/*`` of the event source. Sources:
Documentation/ABI/testing/sysfs-bus-event_source-devices-format and -events in the Linux source,
and include/uapi/linux/perf_event.h for the numbers.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from dvfs.errors import UserError

SOURCES = Path("sys/bus/event_source/devices")
CLOSE_ON_EXEC = 8
SYSTEM_CALL = {
    "x86_64": 298,
    "i686": 336,
    "i586": 336,
    "aarch64": 241,
    "riscv64": 241,
    "ppc64le": 319,
    "s390x": 331,
}
"""The number of the system call, by machine: the system call tables in the Linux source."""
ATTRIBUTES = struct.Struct("=IIQQQQQIIQQ")
"""perf_event_attr of version 1 (72 bytes): type, size, config, sample period, sample type, read
format, flags, wake-up, breakpoint type, config1, config2."""
HARDWARE, SOFTWARE, CACHE, RAW = 0, 1, 3, 4
GENERIC = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache-references": (HARDWARE, 2),
    "cache-misses": (HARDWARE, 3),
    "branches": (HARDWARE, 4),
    "branch-misses": (HARDWARE, 5),
    "stalled-cycles-frontend": (HARDWARE, 7),
    "stalled-cycles-backend": (HARDWARE, 8),
    "ref-cycles": (HARDWARE, 9),
    "task-clock": (SOFTWARE, 1),
    "page-faults": (SOFTWARE, 2),
    "context-switches": (SOFTWARE, 3),
    "cpu-migrations": (SOFTWARE, 4),
    "L1-dcache-loads": (CACHE, 0),
    "L1-dcache-load-misses": (CACHE, 0 | 1 << 16),
    "LLC-loads": (CACHE, 2),
    "LLC-load-misses": (CACHE, 2 | 1 << 16),
    "LLC-stores": (CACHE, 2 | 1 << 8),
    "LLC-store-misses": (CACHE, 2 | 1 << 8 | 1 << 16),
}
"""Names that mean the same on every machine: (type, config). A cache event is the cache, the
operation << 8 and the result << 16."""
SOURCE_EVENT = re.compile(r"([A-Za-z0-9_.-]+)/([A-Za-z0-9_.,=-]+)/")
RAW_EVENT = re.compile(r"r([0-9a-fA-F]{1,16})")
NUMBER = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
BITS = re.compile(r"(config[12]?):([0-9,-]+)")
CONFIGS = ("config", "config1", "config2")


class EventError(UserError):
    """An event cannot be counted on this machine, or by this user."""

    exit_code = 1


@dataclass(frozen=True)
class EventSpec:
    """The arguments of perf_event_open for an event."""

    name: str
    source_type: int
    config: int
    config1: int = 0
    config2: int = 0


def find_event(root: Path, name: str) -> EventSpec:
    """The event ``name``, from the event sources under ``root`` (``/`` or a recorded tree).

    Raises:
        EventError: ``name`` is not an event's name, or the machine does not have the event.
    """
    if name in GENERIC:
        return EventSpec(name, *GENERIC[name])
    if raw := RAW_EVENT.fullmatch(name):
        return EventSpec(name, RAW, int(raw[1], 16))
    if (match := SOURCE_EVENT.fullmatch(name)) is None:
        raise EventError(
            f"{name!r} is not the name of an event",
            f"write SOURCE/event=0xNN,umask=0xNN/, rNNNN, or one of {', '.join(GENERIC)}",
        )
    source = root / SOURCES / match[1]
    if not source.is_dir():
        have = ", ".join(sorted(path.name for path in (root / SOURCES).glob("*"))) or "none"
        raise EventError(
            f"{source} does not exist", f"this machine's event sources are: {have}; see `perf list`"
        )
    configs = dict.fromkeys(CONFIGS, 0)
    for term in match[2].split(","):
        _add_term(source, term, configs, name, inside=False)
    return EventSpec(name, int(_text(source / "type"), 0), *configs.values())


def _add_term(source: Path, term: str, configs: dict[str, int], name: str, inside: bool) -> None:
    """Put a term's bits into the configs; ``inside`` the definition of a named event."""
    key, _, value = term.partition("=")
    if not value and not inside and (source / "events" / key).is_file():
        for part in _text(source / "events" / key).split(","):
            _add_term(source, part, configs, name, inside=True)
        return
    number = int(value, 0) if NUMBER.fullmatch(value) else 1 if not value else None
    if number is None:
        raise EventError(f"{name}: {value!r} is not a number", "write it as 12 or 0x0c")
    if key in configs:
        configs[key] |= number
        return
    path = source / "format" / key
    if not path.is_file():
        raise EventError(f"{name}: {path} does not exist", "see `perf list` for this machine")
    if (bits := BITS.fullmatch(_text(path))) is None:
        raise EventError(f"{path} holds {_text(path)[:40]!r}, not bits of config", "see `dmesg`")
    for part in bits[2].split(","):
        low, _, high = part.partition("-")
        width = int(high or low) - int(low) + 1
        configs[bits[1]] |= (number & (1 << width) - 1) << int(low)
        number >>= width
    if number:
        raise EventError(f"{name}: {term} does not fit into {bits[0]}", "give a smaller number")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise EventError(f"{path}: {error.strerror}", "check its permissions") from None


def open_event(
    spec: EventSpec, *, process: int, cpu: int, flags: int = 0, read_format: int = 0
) -> int:
    """The file descriptor of an event that the kernel counts: of ``process`` (0: this one, -1:
    all) on ``cpu`` (-1: all). ``flags`` and ``read_format``: as in perf_event.h.

    Raises:
        OSError: the kernel refuses it, or has no such system call on this machine.
    """
    number = SYSTEM_CALL.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"perf_event_open has no known number on {os.uname().machine}")
    attributes = ATTRIBUTES.pack(
        spec.source_type,
        ATTRIBUTES.size,
        spec.config,
        0,
        0,
        read_format,
        flags,
        0,
        0,
        spec.config1,
        spec.config2,
    )
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    descriptor = library.syscall(
        ctypes.c_long(number),
        ctypes.c_char_p(attributes),
        ctypes.c_int(process),
        ctypes.c_int(cpu),
        ctypes.c_int(-1),
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(descriptor)
