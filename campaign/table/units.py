"""The units of a table's columns, and the texts of other tools that stand for numbers.

``unit`` of a column in a map file is a name of :data:`UNITS`. A unit is a factor to the standard
unit of the column's quantity, or reads texts such as ``1-02:03:04``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from campaign.table.number_text import NumberStyle, number, only_number
from dvfs.dataset import COUNT_PREFIX, POSSIBLE

STANDARD = {"time": "s", "energy": "J", "power": "W", "clock": "MHz", "voltage": "V", "count": "1"}
"""Quantity -> its standard unit, that of our columns."""
LARGEST_OF_SLURM = 2.0**63
"""From here sacct's numbers are no readings: 2^64 - 2 stands for none, and 2^64 less some for a
counter that was reset."""
DURATION = re.compile(
    r"(?:(?P<d>[0-9]+)-(?=[0-9]+:[0-9]+:))?(?:(?P<h>[0-9]{1,2}):)?"
    r"(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2}(?:\.[0-9]+)?)"
)
SUFFIXED = re.compile(r"([0-9.]+)([KMGTPE]?)")
WITH_UNIT = re.compile(r"(\S*[0-9.])\s*([A-Za-z\u00b5%]+)")


Reader = Callable[[str, str, NumberStyle | None], float]


@dataclass(frozen=True)
class Unit:
    """A unit, or a way of writing numbers. ``factors``: quantity -> the factor to its standard
    unit. ``read``: converts a text, given the quantity, and the style of the file's numbers if it
    is stated; raises ValueError with the reason. ``reads``: the texts that it converts."""

    factors: Mapping[str, float]
    reads: str = ""
    read: Reader | None = field(default=None)


def quantity_of(column: str) -> str:
    """The quantity of a standard column of numbers; empty if it has no unit."""
    if column.startswith(COUNT_PREFIX):
        return "count"
    for ending, quantity in {
        "_mhz": "clock",
        "_v": "voltage",
        "_j": "energy",
        "_w": "power",
    }.items():
        if ending in column and column.partition(ending)[2] in ("", "_achieved", "_timed"):
            return quantity
    return "time" if column == "time_s" else ""


def unit_in_name(name: str, quantity: str) -> str:
    """The unit that a column's name ends with, for times, energies and powers; empty if there is
    none or it is the standard one. Clocks and voltages show their unit by their size."""
    if quantity not in ("time", "energy", "power"):
        return ""
    word = re.split(r"[^A-Za-z\u00b5]+", name.rstrip(")] "))[-1].replace("\u00b5", "u")
    candidates = [n for n, unit in UNITS.items() if quantity in unit.factors and not unit.read]
    # min is the least value as often as minutes.
    named = [n for n in candidates if n.lower() == word.lower() and n != "min"]
    if not named or STANDARD[quantity].lower() == word.lower():
        return ""
    return word if word in named else named[0]


def sacct_duration(text: str, _: str = "time", _style: NumberStyle | None = None) -> float:
    """Seconds of sacct's Elapsed: [DAYS-]HOURS:MINUTES:SECONDS, or MINUTES:SECONDS.

    Raises:
        ValueError: it is something else.
    """
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"found {text[:40]!r}; must be [D-]HH:MM:SS")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    if max(minutes, seconds) >= 60 or (match["d"] and hours >= 24):
        raise ValueError(f"found {text[:40]!r}; must be [D-]HH:MM:SS, each part in its range")
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _suffixed(base: float) -> Reader:
    def read(text: str, _: str, _style: NumberStyle | None = None) -> float:
        match = SUFFIXED.fullmatch(text)
        if match is None:
            raise ValueError(f"found {text[:40]!r}; must be a number with K, M, G, T, P, E or none")
        value = number(match[1]) * base ** "_KMGTPE".index(match[2] or "_")
        if value >= LARGEST_OF_SLURM:
            raise ValueError(
                f"found {text[:40]!r}, which Slurm writes where there was no reading; leave the "
                "row out by [[keep]], or the field empty"
            )
        return value

    return read


def with_unit(text: str, quantity: str, style: NumberStyle | None = None) -> float:
    """A number with its unit, as 61.05 W, in the standard unit of a quantity.

    Raises:
        ValueError: the text has another form, or the unit is of another quantity.
    """
    match = WITH_UNIT.fullmatch(text)
    unit = UNITS.get(match[2].replace("\u00b5", "u")) if match else None
    if match is None or unit is None or unit.read or quantity not in unit.factors:
        names = ", ".join(n for n, u in UNITS.items() if quantity in u.factors and not u.read)
        raise ValueError(f"found {text[:40]!r}; must be a number and one of the units {names}")
    return only_number(match[1], style) * unit.factors[quantity]


def _scaled(quantity: str, factors: Mapping[str, float]) -> dict[str, Unit]:
    return {name: Unit({quantity: factor}) for name, factor in factors.items()}


_BASE = {"energy": 1.0, "power": 1.0, "count": 1.0, "clock": 1e-6}
"""Factors from the units without prefix."""
UNITS: dict[str, Unit] = {
    **_scaled(
        "time",
        {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    ),
    **_scaled(
        "energy",
        {
            **{"nJ": 1e-9, "uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3, "MJ": 1e6, "GJ": 1e9},
            **{"mWh": 3.6, "Wh": 3600.0, "kWh": 3.6e6, "MWh": 3.6e9},
        },
    ),
    **_scaled("power", {"uW": 1e-6, "mW": 1e-3, "W": 1.0, "kW": 1e3, "MW": 1e6}),
    **_scaled("clock", {"Hz": 1e-6, "kHz": 1e-3, "MHz": 1.0, "GHz": 1e3}),
    **_scaled("voltage", {"uV": 1e-6, "mV": 1e-3, "V": 1.0}),
    **_scaled("count", {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}),
    "sacct-duration": Unit(
        {"time": 1.0},
        "`02:19:48`, `1-02:03:04`, `00:10.123`, as `Elapsed` of sacct",
        sacct_duration,
    ),
    "sacct-number": Unit(
        _BASE,
        "`4.58M`, `812.35K`, `2.00G` with K = 1000, as `ConsumedEnergy` (J) and `ReqCPUFreq` (Hz) "
        "of sacct, below 2^63",
        _suffixed(1000.0),
    ),
    "sacct-memory": Unit(
        {name: _BASE[name] for name in ("energy", "count")},
        "the same with K = 1024, as `TRESUsageInTot` of sacct, also of energies",
        _suffixed(1024.0),
    ),
    "as written": Unit(
        dict.fromkeys(("time", "energy", "power", "clock", "voltage"), 1.0),
        "a number and its unit in each cell: `61.05 W`, `1410 MHz`, as nvidia-smi writes",
        with_unit,
    ),
}
"""Name -> unit. Units with a reader come last."""


def suggested_unit(column: str, texts: Iterable[str]) -> str:
    """The unit that converts all of these texts to plausible values of a column; empty if none
    does."""
    quantity, texts = quantity_of(column), list(texts)
    low, high, _ = POSSIBLE.get(column, (0.0, float("inf"), ""))
    for name, unit in UNITS.items():
        if unit.read is None or quantity not in unit.factors or not texts:
            continue
        try:
            values = [unit.read(text, quantity, None) * unit.factors[quantity] for text in texts]
        except ValueError:
            continue
        if all(low <= value <= high for value in values):
            return name
    return ""
