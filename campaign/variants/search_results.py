"""The results of a search: the best, the fastest and the least energy of each problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.choice.objectives import ENERGY, TIME, Objective
from analysis.search.candidates import Measured
from analysis.search.play import score
from campaign.store.records import read_contents
from campaign.store.states import point_states
from campaign.store.tables import Cost, measured_costs
from campaign.variants.problems import Problem
from campaign.variants.tuning import Tuning
from dvfs.dataset import CLOCK_UNPROVEN
from dvfs.setting import Setting
from sites.clocks.slurm import slurm_flags


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A variant at a setting. ``variant``: the parameters that a space declares. ``energy_j``,
    ``time_s``: means of the measurements; ``energy_lost_pct``, ``time_lost_pct``: their excess over
    the least that was measured, in %. NaN where missing."""

    variant: Mapping[str, Any]
    setting: Setting
    energy_j: float
    time_s: float
    energy_lost_pct: float
    time_lost_pct: float
    slurm: str

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        costs = {name: value for name, value in vars(self).items() if name != "setting"}
        return {"variant": costs.pop("variant"), **self.setting.as_dict(), **costs}


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The result of a search for one problem of a partition.

    ``params``: what is computed. ``candidates``: their number; ``measured`` and ``failed``: how
    many of them. ``best``: by the objective; None where nothing was measured. ``unproven_clocks``:
    whether nothing showed at which clocks some of them ran.
    """

    site: str
    partition: str
    kernel: str
    params: Mapping[str, Any]
    simulated: bool
    objective: str
    candidates: int
    measured: int
    failed: int
    best: Choice | None
    fastest: Choice | None
    least_energy: Choice | None
    unproven_clocks: bool

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            name: value.as_dict() if isinstance(value, Choice) else value
            for name, value in vars(self).items()
        }


def search_results(tuning: Tuning) -> list[SearchResult]:
    """The results so far, for each problem of each partition."""
    contents = read_contents(tuning.store)
    costs = measured_costs(contents)
    unproven_ids = [
        point_id.encode()
        for point_id, (status, _) in point_states(tuning.store, contents).items()
        if status == CLOCK_UNPROVEN
    ]
    results = []
    for site, partition in tuning.plan.partitions:
        for problem, candidates in zip(
            tuning.problems[site, partition], tuning.measured((site, partition)), strict=True
        ):
            results.append(
                _problem_result(
                    tuning, (site, partition), problem, candidates.rows, costs, unproven_ids
                )
            )
    return results


def _problem_result(
    tuning: Tuning,
    names: tuple[str, str],
    problem: Problem,
    rows: np.ndarray,
    costs: Mapping[str, Cost],
    unproven_ids: Sequence[bytes],
) -> SearchResult:
    site = tuning.plan.sites[names[0]]
    mean_costs = problem.mean_costs(rows, costs)
    least_costs = [
        float(np.nanmin(column)) if np.isfinite(column).any() else np.nan for column in mean_costs.T
    ]

    def choice(objective: Objective) -> Choice | None:
        order = Measured(rows, score(objective, mean_costs)).best_first
        if not len(order):
            return None
        row = int(order[0])
        energy_j, time_s = mean_costs[np.searchsorted(rows, row)].tolist()
        setting: Setting = problem.settings[row]
        return Choice(
            variant=problem.variant_params[problem.variants[row]],
            setting=setting,
            energy_j=energy_j,
            time_s=time_s,
            energy_lost_pct=(energy_j / least_costs[0] - 1.0) * 100.0,
            time_lost_pct=(time_s / least_costs[1] - 1.0) * 100.0,
            slurm=slurm_flags(setting, site.clocks.device),
        )

    succeeded = int(np.isfinite(mean_costs[:, 1]).sum())
    return SearchResult(
        site=names[0],
        partition=names[1],
        kernel=problem.label,
        params=problem.params,
        simulated=site.is_simulated,
        objective=tuning.objective.title,
        candidates=len(problem.codes),
        measured=succeeded,
        failed=len(rows) - succeeded,
        best=choice(tuning.objective),
        fastest=choice(TIME),
        least_energy=choice(ENERGY),
        unproven_clocks=bool(np.isin(problem.ids[rows], np.array(unproven_ids, dtype="S")).any()),
    )
