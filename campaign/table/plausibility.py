"""Errors for values that no device has, with the factor that would correct them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from campaign.table.map_file import TableMap
from dvfs.dataset import COUNT_PREFIX, POSSIBLE, POSSIBLE_COUNT
from dvfs.setting import NUMBERS

UNITS = {
    "MHz": ((1e-3, "1e-3", "kHz"), (1e3, "1e3", "GHz"), (1e-6, "1e-6", "Hz")),
    "V": ((1e-3, "1e-3", "mV"), (1e-6, "1e-6", "uV")),
    "W": ((1e-3, "1e-3", "mW"), (1e3, "1e3", "kW"), (1e-6, "1e-6", "uW")),
}
"""Unit of a column -> the factors from other units, as a map file has them, and these units."""
DEVICE = (*NUMBERS, "core_v", "mem_v")
"""Columns of values that a device is set to, also in a store."""
AT_CAP = (0.88, 1.1)
"""The range of power over cap, for the rows that draw most, if the cap limits them. It allows for
the errors of meters and controllers."""
DRAW_MOST = 0.9
"""The quantile of a cap's powers that is compared with the cap: most rows need less."""
MOSTLY = 0.6
"""The share of caps that must be reached; rows may need less than the largest ones."""
FEWEST_CAPS, WIDE, MOST_CAPS = 3, 1.25, 200
"""The fewest caps, the ratio of largest to least, and the most caps: one may match by chance."""
MOST_CAP_W = 3000.0
"""The highest cap: caps of a node of several GPUs are below this, or are stated by GPU."""
SLURM_CLOCKS = {"ReqCPUFreq", "ReqCPUFreqMin", "ReqCPUFreqMax", "AveCPUFreq", "CPUFrequency"}
"""Slurm's columns of requested and mean clocks, which are never power caps."""
CAP_WORDS = {"power", "pwr", "cap", "powercap", "powerlimit", "tdp", "tgp", "watt", "watts"}
CLOCK_WORDS = {"clock", "clk", "freq", "frequency", "mhz", "ghz", "khz", "hz"}


def impossible_rows(
    name: str, values: np.ndarray, of_store: np.ndarray, failed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int64: the rows of a column with a value that no device has; float64 (all rows): the lowest
    possible value."""
    low, high, _ = _bounds(name)
    least = np.where(failed | (of_store & (name not in DEVICE)), 0.0, low)
    return np.flatnonzero((values < least) | (values > high)), least


def impossible(name: str, value: float, least: float) -> str:
    """The error message for a value that no device has."""
    return f"{name}: found {value:g}; {_remedy(name, value, least)}"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The number, lowest and highest of a column's values that are not from a store (``present``),
    and of those that no device has (``wrong``); NaN if there are none."""

    n_present: int
    present: tuple[float, float]
    n_wrong: int
    wrong: tuple[float, float]

    @classmethod
    def of(cls, values: np.ndarray, rows: np.ndarray, of_store: np.ndarray) -> Extent:
        """The extent of a column. ``rows``: those with a value that no device has."""
        present = values[~np.isnan(values) & ~of_store]
        return cls(
            n_present=len(present),
            present=_range(present),
            n_wrong=len(rows),
            wrong=_range(values[rows]),
        )

    def with_(self, extent: Extent) -> Extent:
        """The extent of the values of both."""
        pairs = [(self.present, extent.present), (self.wrong, extent.wrong)]
        present, wrong = ((np.fmin(a[0], b[0]), np.fmax(a[1], b[1])) for a, b in pairs)
        return Extent(
            n_present=self.n_present + extent.n_present,
            present=present,
            n_wrong=self.n_wrong + extent.n_wrong,
            wrong=wrong,
        )


def _range(values: np.ndarray) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (np.nan, np.nan)


def other_unit(name: str, extent: Extent, mapping: TableMap) -> str:
    """The error message for a column that is as a whole in another unit; empty if it is not."""
    low, high, unit = _bounds(name)
    if name not in DEVICE or not 0 < extent.n_wrong == extent.n_present:
        return ""
    for factor, text, file_unit in UNITS.get(unit, ()):
        if low <= extent.present[0] * factor and extent.present[1] * factor <= high:
            return (
                f"{name}{_alias(name, mapping)}: {_shown(*extent.wrong)} devices have {low:g} to "
                f"{high:,g} {unit}; {_advice(name, factor, text, file_unit, mapping)}"
            )
    return ""


def _bounds(name: str) -> tuple[float, float, str]:
    if name.startswith(COUNT_PREFIX):
        return *POSSIBLE_COUNT, ""
    return POSSIBLE["energy_j" if name == "power_w x time_s" else name]


def _remedy(name: str, value: float, least: float) -> str:
    """The remedy for a value beyond the bounds of its column."""
    low, high, unit = _bounds(name)
    if np.isinf(value):
        return "must be finite"
    if value <= 0:
        return f"must be {'above 0' if least > 0 else '0 or more'}"
    if name not in DEVICE:
        return f"must be from {low:g} to {high:g} {unit}".rstrip() + "; check the unit"
    seems = [
        f"in {file_unit} it would be {value * factor:g} {unit}: "
        for factor, _, file_unit in UNITS[unit]
        if low <= value * factor <= high
    ]
    return (
        f"devices have {low:g} to {high:,g} {unit}; {''.join(seems[:1])}correct this row, as the "
        f"column is in {unit}"
    )


def _shown(least: float, most: float) -> str:
    if least == most:
        return f"found {least:.10g} in every row, and"
    return f"found {least:.10g} to {most:.10g}, and"


def _alias(name: str, mapping: TableMap) -> str:
    """The table's name of a column in brackets, if it differs from the standard one."""
    source = mapping.columns.get(name)
    if source is None or source.names == [name]:
        return ""
    return f" ({', '.join(map(repr, source.names))} in the table)"


def _advice(name: str, factor: float, text: str, unit: str, mapping: TableMap) -> str:
    """The remedy for a column in another unit: the line of the map file."""
    source = mapping.columns.get(name)
    if name in mapping.constants:
        right = float(mapping.constants[name]) * factor
        line = f"{name} = {right:g}"
        return f"it seems to be in {unit}: write {line} under [constants] in the map file"
    if source is None or source.model_fields_set == {"column"}:
        column = json.dumps(name if source is None else source.column, ensure_ascii=False)
        where = "the map file" if source is not None else "a map file, which --map names"
        return (
            f"it seems to be in {unit}: write {name} = {{ column = {column}, factor = {text} }} "
            f"under [columns] in {where}"
        )
    return f"set factor = {source.factor * factor:g} for {name} under [columns] in the map file"


def power_caps(most_w: Mapping[float, float], mapping: TableMap) -> str:
    """The error message for a column of clocks that holds power caps in W; empty if it does not.
    ``most_w``: clock -> power (W) of the rows that draw most; empty if there are too many clocks.
    """
    source = mapping.columns.get("core_mhz")
    names = [] if source is None else source.names
    if SLURM_CLOCKS & {*names}:
        return ""
    named = [name for name in names if _names_cap(name)]
    reached_w = _reached_caps(most_w)
    if not named and not reached_w:
        return ""
    proof = ""
    if reached_w:
        proof = ": rows draw " + " and ".join(
            f"{reached_w[cap]:.3g} W at {cap:g}" for cap in (min(reached_w), max(reached_w))
        )
    return (
        f"core_mhz{_alias('core_mhz', mapping)}: is a power cap (power limit) in W, not a clock"
        f"{proof}; name it power_limit_w under [columns] in the map, and the clocks that were read "
        "core_mhz_achieved"
    )


def _reached_caps(most_w: Mapping[float, float]) -> dict[float, float]:
    """The entries of ``most_w`` whose "clock" equals the power; empty if they are few, or so close
    to each other that they may be equal by chance."""
    reached_w = {
        cap: drawn_w
        for cap, drawn_w in most_w.items()
        if AT_CAP[0] * cap < drawn_w < AT_CAP[1] * cap and cap <= MOST_CAP_W
    }
    enough = len(reached_w) >= max(FEWEST_CAPS, MOSTLY * len(most_w))
    return reached_w if enough and max(reached_w) >= WIDE * min(reached_w) else {}


def _names_cap(name: str) -> bool:
    """Whether the name of a column of clocks says that it holds power caps."""
    words = re.findall("[a-z]+[0-9]*", re.sub("([a-z])([A-Z])", r"\1 \2", name).lower())
    is_cap = not CAP_WORDS.isdisjoint(words) or words[-1:] == ["w"]
    return is_cap and CLOCK_WORDS.isdisjoint(words)
