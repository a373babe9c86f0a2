"""The clocks of NVIDIA GPUs, locked through NVML: graphics clock as core, memory clock.

Functions and bits: NVIDIA's NVML API reference (nvmlDeviceSetGpuLockedClocks and
nvmlDeviceSetMemoryLockedClocks, which need root; the latter Ampere or later).

- The legal core clocks depend on the memory clock, so both lists are read from the GPU.
- A lock is a target for the GPU: power caps, heat and idling take precedence, and the state then
  has the reasons. If a clock differs without a reason, the GPU did not take the setting.
- **Restoring removes the locks.** NVML does not report earlier locks, so locks that others set
  (``nvidia-smi -lgc``) are lost and must be set again.

All selected GPUs are set to the same clocks. Every GPU has a separate journal and lock, so jobs on
other GPUs of the node do not interfere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
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
from sites.clocks.shared.gpu_clocks import (
    GRAPHICS,
    MEMORY,
    GpuClocks,
    as_clocks_unavailable,
    as_refused,
)
from sites.clocks.shared.journal import (
    Entry,
    Journal,
    PutBack,
    at_last,
    log_left_over,
    signals_wait,
)
from sites.clocks.shared.selected_gpus import (
    NVIDIA,
    SetGpu,
    give_up,
    open_gpus,
    put_back_gpus,
    reopened,
    restore_gpus,
    right_of_root,
)
from sites.gpu_error import GpuError
from sites.nvml_library import DEVICES, Gpu, NvmlError, NvmlLibrary, parse_devices

ABOUT = ControlDescription(
    control="nvml",
    writes="locked graphics and memory clocks of NVIDIA GPUs",
    needs="root",
    device="gpu",
    options=DEVICES,
)
parse_options = parse_devices
rights = partial(
    right_of_root,
    NVIDIA,
    ABOUT.control,
    "lock clocks",
    "use the control 'slurm' with --gpu-freq where the cluster allows it, or ask the "
    "administrators for nvidia-smi --lock-gpu-clocks through sudo",
)

SETTLE_S = 2.0
"""A GPU that leaves its idle state takes a few tenths of a second."""
WAIT_S = 0.02
Locks = tuple[bool, bool]
"""Whether the core clock and the memory clock are locked."""


class Nvml:
    """Locks the clocks of some GPUs, all at the same setting."""

    def __init__(
        self, root: Path, library: NvmlLibrary, gpus: Sequence[Gpu], tolerance_pct: float
    ) -> None:
        self.root = root
        self.library = library
        self.gpus = [
            SetGpu(gpu, Journal(root, "nvml", gpu.uuid), partial(_reset, library, gpu))
            for gpu in gpus
        ]
        self.clocks = GpuClocks(library, gpus)
        self.tolerance_pct = tolerance_pct
        self._tables: dict[int, frozenset[int]] | None = None
        at_last(self, give_up, self.gpus, library.close)

    def legal(self) -> list[Setting]:
        table = self._table()
        return [Setting(float(c), float(m)) for m in sorted(table) for c in sorted(table[m])]

    def set(self, setting: Setting) -> None:
        self._check(setting)
        for locked in self.gpus:
            self._lock(locked, setting)
        deadline_s = time.monotonic() + SETTLE_S
        for locked in self.gpus:
            self._read_back(locked.gpu, setting, deadline_s)

    def state(self) -> ClockState:
        return self.clocks.state()

    def restore(self) -> None:
        restore_gpus(
            self.gpus, "as root: `nvidia-smi --reset-gpu-clocks; nvidia-smi --reset-memory-clocks`"
        )

    def _table(self) -> dict[int, frozenset[int]]:
        """Memory clock -> core clocks, in MHz, that every GPU offers."""
        if self._tables is None:
            tables = [self._table_of(locked.gpu) for locked in self.gpus]
            common = frozenset.intersection(*(frozenset(table) for table in tables))
            self._tables = {
                m: frozenset.intersection(*(table[m] for table in tables)) for m in common
            }
        return self._tables

    def _table_of(self, gpu: Gpu) -> dict[int, frozenset[int]]:
        nvml = self.library.nvml
        with as_clocks_unavailable(), self.library.explained(f"{gpu.label}: its legal clocks"):
            memory = nvml.nvmlDeviceGetSupportedMemoryClocks(gpu.handle)
            table = {
                int(mhz): frozenset(nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu.handle, mhz))
                for mhz in memory
            }
        if not any(table.values()):
            raise ClocksError(
                f"{gpu.label} lists no clocks", "check `nvidia-smi -q -d SUPPORTED_CLOCKS`"
            )
        return table

    def _check(self, setting: Setting) -> None:
        table = self._table()
        if setting.mem_mhz is not None and setting.mem_mhz not in table:
            offered = ", ".join(str(mhz) for mhz in sorted(table))
            raise IllegalClockError(f"memory {setting.mem_mhz:g} MHz: the GPU offers {offered}")
        if setting.core_mhz is None:
            return
        if setting.mem_mhz is not None:
            core = table[int(setting.mem_mhz)]
        else:
            core = frozenset().union(*table.values())
        if setting.core_mhz not in core:
            nearest = sorted(core, key=lambda mhz: abs(mhz - (setting.core_mhz or 0.0)))[:2]
            at_memory = "" if setting.mem_mhz is None else f" at memory {setting.mem_mhz:g} MHz"
            raise IllegalClockError(
                f"core {setting.core_mhz:g} MHz is not offered{at_memory}; the nearest: "
                f"{' and '.join(str(mhz) for mhz in sorted(nearest))}"
            )

    def _lock(self, locked: SetGpu[Gpu, Locks], setting: Setting) -> None:
        """Lock the requested clocks, and unlock others that this process locked."""
        before = locked.found or (False, False)
        locks = before[0] or setting.core_mhz is not None, before[1] or setting.mem_mhz is not None
        if not any(locks):
            return
        with signals_wait():
            locked.journal.hold()
            if locks != before:
                self._journal(locked, locks)
        nvml, gpu = self.library.nvml, locked.gpu
        try:
            if setting.mem_mhz is not None:
                mhz = round(setting.mem_mhz)
                self._call(gpu, f"memory {mhz} MHz", nvml.nvmlDeviceSetMemoryLockedClocks, mhz)
                before = before[0], True
            elif locks[1]:
                _raise(_reset(self.library, gpu, (False, True)))
            if setting.core_mhz is not None:
                mhz = round(setting.core_mhz)
                self._call(gpu, f"core {mhz} MHz", nvml.nvmlDeviceSetGpuLockedClocks, mhz)
            elif locks[0]:
                _raise(_reset(self.library, gpu, (True, False)))
        except (IllegalClockError, ClocksError):
            # A refused clock is not locked, so it need not be unlocked, which may fail too.
            locked.found = before
            raise

    def _journal(self, locked: SetGpu[Gpu, Locks], locks: Locks) -> None:
        core, mem = locks
        try:
            locked.journal.write([{"gpu": locked.gpu.uuid, "core": core, "mem": mem}])
        except BaseException:
            if not any(locked.found or ()):
                locked.journal.forget()
            raise
        locked.found = locks

    def _call(self, gpu: Gpu, request: str, function: Any, mhz: int) -> None:
        with as_refused(), self.library.explained(f"{gpu.label}: locking {request}"):
            function(gpu.handle, mhz, mhz)

    def _read_back(self, gpu: Gpu, setting: Setting, deadline_s: float) -> None:
        for name, kind, requested in (
            ("core", GRAPHICS, setting.core_mhz),
            ("memory", MEMORY, setting.mem_mhz),
        ):
            if requested is None:
                continue
            allowed = self.tolerance_pct / 100 * requested
            while abs((present_mhz := self.clocks.clock_mhz(gpu, kind)) - requested) > allowed:
                if time.monotonic() >= deadline_s:
                    reasons = frozenset(self.clocks.reasons(gpu)) - {"applications clocks"}
                    if present_mhz < requested and reasons:
                        break  # The GPU took it and is throttled; the state has the reasons.
                    raise IllegalClockError(
                        f"{gpu.label}: {name} {requested:g} MHz was requested, and it runs at "
                        f"{present_mhz:g} MHz"
                    )
                time.sleep(WAIT_S)


def open_control(site: ControlledSite, root: Path) -> Nvml:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no NVML, or not the selected GPU.
        ValueError: an option has a wrong value.
    """
    names = parse_options(site.clocks.options)
    log_left_over(root)
    return Nvml(root, *open_gpus(root, names), site.clocks.tolerance_pct)


def put_back(root: Path, entries: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`.

    Raises:
        KeyError, TypeError: an entry that this control cannot have written.
    """
    checked = []
    for entry in entries:
        uuid, core, mem = entry["gpu"], entry["core"], entry["mem"]
        if not isinstance(uuid, str) or not isinstance(core, bool) or not isinstance(mem, bool):
            raise TypeError("a GPU that is not text")
        checked.append((uuid, partial(_reset, locks=(core, mem)), "its clocks are unlocked"))
    return put_back_gpus(partial(reopened, root), checked)


def _reset(library: NvmlLibrary, gpu: Gpu, locks: Locks) -> list[GpuError]:
    """Remove the locks; a failure does not stop the others. Returns the failures."""
    errors: list[GpuError] = []
    nvml = library.nvml
    functions = nvml.nvmlDeviceResetGpuLockedClocks, nvml.nvmlDeviceResetMemoryLockedClocks
    for is_locked, function in zip(locks, functions, strict=True):
        if not is_locked:
            continue
        try:
            with library.explained(f"{gpu.label}: unlocking its clocks"):
                function(gpu.handle)
        except NvmlError as error:
            # A clock that cannot be locked has no lock to remove.
            if not error.is_unsupported:
                errors.append(error)
    return errors


def _raise(errors: Sequence[GpuError]) -> None:
    for error in errors:
        raise ClocksError(error.what, error.remedy)
