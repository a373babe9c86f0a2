"""Which cells to measure next, so that picks lose the least: kernels at settings.

What a pick is expected to lose is known from the posterior of its kernel's scores. Measuring a
setting makes that loss smaller, by as much as the measurement is expected to improve the pick: the
knowledge gradient of correlated normal beliefs (Frazier, Powell & Dayanik 2009). It is never below
0, but can be 0 where no single measurement would change the pick and two would. So a part of what
the pick loses in the draws where a setting is the best counts for that setting too.

Cells are taken one after another, each the one with the most of this for its cost. After each, the
kernel's covariance is what it will be once the cell is measured, whatever the result (a fantasy:
Ginsbourger, Le Riche & Carraro 2010), so that the cells of one batch differ.

With few settings measured there is nothing to go by yet: :func:`spread_settings` begins with the
fastest, and goes on with the one farthest from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NODES = np.linspace(-4.5, 4.5, 25)
"""Standard normal values at which the gain is averaged: evenly, because it has kinks, where
Gaussian quadrature errs. The mean of the positive part of a normal number is within 2 %."""
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
ENOUGH = 0.005
"""Expected losses, a fraction, that are not worth more measurements."""
ROUNDING = 1e-9
HIDDEN_SHARE = 0.3
"""How much of the loss in draws where a setting is the best counts for measuring it, beside the
knowledge gradient."""
DRAWS = 400
SEED = 20261124
LEAST = 1e-300


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What is known of one kernel's log scores at M settings.

    ``draws``: float64 (M, D), draws of the log score. ``noise``: float64 (M,), the variance of a
    further measurement about its setting's own score. ``free``: bool (M,), what may be measured;
    ``cost``: float64 (M,), of one measurement there, such as node-hours. ``weight``: of this
    kernel's losses.
    """

    draws: np.ndarray
    noise: np.ndarray
    free: np.ndarray
    cost: np.ndarray
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class NextCells:
    """The cells that were taken, in order: (kernel, setting) indices. ``cost``: their sum.

    ``lost_pct``, ``then_lost_pct``, ``more_lost_pct``: what picks are expected to lose now, after
    these cells are measured, and after those that ``more`` would pay for too: float64 (K,).
    ``ended``: why there are no more cells: ``budget``, ``enough`` or ``settled`` (nothing that may
    be measured is expected to change a pick).
    """

    cells: list[tuple[int, int]]
    cost: float
    lost_pct: np.ndarray
    then_lost_pct: np.ndarray
    more_lost_pct: np.ndarray
    ended: str


def spread_settings(mhz: np.ndarray, measured: np.ndarray, first: int, count: int) -> list[int]:
    """Settings far from each other and from those measured: at most ``count`` indices, in order.

    ``mhz``: float64 (M, 2), core and memory, NaN where a site has no such clock; ``measured``:
    bool (M,). Distances are of log clocks, each over its range. ``first``: the setting to begin
    with where none is measured (k-centre: Gonzalez 1985).
    """
    logs = np.log(np.where(np.isfinite(mhz), mhz, 1.0))
    span = np.ptp(logs, axis=0)
    place = logs / np.where(span > 0, span, 1.0)
    chosen: list[int] = []
    far = np.full(len(mhz), np.inf)
    for s in np.flatnonzero(measured).tolist():
        far = np.minimum(far, _distance(place, s))
    if not measured[first]:
        chosen.append(first)
        far = np.minimum(far, _distance(place, first))
    while len(chosen) < count and far.max() > 0:
        best = int(np.argmax(far))
        chosen.append(best)
        far = np.minimum(far, _distance(place, best))
    return chosen[:count]


def _distance(place: np.ndarray, s: int) -> np.ndarray:
    return np.asarray(np.sqrt(((place - place[s]) ** 2).sum(axis=1)))


def expected_loss(draws: np.ndarray) -> float:
    """What the pick of the least expected score is expected to lose, a fraction: of draws (M, D) of
    log scores."""
    score = np.exp(draws - draws.mean(axis=1).min())
    chosen = int(np.argmin(score.mean(axis=1)))
    return float(np.mean(score[chosen] / score.min(axis=0)) - 1.0)


def next_cells(
    beliefs: Sequence[Belief],
    budget: float,
    *,
    most: int | None = None,
    enough: float = ENOUGH,
    more: float = 0.0,
) -> NextCells:
    """The cells to measure next, for at most ``budget`` in all and at most ``most`` of them.

    Ends earlier where the weighted mean of the expected losses is at most ``enough`` (a fraction),
    or nothing that may be measured is expected to change a pick. ``more``: a further budget, of
    which only is said what it would buy.
    """
    search = _Search(beliefs)
    before = search.lost.copy()
    ended = search.go(budget, most, enough)
    cells, cost, then = list(search.cells), search.spent, search.lost.copy()
    if more:
        search.go(cost + more, None, 0.0)
    return NextCells(
        cells=cells,
        cost=cost,
        lost_pct=100.0 * before,
        then_lost_pct=100.0 * then,
        more_lost_pct=100.0 * search.lost,
        ended=ended,
    )


class _Search:
    """The cells that were taken so far, and what each other is worth.

    ``lost``: float64 (K,), the losses expected after them; ``rate``: (K, M), what is expected to
    be gained by a cell for its cost, 0 where it may not be measured.
    """

    def __init__(self, beliefs: Sequence[Belief]) -> None:
        self.kernels = [_Kernel(belief) for belief in beliefs]
        weight = np.array([belief.weight for belief in beliefs])
        self.weight = weight / max(float(weight.sum()), LEAST)
        self.lost = np.array([kernel.lost for kernel in self.kernels])
        self.rate = np.stack(
            [w * kernel.rate() for w, kernel in zip(self.weight, self.kernels, strict=True)]
        )
        self.cost = np.stack([belief.cost for belief in beliefs])
        self.cells: list[tuple[int, int]] = []
        self.spent = 0.0

    def go(self, budget: float, most: int | None, enough: float) -> str:
        """Take cells up to a budget; why it ended, as in :class:`NextCells`."""
        while float(self.weight @ self.lost) > enough:
            if most is not None and len(self.cells) >= most:
                return "budget"
            affordable = self.cost <= (budget - self.spent) * (1.0 + ROUNDING)
            k, s = np.unravel_index(
                int(np.argmax(np.where(affordable, self.rate, 0.0))), self.rate.shape
            )
            if not (affordable[k, s] and self.rate[k, s] > 0.0):
                return "budget" if self.rate.max() > 0.0 else "settled"
            kernel = self.kernels[k]
            kernel.take(int(s))
            self.cells.append((int(k), int(s)))
            self.spent += float(self.cost[k, s])
            self.lost[k] = kernel.then_lost()
            self.rate[k] = self.weight[k] * kernel.rate()
        return "enough"


class _Kernel:
    """A belief, and what it will be after the cells that were taken.

    ``mean``, ``covariance``: of the log scores now; the covariance becomes what it will be.
    ``simulated``: float64 (M, D), the means that the measurements taken would give in each draw.
    """

    def __init__(self, belief: Belief) -> None:
        self.belief = belief
        self.free = belief.free.copy()
        draws = belief.draws - belief.draws.mean(axis=1).min()
        self.mean = draws.mean(axis=1)
        self.covariance = np.atleast_2d(np.cov(draws))
        self.first = np.maximum(np.diag(self.covariance), LEAST)
        self.draws = draws[:, :DRAWS]
        self.score = np.exp(self.draws)
        self.least = self.score.min(axis=0)
        self.best = self.score.argmin(axis=0)
        self.simulated = np.repeat(self.mean[:, None], self.draws.shape[1], axis=1)
        self.rng = np.random.default_rng(SEED)
        self.lost = expected_loss(belief.draws)

    def rate(self) -> np.ndarray:
        """What measuring each setting is expected to take off the loss, for its cost: (M,)."""
        variance = np.diag(self.covariance)
        seen = np.maximum(variance + self.belief.noise, LEAST)
        expected = self.mean + variance / 2.0
        # Settings that no measurement would make the pick can be left out.
        far = expected - NODES[-1] * np.sqrt(variance)
        near = np.flatnonzero(far <= expected.min())
        slope = (self.covariance[near] / np.sqrt(seen)).T
        # Axes: the setting that is measured, the settings, what the measurement may be.
        middle = expected[near] - slope**2 / 2.0
        moved = middle[:, :, None] + slope[:, :, None] * NODES
        then = np.exp(moved.min(axis=1)) @ WEIGHTS
        gain = np.maximum(1.0 - then / np.exp(expected.min()), 0.0)
        above = self.score[int(np.argmin(expected))] / self.least - 1.0
        hidden = np.bincount(self.best, above, len(expected)) / len(above)
        worth = gain + HIDDEN_SHARE * hidden * variance / self.first * variance / seen
        return np.where(self.free, worth / np.maximum(self.belief.cost, LEAST), 0.0)

    def take(self, s: int) -> None:
        """Count a setting as measured."""
        self.free[s] = False
        noise = max(float(self.belief.noise[s]), LEAST)
        toward = self.covariance[s] / (float(self.covariance[s, s]) + noise)
        error = np.sqrt(noise) * self.rng.normal(size=self.draws.shape[1])
        away = self.draws[s] + error - self.simulated[s]
        self.simulated += toward[:, None] * away
        self.covariance = self.covariance - np.outer(toward, self.covariance[s])
        # Rounding leaves a variance below 0 where a measurement has no noise.
        np.fill_diagonal(self.covariance, np.maximum(np.diag(self.covariance), 0.0))

    def then_lost(self) -> float:
        """What the pick is expected to lose after the settings taken are measured, a fraction.

        Each draw is a truth; its own simulated measurements move the mean, by which is chosen.
        """
        expected = self.simulated + np.diag(self.covariance)[:, None] / 2.0
        chosen = expected.argmin(axis=0)
        lost = self.score[chosen, np.arange(len(chosen))] / self.least - 1.0
        return float(lost.mean())
