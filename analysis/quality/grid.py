"""Settings beside one another: the lines that they lie on, and each kernel's medians there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.quality.noise import noise_of_groups
from analysis.quality.rows import Rows


@dataclass(frozen=True)
class Grid:
    """The medians of one quantity by kernel and setting, and how sure they are.

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
        other = np.nan_to_num(rows.mhz[:, 1 - domain], nan=-1.0)
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
        mine = np.flatnonzero(pattern.reshape(-1) == i)
        for domain, line in clock_lines(rows, settings):
            a, b, c = line[:-2], line[1:-1], line[2:]
            w = (x[b, domain] - x[a, domain]) / (x[c, domain] - x[a, domain])
            of_mine = y[mine]
            bend = of_mine[:, b] - (1 - w) * of_mine[:, a] - w * of_mine[:, c]
            bends.append((bend / np.sqrt(1.0 + (1 - w) ** 2 + w**2)).ravel())
            kernels.append(np.repeat(mine, len(b)))
    return np.concatenate(bends), np.concatenate(kernels)


def median_grid(rows: Rows, name: str, sigma: np.ndarray, df: float) -> Grid:
    """The medians of time or power, and how sure they are: by repeats, and by neighbours."""
    shape = (len(rows.kernels), len(rows.mhz))
    cells = pd.Series(rows.values[name]).groupby(rows.cell).agg(["median", "size"])
    y, n = np.full(shape, np.nan), np.ones(shape)
    at = np.unravel_index(cells.index.to_numpy(), shape)
    y[at], n[at] = cells["median"].to_numpy(), cells["size"].to_numpy()
    smooth, smooth_df = noise_of_groups(*_bends(rows, y), shape[0])
    if not smooth_df and df:
        smooth = np.zeros(shape[0])
    repeated = np.zeros(shape) if not df else sigma[:, None] ** 2 / n
    # A median is less sure than a mean: pi/2 in its variance.
    variance = np.maximum(repeated * np.where(n > 2, np.pi / 2, 1.0), smooth[:, None] ** 2)
    sure = [each for each in (df, smooth_df) if each]
    return Grid(y, variance, min(sure) if sure else np.inf)
