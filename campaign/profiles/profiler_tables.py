r"""What a profiler's CSV file holds: each counter's value over the whole run, summed over kernels.

A reader for each layout. Times are given in s and sizes in bytes, whatever unit the file has.

- ``perf-stat``: ``perf stat -x\;`` (or ``-x,`` where no event has a comma in its name): value,
  unit, event, time counted, share counted.
- ``likwid``: ``likwid-perfctr -O``: tables of events and of metrics by hardware thread, summed
  over threads; of a time, the longest is taken. ``region`` selects a marker region.
- ``ncu``: ``ncu --csv``, with or without ``--page raw``: a metric of a kernel's launch.
- ``nsys``: ``nsys stats --report cuda_gpu_kern_sum --format csv``: times alone.
- ``nvprof``: ``nvprof --csv --events ... --metrics ...``: means over a kernel's launches.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sites.located_toml import BadFile, read_text

UNIT_FACTORS = {
    **dict.fromkeys(("s", "second", "sec"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecond"), 1e-3),
    **dict.fromkeys(("us", "usec", "usecond"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nsecond"), 1e-9),
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
    **{"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KBytes": 1e3, "MBytes": 1e6, "GBytes": 1e9},
}
"""Unit of a file -> factor to s or bytes. Any other unit is kept as it is."""
MULTIPLEXED_PCT = 99.9
NOT_A_VALUE = ("", "-", "nan", "n/a", "<not counted>", "<not supported>", "no data")


@dataclass
class Counted:
    """Counter -> value, and sentences about what may be wrong with them."""

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, value: float) -> None:
        """Add to a counter."""
        self.values[name] = self.values.get(name, 0.0) + value


@dataclass(frozen=True)
class Selection:
    """What of a file is read: kernels whose name matches, or a marker region; all by default."""

    kernel: re.Pattern[str] | None = None
    region: str | None = None

    def has(self, kernel: str) -> bool:
        """Whether a kernel of this name is selected."""
        return self.kernel is None or self.kernel.search(kernel) is not None


def read_counted(path: Path, layout: str, selection: Selection) -> Counted:
    """The counters of a profiler's file.

    Raises:
        BadFile: it cannot be read, or has nothing of this layout and selection.
    """
    if path.suffix == ".toml":
        raise BadFile(
            "is a TOML file, not the output of a profiler", "give FILE=MAP, the map last", str(path)
        )
    lines = read_text(path).splitlines()
    counted = LAYOUTS[layout](lines, selection)
    if not counted.values:
        selected = "" if selection == Selection() else ", or nothing of what is selected"
        raise BadFile(
            f"has no counter in the layout {layout!r}{selected}",
            f"check the file, --kernel and --region, and the map's layout: {', '.join(LAYOUTS)}",
            str(path),
        )
    return counted


def _number(text: str) -> float:
    """A number as profilers print it, with commas between thousands; NaN where there is none."""
    plain = text.strip().replace(",", "")
    if plain.lower() in NOT_A_VALUE:
        return math.nan
    try:
        return float(plain)
    except ValueError:
        return math.nan


def _table(lines: Sequence[str], *columns: str) -> Iterable[dict[str, str]]:
    """The rows below the first line that has these columns; what stands before it is left out."""
    for i, line in enumerate(lines):
        header = next(csv.reader([line]), [])
        if set(columns) <= set(header):
            for row in csv.reader(lines[i + 1 :]):
                if len(row) != len(header):
                    return
                yield dict(zip(header, row, strict=True))
            return


def _perf_stat(lines: Sequence[str], _: Selection) -> Counted:
    counted = Counted()
    for line in lines:
        parts = line.split(";" if ";" in line else ",")
        if line.startswith("#") or len(parts) < 5:
            continue
        value = _number(parts[0])
        # Where it is counted by CPU or socket, that stands before the value.
        shift = next((k for k in (1, 2) if len(parts) > k + 4), 0) if math.isnan(value) else 0
        value = _number(parts[shift]) if shift else value
        unit, name, share_pct = parts[shift + 1], parts[shift + 2], _number(parts[shift + 4])
        name = re.sub(r":[ukhGHpPSDeIW]+$", "", name)
        if math.isnan(value) or not name:
            continue
        counted.add(name, value * _factor(unit))
        if share_pct < MULTIPLEXED_PCT:
            counted.notes.append(f"{name} was counted {share_pct:g} % of the time, and scaled")
    return counted


def _likwid(lines: Sequence[str], selection: Selection) -> Counted:
    counted = Counted()
    kind = ""
    for row in csv.reader(lines):
        if not row:
            continue
        if row[0] == "TABLE":
            region = row[1].removeprefix("Region ") if row[1].startswith("Region ") else None
            kind = next((part for part in row if part.startswith("Group ")), "")
            if region != selection.region or "STAT" in kind:
                kind = ""
        elif kind.endswith("Raw") and row[0] not in ("Event", "Region Info"):
            numbers = [number for number in map(_number, row[2:]) if math.isfinite(number)]
            if numbers:
                counted.add(row[0], sum(numbers))
        elif kind.endswith("Metric") and row[0] != "Metric":
            numbers = [number for number in map(_number, row[1:]) if math.isfinite(number)]
            name, _, unit = row[0].partition(" [")
            if numbers:
                total = max(numbers) if unit == "s]" else sum(numbers)
                counted.values[name] = total * _factor(unit.removesuffix("]"))
    return counted


def _ncu(lines: Sequence[str], selection: Selection) -> Counted:
    counted = Counted()
    for row in _table(lines, "Kernel Name", "Metric Name", "Metric Value"):
        value = _number(row["Metric Value"])
        if selection.has(row["Kernel Name"]) and math.isfinite(value):
            counted.add(row["Metric Name"], value * _factor(row.get("Metric Unit", "")))
    if counted.values:
        return counted
    rows = iter(_table(lines, "Kernel Name", "ID"))
    units = next(rows, {})
    for row in rows:
        if selection.has(row["Kernel Name"]):
            for name, text in row.items():
                value = _number(text)
                if "__" in name and math.isfinite(value):
                    counted.add(name, value * _factor(units.get(name, "")))
    return counted


def _nsys(lines: Sequence[str], selection: Selection) -> Counted:
    counted = Counted()
    for row in _table(lines, "Total Time (ns)", "Instances", "Name"):
        if selection.has(row["Name"]):
            counted.add("Total Time", _number(row["Total Time (ns)"]) * 1e-9)
            counted.add("Instances", _number(row["Instances"]))
    return counted


def _nvprof(lines: Sequence[str], selection: Selection) -> Counted:
    counted = Counted()
    for name in ("Event Name", "Metric Name"):
        for row in _table(lines, "Kernel", "Invocations", name, "Avg"):
            value = _number(row["Avg"]) * _number(row["Invocations"])
            if selection.has(row["Kernel"]) and math.isfinite(value):
                counted.add(row[name], value)
    return counted


def _factor(unit: str) -> float:
    return UNIT_FACTORS.get(unit.strip(), 1.0)


LAYOUTS: dict[str, Callable[[Sequence[str], Selection], Counted]] = {
    "perf-stat": _perf_stat,
    "likwid": _likwid,
    "ncu": _ncu,
    "nsys": _nsys,
    "nvprof": _nvprof,
}
"""Layout -> its reader."""
