"""What may be measured next on a partition: its kernels at settings, and what each would cost."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.next_measurements import Cells
from analysis.dataset import COMPLETE
from analysis.measurements.observations import Observations
from campaign.measurement import will_be_tried_again
from campaign.plan.estimate import launching_s, measuring_s
from campaign.plan.plan import Plan
from campaign.plan.planned_points import Input, PartitionPoints, partition_points
from campaign.plan.point import canonical_json
from campaign.store.states import NEVER, State
from campaign.tuning.problems import ids_by_code
from sites.setting import Setting


@dataclass(frozen=True, kw_only=True)
class Offered:
    """``part``: the points of a partition; ``cells``: its kernels at its settings. A cell (kernel,
    setting) has the code kernel * len(settings) + setting. ``planned``: how many cells there are;
    ``done``: bool (K, M), those that have been measured."""

    part: PartitionPoints
    cells: Cells
    planned: int
    done: np.ndarray

    @property
    def measured(self) -> int:
        """How many cells have been measured."""
        return int(self.done.sum())

    def code(self, cell: tuple[int, int]) -> int:
        """The number of a cell among the partition's candidates
        (:meth:`~campaign.plan.planned_points.PartitionPoints.only`)."""
        return cell[0] * len(self.part.settings) + cell[1]


def all_legal(plan: Plan, site: str, partition: str) -> PartitionPoints:
    """The points of a partition's kernels at all legal settings of its site."""
    part = plan.of_partition(site, partition)
    return partition_points(
        site=site,
        partition=partition,
        inputs=part.inputs,
        settings=plan.sites[site].settings,
        repeats=plan.campaign.repeats,
        seed=plan.campaign.seed,
        batched=False,
        show=lambda count: None,
    )


def of_kernels(part: PartitionPoints, names: Sequence[str]) -> PartitionPoints:
    """The points of some kernels, by their names in the store."""
    own = [k for k, entry in enumerate(part.inputs) if entry.label in names]
    codes = [k * len(part.settings) + s for k in own for s in range(len(part.settings))]
    return part.only(np.array(codes, np.int64))


def offered(
    plan: Plan, part: PartitionPoints, states: dict[str, State], data: Observations | None
) -> Offered:
    """The cells of a partition that were not measured and have not failed for good.

    ``states``: of the store's points; ``data``: the site's measurements, which name its kernels.
    """
    site = plan.sites[part.site]
    retries = plan.campaign.retries.max
    shape = (len(part.inputs), len(part.settings))
    free, measured = np.zeros(shape, bool), np.zeros(shape, bool)
    ids = ids_by_code(part)
    for code, own in enumerate(ids.tolist()):
        if not own[0]:
            continue
        now = [states.get(point_id.decode(), NEVER) for point_id in own]
        done = all(status in COMPLETE for status, _ in now)
        failed = any(
            status is not None
            and status not in COMPLETE
            and not will_be_tried_again(status, attempts, retries)
            for status, attempts in now
        )
        place = divmod(code, len(part.settings))
        measured[place], free[place] = done, not done and not failed
    labels = _labels(part.inputs, data)

    def node_hours(kernel: int, time_s: np.ndarray) -> np.ndarray:
        launch_s = launching_s(site, part.inputs[kernel].ranks)
        seconds = [
            launch_s + measuring_s(plan.campaign.protocol, site, iteration_s)
            for iteration_s in np.nan_to_num(time_s).tolist()
        ]
        return np.array(seconds) * plan.campaign.repeats / 3600.0

    return Offered(
        part=part,
        cells=Cells(
            labels=labels,
            settings=[_pair(setting) for setting in part.settings],
            free=free,
            node_hours=node_hours,
        ),
        planned=int((ids[:, 0] != b"").sum()),
        done=measured,
    )


def _pair(setting: Setting) -> tuple[float, float]:
    core_mhz, mem_mhz = (
        math.nan if mhz is None else float(mhz) for mhz in (setting.core_mhz, setting.mem_mhz)
    )
    return core_mhz, mem_mhz


def _labels(inputs: Sequence[Input], data: Observations | None) -> list[str | None]:
    """The label of each input among the measurements; None where it was never measured."""
    if data is None:
        return [None] * len(inputs)
    known = {}
    for label in dict.fromkeys(data.kernel.tolist()):
        instance = data.instance(label)
        known[instance.name, canonical_json(dict(instance.params))] = label
    return [known.get((entry.label, _without_none(entry.params))) for entry in inputs]


def _without_none(params: str) -> str:
    values = json.loads(params)
    return canonical_json({name: value for name, value in values.items() if value is not None})
