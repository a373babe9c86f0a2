"""The problems of a partition, and the candidates of each that a search chooses from.

A problem is a kernel with the parameters that say what is computed; its candidates are the variants
of its space, each at every setting.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.costs.linear_cost import at_clocks
from analysis.search.candidates import Candidates
from campaign.plan.plan import Plan
from campaign.plan.planned_points import PartitionPoints
from campaign.plan.point import canonical_json
from campaign.store.tables import Cost
from campaign.variants.stated_terms import stated_terms
from dvfs.setting import NUMBERS, OPTIONAL, Setting, number_columns

POWERS = (-1, 2)
"""Powers of a clock in the terms of a candidate's cost: time falls with the clock; the energy of an
operation rises with the square of the voltage, which rises with the clock."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """A problem of a partition.

    ``label``: the kernel's name in the store; ``params``: the parameters that say what is computed.
    ``codes``: (N,), the candidates' numbers among the partition's points
    (:meth:`~campaign.plan.planned_points.PartitionPoints.only`). ``ids``: (N, repeats), the ids of
    their points, empty where a candidate has fewer repeats. ``variants``: (N,), the index of each
    candidate's variant in ``variant_params``, which has the parameters of its space.
    """

    label: str
    params: Mapping[str, Any]
    codes: np.ndarray
    ids: np.ndarray
    candidates: Candidates
    variants: np.ndarray
    variant_params: Sequence[Mapping[str, Any]]
    settings: Sequence[Setting]
    """(N,), the candidates' settings."""

    @property
    def seed(self) -> int:
        """A seed for random draws, different for each problem."""
        return zlib.crc32(f"{self.label} {canonical_json(dict(self.params))}".encode())

    def mean_costs(self, rows: np.ndarray, costs: Mapping[str, Cost]) -> np.ndarray:
        """Energy (J) and time (s) of candidates, means over their measured repeats: (len(rows), 2);
        NaN where no repeat was measured."""
        missing = Cost(np.nan, np.nan)
        ids = self.ids[rows]
        flat = [costs.get(point_id.decode(), missing) for point_id in ids.ravel().tolist()]
        values = np.array(flat, float).reshape(*ids.shape, 2)
        finite = np.isfinite(values)
        total = np.where(finite, values, 0.0).sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / finite.sum(axis=1))


def problems(plan: Plan, site: str, partition: str) -> list[Problem]:
    """The problems of a partition, in the order of the campaign file."""
    part = plan.of_partition(site, partition)
    tuned = plan.campaign.tuned
    members: dict[tuple[str, int, str], list[int]] = {}
    input_variants: list[dict[str, Any]] = []
    for index, entry in enumerate(part.inputs):
        params = json.loads(entry.params)
        input_variants.append(
            {name: params.pop(name) for name in tuned.get(entry.label, ()) if name in params}
        )
        members.setdefault((entry.label, entry.ranks, canonical_json(params)), []).append(index)
    ids = ids_by_code(part)
    partition_problems = []
    for (label, _, params), indices in members.items():
        codes = (
            np.array(indices)[:, None] * len(part.settings) + np.arange(len(part.settings))
        ).ravel()
        planned = ids[codes, 0] != b""
        codes = codes[planned]
        settings = [part.settings[code % len(part.settings)] for code in codes.tolist()]
        variant_params = [input_variants[index] for index in indices]
        kernel = part.inputs[indices[0]].kernel
        terms = stated_terms(kernel, [part.inputs[index].params for index in indices])
        variant_index = np.repeat(np.arange(len(indices)), len(part.settings))[planned]
        partition_problems.append(
            Problem(
                label=label,
                params=json.loads(params),
                codes=codes,
                ids=ids[codes],
                candidates=candidates_of(variant_params, terms, variant_index, settings),
                variants=variant_index,
                variant_params=variant_params,
                settings=settings,
            )
        )
    return partition_problems


def ids_by_code(part: PartitionPoints) -> np.ndarray:
    """The ids of a partition's points by candidate: (candidates, repeats), bytes; empty where the
    plan does not measure the kernel at the setting, or has fewer repeats there."""
    ids = np.zeros((len(part.inputs) * len(part.settings), len(part.ends)), part.ids.dtype)
    for repeat, (start, end) in enumerate(itertools.pairwise([0, *part.ends])):
        ids[part.order[start:end], repeat] = part.ids[start:end]
    return ids


def candidates_of(
    variants: Sequence[Mapping[str, Any]],
    terms: Mapping[str, np.ndarray],
    index: np.ndarray,
    settings: Sequence[Setting],
) -> Candidates:
    """The candidates ``variants[index[i]]`` at ``settings[i]``. ``terms``: of the variants
    (:func:`~campaign.variants.stated_terms.stated_terms`). Parameters that are lists become texts.
    """
    names = sorted({name for variant in variants for name in variant})
    columns = {name: _column([variant.get(name) for variant in variants])[index] for name in names}
    axes = _axis_columns(settings)
    by_candidate = {name: column[index] for name, column in terms.items()}
    numbers = {name: column for name, column in axes.items() if name in NUMBERS}
    return Candidates(columns | axes, at_clocks(by_candidate, numbers, POWERS))


def _axis_columns(settings: Sequence[Setting]) -> dict[str, np.ndarray]:
    """Axis -> values of the settings: clocks, MHz, and power limits, W, NaN for none, and profiles;
    optional axes only where some setting has them."""
    columns = dict(zip(NUMBERS, number_columns(settings).T, strict=True))
    for name in OPTIONAL:
        if all(getattr(setting, name) is None for setting in settings):
            columns.pop(name, None)
        elif name not in NUMBERS:
            columns[name] = _column([getattr(setting, name) or "" for setting in settings])
    return columns


def _column(values: Sequence[Any]) -> np.ndarray:
    """The values as an array: all numbers, or else all texts."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values)
    return np.array([value if isinstance(value, str) else json.dumps(value) for value in values])
