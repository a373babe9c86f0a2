"""The noise of each kernel: from differences of any kind, and between repeats of one point."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.quality.rows import Rows

NOISE_FLOOR = 1e-3
"""Relative: no meter and no clock is taken to be better than this."""
UNKNOWN_NOISE = 0.05
"""Relative: assumed where neither repeats nor neighbours tell."""
MAD_TO_SIGMA = 1.4826
MAD_EFFICIENCY = 0.37
"""A deviation from the median of n values is as sure as a variance from 0.37 n of them."""
OWN_NOISE_FROM = 10
"""Comparisons from which on a kernel has a noise of its own."""


def noise_of_groups(
    differences: np.ndarray, group: np.ndarray, n_groups: int
) -> tuple[np.ndarray, float]:
    """Noise by group from differences of unit weight, never below that of all; and its df."""
    if not len(differences):
        return np.full(n_groups, UNKNOWN_NOISE), 0.0
    size = np.abs(differences)
    overall = max(MAD_TO_SIGMA * float(np.median(size)), NOISE_FLOOR)
    own = pd.Series(size).groupby(group).agg(["median", "size"])
    sigma = np.full(n_groups, overall)
    enough = own[own["size"] >= OWN_NOISE_FROM]
    codes = enough.index.to_numpy(dtype=np.int64)
    sigma[codes] = np.maximum(overall, MAD_TO_SIGMA * enough["median"].to_numpy())
    return sigma, MAD_EFFICIENCY * len(differences)


def repeat_noise(
    rows: Rows,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Each row's distance from its repeats' median, and the noise of each kernel, by quantity.

    What a node always adds (its leakage, its meter's scale) is taken off first: it is no noise.
    """
    by_cell = pd.DataFrame(rows.values).groupby(rows.cell, sort=False)
    medians = by_cell.transform("median")
    order = np.lexsort([rows.repeat, rows.start_unix_s, rows.node, rows.cell])
    alike = rows.cell[order[1:]] == rows.cell[order[:-1]]
    alike &= rows.node[order[1:]] == rows.node[order[:-1]]
    residual, sigma, df = {}, {}, 0.0
    for name, values in rows.values.items():
        away = values - medians[name].to_numpy()
        if rows.node.any():
            away = away - pd.Series(away).groupby(rows.node).transform("median").to_numpy()
        residual[name] = away
        steps = (values[order[1:]] - values[order[:-1]])[alike] / np.sqrt(2.0)
        group = rows.kernel[order[1:]][alike]
        sigma[name], df = noise_of_groups(steps, group, len(rows.kernels))
    return residual, sigma, df
