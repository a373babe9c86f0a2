"""Which measurements of a site to make next: first settings far from each other, then the cells
that improve the picks most for their node-hours (:mod:`analysis.search.next_cells`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.choice.losses import highest_clocks
from analysis.choice.objectives import Objective
from analysis.energy.fitted import Fit
from analysis.energy.scatter import Scatter
from analysis.measurements.observations import FitError, Observations, first_rows, measured_volts
from analysis.predict.site import SitePosterior, site_posterior
from analysis.search.like_cells import like_cells
from analysis.search.next_cells import ENOUGH, Belief, next_cells, spread_settings
from dvfs.setting import Setting, Volts, clock_columns, number_columns

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
    :class:`~analysis.search.next_cells.NextCells`, or ``spread`` where these must be measured
    first, or ``like`` where they tell how a site differs from a known one. ``error_ratio``: then
    the error expected with them over the model's own."""

    cells: list[tuple[int, int]]
    spread: int
    node_hours: list[float]
    lost_pct: float
    then_lost_pct: float
    more_lost_pct: float
    ended: str
    error_ratio: float = np.nan
    anchors: Sequence[tuple[int, int]] = ()


def measured_settings(data: Observations | None) -> set[Setting]:
    """The settings that were measured."""
    if data is None:
        return set()
    return {data.settings[s] for s in np.unique(data.setting)}


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
    node-hours (:mod:`analysis.search.like_cells`).

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
