"""The power cap of AMD GPUs, set through ROCm's package ``amdsmi``. Not tried with a GPU.

Functions: the AMD SMI Python API reference (amdsmi_set_power_cap, which needs root, and
amdsmi_get_power_cap_info; in uW, of sensor 0). A setting's ``power_limit_w`` is the cap of each
selected GPU, of an MI250 that of the card. The driver keeps whole watts (amdgpu_hwmon_set_power_cap
in Linux's amdgpu_pm.c).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from sites.amdsmi_library import DEVICES, AmdGpu, AmdsmiLibrary, parse_devices, unsupported
from sites.clocks.shared.control import ControlDescription, PowerLimitEntry
from sites.clocks.shared.gpu_power_limits import GpuPowerLimits, LimitLibrary, put_back_limits
from sites.clocks.shared.journal import Entry, PutBack, log_left_over
from sites.clocks.shared.selected_amd_gpus import bus_address, open_gpus, reopened
from sites.clocks.shared.selected_gpus import AMD, right_of_root

ABOUT = ControlDescription(
    control="amdsmi-power-cap",
    writes="for [power_limit]: the power cap of AMD GPUs (not tried with a GPU)",
    needs="ROCm's package amdsmi; root",
    options=DEVICES,
    axis="power_limit_w",
    sets_clocks=False,
)
parse_options = parse_devices
rights = partial(
    right_of_root,
    AMD,
    ABOUT.control,
    "set power caps",
    "ask the administrators for amd-smi set --power-cap through sudo",
)
AMDSMI = LimitLibrary(
    ABOUT.control,
    "uw",
    "as root: `amd-smi set --power-cap WATTS`; `amd-smi static --limit` has the default",
    "see `amd-smi static --limit`",
)


class AmdsmiLimit:
    """See :class:`sites.clocks.shared.gpu_power_limits.GpuLimit`; in uW."""

    def __init__(self, library: AmdsmiLibrary, gpu: AmdGpu) -> None:
        self.library, self.gpu = library, gpu
        self.device, self.label = bus_address(library, gpu), gpu.label

    def range(self) -> tuple[int, int]:
        return self._read("min_power_cap", lowest=0), self._read("max_power_cap")

    def found(self) -> int:
        return self._read("power_cap")

    enforced = found

    def set(self, value: int) -> None:
        with self.library.explained(f"{self.label}: setting its power cap to {value / 1e6:g} W"):
            self.library.amdsmi.amdsmi_set_power_cap(self.gpu.handle, 0, value)

    def _read(self, key: str, lowest: int = 1) -> int:
        with self.library.explained(f"{self.label}: its power cap"):
            uw = self.library.amdsmi.amdsmi_get_power_cap_info(self.gpu.handle).get(key)
        if type(uw) is not int or uw < lowest:
            raise unsupported(f"{self.label}: its {key} is {uw!r}")
        return uw


def open_control(limit: PowerLimitEntry, root: Path) -> GpuPowerLimits:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ClocksError: there is no AMD SMI, or not the selected GPU.
        ValueError: an option has a wrong value.
    """
    indices = parse_options(limit.options)
    log_left_over(root)
    library, limits = open_gpus(indices, AmdsmiLimit)
    return GpuPowerLimits(root, AMDSMI, limits, limit.limits_w, library.close)


def put_back(root: Path, entries: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`.

    Raises:
        KeyError, TypeError: an entry that this control cannot have written.
    """
    del root  # AMD SMI finds its library itself.
    return put_back_limits(AMDSMI, entries, reopened, AmdsmiLimit)
