"""Slurm's own clock control: each point is a job step that requests its setting.

``srun --cpu-freq`` takes kHz and ``--gpu-freq`` MHz (srun's manual). Slurm silently sets the
nearest possible value, and ignores the request if the node has no cpufreq. So the clock is read
back, and what the hardware reports is recorded beside what was requested.
"""

from __future__ import annotations

import os
from pathlib import Path

from sites.clocks.shared.control import (
    ClockNotLegal,
    ClockState,
    ControlDescription,
    ControlledSite,
    Right,
)
from sites.clocks.shared.cpufreq_reading import current_core_mhz
from sites.setting import Setting

ABOUT = ControlDescription(
    control="slurm",
    writes="nothing itself: srun --cpu-freq or --gpu-freq with each step",
    needs="a Slurm whose nodes let it set clocks",
    sets_clocks=False,
)


def step_flags(setting: Setting, device: str) -> list[str]:
    """The srun options that request a setting on a ``cpu`` or ``gpu`` site; none for AS_FOUND."""
    if device == "gpu":
        parts = [] if setting.core_mhz is None else [f"{setting.core_mhz:.0f}"]
        parts += [] if setting.mem_mhz is None else [f"memory={setting.mem_mhz:.0f}"]
        return ["--gpu-freq=" + ",".join(parts)] if parts else []
    return [] if setting.core_mhz is None else [f"--cpu-freq={setting.core_mhz * 1000:.0f}"]


class SlurmStep:
    """Inside a step: checks that the step has the setting's options, and reads the clock back."""

    def __init__(self, site: ControlledSite, root: Path) -> None:
        self.device = site.clocks.device
        self.root = root

    def set(self, setting: Setting) -> None:
        flags = step_flags(setting, self.device)
        if not flags:
            return
        name = {"gpu": "SLURMD_TRES_FREQ", "cpu": "SLURM_CPU_FREQ_REQ"}[self.device]
        requested = flags[0].partition("=")[2]
        value = os.environ.get(name)
        if value is None or value.removeprefix("gpu:") != requested:
            raise ClockNotLegal(
                f"{setting}: the step's environment has {name}={value!r} instead of "
                f"{requested!r}; is this process a job step?"
            )

    def legal(self) -> None:
        """Slurm does not report what it can set."""

    def state(self) -> ClockState:
        if self.device == "gpu":
            return ClockState()
        return ClockState(Setting(current_core_mhz(self.root, os.sched_getaffinity(0))))

    def restore(self) -> None:
        """Slurm resets the clocks when the step ends."""


def rights(root: Path) -> Right:
    """Slurm sets the clocks with its own rights."""
    return Right(
        "slurm",
        True,
        "srun requests a clock with each step, and the achieved clock is read back",
    )


def open_control(site: ControlledSite, root: Path) -> SlurmStep:
    """See :mod:`sites.clocks`."""
    return SlurmStep(site, root)
