"""``campaign run --adaptive``: measures a campaign's points in batches, each chosen by the results
of the earlier ones, until the expected loss of picks is small."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.choice.next_measurements import next_measurements
from analysis.choice.objectives import Objective
from campaign.launch.drive import plan_record, planned_points
from campaign.next.offered import failed_for_good, first_repeat, offered, posterior_of, site_data
from campaign.plan.plan import Plan
from campaign.plan.planned_points import PartitionPoints, PlannedPoints
from campaign.plan.point import Point
from campaign.results import Results
from campaign.store.layout import Store, writing
from campaign.store.planned import write_planned
from campaign.store.states import NEVER, State, point_states
from campaign.variants.problems import ids_by_code
from dvfs.dataset import COMPLETE

Names = tuple[str, str]
"""A site and a partition of it."""
Chosen = dict[int, int]
"""Candidate of a partition -> number of measurements."""
CHOSEN = "adaptive.json"
"""The file in a store with the chosen points."""
LEAST_BATCH = 5
KERNELS_A_BATCH = 2
"""A batch has a cell for every second kernel, at least five cells, and one for each node."""


class Adaptive:
    """Chooses the points of a plan (:class:`campaign.launch.chooser.Chooser`).

    The choice depends on the plan and the store alone: an interrupted run continues with the points
    that it had chosen. A cell is a kernel at a setting, with all its repeats; a measured one may be
    measured again, one more time. No more points are measured than the plan has.

    Args:
        plan: the campaign's points.
        store: its store.
        objective: the quantity that picks minimise.
        enough: the expected loss, a fraction, at which no further points are chosen.
    """

    command = "run --adaptive"

    def __init__(self, plan: Plan, store: Store, objective: Objective, enough: float) -> None:
        self.plan, self.store = plan, store
        self.objective, self.enough = objective, enough
        self._chosen = self._read_chosen()
        self.now: dict[Names, AdaptiveState] = {}
        """The state when the partition's cells were last chosen."""

    def _read_chosen(self) -> dict[Names, Chosen]:
        recorded = (self.store.read_json(CHOSEN) or {}).get("points", {})
        chosen = {}
        for names in self.plan.partitions:
            part = self.plan.of_partition(*names)
            stored = set(recorded.get("/".join(names), []))
            ids = ids_by_code(part)
            is_known = np.isin(ids[:, 0], np.array(sorted(stored), dtype="S")) & (ids[:, 0] != b"")
            repeats = (ids != b"").sum(axis=1)
            chosen[names] = {
                code: first_repeat(part, code, int(repeats[code]), stored.__contains__)
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
        return len(self.plan.of_partition(*names)) - self._ended(names, point_states(self.store))

    def _ended(self, names: Names, states: dict[str, State]) -> int:
        """The number of a partition's points that were measured or will not be tried again."""
        planned = self.plan.of_partition(*names)
        ids = {*planned.ids.tolist(), *self._chosen_part(names).ids.tolist()}
        return sum(self._has_ended(states.get(point_id.decode(), NEVER)) for point_id in ids)

    def _has_ended(self, state: State) -> bool:
        return state[0] in COMPLETE or failed_for_good(state, self.plan.campaign.retries.max)

    def _choose(self, names: Names) -> bool:
        """Choose and store the next cells of a partition, unless some are waiting. Return whether
        there are new ones."""
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
        part, chosen = self.plan.of_partition(*names), self._chosen[names]
        results = Results(self.store)
        data = site_data(results, names[0]) if ended else None
        offer = offered(self.plan, part, states, data, again=True)
        workers = self.plan.sites[names[0]].workers(names[1])
        batch = max(LEAST_BATCH, workers, len(part.inputs) // KERNELS_A_BATCH)
        picked = next_measurements(
            data,
            posterior_of(results, names[0], data),
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
        parts = list(map(self._chosen_part, self.plan.partitions))
        return replace(self.plan, points=PlannedPoints(parts))

    def _chosen_part(self, names: Names) -> PartitionPoints:
        chosen = self._chosen[names]
        part = self.plan.of_partition(*names)
        return part.only(np.array(sorted(chosen), np.int64)).with_repeats(chosen)


@dataclass(frozen=True, kw_only=True)
class AdaptiveState:
    """``ended``: the number of points that were measured or will not be tried again; ``settled``:
    whether no cell was chosen, and ``why``: as
    :class:`~analysis.choice.next_measurements.NextMeasurements`; ``lost_pct``: the expected loss of
    picks, None if nothing is known; ``cells``: the number of all cells."""

    ended: int
    settled: bool
    why: str
    lost_pct: float | None
    cells: int
