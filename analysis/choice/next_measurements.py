"""Which measurements of a site to make next: first settings far from each other, then the cells
(kernels at settings) that improve the picks most for their node-hours.

The posterior of a kernel's scores gives the expected loss of its pick. Measuring a setting reduces
that loss by the expected improvement of the pick: the knowledge gradient of correlated normal
beliefs (Frazier, Powell & Dayanik 2009). It is never below 0, but can be 0 where no single
measurement would change the pick and two would. So a part of the pick's loss in the draws where a
setting is the best counts for that setting too.

Cells are chosen one after another, each with the largest reduction for its cost. After each choice
the kernel's covariance becomes what it will be once the cell is measured, whatever the result (a
fantasy: Ginsbourger, Le Riche & Carraro 2010), so that the cells of one batch differ.

While few settings are measured there is no posterior to use: :func:`spread_settings` begins with
the fastest setting, and continues with the one farthest from all others.

At a site like a known one, the first points are those that show most about how the two differ. They
are chosen one after another: each reduces the mean variance of all points' predicted energies most
for its cost (an A-optimal design of a linear Gaussian model: Chaloner & Verdinelli, Statistical
Science 10, 1995). Then points are exchanged for better ones that cost no more, as the first were
chosen before the later ones. The model comes from :mod:`analysis.energy.known_site`.
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
"""Standard normal values at which the gain is averaged. They are evenly spaced, as the gain has
kinks, where Gaussian quadrature errs. The mean of the positive part of a normal number is within
2 %."""
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
ENOUGH = 0.005
"""Expected losses, a fraction, that need no more measurements."""
ROUNDING = 1e-9
HIDDEN_SHARE = 0.3
"""The share of the loss in draws where a setting is the best that adds to its knowledge
gradient."""
DRAWS = 400
SEED = 20261124
LEAST = 1e-300
NEAR_FULL = 1.2
"""Enough points: the expected error is at most this many times the model's, the least possible."""
LEAST_GAIN = 1e-9
"""The least relative fall of the variance for which points are exchanged."""
MOST_EXCHANGED = 12
"""With more points an exchange gains little, and takes seconds with 20,000 cells."""
FIRST_SETTINGS = 5
"""The number of settings, far from each other, at which all kernels are measured first."""
FIRST_OF_NEW = 2
"""The number of settings at which a kernel that was never measured is measured first, where other
kernels were."""
ANCHOR_SETTINGS = 2
"""The number of settings, far from each other, that anchors are at: a drift of the idle power shows
at low clocks, a drift of the voltage at high ones."""
ANCHOR_SHARE = 0.1
"""The largest share of a batch's points, and of its node-hours, that anchors take."""


@dataclass(frozen=True, kw_only=True)
class MeasuredCells:
    """The cells that a choice is made from: K kernels at M settings.

    ``labels``: each kernel's label in the measurements, None where it was never measured.
    ``measured``: bool (K, M), the cells that were measured. ``free``: bool (K, M), the cells that
    may be measured, or measured again. ``measurements``: int (K, M), how many measurements are then
    made of a cell. ``node_hours``: function of a kernel's number and its times, (M,) in s, NaN
    where not known, that returns the node-hours of one measurement, (M,).
    """

    labels: Sequence[str | None]
    settings: Sequence[Setting]
    measured: np.ndarray
    free: np.ndarray
    measurements: np.ndarray
    node_hours: Callable[[int, np.ndarray], np.ndarray]

    @property
    def kernel_number(self) -> dict[str, int]:
        """Label -> number of each kernel that was measured."""
        return {label: k for k, label in enumerate(self.labels) if label is not None}

    @property
    def setting_number(self) -> dict[Setting, int]:
        """Setting -> its number."""
        return {setting: s for s, setting in enumerate(self.settings)}

    def cost(self, kernel: int, time_s: np.ndarray) -> np.ndarray:
        """Node-hours of a kernel's cells with all their measurements: (M,)."""
        return np.asarray(self.node_hours(kernel, time_s) * self.measurements[kernel])


@dataclass(frozen=True, kw_only=True)
class NextMeasurements:
    """The cells to measure next.

    ``cells``: (kernel, setting) in the order of choice; the first ``spread`` have settings far from
    each other, the others improve the picks. ``anchors``: measured cells to measure again, which
    shows a drift since then. ``node_hours``: of the cells and then of the anchors. ``lost_pct``,
    ``then_lost_pct``, ``more_lost_pct``: the mean expected loss of picks now, after these, and
    after a further hour; NaN where not known yet. ``ended``: why there are no more cells: as in
    :class:`NextCells`, or ``spread`` where these must be measured first, or ``like`` where these
    show how a site differs from a known one. ``error_ratio``: for ``like``, the expected error with
    these cells over the model's."""

    cells: list[tuple[int, int]]
    spread: int = 0
    node_hours: list[float]
    lost_pct: float = np.nan
    then_lost_pct: float = np.nan
    more_lost_pct: float = np.nan
    ended: str
    error_ratio: float = np.nan
    anchors: Sequence[tuple[int, int]] = ()


def next_measurements(
    data: Observations | None,
    posterior: SitePosterior | None,
    offer: MeasuredCells,
    objective: Objective,
    *,
    budget_h: float,
    most: int | None = None,
    enough: float = ENOUGH,
    more_h: float = 0.0,
    anchors: int = 0,
) -> NextMeasurements:
    """Choose the cells to measure next, for at most ``budget_h`` node-hours.

    ``data``: the site's measurements, None without any. ``posterior``: of these, or of a site like
    this one. ``most``: the largest number of cells, with anchors. ``enough``: the loss, a fraction,
    that needs no more measurements. ``anchors``: the largest number of anchors, which are at most a
    tenth (:data:`ANCHOR_SHARE`) of all.
    """
    if most is not None:
        anchors = min(anchors, int(most * ANCHOR_SHARE))
    anchor_cells, anchor_hours = _anchors(data, offer, anchors, budget_h * ANCHOR_SHARE)
    free = offer.free.copy()
    for cell in anchor_cells:
        free[cell] = False
    offer = replace(offer, free=free)
    measured_at = measured_settings(data)
    measured = np.array([setting in measured_at for setting in offer.settings])
    unknown = np.full(len(offer.settings), np.nan)
    remaining_h = budget_h - sum(anchor_hours)
    most_cells = np.inf if most is None else most - len(anchor_cells)
    cells: list[tuple[int, int]] = []
    hours: list[float] = []
    spread_cells = _spread(offer, measured)
    for k, s in spread_cells:
        cost = float(offer.cost(k, unknown)[s])
        if cost > remaining_h or len(cells) == most_cells:
            break
        cells.append((k, s))
        hours.append(cost)
        remaining_h -= cost
    n_spread, ended = len(cells), "spread" if spread_cells else "settled"
    lost_pct: dict[str, float] = {}
    measured_kernels = list(offer.kernel_number.values())
    at_start = measured.sum() < FIRST_SETTINGS or len(cells) < len(spread_cells)
    if measured_kernels and posterior is not None and not at_start:
        beliefs = _beliefs(posterior, offer, measured_kernels, objective)
        remaining = None if most is None else int(most_cells) - n_spread
        chosen = next_cells(beliefs, remaining_h, most=remaining, enough=enough, more=more_h)
        cells += [(measured_kernels[k], s) for k, s in chosen.cells]
        hours += [float(beliefs[k].cost[s]) for k, s in chosen.cells]
        ended = chosen.ended
        lost_pct = {
            "lost_pct": float(chosen.lost_pct.mean()),
            "then_lost_pct": float(chosen.then_lost_pct.mean()),
            "more_lost_pct": float(chosen.more_lost_pct.mean()),
        }
    n_anchors = min(len(anchor_cells), int(len(cells) * ANCHOR_SHARE / (1.0 - ANCHOR_SHARE)))
    return NextMeasurements(
        cells=cells,
        spread=n_spread,
        anchors=anchor_cells[:n_anchors],
        node_hours=hours + anchor_hours[:n_anchors],
        ended=ended,
        **lost_pct,
    )


def measured_settings(data: Observations | None) -> set[Setting]:
    """Return the settings that were measured."""
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
    """Choose the cells that show most about how a site differs from a known one, for at most
    ``budget_h`` node-hours (:mod:`analysis.choice.next_measurements`).

    ``data``, ``fitted``, ``volts``: of the known site; ``offer`` has its labels. Not chosen are
    kernels that the known site did not measure, settings that it lacks, and cells that were
    measured at the new site.

    Raises:
        FitError: the known site has none of the kernels, or its fit has no intervals.
    """
    if not np.isfinite(fitted.deviations).all():
        raise FitError(
            f"the fit of {fitted.site} does not say how sure it is, for its measurements are at "
            f"fewer than three settings; measure more there"
        )
    kernels = offer.kernel_number
    if not kernels:
        raise FitError(f"{data.site} has measured none of these kernels; name another site")
    points = _at_each_setting(data, volts, list(kernels))
    kernel_index = np.array([kernels[label] for label in points.labels.tolist()])
    column = offer.setting_number
    setting_in_offer = np.array([column.get(setting, -1) for setting in points.settings])
    setting_index = setting_in_offer[points.setting]
    offered = setting_index >= 0
    cost = np.zeros(len(points))
    for k in kernels.values():
        cells = np.flatnonzero((kernel_index == k) & offered)
        time_s = np.full(len(offer.settings), np.nan)
        time_s[setting_index[cells]] = points.time_s[cells]
        cost[cells] = offer.cost(k, time_s)[setting_index[cells]]
    chosen = like_cells(
        fitted,
        Scatter.of(fitted, data),
        points,
        offered & (offer.free & ~offer.measured)[kernel_index, setting_index],
        cost,
        budget_h,
        most,
        np.flatnonzero(offered & offer.measured[kernel_index, setting_index]).tolist(),
    )
    return NextMeasurements(
        cells=[(int(kernel_index[row]), int(setting_index[row])) for row in chosen.rows],
        node_hours=[float(cost[row]) for row in chosen.rows],
        ended="like",
        error_ratio=float(chosen.error_ratio[-1]),
    )


@dataclass(frozen=True, kw_only=True)
class Belief:
    """The posterior of one kernel's log scores at M settings.

    ``draws``: float64 (M, D), draws of the log score. ``noise``: float64 (M,), the variance of a
    further measurement about its setting's true score. ``free``: bool (M,), the settings that may
    be measured; ``cost``: float64 (M,), of one measurement, such as node-hours. ``weight``: of
    this kernel's losses.
    """

    draws: np.ndarray
    noise: np.ndarray
    free: np.ndarray
    cost: np.ndarray
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class NextCells:
    """The chosen ``cells``, (kernel, setting) indices in the order of choice, and their total cost.

    ``lost_pct``, ``then_lost_pct``, ``more_lost_pct``: float64 (K,), the expected loss of each
    kernel's pick now, after these cells, and after those that ``more`` would also pay for.
    ``ended``: why there are no more cells: ``budget``, ``enough`` or ``settled`` (no cell that may
    be measured is expected to change a pick).
    """

    cells: list[tuple[int, int]]
    cost: float
    lost_pct: np.ndarray
    then_lost_pct: np.ndarray
    more_lost_pct: np.ndarray
    ended: str


def spread_settings(mhz: np.ndarray, measured: np.ndarray, first: int, count: int) -> list[int]:
    """Choose settings far from each other and from the measured ones: at most ``count`` indices.

    ``mhz``: float64 (M, 2), core and memory, NaN where a site has no such clock; ``measured``:
    bool (M,). Distances are between log clocks, each over its range. ``first``: the setting to
    begin with unless it is measured (k-centre: Gonzalez 1985).
    """
    logs = np.log(np.where(np.isfinite(mhz), mhz, 1.0))
    span = np.ptp(logs, axis=0)
    position = logs / np.where(span > 0, span, 1.0)
    chosen: list[int] = []
    distance = np.full(len(mhz), np.inf)
    for s in np.flatnonzero(measured).tolist():
        distance = np.minimum(distance, _distance(position, s))
    if not measured[first]:
        chosen.append(first)
        distance = np.minimum(distance, _distance(position, first))
    while len(chosen) < count and distance.max() > 0:
        best = int(np.argmax(distance))
        chosen.append(best)
        distance = np.minimum(distance, _distance(position, best))
    return chosen[:count]


def _distance(position: np.ndarray, s: int) -> np.ndarray:
    return np.asarray(np.sqrt(((position - position[s]) ** 2).sum(axis=1)))


def expected_loss(draws: np.ndarray) -> float:
    """Return the expected loss, a fraction, of the setting with the least expected score, from
    draws (M, D) of log scores."""
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
    """Choose the cells to measure next, at most ``most`` cells for a total cost of ``budget``.

    Ends earlier where the weighted mean of the expected losses is at most ``enough`` (a fraction),
    or no cell that may be measured is expected to change a pick. ``more``: a further budget, for
    which only the expected loss is returned.
    """
    search = _Search(beliefs)
    before = search.lost.copy()
    ended = search.go(budget, most, enough)
    cells, cost, then_lost = list(search.cells), search.spent, search.lost.copy()
    if more:
        search.go(cost + more, None, 0.0)
    return NextCells(
        cells=cells,
        cost=cost,
        lost_pct=100.0 * before,
        then_lost_pct=100.0 * then_lost,
        more_lost_pct=100.0 * search.lost,
        ended=ended,
    )


class _Search:
    """The cells chosen so far, and the value of every other one.

    ``lost``: float64 (K,), the expected losses after these cells; ``rate``: (K, M), the expected
    reduction of the loss by a cell for its cost, 0 where it may not be measured.
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
        """Choose cells up to a budget. Return why it ended, as in :class:`NextCells`."""
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
    """A belief, updated for the chosen cells.

    ``mean``: of the log scores now; ``covariance``: after the chosen cells are measured.
    ``simulated``: float64 (M, D), the means after simulated measurements of these in each draw.
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
        """Return the expected fall of the loss by measuring each setting, for its cost: (M,)."""
        variance = np.diag(self.covariance)
        measured_variance = np.maximum(variance + self.belief.noise, LEAST)
        expected = self.mean + variance / 2.0
        # Settings that cannot become the pick are left out.
        lowest = expected - NODES[-1] * np.sqrt(variance)
        contenders = np.flatnonzero(lowest <= expected.min())
        slope = (self.covariance[contenders] / np.sqrt(measured_variance)).T
        # Axes: the measured setting, the contenders, the results of the measurement.
        middle = expected[contenders] - slope**2 / 2.0
        moved = middle[:, :, None] + slope[:, :, None] * NODES
        least_after = np.exp(moved.min(axis=1)) @ WEIGHTS
        gain = np.maximum(1.0 - least_after / np.exp(expected.min()), 0.0)
        above = self.score[int(np.argmin(expected))] / self.least - 1.0
        hidden = np.bincount(self.best, above, len(expected)) / len(above)
        worth = gain + HIDDEN_SHARE * hidden * variance / self.first * variance / measured_variance
        return np.where(self.free, worth / np.maximum(self.belief.cost, LEAST), 0.0)

    def take(self, s: int) -> None:
        """Count a setting as measured."""
        self.free[s] = False
        noise = max(float(self.belief.noise[s]), LEAST)
        gain = self.covariance[s] / (float(self.covariance[s, s]) + noise)
        error = np.sqrt(noise) * self.rng.normal(size=self.draws.shape[1])
        innovation = self.draws[s] + error - self.simulated[s]
        self.simulated += gain[:, None] * innovation
        self.covariance = self.covariance - np.outer(gain, self.covariance[s])
        # Rounding leaves a variance below 0 where a measurement has no noise.
        np.fill_diagonal(self.covariance, np.maximum(np.diag(self.covariance), 0.0))

    def then_lost(self) -> float:
        """Return the expected loss of the pick after the chosen settings are measured, a fraction.

        Each draw is one truth; its simulated measurements move the mean, which decides the pick.
        """
        expected = self.simulated + np.diag(self.covariance)[:, None] / 2.0
        chosen = expected.argmin(axis=0)
        lost = self.score[chosen, np.arange(len(chosen))] / self.least - 1.0
        return float(lost.mean())


@dataclass(frozen=True)
class LikeCells:
    """``rows``: the indices of the chosen points; ``error_ratio``: float64 (points + 1,), the
    expected error over the model's, before the first point and after each."""

    rows: list[int]
    error_ratio: np.ndarray


def like_cells(
    known_fit: Fit,
    scatter: Scatter,
    points: Observations,
    free: np.ndarray,
    cost: np.ndarray,
    budget: float,
    most: int | None = None,
    measured: Sequence[int] = (),
) -> LikeCells:
    """Choose points to measure at a site like a known one.

    ``known_fit``: the fit of the known site; ``scatter``: what that fit leaves unexplained;
    ``points``: a row for each point, with the time that it takes; ``free``: bool (rows,), the
    points that may be chosen; ``cost``: float64 (rows,), in the unit of ``budget``; ``measured``:
    the indices of points that were measured at the new site. Ends at ``most`` points, where the
    budget is spent, or, without ``most``, where the error is near the least.
    """
    design = _Design.of(known_fit, scatter, points)
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
    """Exchange points of ``rows`` for better ones of at most the same cost, until none is better
    (Fedorov, Theory of Optimal Experiments, 1972).

    ``first``: points that are measured in any case; ``cost``: inf where a point may not be chosen.
    """
    variance, position, unchanged = design.after(first + rows)[0], 0, 0
    while unchanged < len(rows):
        remaining = rows[:position] + rows[position + 1 :]
        variance_without, fall = design.after(first + remaining)
        allowed = cost <= cost[rows[position]]
        allowed[remaining] = False
        best = int(np.argmax(np.where(allowed, fall, -1.0)))
        unchanged += 1
        if variance_without - fall[best] < variance * (1.0 - LEAST_GAIN):
            rows = [*rows[:position], best, *rows[position + 1 :]]
            variance, unchanged = float(variance_without - fall[best]), 1
        position = (position + 1) % len(rows)
    return rows


@dataclass(frozen=True, kw_only=True)
class _Design:
    """The linear Gaussian model of what measurements show about the coefficients, each relative to
    the known site's.

    n points, p terms. ``points``: a row for each; ``share``: float64 (n, p), of each term in a
    point's energy; ``prior``: (p, p), the coefficients' covariance; ``kernel``, ``setting``,
    ``cell`` (n,): the variances of the model's error, by kernel, by setting, and by point.
    """

    points: Observations
    share: np.ndarray
    prior: np.ndarray
    kernel: float
    setting: float
    cell: np.ndarray

    @classmethod
    def of(cls, known_fit: Fit, scatter: Scatter, points: Observations) -> _Design:
        parts = known_fit.parts_j(points)
        p = parts.shape[1]
        labels = points.labels.tolist()
        return cls(
            points=points,
            share=parts / parts.sum(axis=1, keepdims=True),
            prior=USUAL_SPREAD**2 * (np.eye(p) + np.ones((p, p))),
            kernel=scatter.kernel,
            setting=scatter.setting,
            cell=np.array([scatter.cell * scatter.scale.get(x, 1.0) for x in labels]),
        )

    def ratio(self, variance: float) -> float:
        """Return the expected error over the model's, for a ``variance`` by the coefficients."""
        least = self.kernel + self.setting + float(self.cell.mean())
        return float(np.sqrt(1.0 + variance / least))

    def after(self, rows: list[int]) -> tuple[float, np.ndarray]:
        """Return the mean variance of relative energies by the coefficients once ``rows`` are
        measured, and by how much each further point would reduce it, float64 (n,)."""
        # The error that a point shares with the chosen ones is taken out of its row and noise.
        residual_share, noise = self.share, self.kernel + self.setting + self.cell
        covariance = self.prior
        if rows:
            common = self._common(rows)
            common_covariance = common[rows] + np.diag(self.cell[rows])
            gain = np.linalg.solve(common_covariance, common.T).T
            chosen_share = self.share[rows]
            residual_share = self.share - gain @ chosen_share
            noise = noise - (gain * common).sum(axis=1)
            chosen_covariance = common_covariance + chosen_share @ self.prior @ chosen_share.T
            cross = self.prior @ chosen_share.T
            covariance = self.prior - cross @ np.linalg.solve(chosen_covariance, cross.T)
        second_moment = self.share.T @ self.share / len(self.share)
        reach = residual_share @ covariance
        fall = ((reach @ second_moment) * reach).sum(axis=1)
        fall /= np.maximum(noise, 1e-12) + (reach * residual_share).sum(axis=1)
        return float((covariance * second_moment).sum()), fall

    def _common(self, rows: list[int]) -> np.ndarray:
        """Return the covariance of each point's error with those of ``rows``: float64 (n, rows)."""
        kernel, setting = self.points.kernel, self.points.setting
        same_kernel = kernel[:, None] == kernel[rows]
        same_setting = setting[:, None] == setting[rows]
        return np.asarray(self.kernel * same_kernel + self.setting * same_setting)


def _anchors(
    data: Observations | None, offer: MeasuredCells, count: int, budget_h: float
) -> tuple[list[tuple[int, int]], list[float]]:
    """Choose at most ``count`` measured cells as anchors: of the kernels that take least, at
    settings far from each other. Return them with their node-hours.

    The choice stays the same from batch to batch while the times do."""
    allowed = offer.free & offer.measured
    if data is None or count < 1 or not allowed.any():
        return [], []
    row, column = offer.kernel_number, offer.setting_number
    time_s = np.full(allowed.shape, np.nan)
    for i, label in enumerate(data.labels.tolist()):
        cell = row.get(label), column.get(data.settings[data.setting[i]])
        if cell[0] is not None and cell[1] is not None:
            time_s[cell] = data.time_s[i]
    hours = np.stack([offer.cost(k, time_s[k]) for k in range(len(allowed))])
    measured = np.flatnonzero(allowed.any(axis=0))
    settings = [offer.settings[s] for s in measured.tolist()]
    unmeasured = np.zeros(len(settings), bool)
    spread = spread_settings(_axes(settings), unmeasured, _fastest(settings), ANCHOR_SETTINGS)
    cheapest_first = np.argsort(np.where(allowed, hours, np.inf), axis=0, kind="stable")
    cells: list[tuple[int, int]] = []
    costs: list[float] = []
    for kernels in cheapest_first.tolist():
        for s in measured[spread].tolist():
            k = kernels[s]
            if len(cells) == count or sum(costs) + hours[k, s] > budget_h:
                return cells, costs
            if allowed[k, s]:
                cells.append((k, s))
                costs.append(float(hours[k, s]))
    return cells, costs


def _at_each_setting(data: Observations, volts: Volts, kernels: Sequence[str]) -> Observations:
    """Return a row for each of ``kernels`` at each measured setting and each of ``volts``, with the
    posterior's median time and energy: by kernel, then by sorted setting."""
    voltages = {**volts, **measured_volts(data)}
    posterior = site_posterior(data, voltages)
    settings, row = posterior.settings, {label: k for k, label in enumerate(posterior.labels)}
    kernel_index = np.repeat([row[label] for label in kernels], len(settings))
    setting_index = np.tile(np.arange(len(settings)), len(kernels))
    core_v, mem_v = np.array([voltages[setting] for setting in settings])[setting_index].T
    core_mhz, mem_mhz = clock_columns(settings)[setting_index].T
    return replace(
        data.take(np.repeat(first_rows(data, kernels).max(axis=1), len(settings))),
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=core_v,
        mem_v=mem_v,
        time_s=posterior.time_s[kernel_index, setting_index],
        energy_j=posterior.energy_j[kernel_index, setting_index],
        setting=setting_index,
        settings=settings,
    )


def _spread(offer: MeasuredCells, measured: np.ndarray) -> list[tuple[int, int]]:
    """Return the cells that come first: all kernels at settings far from each other, or new kernels
    at two such settings."""
    axes = _axes(offer.settings)
    first = _fastest(offer.settings)
    free = offer.free & ~offer.measured
    missing = FIRST_SETTINGS - int(measured.sum())
    kernels = range(len(offer.labels))
    if missing > 0:
        chosen = spread_settings(axes, measured, first, missing)
        # Settings where some kernels were measured are among the first for all kernels.
        settings = [*chosen, *np.flatnonzero(measured).tolist()]
        return [(k, s) for s in settings for k in kernels if free[k, s]]
    new = [k for k in kernels if offer.labels[k] is None]
    unmeasured = np.zeros(len(axes), bool)
    settings = spread_settings(axes, unmeasured, first, FIRST_OF_NEW)
    return [(k, s) for s in settings for k in new if free[k, s]]


def _axes(settings: Sequence[Setting]) -> np.ndarray:
    """Return coordinates of settings, float64 (settings, n): their numbers, NaN where a setting has
    none, and a column for each profile, 2 for its settings and 1 for others."""
    profiles = sorted({setting.profile or "" for setting in settings})
    has = np.array([[setting.profile == name for name in profiles] for setting in settings])
    return np.hstack([number_columns(settings), 1.0 + has])


def _fastest(settings: Sequence[Setting]) -> int:
    """Return the index of the setting with the highest clocks, or with the highest core clock
    where no setting has both."""
    top = highest_clocks(settings)
    core_mhz = np.nan_to_num(clock_columns(settings)[:, 0])
    return int(np.argmax(core_mhz)) if top is None else top


def _beliefs(
    posterior: SitePosterior, offer: MeasuredCells, kernels: Sequence[int], objective: Objective
) -> list[Belief]:
    """Return the beliefs about ``kernels``, which were measured, at all settings of the offer.
    Settings that the posterior lacks may not be measured."""
    index = {setting: s for s, setting in enumerate(posterior.settings)}
    posterior_index = np.array([index.get(setting, -1) for setting in offer.settings])
    row = offer.kernel_number
    beliefs = {}
    for label, energy_j, time_s in posterior.draws():
        k = row.get(label)
        if k is None:
            continue
        score = objective.score(energy_j, time_s)
        # A setting that the posterior lacks counts as bad as the worst.
        draws = np.log(np.maximum(score, 1e-300))[posterior_index]
        draws[posterior_index < 0] = np.log(score.max())
        exponents = objective.exponents(energy_j.mean(axis=1), time_s.mean(axis=1))
        noise = posterior.score_noise(exponents)
        beliefs[k] = Belief(
            draws=draws,
            noise=noise[posterior_index] / offer.measurements[k],
            free=offer.free[k] & (posterior_index >= 0),
            cost=offer.cost(
                k,
                np.where(posterior_index >= 0, np.median(time_s, axis=1)[posterior_index], np.nan),
            ),
        )
    return [beliefs[k] for k in kernels]
