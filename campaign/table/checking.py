"""Checking a table: every row becomes a row of the store, or its error is reported."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from campaign.plan.point import ID_CHARS
from campaign.table.all_rows import OfAllRows
from campaign.table.cells import (
    TRUTHS,
    TableCells,
    is_present,
    meters_json,
    one_line,
    params_json,
    provenance_json,
)
from campaign.table.map_file import POINT_ID, TableMap
from campaign.table.points import (
    WORTH,
    has_duplicates,
    measurements_of,
    point_ids_of,
    same_point,
    worth_of,
)
from campaign.table.reading import RawTable, cell_text
from dvfs.dataset import (
    CLOCK_PROOFS,
    COUNT_PREFIX,
    ESTIMATED,
    OK,
    READ_BACK,
    SIMULATED,
    STATED,
    STATUSES,
)
from dvfs.input_files import FileError
from dvfs.setting import NUMBERS
from dvfs.texts import Column, EqualLengths, Texts

MAX_ROWS_NAMED = 10
CLOCK, ENERGY = (re.compile(words, re.I) for words in ("clock|freq|mhz", "energy|power|joule|watt"))
"""Words in the names of columns of clocks, and of energies or powers."""
MAX_REPEAT = 2**53
"""A float64 holds every whole number up to this one."""
DISAGREE = 1.01
"""Energy and power times time disagree when they differ by more than this factor."""
AGREE = 0.05
"""The relative difference up to which an achieved clock shows that the requested one was set."""


Rows = dict[str, Column]
"""Columns of the measurements table."""


@dataclass(frozen=True)
class Checked:
    """A table's rows as the store keeps them, and notes."""

    path: Path
    rows: Rows
    """Columns of the measurements table, one row for each point."""
    failures: Rows
    """The rows of failed attempts; some are in ``rows`` too."""
    lines: np.ndarray
    """int64: the line in the file of each of ``rows``."""
    disagreements: list[str] = field(default_factory=list)
    """A line for each row whose energy is not its power times time."""
    notes: list[str] = field(default_factory=list)
    """Notes on what was recognised in the file."""


def checked_rows(table: RawTable, mapping: TableMap) -> Checked:
    """Check every row and convert it to a row of the store.

    A row with a ``point_id`` was exported from a store. It stays unchanged, and every value must be
    one that a store may hold.

    Raises:
        FileError: a column is in another unit; a value is missing, no number, not finite or out of
            range; or rows are the same point. It names the first such row of each column.
    """
    cells = TableCells(table)
    kinds = kinds_of(cells)
    of_all = OfAllRows(mapping)
    frame, power_w = frame_of(cells, kinds, of_all)
    of_all.end_part(cells)
    of_all.note_since_start()
    ids = point_ids_of(frame, kinds.ids)
    kept = np.arange(len(ids))
    if has_duplicates(ids):
        wrong_rows = np.zeros(len(ids), bool)
        wrong_rows[of_all.wrong_rows()] = True
        attempt = np.asarray(frame["attempt"])
        kept, n_same, same = measurements_of(
            ids.tolist(), kinds.of_store, kinds.worth, attempt, wrong_rows
        )
        if same:
            row, earlier = same
            text = same_point(table.lines[earlier], frame, row)
            of_all.note("point", table.lines[row], text, n_same)
    if wrong := of_all.messages(table.path):
        raise FileError("\n".join(wrong))
    checked = stored_rows(table, frame, ids, kinds, of_all, kept)
    return replace(
        checked,
        disagreements=disagreements(table, frame, power_w),
        notes=[*table.notes, *of_all.notes()],
    )


def stored_rows(
    table: RawTable,
    frame: Rows,
    ids: np.ndarray,
    kinds: Kinds,
    of_all: OfAllRows,
    kept: np.ndarray,
) -> Checked:
    """A table's rows as the store keeps them, without notes. ``ids``: S24, of the rows' points;
    ``kept``: int64, the rows that are measurements of their points."""
    rows: Rows = {
        name: column
        for name, column in frame.items()
        if not name.startswith(COUNT_PREFIX) or table.of_store or name in of_all.counted
    }
    rows[POINT_ID] = EqualLengths(ids)
    failed = np.flatnonzero(kinds.worth == 0)
    failures: Rows = {name: column[failed] for name, column in rows.items()}
    failures[POINT_ID] = np.asarray(failures[POINT_ID])
    lines = np.fromiter(table.lines, np.int64, len(table.lines))
    if len(kept) < len(lines):
        lines, rows = lines[kept], {name: column[kept] for name, column in rows.items()}
    return Checked(table.path, rows, failures, lines)


@dataclass(frozen=True)
class Kinds:
    """By row: its id in a store (S24; empty if none), whether it has one, its status, its worth."""

    ids: np.ndarray
    of_store: np.ndarray
    status: Texts
    worth: np.ndarray


def kinds_of(cells: TableCells) -> Kinds:
    """The kinds of a table's rows."""
    ids = cells.texts(POINT_ID, _point_id)
    status = cells.texts("status", _status)
    of_store = ids.array(bool, [point_id != "" for point_id in ids.values])
    return Kinds(ids.array(f"S{ID_CHARS}"), of_store, status, worth_of(status))


def frame_of(cells: TableCells, kinds: Kinds, of_all: OfAllRows) -> tuple[Rows, np.ndarray]:
    """The rows in the store's columns, without ids; and their power (W, float64, NaN if none)."""
    table, mapping = cells.table, of_all.mapping
    exact = table.of_store
    of_store, complete = kinds.of_store, kinds.worth == WORTH[OK]

    def names(column: str) -> Texts:
        return cells.texts(column, lambda v: one_line(v, column, exact) if is_present(v) else "")

    site = cells.texts("site", lambda value: one_line(value, "site", exact))
    kernel = cells.texts("kernel", lambda value: _kernel(value, exact))
    params = cells.texts("params", params_json)
    node, partition, profile = map(names, ("node", "partition", "profile"))
    has_profile = profile.array(bool, [*map(bool, profile.values)])
    may_lack = mapping.imported
    no_clock = "core_mhz" not in table.columns
    power_limit_w = cells.numbers("power_limit_w")
    alone = ~np.isnan(power_limit_w) | has_profile
    needed = ~alone & ~of_store & (not (no_clock or may_lack))
    core_mhz = cells.numbers("core_mhz", needed=needed)
    mem_mhz = cells.numbers("mem_mhz")
    uncore_mhz = cells.numbers("uncore_mhz")
    time_s = cells.numbers("time_s", needed=complete)
    energy_j = cells.numbers("energy_j")
    has_energy = ~np.isnan(energy_j) | cells.is_wrong("energy_j")
    without = ~has_energy & complete & ~of_store
    power_w = cells.numbers("power_w", needed=without & (not may_lack))
    with np.errstate(all="ignore"):
        product_j = power_w * time_s
    simulated = cells.truths("simulated")
    clocks = {
        name: cells.numbers(name)
        for name in ("core_mhz_achieved", "mem_mhz_achieved", "core_mhz_timed")
    }
    repeat = cells.wholes("repeat", 0, MAX_REPEAT)
    clocks |= {
        "core_mhz": core_mhz,
        "mem_mhz": mem_mhz,
        "uncore_mhz": uncore_mhz,
        "power_limit_w": power_limit_w,
    }
    if may_lack:
        no_setting = no_clock and bool(np.isnan(power_limit_w).all()) and profile.present() == [""]
        table.notes.extend(
            _lacking(table, mapping.rows, no_setting, complete, without & np.isnan(product_j))
        )
    read_back = np.abs(clocks["core_mhz_achieved"] - core_mhz) <= AGREE * core_mhz
    failed = kinds.worth == 0
    of_all.note_impossible(cells, clocks, of_store, failed)
    keys: Rows = {"kernel": kernel, "params": params, "node": node, "repeat": repeat}
    of_all.group_settings(cells, of_store, site, keys, clocks)
    core_mhz, mem_mhz = clocks["core_mhz"], clocks["mem_mhz"]
    counts = {name: cells.numbers(name) for name in table.columns if name.startswith(COUNT_PREFIX)}
    of_all.counted |= {name for name, n in counts.items() if np.isfinite(n).any()}
    second_mhz = np.where(np.isnan(uncore_mhz), mem_mhz, uncore_mhz)
    core_v, mem_v, origin = _volts(cells, core_mhz, second_mhz, of_store, mapping)
    numbers = {
        "time_s": time_s,
        "energy_j": energy_j,
        "energy_std_j": cells.numbers("energy_std_j"),
        "core_v": core_v,
        "mem_v": mem_v,
        "start_unix_s": cells.numbers("start_unix_s"),
    }
    used_w = np.where(without, power_w, np.nan)
    given_numbers = numbers | counts | {"power_w": used_w}
    of_all.note_impossible(cells, given_numbers, of_store, failed)
    used_j = np.where(without & ~cells.is_wrong("power_w", "time_s"), product_j, np.nan)
    of_all.note_impossible(cells, {"power_w x time_s": used_j}, of_store, failed)
    with np.errstate(all="ignore"):
        mean_w = np.where(without, power_w, energy_j / time_s)
    of_all.note_power_caps(core_mhz, mean_w, read_back)
    frame: Rows = {
        "site": site,
        "partition": partition.otherwise(node.mapped(lambda name: name or "imported")),
        "kernel": kernel,
        "params": params,
        "node": node,
        "profile": profile,
        "status": kinds.status,
        "text": cells.texts("text", cell_text),
        "voltage_origin": origin,
        "setup": cells.texts("setup", cell_text),
        "meters": cells.texts("meters", meters_json),
        **numbers,
        **clocks,
        "energy_j": np.where(without, product_j, energy_j),
        "start_unix_s": np.nan_to_num(numbers["start_unix_s"]),
        "repeat": repeat,
        "ranks": cells.wholes("ranks", 1),
        "iterations": cells.wholes("iterations", 1),
        "attempt": cells.wholes("attempt", 0),
        "simulated": simulated,
        "imported": cells.truths("imported") | ~of_store,
        **counts,
    }
    frame["clock_proof"] = _clock_proofs(cells, clocks, has_profile, simulated, of_store)
    power_w = np.where(has_energy, power_w, np.nan)
    provenance = cells.texts("provenance", provenance_json)
    reasons = cells.texts(ESTIMATED, _estimated)
    lines = np.fromiter(table.lines, np.int64, len(table.lines))
    frame["table_line"] = np.where(of_store, cells.wholes("table_line", 0), lines)
    frame["provenance"] = _provenance(table, provenance, power_w, reasons, of_store)
    if mapping.numbers_repeats:
        of_all.number_repeats(cells, frame)
    return frame, power_w


def _lacking(
    table: RawTable, rows: str, no_clock: bool, complete: np.ndarray, no_energy: np.ndarray
) -> list[str]:
    """Notes on the clocks and energies that a file of another tool lacks. ``rows``: the noun for
    its rows. ``complete``, ``no_energy``: bool, by row."""
    notes = []
    columns = list(table.labels)
    clocks, energies = ([n for n in columns if pattern.search(n)] for pattern in (CLOCK, ENERGY))
    gives = "under [columns] or [constants] in the map"
    if no_clock and clocks:
        notes.append(
            f"{table.path}: no clock is taken; core_mhz {gives} names one, if it is among "
            + ", ".join(clocks)
        )
    elif no_clock:
        notes.append(
            f"{table.path}: no clock is given: its {rows} were measured at unchanged clocks; "
            f"core_mhz {gives} gives one"
        )
    if no_energy.any():
        all_of_them = bool((no_energy == complete).all())
        count = "" if all_of_them else f" in {no_energy.sum()} of its {complete.sum()} {rows}"
        if energies and all_of_them:
            advice = (
                "no energy is taken; energy_j or power_w under [columns] in the map names one, if"
            )
            notes.append(f"{table.path}: {advice} it is among {', '.join(energies)}")
        else:
            notes.append(f"{table.path}: no energy was measured{count}, only times")
    return notes


def listed(rows: list[str]) -> str:
    """The first ten messages about rows, a line each, and the number of further ones."""
    more = len(rows) - MAX_ROWS_NAMED
    return "\n".join(rows[:MAX_ROWS_NAMED] + ([f"and {more} further rows"] if more > 0 else []))


def _kernel(value: Any, exact: bool) -> str:
    if not is_present(value) or not str(value).strip():
        raise ValueError("kernel: empty; name it")
    return one_line(value, "kernel", exact)


def _status(value: Any) -> str:
    if not is_present(value):
        return OK
    if value not in STATUSES:
        raise ValueError(f"status: found {str(value)[:40]!r}; must be one of {', '.join(STATUSES)}")
    return str(value)


def _estimated(value: Any) -> str:
    """The reason why an energy was not measured; empty if it was."""
    if not is_present(value):
        return ""
    is_true = TRUTHS.get(str(value).strip().lower())
    if is_true is None:
        return one_line(value, ESTIMATED)
    return "the table says so" if is_true else ""


def _point_id(value: Any) -> str:
    if not is_present(value):
        return ""
    if not re.fullmatch(f"[0-9a-f]{{{ID_CHARS}}}", str(value)):
        raise ValueError(
            f"{POINT_ID}: found {str(value)[:40]!r}; must be what export wrote, or leave the "
            f"column out"
        )
    return str(value)


def _volts(
    cells: TableCells,
    core_mhz: np.ndarray,
    mem_mhz: np.ndarray,
    of_store: np.ndarray,
    mapping: TableMap,
) -> tuple[np.ndarray, np.ndarray, Texts]:
    """Each row's core and memory voltage (V, float64, NaN if not known), and their origin."""
    core_v, mem_v = cells.numbers("core_v"), cells.numbers("mem_v")
    measured = np.isfinite(core_v)
    of_row = cells.texts("voltage_origin", cell_text)
    names = list(dict.fromkeys(("", "measured", "table", *of_row.values)))
    code = measured.astype(np.int32)
    if of_store.any():
        code[of_store] = of_row.array(np.int32, list(map(names.index, of_row.values)))[of_store]
    mem_v = np.where(measured | of_store, mem_v, np.nan)
    measured |= of_store
    if not mapping.voltage.core:
        return core_v, mem_v, Texts.coded(code, names)
    code[~measured] = names.index("table")
    core_v = core_v.copy()
    for volts, mhz, pairs, name in (
        (core_v, core_mhz, mapping.voltage.core, "core"),
        (mem_v, mem_mhz, mapping.voltage.mem, "mem"),
    ):
        table = dict(pairs)
        for clock in np.unique(mhz[~measured & np.isfinite(mhz)]) if table else ():
            rows = np.flatnonzero(~measured & (mhz == clock))
            volts[rows] = table.get(clock, np.nan)
            if clock not in table:
                for i in rows:
                    cells.note(
                        int(i),
                        f"voltage of {name}",
                        f"{name}_mhz: no voltage for {clock:g} MHz in the map; add [MHz, V]",
                    )
    return core_v, mem_v, Texts.coded(code, names)


def _clock_proofs(
    cells: TableCells,
    clocks: dict[str, np.ndarray],
    has_profile: np.ndarray,
    simulated: np.ndarray,
    of_store: np.ndarray,
) -> Texts:
    """How each row proves its setting: as it says, else by its achieved clocks, else stated."""

    def proof(value: Any) -> str:
        if is_present(value) and value not in CLOCK_PROOFS:
            raise ValueError(
                f"clock_proof: found {str(value)[:40]!r}; must be one of {', '.join(CLOCK_PROOFS)}"
            )
        return cell_text(value)

    stated_proofs = cells.texts("clock_proof", proof)
    limited = ~np.isnan(clocks["power_limit_w"])
    agree = ~limited | np.isfinite(clocks["core_mhz_achieved"])
    agree &= ~has_profile & np.isnan(clocks["uncore_mhz"])
    for name in ("core_mhz", "mem_mhz"):
        requested, achieved = clocks[name], clocks[f"{name}_achieved"]
        is_close = np.abs(achieved - requested) <= AGREE * requested
        agree &= np.isnan(requested) | is_close | (limited & np.isfinite(achieved))
    as_found = ~has_profile & np.all([np.isnan(clocks[name]) for name in NUMBERS], axis=0)
    usual = np.select([simulated, as_found, agree], [1, 0, 2], 3)
    if "clock_proof" in cells.table.columns:
        usual[of_store] = 0
    return stated_proofs.otherwise(Texts.coded(usual, ["", SIMULATED, READ_BACK, STATED]))


@dataclass(frozen=True)
class Provenance:
    """Each row's provenance as JSON, the values that no column holds: the power (float64, NaN if
    none), and further parts. The texts are made on demand: those of all rows would take more memory
    than all other columns."""

    power_w: np.ndarray
    parts: tuple[Texts, ...]
    """Texts ``, "key": value``, or empty; all but the first are labels."""

    def __len__(self) -> int:
        return len(self.power_w)

    def __getitem__(self, rows: slice | np.ndarray) -> Provenance:
        parts = tuple(part[rows] for part in self.parts)
        return Provenance(self.power_w[rows], parts)

    def __iter__(self) -> Iterator[str]:
        return iter(np.asarray(self).tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        texts = np.empty(len(self), object)
        has_power = np.isfinite(self.power_w).tolist()
        rows = zip(self.power_w.tolist(), has_power, *self.parts, strict=True)
        for i, (power_w, row_has_power, reason, *labels) in enumerate(rows):
            watt = f', "power_w": {power_w!r}' if row_has_power else ""
            label_text = "".join(labels)
            text = f', "labels": {{{label_text[2:]}}}' if label_text else ""
            texts[i] = f'{{"imported": true{watt}{reason}{text}}}'
        return texts


def _provenance(
    table: RawTable, stored: Texts, power_w: np.ndarray, reasons: Texts, of_store: np.ndarray
) -> Provenance | Texts | np.ndarray:
    """Each row's provenance. A row of a store keeps its ``stored`` one, updated by the labels,
    power and reason of the table."""
    labels = [
        column.mapped(
            f", {json.dumps(name)}: {json.dumps(str(v))}" if is_present(v) else ""
            for v in column.values
        )
        for name, column in table.labels.items()
    ]
    why = reasons.mapped(lambda reason: f', "{ESTIMATED}": {json.dumps(reason)}' if reason else "")
    parts = (why, *labels)
    has_power = np.isfinite(power_w)
    new: Provenance | Texts = Texts.same('{"imported": true}', len(power_w))
    if has_power.any() or any(any(part.values) for part in parts):
        new = Provenance(power_w, parts)
    if not of_store.any():
        return new
    texts = np.where(of_store, stored.array(), np.asarray(new))
    has_reason = reasons.array(bool, [*map(bool, reasons.values)])
    changed = of_store & (has_power | bool(labels) | has_reason)
    for i in np.flatnonzero(changed).tolist():
        row: dict[str, Any] = json.loads(stored[i])
        row_labels = {k: str(v[i]) for k, v in table.labels.items() if is_present(v[i])}
        if isinstance(row.get("labels", {}), dict):
            row_labels = row.get("labels", {}) | row_labels
        updated = dict(row)
        if has_power[i]:
            updated["power_w"] = float(power_w[i])
        if reasons[i]:
            updated[ESTIMATED] = reasons[i]
        if row_labels:
            updated["labels"] = row_labels
        if updated != row:
            texts[i] = json.dumps(updated)
    return texts


def disagreements(table: RawTable, rows: Rows, power_w: np.ndarray) -> list[str]:
    """A line for each row whose energy is not its power (W) times its time."""
    if np.isnan(power_w).all():
        return []
    energy_j, time_s = np.asarray(rows["energy_j"]), np.asarray(rows["time_s"])
    with np.errstate(all="ignore"):
        product_j = power_w * time_s
        ratio = np.where(power_w > 0, energy_j / product_j, 1.0)
        away = np.flatnonzero(np.abs(np.log(ratio)) > np.log(DISAGREE))
    return [
        f"{table.path}:{table.lines[i]}: energy_j is {energy_j[i]:.6g} J, but power_w x time_s is "
        f"{product_j[i]:.6g} J; energy_j is used, and power_w is kept for information"
        for i in away.tolist()
    ]
