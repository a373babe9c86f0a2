"""Which points tell most of how a site differs from a known one, before any is measured there.

Chosen one after the other: the point after which the energies of all points are known best on
average, for what it costs (an A-optimal design of a linear Gaussian model: Chaloner & Verdinelli,
Statistical Science 10, 1995). Then points are exchanged for better ones that cost no more, as the
first of them were chosen without knowing the later ones. The model comes from
:mod:`analysis.energy.known_site`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.fitted import Fit
from analysis.energy.known_site import USUAL_SPREAD
from analysis.energy.scatter import Scatter
from analysis.measurements.observations import Observations

NEAR_FULL = 1.2
"""Enough points: then the error expected is this many times the least, that of the model."""
LEAST_GAIN = 1e-9
"""The least relative fall of the variance for which points are exchanged."""
MOST_EXCHANGED = 12
"""With more points an exchange gains little, and takes seconds where there are 20,000 cells."""


@dataclass(frozen=True)
class LikeCells:
    """``rows``: the places of the chosen points; ``error_ratio``: float64, one more than these,
    the error expected over the model's own before any, and after so many points."""

    rows: list[int]
    error_ratio: np.ndarray


def like_cells(
    known: Fit,
    scatter: Scatter,
    there: Observations,
    free: np.ndarray,
    cost: np.ndarray,
    budget: float,
    most: int | None = None,
    measured: Sequence[int] = (),
) -> LikeCells:
    """Choose among points that ``known``, the fit of the known site, describes.

    ``scatter``: what that fit leaves unexplained.

    ``there``: a row for each point, with the time that it takes; ``free``: bool (rows,), those
    that may be chosen; ``cost``: float64 (rows,), as ``budget``; ``measured``: the places of points
    that were measured at the new site. Ends at ``most`` points, where the budget is spent, or,
    without ``most``, where the error is near the least.
    """
    design = _Design.of(known, scatter, there)
    first, rows, spent = list(measured), list[int](), 0.0
    cost = np.where(free, cost, np.inf)
    cost[first] = np.inf
    variance, fall = design.after(first)
    ratios = [design.ratio(variance)]
    while len(rows) < most if most is not None else ratios[-1] > NEAR_FULL:
        within = np.isfinite(cost) & (cost <= budget - spent)
        within[rows] = False
        if not within.any():
            break
        worth = np.where(within, fall / np.maximum(cost, 1e-300), -1.0)
        rows = [*rows, int(np.argmax(worth))]
        if len(rows) <= MOST_EXCHANGED:
            rows = _exchanged(design, first, rows, cost)
        spent = float(cost[rows].sum())
        variance, fall = design.after(first + rows)
        ratios.append(design.ratio(variance))
    return LikeCells(rows, np.array(ratios))


def _exchanged(design: _Design, first: list[int], rows: list[int], cost: np.ndarray) -> list[int]:
    """``rows`` with better points, of at most the same cost, in their places, until none is better
    (Fedorov, Theory of Optimal Experiments, 1972).

    ``first``: points that are measured in any case; ``cost``: inf where one may not be chosen.
    """
    variance, place, kept = design.after(first + rows)[0], 0, 0
    while kept < len(rows):
        others = rows[:place] + rows[place + 1 :]
        before, fall = design.after(first + others)
        may = cost <= cost[rows[place]]
        may[others] = False
        best = int(np.argmax(np.where(may, fall, -1.0)))
        kept += 1
        if before - fall[best] < variance * (1.0 - LEAST_GAIN):
            rows = [*rows[:place], best, *rows[place + 1 :]]
            variance, kept = float(before - fall[best]), 1
        place = (place + 1) % len(rows)
    return rows


@dataclass(frozen=True, kw_only=True)
class _Design:
    """What measurements would tell of the coefficients, each relative to the known one.

    n points, p terms. ``there``: the points; ``share``: float64 (n, p), of each term in a
    point's energy; ``prior``: (p, p), the coefficients' covariance; ``kernel``, ``setting``,
    ``own`` (n,): the variance of what the model lacks, of a kernel, a setting, and a point.
    """

    there: Observations
    share: np.ndarray
    prior: np.ndarray
    kernel: float
    setting: float
    own: np.ndarray

    @classmethod
    def of(cls, known: Fit, scatter: Scatter, there: Observations) -> _Design:
        parts = known.parts_j(there)
        p = parts.shape[1]
        labels = there.labels.tolist()
        return cls(
            there=there,
            share=parts / parts.sum(axis=1, keepdims=True),
            prior=USUAL_SPREAD**2 * (np.eye(p) + np.ones((p, p))),
            kernel=scatter.kernel,
            setting=scatter.setting,
            own=np.array([scatter.own * scatter.scale.get(x, 1.0) for x in labels]),
        )

    def ratio(self, variance: float) -> float:
        """The error expected over the model's own, where the coefficients leave this variance."""
        least = self.kernel + self.setting + float(self.own.mean())
        return float(np.sqrt(1.0 + variance / least))

    def after(self, rows: list[int]) -> tuple[float, np.ndarray]:
        """The mean variance of relative energies by the coefficients once ``rows`` are measured,
        and by how much each further point would make it fall, float64 (n,)."""
        # What a point has in common with the chosen ones is taken out of both its row and noise.
        seen, noise = self.share, self.kernel + self.setting + self.own
        unknown = self.prior
        if rows:
            held = self._common(rows)
            among = held[rows] + np.diag(self.own[rows])
            gain = np.linalg.solve(among, held.T).T
            of_rows = self.share[rows]
            seen, noise = self.share - gain @ of_rows, noise - (gain * held).sum(axis=1)
            inside = among + of_rows @ self.prior @ of_rows.T
            towards = self.prior @ of_rows.T
            unknown = self.prior - towards @ np.linalg.solve(inside, towards.T)
        everywhere = self.share.T @ self.share / len(self.share)
        reach = seen @ unknown
        fall = ((reach @ everywhere) * reach).sum(axis=1)
        fall /= np.maximum(noise, 1e-12) + (reach * seen).sum(axis=1)
        return float((unknown * everywhere).sum()), fall

    def _common(self, rows: list[int]) -> np.ndarray:
        """What each point's error has in common with those of ``rows``: float64 (n, rows)."""
        kernel, setting = self.there.kernel, self.there.setting
        same_kernel = kernel[:, None] == kernel[rows]
        same_setting = setting[:, None] == setting[rows]
        return np.asarray(self.kernel * same_kernel + self.setting * same_setting)
