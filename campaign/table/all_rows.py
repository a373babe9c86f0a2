"""The checks that need all rows of a table, which is in memory or read in parts. They store of each
part only what the result for all parts needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from campaign.table.cells import TableCells, first_of
from campaign.table.grouping import Clocks, Grouped, grouped_clocks, groups_of, row_hashes
from campaign.table.map_file import TableMap
from campaign.table.plausibility import (
    AT_CAP,
    DEVICE,
    DRAW_MOST,
    FEWEST_CAPS,
    MOST_CAPS,
    Extent,
    impossible,
    impossible_rows,
    other_unit,
    power_caps,
)
from campaign.table.points import SAME_POINT
from dvfs.texts import Column, Texts

FEWEST_SAMPLES, EQUAL_STEPS = 6, 1.25
"""At least this many rows whose times rise by steps within this factor are taken for a log."""
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
"""A point up to the current part: its hash, number of rows, last line, and their times in s."""


class OfAllRows:
    """The checks that need all rows of a table in memory, which is one part; of one that is read in
    parts, see :class:`OfLongTable`.

    :func:`campaign.table.checking.frame_of` calls the checks with each part, and :meth:`end_part`
    ends the part; :meth:`messages` has the errors of all parts.
    """

    def __init__(self, mapping: TableMap) -> None:
        self.mapping = mapping
        self.any_of_store = self._is_wrong_early = False
        self.counted: set[str] = set()
        """The columns of counts that are not empty."""
        self._sites: dict[str, None] = {}
        self._notes: dict[ClocksOf, str] = {}
        self._times = np.empty(0, TIMES)
        self._extents: dict[str, Extent] = {}
        self._draws: dict[float, tuple[int, list[np.ndarray]]] = {}
        self._n_rows = 0
        self._wrong: dict[tuple[str, bool], tuple[int, str, int]] = {}
        """Column, and whether no device has its values -> the line of the first wrong row, its
        message, and the number of wrong rows."""
        self._order: dict[str, None] = {}
        """The columns, in the order in which errors were found."""
        self._wrong_rows: dict[str, list[np.ndarray]] = {"": []}
        """The numbers of wrong rows. Those whose value of a column in :data:`DEVICE` no device has
        are listed by column: the whole column may be in another unit."""
        self._of_device = False

    def end_part(self, cells: TableCells) -> None:
        """Record the errors in the rows of a part."""
        for column, rows in cells.wrong.items():
            first = min(rows)
            self.note(column, cells.table.lines[first], rows[first], len(rows))
        self._wrong_rows[""].append(np.array(sorted(cells.wrong_rows), np.int64) + self._n_rows)
        self._n_rows += len(cells.table.lines)
        self._of_device = False

    def note(self, column: str, line: int, text: str, rows: int, of_device: bool = False) -> None:
        """Record an error of ``rows`` rows in a column; the first one is on ``line``."""
        self._order.setdefault(column)
        first, first_text, n_before = self._wrong.get((column, of_device), (line, text, 0))
        self._wrong[column, of_device] = first, first_text, n_before + rows

    def group_settings(
        self,
        cells: TableCells,
        of_store: np.ndarray,
        site: Texts,
        keys: Mapping[str, Column],
        clocks: dict[str, np.ndarray],
    ) -> None:
        """Take the clocks of each site for the settings that they mean, and note it. Skip tables
        with rows of a store or with errors so far.

        ``clocks``: ``core_mhz``, ``mem_mhz``, and the achieved ones. Rows without an achieved clock
        get their measured one as such. Changed arrays are replaced. ``keys``: the other columns of
        a row.
        """
        self.any_of_store |= bool(of_store.any())
        self._is_wrong_early |= bool(cells.wrong) or self._of_device
        self._sites.update(dict.fromkeys(site.present()))
        if self.mapping.clocks != "grouped" or self.any_of_store or self._is_wrong_early:
            return
        for key, rows, other_columns in _requested(site, keys, clocks):
            others = (column[rows] for column in other_columns)
            grouped = self._group(key, clocks[key[0]][rows], others)
            if grouped.note:
                _set_clocks(clocks, key[0], rows, grouped.mhz)
                self._notes[key] = grouped.note

    def _group(self, key: ClocksOf, mhz: np.ndarray, others: Iterable[Column]) -> Grouped:
        """The settings that clocks of rows mean. ``others``: the rows' other columns."""
        return grouped_clocks(mhz, others, key[0], self.mapping.numbers_repeats)

    def notes(self) -> list[str]:
        """Notes on the grouped clocks."""
        keys = [(name, site) for name in ("mem_mhz", "core_mhz") for site in self._sites]
        return [f"{key[1]}: {self._notes[key]}" for key in keys if key in self._notes]

    def note_impossible(
        self,
        cells: TableCells,
        columns: dict[str, np.ndarray],
        of_store: np.ndarray,
        failed: np.ndarray,
    ) -> None:
        """Note values that no device has; see :data:`dvfs.dataset.POSSIBLE`. A column whose values
        are all in another unit is one error.

        ``columns``: float64, NaN if there is none. ``of_store``, ``failed``: bool, by row. A store
        may hold a 0 from a meter or a clock, and any number from 0 on for a failed measurement.
        """
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
        core_mhz: np.ndarray,
        power_w: np.ndarray,
        read_back: np.ndarray,
    ) -> None:
        """Note the power (W) of the rows that draw most at each clock, for :func:`power_caps`.
        ``power_w``: float64, the mean of each row; ``read_back``: bool, the rows whose clock agrees
        with a reading."""
        clocks, drawn_w = core_mhz[~read_back], power_w[~read_back]
        for cap in np.unique(clocks).tolist():
            if len(self._draws) > MOST_CAPS:
                return
            own_w = drawn_w[(clocks == cap) & np.isfinite(drawn_w)]
            rows, reached = self._draws.setdefault(math.nan if math.isnan(cap) else cap, (0, []))
            # A power below this never reaches the cap.
            reached.append(own_w[own_w > AT_CAP[0] * cap])
            self._draws[math.nan if math.isnan(cap) else cap] = rows + len(own_w), reached

    def _most_drawn(self) -> dict[float, float]:
        if not FEWEST_CAPS <= len(self._draws) <= MOST_CAPS:
            return {}
        return {cap: _draw_most(rows, reached) for cap, (rows, reached) in self._draws.items()}

    def number_repeats(self, cells: TableCells, frame: dict[str, Column]) -> None:
        """Number the rows of each point as repeats, and note their times."""
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
        point_indices = np.searchsorted(times["key"], keys)
        so_far = times[point_indices]
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order)) + np.repeat(so_far["rows"] - starts, sizes)
        frame["repeat"] = places
        time_s = np.asarray(frame["time_s"])[order]
        steps = np.diff(time_s, prepend=np.nan)
        steps[starts] = time_s[starts] - so_far["last"]
        ends = starts + sizes - 1
        # Steps are NaN if a time is missing; a point's first row has no step.
        is_first = so_far["rows"] == 0
        second = np.minimum(starts + is_first, ends)
        first_step = np.where(is_first & (sizes == 1), np.nan, steps[second])
        has_one = so_far["rows"] + sizes > 1
        lacks = np.isnan(so_far["first_step"]) & has_one & (so_far["rows"] < 2)
        so_far["first_step"] = np.where(lacks, first_step, so_far["first_step"])
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
        times[point_indices] = so_far
        self._times = times

    def note_since_start(self) -> None:
        """Report times that rise by equal steps from row to row of a point: they are times since
        the start of a log, not run times of repeats."""
        with np.errstate(invalid="ignore"):
            of_log = self._times[
                (self._times["rows"] >= FEWEST_SAMPLES)
                & (self._times["least_step"] > 0)
                & (self._times["most_step"] < EQUAL_STEPS * self._times["least_step"])
                & (self._times["first"] < 2 * self._times["first_step"])
            ]
        if len(of_log):
            first = of_log[np.argmin(of_log["line"])]
            text = (
                f"time_s: rises by {first['least_step']:.3g} s from row to row, as the time since "
                "the start of a log does; a table has a row a measurement, with its run time: sum "
                "the energies of the log first"
            )
            self.note("time_s", int(first["line"]), text, len(of_log))

    def messages(self, path: Path) -> list[str]:
        """The errors of columns as a whole, then the first one of each column, by line."""
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
        """int64, sorted: the numbers of the wrong rows."""
        units = self._other_units()
        parts = [rows for name, rows in self._wrong_rows.items() if name not in units]
        return np.unique(
            np.concatenate(
                [np.empty(0, np.int64), *(row for rows_of_part in parts for row in rows_of_part)]
            )
        )

    def _other_units(self) -> dict[str, str]:
        """Column -> the message, for columns that are as a whole in another unit."""
        texts = {n: other_unit(n, extent, self.mapping) for n, extent in self._extents.items()}
        return {name: text for name, text in texts.items() if text}


class OfLongTable(OfAllRows):
    """The checks that need all rows, for a table that is read in parts.

    One object is for one pass over all parts, and groups clocks by the results of earlier passes.
    While :meth:`needs_pass` is true, another pass with the object of :meth:`again` is needed.
    """

    def __init__(self, mapping: TableMap) -> None:
        super().__init__(mapping)
        self._grouped: dict[ClocksOf, tuple[np.ndarray, Grouped]] = {}
        self._candidates: dict[ClocksOf, Clocks] = {}
        self._clocks: dict[ClocksOf, Clocks] = {}

    def again(self) -> OfLongTable:
        """The checks for another pass, with the groups of clocks found so far."""
        checks = OfLongTable(self.mapping)
        checks._grouped, checks._candidates = self._grouped, self._candidates
        return checks

    def needs_pass(self) -> bool:
        """Whether another pass is needed, because clocks are, or may have to be, grouped."""
        for key, clocks in self._candidates.items():
            grouped = clocks.grouped(key[0], self.mapping.numbers_repeats)
            self._grouped[key] = clocks.mhz, grouped
        has_groups = any(self._grouped[key][1].note for key in self._candidates)
        self._candidates = {}
        if self.any_of_store or self._is_wrong_early:
            return False
        for key, clocks in self._clocks.items():
            clocks.groups = groups_of(clocks.mhz)
            if clocks.groups:
                self._candidates[key] = clocks
            else:
                self._grouped[key] = clocks.mhz, Grouped(clocks.mhz)
        # The other columns of a row's core clock include its grouped memory clock.
        first = {site for name, site in self._candidates if name == "mem_mhz"}
        for site in first:
            self._candidates.pop(("core_mhz", site), None)
        return has_groups or bool(self._candidates)

    def _group(self, key: ClocksOf, mhz: np.ndarray, others: Iterable[Column]) -> Grouped:
        if key in self._candidates:
            self._candidates[key].add_keys(mhz, row_hashes(others))
        elif key not in self._grouped:
            self._clocks.setdefault(key, Clocks()).add(mhz)
        elif self._grouped[key][1].note:
            measured, grouped = self._grouped[key]
            return Grouped(grouped.mhz[np.searchsorted(measured, mhz)], grouped.note)
        return Grouped(mhz)


def _requested(
    site: Texts, keys: Mapping[str, Column], clocks: Mapping[str, np.ndarray]
) -> Iterator[tuple[ClocksOf, np.ndarray, list[Column]]]:
    """By column of clocks and site: the rows with a clock and no achieved one, int64; and the other
    columns of all rows, which include for a core clock the memory clock, by then grouped."""
    for name in ("mem_mhz", "core_mhz"):
        is_requested = np.isfinite(clocks[name]) & np.isnan(clocks[f"{name}_achieved"])
        for code, site_name in enumerate(site.values):
            rows = np.flatnonzero((site.codes == code) & is_requested)
            if len(rows):
                of_core = [clocks["mem_mhz"]] if name == "core_mhz" else []
                yield (name, site_name), rows, [*keys.values(), *of_core]


def _set_clocks(
    clocks: dict[str, np.ndarray], name: str, rows: np.ndarray, meant_mhz: np.ndarray
) -> None:
    """Replace the clocks of rows by those that they mean; the former become achieved ones."""
    achieved = f"{name}_achieved"
    clocks[achieved], clocks[name] = clocks[achieved].copy(), clocks[name].copy()
    clocks[achieved][rows], clocks[name][rows] = clocks[name][rows], meant_mhz


def _draw_most(rows: int, reached: list[np.ndarray]) -> float:
    """The power (W) of the rows that draw most: the quantile :data:`DRAW_MOST` of ``rows`` rows; 0
    if it is below all powers in ``reached``."""
    reached_w = np.sort(np.concatenate(reached))
    place = math.ceil((rows - 1) * DRAW_MOST) - (rows - len(reached_w)) if rows else -1
    return float(reached_w[place]) if place >= 0 else 0.0
