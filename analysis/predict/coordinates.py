"""What the posterior takes for the two clocks of a setting.

They are the clocks where these differ. A limit that alone was swept takes the core clock's place,
which it throttles; a profile multiplies it by how fast kernels ran under it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.measurements.observations import Observations
from dvfs.setting import NUMBERS, Setting, clock_columns, number_columns


def coordinates(settings: Sequence[Setting], data: Observations) -> np.ndarray:
    """What the model takes for the core and the memory clock, float64 (settings, 2), NaN for none.

    The clocks, or where these are one pair, the power limits; the first of them times the speed of
    the profile, for what a profile does to the clock is not known (:func:`profile_speeds`).
    """
    core_mhz, mem_mhz = clock_columns(settings).T
    limit_w = number_columns(settings)[:, NUMBERS.index("power_limit_w")]
    if len({setting.clocks for setting in settings}) == 1 and not np.isnan(limit_w).all():
        # Without a limit a device has its default one, the highest.
        core_mhz = np.where(np.isnan(limit_w), np.nanmax(limit_w), limit_w)
        mem_mhz = np.full(len(settings), np.nan)
    speeds = profile_speeds(data)
    if len(speeds) > 1:
        usual = float(np.exp(np.mean(np.log(list(speeds.values())))))
        speed = [speeds.get(setting.profile, usual) for setting in settings]
        core_mhz = np.where(np.isnan(core_mhz), 1.0, core_mhz) * np.array(speed)
    return np.column_stack([core_mhz, mem_mhz])


def profile_speeds(data: Observations) -> dict[str | None, float]:
    """Profile -> how fast kernels ran under it, 1 for the fastest: exp(b_p) of the least squares
    log t = a_kc - b_p over the rows of kernels k at the clocks and limits c."""
    profiles = sorted({one.profile or "" for one in data.settings})
    if len(profiles) < 2:
        return dict.fromkeys([name or None for name in profiles], 1.0)
    others = [replace(one, profile=None) for one in data.settings]
    number = {one: i for i, one in enumerate(dict.fromkeys(others))}
    group = data.kernel * len(number) + np.array([number[one] for one in others])[data.setting]
    _, group = np.unique(group, return_inverse=True)
    rows = np.bincount(group)
    of = np.array([profiles.index(one.profile or "") for one in data.settings])[data.setting]
    columns = np.column_stack([-np.log(data.time_s), *(of == p for p in range(len(profiles)))])
    means = np.stack([np.bincount(group, column) / rows for column in columns.T], axis=1)
    speed, *profile = (columns - means[group]).T
    log_speed = np.linalg.lstsq(np.stack(profile, axis=1), speed, rcond=None)[0]
    relative = np.exp(log_speed - log_speed.max()).tolist()
    return {name or None: own for name, own in zip(profiles, relative, strict=True)}
