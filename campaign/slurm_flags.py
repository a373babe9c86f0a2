"""The Slurm flags that ask for a setting."""

from __future__ import annotations

from dvfs.setting import Setting


def slurm_flags(setting: Setting, device: str) -> str:
    """The flags of ``srun`` that ask for a setting."""
    from sites.clocks.slurm import step_flags  # noqa: PLC0415

    return " ".join(step_flags(setting, device))
