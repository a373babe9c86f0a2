"""Rows in groups, with medians and means of each: pandas takes longer to import than these."""

from __future__ import annotations

import numpy as np


class Groups:
    """Rows by a code, int64 (rows,). ``codes``: the distinct ones, sorted; ``sizes``: the rows of
    each."""

    def __init__(self, code: np.ndarray) -> None:
        self._order = np.argsort(code, kind="stable")
        ordered = code[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
        self.codes = ordered[self._starts]
        self.sizes = np.diff(self._starts, append=len(code))

    def rows(self) -> list[np.ndarray]:
        """int64 each: the rows of each group, in their order."""
        return np.split(self._order, self._starts[1:])

    def places(self) -> np.ndarray:
        """int64 (rows,): how many rows of its group are before each row."""
        places = np.empty(len(self._order), np.int64)
        places[self._order] = np.arange(len(self._order)) - np.repeat(self._starts, self.sizes)
        return places

    def medians(self, values: np.ndarray) -> np.ndarray:
        """float64 (groups,): the median of each group's values, of which none is NaN."""
        found = np.empty(len(self.codes))
        for size in np.unique(self.sizes).tolist():
            mine = np.flatnonzero(self.sizes == size)
            own = values[self._order[self._starts[mine][:, None] + np.arange(size)]]
            found[mine] = own[:, 0] if size == 1 else np.median(own, axis=1)
        return found

    def means(self, values: np.ndarray) -> np.ndarray:
        """float64 (groups,): the mean of each group's values."""
        if not len(values):
            return np.zeros(0)
        return np.asarray(np.add.reduceat(values[self._order], self._starts) / self.sizes)

    def by_row(self, of_group: np.ndarray) -> np.ndarray:
        """What each row's group has, (rows,)."""
        values = np.empty(len(self._order), of_group.dtype)
        values[self._order] = np.repeat(of_group, self.sizes)
        return values
