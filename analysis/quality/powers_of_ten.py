"""The checks for a kernel, a setting or a cell that a power of ten separates from the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from analysis.quality.finding import Finding, first_named
from analysis.quality.noise import MedianGrid
from analysis.quality.rows import Rows

GAP = float(np.log(30.0))
"""The logarithm of the largest plausible ratio of the powers of two kernels at one setting."""
THOUSAND = float(np.log(1000.0))
NEAR = float(np.log(8.0))
"""The logarithm of the tolerance for factors of a thousand or a million between times of kernels: a
kernel that only waits is far slower than its operations too. Also the tolerance within which a
time, corrected by a thousand, agrees with the times of the other kernels."""
OF_EVERY = float(np.log(4.0))
"""The logarithm of the least excess rate in every class of a kernel that is too fast. A kernel that
alone has much of one class is fast in that class only."""
MIN_COMPARED = 3
ADVICE = {
    "power": "check the units of its energy_j and time_s (mJ? ms?), and import with their factors",
    "time": "check the units of its time_s and its counts (ms?), and import with their factors",
    "run": "if its time_s and energy_j are in other units (ms, mJ), import with their factors",
}


def power_levels(rows: Rows, power: MedianGrid) -> list[Finding]:
    """Findings of kernels, settings and cells whose power differs by a factor of 30 or more.

    A kernel is compared with the median of the kernels at each setting, a setting with the median
    of the settings for each kernel, and a cell with both medians.
    """
    y = power.y.copy()
    findings = []
    for axis, kind in ((0, "kernel"), (1, "setting")):
        if y.shape[axis] < MIN_COMPARED:
            continue
        levels = _medians(y - _medians(y, axis, keepdims=True), 1 - axis)
        for group, factor in _apart(levels):
            findings.append(_finding(rows, kind, group, factor))
            np.moveaxis(y, axis, 0)[group] = np.nan
    if min(y.shape) >= MIN_COMPARED:
        deviation = y - _medians(y, 0)
        deviation = deviation - _medians(deviation, 1, keepdims=True)
        off = np.abs(deviation) > GAP
        if off.any():
            findings.append(_cells(rows, off, deviation))
    return findings


def time_levels(rows: Rows, time: MedianGrid) -> Iterator[Finding]:
    """Findings of kernels that are a thousand times slower or faster than their operations suggest.

    A kernel's least time is the sum over its classes of its operations divided by the highest rate
    of any kernel at the setting. A kernel is slow if the ratio of that to its time is far from the
    ratios of all others. It is fast if its rates, in every class that others have too, are far
    above those of all others.
    """
    time_s = np.exp(time.y)
    counts = {name: np.nan_to_num(n)[:, None] for name, n in rows.kernel_counts.items()}
    counts = {name: n for name, n in counts.items() if np.count_nonzero(n) > MIN_COMPARED}
    if len(time_s) <= MIN_COMPARED or not counts:
        return
    least_s = np.zeros(time_s.shape)
    log_factors = []
    with np.errstate(divide="ignore", invalid="ignore"):
        for n in counts.values():
            rate = np.nan_to_num(n / time_s)
            second, best = np.sort(rate, axis=0)[-2:]
            least_s += np.where(best > 0, n / best, 0.0)
            best_other = np.where(rate == best, second, best)
            comparable = (rate > 0) & (best_other > 0)
            log_factors.append(_medians(np.where(comparable, np.log(rate / best_other), np.nan), 1))
        least_s[least_s == 0] = np.nan
        log_shares = _medians(np.log(least_s / time_s), 1)
    most = np.fmax.reduce(log_factors)
    fast = (most > THOUSAND - NEAR) & (np.fmin.reduce(log_factors) > OF_EVERY)
    for k in np.flatnonzero(fast).tolist():
        yield _finding(rows, "kernel", np.array([k]), -float(most[k]), "time")
    if fast.any():  # by the rates of a fast kernel all others are slow
        return
    for group, log_share in _apart(log_shares):
        nearest = max(round(abs(log_share) / THOUSAND), 1) * THOUSAND
        if log_share < 0 and abs(abs(log_share) - nearest) < NEAR:
            yield _finding(rows, "kernel", group, -log_share, "time")


def run_lengths(rows: Rows, time: MedianGrid) -> Iterator[Finding]:
    """Findings of kernels whose time differs from all others, but agrees after a factor of 1,000.

    If time and energy are both in a wrong unit, power is right, and counts do not always show the
    expected time. A kernel whose counts differ by as much is excluded. The time of any other may
    still be right, so the finding is a note.
    """
    y = time.y
    if len(y) <= MIN_COMPARED:
        return
    counts = [np.nan_to_num(n) for n in rows.kernel_counts.values()]
    operations = np.sum([np.zeros(len(y)), *counts], axis=0)
    level = _medians(y, 1)
    for group, factor in _apart(level):
        usual = np.delete(level, group)
        scaled = level[group] - np.sign(factor) * THOUSAND
        fits = np.nanmin(usual) - NEAR < scaled.min() and scaled.max() < np.nanmax(usual) + NEAR
        work_ratio = np.median(operations[group]) / max(
            np.median(np.delete(operations, group)), 1.0
        )
        explained = work_ratio > np.exp(GAP) if factor > 0 else 0 < work_ratio < np.exp(-GAP)
        if fits and not explained:
            yield _finding(rows, "kernel", group, factor, "run")


def _medians(values: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
    """The medians along an axis, of numbers that are not NaN; NaN where there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows without a value
        return np.asarray(np.nanmedian(values, axis=axis, keepdims=keepdims))


def _apart(level: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Groups of indices that a wide gap separates from the larger remainder, each with the
    logarithm of its factor to that."""
    main = np.flatnonzero(np.isfinite(level))
    groups = []
    while len(main) >= MIN_COMPARED:
        main = main[np.argsort(level[main], kind="stable")]
        gaps = np.diff(level[main])
        split = int(np.argmax(gaps)) + 1
        if gaps[split - 1] < GAP:
            break
        minor, main = (
            (main[:split], main[split:]) if 2 * split <= len(main) else (main[split:], main[:split])
        )
        groups.append((np.sort(minor), float(np.median(level[minor]) - np.median(level[main]))))
    return groups


def _factor_text(factor: float) -> str:
    """The text of a factor, given its logarithm."""
    return f"{np.exp(abs(factor)):,.3g} times {'as high as' if factor > 0 else 'lower than'}"


def _finding(
    rows: Rows,
    kind: str,
    group: np.ndarray,
    factor: float,
    quantity: str = "power",
) -> Finding:
    if kind == "kernel":
        members = np.flatnonzero(np.isin(rows.kernel, group))
        named, reference = [rows.kernels[k] for k in group], "that of the other kernels"
    else:
        members = np.flatnonzero(np.isin(rows.setting, group))
        named = [rows.setting_text(s) for s in group]
        reference = "that at the other settings"
    subject = {
        "power": "energy over time",
        "time": "time, by the operations counted,",
        "run": "the time of a run",
    }[quantity]
    return Finding(
        "units",
        "note" if quantity == "run" else "warning",
        rows.index[members],
        f"in {len(members)} rows of {len(group)} {kind}{'s' * (len(group) > 1)} "
        f"({first_named(named)}) {subject} is {_factor_text(factor)} {reference}; "
        f"{ADVICE[quantity]}",
    )


def _cells(rows: Rows, bad: np.ndarray, deviation: np.ndarray) -> Finding:
    members = rows.in_cells(np.flatnonzero(bad))
    named = [
        f"{rows.where(int(k), int(s))}: {_factor_text(deviation[k, s])} expected"
        for k, s in np.argwhere(bad)
    ]
    return Finding(
        "units",
        "warning",
        rows.index[members],
        f"in {len(members)} rows energy over time is not what the kernel has at other settings "
        f"and other kernels have at this one ({first_named(named)}); "
        f"check the units of energy_j and time_s there (mJ? ms?), or leave the rows out",
    )
