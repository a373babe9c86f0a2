"""Settings with a power limit: the clock is then a result.

The posterior is of clocks without a limit. Under the limit L a kernel whose power is P(f) runs at
the highest core clock f up to the one asked for with

    P(f) <= c L,   or at the lowest clock where there is none: a limit is a request,

and its time and power are those of that clock, straight between clocks in logarithms; ``c`` is the
share of the limits that the rows drew which ran below their clock. A measurement counts at the
clock that it ran at. Where only the limit was swept no clock is known:
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
    """The S ``settings`` of a site, by the L ``clocks`` without a limit. ``reached``: the log of
    the share of a limit that is drawn under it, for a limit may be of a part of what is metered, or
    not be kept."""

    settings: Sequence[Setting]
    clocks: Sequence[Setting]
    reached: float = 0.0

    @classmethod
    def of(cls, settings: Sequence[Setting], data: Observations) -> PowerLimits | None:
        """None where no clock follows from a limit: there are no limits, or these alone differ.

        Raises:
            FitError: a row under a limit does not say at which clock it ran.
        """
        limited = [setting for setting in settings if setting.power_limit_w is not None]
        if not limited or len({setting.clocks for setting in settings}) == 1:
            return None
        if len({setting.profile for setting in settings}) > 1:
            raise FitError(
                f"{data.site} was measured under power limits at several clocks, and under several "
                f"profiles; import those of one profile, as a site of its own"
            )
        asked = number_columns(data.settings)[data.setting]
        if np.isnan(data.core_mhz[np.isfinite(asked[:, LIMIT])]).any() or not _shown(data, asked):
            raise FitError(
                f"{data.site} was measured under power limits at several clocks, and some rows do "
                f"not have the clock that they ran at; give it as core_mhz_achieved"
            )
        ran_at = by_clocks(data)
        clocks = {ran_at.settings[s].two_clocks for s in np.unique(ran_at.setting)}
        clocks |= {setting.two_clocks for setting in settings}
        held_down = np.isfinite(asked[:, LIMIT]) & (data.core_mhz < asked[:, 0])
        share = (data.energy_j / data.time_s / asked[:, LIMIT])[held_down]
        reached = float(np.log(np.median(share))) if len(share) else 0.0
        return cls(settings, sorted(clocks), reached)

    def rows(self, data: Observations) -> Observations:
        """The rows at the clocks that they ran at: ``settings`` are then ``clocks``."""
        core, mem = np.nan_to_num(clock_columns(self.clocks)).T
        setting = np.empty(len(data), np.int64)
        for mhz in np.unique(np.nan_to_num(data.mem_mhz)):
            line = np.flatnonzero(mem == mhz)
            rows = np.flatnonzero(np.nan_to_num(data.mem_mhz) == mhz)
            away = np.abs(np.log(data.core_mhz[rows, None] / core[line]))
            setting[rows] = line[np.argmin(away, axis=1)]
        return replace(data, setting=setting, settings=list(self.clocks))

    def volts(self, volts: Volts) -> Volts:
        """The voltages of ``clocks``, by those of the settings: straight between these."""
        known = {setting.two_clocks: of for setting, of in volts.items()}
        core = {clocks.core_mhz or 0.0: of[0] for clocks, of in sorted(known.items())}
        mem = {clocks.mem_mhz: of[1] for clocks, of in known.items()}
        return {
            one: known.get(one)
            or (
                float(np.interp(one.core_mhz or 0.0, list(core), list(core.values()))),
                mem[one.mem_mhz],
            )
            for one in self.clocks
        }

    def apply(self, log_s: np.ndarray, log_w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log times and log powers at ``settings``, (S, n) each, of those at ``clocks``, (L, n)."""
        core, mem = np.nan_to_num(clock_columns(self.clocks)).T
        n = np.arange(log_s.shape[1])
        of_time, of_power = np.empty((2, len(self.settings), len(n)))
        for s, setting in enumerate(self.settings):
            line = np.flatnonzero(
                (mem == (setting.clocks[1] or 0.0)) & (core <= (setting.core_mhz or 0.0))
            )
            line = line[np.argsort(core[line])]
            top = line[-1]
            of_time[s], of_power[s] = log_s[top], log_w[top]
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
            held = log_w[top] <= limit
            for of, log in ((of_time, log_s), (of_power, log_w)):
                between = log[line[low], n] + share * (log[line[high], n] - log[line[low], n])
                of[s] = np.where(held, of[s], between)
        return of_time, of_power


def _shown(data: Observations, asked: np.ndarray) -> bool:
    """Whether some row under a limit ran at another clock than it was asked for, or none would
    have to: its power is below the limit."""
    limited = np.isfinite(asked[:, LIMIT])
    moved = limited & (data.core_mhz != asked[:, 0])
    at_limit = limited & (data.energy_j / data.time_s >= asked[:, LIMIT])
    return bool(moved.any() or not at_limit.any())
