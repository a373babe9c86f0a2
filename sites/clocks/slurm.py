"""Slurm's own clock control: each point is a job step that asks for its setting.

``srun --cpu-freq`` takes kHz and ``--gpu-freq`` MHz (srun's manual). Slurm picks the nearest
value it can set, silently, and ignores the request where the node has no cpufreq: only reading
back tells, so what the hardware reports is recorded beside what was asked for.
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
    """The srun options that ask for a setting on a ``cpu`` or ``gpu`` site; empty as found."""
    if device == "gpu":
        parts = [] if setting.core_mhz is None else [f"{setting.core_mhz:.0f}"]
        parts += [] if setting.mem_mhz is None else [f"memory={setting.mem_mhz:.0f}"]
        return ["--gpu-freq=" + ",".join(parts)] if parts else []
    return [] if setting.core_mhz is None else [f"--cpu-freq={setting.core_mhz * 1000:.0f}"]


class SlurmStep:
    """Inside a step: checks that the step was asked for the setting, and reads what came of it."""

    def __init__(self, site: ControlledSite, root: Path) -> None:
        self.device = site.clocks.device
        self.root = root

    def set(self, setting: Setting) -> None:
        flags = step_flags(setting, self.device)
        if not flags:
            return
        name = {"gpu": "SLURMD_TRES_FREQ", "cpu": "SLURM_CPU_FREQ_REQ"}[self.device]
        asked = flags[0].partition("=")[2]
        found = os.environ.get(name)
        if found is None or found.removeprefix("gpu:") != asked:
            raise ClockNotLegal(
                f"{setting}: the step's environment has {name}={found!r} where {asked!r} was "
                f"asked for; is this process a job step?"
            )

    def legal(self) -> None:
        """Slurm tells nobody what it can set."""

    def state(self) -> ClockState:
        if self.device == "gpu":
            return ClockState()
        return ClockState(Setting(current_core_mhz(self.root, os.sched_getaffinity(0))))

    def restore(self) -> None:
        """Slurm resets the clocks when the step ends."""


def rights(root: Path) -> Right:
    """Slurm sets the clocks, with rights of its own."""
    return Right(
        "slurm",
        True,
        "srun is asked for a clock with each step, and the achieved clock is read back",
    )


def open_control(site: ControlledSite, root: Path) -> SlurmStep:
    """See :mod:`sites.clocks`."""
    return SlurmStep(site, root)
