"""How close each kernel comes to the roof: the best rate that any kernel of the site reached.

At each setting, the roof of a class is the highest rate n_k / T of the kernels measured there. A
kernel's least time is then max_k n_k / roof_k, as on a roofline with one ceiling a class
(Williams, Waterman & Patterson 2009), and its fraction of the roof is that over its time: 1 for
the kernels that set the roof, and less for one that is held up by latency or dependences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.measurements.observations import Observations, rows_by_kernel


@dataclass(frozen=True)
class RoofFraction:
    """A kernel's fraction of the roof (0 to 1), the median over settings, and the class that
    limits it at most of them."""

    label: str
    fraction: float
    limited_by: str


def roof_fractions(data: Observations) -> list[RoofFraction]:
    """The fraction of every kernel that has operation counts, in the order of the data."""
    names = list(data.counts)
    if not names:
        return []
    rates = np.column_stack([data.counts[name] / data.time_s for name in names])
    rates = np.where(np.isfinite(rates), rates, 0.0)
    share = np.full(rates.shape, 0.0)
    for setting in np.unique(data.setting):
        mine = data.setting == setting
        roofs = rates[mine].max(axis=0)
        share[mine] = np.divide(rates[mine], roofs, where=roofs > 0, out=np.zeros_like(rates[mine]))
    fractions = []
    known = share.max(axis=1) > 0
    for label, rows in rows_by_kernel(data):
        mine = rows[known[rows]]
        if len(mine):
            limits = share[mine].argmax(axis=1)
            limited_by = names[int(np.bincount(limits).argmax())]
            fraction = float(np.median(share[mine].max(axis=1)))
            fractions.append(RoofFraction(label, fraction, limited_by))
    return fractions
