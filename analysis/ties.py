"""Ties: settings that rounding alone, or the noise of repeats alone, tells from each other.

By rounding: of numbers that differ by the last digits of a sum the first is taken, on any
processor.

By noise: two measured times that differ by less than 1.96 standard errors of their difference are
tied: the noise of repeats gives such a difference in one of twenty pairs of equal times. The
standard error of a mean of n repeats is the noise of one measurement over sqrt(n). Of the settings
that are tied with the least time, the one with the highest clocks is the fastest, the core clock
first, and no power limit or the highest: the one that a user who runs as fast as possible would
set, whatever the noise of this campaign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.measurements.observations import Observations, kernel_names, kernel_numbers
from dvfs.setting import Setting

TIE = 1e-9
"""Numbers that differ by less than this, relative to the least, are the same but for rounding."""
TIED = 1.96
"""Times that differ by less than so many standard errors are equal."""


def first_least(values: np.ndarray) -> np.ndarray:
    """Along the first axis, the index of the first value that is not above the least but for
    rounding: int64 of the shape of the other axes. NaN counts as larger than any number."""
    known = np.where(np.isnan(values), np.inf, values)
    least = known.min(axis=0)
    with np.errstate(invalid="ignore"):  # of infinities alone the first is taken
        return np.asarray((known <= least + TIE * np.abs(least)).argmax(axis=0))


def time_noise(data: Observations, once: float = 0.0) -> dict[str, float]:
    """Kernel -> the relative standard deviation of one measurement of its time.

    That of its repeats at the same settings; of a kernel without repeats that of all kernels;
    where there are none at all, ``once``.
    """
    labels, number = kernel_names(data), kernel_numbers(data)
    cell = number * len(data.settings) + data.setting
    n = np.bincount(cell, minlength=len(labels) * len(data.settings))
    mean_s = np.bincount(cell, data.time_s, len(n)) / np.maximum(n, 1)
    squares = np.bincount(number, (data.time_s / mean_s[cell] - 1.0) ** 2, len(labels))
    freedom = np.maximum(n - 1, 0).reshape(len(labels), -1).sum(axis=1)
    if not freedom.any():
        return dict.fromkeys(labels, once)
    of_all = squares.sum() / freedom.sum()
    variance = np.where(freedom > 0, squares / np.maximum(freedom, 1), of_all)
    return dict(zip(labels, np.sqrt(variance).tolist(), strict=True))


def equally_fast(time_s: np.ndarray, error_s: np.ndarray) -> np.ndarray:
    """bool (settings,): those that are tied with the least time; ``error_s``: standard errors."""
    least = int(np.argmin(time_s))
    return np.asarray(time_s - time_s[least] <= TIED * np.hypot(error_s, error_s[least]))


def highest(settings: Sequence[Setting], among: np.ndarray, time_s: np.ndarray) -> int:
    """The index of the highest clocks of those ``among``, bool (settings,), core clock first; of
    the same clocks, that of the highest power limit, of which none is the highest; then, as
    profiles have no order, that of the least time, float64 (settings,)."""

    def place(i: int) -> tuple[float, ...]:
        *clocks, limit_w = settings[i].numbers
        return *(mhz or 0.0 for mhz in clocks), limit_w or math.inf, -float(time_s[i])

    return max(np.flatnonzero(among).tolist(), key=place)


def fastest(settings: Sequence[Setting], time_s: np.ndarray, error_s: np.ndarray) -> int:
    """The index of the fastest setting; ``time_s``, ``error_s``: float64 (settings,)."""
    return highest(settings, equally_fast(time_s, error_s), time_s)
