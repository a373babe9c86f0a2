"""The power limit of NVIDIA GPUs, set through NVML.

Functions: NVIDIA's NVML API reference (nvmlDeviceSetPowerManagementLimit, which needs root, and
nvmlDeviceGetPowerManagementLimitConstraints; in mW). A setting's ``power_limit_w`` is the limit of
each selected GPU, not of all together.

The limit in force is the enforced one (nvmlDeviceGetEnforcedPowerLimit): the lowest of this limit
and others, such as that of a module. Setting reads it back, and so does the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from sites.clocks.shared.control import ControlDescription, PowerLimitEntry
from sites.clocks.shared.gpu_power_limits import GpuPowerLimits, LimitLibrary, put_back_limits
from sites.clocks.shared.journal import Entry, PutBack, log_left_over
from sites.clocks.shared.selected_gpus import NVIDIA, open_gpus, reopened, right_of_root
from sites.nvml_library import DEVICES, Gpu, NvmlLibrary, parse_devices

ABOUT = ControlDescription(
    control="nvml-power-limit",
    writes="for [power_limit]: the power limit of NVIDIA GPUs",
    needs="root",
    options=DEVICES,
    axis="power_limit_w",
    sets_clocks=False,
)
parse_options = parse_devices
rights = partial(
    right_of_root,
    NVIDIA,
    ABOUT.control,
    "set power limits",
    "ask the administrators for nvidia-smi --power-limit through sudo",
)
NVML = LimitLibrary(
    ABOUT.control,
    "mw",
    "as root: `nvidia-smi --power-limit=WATTS`; `nvidia-smi -q -d POWER` has the default",
    "see `nvidia-smi -q -d POWER`",
)


class NvmlLimit:
    """See :class:`sites.clocks.shared.gpu_power_limits.GpuLimit`; in mW."""

    def __init__(self, library: NvmlLibrary, gpu: Gpu) -> None:
        self.library, self.gpu = library, gpu
        self.device, self.label = gpu.uuid, gpu.label

    def range(self) -> tuple[int, int]:
        nvml = self.library.nvml
        with self.library.explained(f"{self.label}: its power limits"):
            lowest, highest = nvml.nvmlDeviceGetPowerManagementLimitConstraints(self.gpu.handle)
        return int(lowest), int(highest)

    def found(self) -> int:
        with self.library.explained(f"{self.label}: its power limit"):
            return int(self.library.nvml.nvmlDeviceGetPowerManagementLimit(self.gpu.handle))

    def enforced(self) -> int:
        with self.library.explained(f"{self.label}: its power limit"):
            return int(self.library.nvml.nvmlDeviceGetEnforcedPowerLimit(self.gpu.handle))

    def set(self, value: int) -> None:
        with self.library.explained(f"{self.label}: setting its power limit to {value / 1e3:g} W"):
            self.library.nvml.nvmlDeviceSetPowerManagementLimit(self.gpu.handle, value)


def open_control(limit: PowerLimitEntry, root: Path) -> GpuPowerLimits:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no NVML, or not the selected GPU.
        ValueError: an option has a wrong value.
    """
    names = parse_options(limit.options)
    log_left_over(root)
    library, gpus = open_gpus(root, names)
    limits = [NvmlLimit(library, gpu) for gpu in gpus]
    return GpuPowerLimits(root, NVML, limits, limit.limits_w, library.close)


def put_back(root: Path, entries: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`.

    Raises:
        KeyError, TypeError: an entry that this control cannot have written.
    """
    return put_back_limits(NVML, entries, partial(reopened, root), NvmlLimit)
