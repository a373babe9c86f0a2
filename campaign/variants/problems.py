"""What a search chooses among: the problems of a partition, and the candidates of each.

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
"""Of a clock, that a candidate's cost may be made of: time falls with it, and the energy of an
operation rises with the square of the voltage, which rises with it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """A problem of a partition.

    ``label``: the kernel's name in the store; ``params``: the parameters that say what is computed.
    ``codes``: (N,), the candidates' numbers among the partition's points
    (:meth:`~campaign.plan.planned_points.PartitionPoints.only`). ``ids``: (N, repeats), the ids of
    their points, empty where one has fewer repeats. ``variants``: (N,), the index of each one's
    variant in ``of_variants``, whose parameters are the variant's own.
    """

    label: str
    params: Mapping[str, Any]
    codes: np.ndarray
    ids: np.ndarray
    candidates: Candidates
    variants: np.ndarray
    of_variants: Sequence[Mapping[str, Any]]
    settings: Sequence[Setting]
    """(N,), each candidate's."""

    @property
    def seed(self) -> int:
        """A number of its own for what is drawn at random."""
        return zlib.crc32(f"{self.label} {canonical_json(dict(self.params))}".encode())

    def mean_costs(self, rows: np.ndarray, costs: Mapping[str, Cost]) -> np.ndarray:
        """Energy (J) and time (s) of candidates, means of their measured repeats: (len(rows), 2);
        NaN where none is measured."""
        nothing = Cost(np.nan, np.nan)
        ids = self.ids[rows]
        flat = [costs.get(point_id.decode(), nothing) for point_id in ids.ravel().tolist()]
        values = np.array(flat, float).reshape(*ids.shape, 2)
        known = np.isfinite(values)
        total = np.where(known, values, 0.0).sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / known.sum(axis=1))


def problems(plan: Plan, site: str, partition: str) -> list[Problem]:
    """The problems of a partition, in the order of the campaign file."""
    part = plan.of_partition(site, partition)
    tuned = plan.campaign.tuned
    members: dict[tuple[str, int, str], list[int]] = {}
    variants: list[dict[str, Any]] = []
    for number, entry in enumerate(part.inputs):
        params = json.loads(entry.params)
        variants.append(
            {name: params.pop(name) for name in tuned.get(entry.label, ()) if name in params}
        )
        members.setdefault((entry.label, entry.ranks, canonical_json(params)), []).append(number)
    ids = ids_by_code(part)
    made = []
    for (label, _, params), numbers in members.items():
        codes = (
            np.array(numbers)[:, None] * len(part.settings) + np.arange(len(part.settings))
        ).ravel()
        there = ids[codes, 0] != b""
        codes = codes[there]
        settings = [part.settings[code % len(part.settings)] for code in codes.tolist()]
        of_variants = [variants[number] for number in numbers]
        own_variant = np.repeat(np.arange(len(numbers)), len(part.settings))[there]
        made.append(
            Problem(
                label=label,
                params=json.loads(params),
                codes=codes,
                ids=ids[codes],
                candidates=Candidates(
                    candidate_columns(of_variants, own_variant, settings),
                    candidate_terms(
                        stated_terms(
                            part.inputs[numbers[0]].kernel,
                            [part.inputs[number].params for number in numbers],
                        ),
                        own_variant,
                        settings,
                    ),
                ),
                variants=own_variant,
                of_variants=of_variants,
                settings=settings,
            )
        )
    return made


def candidate_terms(
    stated: Mapping[str, np.ndarray], of: np.ndarray, settings: Sequence[Setting]
) -> dict[str, np.ndarray]:
    """The terms of candidates (:class:`analysis.search.candidates.Candidates`): ``stated`` of their
    variants (:func:`~campaign.variants.stated_terms.stated_terms`), at their settings' clocks."""
    columns = {name: column[of] for name, column in stated.items()}
    return at_clocks(columns, clock_columns(settings), POWERS)


def ids_by_code(part: PartitionPoints) -> np.ndarray:
    """The ids of a partition's points by candidate: (candidates, repeats), bytes; empty where the
    kernel is not measured at the setting, or not so often."""
    ids = np.zeros((len(part.inputs) * len(part.settings), len(part.ends)), part.ids.dtype)
    for repeat, (start, end) in enumerate(itertools.pairwise([0, *part.ends])):
        ids[part.order[start:end], repeat] = part.ids[start:end]
    return ids


def candidate_columns(
    variants: Sequence[Mapping[str, Any]], of: np.ndarray, settings: Sequence[Setting]
) -> dict[str, np.ndarray]:
    """The columns of candidates: the parameters of ``variants[of[i]]``, and the clocks of
    ``settings[i]``. Lists become texts."""
    names = sorted({name for variant in variants for name in variant})
    columns = {name: as_column([variant.get(name) for variant in variants])[of] for name in names}
    return columns | clock_columns(settings)


def clock_columns(settings: Sequence[Setting]) -> dict[str, np.ndarray]:
    """What settings have values of: clocks, MHz, and power limits, W, NaN for none, and profiles;
    what is optional only where some have it."""
    columns = dict(zip(NUMBERS, number_columns(settings).T, strict=True))
    for name in OPTIONAL:
        if all(getattr(setting, name) is None for setting in settings):
            columns.pop(name, None)
        elif name not in NUMBERS:
            columns[name] = as_column([getattr(setting, name) or "" for setting in settings])
    return columns


def as_column(values: Sequence[Any]) -> np.ndarray:
    """Numbers as they are; everything else as text."""
    if all(isinstance(value, int | float) for value in values):
        return np.array(values)
    return np.array([value if isinstance(value, str) else json.dumps(value) for value in values])
