"""What a setting is to save against another one: a promise that can be checked on jobs that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.candidates import SettingCandidates
from dvfs.setting import Setting


@dataclass(frozen=True)
class PromisedChange:
    """Energy saved and time added, in % of what the other setting takes: the median of the
    posterior, and its 95 % interval (low, high)."""

    saving_pct: float
    saving_pct_95: tuple[float, float]
    slowdown_pct: float
    slowdown_pct_95: tuple[float, float]

    @property
    def is_sure(self) -> bool:
        """Whether the saving is above 0 with 97.5 % probability."""
        return self.saving_pct_95[0] > 0.0


def promised_change(
    among: Sequence[SettingCandidates], setting: Setting, against: Setting
) -> PromisedChange | None:
    """What ``setting`` changes against ``against``, for a kernel or any of several.

    For several kernels the draws of all are pooled: the interval is of a kernel like these. None
    where a kernel has no energies at one of the two settings.
    """
    saving, slowdown = [], []
    for kernel in among:
        if setting not in kernel.settings or against not in kernel.settings:
            return None
        at, base = kernel.settings.index(setting), kernel.settings.index(against)
        saving.append(1.0 - kernel.energy_draws_j[at] / kernel.energy_draws_j[base])
        slowdown.append(kernel.time_draws_s[at] / kernel.time_draws_s[base] - 1.0)
    low, middle, high = np.percentile(np.concatenate(saving) * 100.0, [2.5, 50.0, 97.5])
    fast, likely, slow = np.percentile(np.concatenate(slowdown) * 100.0, [2.5, 50.0, 97.5])
    return PromisedChange(
        float(middle), (float(low), float(high)), float(likely), (float(fast), float(slow))
    )
