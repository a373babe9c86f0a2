"""The clock at which CPUs run, as the hardware counted or reported it.

In this order, the first that this node lets the user read:

1. APERF, the register that counts a core's cycles (:mod:`sites.clocks.shared.counted_cycles`).
2. ``cpuinfo_avg_freq``: the hardware's mean over a period (Linux 6.14 and later).
3. ``scaling_cur_freq``, on processors that have APERF and MPERF (``aperfmperf`` among the flags in
   ``/proc/cpuinfo``): there the kernel shows what it counted, since Linux 4.13.
4. ``cpuinfo_cur_freq``, on other machines than x86: "obtained from the hardware". On x86 it is
   left out: acpi-cpufreq reads the register with the request.

``scaling_setspeed``, the limits, and ``scaling_cur_freq`` elsewhere are what was asked for. They
prove nothing and are not read. Format: the kernel's Documentation/admin-guide/pm/cpufreq.rst, and
drivers/cpufreq/cpufreq.c for what the files show.

A CPU without work shows any clock, often a nominal one. So the clocks are weighted by how long
each CPU has worked since the last reading (``/proc/stat``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from sites.clocks.shared.counted_cycles import count_in_process, count_on_cpus
from sites.clocks.shared.kernel_files import CPUS, optional_number


class CoreClock(Protocol):
    """Reads the core clock. ``source``: what is read, a phrase; empty where nothing can be."""

    source: str

    def mhz(self) -> float | None:
        """The mean clock since the last call; None where nothing ran or nothing can be read."""


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
        try:
            text = (self._root / "proc/stat").read_text()
        except OSError:
            return {}
        ticks = {}
        for cpu, words in re.findall(r"^cpu(\d+) ([\d ]+)$", text, re.MULTILINE):
            user, nice, system, _idle, _iowait, irq, softirq = map(int, words.split()[:7])
            ticks[int(cpu)] = user + nice + system + irq + softirq
        return ticks


class NoClock:
    """Where nothing can be read."""

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
    """The files of cpufreq that show what the hardware did, on this processor."""
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        text = ""
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    if flags is None:
        return ["cpuinfo_avg_freq", "cpuinfo_cur_freq"]
    shown = ["scaling_cur_freq"] if "aperfmperf" in flags[1].split() else []
    return ["cpuinfo_avg_freq", *shown]
