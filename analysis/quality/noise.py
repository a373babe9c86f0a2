"""What a difference is judged against: the noise of each kernel, and the limit of chance.

Noise is estimated between repeats of one point where there are any, and between neighbouring
settings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.quality.rows import Rows
from dvfs.groups import Groups

FALSE_ALARM = 0.01
"""The chance that a check reports something in a clean data set."""
RELEVANT = 0.01
"""Differences of less than one percent are ignored, however significant they are."""


def student_limit(n_compared: int, df: float) -> float:
    """Student's t of ``df`` degrees of freedom beyond which none of ``n_compared`` comes by
    chance."""
    # scipy.special: scipy.stats takes a second to import.
    tail = 0.5 * FALSE_ALARM / max(n_compared, 1)
    return float(-special.stdtrit(min(max(df, 1.0), 1e6), tail))


NOISE_FLOOR = 1e-3
"""Relative: no meter and no clock is taken to be better than this."""
UNKNOWN_NOISE = 0.05
"""Relative: assumed where there are neither repeats nor neighbours."""
MAD_TO_SIGMA = 1.4826
MAD_EFFICIENCY = 0.37
"""A median deviation of n values is as precise as a variance of 0.37 n of them."""
OWN_NOISE_FROM = 10
"""Comparisons from which on a kernel has its own estimate of noise."""


def noise_of_groups(
    differences: np.ndarray, group: np.ndarray, n_groups: int
) -> tuple[np.ndarray, float]:
    """Noise by group from differences of unit weight, never below that of all; and its df."""
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
    """Each row's distance from its repeats' median, and the noise of each kernel, by quantity.

    What a node always adds (its leakage, its meter's scale) is taken off first: it is no noise.
    """
    order = np.lexsort([rows.repeat, rows.start_unix_s, rows.node, rows.cell])
    cell, node = rows.cell[order], rows.node[order]
    alike = (cell[1:] == cell[:-1]) & (node[1:] == node[:-1])
    group = rows.kernel[order[1:]][alike]
    residual, sigma, df = {}, {}, 0.0
    for name, values in rows.values.items():
        away = values - rows.cells.by_row(rows.cells.medians(values))
        if rows.node.any():
            of_node = Groups(rows.node)
            away = away - of_node.by_row(of_node.medians(away))
        residual[name] = away
        steps = np.diff(values[order])[alike] / np.sqrt(2.0)
        sigma[name], df = noise_of_groups(steps, group, len(rows.kernels))
    return residual, sigma, df


@dataclass(frozen=True)
class MedianGrid:
    """The medians of one quantity by kernel and setting, with their variances.

    ``y``: float64 (kernels, settings), logarithms, NaN where not measured. ``variance``: of
    each. ``df``: degrees of freedom of the noise they come from.
    """

    y: np.ndarray
    variance: np.ndarray
    df: float


def log_mhz(rows: Rows) -> np.ndarray:
    """float64 (settings, 2): the logarithms of the core and the memory clock."""
    return np.asarray(np.log(rows.mhz))


def clock_lines(rows: Rows, measured: np.ndarray | None = None) -> list[tuple[int, np.ndarray]]:
    """(domain, settings in order of its clock) for each clock of the other domain; of all
    settings, or of those ``measured``."""
    lines = []
    for domain in (0, 1):
        known = np.isfinite(rows.mhz[:, domain])
        if measured is not None:
            known &= measured
        _, other = np.unique(rows.mhz[:, 1 - domain], return_inverse=True)
        for level in np.unique(other[known]):
            line = np.flatnonzero(known & (other == level))
            if len(line) > 1:
                lines.append((domain, line[np.argsort(rows.mhz[line, domain])]))
    return lines


def _bends(rows: Rows, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each cell lies from the straight line between its kernel's cells next to it, in
    units of one cell's noise; and its kernel. Both float64 and int64 (bends,)."""
    x = log_mhz(rows)
    bends, kernels = [np.zeros(0)], [np.zeros(0, np.int64)]
    measured, pattern = np.unique(np.isfinite(y), axis=0, return_inverse=True)
    for i, settings in enumerate(measured):
        alike = np.flatnonzero(pattern.reshape(-1) == i)
        for domain, line in clock_lines(rows, settings):
            a, b, c = line[:-2], line[1:-1], line[2:]
            w = (x[b, domain] - x[a, domain]) / (x[c, domain] - x[a, domain])
            of_mine = y[alike]
            bend = of_mine[:, b] - (1 - w) * of_mine[:, a] - w * of_mine[:, c]
            bends.append((bend / np.sqrt(1.0 + (1 - w) ** 2 + w**2)).ravel())
            kernels.append(np.repeat(alike, len(b)))
    return np.concatenate(bends), np.concatenate(kernels)


def median_grid(rows: Rows, name: str, sigma: np.ndarray, df: float) -> MedianGrid:
    """The medians of time or power; their variances by repeats, and by neighbouring settings."""
    shape = (len(rows.kernels), len(rows.mhz))
    y, n = np.full(shape, np.nan), np.ones(shape)
    at = np.unravel_index(rows.cells.codes, shape)
    y[at], n[at] = rows.cells.medians(rows.values[name]), rows.cells.sizes
    smooth, smooth_df = noise_of_groups(*_bends(rows, y), shape[0])
    if not smooth_df and df:
        smooth = np.zeros(shape[0])
    repeated = np.zeros(shape) if not df else sigma[:, None] ** 2 / n
    # The variance of a median is pi/2 times that of a mean.
    variance = np.maximum(repeated * np.where(n > 2, np.pi / 2, 1.0), smooth[:, None] ** 2)
    known_df = [freedom for freedom in (df, smooth_df) if freedom]
    return MedianGrid(y, variance, min(known_df) if known_df else np.inf)
