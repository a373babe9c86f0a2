"""Which measurements of a site to make next: first settings far from each other, then the cells
(kernels at settings) that improve the picks most for their node-hours.

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

Before any point of a site like a known one is measured, those come first that tell most of how the
two differ. They are chosen one after the other: the point after which the energies of all points
are known best on average, for what it costs (an A-optimal design of a linear Gaussian model:
Chaloner & Verdinelli, Statistical Science 10, 1995). Then points are exchanged for better ones that
cost no more, as the first of them were chosen without knowing the later ones. The model comes from
:mod:`analysis.energy.known_site`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.choice.losses import highest_clocks
from analysis.choice.objectives import Objective
from analysis.energy.fitted import Fit
from analysis.energy.known_site import USUAL_SPREAD
from analysis.energy.scatter import Scatter
from analysis.measurements.observations import FitError, Observations, first_rows, measured_volts
from analysis.predict.site import SitePosterior, site_posterior
from dvfs.setting import Setting, Volts, clock_columns, number_columns

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
NEAR_FULL = 1.2
"""Enough points: then the error expected is this many times the least, that of the model."""
LEAST_GAIN = 1e-9
"""The least relative fall of the variance for which points are exchanged."""
MOST_EXCHANGED = 12
"""With more points an exchange gains little, and takes seconds where there are 20,000 cells."""
FIRST_SETTINGS = 5
"""All kernels are first measured at so many settings, far from each other."""
FIRST_OF_NEW = 2
"""A kernel that was never measured, where others were, is first measured at so many."""
ANCHOR_SETTINGS = 2
"""Anchors are at so many settings, far from each other: a drift of the idle power shows at low
clocks, one of the voltage at high ones."""
ANCHOR_SHARE = 0.1
"""Of the points of a batch, and of its node-hours, that anchors take at most."""


@dataclass(frozen=True, kw_only=True)
class MeasuredCells:
    """What may be measured: K kernels at M settings.

    ``labels``: each kernel's label in the measurements, None where it was never measured.
    ``measured``: bool
    (K, M), the cells that were measured. ``free``: bool (K, M), those that may be measured, or
    measured once more. ``measurements``: int (K, M), how many measurements of a cell are then made.
    ``node_hours``: of one measurement, from the kernel's number and its times (M,) in s, NaN where
    they are not known: (M,).
    """

    labels: Sequence[str | None]
    settings: Sequence[Setting]
    measured: np.ndarray
    free: np.ndarray
    measurements: np.ndarray
    node_hours: Callable[[int, np.ndarray], np.ndarray]

    def cost(self, kernel: int, time_s: np.ndarray) -> np.ndarray:
        """Node-hours of a kernel's cells with all their measurements: (M,)."""
        return np.asarray(self.node_hours(kernel, time_s) * self.measurements[kernel])


@dataclass(frozen=True, kw_only=True)
class NextMeasurements:
    """``cells``: (kernel, setting) in the order in which they were chosen; the first ``spread`` of
    them to have settings far from each other, the others for what they are expected to improve.
    ``anchors``: measured cells that are measured again beside these, so that a drift since then
    shows. ``node_hours``: of the cells and then of the anchors. ``lost_pct``, ``then_lost_pct``,
    ``more_lost_pct``: what picks are expected to lose on average now, after these, and after a
    further hour; NaN where nothing is known yet. ``ended``: why there are no more: as
    :class:`NextCells`, or ``spread`` where these must be measured first, or ``like`` where they
    tell how a site differs from a known one. ``error_ratio``: then the error expected with them
    over the model's own."""

    cells: list[tuple[int, int]]
    spread: int
    node_hours: list[float]
    lost_pct: float
    then_lost_pct: float
    more_lost_pct: float
    ended: str
    error_ratio: float = np.nan
    anchors: Sequence[tuple[int, int]] = ()


def next_measurements(
    data: Observations | None,
    found: SitePosterior | None,
    offer: MeasuredCells,
    objective: Objective,
    *,
    budget_h: float,
    most: int | None = None,
    enough: float = ENOUGH,
    more_h: float = 0.0,
    anchors: int = 0,
) -> NextMeasurements:
    """The cells to measure next, for at most ``budget_h`` node-hours.

    ``data``: what was measured at the site, None where nothing was. ``found``: the posterior of
    it, or of a site like it. ``most``: the most cells, anchors among them. ``enough``:
    the loss, a fraction, that is small enough. ``anchors``: the most of these, which are at most a
    tenth (:data:`ANCHOR_SHARE`) of all.
    """
    if most is not None:
        anchors = min(anchors, int(most * ANCHOR_SHARE))
    again, again_hours = _anchors(data, offer, anchors, budget_h * ANCHOR_SHARE)
    offer = _without(offer, again)
    there = measured_settings(data)
    measured = np.array([setting in there for setting in offer.settings])
    unknown = np.full(len(offer.settings), np.nan)
    left_h = budget_h - sum(again_hours)
    room = None if most is None else most - len(again)
    cells: list[tuple[int, int]] = []
    hours: list[float] = []
    first = _spread(offer, measured)
    for k, s in first:
        cost = float(offer.cost(k, unknown)[s])
        if cost > left_h or room == 0:
            break
        cells.append((k, s))
        hours.append(cost)
        left_h, room = left_h - cost, None if room is None else room - 1
    known = [k for k, label in enumerate(offer.labels) if label is not None]
    at_start = measured.sum() < FIRST_SETTINGS or len(cells) < len(first)
    if at_start or not known or data is None or found is None:
        kept = _anchors_for(len(cells), len(again))
        return NextMeasurements(
            cells=cells,
            spread=len(cells),
            anchors=again[:kept],
            node_hours=hours + again_hours[:kept],
            lost_pct=np.nan,
            then_lost_pct=np.nan,
            more_lost_pct=np.nan,
            ended="spread" if first else "settled",
        )
    beliefs = _beliefs(found, offer, known, objective)
    chosen = next_cells(beliefs, left_h, most=room, enough=enough, more=more_h)
    cells += [(known[k], s) for k, s in chosen.cells]
    hours += [float(beliefs[k].cost[s]) for k, s in chosen.cells]
    kept = _anchors_for(len(cells), len(again))
    return NextMeasurements(
        cells=cells,
        spread=len(cells) - len(chosen.cells),
        anchors=again[:kept],
        node_hours=hours + again_hours[:kept],
        lost_pct=float(chosen.lost_pct.mean()),
        then_lost_pct=float(chosen.then_lost_pct.mean()),
        more_lost_pct=float(chosen.more_lost_pct.mean()),
        ended=chosen.ended,
    )


def measured_settings(data: Observations | None) -> set[Setting]:
    """The settings that were measured."""
    if data is None:
        return set()
    return {data.settings[s] for s in np.unique(data.setting)}


def measurements_like(
    data: Observations,
    fitted: Fit,
    offer: MeasuredCells,
    volts: Volts,
    *,
    budget_h: float,
    most: int | None = None,
) -> NextMeasurements:
    """The cells that tell most of how a site differs from a known one, for at most ``budget_h``
    node-hours (:mod:`analysis.choice.next_measurements`).

    ``data``, ``fitted``, ``volts``: of the known site, whose labels ``offer`` has. Kernels that the
    known site did not measure and settings that it does not have are not chosen, nor are cells that
    were measured at the new site.

    Raises:
        FitError: the known site has none of the kernels, or its fit does not say how sure it is.
    """
    if not np.isfinite(fitted.deviations).all():
        raise FitError(
            f"the fit of {fitted.site} does not say how sure it is, for its measurements are at "
            f"fewer than three settings; measure more there"
        )
    kernels = {label: k for k, label in enumerate(offer.labels) if label is not None}
    if not kernels:
        raise FitError(f"{data.site} has measured none of these kernels; name another site")
    there = _at_each_setting(data, volts, list(kernels))
    place = {setting: s for s, setting in enumerate(offer.settings)}
    of_kernel = np.array([kernels[label] for label in there.labels.tolist()])
    at = np.array([place.get(pair, -1) for pair in there.settings])
    of_setting = at[there.setting]
    offered = of_setting >= 0
    cost = np.zeros(len(there))
    for k in kernels.values():
        cells = np.flatnonzero((of_kernel == k) & offered)
        time_s = np.full(len(offer.settings), np.nan)
        time_s[of_setting[cells]] = there.time_s[cells]
        cost[cells] = offer.cost(k, time_s)[of_setting[cells]]
    chosen = like_cells(
        fitted,
        Scatter.of(fitted, data),
        there,
        offered & (offer.free & ~offer.measured)[of_kernel, of_setting],
        cost,
        budget_h,
        most,
        np.flatnonzero(offered & offer.measured[of_kernel, of_setting]).tolist(),
    )
    return NextMeasurements(
        cells=[(int(of_kernel[row]), int(of_setting[row])) for row in chosen.rows],
        spread=0,
        node_hours=[float(cost[row]) for row in chosen.rows],
        lost_pct=np.nan,
        then_lost_pct=np.nan,
        more_lost_pct=np.nan,
        ended="like",
        error_ratio=float(chosen.error_ratio[-1]),
    )


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


def _without(offer: MeasuredCells, cells: Sequence[tuple[int, int]]) -> MeasuredCells:
    free = offer.free.copy()
    for cell in cells:
        free[cell] = False
    return replace(offer, free=free)


def _anchors_for(cells: int, most: int) -> int:
    """How many anchors so many other cells may have."""
    return min(most, int(cells * ANCHOR_SHARE / (1.0 - ANCHOR_SHARE)))


def _anchors(
    data: Observations | None, offer: MeasuredCells, count: int, budget_h: float
) -> tuple[list[tuple[int, int]], list[float]]:
    """At most ``count`` measured cells, and the node-hours of each: of the kernels that take the
    least, at settings far from each other; the same from batch to batch, where times stay so."""
    may = offer.free & offer.measured
    if data is None or count < 1 or not may.any():
        return [], []
    row = {label: k for k, label in enumerate(offer.labels) if label is not None}
    column = {setting: s for s, setting in enumerate(offer.settings)}
    time_s = np.full(may.shape, np.nan)
    for i, label in enumerate(data.labels.tolist()):
        cell = row.get(label), column.get(data.settings[data.setting[i]])
        if cell[0] is not None and cell[1] is not None:
            time_s[cell] = data.time_s[i]
    hours = np.stack([offer.cost(k, time_s[k]) for k in range(len(may))])
    measured = np.flatnonzero(may.any(axis=0))
    settings = [offer.settings[s] for s in measured.tolist()]
    none = np.zeros(len(settings), bool)
    apart = spread_settings(_axes(settings), none, _fastest(settings), ANCHOR_SETTINGS)
    cheapest_first = np.argsort(np.where(may, hours, np.inf), axis=0, kind="stable")
    cells: list[tuple[int, int]] = []
    costs: list[float] = []
    for kernels in cheapest_first.tolist():
        for s in measured[apart].tolist():
            k = kernels[s]
            if len(cells) == count or sum(costs) + hours[k, s] > budget_h:
                return cells, costs
            if may[k, s]:
                cells.append((k, s))
                costs.append(float(hours[k, s]))
    return cells, costs


def _at_each_setting(data: Observations, volts: Volts, kernels: Sequence[str]) -> Observations:
    """A row for each of ``kernels`` at each setting that was measured or is one of ``volts``, with
    the median time and energy of the posterior: a kernel's settings together, sorted."""
    known = {**volts, **measured_volts(data)}
    found = site_posterior(data, known)
    settings, row = found.settings, {label: k for k, label in enumerate(found.labels)}
    at = np.repeat([row[label] for label in kernels], len(settings))
    setting = np.tile(np.arange(len(settings)), len(kernels))
    core_v, mem_v = np.array([known[one] for one in settings])[setting].T
    core_mhz, mem_mhz = clock_columns(settings)[setting].T
    return replace(
        data.take(np.repeat(first_rows(data, kernels).max(axis=1), len(settings))),
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=core_v,
        mem_v=mem_v,
        time_s=found.time_s[at, setting],
        energy_j=found.energy_j[at, setting],
        setting=setting,
        settings=settings,
    )


def _spread(offer: MeasuredCells, measured: np.ndarray) -> list[tuple[int, int]]:
    """The cells that come first: all kernels at settings far from each other, new ones at two."""
    axes = _axes(offer.settings)
    first = _fastest(offer.settings)
    free = offer.free & ~offer.measured
    missing = FIRST_SETTINGS - int(measured.sum())
    kernels = range(len(offer.labels))
    if missing > 0:
        chosen = spread_settings(axes, measured, first, missing)
        # A setting that others were measured at is one of the five for all kernels.
        settings = [*chosen, *np.flatnonzero(measured).tolist()]
        return [(k, s) for s in settings for k in kernels if free[k, s]]
    new = [k for k in kernels if offer.labels[k] is None]
    none = np.zeros(len(axes), bool)
    settings = spread_settings(axes, none, first, FIRST_OF_NEW)
    return [(k, s) for s in settings for k in new if free[k, s]]


def _axes(settings: Sequence[Setting]) -> np.ndarray:
    """What settings differ in, float64 (settings, n), NaN for none: their numbers, and a column for
    each profile, which is 2 for those that have it."""
    profiles = sorted({setting.profile or "" for setting in settings})
    has = np.array([[setting.profile == name for name in profiles] for setting in settings])
    return np.hstack([number_columns(settings), 1.0 + has])


def _fastest(settings: Sequence[Setting]) -> int:
    """The index of the setting with the highest clocks, or with the highest core clock where none
    has both."""
    top = highest_clocks(settings)
    core_mhz = np.nan_to_num(clock_columns(settings)[:, 0])
    return int(np.argmax(core_mhz)) if top is None else top


def _beliefs(
    found: SitePosterior, offer: MeasuredCells, known: Sequence[int], objective: Objective
) -> list[Belief]:
    """Of every kernel that was measured, at all settings of the offer; those that cannot be judged
    may not be measured."""
    place = {setting: s for s, setting in enumerate(found.settings)}
    at = np.array([place.get(setting, -1) for setting in offer.settings])
    row = {label: k for k, label in enumerate(offer.labels) if label is not None}
    beliefs = {}
    for label, energy_j, time_s in found.draws():
        k = row.get(label)
        if k is None:
            continue
        score = objective.score(energy_j, time_s)
        # A setting that cannot be judged is as bad as the worst, and nothing can be learned there.
        draws = np.log(np.maximum(score, 1e-300))[at]
        draws[at < 0] = np.log(score.max())
        beliefs[k] = Belief(
            draws=draws,
            noise=np.full(len(at), found.noise[2]) / offer.measurements[k],
            free=offer.free[k] & (at >= 0),
            cost=offer.cost(k, np.where(at >= 0, np.median(time_s, axis=1)[at], np.nan)),
        )
    return [beliefs[k] for k in known]
