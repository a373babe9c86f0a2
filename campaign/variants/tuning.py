"""The choice of a campaign's next points, batch by batch, from the store's measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.choice.objectives import objective as objective_of
from analysis.search.candidates import Measured
from analysis.search.play import score
from analysis.search.strategies import next_batch
from campaign.launch.drive import plan_record, planned_points
from campaign.plan.campaign_file import Search
from campaign.plan.plan import Plan
from campaign.plan.planned_points import PlannedPoints
from campaign.plan.point import Point
from campaign.store.layout import Store, writing
from campaign.store.measurement import will_be_tried_again
from campaign.store.planned import write_planned
from campaign.store.records import read_contents
from campaign.store.states import point_states
from campaign.store.tables import measured_costs
from campaign.variants.problems import problems
from dvfs.dataset import COMPLETE
from dvfs.errors import ArgumentError
from dvfs.extras import explain_missing

Names = tuple[str, str]
"""The names of a site and its partition."""
SEARCH = "search.json"
"""The store's file of the points that a search has chosen."""
BATCH = 5
"""The number of candidates chosen together where the campaign file does not say."""


class Tuning:
    """Chooses the points of a plan (:class:`campaign.launch.chooser.Chooser`).

    The choice depends on the plan, the search and the store alone: an interrupted search continues
    with the points that it had chosen.
    """

    command = "tune"

    def __init__(self, plan: Plan, store: Store, search: Search) -> None:
        self.plan, self.store, self.search = plan, store, search
        self.objective = objective_of(search.objective)
        self.problems = {names: problems(plan, *names) for names in plan.partitions}
        self._chosen = self._read_chosen()

    def _read_chosen(self) -> dict[Names, set[int]]:
        """The chosen candidates of each partition, as recorded in the store."""
        recorded = (self.store.read_json(SEARCH) or {}).get("points", {})
        chosen = {}
        for names, group in self.problems.items():
            ids = np.array(recorded.get("/".join(names), []), dtype="S")
            codes = [problem.codes[np.isin(problem.ids[:, 0], ids)] for problem in group]
            chosen[names] = set(np.concatenate(codes).tolist())
        return chosen

    def begin(self) -> Plan:
        """See :class:`~campaign.launch.chooser.Chooser`."""
        for names in self.plan.partitions:
            self._choose(names)
        return self._chosen_plan()

    def next_points(self, site: str, partition: str) -> list[Point]:
        """See :class:`~campaign.launch.chooser.Chooser`."""
        codes = self._choose((site, partition))
        return list(self.plan.of_partition(site, partition).only(np.array(codes, np.int64)))

    def most(self, site: str, partition: str) -> int:
        """See :class:`~campaign.launch.chooser.Chooser`."""
        progress = self._progress((site, partition))
        return (progress.waiting + progress.may_come) * self.plan.campaign.most_repeats

    def measured(self, names: Names) -> list[Measured]:
        """The candidates of each problem of a partition that were measured or have failed."""
        return self._progress(names).measured

    def _progress(self, names: Names) -> _Progress:
        contents = read_contents(self.store)
        states, costs = point_states(self.store, contents), measured_costs(contents)
        retries = self.plan.campaign.retries.max
        ended = {
            point_id.encode()
            for point_id, (status, attempts) in states.items()
            if status in COMPLETE or not will_be_tried_again(status, attempts, retries)
        }
        # A candidate with fewer repeats than others has empty ids.
        ids = np.array([b"", *sorted(ended)], dtype="S")
        measured, codes = [], set(self._chosen[names])
        waiting = set(codes)
        for problem in self.problems[names]:
            rows = np.flatnonzero(np.isin(problem.ids, ids).all(axis=1))
            mean_costs = problem.mean_costs(rows, costs)
            scores = score(self.objective, mean_costs)
            if np.isfinite(mean_costs[:, 1]).any() and not np.isfinite(scores).any():
                raise ArgumentError(
                    f"search.objective: {self.objective.name} needs energies, and no energy of "
                    f'{problem.label} was measured at {"/".join(names)}; use objective = "time", '
                    f"or add a meter to the site file. What was measured is kept"
                )
            measured.append(Measured(rows, scores))
            codes.update(problem.codes[rows].tolist())
            waiting.difference_update(problem.codes[rows].tolist())
        candidate_count = sum(len(problem.codes) for problem in self.problems[names])
        budget = candidate_count
        if self.search.budget is not None:
            budget = min(candidate_count, self.search.budget // self.plan.campaign.most_repeats)
        return _Progress(measured, len(waiting), max(budget - len(codes), 0))

    def _choose(self, names: Names) -> list[int]:
        """Where no candidate is waiting, choose the next of a partition, and record the choice."""
        progress = self._progress(names)
        if progress.waiting or not progress.may_come:
            return []
        batch = self.search.batch or max(BATCH, self.plan.sites[names[0]].workers(names[1]))
        searched = [
            (problem, measured)
            for problem, measured in zip(self.problems[names], progress.measured, strict=True)
            if len(measured.rows) < len(problem.codes)
        ]
        codes: list[int] = []
        for index, (problem, measured) in enumerate(searched):
            share = -(-(progress.may_come - len(codes)) // (len(searched) - index))
            seed = [self.search.seed, problem.seed]
            with explain_missing():
                rows = next_batch(
                    self.search.strategy, problem.candidates, measured, min(batch, share), seed
                )
            codes += problem.codes[rows].tolist()
        self._chosen[names].update(codes)
        plan = self._chosen_plan()
        ids = planned_points(plan)
        with writing(self.store):
            self.store.write_json(SEARCH, {"search": self.search.model_dump(), "points": ids})
            write_planned(self.store, plan_record(plan, self.store), ids)
        return codes

    def _chosen_plan(self) -> Plan:
        parts = [
            part.only(np.array(sorted(self._chosen[part.site, part.partition]), np.int64))
            for part in self.plan.points.parts
        ]
        return replace(self.plan, points=PlannedPoints(parts))


@dataclass(frozen=True)
class _Progress:
    """The progress of the search of a partition: the ``measured`` candidates of each problem; the
    number of chosen candidates ``waiting`` to be measured; and how many more ``may_come``."""

    measured: list[Measured]
    waiting: int
    may_come: int
