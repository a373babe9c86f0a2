"""By what right a control's clocks could be set here, found out without setting any."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FILES = {
    "cpufreq": ("sys/devices/system/cpu/cpu*/cpufreq/scaling_max_freq",),
    "uncore": ("sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz",),
    "jetson": ("sys/class/devfreq/*/max_freq",),
}
"""Control -> the files that it writes, of which each must be writable."""


ALWAYS = {
    "fixed": "nothing is set",
    "twin": "the machine is simulated",
    "slurm": "srun is asked for a clock with each step; what came of it is read back",
}
"""Controls that need no right here, and why."""


@dataclass(frozen=True)
class Right:
    """Whether a control can set clocks; ``why`` says by what right, or what is missing."""

    control: str
    can_set: bool
    why: str
    remedy: str = ""


def right_to_set(control: str, root: Path = Path("/")) -> Right:
    """What stands between this user and a control's clocks on this node."""
    if control in ALWAYS:
        return Right(control, True, ALWAYS[control])
    if control == "nvml":
        return _nvml(root)
    return _files(control, root)


def _files(control: str, root: Path) -> Right:
    found = [path for pattern in FILES[control] for path in sorted(root.glob(pattern))]
    if not found:
        return Right(control, False, f"{root / FILES[control][0]} does not exist")
    closed = [path for path in found if not os.access(path, os.W_OK)]
    if closed:
        return Right(
            control,
            False,
            f"{closed[0]} is not writable by this user",
            f"run as root, or as root: chgrp GROUP {closed[0].parent}/* && "
            f"chmod g+w {closed[0].parent}/*",
        )
    return Right(control, True, f"{len(found)} files are writable ({_who()})")


def _nvml(root: Path) -> Right:
    if not any(root.glob("dev/nvidia[0-9]*")):
        return Right("nvml", False, f"{root / 'dev/nvidia0'} does not exist: no NVIDIA GPU")
    if os.geteuid() != 0:
        return Right(
            "nvml",
            False,
            "NVML locks clocks for root only",
            "use the control 'slurm' with --gpu-freq where the cluster allows it, or ask the "
            "administrators for nvidia-smi --lock-gpu-clocks through sudo",
        )
    return Right("nvml", True, "root may lock GPU clocks")


def _who() -> str:
    return "as root" if os.geteuid() == 0 else f"as user {os.getuid()}"
