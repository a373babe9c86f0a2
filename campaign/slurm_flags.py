"""The Slurm flags that ask for a setting."""

from __future__ import annotations

from dvfs.setting import Setting


def slurm_flags(setting: Setting, device: str) -> str:
    """The flags of ``srun`` that ask for a setting."""
    from sites.clocks.slurm import step_flags  # noqa: PLC0415

    return " ".join(step_flags(setting, device))


def slurm_cannot_set(setting: Setting, device: str) -> str:
    """``mem_mhz`` where a setting has a memory clock that srun has no option for: the uncore clock
    of a CPU. Otherwise empty."""
    return "mem_mhz" if device == "cpu" and setting.mem_mhz is not None else ""
