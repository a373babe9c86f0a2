"""Cycles that the hardware counted: the register APERF, through perf or /dev/cpu/N/msr.

- perf: the event source ``msr`` with the event ``aperf`` (arch/x86/events/msr.c in the Linux
  source). It is opened for this process, and counts in all threads and processes that it starts
  afterwards, while they run: cycles over that time are the clock at which they ran. It needs root,
  CAP_PERFMON or kernel.perf_event_paranoid of at most 1.
- ``/dev/cpu/N/msr``: APERF counts a CPU's cycles, MPERF those at the rate of the TSC, both only
  while it is not halted (Intel SDM volume 3, Hardware duty cycling and MPERF/APERF; AMD's manual
  volume 2 alike). APERF over MPERF, times the TSC's rate, is the clock. It needs root.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import time
import weakref
from pathlib import Path

MSR_EVENTS = Path("sys/bus/event_source/devices/msr")
PERF_EVENT_OPEN = 298
"""The number of the system call on x86-64."""
ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""perf_event_attr of version 0: type, size, config, period, sample_type, read_format, flags ..."""
INHERIT = 1 << 1
"""Flag: threads and processes that are started afterwards are counted, too."""
TOTAL_TIME_RUNNING = 1 << 1
"""Read format: beside the count, for how many ns it was counted."""
CLOSE_ON_EXEC = 8
TSC, MPERF, APERF = 0x10, 0xE7, 0xE8
LEAST_NS = 100_000
"""Work of less than this says nothing about the clock."""


class ProcessCycles:
    """The mean clock of this process and those that it starts, from an open event."""

    source = "APERF through perf"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._before = self._read()

    def _read(self) -> tuple[int, int]:
        """Cycles, and the ns in which they were counted."""
        return struct.unpack("=QQ", os.read(self._descriptor, 16))

    def mhz(self) -> float | None:
        before, self._before = self._before, self._read()
        cycles, running_ns = (now - then for now, then in zip(self._before, before, strict=True))
        return 1e3 * cycles / running_ns if cycles and running_ns >= LEAST_NS else None


def count_in_process(event: str = "aperf") -> ProcessCycles | None:
    """The process's cycles through perf; None where the kernel or the user's rights lack it."""
    folder = Path("/") / MSR_EVENTS
    try:
        source_type = int((folder / "type").read_text())
        config = re.search(r"event=(0x[0-9a-f]+)", (folder / "events" / event).read_text())
    except (OSError, ValueError):
        return None
    if config is None or os.uname().machine != "x86_64":
        return None
    attributes = ATTRIBUTES.pack(
        source_type,
        ATTRIBUTES.size,
        int(config[1], 16),
        0,
        0,
        TOTAL_TIME_RUNNING,
        INHERIT,
        *(0, 0, 0),
    )
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    this_process, any_cpu, no_group = 0, -1, -1
    descriptor = library.syscall(
        ctypes.c_long(PERF_EVENT_OPEN),
        ctypes.c_char_p(attributes),
        ctypes.c_int(this_process),
        ctypes.c_int(any_cpu),
        ctypes.c_int(no_group),
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )
    return ProcessCycles(int(descriptor)) if descriptor >= 0 else None


class CpuCycles:
    """The mean clock of some CPUs from their registers, weighted by how long each worked."""

    source = "APERF and MPERF in /dev/cpu/N/msr"

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors
        for descriptor in descriptors:
            weakref.finalize(self, os.close, descriptor)
        self._before = self._read()

    def _read(self) -> tuple[int, int, int, int]:
        """ns, and the sums over the CPUs of APERF, MPERF and TSC."""
        aperf, mperf, tsc = (
            sum(int.from_bytes(os.pread(file, 8, register), "little") for file in self._descriptors)
            for register in (APERF, MPERF, TSC)
        )
        return time.monotonic_ns(), aperf, mperf, tsc

    def mhz(self) -> float | None:
        before, self._before = self._before, self._read()
        ns, aperf, mperf, tsc = (now - then for now, then in zip(self._before, before, strict=True))
        tsc_mhz = 1e3 * tsc / ns / len(self._descriptors)
        worked_ns = 1e3 * mperf / tsc_mhz if tsc_mhz > 0 else 0.0
        return tsc_mhz * aperf / mperf if worked_ns >= LEAST_NS else None


def count_on_cpus(root: Path, cpus: set[int]) -> CpuCycles | None:
    """The cycles of these CPUs; None where a register cannot be read."""
    descriptors = []
    try:
        for cpu in sorted(cpus):
            descriptors.append(os.open(root / f"dev/cpu/{cpu}/msr", os.O_RDONLY | os.O_CLOEXEC))
            if not all(any(os.pread(descriptors[-1], 8, at)) for at in (APERF, MPERF, TSC)):
                raise OSError("a register that does not count")
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    return CpuCycles(descriptors) if descriptors else None
