"""Ties: settings that differ only by rounding, or only by the noise of repeats.

By rounding: of numbers that differ in the last digits of a sum the first counts, on any processor.

By noise: two measured times that differ by less than 1.96 standard errors of their difference are
tied: one of twenty pairs of equal times has a larger difference by noise. The standard error of a
mean of n repeats is the noise of one measurement over sqrt(n). Of the settings tied with the least
time, the fastest is the one with the highest clocks, core clock first, and no power limit or the
highest. A user who runs as fast as possible would set it, whatever the noise of this campaign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.measurements.observations import Observations, kernel_names, kernel_numbers
from dvfs.setting import Setting

TIE = 1e-9
"""Numbers with a smaller difference, relative to the least, differ by rounding alone."""
TIED = 1.96
"""Times that differ by less than so many standard errors are tied."""


def first_least(values: np.ndarray) -> np.ndarray:
    """Return the index along the first axis of the first value that equals the least up to
    rounding: int64 of the shape of the other axes. NaN counts as larger than any number."""
    numbers = np.where(np.isnan(values), np.inf, values)
    least = numbers.min(axis=0)
    with np.errstate(invalid="ignore"):  # if all are infinite, the first
        return np.asarray((numbers <= least + TIE * np.abs(least)).argmax(axis=0))


def time_noise(data: Observations, once: float = 0.0) -> dict[str, float]:
    """Return kernel -> relative standard deviation of one measurement of its time.

    It comes from the kernel's repeats at the same settings; for a kernel without repeats from all
    kernels' repeats; without any repeats it is ``once``.
    """
    labels, number = kernel_names(data), kernel_numbers(data)
    cell = number * len(data.settings) + data.setting
    n = np.bincount(cell, minlength=len(labels) * len(data.settings))
    mean_s = np.bincount(cell, data.time_s, len(n)) / np.maximum(n, 1)
    squares = np.bincount(number, (data.time_s / mean_s[cell] - 1.0) ** 2, len(labels))
    freedom = np.maximum(n - 1, 0).reshape(len(labels), -1).sum(axis=1)
    if not freedom.any():
        return dict.fromkeys(labels, once)
    overall = squares.sum() / freedom.sum()
    variance = np.where(freedom > 0, squares / np.maximum(freedom, 1), overall)
    return dict(zip(labels, np.sqrt(variance).tolist(), strict=True))


def equally_fast(time_s: np.ndarray, error_s: np.ndarray) -> np.ndarray:
    """Return bool (settings,): whether each time is tied with the least; ``error_s``: standard
    errors."""
    least = int(np.argmin(time_s))
    return np.asarray(time_s - time_s[least] <= TIED * np.hypot(error_s, error_s[least]))


def highest(settings: Sequence[Setting], among: np.ndarray, time_s: np.ndarray) -> int:
    """Return the index of the setting with the highest clocks among ``among``, bool (settings,),
    core clock first; of the same clocks the highest power limit or none; then, as profiles have no
    order, the least of ``time_s``, float64 (settings,)."""

    def place(i: int) -> tuple[float, ...]:
        *clocks, limit_w = settings[i].numbers
        return *(mhz or 0.0 for mhz in clocks), limit_w or math.inf, -float(time_s[i])

    return max(np.flatnonzero(among).tolist(), key=place)


def fastest(settings: Sequence[Setting], time_s: np.ndarray, error_s: np.ndarray) -> int:
    """Return the index of the fastest setting; ``time_s``, ``error_s``: float64 (settings,)."""
    return highest(settings, equally_fast(time_s, error_s), time_s)
