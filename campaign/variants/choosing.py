"""Which points of a campaign are measured next, chosen batch by batch from what is stored."""

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
"""A site and a partition of it."""
SEARCH = "search.json"
"""The file of a store with the points that a search has chosen."""
BATCH = 5
"""So many candidates are chosen together where the campaign file does not say."""


class Tuning:
    """Chooses the points of a plan (:class:`campaign.launch.chooser.Chooser`).

    What it chooses follows from the plan, the search and the store alone: a search that was
    interrupted goes on with the points that it had chosen.
    """

    command = "tune"

    def __init__(self, plan: Plan, store: Store, search: Search) -> None:
        self.plan, self.store, self.search = plan, store, search
        self.objective = objective_of(search.objective)
        self.problems = {names: problems(plan, *names) for names in plan.partitions}
        self._chosen = self._read_chosen()

    def _read_chosen(self) -> dict[Names, set[int]]:
        """The candidates of each partition that the store says were chosen."""
        kept = (self.store.read_json(SEARCH) or {}).get("points", {})
        chosen = {}
        for names, of_partition in self.problems.items():
            ids = np.array(kept.get("/".join(names), []), dtype="S")
            codes = [problem.codes[np.isin(problem.ids[:, 0], ids)] for problem in of_partition]
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

    def known(self, names: Names) -> list[Measured]:
        """The candidates of each problem of a partition that are measured or have failed."""
        return self._progress(names).known

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
        known, codes = [], set(self._chosen[names])
        waiting = set(codes)
        for problem in self.problems[names]:
            rows = np.flatnonzero(np.isin(problem.ids, ids).all(axis=1))
            means = problem.mean_costs(rows, costs)
            scores = score(self.objective, means)
            if np.isfinite(means[:, 1]).any() and not np.isfinite(scores).any():
                raise ArgumentError(
                    f"search.objective: {self.objective.name} needs energies, and no energy of "
                    f'{problem.label} was measured at {"/".join(names)}; use objective = "time", '
                    f"or add a meter to the site file. What was measured is kept"
                )
            known.append(Measured(rows, scores))
            codes.update(problem.codes[rows].tolist())
            waiting.difference_update(problem.codes[rows].tolist())
        everything = sum(len(problem.codes) for problem in self.problems[names])
        budget = everything
        if self.search.budget is not None:
            budget = min(everything, self.search.budget // self.plan.campaign.most_repeats)
        return _Progress(known, len(waiting), max(budget - len(codes), 0))

    def _choose(self, names: Names) -> list[int]:
        """Choose the next candidates of a partition where none is waiting, and keep the choice."""
        progress = self._progress(names)
        if progress.waiting or not progress.may_come:
            return []
        batch = self.search.batch or max(BATCH, self.plan.sites[names[0]].workers(names[1]))
        searched = [
            (problem, known)
            for problem, known in zip(self.problems[names], progress.known, strict=True)
            if len(known.rows) < len(problem.codes)
        ]
        codes: list[int] = []
        for place, (problem, known) in enumerate(searched):
            share = -(-(progress.may_come - len(codes)) // (len(searched) - place))
            seed = [self.search.seed, problem.seed]
            with explain_missing():
                rows = next_batch(
                    self.search.strategy, problem.candidates, known, min(batch, share), seed
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
    """How far the search of a partition is: what is ``known`` of each problem; the chosen
    candidates that are ``waiting`` to be measured; and how many ``may_come`` beside these."""

    known: list[Measured]
    waiting: int
    may_come: int
