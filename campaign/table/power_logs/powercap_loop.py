"""A loop that reads counters or powers of a node, such as those of powercap, as CSV.

::

    time,package-0 [uJ],package-0 range [uJ],dram-0 [uJ]
    1795945347.102,262143001200,262143328850,9120331
    1795945347.203,210332,262143328850,9230114

``time`` is a Unix time or ISO 8601; each other column has its unit in brackets and a name that
begins with its domain (:data:`sites.meters.shared.meter.CONTAINS`). ``NAME range`` is the
largest value of a counter (``max_energy_range_uj``), after which it begins at 0 again.
"""

from __future__ import annotations

import re
from datetime import tzinfo
from pathlib import Path
from typing import Literal

import numpy as np

from campaign.table.delimited import number_at, read_table_text, rows_of
from campaign.table.power_logs import NS, LogDescription, LoggedChannel, unix_ns
from campaign.table.units import UNITS
from dvfs.input_files import FileError
from sites.meters import Channel
from sites.meters.shared.meter import CONTAINS

ABOUT = LogDescription(
    name="powercap",
    tool="a loop over powercap's files, or any logger",
    versions="Linux 6.1",
    made_by="CSV with the columns time, package-0 [uJ], package-0 range [uJ], dram-0 [uJ], or "
    "powers as node [W]",
    traps="without the range a window in which a counter begins again is refused",
)
COLUMN = re.compile(r"(?P<name>[A-Za-z][\w:./-]*)(?P<range> range)? ?\[(?P<unit>\w+)\]")
HEADER = re.compile(rb"(\xef\xbb\xbf)?time ?,[^\n]*\[[munkM]?[JW]")
KINDS: tuple[Literal["energy", "power"], ...] = ("energy", "power")


def recognises(head: bytes) -> bool:
    """Whether the header has a time and units of energy or power in brackets."""
    return HEADER.match(head) is not None


def read(path: Path, zone: tzinfo | None) -> list[LoggedChannel]:
    """A channel for each column except ``time``.

    Raises:
        FileError: a column's name or unit is not known, or a value is no number.
    """
    text, _ = read_table_text(path)
    header, rows = rows_of(path, text)
    columns = [_column(name, f"{path}:1") for name in header[1:]]
    stamps, values = [], []
    for line, fields in rows:
        place = f"{path}:{line}"
        try:
            stamps.append(unix_ns(fields[0], zone))
        except ValueError as error:
            raise FileError(f"time: {error}", "correct or remove this line", place) from None
        values.append([number_at(f, n, place) for f, n in zip(fields[1:], header[1:], strict=True)])
    time_ns = np.array(stamps, np.int64)
    read_values = np.array(values, float).reshape(len(stamps), len(columns))
    period_s = float(np.median(np.diff(time_ns))) / NS if len(stamps) > 1 else 1.0
    ranges = {
        name: read_values[:, i] * factor
        for i, (name, _, factor, is_range) in enumerate(columns)
        if is_range
    }
    return [
        LoggedChannel(
            Channel(
                name=f"{name}/{kind}",
                domain=_domain(name),
                kind=kind,
                resolution=factor,
                period_s=period_s,
                stamped=True,
            ),
            time_ns,
            _unwrapped(read_values[:, i] * factor, ranges.get(name))
            if kind == "energy"
            else read_values[:, i] * factor,
        )
        for i, (name, kind, factor, is_range) in enumerate(columns)
        if not is_range
    ]


def _column(header: str, place: str) -> tuple[str, Literal["energy", "power"], float, bool]:
    """A column's name, its kind, the factor to J or W, and whether it is a range."""
    match = COLUMN.fullmatch(header)
    if match is None or not _domain(match["name"]):
        raise FileError(
            f"column {header!r}",
            "name it NAME [UNIT], a name that begins with one of " + ", ".join(CONTAINS),
            place,
        )
    factors = UNITS[match["unit"]].factors if match["unit"] in UNITS else {}
    for kind in KINDS:
        if kind in factors:
            return match["name"], kind, factors[kind], bool(match["range"])
    names = [n for n, unit in UNITS.items() if {*KINDS} & unit.factors.keys() and not unit.read]
    raise FileError(f"column {header!r}", f"its units are {', '.join(names)}", place)


def _domain(name: str) -> str:
    """The longest domain that is a prefix of a name; empty if there is none."""
    return max((domain for domain in CONTAINS if name.startswith(domain)), key=len, default="")


def _unwrapped(joules: np.ndarray, ranges_j: np.ndarray | None) -> np.ndarray:
    """A counter, with its range added at each restart, if the range is known."""
    if ranges_j is None:
        return joules
    total: np.ndarray = joules + np.cumsum(np.append(0, np.diff(joules) < 0)) * ranges_j
    return total
