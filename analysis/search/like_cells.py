"""Which points tell most of how a site differs from a known one, before any is measured there.

Chosen one after the other: the point after which the energies of all points are known best on
average, of all that each would cost (an A-optimal design of a linear Gaussian model: Chaloner &
Verdinelli, Statistical Science 10, 1995). The model is that of :mod:`analysis.energy.known_site`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.curves import at_voltage
from analysis.energy.fitted import Fit
from analysis.energy.known_site import USUAL_SPREAD
from analysis.measurements.observations import CantFit, Observations

NEAR_FULL = 1.2
"""Enough points: then the error expected is this many times the least, that of the model."""


@dataclass(frozen=True)
class LikeCells:
    """``rows``: the places of the chosen points, in order; ``error_ratio``: float64, one more than
    these, the error expected over the model's own before them, and after each."""

    rows: list[int]
    error_ratio: np.ndarray


def like_cells(
    known: Fit,
    there: Observations,
    free: np.ndarray,
    cost: np.ndarray,
    budget: float,
    most: int | None = None,
    measured: Sequence[int] = (),
) -> LikeCells:
    """Choose among points that ``known``, the fit of the known site, describes.

    ``there``: a row for each point, with the time that it takes; ``free``: bool (rows,), those
    that may be chosen; ``cost``: float64 (rows,), as ``budget``; ``measured``: the places of points
    that were measured at the new site. Ends at ``most`` points, where the budget is spent, or,
    without ``most``, where the error is near the least.

    Raises:
        CantFit: the known fit does not say how sure it is.
    """
    if known.discrepancy is None:
        raise CantFit(
            f"the fit of {known.site} does not say how sure it is, for its measurements are at "
            f"fewer than three settings; measure more there"
        )
    parts = known.parts_j(at_voltage(there, known.voltage, known.curves))
    share = parts / parts.sum(axis=1, keepdims=True)
    p = share.shape[1]
    # Of the coefficients, each relative to the known one.
    covariance = USUAL_SPREAD**2 * (np.eye(p) + np.ones((p, p)))
    discrepancy = known.discrepancy
    own = np.array(
        [discrepancy.own * discrepancy.scale.get(label, 1.0) for label in there.kernel.tolist()]
    )
    least = discrepancy.kernel + discrepancy.setting + float(own.mean())
    everywhere = share.T @ share / len(share)
    rows = list(measured)
    ratios: list[float] = []
    left = np.where(free, cost, np.inf)
    while True:
        # What a point has in common with the chosen ones is taken out of both its row and noise.
        seen, noise = share, discrepancy.kernel + discrepancy.setting + own
        unknown = covariance
        if rows:
            held = _common(there, discrepancy.kernel, discrepancy.setting, rows)
            among = held[rows] + np.diag(own[rows])
            gain = np.linalg.solve(among, held.T).T
            seen, noise = share - gain @ share[rows], noise - (gain * held).sum(axis=1)
            of_rows = share[rows]
            inside = among + of_rows @ covariance @ of_rows.T
            towards = covariance @ of_rows.T
            unknown = covariance - towards @ np.linalg.solve(inside, towards.T)
        ratios.append(float(np.sqrt(1.0 + (unknown * everywhere).sum() / least)))
        within = np.isfinite(left) & (left <= budget)
        enough = ratios[-1] <= NEAR_FULL if most is None else len(ratios) > most
        if enough or not within.any():
            return LikeCells(rows[len(measured) :], np.array(ratios))
        reach = seen @ unknown
        fall = np.einsum("ij,jk,ik->i", reach, everywhere, reach)
        fall /= np.maximum(noise, 1e-12) + (reach * seen).sum(axis=1)
        best = int(np.argmax(np.where(within, fall / np.maximum(cost, 1e-300), -1.0)))
        rows.append(best)
        budget -= float(cost[best])
        left[best] = np.inf


def _common(there: Observations, kernel: float, setting: float, rows: list[int]) -> np.ndarray:
    """What each row's error has in common with those of ``rows``: float64 (all, rows)."""
    same_kernel = there.kernel[:, None] == there.kernel[rows]
    same_setting = there.setting[:, None] == there.setting[rows]
    return np.asarray(kernel * same_kernel + setting * same_setting)
