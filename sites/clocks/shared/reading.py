"""Read the clocks of a node whose control does not set them: as found, or set by Slurm."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.shared.control import ClocksError, ClockState
from sites.clocks.shared.core_clock import open_core_clock


def open_reading(device: str, root: Path) -> Callable[[], ClockState]:
    """Return a function that reads the present clocks of a device, ``cpu`` or ``gpu``.

    The state is empty where no clock can be read; this is no error.
    """
    if device == "gpu":
        from sites.clocks.shared.gpu_clocks import open_gpu_clocks  # noqa: PLC0415

        gpus = open_gpu_clocks(root)
        if gpus is None:
            return ClockState

        def read_gpus() -> ClockState:
            with suppress(ClocksError):
                return gpus.state()
            return ClockState()

        return read_gpus
    core = open_core_clock(root, os.sched_getaffinity(0))

    def read_cpus() -> ClockState:
        return ClockState(Setting(core.mhz()), source=core.source)

    return read_cpus


class ReadClocks:
    """Reads the clocks, for controls that do not set them."""

    def __init__(self, root: Path, device: str = "cpu") -> None:
        self.device = device
        self._read = open_reading(device, root)

    def state(self) -> ClockState:
        return self._read()

    def restore(self) -> None:
        """This process set nothing."""
