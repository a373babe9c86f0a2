"""The power limits in force on a node, whoever set them."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

from sites.amdsmi_library import AmdsmiError
from sites.amdsmi_library import find_gpus as find_amd_gpus
from sites.amdsmi_library import open_library as open_amdsmi
from sites.clocks import ClocksError
from sites.clocks.amdsmi_power_cap import AmdsmiLimit
from sites.clocks.nvml_power_limit import NvmlLimit
from sites.clocks.powercap import find_packages
from sites.nvml_library import NvmlError, find_gpus, open_library


def power_limits_w(root: Path = Path("/")) -> dict[str, float]:
    """Device -> its power limit in W.

    A usable GPU (``gpu-N``) has the limit that NVML enforces, or AMD SMI's power cap; a processor
    package (``package-N``) has RAPL's long-term limit. Devices without a readable limit in force
    are left out."""
    return (_nvidia_limits_w(root) or _amd_limits_w()) | _package_limits_w(root)


def _nvidia_limits_w(root: Path) -> dict[str, float]:
    limits = {}
    with suppress(NvmlError), closing(open_library(root)) as library:
        for gpu in find_gpus(library):
            with suppress(NvmlError):
                limits[f"gpu-{gpu.index}"] = NvmlLimit(library, gpu).enforced() / 1e3
    return limits


def _amd_limits_w() -> dict[str, float]:
    limits: dict[str, float] = {}
    with suppress(AmdsmiError), closing(open_amdsmi()) as library:
        for gpu in find_amd_gpus(library):
            with suppress(AmdsmiError):
                limits[f"gpu-{gpu.index}"] = AmdsmiLimit(library, gpu).found() / 1e6
    return limits


def _package_limits_w(root: Path) -> dict[str, float]:
    with suppress(ClocksError):
        limits_w = {limit.package: limit.in_force_w(root) for limit in find_packages(root)}
        return {package: limit_w for package, limit_w in limits_w.items() if limit_w is not None}
    return {}
