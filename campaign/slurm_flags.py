"""The Slurm flags that ask for a setting."""

from __future__ import annotations

import math


def slurm_flags(core_mhz: float, mem_mhz: float, device: str) -> str:
    """The flags of ``srun`` that ask for a setting; NaN where there is no such clock."""
    from sites.clocks.slurm import step_flags  # noqa: PLC0415
    from sites.setting import Setting  # noqa: PLC0415

    core, mem = (None if math.isnan(mhz) else mhz for mhz in (core_mhz, mem_mhz))
    return " ".join(step_flags(Setting(core, mem), device))


def slurm_cannot_set(mem_mhz: float, device: str) -> str:
    """``mem_mhz`` where a setting has a memory clock that srun has no option for: the uncore clock
    of a CPU. Otherwise empty."""
    return "mem_mhz" if device == "cpu" and not math.isnan(mem_mhz) else ""
