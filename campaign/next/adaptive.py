"""``campaign run --adaptive``: measures a campaign's points in batches, each chosen from what all
before it have shown, until picks are expected to lose little."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.choice.objectives import Objective
from campaign.launch.drive import plan_record, planned_points
from campaign.next.offered import choose_next, offered, site_data
from campaign.plan.plan import Plan
from campaign.plan.planned_points import PartitionPoints, PlannedPoints
from campaign.plan.point import Point
from campaign.results import Results
from campaign.store.layout import Store, writing
from campaign.store.measurement import will_be_tried_again
from campaign.store.planned import write_planned
from campaign.store.states import NEVER, State, point_states
from campaign.variants.problems import ids_by_code
from dvfs.dataset import COMPLETE

Names = tuple[str, str]
"""A site and a partition of it."""
Chosen = dict[int, int]
"""Candidate of a partition -> how often it is measured."""
CHOSEN = "adaptive.json"
"""The file of a store with the points that were chosen."""
LEAST_BATCH = 5
KERNELS_A_BATCH = 2
"""A batch has a cell for every second kernel, at least five cells, and one for each node."""


class Adaptive:
    """Chooses the points of a plan (:class:`campaign.launch.chooser.Chooser`).

    What it chooses follows from the plan and the store alone: a run that was interrupted goes on
    with the points that it had chosen. A cell is a kernel at a setting, with all its repeats; one
    that was measured may be measured again, once more than before. No more points are measured
    than the plan has.

    Args:
        plan: the campaign's points.
        store: its store.
        objective: what picks minimise.
        enough: the expected loss, a fraction, that is small enough.
    """

    command = "run --adaptive"

    def __init__(self, plan: Plan, store: Store, objective: Objective, enough: float) -> None:
        self.plan, self.store = plan, store
        self.objective, self.enough = objective, enough
        self._parts = {(part.site, part.partition): part for part in plan.points.parts}
        self._chosen = self._read_chosen()
        self.now: dict[Names, AdaptiveState] = {}
        """What was found when the partition's cells were last chosen."""

    def _read_chosen(self) -> dict[Names, Chosen]:
        kept = (self.store.read_json(CHOSEN) or {}).get("points", {})
        chosen = {}
        for names, part in self._parts.items():
            known = set(kept.get("/".join(names), []))
            ids = ids_by_code(part)
            is_known = np.isin(ids[:, 0], np.array(sorted(known), dtype="S")) & (ids[:, 0] != b"")
            repeats = (ids != b"").sum(axis=1)
            chosen[names] = {
                code: _known_repeats(part, code, int(repeats[code]), known)
                for code in np.flatnonzero(is_known).tolist()
            }
        return chosen

    def begin(self) -> Plan:
        """See :class:`~campaign.launch.chooser.Chooser`."""
        for names in self.plan.partitions:
            self._choose(names)
        return self._chosen_plan()

    def next_points(self, site: str, partition: str) -> list[Point]:
        """See :class:`~campaign.launch.chooser.Chooser`."""
        names = site, partition
        before = dict(self._chosen[names])
        if not self._choose(names):
            return []
        part = self._chosen_part(names)
        return [
            point
            for point, code in zip(part, part.order.tolist(), strict=True)
            if point.repeat >= before.get(code, 0)
        ]

    def most(self, site: str, partition: str) -> int:
        """See :class:`~campaign.launch.chooser.Chooser`."""
        names = site, partition
        return len(self._parts[names]) - self._ended(names, point_states(self.store))

    def _ended(self, names: Names, states: dict[str, State]) -> int:
        """How many points of a partition are measured or have failed for good."""
        ids = {*self._parts[names].ids.tolist(), *self._chosen_part(names).ids.tolist()}
        return sum(self._has_ended(states.get(point_id.decode(), NEVER)) for point_id in ids)

    def _has_ended(self, state: State) -> bool:
        status, attempts = state
        retries = self.plan.campaign.retries.max
        return status is not None and (
            status in COMPLETE or not will_be_tried_again(status, attempts, retries)
        )

    def _choose(self, names: Names) -> bool:
        """Choose the next cells of a partition where none is waiting, and keep the choice; whether
        there are any."""
        states = point_states(self.store)
        ended = self._ended(names, states)
        before = self.now.get(names)
        if before is not None and before.settled and before.ended == ended:
            return False
        if any(
            not self._has_ended(states.get(point_id.decode(), NEVER))
            for point_id in self._chosen_part(names).ids.tolist()
        ):
            return False
        results = Results(self.store)
        part, chosen = self._parts[names], self._chosen[names]
        data = site_data(results, names[0]) if ended else None
        offer = offered(self.plan, part, states, data, again=True)
        workers = self.plan.sites[names[0]].workers(names[1])
        batch = max(LEAST_BATCH, workers, len(part.inputs) // KERNELS_A_BATCH)
        picked = choose_next(
            results,
            data,
            names[0],
            offer.cells,
            self.objective,
            budget_h=np.inf,
            most=min(batch, (len(part) - ended) // self.plan.campaign.most_repeats),
            enough=self.enough,
        )
        self.now[names] = AdaptiveState(
            ended=ended,
            settled=not picked.cells,
            why=picked.ended,
            lost_pct=None if np.isnan(picked.lost_pct) else picked.lost_pct,
            cells=offer.planned,
        )
        chosen.update({offer.code(cell): int(offer.repeats[cell]) for cell in picked.cells})
        if picked.cells:
            self._keep()
        return bool(picked.cells)

    def _keep(self) -> None:
        plan = self._chosen_plan()
        ids = planned_points(plan)
        with writing(self.store):
            self.store.write_json(CHOSEN, {"points": ids})
            write_planned(self.store, plan_record(plan, self.store), ids)

    def _chosen_plan(self) -> Plan:
        return replace(self.plan, points=PlannedPoints([*map(self._chosen_part, self._parts)]))

    def _chosen_part(self, names: Names) -> PartitionPoints:
        chosen = self._chosen[names]
        part = self._parts[names].only(np.array(sorted(chosen), np.int64))
        return part.with_repeats(chosen)


def _known_repeats(part: PartitionPoints, code: int, planned: int, known: set[str]) -> int:
    """How many repeats of a candidate were chosen: the ``planned`` ones and those ``known``."""
    repeats = planned
    while part.point_id(code, repeats) in known:
        repeats += 1
    return repeats


@dataclass(frozen=True, kw_only=True)
class AdaptiveState:
    """``ended``: the points that were measured or had failed for good; ``settled``: whether nothing
    was left to choose, and ``why``: as
    :class:`~analysis.choice.next_measurements.NextMeasurements`; ``lost_pct``: what picks are
    expected to lose, None where nothing is known; ``cells``: how many there are in all."""

    ended: int
    settled: bool
    why: str
    lost_pct: float | None
    cells: int
