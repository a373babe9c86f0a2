"""The clock at which CPUs run, as the hardware counts or reports it.

The first of these sources that this user can read on this node:

1. APERF, the register that counts a core's cycles through perf or /dev/cpu/N/msr.
2. ``cpuinfo_avg_freq``: the hardware's mean over a period (Linux 6.14 and later).
3. ``scaling_cur_freq``, on processors that have APERF and MPERF (``aperfmperf`` among the flags in
   ``/proc/cpuinfo``): there the kernel shows what it counted, since Linux 4.13.
4. ``cpuinfo_cur_freq``, on other machines than x86: "obtained from the hardware". On x86 it is
   left out: acpi-cpufreq reads the register with the request.

``scaling_setspeed``, the limits, and ``scaling_cur_freq`` elsewhere repeat the request. They
prove nothing and are not read. Format: the kernel's Documentation/admin-guide/pm/cpufreq.rst, and
drivers/cpufreq/cpufreq.c for the content of the files.

An idle CPU shows any clock, often a nominal one. So each CPU's clock is weighted by the time that
it has worked since the last reading (``/proc/stat``).

APERF is read in two ways:

- perf: the event source ``msr`` with the event ``aperf`` (arch/x86/events/msr.c in the Linux
  source). It is opened for this process, or that of :func:`work_in`, and counts in all threads and
  processes that it starts afterwards, while they run: cycles over that time are their clock.
  It needs root, CAP_PERFMON or kernel.perf_event_paranoid of at most 1.
- ``/dev/cpu/N/msr``: APERF counts a CPU's cycles, MPERF those at the rate of the TSC, both only
  while it is not halted (Intel SDM volume 3, Hardware duty cycling and MPERF/APERF; AMD's manual
  volume 2 alike). APERF over MPERF, times the TSC's rate, is the clock. It needs root.
"""

from __future__ import annotations

import os
import re
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from sites.clocks.shared.kernel_files import CPUS, optional_number, optional_text
from sites.perf_event import EventError, find_event, open_event

INHERIT = 1 << 1
"""Flag: threads and processes that are started afterwards are counted, too."""
TOTAL_TIME_RUNNING = 1 << 1
"""Read format: the count, and the ns in which it was counted."""
TSC, MPERF, APERF = 0x10, 0xE7, 0xE8
LEAST_NS = 100_000
"""The least work from which a clock is computed."""
THIS_PROCESS = 0
_process: ContextVar[int | None] = ContextVar("process", default=THIS_PROCESS)


@contextmanager
def work_in(process: int | None) -> Iterator[None]:
    """Set the process that works, or starts the workers, for clocks opened in the body; the default
    is this process. None: this process does not know it, as where Slurm starts it."""
    token = _process.set(process)
    try:
        yield
    finally:
        _process.reset(token)


class ProcessCycles:
    """The mean clock of a process and its children, from an open event."""

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
    """The cycles of :func:`work_in`'s process through perf; None where there is no process, or the
    kernel or this user's rights do not allow it."""
    process = _process.get()
    if process is None:
        return None
    try:
        spec = find_event(Path("/"), f"msr/{event}/")
        return ProcessCycles(
            open_event(spec, process=process, cpu=-1, flags=INHERIT, read_format=TOTAL_TIME_RUNNING)
        )
    except (EventError, OSError):
        return None


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
            if not all(any(os.pread(descriptors[-1], 8, offset)) for offset in (APERF, MPERF, TSC)):
                raise OSError("a register that does not count")
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    return CpuCycles(descriptors) if descriptors else None


class CoreClock(Protocol):
    """Reads the core clock. ``source``: what is read, a phrase; empty where no source can be."""

    source: str

    def mhz(self) -> float | None:
        """The mean clock since the last call; None where no work ran or no source can be read."""


class CpufreqClock:
    """The clocks of some CPUs from one of cpufreq's files."""

    def __init__(self, root: Path, cpus: set[int], file: str) -> None:
        self.source = file
        self._root, self._cpus = root, sorted(cpus)
        self._busy = self._busy_ticks()

    def mhz(self) -> float | None:
        before, self._busy = self._busy, self._busy_ticks()
        total_khz, weights = 0.0, 0
        for cpu in self._cpus:
            khz = optional_number(self._root, f"{CPUS}/cpu{cpu}/cpufreq/{self.source}")
            weight = self._busy[cpu] - before.get(cpu, 0) if cpu in self._busy else 1
            if khz is not None and weight > 0:
                total_khz += weight * khz
                weights += weight
        return total_khz / weights / 1000.0 if weights else None

    def _busy_ticks(self) -> dict[int, int]:
        """CPU -> clock ticks of work since the boot; empty where it cannot be read."""
        ticks = {}
        text = optional_text(self._root, "proc/stat")
        for cpu, words in re.findall(r"^cpu(\d+) ([\d ]+)$", text, re.MULTILINE):
            user, nice, system, _idle, _iowait, irq, softirq = map(int, words.split()[:7])
            ticks[int(cpu)] = user + nice + system + irq + softirq
        return ticks


class NoClock:
    """The clock where no source can be read."""

    source = ""

    def mhz(self) -> None:
        """Nothing."""


def open_core_clock(root: Path, cpus: set[int]) -> CoreClock:
    """The best reader of the clocks of these CPUs that this user may use."""
    if root == Path("/") and (in_process := count_in_process()):
        return in_process
    if on_cpus := count_on_cpus(root, cpus):
        return on_cpus
    for file in _proving_files(root):
        numbers = [optional_number(root, f"{CPUS}/cpu{cpu}/cpufreq/{file}") for cpu in cpus]
        if numbers and None not in numbers:
            return CpufreqClock(root, cpus, file)
    return NoClock()


def _proving_files(root: Path) -> list[str]:
    """The files of cpufreq that show the hardware's clock on this processor."""
    flags = re.search(r"^flags\s*:(.*)$", optional_text(root, "proc/cpuinfo"), re.MULTILINE)
    if flags is None:
        return ["cpuinfo_avg_freq", "cpuinfo_cur_freq"]
    shown = ["scaling_cur_freq"] if "aperfmperf" in flags[1].split() else []
    return ["cpuinfo_avg_freq", *shown]
