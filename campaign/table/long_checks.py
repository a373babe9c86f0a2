"""The checks that need all rows of a table, for one that is read in parts: of each part they keep
what the answer for all parts needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

import numpy as np

from campaign.table.cells import TableCells, first_of
from campaign.table.checking import EQUAL_STEPS, FEWEST_SAMPLES, OfAllRows, Rows, since_start
from campaign.table.grouping import Grouped, groups_of, meant_clocks
from campaign.table.map_file import TableMap
from campaign.table.plausibility import (
    AT_CAP,
    DEVICE,
    FEWEST_CAPS,
    MOST_CAPS,
    Extent,
    draw_most,
    impossible,
    impossible_rows,
    other_unit,
    power_caps,
)
from campaign.table.points import SAME_POINT
from dvfs.texts import Column, Texts

FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64)
SHIFT = np.uint64(29)
ClocksOf = tuple[str, str]
"""A column of clocks, and a site."""
TIMES = np.dtype(
    [
        ("key", "u8"),
        ("rows", "i8"),
        ("line", "i8"),
        *((name, "f8") for name in ("first", "last", "first_step", "least_step", "most_step")),
    ]
)
"""A point so far: its hash, its rows, the line of the last one, and their times in s."""


def row_hashes(columns: Iterable[Column]) -> np.ndarray:
    """uint64 (rows,): rows that are equal in all columns have the same. NaN equals NaN."""
    made: np.ndarray | None = None
    for column in columns:
        if isinstance(column, Texts):
            hashed = column.array(np.int64, list(map(_hash, column.values)))
        else:
            hashed = np.asarray(column)
            if hashed.dtype.kind == "f":
                hashed = np.where(np.isnan(hashed), np.nan, hashed + 0.0)  # -0.0 becomes 0.0
        values = np.ascontiguousarray(hashed).view(np.uint64)
        made = values.copy() if made is None else made ^ values
        for factor in FACTORS:
            made *= factor
            made ^= made >> SHIFT
    return np.zeros(0, np.uint64) if made is None else made


def _hash(text: str) -> int:
    """The same in every process, unlike Python's own."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class Distinct:
    """How many distinct hashes each group has."""

    def __init__(self) -> None:
        self._kept = [(np.empty(0, np.uint64), np.empty(0, np.int32))]

    def add(self, hashes: np.ndarray, group: np.ndarray) -> None:
        """Further ones, uint64, each with its group, int."""
        hashes, first = np.unique(hashes, return_index=True)
        self._kept.append((hashes, group[first].astype(np.int32)))
        # When they have doubled: each is sorted a few times, however many parts there are.
        if sum(len(more) for more, _ in self._kept[1:]) > len(self._kept[0][0]):
            self._join()

    def _join(self) -> None:
        hashes, group = map(np.concatenate, zip(*self._kept, strict=True))
        hashes, first = np.unique(hashes, return_index=True)
        self._kept = [(hashes, group[first])]

    def counts(self, n_groups: int) -> np.ndarray:
        """int64 (groups,)."""
        self._join()
        return np.bincount(self._kept[0][1], minlength=n_groups)


class Clocks:
    """The clocks of a site in one column, as they were measured."""

    def __init__(self) -> None:
        self.mhz, self._rows = np.empty(0), np.empty(0, np.int64)
        self.groups: list[np.ndarray] = []
        self._of_key, self._keys = Distinct(), Distinct()

    def add(self, mhz: np.ndarray) -> None:
        """Those of further rows, none of them NaN."""
        clocks, rows = np.unique(mhz, return_counts=True)
        self.mhz, at = np.unique(np.concatenate([self.mhz, clocks]), return_inverse=True)
        self._rows = np.bincount(at, np.concatenate([self._rows, rows])).astype(np.int64)

    def add_keys(self, mhz: np.ndarray, keys: np.ndarray) -> None:
        """Those of rows, with hashes of what the rows are besides."""
        group_of = np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])
        at = np.searchsorted(self.mhz, mhz)
        self._of_key.add(row_hashes([keys.view(np.int64), at]), group_of[at])
        self._keys.add(row_hashes([keys.view(np.int64), group_of[at]]), group_of[at])

    def grouped(self, name: str, repeats_unnumbered: bool) -> Grouped:
        """The setting of each of them."""
        n = len(self.groups)
        clocks_of_a_key = self._of_key.counts(n) / self._keys.counts(n)
        return meant_clocks(
            self.mhz, self._rows, self.groups, clocks_of_a_key, name, repeats_unnumbered
        )


class OfLongTable(OfAllRows):
    """The checks that need all rows, of a table whose parts come one after the other.

    It sees all parts once. Clocks are grouped by what those before it have found: another one,
    made by :meth:`again`, is needed as long as :meth:`needs_pass` says it.
    """

    def __init__(self, mapping: TableMap) -> None:
        super().__init__(mapping)
        self._grouped: dict[ClocksOf, tuple[np.ndarray, Grouped]] = {}
        self._candidates: dict[ClocksOf, Clocks] = {}
        self.any_of_store = self._is_wrong_early = False
        self.counted: set[str] = set()
        """The columns of counts in which a row has one."""
        self._sites: dict[str, None] = {}
        self._clocks: dict[ClocksOf, Clocks] = {}
        self._times = np.empty(0, TIMES)
        self._extents: dict[str, Extent] = {}
        self._draws: dict[float, tuple[int, list[np.ndarray]]] = {}
        self._n_rows = 0
        self._wrong: dict[tuple[str, bool], tuple[int, str, int]] = {}
        """Column, and whether no device has its values -> the line of the first row, what is wrong
        there, and how many rows."""
        self._order: dict[str, None] = {}
        """The columns, in the order in which something was found in them."""
        self._wrong_rows: dict[str, list[np.ndarray]] = {"": []}
        """The numbers of rows with something wrong; by column those in which one of :data:`DEVICE`
        has a value that no device has: all of the column may be in another unit."""
        self._of_device = False

    def again(self) -> OfLongTable:
        """One that has seen no part, but knows how clocks are grouped."""
        other = OfLongTable(self.mapping)
        other._grouped, other._candidates = self._grouped, self._candidates
        return other

    def end_part(self, cells: TableCells) -> None:
        """Take what was found wrong in the rows of a part."""
        for column, rows in cells.wrong.items():
            first = min(rows)
            self.note(column, cells.table.lines[first], rows[first], len(rows))
        self._wrong_rows[""].append(np.array(sorted(cells.wrong_rows), np.int64) + self._n_rows)
        self._n_rows += len(cells.table.lines)
        self._of_device = False

    def note(self, column: str, line: int, text: str, rows: int, of_device: bool = False) -> None:
        """Something wrong with rows in a column, of which the first one is at a line."""
        self._order.setdefault(column)
        first, said, before = self._wrong.get((column, of_device), (line, text, 0))
        self._wrong[column, of_device] = first, said, before + rows

    def needs_pass(self) -> bool:
        """Whether another pass is needed, since clocks are grouped, or may have to be."""
        for key, clocks in self._candidates.items():
            grouped = clocks.grouped(key[0], self.mapping.numbers_repeats)
            self._grouped[key] = clocks.mhz, grouped
        found = any(self._grouped[key][1].note for key in self._candidates)
        self._candidates = {}
        if self.any_of_store or self._is_wrong_early:
            return False
        for key, clocks in self._clocks.items():
            clocks.groups = groups_of(clocks.mhz)
            if clocks.groups:
                self._candidates[key] = clocks
            else:
                self._grouped[key] = clocks.mhz, Grouped(clocks.mhz)
        # What a row is besides its core clock includes its memory clock as it is grouped.
        first = {site for name, site in self._candidates if name == "mem_mhz"}
        for site in first:
            self._candidates.pop(("core_mhz", site), None)
        return found or bool(self._candidates)

    def notes(self) -> list[str]:
        """What was grouped, a sentence each."""
        keys = [(name, site) for name in ("mem_mhz", "core_mhz") for site in self._sites]
        grouped = [
            (site, self._grouped[name, site][1])
            for name, site in keys
            if (name, site) in self._grouped
        ]
        return [f"{site}: {found.note}" for site, found in grouped if found.note]

    def messages(self, path: Path) -> list[str]:
        """What is wrong with the table, as :meth:`TableCells.messages` says it."""
        units = self._other_units()
        texts = [*units.values()]
        if not self.any_of_store and (caps := power_caps(self._most_drawn(), self.mapping)):
            texts.append(caps)
        wrong: dict[str, tuple[int, str, int]] = {}
        for (column, of_device), (line, text, rows) in self._wrong.items():
            if not (of_device and column in units):
                first = min((line, text), wrong.get(column, (line, text))[:2])
                wrong[column] = (*first, wrong.get(column, (0, "", 0))[2] + rows)
        order = {column: i for i, column in enumerate(self._order)}
        by_line = sorted(wrong, key=lambda column: (wrong[column][0], order[column]))
        return [f"{path}: {text}" for text in texts] + [
            f"{path}:{line}: {first_of(text, rows)}"
            for line, text, rows in map(wrong.__getitem__, by_line)
        ]

    def wrong_rows(self) -> np.ndarray:
        """int64, sorted: the numbers of the rows with something wrong."""
        units = self._other_units()
        parts = [rows for name, rows in self._wrong_rows.items() if name not in units]
        return np.unique(
            np.concatenate(
                [np.empty(0, np.int64), *(row for rows_of_part in parts for row in rows_of_part)]
            )
        )

    def _other_units(self) -> dict[str, str]:
        """The columns that are in another unit as a whole, and what is wrong with each."""
        texts = {n: other_unit(n, extent, self.mapping) for n, extent in self._extents.items()}
        return {name: text for name, text in texts.items() if text}

    def group_settings(
        self,
        cells: TableCells,
        of_store: np.ndarray,
        site: Texts,
        keys: Mapping[str, Column],
        clocks: dict[str, np.ndarray],
    ) -> None:
        """See :meth:`OfAllRows.group_settings`."""
        self.any_of_store |= bool(of_store.any())
        self._is_wrong_early |= bool(cells.wrong) or self._of_device
        self._sites.update(dict.fromkeys(site.present()))
        if self.mapping.clocks != "grouped":
            return
        for name in ("mem_mhz", "core_mhz"):
            beside = [*keys.values(), *([clocks["mem_mhz"]] if name == "core_mhz" else [])]
            for code, one in enumerate(site.values):
                given = np.isfinite(clocks[name]) & np.isnan(clocks[f"{name}_achieved"])
                rows = np.flatnonzero((site.codes == code) & given)
                if not len(rows):
                    continue
                mhz, key = clocks[name][rows], (name, one)
                if key in self._candidates:
                    columns = [column[rows] for column in beside]
                    self._candidates[key].add_keys(mhz, row_hashes(columns))
                elif key not in self._grouped:
                    self._clocks.setdefault(key, Clocks()).add(mhz)
                elif self._grouped[key][1].note:
                    measured, grouped = self._grouped[key]
                    meant = grouped.mhz[np.searchsorted(measured, mhz)]
                    for changed, values in ((f"{name}_achieved", mhz), (name, meant)):
                        clocks[changed] = clocks[changed].copy()
                        clocks[changed][rows] = values

    def note_impossible(
        self,
        cells: TableCells,
        columns: dict[str, np.ndarray],
        of_store: np.ndarray,
        failed: np.ndarray,
    ) -> None:
        """See :meth:`OfAllRows.note_impossible`."""
        for name, values in columns.items():
            rows, least = impossible_rows(name, values, of_store, failed)
            extent = Extent.of(values, rows, of_store)
            self._extents[name] = (
                self._extents[name].with_(extent) if name in self._extents else extent
            )
            if not len(rows):
                continue
            if name not in DEVICE:
                for i in rows.tolist():
                    cells.note(i, name, impossible(name, values[i], least[i]))
                continue
            first = int(rows[0])
            text = impossible(name, values[first], least[first])
            self._order.update(dict.fromkeys(cells.wrong))
            self.note(name, cells.table.lines[first], text, len(rows), of_device=True)
            self._wrong_rows.setdefault(name, []).append(rows + self._n_rows)
            self._of_device = True

    def note_power_caps(
        self,
        cells: TableCells,
        of_store: np.ndarray,
        core_mhz: np.ndarray,
        power_w: np.ndarray,
        read_back: np.ndarray,
    ) -> None:
        """See :meth:`OfAllRows.note_power_caps`."""
        clocks, drawn_w = core_mhz[~read_back], power_w[~read_back]
        for cap in np.unique(clocks).tolist():
            if len(self._draws) > MOST_CAPS:
                return
            own_w = drawn_w[(clocks == cap) & np.isfinite(drawn_w)]
            rows, reached = self._draws.setdefault(math.nan if math.isnan(cap) else cap, (0, []))
            # Less than this is too little, however much it is.
            reached.append(own_w[own_w > AT_CAP[0] * cap])
            self._draws[math.nan if math.isnan(cap) else cap] = rows + len(own_w), reached

    def _most_drawn(self) -> dict[float, float]:
        if not FEWEST_CAPS <= len(self._draws) <= MOST_CAPS:
            return {}
        return {cap: _draw_most(rows, reached) for cap, (rows, reached) in self._draws.items()}

    def has_counts(self, name: str, counts: np.ndarray) -> bool:
        """See :meth:`OfAllRows.has_counts`; a part may have none."""
        if np.isfinite(counts).any():
            self.counted.add(name)
        return True

    def number_repeats(self, cells: TableCells, frame: Rows) -> None:
        """See :meth:`OfAllRows.number_repeats`."""
        hashes = row_hashes([frame[name] for name in SAME_POINT])
        order = np.argsort(hashes, kind="stable")
        keys, starts, sizes = np.unique(hashes[order], return_index=True, return_counts=True)
        if not len(keys):
            return
        new = np.zeros(len(np.setdiff1d(keys, self._times["key"])), TIMES)
        new["key"] = np.setdiff1d(keys, self._times["key"])
        for name in ("first", "last", "first_step", "least_step", "most_step"):
            new[name] = np.nan
        times = np.concatenate([self._times, new])
        times.sort(order="key")
        at = np.searchsorted(times["key"], keys)
        so_far = times[at]
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order)) + np.repeat(so_far["rows"] - starts, sizes)
        frame["repeat"] = places
        time_s = np.asarray(frame["time_s"])[order]
        steps = np.diff(time_s, prepend=np.nan)
        steps[starts] = time_s[starts] - so_far["last"]
        ends = starts + sizes - 1
        # NaN where a time is missing; a point's first row has no step.
        is_first = so_far["rows"] == 0
        second = np.minimum(starts + is_first, ends)
        known = np.where(is_first & (sizes == 1), np.nan, steps[second])
        has_one = so_far["rows"] + sizes > 1
        lacks = np.isnan(so_far["first_step"]) & has_one & (so_far["rows"] < 2)
        so_far["first_step"] = np.where(lacks, known, so_far["first_step"])
        so_far["first"] = np.where(is_first, time_s[starts], so_far["first"])
        steps[starts[is_first]] = np.inf
        least = np.minimum.reduceat(steps, starts)
        steps[starts[is_first]] = -np.inf
        most = np.maximum.reduceat(steps, starts)
        so_far["least_step"] = np.where(is_first, least, np.minimum(so_far["least_step"], least))
        so_far["most_step"] = np.where(is_first, most, np.maximum(so_far["most_step"], most))
        so_far["last"] = time_s[ends]
        so_far["rows"] += sizes
        so_far["line"] = np.asarray(cells.table.lines)[order][ends]
        times[at] = so_far
        self._times = times

    def note_since_start(self) -> None:
        """Note times that look like a log's, as :meth:`OfAllRows.number_repeats` does."""
        with np.errstate(invalid="ignore"):
            of_log = self._times[
                (self._times["rows"] >= FEWEST_SAMPLES)
                & (self._times["least_step"] > 0)
                & (self._times["most_step"] < EQUAL_STEPS * self._times["least_step"])
                & (self._times["first"] < 2 * self._times["first_step"])
            ]
        if len(of_log):
            first = of_log[np.argmin(of_log["line"])]
            text = since_start(float(first["least_step"]))
            self.note("time_s", int(first["line"]), text, len(of_log))


def _draw_most(rows: int, reached: list[np.ndarray]) -> float:
    """What the rows that draw most draw in W, of so many; 0 where that is less than any of those
    that were kept."""
    kept = np.sort(np.concatenate(reached))
    place = int(draw_most(np.arange(rows))) - (rows - len(kept)) if rows else -1
    return float(kept[place]) if place >= 0 else 0.0
