"""Rows in groups, with the median and mean of each group, without the import of pandas."""

from __future__ import annotations

import numpy as np


class Groups:
    """Rows grouped by a code, int64 (rows,). ``codes``: the distinct codes, sorted; ``sizes``: the
    number of rows of each group; ``firsts``: the first row of each group."""

    def __init__(self, code: np.ndarray) -> None:
        # NumPy sorts numbers of 16 bits in a tenth of the time.
        is_short = len(code) and code.min() >= 0 and code.max() < 1 << 16
        self._order = np.argsort(code.astype(np.uint16) if is_short else code, kind="stable")
        ordered = code[self._order]
        is_first = np.ones(len(code), bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        self._starts = np.flatnonzero(is_first)
        self.codes = ordered[self._starts]
        self.firsts = self._order[self._starts]
        self.sizes = np.diff(self._starts, append=len(code))

    def rows(self) -> list[np.ndarray]:
        """The rows of each group, int64, ascending."""
        return np.split(self._order, self._starts[1:])

    def medians(self, values: np.ndarray) -> np.ndarray:
        """float64 (groups,): the median of each group's values. No value may be NaN."""
        medians = np.empty(len(self.codes))
        ordered = values[self._order]
        for size in np.flatnonzero(np.bincount(self.sizes)).tolist():
            groups = np.flatnonzero(self.sizes == size)
            members = ordered[self._starts[groups][:, None] + np.arange(size)]
            members.sort(axis=1)  # in a fifth of the time of np.median
            medians[groups] = (members[:, (size - 1) // 2] + members[:, size // 2]) / 2
        return medians

    def means(self, values: np.ndarray) -> np.ndarray:
        """float64 (groups,): the mean of each group's values."""
        if not len(values):
            return np.zeros(0)
        return np.asarray(np.add.reduceat(values[self._order], self._starts) / self.sizes)

    def numbers(self) -> np.ndarray:
        """int64 (rows,): the index of each row's group."""
        return self.by_row(np.arange(len(self.codes)))

    def by_row(self, group_values: np.ndarray) -> np.ndarray:
        """The value of each row's group, (rows,), from one value for each group."""
        values = np.empty(len(self._order), group_values.dtype)
        values[self._order] = np.repeat(group_values, self.sizes)
        return values
