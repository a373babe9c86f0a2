"""A fit's joint refits: its coefficients and voltage curves without each setting in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.curves import Curves, at_voltage
from analysis.energy.terms.registry import sparse_design_matrix
from analysis.energy.terms.term import Term
from analysis.measurements.observations import Observations


@dataclass(frozen=True)
class Refits:
    """What each refit found: ``value`` float64 (S, terms), and its ``curves``, S of them.

    No curves where voltages are not estimated. A refit's coefficients belong to its own curves,
    so that only a whole refit is ever drawn.
    """

    value: np.ndarray
    curves: list[Curves]

    def energy_j(self, data: Observations, voltage: str, terms: Sequence[Term]) -> np.ndarray:
        """Joules of every row by every refit, without a surface: float64 (S, rows)."""
        if not self.curves:
            return np.asarray(
                (sparse_design_matrix(at_voltage(data, voltage), terms) @ self.value.T).T
            )
        energy_j = np.empty((len(self.value), len(data)))
        for i, (value, curves) in enumerate(zip(self.value, self.curves, strict=True)):
            energy_j[i] = sparse_design_matrix(at_voltage(data, voltage, curves), terms) @ value
        return energy_j


def jackknife_deviations(left_out: np.ndarray) -> np.ndarray:
    """Deviations (S, n) whose products sum to the jackknife's covariance of n numbers.

    sqrt((S - 1) / S) (x_-s - mean), of float64 (S, n) that were found without each of S settings
    (Efron & Tibshirani 1993, section 11.5). A sum of them weighted by S standard normal numbers
    is a draw.
    """
    n = len(left_out)
    return np.asarray((left_out - left_out.mean(axis=0)) * np.sqrt((n - 1) / n))
