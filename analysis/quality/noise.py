"""The noise of each kernel, and the limit of differences by chance.

Noise is estimated between repeats of a point, if there are any, and between neighbouring settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.quality.rows import Rows
from dvfs.groups import Groups

FALSE_ALARM = 0.01
"""The probability that a check has a finding in a clean data set."""
RELEVANT = 0.01
"""The relative difference below which a difference is ignored, even if it is significant."""


def student_limit(n_compared: int, df: float) -> float:
    """The limit of Student's t, ``df`` degrees of freedom, that none of ``n_compared`` values
    exceeds by chance, except with probability :data:`FALSE_ALARM`."""
    # scipy.special: scipy.stats takes a second to import.
    tail = 0.5 * FALSE_ALARM / max(n_compared, 1)
    return float(-special.stdtrit(min(max(df, 1.0), 1e6), tail))


NOISE_FLOOR = 1e-3
"""Relative: the least noise that is assumed of any meter and clock."""
UNKNOWN_NOISE = 0.05
"""Relative: the noise that is assumed without repeats and neighbours."""
MAD_TO_SIGMA = 1.4826
MAD_EFFICIENCY = 0.37
"""A median absolute deviation of n values is as precise as a variance of 0.37 n values."""
OWN_NOISE_FROM = 10
"""The fewest comparisons for an estimate of one kernel's noise."""


def noise_of_groups(
    differences: np.ndarray, group: np.ndarray, n_groups: int
) -> tuple[np.ndarray, float]:
    """The noise of each group, from differences of unit weight, at least that of all groups; and
    the degrees of freedom."""
    if not len(differences):
        return np.full(n_groups, UNKNOWN_NOISE), 0.0
    size = np.abs(differences)
    overall = max(MAD_TO_SIGMA * float(np.median(size)), NOISE_FLOOR)
    groups = Groups(group)
    sigma = np.full(n_groups, overall)
    enough = groups.sizes >= OWN_NOISE_FROM
    sigma[groups.codes[enough]] = np.maximum(overall, MAD_TO_SIGMA * groups.medians(size)[enough])
    return sigma, MAD_EFFICIENCY * len(differences)


def repeat_noise(
    rows: Rows,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Each row's deviation from its cell's median and each kernel's noise, by quantity; and the
    noise's degrees of freedom.

    A node's constant offset (its leakage, its meter's scale) is subtracted first: it is no noise.
    """
    order = np.lexsort([rows.repeat, rows.start_unix_s, rows.node, rows.cell])
    cell, node = rows.cell[order], rows.node[order]
    is_repeat = (cell[1:] == cell[:-1]) & (node[1:] == node[:-1])
    group = rows.kernel[order[1:]][is_repeat]
    residual, sigma, df = {}, {}, 0.0
    for name, values in rows.values.items():
        deviation = values - rows.cells.by_row(rows.cells.medians(values))
        if rows.node.any():
            nodes = Groups(rows.node)
            deviation = deviation - nodes.by_row(nodes.medians(deviation))
        residual[name] = deviation
        steps = np.diff(values[order])[is_repeat] / np.sqrt(2.0)
        sigma[name], df = noise_of_groups(steps, group, len(rows.kernels))
    return residual, sigma, df


@dataclass(frozen=True)
class MedianGrid:
    """The medians of one quantity by kernel and setting, with their variances.

    ``y``: float64 (kernels, settings), logarithms, NaN where not measured. ``variance``: of each
    median. ``df``: degrees of freedom of the noise.
    """

    y: np.ndarray
    variance: np.ndarray
    df: float


def clock_lines(rows: Rows, measured: np.ndarray | None = None) -> list[tuple[int, np.ndarray]]:
    """(domain, settings in order of its clock) for each clock of the other domain; of all settings,
    or of the ``measured`` ones, bool (settings,)."""
    lines = []
    for domain in (0, 1):
        usable = np.isfinite(rows.mhz[:, domain])
        if measured is not None:
            usable &= measured
        _, other_clock = np.unique(rows.mhz[:, 1 - domain], return_inverse=True)
        for level in np.unique(other_clock[usable]):
            line = np.flatnonzero(usable & (other_clock == level))
            if len(line) > 1:
                lines.append((domain, line[np.argsort(rows.mhz[line, domain])]))
    return lines


def _bends(rows: Rows, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distance of each cell from the straight line between its kernel's neighbouring cells, in
    units of one cell's noise, float64 (bends,); and its kernel, int64 (bends,)."""
    x = rows.log_mhz
    bends, bend_kernels = [np.zeros(0)], [np.zeros(0, np.int64)]
    measured, pattern = np.unique(np.isfinite(y), axis=0, return_inverse=True)
    for i, settings in enumerate(measured):
        kernel = np.flatnonzero(pattern.reshape(-1) == i)
        for domain, line in clock_lines(rows, settings):
            low, middle, high = line[:-2], line[1:-1], line[2:]
            weight = (x[middle, domain] - x[low, domain]) / (x[high, domain] - x[low, domain])
            values = y[kernel]
            bend = values[:, middle] - (1 - weight) * values[:, low] - weight * values[:, high]
            bends.append((bend / np.sqrt(1.0 + (1 - weight) ** 2 + weight**2)).ravel())
            bend_kernels.append(np.repeat(kernel, len(middle)))
    return np.concatenate(bends), np.concatenate(bend_kernels)


def median_grid(rows: Rows, name: str, sigma: np.ndarray, df: float) -> MedianGrid:
    """The medians of time or power, with variances from repeats and from neighbouring settings."""
    shape = (len(rows.kernels), len(rows.mhz))
    y, n = np.full(shape, np.nan), np.ones(shape)
    cells = np.unravel_index(rows.cells.codes, shape)
    y[cells], n[cells] = rows.cells.medians(rows.values[name]), rows.cells.sizes
    smooth, smooth_df = noise_of_groups(*_bends(rows, y), shape[0])
    if not smooth_df and df:
        smooth = np.zeros(shape[0])
    repeated = np.zeros(shape) if not df else sigma[:, None] ** 2 / n
    # The variance of a median is pi/2 times that of a mean.
    variance = np.maximum(repeated * np.where(n > 2, np.pi / 2, 1.0), smooth[:, None] ** 2)
    freedoms = [freedom for freedom in (df, smooth_df) if freedom]
    return MedianGrid(y, variance, min(freedoms) if freedoms else np.inf)
