"""The cells of a partition that may be measured next, and the choice among them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from analysis.choice.next_measurements import MeasuredCells
from analysis.measurements.observations import FitError, Observations, kernel_names, measured_volts
from analysis.predict.site import SitePosterior, site_posterior
from campaign.plan.estimate import launching_s, measuring_s
from campaign.plan.plan import Plan
from campaign.plan.planned_points import Input, PartitionPoints, partition_points
from campaign.plan.point import canonical_json
from campaign.results import Results
from campaign.store.measurement import will_be_tried_again
from campaign.store.states import NEVER, State
from campaign.variants.problems import ids_by_code
from dvfs.dataset import COMPLETE
from dvfs.setting import Setting


@dataclass(frozen=True, kw_only=True)
class Offered:
    """``part``: the points of a partition; ``cells``: its kernels at its settings. A cell (kernel,
    setting) has the code kernel * len(settings) + setting. ``planned``: the number of cells;
    ``repeats``: int (K, M), the total measurements of each cell after the offered ones."""

    part: PartitionPoints
    cells: MeasuredCells
    planned: int
    repeats: np.ndarray

    @property
    def measured(self) -> int:
        """The number of measured cells."""
        return int(self.cells.measured.sum())

    def code(self, cell: tuple[int, int]) -> int:
        """The number of a cell among the partition's candidates
        (:meth:`~campaign.plan.planned_points.PartitionPoints.only`)."""
        return cell[0] * len(self.part.settings) + cell[1]


def all_legal(plan: Plan, site: str, partition: str) -> PartitionPoints:
    """The points of a partition's kernels at all legal settings of its site, with the kernel's
    repeats; for a kernel that is listed twice, those of the first."""
    part = plan.of_partition(site, partition)
    planned = (ids_by_code(part) != b"").sum(axis=1).reshape(len(part.inputs), -1).max(axis=1)
    repeats: dict[Input, int] = {}
    for entry, often in zip(part.inputs, planned.tolist(), strict=True):
        repeats.setdefault(entry, often)
    return partition_points(
        site=site,
        partition=partition,
        inputs=list(repeats),
        settings=plan.sites[site].settings,
        repeats=list(repeats.values()),
        seed=plan.campaign.seed,
        batched=False,
        show=lambda count: None,
    )


def of_kernels(part: PartitionPoints, names: Sequence[str]) -> PartitionPoints:
    """The points of some kernels, by their names in the store."""
    is_named = [entry.label in names for entry in part.inputs]
    return part.only(np.flatnonzero(np.repeat(is_named, len(part.settings))))


def offered(
    plan: Plan,
    part: PartitionPoints,
    states: dict[str, State],
    data: Observations | None,
    *,
    again: bool = False,
) -> Offered:
    """The cells of a partition that were not measured and may be tried (again).

    ``states``: of the store's points; ``data``: the site's measurements, which name its kernels.
    ``again``: whether cells that were measured may be measured once more; ``data`` is then of this
    site, and a cell with rows there is measured.
    """
    site = plan.sites[part.site]
    is_failed = partial(failed_for_good, most_retries=plan.campaign.retries.max)
    shape = (len(part.inputs), len(part.settings))
    free, measured, is_new = (np.zeros(shape, bool) for _ in range(3))
    repeats, missing = np.zeros(shape, np.int64), np.ones(shape, np.int64)
    ids = ids_by_code(part)

    for code, point_ids in enumerate(ids.tolist()):
        if not point_ids[0]:
            continue
        place = divmod(code, len(part.settings))
        repeat_states = [states.get(point_id.decode(), NEVER) for point_id in point_ids if point_id]
        repeats[place] = len(repeat_states)
        n_missing = sum(status not in COMPLETE for status, _ in repeat_states)
        measured[place] = not n_missing
        is_new[place] = n_missing == len(repeat_states)
        if n_missing:
            missing[place] = n_missing
            free[place] = not any(map(is_failed, repeat_states))
        elif again:
            repeat = first_repeat(
                part, code, len(repeat_states), lambda name: states.get(name, NEVER)[0] in COMPLETE
            )
            repeats[place] = repeat + 1
            free[place] = not is_failed(states.get(part.point_id(code, repeat), NEVER))
    labels = _labels(part.inputs, data)
    if again and data is not None:
        measured |= is_new & _has_rows(data, labels, part.settings)

    def node_hours(kernel: int, time_s: np.ndarray) -> np.ndarray:
        launch_s = launching_s(site, part.inputs[kernel].ranks)
        seconds = [
            launch_s + measuring_s(plan.campaign.protocol, site, iteration_s)
            for iteration_s in np.nan_to_num(time_s).tolist()
        ]
        return np.array(seconds) * site.nodes_per_point / 3600.0

    return Offered(
        part=part,
        cells=MeasuredCells(
            labels=labels,
            settings=part.settings,
            measured=measured,
            free=free,
            measurements=missing,
            node_hours=node_hours,
        ),
        planned=int((ids[:, 0] != b"").sum()),
        repeats=repeats,
    )


def failed_for_good(state: State, most_retries: int) -> bool:
    """Whether a point has failed, and will not be tried again."""
    status, attempts = state
    is_open = status is None or status in COMPLETE
    return not (is_open or will_be_tried_again(status, attempts, most_retries))


def first_repeat(
    part: PartitionPoints, code: int, start: int, is_done: Callable[[str], bool]
) -> int:
    """The first repeat of a cell, from ``start`` on, whose point's id is not done."""
    return next(n for n in itertools.count(start) if not is_done(part.point_id(code, n)))


def _labels(inputs: Sequence[Input], data: Observations | None) -> list[str | None]:
    """The label of each input in the measurements; None if it was never measured."""
    if data is None:
        return [None] * len(inputs)
    label_of = {}
    for label in kernel_names(data):
        instance = data.instance(label)
        label_of[instance.name, canonical_json(dict(instance.params))] = label
    return [label_of.get((entry.label, canonical_json(given_params(entry)))) for entry in inputs]


def given_params(entry: Input) -> dict[str, Any]:
    """The parameters with a value; None means the kernel's default, which a campaign file and a
    measurement's label omit."""
    return {name: v for name, v in json.loads(entry.params).items() if v is not None}


def _has_rows(
    data: Observations, labels: Sequence[str | None], settings: Sequence[Setting]
) -> np.ndarray:
    """bool (labels, settings): the cells with measurements, which another partition or an imported
    table may have."""
    has_rows = np.zeros((len(data.kernels) + 1, len(data.settings) + 1), bool)
    has_rows[data.kernel, data.setting] = True
    kernel_of: dict[str | None, int] = {label: i for i, label in enumerate(data.kernels)}
    setting_of = {setting: i for i, setting in enumerate(data.settings)}
    kernels = [kernel_of.get(label, -1) for label in labels]
    return np.asarray(has_rows[np.ix_(kernels, [setting_of.get(s, -1) for s in settings])])


def site_data(results: Results, site: str) -> Observations | None:
    """A site's measurements in the form for the model; None if none has an energy.

    Raises:
        ArgumentError: no fit can represent them.
    """
    try:
        data, _ = results.usable_data(site, accept_unproven=False)
    except FitError:
        return None
    return data


def posterior_of(results: Results, site: str, data: Observations | None) -> SitePosterior | None:
    """The posterior given a site's measurements ``data``; None without any."""
    if data is None:
        return None
    return site_posterior(data, {**results.setting_volts(site), **measured_volts(data)})
