"""The clocks of NVIDIA GPUs as NVML reports them. Any user may read them.

Functions and bits: NVIDIA's NVML API reference (nvmlDeviceGetClockInfo gives the present clock,
not the requested one).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks.shared.control import ClocksError, ClockState, IllegalClockError
from sites.gpu_error import GpuError, closed_on_error
from sites.nvml_library import Gpu, NvmlError, NvmlLibrary, find_gpus, open_library

GRAPHICS, SM, MEMORY = 0, 1, 2
"""nvmlClockType_t"""
GPU_TEMPERATURE = 0
"""nvmlTemperatureSensors_t"""
REASONS = {
    0x1: "idle",
    0x2: "applications clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
"""Bit of nvmlDeviceGetCurrentClocksEventReasons -> its meaning."""
NO_THROTTLE = {"idle", "applications clocks"}
"""Reasons that are not throttling: no work, and the lock itself."""


class GpuClocks:
    """Reads the clocks of some GPUs."""

    def __init__(self, library: NvmlLibrary, gpus: Sequence[Gpu]) -> None:
        self.library = library
        self.gpus = tuple(gpus)

    def state(self) -> ClockState:
        """The mean clocks of the streaming multiprocessors and of the memories.

        Raises:
            ClocksError: NVML does not report them.
        """
        core = [self.clock_mhz(gpu, SM) for gpu in self.gpus]
        mem = [self.clock_mhz(gpu, MEMORY) for gpu in self.gpus]
        reasons = {word for gpu in self.gpus for word in self.reasons(gpu)}
        temperatures = [t for gpu in self.gpus if (t := self._temperature_c(gpu)) is not None]
        return ClockState(
            Setting(sum(core) / len(core), sum(mem) / len(mem)),
            source="NVML",
            apart_pct=max(_apart_pct(core), _apart_pct(mem)),
            throttled=tuple(sorted(reasons - NO_THROTTLE)),
            temperature_c=max(temperatures, default=None),
        )

    def clock_mhz(self, gpu: Gpu, kind: int) -> float:
        """The present clock of one kind."""
        with as_clocks_unavailable(), self.library.explained(f"{gpu.label}: its clocks"):
            return float(self.library.nvml.nvmlDeviceGetClockInfo(gpu.handle, kind))

    def reasons(self, gpu: Gpu) -> list[str]:
        """The reasons that NVML gives for the present clocks, in words."""
        nvml = self.library.nvml
        for name in ("Event", "Throttle"):  # drivers before 535 have only the older name
            function: Any = getattr(nvml, f"nvmlDeviceGetCurrentClocks{name}Reasons", None)
            if function is None:
                continue
            try:
                with self.library.explained(f"{gpu.label}: its throttle reasons"):
                    bits = int(function(gpu.handle))
            except NvmlError as error:
                if error.is_unsupported:
                    continue
                raise ClocksError(error.what, error.remedy) from None
            words = [word for bit, word in REASONS.items() if bits & bit]
            unnamed = bits & ~sum(REASONS)
            return [*words, f"reason {unnamed:#x}"] if unnamed else words
        return []

    def _temperature_c(self, gpu: Gpu) -> float | None:
        with suppress(NvmlError), self.library.explained(gpu.label):
            return float(self.library.nvml.nvmlDeviceGetTemperature(gpu.handle, GPU_TEMPERATURE))
        return None


def _apart_pct(mhz: Sequence[float]) -> float:
    """The difference between the lowest and the highest clock, in % of the highest."""
    return 100.0 * (1.0 - min(mhz) / max(mhz)) if max(mhz) else 0.0


def open_gpu_clocks(root: Path) -> GpuClocks | None:
    """The clocks of the GPUs that this process may use; None where NVML cannot be used."""
    with suppress(NvmlError, ClocksError):
        library = open_library(root)
        with closed_on_error(library):
            clocks = GpuClocks(library, find_gpus(library))
            clocks.state()
        weakref.finalize(clocks, library.close)
        return clocks
    return None


@contextmanager
def as_clocks_unavailable() -> Iterator[None]:
    """Turn GpuError in the body into ClocksError."""
    try:
        yield
    except GpuError as error:
        raise ClocksError(error.what, error.remedy) from None


@contextmanager
def as_refused() -> Iterator[None]:
    """Turn GpuError in the body, which sets a value, into IllegalClockError where the GPU does not
    offer the value, else into ClocksError."""
    try:
        yield
    except GpuError as error:
        if error.is_illegal:
            raise IllegalClockError(error.what) from None
        raise ClocksError(error.what, error.remedy) from None
