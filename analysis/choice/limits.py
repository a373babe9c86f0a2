"""Limits of a pick: how much slower than the fastest setting it may be, and its mean power."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.measurements.observations import FitError, setting_text
from dvfs.setting import Setting


class LimitsError(FitError):
    """No setting of a kernel keeps the limits: ``least_w`` is the least mean power, that of
    ``setting``, of those that are not too slow. ``label``: the kernel's."""

    def __init__(
        self,
        label: str,
        least_w: float,
        setting: Setting,
        max_slowdown: float | None,
        max_power_w: float,
    ) -> None:
        self.label, self.least_w, self.setting = label, least_w, setting
        super().__init__(
            f"{label}: no setting{not_too_slow(max_slowdown)} has a mean power of at most "
            f"{max_power_w:g} W; the least is {self.least_text}"
        )

    @property
    def least_text(self) -> str:
        """The least mean power and its setting."""
        return f"{rounded_up(self.least_w):g} W at {setting_text(self.setting)}"


def not_too_slow(max_slowdown: float | None) -> str:
    """Which settings a limit on the slowdown leaves, in words; empty without one."""
    if max_slowdown is None:
        return ""
    return f" at most {max_slowdown * 100:g} % slower than the fastest"


def rounded_up(watts: float) -> float:
    """A power to four digits, rounded up: a limit that it keeps."""
    if not (math.isfinite(watts) and watts > 0):
        return watts
    digits = 3 - math.floor(math.log10(watts))
    return round(math.ceil(watts * 10.0**digits) / 10.0**digits, max(0, digits))


def within_limits(
    label: str,
    settings: Sequence[Setting],
    energy_j: np.ndarray,
    time_s: np.ndarray,
    max_slowdown: float | None,
    max_power_w: float | None,
) -> np.ndarray:
    """Which settings keep the limits: bool (settings,). ``energy_j``, ``time_s``: of each.

    Raises:
        LimitsError: none does.
    """
    allowed = np.ones(len(time_s), bool)
    if max_slowdown is not None:
        allowed &= time_s <= time_s.min() * (1.0 + max_slowdown)
    if max_power_w is None:
        return allowed
    power_w = energy_j / time_s
    kept: np.ndarray = allowed & (power_w <= max_power_w)
    if not kept.any():
        least = int(np.argmin(np.where(allowed, power_w, np.inf)))
        raise LimitsError(label, float(power_w[least]), settings[least], max_slowdown, max_power_w)
    return kept
