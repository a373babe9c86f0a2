"""Candidates for the variants of a space, as arrays, while their parameters are bound in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.space import BadSpace

MAX_VALUES = 1_000_000
"""The most values of one parameter."""
CHUNK = 1 << 19
"""Candidates that are held at once, where a parameter has no more values."""


@dataclass(frozen=True)
class Candidates:
    """Values of the parameters bound so far: ``columns`` as in
    :class:`kernels.space_variants.Variants`, ``size`` rows."""

    size: int
    columns: dict[str, np.ndarray]

    def take(self, rows: np.ndarray) -> Candidates:
        return Candidates(len(rows), {name: column[rows] for name, column in self.columns.items()})


@dataclass(frozen=True)
class Bound:
    """Candidates with one more parameter, ``name``: row i has the parameters of the row ``rows[i]``
    of ``parents``, and ``column[i]``. The parents' columns are copied only where they are used."""

    parents: Candidates
    rows: np.ndarray
    name: str
    column: np.ndarray

    def keep(self, passed: np.ndarray) -> Bound:
        """Those that passed: indices into ``rows``."""
        return Bound(self.parents, self.rows[passed], self.name, self.column[passed])

    def candidates(self) -> Candidates:
        taken = self.parents.take(self.rows)
        return Candidates(taken.size, taken.columns | {self.name: self.column})


@dataclass(frozen=True)
class Series:
    """The values of a parameter for each candidate (N,): ``counts`` of them, from ``first`` in
    steps of ``step``; where there is ``of``, these are places in it."""

    counts: np.ndarray
    first: np.ndarray
    step: np.ndarray
    of: np.ndarray | None = None

    def bound(self, name: str, parents: Candidates) -> Iterator[Bound]:
        """The candidates with each of their values, in order, some at a time."""
        ends = np.cumsum(self.counts)
        total = int(ends[-1])
        starts = np.searchsorted(ends, np.arange(0, total, CHUNK), side="right").tolist()
        for a, b in zip(starts, [*starts[1:], parents.size], strict=True):
            counts, first, step = self.counts[a:b], self.first[a:b], self.step[a:b]
            rows = np.repeat(np.arange(a, b), counts)
            before = np.cumsum(counts) - counts
            if first.dtype.kind == step.dtype.kind == "i" and np.all(step == step[0]):
                column = np.repeat(first - before * step, counts) + np.arange(len(rows)) * step[0]
            else:
                within = np.arange(len(rows)) - np.repeat(before, counts)
                column = self.first[rows] + within * self.step[rows]
            yield Bound(parents, rows, name, column if self.of is None else self.of[column])


def range_counts(name: str, first: np.ndarray, last: np.ndarray, step: np.ndarray) -> np.ndarray:
    """How many values each range (N,) has; none where its last lies before its first."""
    if any(part.dtype.kind not in "bif" for part in (first, last, step)):
        raise BadSpace(name, "a range of texts", "give numbers")
    if np.any(step == 0):
        raise BadSpace(name, "a range with step 0", "give a step that is not 0")
    steps = np.floor((last.astype(float) - first) / step * (1 + 1e-12) + 1e-12)
    counts = np.maximum(steps + 1, 0)
    if counts.max(initial=0) > MAX_VALUES:
        raise BadSpace(
            name,
            f"a range of {counts.max():,.0f} values",
            f"give a larger step: a parameter may have {MAX_VALUES:,} values",
        )
    return counts.astype(np.int64)
