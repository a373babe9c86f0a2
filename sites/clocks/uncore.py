"""Intel's uncore clock: of the last level cache, the mesh and the memory controllers.

Format: the kernel's Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst, and
drivers/platform/x86/intel/uncore-frequency/ for the steps of 100 MHz. Below
``/sys/devices/system/cpu/intel_uncore_frequency`` is a folder ``package_NN_die_NN`` for each die,
and on processors with TPMI also a folder ``uncoreNN`` for each fabric cluster, with the files
``domain_id``, ``package_id`` and ``fabric_cluster_id``. The clusters are written if there are any,
because a die's folder stands for all of its clusters.

A setting's uncore clock (``uncore_mhz``, or ``mem_mhz`` of a site file that lists the clocks under
[domains.mem]) is written as lower and upper limit of every domain. The achieved clock is
in ``current_freq_khz``, which older kernels do not have.

Option ``domain_ids``: on TPMI, set only the clusters of these domains, because compute and I/O
domains may have no clock in common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks.shared.control import (
    ClocksError,
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
)
from sites.clocks.shared.journal import Journal, log_left_over
from sites.clocks.shared.kernel_files import optional_number, read_number, right_to_write
from sites.clocks.shared.written_files import Limits, WrittenFiles, put_back_entries

ABOUT = ControlDescription(
    control="uncore",
    writes="both limits of Intel's uncore clock (uncore_mhz, or mem_mhz)",
    needs="root, or write access",
    options={
        "domain_ids": "TPMI domains, such as [0] (default: all)",
    },
)

FOLDER = "sys/devices/system/cpu/intel_uncore_frequency"
STEP_KHZ = 100_000
WRITES = (rf"{FOLDER}/(package_\d+_die_\d+|uncore\d+)/(min|max)_freq_khz",)
rights = partial(right_to_write, ABOUT.control, pattern=f"{FOLDER}/*/max_freq_khz")
put_back = partial(put_back_entries, writes=WRITES)
ABSENT = (
    "load the driver with `sudo modprobe intel_uncore_frequency` (MSR) or `sudo modprobe "
    "intel_uncore_frequency_tpmi`; virtual machines and other processors have none"
)


@dataclass(frozen=True)
class UncoreDomain:
    """A folder with a pair of limits, and the range that the hardware offers, in kHz."""

    folder: str
    lowest_khz: int
    highest_khz: int

    def limits(self, mhz: float) -> Limits:
        text = f"{round(mhz * 1000)}\n"
        return Limits(f"{self.folder}/min_freq_khz", f"{self.folder}/max_freq_khz", text, text)


class Uncore:
    """Sets the uncore clock of every domain."""

    def __init__(self, root: Path, domains: tuple[UncoreDomain, ...]) -> None:
        self.root = root
        self.domains = domains
        self.files = WrittenFiles(root, Journal(root, "uncore"), ABSENT, instead_of(domains))

    def legal(self) -> list[Setting]:
        return [Setting(None, mhz) for mhz in legal_mhz(self.domains)]

    def set(self, setting: Setting) -> None:
        if setting.core_mhz is not None:
            raise IllegalClockError(
                f"{setting}: this control sets no core clock; use cpufreq with uncore = true"
            )
        self.files.write(limits_for(setting.clocks[1], self.domains))

    def state(self) -> ClockState:
        return ClockState(Setting(None, current_mhz(self.root, self.domains)))

    def restore(self) -> None:
        self.files.restore()


def open_control(site: ControlledSite, root: Path) -> Uncore:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no uncore to set.
        ValueError: an option has a wrong value.
    """
    ids = parse_options(site.clocks.options)
    log_left_over(root)
    return Uncore(root, find_domains(root, ids))


def parse_options(options: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The option ``domain_ids``, a list of integers; None where it is not given."""
    value = options.get("domain_ids")
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(type(number) is int for number in value):
        raise ValueError(f"domain_ids = {value!r}; give a list of numbers, such as [0]")
    return tuple(value)


def find_domains(root: Path, domain_ids: tuple[int, ...] | None) -> tuple[UncoreDomain, ...]:
    """The domains below ``root``.

    Raises:
        ClocksError: there are none, or their ranges cannot be read.
    """
    clusters, dies = (
        [str(folder.relative_to(root)) for folder in sorted((root / FOLDER).glob(pattern))]
        for pattern in ("uncore[0-9]*", "package_*_die_*")
    )
    if domain_ids is None:
        folders = clusters or dies
    elif clusters:
        folders = [f for f in clusters if read_number(root, f"{f}/domain_id", ABSENT) in domain_ids]
    else:
        raise ClocksError(f"{root / FOLDER} has no domain ids", "leave the option domain_ids out")
    if not folders:
        raise ClocksError(f"{root / FOLDER} has no uncore domain to set", ABSENT)
    return tuple(
        UncoreDomain(
            folder,
            read_number(root, f"{folder}/initial_min_freq_khz", ABSENT),
            read_number(root, f"{folder}/initial_max_freq_khz", ABSENT),
        )
        for folder in folders
    )


def legal_mhz(domains: tuple[UncoreDomain, ...]) -> list[float]:
    """The clocks that all the domains offer: the multiples of 100 MHz in their ranges."""
    lowest = math.ceil(max(domain.lowest_khz for domain in domains) / STEP_KHZ)
    highest = min(domain.highest_khz for domain in domains) // STEP_KHZ
    return [step * STEP_KHZ / 1000 for step in range(lowest, highest + 1)]


def limits_for(mhz: float | None, domains: tuple[UncoreDomain, ...]) -> list[Limits]:
    """The limits to write for a memory clock; empty if it is None.

    Raises:
        IllegalClockError: not all domains offer it.
    """
    if mhz is None:
        return []
    legal = legal_mhz(domains)
    if mhz not in legal:
        offered = (
            f"{legal[0]:g} to {legal[-1]:g} MHz in steps of 100" if legal else "none in common"
        )
        raise IllegalClockError(f"memory {mhz:g} MHz: the uncore offers {offered}")
    return [domain.limits(mhz) for domain in domains]


def instead_of(domains: tuple[UncoreDomain, ...]) -> dict[str, str]:
    """Limit file -> the file with the limit at driver start, used if the former is unreadable."""
    return {
        f"{domain.folder}/{end}_freq_khz": f"{domain.folder}/initial_{end}_freq_khz"
        for domain in domains
        for end in ("min", "max")
    }


def current_mhz(root: Path, domains: tuple[UncoreDomain, ...]) -> float | None:
    """The mean clock of the domains, in MHz; None if one does not report it."""
    khz = [optional_number(root, f"{domain.folder}/current_freq_khz") for domain in domains]
    reported = [value for value in khz if value is not None]
    return sum(reported) / len(reported) / 1000 if reported and len(reported) == len(khz) else None
