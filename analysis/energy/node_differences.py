"""How the measurements of one node scatter, where a site's fit is of several nodes together.

About the model of all nodes, the repeats of a cell (a kernel at a setting) differ for two reasons:
nodes have other coefficients, and each measurement has noise. One more node, whose few points are
fitted from the known coefficients (:mod:`analysis.energy.known_site`), has coefficients of its own
as well; what remains of its points is the second part alone. So each node's coefficients are taken
out first: the logarithm of measured over predicted energy is regressed, node by node, on the share
of each term in the predicted energy.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from analysis.energy.fitted import Fit
from analysis.measurements.observations import Observations

ROUNDING = 1e-9
"""Relative to the largest, smaller singular values are rounding."""


def scatter_of_one_node(fitted: Fit, data: Observations) -> tuple[float, float] | None:
    """The variances of log energies on one node, beside what its coefficients do.

    Of one measurement, and of what all kernels of a node have in common at a setting. None where
    fewer than two nodes have a name, or too few rows are left to say it.
    """
    if data.node is None:
        return None
    rows = np.flatnonzero(data.node.astype(str) != "")
    nodes, node = np.unique(data.node[rows].astype(str), return_inverse=True)
    if len(nodes) < 2:
        return None
    parts = fitted.sparse_parts_j(data)[rows]
    predicted_j = parts.sum(axis=1)
    share = sparse.csr_array(parts / predicted_j[:, None])
    away = np.log(data.energy_j[rows] / predicted_j)
    label = data.labels[rows].astype(str)
    freedom = len(rows)
    for one in range(len(nodes)):
        of = np.flatnonzero(node == one)
        away[of], numbers = _beside_coefficients(fitted, share[of], away[of], label[of])
        freedom -= numbers
    _, kernel = np.unique(label, return_inverse=True)
    setting = data.setting[rows]
    cell = kernel * len(data.settings) + setting
    away -= _group_means(away, cell)[0]
    freedom -= len(np.unique(cell))
    # What kernels have in common at a setting of a node, of those that other nodes measured too.
    common, of_group, size = _group_means(away, node * len(data.settings) + setting)
    freedom -= len(size) * (len(nodes) - 1) // len(nodes)
    if freedom < 1:
        return None
    noise = float(((away - common) ** 2).sum() / freedom)
    centred = len(nodes) / (len(nodes) - 1)
    shared = float((of_group**2).mean()) * centred - noise * float((1.0 / size).mean())
    return noise, max(shared, 0.0)


def _beside_coefficients(
    fitted: Fit, share: sparse.csr_array, away: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, int]:
    """What no change of the coefficients explains of ``away`` (rows,), and how many numbers did.

    The coefficients of single kernels are taken out of each kernel's rows first.
    """
    own: dict[str, list[int]] = {}
    shared = []
    for i, term in enumerate(fitted.terms):
        if term.pays_for == "kernel":
            own.setdefault(term.of, []).append(i)
        else:
            shared.append(i)
    left, numbers = np.column_stack([away, share[:, shared].toarray()]), 0
    for name, columns in own.items():
        of = np.flatnonzero(label == name)
        mine = share[of][:, columns].toarray()
        change, _, rank, _ = np.linalg.lstsq(mine, left[of], rcond=None)
        left[of] -= mine @ change
        numbers += int(rank)
    change, _, rank, _ = np.linalg.lstsq(left[:, 1:], left[:, 0], rcond=ROUNDING)
    return left[:, 0] - left[:, 1:] @ change, numbers + int(rank)


def _group_means(
    values: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of each value's group (rows,); of each group, and its number of values (groups,)."""
    _, number = np.unique(group, return_inverse=True)
    size = np.bincount(number)
    mean = np.bincount(number, values) / size
    return mean[number], mean, size
