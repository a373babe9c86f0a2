"""The power limit of NVIDIA GPUs, set through NVML.

Functions: NVIDIA's NVML API reference (nvmlDeviceSetPowerManagementLimit, which needs root, and
nvmlDeviceGetPowerManagementLimitConstraints; in mW). A setting's ``power_limit_w`` is the limit of
each selected GPU, not of all together.

The limit in force is the enforced one (nvmlDeviceGetEnforcedPowerLimit): the lowest of this limit
and others, such as that of a module. Setting reads it back, and so does the state.

The limits found are kept to the mW and restored. Every GPU has its own journal and lock, so jobs on
other GPUs of the node do not interfere.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks.shared.control import ClocksError, ClockState, IllegalClockError, PowerLimitEntry
from sites.clocks.shared.description import ControlDescription, Right
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable
from sites.clocks.shared.journal import (
    Entry,
    Journal,
    PutBack,
    at_last,
    log_left_over,
    signals_wait,
)
from sites.clocks.shared.limited import is_limit, limit_of_all
from sites.clocks.shared.selected_gpus import (
    DEVICES,
    INVALID_ARGUMENT,
    open_gpus,
    parse_devices,
    put_back_gpus,
    right_of_root,
)
from sites.nvml_library import Gpu, NvmlError, NvmlLibrary

ABOUT = ControlDescription(
    control="nvml-power-limit",
    writes="no clock: the power limit of each NVIDIA GPU, as control of [power_limit]",
    needs="root",
    options=DEVICES,
    limits_power=True,
    sets_clocks=False,
)

SETTLE_S = 2.0
"""How long a GPU may take to enforce a limit."""
WAIT_S = 0.02


class LimitedGpu:
    """A GPU and its journal. ``found_mw``: the limit that it had; None while this process set
    none."""

    def __init__(self, root: Path, gpu: Gpu) -> None:
        self.gpu = gpu
        self.journal = Journal(root, ABOUT.control, gpu.uuid)
        self.found_mw: int | None = None

    def limit(self, library: NvmlLibrary, mw: int) -> None:
        """Record the limit found, and set another.

        Raises:
            IllegalClockError: the GPU refuses it.
            ClocksError: it cannot be recorded, read or set.
        """
        with signals_wait():
            for line in self.journal.hold():
                logging.getLogger(__name__).warning("%s", line)
            if self.found_mw is None:
                try:
                    with as_clocks_unavailable():
                        found_mw = _limit_mw(library, self.gpu)
                    self.journal.write([{"gpu": self.gpu.uuid, "found_mw": found_mw}])
                except BaseException:
                    self.journal.forget()
                    raise
                self.found_mw = found_mw
        try:
            _set(library, self.gpu, mw)
        except NvmlError as error:
            if error.code == INVALID_ARGUMENT:
                raise IllegalClockError(error.what) from None
            raise ClocksError(error.what, error.remedy) from None

    def restore(self, library: NvmlLibrary) -> list[NvmlError]:
        """Restore a limit that this process set, and remove the journal; returns the failure."""
        if not self.journal.held or self.found_mw is None:
            return []
        errors = _put_back(library, self.gpu, self.found_mw)
        if not errors:
            self.found_mw = None
            self.journal.forget()
        return errors


class NvmlPowerLimit:
    """Sets the power limit of some GPUs, each to the same."""

    def __init__(
        self, root: Path, library: NvmlLibrary, gpus: Sequence[Gpu], limits_w: Sequence[float]
    ) -> None:
        self.library = library
        self.gpus = [LimitedGpu(root, gpu) for gpu in gpus]
        self.limits_w = limits_w
        self.asked_w: float | None = None
        at_last(self, _give_up, library, self.gpus)

    def range_w(self) -> tuple[float, float]:
        """The lowest and the highest limit that every GPU offers, in W."""
        ranges_mw = [self._range_mw(limited.gpu) for limited in self.gpus]
        return max(low for low, _ in ranges_mw) / 1e3, min(high for _, high in ranges_mw) / 1e3

    def legal(self) -> list[Setting]:
        lowest_w, highest_w = self.range_w()
        return [Setting(power_limit_w=w) for w in self.limits_w if lowest_w <= w <= highest_w]

    def set(self, setting: Setting) -> None:
        limit_w = setting.power_limit_w
        if limit_w is None:
            self.restore()
            return
        lowest_w, highest_w = self.range_w()
        if not lowest_w <= limit_w <= highest_w:
            raise IllegalClockError(
                f"power limit {limit_w:g} W: the GPU offers {lowest_w:g} to {highest_w:g} W"
            )
        self.asked_w = limit_w
        for limited in self.gpus:
            limited.limit(self.library, round(limit_w * 1e3))
        deadline_s = time.monotonic() + SETTLE_S
        for limited in self.gpus:
            self._read_back(limited.gpu, limit_w, deadline_s)

    def state(self) -> ClockState:
        with as_clocks_unavailable():
            limits_w = [enforced_w(self.library, limited.gpu) for limited in self.gpus]
        return ClockState(Setting(power_limit_w=limit_of_all(limits_w, self.asked_w)))

    def restore(self) -> None:
        self.asked_w = None
        with signals_wait():
            failed = [error.what for one in self.gpus for error in one.restore(self.library)]
        if failed:
            raise ClocksError(
                "not restored: " + "; ".join(failed),
                "as root: `nvidia-smi --power-limit=WATTS`; `nvidia-smi -q -d POWER` has the "
                "default",
            )

    def _range_mw(self, gpu: Gpu) -> tuple[int, int]:
        nvml = self.library.nvml
        with as_clocks_unavailable(), self.library.explained(f"{gpu.label}: its power limits"):
            lowest, highest = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu.handle)
        return int(lowest), int(highest)

    def _read_back(self, gpu: Gpu, limit_w: float, deadline_s: float) -> None:
        while True:
            with as_clocks_unavailable():
                taken_w = enforced_w(self.library, gpu)
            if is_limit(taken_w, limit_w):
                return
            if time.monotonic() >= deadline_s:
                raise IllegalClockError(
                    f"{gpu.label}: power limit {limit_w:g} W was requested, and {taken_w:g} W is "
                    "enforced"
                )
            time.sleep(WAIT_S)


def enforced_w(library: NvmlLibrary, gpu: Gpu) -> float:
    """The limit in force, in W.

    Raises:
        NvmlError: the GPU does not report it.
    """
    with library.explained(f"{gpu.label}: its power limit"):
        return float(library.nvml.nvmlDeviceGetEnforcedPowerLimit(gpu.handle)) / 1e3


def rights(root: Path) -> Right:
    """Whether this user may set power limits of GPUs: NVML lets only root do so."""
    return right_of_root(
        ABOUT.control,
        root,
        "set power limits",
        "ask the administrators for nvidia-smi --power-limit through sudo",
    )


def open_control(limit: PowerLimitEntry, root: Path) -> NvmlPowerLimit:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no NVML, or not the selected GPU.
        ValueError: an unknown option, or one with a wrong value.
    """
    names = parse_options(limit.options)
    log_left_over(root)
    return NvmlPowerLimit(root, *open_gpus(root, names), limit.limits_w)


def parse_options(options: Mapping[str, Any]) -> list[int | str] | None:
    """The option ``devices``; None where it is not given."""
    return parse_devices(ABOUT, options)


def put_back(root: Path, found: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`.

    Raises:
        KeyError, TypeError: an entry that this control cannot have written.
    """
    entries = []
    for entry in found:
        uuid, mw = entry["gpu"], entry["found_mw"]
        if not isinstance(uuid, str) or type(mw) is not int:
            raise TypeError("a GPU that is not text, or a limit that is not a whole number")
        entries.append((uuid, partial(_put_back, mw=mw), f"its power limit is {mw / 1e3:g} W"))
    return put_back_gpus(root, entries)


def _limit_mw(library: NvmlLibrary, gpu: Gpu) -> int:
    with library.explained(f"{gpu.label}: its power limit"):
        return int(library.nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle))


def _set(library: NvmlLibrary, gpu: Gpu, mw: int) -> None:
    with library.explained(f"{gpu.label}: setting its power limit to {mw / 1e3:g} W"):
        library.nvml.nvmlDeviceSetPowerManagementLimit(gpu.handle, mw)


def _put_back(library: NvmlLibrary, gpu: Gpu, mw: int) -> list[NvmlError]:
    """Set the limit that was found and read it back; returns the failure."""
    try:
        if _limit_mw(library, gpu) == mw:
            return []
        _set(library, gpu, mw)
        taken_mw = _limit_mw(library, gpu)
    except NvmlError as error:
        return [error]
    if taken_mw != mw:
        what = f"{gpu.label}: its power limit was {mw / 1e3:g} W and is {taken_mw / 1e3:g} W now"
        return [NvmlError(what, "see `nvidia-smi -q -d POWER`")]
    return []


def _give_up(library: NvmlLibrary, gpus: Sequence[LimitedGpu]) -> None:
    with signals_wait():
        for limited in gpus:
            if limited.restore(library):
                limited.journal.let_go()
    library.close()
