"""Settings with a power limit, under which the clock is a result.

The posterior is of clocks without a limit. Under the limit L a kernel with power P(f) runs at the
highest core clock f, up to the requested one, with

    P(f) <= c L,   or at the lowest clock where there is none: a limit is a request,

and has the time and power at that clock, interpolated linearly in logarithms between clocks; ``c``
is the share of the limit that the rows drew which ran below their requested clock. A measurement
counts at the clock that it ran at. Where only limits differ no clock is known:
:mod:`analysis.predict.site`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.measurements.observations import FitError, Observations, by_clocks
from dvfs.setting import NUMBERS, Setting, Volts, clock_columns, number_columns

LIMIT = NUMBERS.index("power_limit_w")


@dataclass(frozen=True)
class PowerLimits:
    """The S ``settings`` of a site, and the L ``clocks`` without a limit from which they follow.
    ``reached``: the log of the share of a limit that is drawn under it: a limit may apply to a part
    of the metered power, or be exceeded."""

    settings: Sequence[Setting]
    clocks: Sequence[Setting]
    reached: float = 0.0

    @classmethod
    def of(cls, settings: Sequence[Setting], data: Observations) -> PowerLimits | None:
        """Return None where no clock follows from a limit: without limits, or if only these differ.

        Raises:
            FitError: a row under a limit does not have the clock that it ran at.
        """
        limited = [setting for setting in settings if setting.power_limit_w is not None]
        if not limited or len({setting.clocks for setting in settings}) == 1:
            return None
        if len({setting.profile for setting in settings}) > 1:
            raise FitError(
                f"{data.site} was measured under power limits at several clocks, and under several "
                f"profiles; import those of one profile, as a site of its own"
            )
        requested = number_columns(data.settings)[data.setting]
        limited_mhz = data.core_mhz[np.isfinite(requested[:, LIMIT])]
        if np.isnan(limited_mhz).any() or not _shown(data, requested):
            raise FitError(
                f"{data.site} was measured under power limits at several clocks, and some rows do "
                f"not have the clock that they ran at; give it as core_mhz_achieved"
            )
        ran_at = by_clocks(data)
        clocks = {ran_at.settings[s].two_clocks for s in np.unique(ran_at.setting)}
        clocks |= {setting.two_clocks for setting in settings}
        held_down = np.isfinite(requested[:, LIMIT]) & (data.core_mhz < requested[:, 0])
        share = (data.energy_j / data.time_s / requested[:, LIMIT])[held_down]
        reached = float(np.log(np.median(share))) if len(share) else 0.0
        return cls(settings, sorted(clocks), reached)

    def rows(self, data: Observations) -> Observations:
        """Return the rows at the clocks that they ran at: their settings are ``clocks``."""
        core, mem = np.nan_to_num(clock_columns(self.clocks)).T
        setting = np.empty(len(data), np.int64)
        for mhz in np.unique(np.nan_to_num(data.mem_mhz)):
            line = np.flatnonzero(mem == mhz)
            rows = np.flatnonzero(np.nan_to_num(data.mem_mhz) == mhz)
            distance = np.abs(np.log(data.core_mhz[rows, None] / core[line]))
            setting[rows] = line[np.argmin(distance, axis=1)]
        return replace(data, setting=setting, settings=list(self.clocks))

    def volts(self, volts: Volts) -> Volts:
        """Return the voltages of ``clocks``, interpolated linearly between the settings'."""
        pairs = {setting.two_clocks: pair for setting, pair in volts.items()}
        core = {clocks.core_mhz or 0.0: pair[0] for clocks, pair in sorted(pairs.items())}
        mem = {clocks.mem_mhz: pair[1] for clocks, pair in pairs.items()}
        return {
            clocks: pairs.get(clocks)
            or (
                float(np.interp(clocks.core_mhz or 0.0, list(core), list(core.values()))),
                mem[clocks.mem_mhz],
            )
            for clocks in self.clocks
        }

    def apply(self, log_s: np.ndarray, log_w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log times and log powers at ``settings``, (S, n), from those at ``clocks``,
        (L, n)."""
        core, mem = np.nan_to_num(clock_columns(self.clocks)).T
        n = np.arange(log_s.shape[1])
        limited_s, limited_w = np.empty((2, len(self.settings), len(n)))
        for s, setting in enumerate(self.settings):
            line = np.flatnonzero(
                (mem == (setting.clocks[1] or 0.0)) & (core <= (setting.core_mhz or 0.0))
            )
            line = line[np.argsort(core[line])]
            top = line[-1]
            limited_s[s], limited_w[s] = log_s[top], log_w[top]
            if setting.power_limit_w is None:
                continue
            limit = np.log(setting.power_limit_w) + self.reached
            within = log_w[line] <= limit
            # The highest clock within the limit; the lowest where none is.
            low = len(line) - 1 - np.argmax(within[::-1], axis=0)
            low = np.where(within.any(axis=0), low, 0)
            high = np.minimum(low + 1, len(line) - 1)
            a, b = log_w[line[low], n], log_w[line[high], n]
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(b > limit, np.clip((limit - a) / (b - a), 0.0, 1.0), 0.0)
            is_within = log_w[top] <= limit
            for limited, log in ((limited_s, log_s), (limited_w, log_w)):
                between = log[line[low], n] + share * (log[line[high], n] - log[line[low], n])
                limited[s] = np.where(is_within, limited[s], between)
        return limited_s, limited_w


def _shown(data: Observations, requested: np.ndarray) -> bool:
    """Return whether some row under a limit ran at another clock than the requested one, or the
    power of every such row is below its limit."""
    limited = np.isfinite(requested[:, LIMIT])
    moved = limited & (data.core_mhz != requested[:, 0])
    at_limit = limited & (data.energy_j / data.time_s >= requested[:, LIMIT])
    return bool(moved.any() or not at_limit.any())
