"""What is said about a fit: measurements far from it, and terms that cannot be separated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from analysis.costs.linear_cost import grouped
from analysis.energy.terms.term import Term
from analysis.measurements.observations import Observations, setting_text

OUTLIER_DEVIATIONS = 6.0
"""How many robust standard deviations make a row an outlier: one in 500 million by chance."""
ALIKE = 0.03
"""Of columns of length 1, a singular value below this: two with a correlation above 0.999."""
PART_OF_DIRECTION = 0.15


def outliers(data: Observations, predicted_j: np.ndarray) -> list[dict[str, Any]]:
    """Rows far from what the whole model says, by a robust standard deviation of its residuals."""
    residual = np.log(np.maximum(predicted_j, 1e-300) / data.energy_j)
    centre = np.median(residual)
    spread = np.median(np.abs(residual - centre)) / special.ndtri(0.75)
    if not spread > 0:
        return []
    far = np.flatnonzero(np.abs(residual - centre) > OUTLIER_DEVIATIONS * spread)
    far = far[np.argsort(-np.abs(residual[far] - centre))]
    return [
        {
            **data.instance(data.kernels[data.kernel[i]]).as_dict(),
            "setting": setting_text(data.settings[data.setting[i]]),
            "energy_j": float(data.energy_j[i]),
            "predicted_j": float(predicted_j[i]),
            "deviations": float(np.abs(residual[i] - centre) / spread),
        }
        for i in far
    ]


def inseparable(terms: Sequence[Term], unit: np.ndarray) -> list[dict[str, Any]]:
    """Groups of terms that these rows cannot separate, and measurements that would separate them.

    ``unit``: float64 (rows, terms), columns of length 1. A direction in which the coefficients
    can move while the predictions stay is a singular vector of a small singular value. A kernel's
    own terms are left out. Of several such directions only the space that they span is known, so
    terms are grouped by the projection on it.
    """
    shared = [i for i, term in enumerate(terms) if term.pays_for != "kernel"]
    _, size, directions = np.linalg.svd(unit[:, shared], full_matrices=False)
    free = directions[size < ALIKE]
    linked = np.abs(free.T @ free) > PART_OF_DIRECTION**2
    part = np.flatnonzero(linked.diagonal())
    members = [
        [terms[shared[part[i]]] for i in group] for group in grouped(linked[np.ix_(part, part)])
    ]
    return [{"terms": [t.name for t in group], "remedy": _remedy(group)} for group in members]


def _remedy(members: Sequence[Term]) -> str:
    operations = [term for term in members if term.pays_for == "operation"]
    if len(operations) > 1:
        return f"measure kernels whose ratios of {' to '.join(t.of for t in operations)} differ"
    advice = [term.measure_to_separate for term in operations or members]
    return "measure " + "; and ".join(dict.fromkeys(text for text in advice if text))
