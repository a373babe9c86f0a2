"""Slurm's clock control: the points of a setting are measured in a job step that requests it.

``srun --cpu-freq`` takes kHz and ``--gpu-freq`` MHz (srun's manual). Slurm silently sets the next
higher clock that the node lists, and ignores the request if the node has no cpufreq, or no plugin
for its GPUs. The step's environment has the request even then: it proves nothing. So the clock is
read inside the step, as the other controls read it, and the output of srun and its helper
slurmstepd is searched for refusals.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from dvfs.setting import AS_FOUND, Setting
from sites.clocks.shared.control import ControlDescription, ControlledSite, IllegalClockError, Right
from sites.clocks.shared.reading import ReadClocks

ABOUT = ControlDescription(
    control="slurm",
    writes="nothing itself: srun --cpu-freq or --gpu-freq",
    needs="a Slurm that sets clocks",
    sets_clocks=False,
)


REFUSAL = re.compile(
    r"^.*(?:GpuFreq=control_disabled|Could not set frequencies for all GPUs"
    r"|Failed to set (?:(?:GPU|memory|graphic|memory and graphics)(?: clock)? frequency"
    r"|frequency range)"
    r"|Can not set (?:CPU governor|scaling_)|error: .*Could not (?:open|read) scaling_"
    r"|error: Rounding requested frequency|(?:Invalid|unrecognized) --[cg]pu-freq argument"
    r"|governor of .* is not allowed).*$",
    re.MULTILINE,
)
"""Lines of a step's output by which Slurm says that it does not set the clock. Their texts:
src/plugins/gpu/{generic,nvml,rsmi,oneapi}, src/common/{cpu_frequency,slurm_opt}.c of Slurm."""


def refusal(output: str) -> str | None:
    """The line of a step's output that says that Slurm did not set the clock; None if none does."""
    line = REFUSAL.search(output)
    return None if line is None else line[0].strip()


def step_flags(setting: Setting, device: str) -> list[str]:
    """The srun options that request a setting on a ``cpu`` or ``gpu`` site; none for AS_FOUND.

    For a GPU both clocks are always requested; one that the setting lacks is requested as ``high``,
    Slurm's default (slurm.conf's manual, GpuFreqDef): several versions of Slurm set no clock where
    one is missing (src/plugins/gpu/nvml; repaired in 23.02.3 and 26.05 by their changelogs).
    """
    if device == "gpu":
        if setting.clocks == AS_FOUND.clocks:
            return []
        core, mem = (
            "high" if mhz is None else f"{mhz:.0f}" for mhz in (setting.core_mhz, setting.mem_mhz)
        )
        return [f"--gpu-freq={core},memory={mem}"]
    return [] if setting.core_mhz is None else [f"--cpu-freq={setting.core_mhz * 1000:.0f}"]


LOCKS_CLOCKS = (26, 5)
"""The first version of Slurm whose --gpu-freq locks NVIDIA's clocks (CHANGELOG of 26.05)."""


def what_flags_set(version: str, device: str) -> str:
    """The effect of srun's option for clocks, a sentence; ``version``: from ``srun --version``."""
    if device == "cpu":
        return "--cpu-freq writes the governor and clocks of cpufreq for the step's CPUs"
    number = re.search(r"(\d+)\.(\d+)", version)
    if number is None or (int(number[1]), int(number[2])) < LOCKS_CLOCKS:
        return (
            "--gpu-freq sets application clocks of NVIDIA GPUs, which NVML deprecates; from Slurm "
            "26.05 on it locks clocks"
        )
    return "--gpu-freq locks the graphics and memory clocks of NVIDIA GPUs"


class SlurmStep(ReadClocks):
    """Inside a step: checks that the step has the setting's options, and reads the clocks.

    Slurm does not report what it can set, and resets the clocks when the step ends.
    """

    def legal(self) -> None:
        """None: the legal settings of the node are unknown."""

    def set(self, setting: Setting) -> None:
        flags = step_flags(setting, self.device)
        if not flags:
            return
        name = {"gpu": "SLURMD_TRES_FREQ", "cpu": "SLURM_CPU_FREQ_REQ"}[self.device]
        requested = flags[0].partition("=")[2]
        value = os.environ.get(name)
        if value is None or value.removeprefix("gpu:") != requested:
            raise IllegalClockError(
                f"{setting}: the step's environment has {name}={value!r} instead of "
                f"{requested!r}; is this process a job step?"
            )


def rights(root: Path) -> Right:
    """Granted: Slurm sets the clocks with its rights; only a step shows whether it does."""
    return Right("slurm", True, "srun asks for a clock with each step")


def open_control(site: ControlledSite, root: Path) -> SlurmStep:
    """See :mod:`sites.clocks`."""
    return SlurmStep(root, site.clocks.device)


def slurm_flags(setting: Setting, device: str) -> str:
    """The flags of ``srun`` that request a setting."""
    return " ".join(step_flags(setting, device))


def slurm_cannot_set(setting: Setting, device: str) -> str:
    """The first field of a setting that srun cannot set: ``profile``, ``power_limit_w``, or of a
    CPU ``uncore_mhz`` or ``mem_mhz``. Empty where srun can set the whole setting."""
    axes = ("profile", "power_limit_w", *(("uncore_mhz", "mem_mhz") if device == "cpu" else ()))
    return next((axis for axis in axes if getattr(setting, axis) is not None), "")
