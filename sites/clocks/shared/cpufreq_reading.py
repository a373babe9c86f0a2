"""The clocks that Linux's cpufreq reports, read only."""

from __future__ import annotations

from pathlib import Path


def current_core_mhz(root: Path, cpus: set[int]) -> float | None:
    """The mean ``scaling_cur_freq`` (kHz in the file) of ``cpus`` in MHz; None if there is none.

    Format: the kernel's Documentation/admin-guide/pm/cpufreq.rst.
    """
    khz = []
    for cpu in sorted(cpus):
        path = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"
        try:
            khz.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return sum(khz) / len(khz) / 1000.0 if khz else None
