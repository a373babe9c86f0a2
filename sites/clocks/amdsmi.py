"""The clocks of AMD GPUs, limited through ROCm's package ``amdsmi``: system clock (sclk) as core,
memory clock (mclk). Not tried with a GPU.

Functions: the AMD SMI Python API reference (amdsmi_set_gpu_clk_limit, which needs root, and
amdsmi_get_gpu_od_volt_info, which shows the limits). What Linux's amdgpu does with them
(smu_v13_0_6_ppt.c, of an MI300):

- Both limits of the core clock are set to it; of the memory clock only the upper one can be.
- Setting a limit sets the performance level to manual. Back at auto, an Instinct has its default
  limits again; a Radeon keeps the changed ones. So the limits found are restored first, then the
  level. A GPU at any other level is refused, because the library does not report its settings.
- Limits are soft: an idle GPU runs below them, and so does a GPU at its power cap. Setting checks
  the limits, and that no clock is above them; amdsmi_get_clock_info shows the clocks of a point in
  its windows.

An MI250 is refused: each of its two dies has separate clocks, and the control would set only one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dvfs.setting import AS_FOUND, Setting
from sites.amdsmi_library import (
    DEVICES,
    TWO_DIES,
    AmdGpu,
    AmdsmiError,
    AmdsmiLibrary,
    parse_devices,
    unsupported,
)
from sites.clocks.shared.control import (
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
)
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable, as_refused
from sites.clocks.shared.journal import (
    Entry,
    Journal,
    PutBack,
    at_last,
    log_left_over,
)
from sites.clocks.shared.limited import value_of_all
from sites.clocks.shared.selected_amd_gpus import bus_address, open_gpus, reopened
from sites.clocks.shared.selected_gpus import (
    AMD,
    SetGpu,
    give_up,
    put_back_gpus,
    restore_gpus,
    right_of_root,
)
from sites.gpu_error import GpuError

ABOUT = ControlDescription(
    control="amdsmi",
    writes="limits of AMD GPUs' clocks (not tried with a GPU)",
    needs="ROCm's package amdsmi; root",
    device="gpu",
    options=DEVICES,
)
parse_options = parse_devices
rights = partial(
    right_of_root,
    AMD,
    ABOUT.control,
    "limit clocks",
    "ask the administrators for amd-smi set --clk-limit through sudo",
)

LEVEL = "AMDSMI_DEV_PERF_LEVEL_"
LEVELS = ("AUTO", "MANUAL")
"""The performance levels that can be restored."""
SETTLE_S = 2.0
"""How long a GPU may take to change its clocks."""
WAIT_S = 0.02


@dataclass(frozen=True)
class Limits:
    """Performance level and limits in MHz; ``mem_max``: None where it is not reported."""

    level: str
    core_min: int
    core_max: int
    mem_max: int | None


class GpuClockLimits:
    """The limits of one GPU, which has one die. Its methods raise AmdsmiError."""

    def __init__(self, library: AmdsmiLibrary, gpu: AmdGpu) -> None:
        if TWO_DIES.search(gpu.name):
            raise AmdsmiError(
                f"{gpu.label} has two dies, each with its clocks, which cannot be set together",
                "use the control amdsmi-power-cap in [power_limit]",
            )
        self.library, self.gpu = library, gpu
        self.device, self.label = bus_address(library, gpu), gpu.label

    def read(self) -> Limits:
        amdsmi = self.library.amdsmi
        with self.library.explained(f"{self.label}: its clock limits"):
            level = str(amdsmi.amdsmi_get_gpu_perf_level(self.gpu.handle))
            shown = amdsmi.amdsmi_get_gpu_od_volt_info(self.gpu.handle)
        core = [_mhz(shown["curr_sclk_range"][f"{end}_bound"]) for end in ("lower", "upper")]
        if core[0] is None or core[1] is None:
            raise unsupported(f"{self.label} does not report the limits of its clocks")
        mem = _mhz(shown["curr_mclk_range"]["upper_bound"])
        return Limits(level.removeprefix(LEVEL), core[0], core[1], mem)

    def found(self) -> Limits:
        """The limits to restore later."""
        limits = self.read()
        if limits.level not in LEVELS:
            raise AmdsmiError(
                f"{self.label}: its performance level is {limits.level}, which could not be "
                "restored",
                "as root: `amd-smi set --perf-level auto`",
            )
        return limits

    def entry(self, limits: Limits) -> Entry:
        """The journal's entry for these limits."""
        return {"gpu": self.device, **vars(limits)}

    def memory_mhz(self) -> list[int]:
        """The memory clocks that the GPU offers."""
        amdsmi = self.library.amdsmi
        with self.library.explained(f"{self.label}: its memory clocks"):
            shown = amdsmi.amdsmi_get_clk_freq(self.gpu.handle, amdsmi.AmdSmiClkType.MEM)
        return [mhz for clock in shown["frequency"] if (mhz := _mhz(clock)) is not None]

    def write(self, requested: Limits) -> None:
        """Set the limits that differ; the order keeps each lower limit below its upper one."""
        present = self.read()
        ends = [("sclk", "max", present.core_max, requested.core_max)]
        ends.insert(
            1 if requested.core_max >= present.core_min else 0,
            ("sclk", "min", present.core_min, requested.core_min),
        )
        if requested.mem_max is not None:
            ends.append(("mclk", "max", present.mem_max or 0, requested.mem_max))
        amdsmi = self.library.amdsmi
        for clock, end, is_mhz, mhz in ends:
            if is_mhz != mhz:
                with self.library.explained(
                    f"{self.label}: setting its {clock} {end} to {mhz} MHz"
                ):
                    amdsmi.amdsmi_set_gpu_clk_limit(self.gpu.handle, clock, end, mhz)
        if requested.level != self.read().level:
            with self.library.explained(f"{self.label}: setting its performance level"):
                level = getattr(amdsmi.AmdSmiDevPerfLevel, requested.level)
                amdsmi.amdsmi_set_gpu_perf_level(self.gpu.handle, level)

    def put_back(self, limits: Limits) -> list[GpuError]:
        """Set the recorded limits and read them back; returns the failure."""
        try:
            self.write(limits)
            read_back = self.read()
        except GpuError as error:
            return [error]
        if read_back != limits:
            return [GpuError(f"{self.label}: {limits} were found, and {read_back} are now", SEE)]
        return []

    def clocks_mhz(self) -> Setting:
        """The present clocks; None for one that the GPU does not report."""
        kinds = self.library.amdsmi.AmdSmiClkType
        return Setting(self._clock_mhz(kinds.SYS), self._clock_mhz(kinds.MEM))

    def _clock_mhz(self, kind: Any) -> float | None:
        with self.library.explained(f"{self.label}: its clocks"):
            shown = self.library.amdsmi.amdsmi_get_clock_info(self.gpu.handle, kind)
        mhz = shown.get("clk")
        return float(mhz) if type(mhz) is int and mhz > 0 else None


SEE = "see `amd-smi static --clock` and `amd-smi metric --clock`"


def _mhz(shown: Any) -> int | None:
    """A clock in MHz, from Hz, or MHz in some releases; None where it is not reported."""
    if type(shown) is not int or shown <= 0:
        return None
    return shown if shown < 10**6 else round(shown / 10**6)


class Amdsmi:
    """Limits the clocks of some GPUs, all to the same setting."""

    def __init__(
        self,
        root: Path,
        library: AmdsmiLibrary,
        gpus: Sequence[GpuClockLimits],
        settings: Sequence[Setting],
        tolerance_pct: float,
    ) -> None:
        self.gpus = [
            SetGpu(gpu, Journal(root, ABOUT.control, gpu.device), gpu.put_back) for gpu in gpus
        ]
        self.settings = sorted({setting.two_clocks for setting in settings} - {AS_FOUND})
        self.tolerance_pct = tolerance_pct
        self._set = AS_FOUND
        at_last(self, give_up, self.gpus, library.close)

    def legal(self) -> list[Setting] | None:
        if not self.settings:
            return None
        return [setting for setting in self.settings if not self._refusal(setting)]

    def set(self, setting: Setting) -> None:
        if setting == AS_FOUND:
            self.restore()
            return
        try:
            # The legal range is known only once no other process has changed the limits.
            limits_found = [held.record(held.gpu.found, held.gpu.entry) for held in self.gpus]
            refusal = self._refusal(setting)
            if refusal:
                raise IllegalClockError(refusal)
        except BaseException:
            if self._set == AS_FOUND:
                self.restore()
            raise
        self._set = setting
        for held, limits in zip(self.gpus, limits_found, strict=True):
            _limit(held.gpu, setting, limits)
        deadline_s = time.monotonic() + SETTLE_S
        for held in self.gpus:
            self._read_back(held.gpu, setting, deadline_s)

    def state(self) -> ClockState:
        with as_clocks_unavailable():
            shown = [held.gpu.clocks_mhz().clocks for held in self.gpus]
        values: list[float | None] = []
        for clocks, requested in zip(zip(*shown, strict=True), self._set.clocks, strict=True):
            reported = [mhz for mhz in clocks if mhz is not None]
            is_known = len(reported) == len(clocks)
            values.append(value_of_all(reported, requested) if is_known else None)
        return ClockState(Setting(*values), source="AMD SMI")

    def restore(self) -> None:
        restore_gpus(self.gpus, "as root: `amd-smi reset -c`")
        self._set = AS_FOUND

    def _refusal(self, setting: Setting) -> str:
        """The reason why a setting is illegal; empty for a legal one."""
        core, mem = setting.clocks
        with as_clocks_unavailable():
            for held in self.gpus:
                limits = held.found or held.gpu.read()
                if core is not None and not limits.core_min <= core <= limits.core_max:
                    return (
                        f"core {core:g} MHz: {held.gpu.label} offers {limits.core_min} to "
                        f"{limits.core_max} MHz"
                    )
                if mem is None:
                    continue
                offered = [mhz for mhz in held.gpu.memory_mhz() if mhz <= (limits.mem_max or 0)]
                if mem not in offered:
                    shown = ", ".join(map(str, sorted(offered))) or "none that can be set"
                    return f"memory {mem:g} MHz: {held.gpu.label} offers {shown}"
        return ""

    def _read_back(self, gpu: GpuClockLimits, setting: Setting, deadline_s: float) -> None:
        core, mem = setting.clocks
        while True:
            with as_clocks_unavailable():
                limits, shown = gpu.read(), gpu.clocks_mhz()
            wrong = [
                f"{name} {mhz:g} MHz was requested, and {property_is} {is_mhz}"
                for name, mhz, property_is, is_mhz in (
                    ("core", core, "its lower limit is", limits.core_min),
                    ("core", core, "its upper limit is", limits.core_max),
                    ("memory", mem, "its upper limit is", limits.mem_max),
                )
                if mhz is not None and is_mhz != round(mhz)
            ] + [
                f"{name} {mhz:g} MHz was requested, and it runs at {is_mhz:g} MHz"
                for name, mhz, is_mhz in zip(
                    ("core", "memory"), setting.clocks, shown.clocks, strict=True
                )
                if mhz is not None
                and is_mhz is not None
                and is_mhz > mhz * (1.0 + self.tolerance_pct / 100.0)
            ]
            if not wrong:
                return
            if time.monotonic() >= deadline_s:
                raise IllegalClockError(f"{gpu.label}: {wrong[0]}")
            time.sleep(WAIT_S)


def _limit(gpu: GpuClockLimits, setting: Setting, found: Limits) -> None:
    """Set the limits of requested clocks, and restore the ``found`` limits of the others."""
    core, mem = setting.clocks
    limits = Limits(
        "MANUAL",
        found.core_min if core is None else round(core),
        found.core_max if core is None else round(core),
        found.mem_max if mem is None else round(mem),
    )
    with as_refused():
        gpu.write(limits)


def open_control(site: ControlledSite, root: Path) -> Amdsmi:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no AMD SMI, or not the selected GPU, or it has two dies.
        ValueError: an option has a wrong value.
    """
    indices = parse_options(site.clocks.options)
    log_left_over(root)
    library, limits = open_gpus(indices, GpuClockLimits)
    return Amdsmi(root, library, limits, site.settings, site.clocks.tolerance_pct)


def put_back(root: Path, entries: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`.

    Raises:
        KeyError, TypeError: an entry that this control cannot have written.
    """
    del root  # AMD SMI finds its library itself.
    checked = []
    for entry in entries:
        device = entry["gpu"]
        limits = Limits(*(entry[name] for name in ("level", "core_min", "core_max", "mem_max")))
        numbers = (limits.core_min, limits.core_max, limits.mem_max or 0)
        if (
            not isinstance(device, str)
            or limits.level not in LEVELS
            or not all(type(mhz) is int for mhz in numbers)
        ):
            raise TypeError("a GPU that is not text, a level, or a limit that is no whole number")

        def restore(library: Any, gpu: Any, limits: Limits = limits) -> list[GpuError]:
            return GpuClockLimits(library, gpu).put_back(limits)

        checked.append((device, restore, "its clock limits are those found"))
    return put_back_gpus(reopened, checked)
