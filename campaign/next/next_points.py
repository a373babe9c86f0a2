"""``campaign next``: the points to measure next, what they cost, and what they should improve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

from analysis.choice.next_measurements import measurements_like
from analysis.choice.objectives import objective as objective_of
from campaign.next.chosen import choose_next, site_data
from campaign.next.next_file import next_file
from campaign.next.offered import all_legal, of_kernels, offered
from campaign.plan.plan import Plan, make_plan
from campaign.plan.planned_points import PartitionPoints
from campaign.results import Results
from campaign.results.fits import Request, check_like
from campaign.store.states import point_states
from dvfs.errors import ArgumentError
from dvfs.names import known_names
from dvfs.setting import AXES

MORE_H = 1.0
"""The further node-hours of which ``next`` says what they would buy."""


@dataclass(frozen=True, kw_only=True)
class NextPoint:
    """A kernel at a setting, in the order in which it was chosen. ``node_hours``: with all its
    repeats. ``why``: ``spread``, to have settings far from each other, ``pick``, for what it should
    improve, ``repeat``, for that too, but it was measured before, ``anchor``, to show a drift since
    it was measured, or ``like``, to tell how the site differs from a known one."""

    kernel: str
    params: dict[str, Any]
    core_mhz: float | None
    mem_mhz: float | None
    uncore_mhz: float | None
    power_limit_w: float | None
    profile: str | None
    node_hours: float
    why: str


@dataclass(frozen=True, kw_only=True)
class NextPoints:
    """What to measure next.

    ``kernels``, ``settings``: how many there are; ``planned``, ``measured``: of how many points
    (repeats not counted), and how many of these were measured.
    ``expected_loss_pct``: what picks are expected to lose on average, now; ``then_``: after these
    points; ``more_``: after one node-hour more; None where nothing is known yet. ``ended``: why
    there are no more points: ``budget``, ``enough`` (the loss is small), ``settled`` (nothing would
    change a pick), ``spread`` (these come first) or ``like`` (these tell how the site differs from
    the known site ``like``). ``error_ratio``: then what a fit from these is expected to err, over
    what one of all points would. ``campaign``: the text of a campaign file.
    """

    site: str
    partition: str
    simulated: bool
    objective: str
    kernels: int
    settings: int
    planned: int
    measured: int
    points: list[NextPoint]
    node_hours: float
    expected_loss_pct: float | None
    then_loss_pct: float | None
    more_loss_pct: float | None
    ended: str
    campaign: str
    like: str | None = None
    error_ratio: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """``campaign next --json``."""
        return asdict(self)


def next_points(
    results: Results,
    site: str,
    *,
    budget_h: float,
    most: int | None = None,
    partition: str | None = None,
    kernels: Sequence[str] = (),
    objective: str = "energy",
    enough_pct: float = 0.5,
    only_planned: bool = False,
    like: str | None = None,
    anchors: int = 0,
    campaign_file: Path | None = None,
    beside: Path | None = None,
) -> NextPoints:
    """The points of a site to measure next.

    Args:
        results: the store.
        site: the site.
        budget_h: the most node-hours that they may take.
        most: the most points, repeats not counted.
        partition: where they are measured (default: the first of the campaign).
        kernels: only kernels of these names.
        objective: what picks minimise.
        enough_pct: an expected loss that is small enough.
        only_planned: choose among the settings of the campaign file, not all legal ones.
        like: a site of the same chip or family that has a fit: choose the points that tell most of
            how this site differs from it, which ``fit`` then starts from.
        anchors: at most so many points that were measured before are measured again, so that a
            drift since then shows; they are at most a tenth of all.
        campaign_file: where kernels and protocol come from (default: the one that was run last).
        beside: the folder that the new campaign file will be in (default: the current one).

    Raises:
        ArgumentError: no campaign file, or one without the site, the partition or the kernels.
        FileError: the campaign file is wrong.
        NoKeptFitError: there is no fit of the site ``like``.
        FitError: there is no such objective, or the site ``like`` does not help.
    """
    goal = objective_of(objective)
    file = _campaign_file(results, campaign_file)
    plan = make_plan(file)
    part = _part(plan, file, site, partition)
    if not only_planned:
        part = all_legal(plan, part.site, part.partition)
    if kernels:
        _check_kernels(part, kernels)
        part = of_kernels(part, kernels)
    states = point_states(results.store)
    if like is not None:
        check_like(site, Request(like=like))
        known = results.known_site(like)
        offer = offered(plan, part, states, known.data)
        chosen = measurements_like(
            known.data,
            known.fit,
            offer.cells,
            known.volts,
            budget_h=budget_h,
            most=most,
        )
    else:
        data = site_data(results, site)
        offer = offered(plan, part, states, data, again=True)
        chosen = choose_next(
            results,
            data,
            site,
            offer.cells,
            goal,
            budget_h=budget_h,
            most=most,
            enough=enough_pct / 100.0,
            more_h=MORE_H,
            anchors=anchors,
        )
    cells = [*chosen.cells, *chosen.anchors]
    points = []
    for number, (cell, hours) in enumerate(zip(cells, chosen.node_hours, strict=True)):
        own, setting = part.inputs[cell[0]], part.settings[cell[1]]
        why = "pick" if like is None else "like"
        if number < chosen.spread:
            why = "spread"
        elif number >= len(chosen.cells):
            why = "anchor"
        elif offer.cells.measured[cell]:
            why = "repeat"
        points.append(
            NextPoint(
                kernel=own.label,
                params=json.loads(own.params),
                **{name: getattr(setting, name) for name in AXES},
                node_hours=hours,
                why=why,
            )
        )
    losses = (chosen.lost_pct, chosen.then_lost_pct, chosen.more_lost_pct)
    now, then, more = (None if isnan(loss) else loss for loss in losses)
    text = ""
    if cells:
        repeats = {cell: int(offer.repeats[cell]) for cell in cells}
        text = next_file(plan.campaign, file, part, repeats, beside or Path.cwd())
    return NextPoints(
        site=site,
        partition=part.partition,
        simulated=plan.sites[site].is_simulated,
        objective=goal.name,
        kernels=sum(not kernels or own.label in kernels for own in part.inputs),
        settings=len(part.settings),
        planned=offer.planned,
        measured=offer.measured,
        points=points,
        node_hours=sum(chosen.node_hours),
        expected_loss_pct=now,
        then_loss_pct=then,
        more_loss_pct=more,
        ended=chosen.ended,
        campaign=text,
        like=like,
        error_ratio=None if isnan(chosen.error_ratio) else chosen.error_ratio,
    )


def _campaign_file(results: Results, named: Path | None) -> Path:
    """The campaign file to choose from.

    Raises:
        ArgumentError: none is named, and the store's own is not there.
    """
    if named is not None:
        return named
    kept = (results.store.read_json("campaign.json") or {}).get("file")
    if kept is None:
        raise ArgumentError(
            f"{results.path}: does not say which campaign file it was measured by; name one that "
            f"has these kernels: --campaign C.toml"
        )
    if not Path(kept).is_file():
        raise ArgumentError(
            f"{results.path}: its campaign file {kept} is not there; name it: --campaign C.toml"
        )
    return Path(kept)


def _part(plan: Plan, file: Path, site: str, partition: str | None) -> PartitionPoints:
    if site not in plan.sites:
        raise ArgumentError(
            f"{file}: has no site {site!r}; {known_names(site, plan.sites, 'it has')}; for another "
            f"campaign file: --campaign C.toml"
        )
    own = [name for at, name in plan.partitions if at == site]
    if partition is not None and partition not in own:
        raise ArgumentError(
            f"--partition: {file} does not measure on partition {partition!r} of {site}; "
            f"{known_names(partition, own, 'it has')}"
        )
    return plan.of_partition(site, partition or own[0])


def _check_kernels(part: PartitionPoints, kernels: Sequence[str]) -> None:
    labels = list(dict.fromkeys(own.label for own in part.inputs))
    for name in kernels:
        if name not in labels:
            raise ArgumentError(
                f"--kernel: the campaign has no kernel {name!r}; "
                f"{known_names(name, labels, 'it has')}"
            )
