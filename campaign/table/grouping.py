"""Measured clocks with jitter, grouped into settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from dvfs.texts import Column, Texts

CLEARLY = 3.0
"""The least distance of settings, as a multiple of one setting's widest gap, and of its width."""
WIDEST = 0.03
"""The largest relative width of the readings of one setting."""
MOST_SHARED = 0.5
"""The largest share of a group's clocks that one kernel may have: it has all of close settings, but
only a few of one setting's readings."""
ROUND_MHZ = (100.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.5, 0.1)
"""A setting is the roundest clock among its readings."""
TRIED = 8
"""The number of gaps between settings that are tried, the clearest first."""
FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64)
SHIFT = np.uint64(29)
FEWEST = 3
"""The fewest clocks of a group: 2600 and 2601 MHz, with and without turbo, are two settings."""


@dataclass(frozen=True)
class Grouped:
    """The clocks of the settings, float64 (rows,), and a note; it is empty if none were grouped."""

    mhz: np.ndarray
    note: str = ""


def row_hashes(columns: Iterable[Column]) -> np.ndarray:
    """The rows' hashes, uint64 (rows,), equal for rows with equal columns. NaN equals NaN."""
    hashes: np.ndarray | None = None
    for column in columns:
        if isinstance(column, Texts):
            hashed = column.array(np.int64, list(map(_hash, column.values)))
        else:
            hashed = np.asarray(column)
            if hashed.dtype.kind == "f":
                hashed = np.where(np.isnan(hashed), np.nan, hashed + 0.0)  # -0.0 becomes 0.0
        values = np.ascontiguousarray(hashed).view(np.uint64)
        hashes = values.copy() if hashes is None else hashes ^ values
        for factor in FACTORS:
            hashes *= factor
            hashes ^= hashes >> SHIFT
    return np.zeros(0, np.uint64) if hashes is None else hashes


def _hash(text: str) -> int:
    """A hash that is the same in every process, unlike Python's."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class Distinct:
    """Counts the distinct hashes of each group."""

    def __init__(self) -> None:
        self._stored = [(np.empty(0, np.uint64), np.empty(0, np.int32))]

    def add(self, hashes: np.ndarray, group: np.ndarray) -> None:
        """Add hashes, uint64, each with its group, int."""
        hashes, first = np.unique(hashes, return_index=True)
        self._stored.append((hashes, group[first].astype(np.int32)))
        # Only when they have doubled, so that each is sorted a few times, for any number of parts.
        if sum(len(more) for more, _ in self._stored[1:]) > len(self._stored[0][0]):
            self._join()

    def _join(self) -> None:
        hashes, group = map(np.concatenate, zip(*self._stored, strict=True))
        hashes, first = np.unique(hashes, return_index=True)
        self._stored = [(hashes, group[first])]

    def counts(self, n_groups: int) -> np.ndarray:
        """The number of distinct hashes by group, int64 (groups,)."""
        self._join()
        return np.bincount(self._stored[0][1], minlength=n_groups)


class Clocks:
    """The measured clocks of a site in one column. ``mhz``: float64, sorted and distinct;
    ``groups``: the result of :func:`groups_of`, which is set before :meth:`add_keys`."""

    def __init__(self) -> None:
        self.mhz, self._rows = np.empty(0), np.empty(0, np.int64)
        self.groups: list[np.ndarray] = []
        self._of_key, self._keys = Distinct(), Distinct()

    def add(self, mhz: np.ndarray) -> None:
        """Add the clocks of rows, without NaN."""
        clocks, rows = np.unique(mhz, return_counts=True)
        self.mhz, clock_indices = np.unique(np.concatenate([self.mhz, clocks]), return_inverse=True)
        self._rows = np.bincount(clock_indices, np.concatenate([self._rows, rows])).astype(np.int64)

    def add_keys(self, mhz: np.ndarray, keys: np.ndarray) -> None:
        """Add the clocks of rows with the hashes of the rows' other columns."""
        group_of = np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])
        indices = np.searchsorted(self.mhz, mhz)
        self._of_key.add(row_hashes([keys.view(np.int64), indices]), group_of[indices])
        self._keys.add(row_hashes([keys.view(np.int64), group_of[indices]]), group_of[indices])

    def grouped(self, name: str, repeats_unnumbered: bool) -> Grouped:
        """The setting of each of ``mhz``. Clocks stay separate if a kernel was measured at each of
        them: they are steps of the device.

        Args:
            name: the name of the column, for the note.
            repeats_unnumbered: whether rows of the same point are repeats without a number.
        """
        n = len(self.groups)
        clocks_of_a_key = self._of_key.counts(n) / self._keys.counts(n)
        meant = self.mhz.copy()
        joined = []
        for i, group in enumerate(self.groups):
            shared = float(clocks_of_a_key[i]) / len(group)
            single = repeats_unnumbered and 2 * len(group) >= self._rows[group].sum()
            if len(group) >= FEWEST and (shared <= MOST_SHARED or single):
                meant[group] = _round_mhz(float(self.mhz[group[0]]), float(self.mhz[group[-1]]))
                joined.append(group)
        if not joined or len(np.unique(meant)) < 2:
            return Grouped(self.mhz)
        widest = max(joined, key=lambda group: float(self.mhz[group[-1]] / self.mhz[group[0]]))
        note = (
            f"{name}: {len(self.mhz)} clocks as measured are taken for {len(np.unique(meant))} "
            f"settings (such as {self.mhz[widest[0]]:g} to {self.mhz[widest[-1]]:g} for "
            f"{meant[widest[0]]:g} MHz); {name}_achieved keeps each row's own. clocks = "
            '"exact" in the map takes them as they are'
        )
        return Grouped(meant, note)


def grouped_clocks(
    mhz: np.ndarray, keys: Iterable[Column], name: str, repeats_unnumbered: bool = False
) -> Grouped:
    """Group the clocks of one domain into settings: ``mhz``, float64 (rows,), NaN if there is none.

    Clocks stay separate if the jitter is not clearly smaller than the distance between settings.
    ``keys``: the other columns of a row: kernel, parameters, node and repeat. For the others, and
    further reasons, see :meth:`Clocks.grouped`.
    """
    rows = np.flatnonzero(np.isfinite(mhz))
    clocks = Clocks()
    clocks.add(mhz[rows])
    clocks.groups = groups_of(clocks.mhz)
    if not clocks.groups:
        return Grouped(mhz)
    clocks.add_keys(mhz[rows], row_hashes([key[rows] for key in keys]))
    grouped = clocks.grouped(name, repeats_unnumbered)
    setting_mhz = mhz.copy()
    setting_mhz[rows] = grouped.mhz[np.searchsorted(clocks.mhz, mhz[rows])]
    return Grouped(setting_mhz, grouped.note)


def groups_of(clocks: np.ndarray) -> list[np.ndarray]:
    """The indices of sorted clocks, divided at the gaps that are clearly wider than all others;
    empty if no gap is, or if each clock would be alone."""
    if len(clocks) < 2 * FEWEST:
        return []
    gaps = np.diff(np.log(clocks))
    ordered = np.sort(gaps)
    ratios = ordered[1:] / np.maximum(ordered[:-1], 1e-9)
    for index in np.argsort(-ratios, kind="stable")[:TRIED].tolist():
        if ratios[index] < CLEARLY:
            break
        groups = np.split(np.arange(len(clocks)), np.flatnonzero(gaps > ordered[index]) + 1)
        widest = max(float(np.log(clocks[g[-1]] / clocks[g[0]])) for g in groups)
        nearest = min(float(np.log(clocks[b[0]] / clocks[a[-1]])) for a, b in pairwise(groups))
        if widest < WIDEST and nearest > CLEARLY * widest:
            return groups if len(groups) < len(clocks) else []
    return []


def _round_mhz(low: float, high: float) -> float:
    """The roundest clock from ``low`` to ``high``, as close as possible to their middle."""
    middle = (low + high) / 2
    for step in ROUND_MHZ:
        mhz = round(middle / step) * step
        if low <= mhz <= high:
            return float(mhz)
    return middle
