"""The clocks of NVIDIA Jetson modules: the GPU's as core clock, the EMC's as memory clock.

- **GPU**: devfreq, below ``/sys/class/devfreq/NAME``: ``available_frequencies``, ``min_freq``,
  ``max_freq`` and ``cur_freq`` in Hz (the kernel's Documentation/ABI/testing/sysfs-class-devfreq).
  Both limits are set to the clock. ``device/railgate_enable``, if it exists, is set to 0, so that
  the GPU is not switched off between two kernels.
- **EMC** on Tegra186 and later: ``/sys/kernel/debug/bpmp/debug/clk/emc``: 1 to ``mrq_rate_locked``
  locks out other requests, 1 to ``state`` keeps the clock on, ``rate`` is in Hz (NVIDIA's Jetson
  Linux Developer Guide, Clocks). The firmware's rates are in ``../../emc/possible_rates`` in kHz;
  without this file, any of the site's clocks from ``min_rate`` to ``max_rate`` is tried.
- **EMC** on Tegra210: ``/sys/kernel/debug/clk/override.emc/{clk_state,clk_update_rate,clk_rate}``
  and the range in ``/sys/kernel/debug/tegra_bwmgr/emc_{min,max}_rate``, in Hz (the module's own
  jetson_clocks script).
"""

from __future__ import annotations

import re
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
from sites.clocks.shared.kernel_files import (
    CHECK_DRIVER,
    optional_number,
    read_number,
    read_text,
    right_to_write,
    whole_number,
)
from sites.clocks.shared.thermal_zone import find_zones, hottest_c
from sites.clocks.shared.written_files import File, Limits, Value, WrittenFiles, put_back_entries

ABOUT = ControlDescription(
    control="jetson",
    writes="the GPU's limits in devfreq, the memory clock (EMC) in debugfs",
    needs="root",
    device="gpu",
    options={
        "gpu": "name in /sys/class/devfreq (default: the known one)",
    },
)

DEVFREQ = "sys/class/devfreq"
KNOWN_GPU = re.compile(r"[0-9a-f]+\.(gpu|gm20b|gp10b|gv11b|ga10b)|gpu-gpc-0")
"""The devices of Tegra210 (Nano), 186 (TX2), 194 (Xavier), 234 (Orin) and 264 (Thor)."""
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"
BPMP_EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
BPMP_RATES = "sys/kernel/debug/bpmp/debug/emc/possible_rates"
OVERRIDE_EMC = "sys/kernel/debug/clk/override.emc"
BANDWIDTH_MANAGER = "sys/kernel/debug/tegra_bwmgr"
WRITES = (
    rf"{DEVFREQ}/{NAME}/(min_freq|max_freq|device/railgate_enable)",
    rf"{BPMP_EMC}/(mrq_rate_locked|state|rate)",
    rf"{re.escape(OVERRIDE_EMC)}/(clk_state|clk_update_rate)",
)
rights = partial(right_to_write, ABOUT.control, pattern=f"{DEVFREQ}/*/max_freq")
put_back = partial(put_back_entries, writes=WRITES)
ABSENT_GPU = "give its name in /sys/class/devfreq in the option `gpu`"
ABSENT = (
    "run as root (only root can use debugfs), with debugfs mounted: `sudo mount -t debugfs none "
    "/sys/kernel/debug`"
)
GPU_SENSORS = ("gpu-therm", "gpu-thermal", "gpu_thermal", "gpu")
HZ_PER_MHZ = 1e6


@dataclass(frozen=True)
class JetsonGpu:
    """The GPU's devfreq folder, its clocks in Hz, and the file that allows switching it off."""

    folder: str
    clocks_hz: tuple[int, ...]
    railgate: str | None


@dataclass(frozen=True)
class Emc:
    """The files of the memory clock (EMC), and its rates, in Hz."""

    switches: tuple[str, ...]
    """Files that must hold 1 before the clock accepts a rate."""
    rate: str
    current: str
    rates_hz: tuple[int, ...] | None
    """The rates that the firmware lists; None if any in the range is tried."""
    lowest_hz: int
    highest_hz: int


class Jetson:
    """Sets the clocks of a Jetson's GPU and memory."""

    def __init__(
        self, root: Path, gpu: JetsonGpu, emc: Emc | None, site_mem_mhz: tuple[float, ...]
    ) -> None:
        self.root = root
        self.gpu = gpu
        self.emc = emc
        self._site_mem_mhz = site_mem_mhz
        self.files = WrittenFiles(root, Journal(root, "jetson"), ABSENT)
        self._sensors = find_zones(root, GPU_SENSORS)

    def legal(self) -> list[Setting]:
        core = [hz / HZ_PER_MHZ for hz in self.gpu.clocks_hz]
        return [Setting(c, m) for m in self._legal_mem_mhz() for c in core]

    def set(self, setting: Setting) -> None:
        self.files.write([*self._gpu_values(setting.core_mhz), *self._emc_values(setting.mem_mhz)])

    def state(self) -> ClockState:
        core_hz = optional_number(self.root, f"{self.gpu.folder}/cur_freq")
        mem_hz = None if self.emc is None else optional_number(self.root, self.emc.current)
        return ClockState(
            Setting(
                None if core_hz is None else core_hz / HZ_PER_MHZ,
                None if mem_hz is None else mem_hz / HZ_PER_MHZ,
            ),
            temperature_c=hottest_c(self.root, self._sensors),
        )

    def restore(self) -> None:
        self.files.restore()

    def _legal_mem_mhz(self) -> list[float] | list[None]:
        if self.emc is None:
            return [None]
        if self.emc.rates_hz is not None:
            return [hz / HZ_PER_MHZ for hz in self.emc.rates_hz]
        inside = [
            mhz
            for mhz in self._site_mem_mhz
            if self.emc.lowest_hz <= round(mhz * HZ_PER_MHZ) <= self.emc.highest_hz
        ]
        return inside or [None]

    def _gpu_values(self, mhz: float | None) -> list[Value]:
        if mhz is None:
            return []
        hz = round(mhz * HZ_PER_MHZ)
        if hz not in self.gpu.clocks_hz:
            raise _not_offered("core", mhz, self.gpu.clocks_hz)
        low, high = (f"{self.gpu.folder}/{end}_freq" for end in ("min", "max"))
        limits = Limits(low, high, f"{hz}\n", f"{hz}\n")
        return [limits] if self.gpu.railgate is None else [File(self.gpu.railgate, "0\n"), limits]

    def _emc_values(self, mhz: float | None) -> list[Value]:
        if mhz is None:
            return []
        if self.emc is None:
            raise ClocksError(
                f"memory {mhz:g} MHz cannot be set: neither {self.root / BPMP_EMC} nor "
                f"{self.root / OVERRIDE_EMC} exists",
                ABSENT,
            )
        hz = round(mhz * HZ_PER_MHZ)
        rates = self.emc.rates_hz
        if rates is not None and hz not in rates:
            raise _not_offered("memory", mhz, rates)
        if not self.emc.lowest_hz <= hz <= self.emc.highest_hz:
            raise _not_offered("memory", mhz, (self.emc.lowest_hz, self.emc.highest_hz))
        # When the lock is removed, the firmware chooses the rate.
        rate = File(self.emc.rate, f"{hz}\n", follows=True)
        return [*(File(switch, "1\n") for switch in self.emc.switches), rate]


def _not_offered(domain: str, mhz: float, clocks_hz: tuple[int, ...]) -> IllegalClockError:
    nearest = sorted(clocks_hz, key=lambda hz: abs(hz - mhz * HZ_PER_MHZ))[:2]
    words = " and ".join(f"{hz / HZ_PER_MHZ:.10g}" for hz in sorted(nearest))
    return IllegalClockError(f"{domain} {mhz:g} MHz is not offered; the nearest: {words}")


def open_control(site: ControlledSite, root: Path) -> Jetson:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no such GPU, or a file cannot be read.
        ValueError: an option has a wrong value.
    """
    name = parse_options(site.clocks.options)
    log_left_over(root)
    mem = {setting.mem_mhz for setting in site.settings if setting.mem_mhz is not None}
    return Jetson(root, find_gpu(root, name), find_emc(root), tuple(sorted(mem)))


def parse_options(options: Mapping[str, Any]) -> str | None:
    """The option ``gpu``; None where it is not given."""
    name = options.get("gpu")
    if name is not None and (not isinstance(name, str) or not re.fullmatch(NAME, name)):
        raise ValueError(
            f"gpu = {name!r}; give a name in /sys/class/devfreq, such as '17000000.gpu'"
        )
    return name


def find_gpu(root: Path, name: str | None) -> JetsonGpu:
    """The GPU of that name, or the only one with a known name.

    Raises:
        ClocksError: there is none or several, or its clocks cannot be read.
    """
    devices = sorted(path.name for path in (root / DEVFREQ).glob("*"))
    names = [d for d in devices if (KNOWN_GPU.fullmatch(d) if name is None else d == name)]
    if len(names) != 1:
        problem = f"{len(names)} GPUs with a known name" if name is None else f"no {name}"
        raise ClocksError(
            f"{root / DEVFREQ} has {problem}, among: {', '.join(devices) or 'nothing'}", ABSENT_GPU
        )
    folder = f"{DEVFREQ}/{names[0]}"
    path = f"{folder}/available_frequencies"
    words = read_text(root, path, ABSENT_GPU).split()
    clocks_hz = tuple(sorted(whole_number(word, root / path) for word in words))
    if not clocks_hz:
        raise ClocksError(f"{root / path} lists no clock", CHECK_DRIVER)
    railgate = f"{folder}/device/railgate_enable"
    return JetsonGpu(folder, clocks_hz, railgate if (root / railgate).exists() else None)


def find_emc(root: Path) -> Emc | None:
    """The memory clock; None if neither interface is visible.

    Raises:
        ClocksError: its range cannot be read.
    """
    if _is_there(root / BPMP_EMC):
        rates: tuple[int, ...] | None = None
        if _is_there(root / BPMP_RATES):
            text = read_text(root, BPMP_RATES, ABSENT).removesuffix("\n").removesuffix("(kHz)")
            rates = tuple(sorted(whole_number(w, root / BPMP_RATES) * 1000 for w in text.split()))
        return Emc(
            (f"{BPMP_EMC}/mrq_rate_locked", f"{BPMP_EMC}/state"),
            f"{BPMP_EMC}/rate",
            f"{BPMP_EMC}/rate",
            rates or None,
            read_number(root, f"{BPMP_EMC}/min_rate", ABSENT),
            read_number(root, f"{BPMP_EMC}/max_rate", ABSENT),
        )
    if _is_there(root / OVERRIDE_EMC):
        return Emc(
            (f"{OVERRIDE_EMC}/clk_state",),
            f"{OVERRIDE_EMC}/clk_update_rate",
            f"{OVERRIDE_EMC}/clk_rate",
            None,
            read_number(root, f"{BANDWIDTH_MANAGER}/emc_min_rate", ABSENT),
            read_number(root, f"{BANDWIDTH_MANAGER}/emc_max_rate", ABSENT),
        )
    return None


def _is_there(path: Path) -> bool:
    """Whether the path is visible: only root can look into /sys/kernel/debug."""
    try:
        return path.exists()
    except PermissionError:
        return False
