"""Values that no device has: refused, with the factor that would make them right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from campaign.table.cells import TableCells
from campaign.table.map_file import TableMap
from dvfs.dataset import COUNT_PREFIX, POSSIBLE, POSSIBLE_COUNT
from dvfs.setting import NUMBERS

UNITS = {
    "MHz": ((1e-3, "1e-3", "kHz"), (1e3, "1e3", "GHz"), (1e-6, "1e-6", "Hz")),
    "V": ((1e-3, "1e-3", "mV"), (1e-6, "1e-6", "uV")),
    "W": ((1e-3, "1e-3", "mW"), (1e3, "1e3", "kW"), (1e-6, "1e-6", "uW")),
}
"""Unit of a column -> the factors to it, as a map file has them, and the units that they are
from."""
DEVICE = (*NUMBERS, "core_v", "mem_v")
"""Columns of which every value is one that a device is set to, also in a store."""
AT_CAP = (0.88, 1.1)
"""Power over cap of the rows that draw most, where the cap binds: meters and controllers are this
exact."""
DRAW_MOST = 0.9
"""The quantile of the rows of a cap that reach it: others need less."""
MOSTLY = 0.6
"""The share of caps that are reached; the largest ones may be beyond what any row needs."""
FEWEST_CAPS, WIDE, MOST_CAPS = 3, 1.25, 200
"""So many caps, and the ratio of the largest to the least: one clock may draw its number in W."""
MOST_CAP_W = 3000.0
"""Caps of a node of several GPUs are below this, or are given by GPU."""
SLURM_CLOCKS = {"ReqCPUFreq", "ReqCPUFreqMin", "ReqCPUFreqMax", "AveCPUFreq", "CPUFrequency"}
"""Slurm's columns of clocks: what was asked for, and running means, whatever rows draw."""
CAP_WORDS = {"power", "pwr", "cap", "powercap", "powerlimit", "tdp", "tgp", "watt", "watts"}
CLOCK_WORDS = {"clock", "clk", "freq", "frequency", "mhz", "ghz", "khz", "hz"}


def note_impossible(
    cells: TableCells,
    columns: dict[str, np.ndarray],
    of_store: np.ndarray,
    failed: np.ndarray,
    mapping: TableMap,
) -> None:
    """Note the columns whose values (float64, NaN where there is none) are all in another unit, and
    the rows whose value no device has; see :data:`dvfs.dataset.POSSIBLE`.

    ``of_store``, ``failed``: bool, one a row. A store may hold a 0 that a meter or a clock gave,
    and of a failed measurement any number from 0 on.
    """
    for name, values in columns.items():
        rows, least = impossible_rows(name, values, of_store, failed)
        if not len(rows):
            continue
        text = other_unit(name, Extent.of(values, rows, of_store), mapping)
        if text:
            cells.wrong_columns.append(text)
            continue
        for i in rows.tolist():
            cells.note(i, name, impossible(name, values[i], least[i]))


def impossible_rows(
    name: str, values: np.ndarray, of_store: np.ndarray, failed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int64: the rows of a column whose value no device has; float64 (all rows): the least that
    one has."""
    low, high, _ = _bounds(name)
    least = np.where(failed | (of_store & (name not in DEVICE)), 0.0, low)
    return np.flatnonzero((values < least) | (values > high)), least


def impossible(name: str, value: float, least: float) -> str:
    """What is wrong with a value that no device has."""
    return f"{name}: found {value:g}; {_wanted(name, value, least)}"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """A column's values that are of no store (``present``), and those that no device has
    (``wrong``): how many, the least and the most of each, NaN without."""

    n_present: int
    present: tuple[float, float]
    n_wrong: int
    wrong: tuple[float, float]

    @classmethod
    def of(cls, values: np.ndarray, rows: np.ndarray, of_store: np.ndarray) -> Extent:
        """``values``: all of the column; ``rows``: those that no device has."""
        present = values[~np.isnan(values) & ~of_store]
        return cls(
            n_present=len(present),
            present=_range(present),
            n_wrong=len(rows),
            wrong=_range(values[rows]),
        )

    def with_(self, other: Extent) -> Extent:
        """That of the values of both."""
        pairs = [(self.present, other.present), (self.wrong, other.wrong)]
        present, wrong = ((np.fmin(a[0], b[0]), np.fmax(a[1], b[1])) for a, b in pairs)
        return Extent(
            n_present=self.n_present + other.n_present,
            present=present,
            n_wrong=self.n_wrong + other.n_wrong,
            wrong=wrong,
        )


def _range(values: np.ndarray) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (np.nan, np.nan)


def other_unit(name: str, extent: Extent, mapping: TableMap) -> str:
    """What is wrong with a column whose values are all in another unit; empty where they are
    not."""
    low, high, unit = _bounds(name)
    if name not in DEVICE or not 0 < extent.n_wrong == extent.n_present:
        return ""
    for factor, text, theirs in UNITS.get(unit, ()):
        if low <= extent.present[0] * factor and extent.present[1] * factor <= high:
            return (
                f"{name}{_called(name, mapping)}: {_found(*extent.wrong)} devices have {low:g} to "
                f"{high:,g} {unit}; {_advice(name, factor, text, theirs, mapping)}"
            )
    return ""


def _bounds(name: str) -> tuple[float, float, str]:
    if name.startswith(COUNT_PREFIX):
        return *POSSIBLE_COUNT, ""
    return POSSIBLE["energy_j" if name == "power_w x time_s" else name]


def _wanted(name: str, value: float, least: float) -> str:
    """What a value should be that is beyond the bounds of its column."""
    low, high, unit = _bounds(name)
    if np.isinf(value):
        return "must be finite"
    if value <= 0:
        return f"must be {'above 0' if least > 0 else '0 or more'}"
    if name not in DEVICE:
        return f"must be from {low:g} to {high:g} {unit}".rstrip() + "; check the unit"
    seems = [
        f"in {theirs} it would be {value * factor:g} {unit}: "
        for factor, _, theirs in UNITS[unit]
        if low <= value * factor <= high
    ]
    return (
        f"devices have {low:g} to {high:,g} {unit}; {''.join(seems[:1])}correct this row, as the "
        f"column is in {unit}"
    )


def _found(least: float, most: float) -> str:
    if least == most:
        return f"found {least:.10g} in every row, and"
    return f"found {least:.10g} to {most:.10g}, and"


def _called(name: str, mapping: TableMap) -> str:
    """The table's own name of a column, where it is another one."""
    source = mapping.columns.get(name)
    if source is None or source.names == [name]:
        return ""
    return f" ({', '.join(map(repr, source.names))} in the table)"


def _advice(name: str, factor: float, text: str, theirs: str, mapping: TableMap) -> str:
    """What to write in the map file, so that a column has the right unit."""
    source = mapping.columns.get(name)
    if name in mapping.constants:
        right = float(mapping.constants[name]) * factor
        line = f"{name} = {right:g}"
        return f"it seems to be in {theirs}: write {line} under [constants] in the map file"
    if source is None or source.model_fields_set == {"column"}:
        column = json.dumps(name if source is None else source.column, ensure_ascii=False)
        where = "the map file" if source is not None else "a map file, which --map names"
        return (
            f"it seems to be in {theirs}: write {name} = {{ column = {column}, factor = {text} }} "
            f"under [columns] in {where}"
        )
    return f"set factor = {source.factor * factor:g} for {name} under [columns] in the map file"


def note_power_caps(
    cells: TableCells,
    core_mhz: np.ndarray,
    power_w: np.ndarray,
    read_back: np.ndarray,
    mapping: TableMap,
) -> None:
    """Note a column of clocks that holds power caps in W: its own name says so, or the rows that
    draw most draw as many W as their "clock" is. ``power_w``: float64, the mean of each row;
    ``read_back``: bool, the rows whose clock a reading agrees with."""
    of_all = {} if read_back.all() else _most_drawn(core_mhz[~read_back], power_w[~read_back])
    if wrong := power_caps(of_all, mapping):
        cells.wrong_columns.append(wrong)


def power_caps(most_w: Mapping[float, float], mapping: TableMap) -> str:
    """What is wrong with a column of clocks that holds power caps in W; empty where it does not.
    ``most_w``: each of its clocks, or none of too many, and what the rows that draw most draw
    there."""
    source = mapping.columns.get("core_mhz")
    names = [] if source is None else source.names
    if SLURM_CLOCKS & {*names}:
        return ""
    named = [name for name in names if _names_cap(name)]
    reached_w = _reached_caps(most_w)
    if not named and not reached_w:
        return ""
    seen = ""
    if reached_w:
        seen = ": rows draw " + " and ".join(
            f"{reached_w[cap]:.3g} W at {cap:g}" for cap in (min(reached_w), max(reached_w))
        )
    return (
        f"core_mhz{_called('core_mhz', mapping)}: is a power cap (power limit) in W, not a clock"
        f"{seen}; name it power_limit_w under [columns] in the map, and the clocks that were read "
        "core_mhz_achieved"
    )


def _most_drawn(core_mhz: np.ndarray, power_w: np.ndarray) -> dict[float, float]:
    """Each "clock", and what the rows that draw most draw in W, 0 where no row has a power; nothing
    where there are too many."""
    known = np.isfinite(power_w)
    caps = np.unique(core_mhz)
    if not FEWEST_CAPS <= len(caps) <= MOST_CAPS:
        return {}
    of_caps = ((cap, power_w[(core_mhz == cap) & known]) for cap in caps.tolist())
    return {cap: draw_most(own_w) if len(own_w) else 0.0 for cap, own_w in of_caps}


def draw_most(power_w: np.ndarray) -> float:
    """What the rows that draw most draw."""
    return float(np.quantile(power_w, DRAW_MOST, method="higher"))


def _reached_caps(most_w: Mapping[float, float]) -> dict[float, float]:
    """Each "clock" whose number the rows that draw most draw in W, and what they draw; nothing
    where these are few of them, or so near to each other that it may be by chance."""
    reached_w = {
        cap: own_w
        for cap, own_w in most_w.items()
        if AT_CAP[0] * cap < own_w < AT_CAP[1] * cap and cap <= MOST_CAP_W
    }
    enough = len(reached_w) >= max(FEWEST_CAPS, MOSTLY * len(most_w))
    return reached_w if enough and max(reached_w) >= WIDE * min(reached_w) else {}


def _names_cap(name: str) -> bool:
    """Whether the name of a column of clocks says that it holds power caps."""
    words = re.findall("[a-z]+[0-9]*", re.sub("([a-z])([A-Z])", r"\1 \2", name).lower())
    is_cap = not CAP_WORDS.isdisjoint(words) or words[-1:] == ["w"]
    return is_cap and CLOCK_WORDS.isdisjoint(words)
