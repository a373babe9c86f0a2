"""The candidates of a search, and their measured costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of one problem: variants at settings.

    ``columns``: parameter (and clock) -> its values (N,), numbers or texts; NaN where a candidate
    has no such clock. Candidates are numbered in this order. ``terms``: name -> (N,), the summands
    of which a candidate's cost is a weighted sum; empty where the kernel states none.
    """

    columns: Mapping[str, np.ndarray]
    terms: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)

    @cached_property
    def levels(self) -> np.ndarray:
        """The rank of each candidate's value among all values of its parameter: (N, P), int32.
        Parameters with one value are left out."""
        ranks = [np.unique(c, return_inverse=True)[1] for c in self.columns.values()]
        varied = [rank.reshape(-1).astype(np.int32) for rank in ranks if rank.any()]
        return np.stack(varied, axis=1) if varied else np.zeros((len(self), 0), np.int32)

    @cached_property
    def numbers(self) -> Mapping[str, np.ndarray]:
        """The parameters that are numbers and have several values: name -> (N,), float64."""
        columns = {
            name: column.astype(float)
            for name, column in self.columns.items()
            if column.dtype.kind in "iuf"
        }
        return {
            name: np.nan_to_num(column)
            for name, column in columns.items()
            if len(np.unique(column)) > 1
        }


@dataclass(frozen=True, eq=False)
class Measured:
    """The candidates that have been measured: ``rows`` (n,), sorted, and their ``costs`` (n,),
    positive; NaN for those that failed."""

    rows: np.ndarray
    costs: np.ndarray

    @classmethod
    def of(cls, costs: Mapping[int, float]) -> Measured:
        """Return the measured candidates from candidate -> cost."""
        rows = np.array(sorted(costs), np.int64)
        return cls(rows, np.array([costs[row] for row in rows.tolist()], float))

    @cached_property
    def best_first(self) -> np.ndarray:
        """The rows of candidates that did not fail, the lowest cost first."""
        succeeded = np.flatnonzero(np.isfinite(self.costs))
        return self.rows[succeeded[np.argsort(self.costs[succeeded], kind="stable")]]

    def too_few(self, start: int) -> bool:
        """Whether fewer than ``start`` candidates have been measured, or all of them failed."""
        return len(self.rows) < start or not len(self.best_first)

    def free(self, count: int) -> np.ndarray:
        """Return (count,), bool: whether each of ``count`` candidates has not been measured."""
        free = np.ones(count, bool)
        free[self.rows] = False
        return free


Strategy = Callable[[Candidates, Measured, int, np.random.Generator], np.ndarray]
"""(candidates, measured, count, generator) -> the rows of the next candidates to measure: at most
``count`` unmeasured ones, in order; none where the search is over. A pure function of its
arguments."""
