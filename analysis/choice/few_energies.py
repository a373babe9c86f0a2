"""Energies of kernels that were measured at few settings, by regression over the other kernels.

Of kernels that were measured at every setting, log energies relative to that at one of the few
settings are regressed on log power and log rates of operations there, and on the relative log times
and energies at the other few (:mod:`analysis.time.kernel_regression`). No physics is in it: what
the other kernels have in common is taken from how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.measurements.cells import cell_means, first_rows
from analysis.measurements.observations import Observations
from analysis.time.kernel_regression import by_regression, log_rates, standardised


def regressed_log_j(
    data: Observations, few: Sequence[int], whole: Sequence[str], kernels: Sequence[str]
) -> np.ndarray:
    """Log energies of W kernels ``whole``, each by the rest, then those of n ``kernels``, at the S
    settings of ``data`` that were measured: float64 (W + n, S).

    ``few``: the settings, by their numbers, at which all of ``kernels`` were measured; ``whole``:
    those that were measured at every setting.
    """
    labels, others = [*whole, *kernels], np.arange(len(whole))
    present = np.unique(data.setting)
    own = np.searchsorted(present, few)
    log_s, log_j = (
        cell_means(data, labels, np.log(values))[:, present]
        for values in (data.time_s, data.energy_j)
    )
    # The setting at which kernels are compared: the fastest of the few.
    first = int(own[np.argmin(log_s[np.ix_(others, own)].mean(axis=0))])
    rest = own[own != first]
    rows = first_rows(data, labels)[:, present[first]]
    counts = np.zeros((len(labels), len(data.counts)))
    for i, values in enumerate(data.counts.values()):
        counts[:, i] = np.nan_to_num(values[rows])
    features = np.column_stack(
        [
            log_j[:, first] - log_s[:, first],
            log_rates(counts, np.exp(log_s[:, first]), others),
            log_s[:, rest] - log_s[:, [first]],
            log_j[:, rest] - log_j[:, [first]],
        ]
    )
    x = standardised(features, others)
    y = log_j[others] - log_j[others][:, [first]]
    itself = np.concatenate([others, np.full(len(kernels), -1)])
    return np.asarray(log_j[:, [first]] + by_regression(x[others], y, x, itself))
