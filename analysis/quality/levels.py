"""The checks for a kernel, a setting or a cell that is off the others by a power of ten."""

from __future__ import annotations

import warnings

import numpy as np

from analysis.quality.finding import Finding, first_named
from analysis.quality.noise import MedianGrid
from analysis.quality.rows import Rows

GAP = float(np.log(30.0))
"""No two kernels of one device are further apart in power at one setting."""
THOUSAND = float(np.log(1000.0))
NEAR = float(np.log(8.0))
"""How near to a factor of a thousand, or a million, times of kernels have to be off: some kernels
only wait, and are far slower than their operations. And how near to the times of the others a
thousandth, or a thousand times, of a kernel's has to be."""
OF_EVERY = float(np.log(4.0))
"""A kernel that alone has much of one class is fast in that class, but not in its others."""
MIN_COMPARED = 3
ADVICE = {
    "power": "check the units of its energy_j and time_s (mJ? ms?), and import with their factors",
    "time": "check the units of its time_s and its counts (ms?), and import with their factors",
    "run": "if its time_s and energy_j are in other units (ms, mJ), import with their factors",
}


def power_levels(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Kernels, settings and cells whose power is another's times 30 or more.

    A kernel is compared with the median of the kernels at each setting, a setting with that of
    the settings for each kernel, and a cell with what its kernel and its setting have otherwise.
    """
    y = grids["power"].y.copy()
    findings = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows without a value
        for axis, name in ((0, "kernel"), (1, "setting")):
            if y.shape[axis] < MIN_COMPARED:
                continue
            level = np.nanmedian(y - np.nanmedian(y, axis=axis, keepdims=True), axis=1 - axis)
            for few, factor in _apart(level):
                cells = np.zeros(y.shape, bool)
                cells[tuple(few if a == axis else slice(None) for a in (0, 1))] = True
                findings.append(_finding(rows, name, few, cells, factor))
                y[cells] = np.nan
        if min(y.shape) >= MIN_COMPARED:
            away = y - np.nanmedian(y, axis=0)
            away = away - np.nanmedian(away, axis=1, keepdims=True)
            off = np.abs(away) > GAP
            if off.any():
                findings.append(_cells(rows, off, away))
    return findings


def time_levels(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Kernels that are a thousand times slower or faster than their operations are elsewhere.

    A kernel's least time is the sum over its classes of its operations at the highest rate that
    any kernel has at the setting. Slow is a kernel for which that is a share of its time far
    from that of all others; fast is one whose rates, of every class that others have too, are
    far above those of all others.
    """
    time_s = np.exp(grids["time"].y)
    counts = {name: np.nan_to_num(n)[:, None] for name, n in rows.kernel_counts.items()}
    counts = {name: n for name, n in counts.items() if np.count_nonzero(n) > MIN_COMPARED}
    if len(time_s) <= MIN_COMPARED or not counts:
        return []
    least_s = np.zeros(time_s.shape)
    faster = []
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows without a value
        for n in counts.values():
            rate = np.nan_to_num(n / time_s)
            second, first = np.sort(rate, axis=0)[-2:]
            least_s += np.nan_to_num(n / first)
            best_other = np.where(rate == first, second, first)
            both = (rate > 0) & (best_other > 0)
            faster.append(np.nanmedian(np.where(both, np.log(rate / best_other), np.nan), 1))
        least_s[least_s == 0] = np.nan
        slow = np.nanmedian(np.log(least_s / time_s), axis=1)
        of_classes = np.array(faster)
        fast = (np.nanmax(of_classes, 0) > THOUSAND - NEAR) & (np.nanmin(of_classes, 0) > OF_EVERY)
    findings = []
    for k in np.flatnonzero(fast).tolist():
        factor = -float(np.nanmax(of_classes[:, k]))
        findings.append(_finding(rows, "kernel", np.array([k]), _row(time_s, k), factor, "time"))
    if findings:  # with their rates every other kernel would be slow
        return findings
    for few, share in _apart(slow):
        nearest = max(round(abs(share) / THOUSAND), 1) * THOUSAND
        if share < 0 and abs(abs(share) - nearest) < NEAR:
            findings.append(_finding(rows, "kernel", few, _row(time_s, few), -share, "time"))
    return findings


def run_lengths(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Kernels whose runs are far from all others', and near these with a factor of 1,000.

    Where time and energy are both in another unit, power is right, and counts do not always say
    what a kernel should take. A kernel whose counts are as far from the others' is left out. Any
    other may really take that long too, so this is a note.
    """
    y = grids["time"].y
    if len(y) <= MIN_COMPARED:
        return []
    counts = [np.nan_to_num(n) for n in rows.kernel_counts.values()]
    operations = np.sum([np.zeros(len(y)), *counts], axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows without a value
        level = np.nanmedian(y, axis=1)
    findings = []
    for few, factor in _apart(level):
        others = np.delete(level, few)
        moved = level[few] - np.sign(factor) * THOUSAND
        near = np.nanmin(others) - NEAR < moved.min() and moved.max() < np.nanmax(others) + NEAR
        more = np.median(operations[few]) / max(np.median(np.delete(operations, few)), 1.0)
        explained = more > np.exp(GAP) if factor > 0 else 0 < more < np.exp(-GAP)
        if near and not explained:
            findings.append(_finding(rows, "kernel", few, _row(y, few), factor, "run"))
    return findings


def _row(values: np.ndarray, kernels: np.ndarray | int) -> np.ndarray:
    """bool, as ``values``: the cells of some kernels."""
    cells = np.zeros(values.shape, bool)
    cells[kernels] = True
    return cells


def _apart(level: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """The few that a wide gap separates from the many, with the logarithm of their factor."""
    left = np.flatnonzero(np.isfinite(level))
    groups = []
    while len(left) >= MIN_COMPARED:
        left = left[np.argsort(level[left], kind="stable")]
        gaps = np.diff(level[left])
        at = int(np.argmax(gaps)) + 1
        if gaps[at - 1] < GAP:
            break
        few, left = (left[:at], left[at:]) if 2 * at <= len(left) else (left[at:], left[:at])
        groups.append((np.sort(few), float(np.median(level[few]) - np.median(level[left]))))
    return groups


def _factor_text(factor: float) -> str:
    """A factor, given by its logarithm, in words."""
    return f"{np.exp(abs(factor)):,.3g} times {'as high as' if factor > 0 else 'lower than'}"


def _finding(
    rows: Rows,
    name: str,
    few: np.ndarray,
    cells: np.ndarray,
    factor: float,
    quantity: str = "power",
) -> Finding:
    members = _members(rows, cells)
    if name == "kernel":
        named, others = [rows.kernels[k] for k in few], "that of the other kernels"
    else:
        named, others = (
            [rows.setting_text(s) for s in few],
            "that at the other settings",
        )
    what = {
        "power": "energy over time",
        "time": "time, by the operations counted,",
        "run": "the time of a run",
    }[quantity]
    return Finding(
        "units",
        "note" if quantity == "run" else "warning",
        rows.index[members],
        f"in {len(members)} rows of {len(few)} {name}{'s' * (len(few) > 1)} "
        f"({first_named(named)}) {what} is {_factor_text(factor)} {others}; "
        f"{ADVICE[quantity]}",
    )


def _cells(rows: Rows, off: np.ndarray, away: np.ndarray) -> Finding:
    members = _members(rows, off)
    named = [
        f"{rows.where(int(k), int(s))}: {_factor_text(away[k, s])} expected"
        for k, s in np.argwhere(off)
    ]
    return Finding(
        "units",
        "warning",
        rows.index[members],
        f"in {len(members)} rows energy over time is not what the kernel has at other settings "
        f"and other kernels have at this one ({first_named(named)}); "
        f"check the units of energy_j and time_s there (mJ? ms?), or leave the rows out",
    )


def _members(rows: Rows, cells: np.ndarray) -> np.ndarray:
    return rows.in_cells(np.flatnonzero(cells.ravel()))
