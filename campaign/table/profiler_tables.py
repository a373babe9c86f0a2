r"""The counters in a profiler's file: the value of each over the whole run, summed over kernels.

Each layout has a reader. It converts times to s and sizes to bytes. It reads numbers in the style
of the file, which depends on the locale of the run.

- ``perf-stat``: ``perf stat -x\;`` (or ``-x,`` where no event has a comma in its name): value,
  unit, event, time counted, share counted; or ``perf stat -j``, one JSON object a line.
- ``likwid``: ``likwid-perfctr -O``: tables of events and of metrics by hardware thread, summed
  over threads; of times the longest is taken, of clocks the mean. ``region`` selects a marker
  region. Groups of events have separate times: only the group that has the map's counters is read.
- ``ncu``: ``ncu --csv``, with or without ``--page raw``: a metric of a kernel's launch.
- ``nsys``: ``nsys stats --report cuda_gpu_kern_sum --format csv``: times alone.
- ``nvprof``: ``nvprof --csv --events ... --metrics ...``: means over a kernel's launches.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from campaign.table.number_text import UnclearNumbersError, read_numbers
from dvfs.input_files import FileError, read_text

UNIT_FACTORS = {
    **dict.fromkeys(("s", "second", "sec"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecond"), 1e-3),
    **dict.fromkeys(("us", "usec", "usecond"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nsecond"), 1e-9),
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
    **{"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    **{"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KBytes": 1e3, "MBytes": 1e6, "GBytes": 1e9},
}
"""Unit of a file -> factor to s or bytes. Values in any other unit are unchanged."""
MULTIPLEXED_PCT = 99.9
NOT_A_VALUE = ("-", "nan", "NaN", "n/a", "N/A", "no data", "inf")
NOT_COUNTED = ("<not counted>", "<not supported>")
"""Texts that perf writes in place of a value."""
PERF_FIELDS = re.compile(
    r"(?P<where>(?:\s*[0-9]+\.[0-9]{9};)?(?:[A-Z][^;]*;(?:[0-9]+;)?)?)"
    r"(?P<value>[^;]*);(?P<unit>[^0-9;][^;]*|);(?P<event>[^;]*[A-Za-z][^;]*);"
    r"(?:[0-9.,]+%;)?[0-9]+;(?P<share>[0-9.,]*)(?:;.*)?"
)
"""A line of perf stat: the time of an interval and the part of the machine, if any; the value with
its unit and event; the variance, if any; the time counted and the share in percent."""
PERF_PLACES = ("interval", "socket", "die", "cluster", "core", "cpu", "node", "thread", "cgroup")
MODIFIERS = re.compile(r":[ukhGHpPSDeIW]+$")
PERF_MEMBER = re.compile(r'"([^"]*)"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|([^"]*?))\s*(?=,\s*"|\}|,?\s*$)')
"""A member of an object of perf stat -j. In a locale with decimal commas it is no JSON."""


@dataclass
class Counted:
    """``values``: counter -> value. ``notes``: possible errors, a sentence each. ``not_counted``:
    counter -> the profiler's text in place of a value. ``name``: of the group of counters, if a
    file has several."""

    values: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_counted: dict[str, str] = field(default_factory=dict)
    name: str = ""

    def add(self, name: str, value: float) -> None:
        """Add to a counter."""
        self.values[name] = self.values.get(name, 0.0) + value


@dataclass(frozen=True)
class Selection:
    """The part of a file to read: kernels whose name matches, or a marker region; default all."""

    kernel: re.Pattern[str] | None = None
    region: str | None = None

    def has(self, kernel: str) -> bool:
        """Whether a kernel of this name is selected."""
        return self.kernel is None or self.kernel.search(kernel) is not None


def read_counted(
    path: Path, layout: str, selection: Selection, needed: Collection[str] = ()
) -> Counted:
    """The counters of a profiler's file. ``needed``: the map's counters, by which one of several
    groups is chosen.

    Raises:
        FileError: the file cannot be read, has no counters of this layout and selection, or has
            ambiguous numbers.
    """
    if path.suffix == ".toml":
        raise FileError(
            "is a TOML file, not the output of a profiler", "give FILE=MAP, the map last", str(path)
        )
    lines = read_text(path).splitlines()
    groups = [g for g in LAYOUTS[layout](path, lines, selection) if g.values or g.not_counted]
    if not groups:
        selected = "" if selection == Selection() else ", or nothing of what is selected"
        raise FileError(
            f"has no counter in the layout {layout!r}{selected}",
            f"check the file, --kernel and --region, and the map's layout: {', '.join(LAYOUTS)}",
            str(path),
        )
    return groups[0] if len(groups) == 1 else _one_group(path, groups, {*needed})


def _one_group(path: Path, groups: Sequence[Counted], map_counters: set[str]) -> Counted:
    """The group that has all of the map's counters that are in the file."""
    has = [map_counters & group.values.keys() for group in groups]
    needed = set().union(*has)
    whole = [group for group, counters in zip(groups, has, strict=True) if counters == needed]
    if len(whole) == 1:
        return whole[0]
    names = ", ".join(group.name for group in (whole or groups))
    if whole:
        raise FileError(
            f"has several groups with the counters of the map ({names})",
            "keep the tables of one of them",
            str(path),
        )
    raise FileError(
        f"the map's counters are in several groups ({names}), each counted for a time of its own",
        "profile one group a run, and give each file a map of its own",
        str(path),
    )


def _numbers(path: Path, texts: Sequence[str], lines: Sequence[int]) -> list[float]:
    """Numbers that one program wrote, NaN for no value. ``lines``: their lines, for messages."""
    try:
        columns, _ = read_numbers({"": texts}, missing=NOT_A_VALUE, one_writer=True)
    except UnclearNumbersError as error:
        cause, place = error.what, f"{path}:{lines[error.row]}"
        raise FileError(cause, "run the profiler again with LC_ALL=C", place) from None
    for row, (_, why) in columns[""].refused.items():
        raise FileError(
            why.partition(";")[0],
            "must be a number; run the profiler again with LC_ALL=C",
            f"{path}:{lines[row]}",
        )
    return [float(value) for value in columns[""].values]


def _table(lines: Sequence[str], *columns: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of the table with these columns, and their lines. Lines before it are skipped."""
    for i, line in enumerate(lines):
        header = next(csv.reader([line]), [])
        if set(columns) <= set(header):
            reader = csv.reader(lines[i + 1 :])
            for row in reader:
                if len(row) != len(header):
                    return
                yield i + 1 + reader.line_num, dict(zip(header, row, strict=True))
            return


def counted_by_perf(path: Path, lines: Sequence[str], _: Selection) -> list[Counted]:
    """The counters of one run of perf stat -x or -j, summed over intervals and parts of the
    machine. An event that was requested twice, as by groups of metrics, is counted once.

    Raises:
        FileError: a line cannot be read, or counts of an event overlap.
    """
    rows = list(_perf_json(lines) if is_json(lines) else _perf_rows(path, lines))
    counted = Counted()
    values = [row.value for row in rows if row.value not in NOT_COUNTED]
    shares = [row.share for row in rows]
    places = [row.line for row in rows if row.value not in NOT_COUNTED] + [row.line for row in rows]
    numbers = iter(_numbers(path, values + shares, places))
    row_counts = [(math.nan if row.value in NOT_COUNTED else next(numbers)) for row in rows]
    counts: list[tuple[str, str, float]] = []
    for row, value, share_pct in zip(rows, row_counts, numbers, strict=True):
        name = _event(row.event)
        if row.value in NOT_COUNTED:
            counted.not_counted[name] = row.value
        elif not math.isnan(value):
            counts.append((row.where, row.event, value * _factor(row.unit)))
            if share_pct < MULTIPLEXED_PCT:
                counted.notes.append(f"{name} was counted {share_pct:g} % of the time, and scaled")
    by_event, notes = summed_once(counts)
    counted.notes += notes
    for name in dict.fromkeys(map(_event, by_event)):
        of_modifiers = {event: by_event[event] for event in by_event if _event(event) == name}
        counted.values[name] = _whole(path, name, of_modifiers)
    for name in counted.not_counted.keys() & counted.values.keys():
        counted.notes.append(f"{name} is {counted.not_counted[name]} in a part of the rows")
    return [counted]


def summed_once(
    counts: Iterable[tuple[str, str, float]],
) -> tuple[dict[str, float], list[str]]:
    """Event -> its sum over intervals and parts of the machine; and notes.

    ``counts``: the interval and part as text, the event, its count. perf prints an event that was
    requested twice in two lines, of which the first counts.
    """
    first: dict[tuple[str, str], float] = {}
    again: dict[str, str] = {}
    for where, event, count in counts:
        key = " ".join(where.split()), event
        if key in first:
            again[event] = f"{event} was counted more than once at a time; the first count is taken"
        first.setdefault(key, count)
    sums: dict[str, float] = {}
    for (_, event), count in first.items():
        sums[event] = sums.get(event, 0.0) + count
    return sums, list(again.values())


def is_json(lines: Iterable[str]) -> bool:
    """Whether the first line that is no comment begins a JSON object."""
    return next((line for line in lines if line.strip() and line[0] != "#"), "").startswith("{")


class PerfRow(NamedTuple):
    """A line of perf stat, as texts. ``where``: its interval and the part of the machine."""

    line: int
    where: str
    value: str
    unit: str
    event: str
    share: str


def _perf_rows(path: Path, lines: Sequence[str]) -> Iterator[PerfRow]:
    for number, line in enumerate(lines, 1):
        if line.startswith("#") or not line.strip():
            continue
        mark = next((mark for mark in ";\t|" if mark in line), ",")
        fields = line if mark == ";" else line.replace(";", ":").replace(mark, ";")
        row = PERF_FIELDS.fullmatch(fields)
        if row is None:
            if fields.count(";") < 4:
                continue  # what the program itself printed
            raise FileError(
                f"is no line of perf stat with {mark!r} between the fields",
                "count again with perf stat -x\\; -o FILE, or with LC_ALL=C",
                f"{path}:{number}",
            )
        value = row["value"].strip()
        yield PerfRow(number, row["where"], value, row["unit"], row["event"], row["share"])


def _perf_json(lines: Sequence[str]) -> Iterator[PerfRow]:
    for number, line in enumerate(lines, 1):
        parts = {name: text or bare for name, text, bare in PERF_MEMBER.findall(line)}
        if parts.get("event") and "counter-value" in parts:
            value, unit = parts["counter-value"].strip(), parts.get("unit", "")
            where = " ".join(parts.get(name, "") for name in PERF_PLACES)
            share = parts.get("pcnt-running", "").strip()
            yield PerfRow(number, where, value, unit, parts["event"], share)


def _event(name: str) -> str:
    """An event without its modifiers."""
    return MODIFIERS.sub("", name)


def _whole(path: Path, name: str, values: Mapping[str, float]) -> float:
    """An event's count from its counts by modifier: their sum over user, kernel and hypervisor,
    unless one of them covers all."""
    modes = {event: _modes(event) for event in values}
    every = set().union(*modes.values())
    for event, counted in modes.items():
        if counted == every:
            return values[event]
    if sum(map(len, modes.values())) > len(every):
        events = " and ".join(values)
        raise FileError(
            f"counts {name} as {events}, which overlap", "count it once, as it is wanted", str(path)
        )
    return sum(values.values())


def _modes(event: str) -> set[str]:
    """The processor modes (user, kernel, hypervisor) of an event; all if it names none."""
    modifiers = MODIFIERS.search(event)
    return set("ukh") & set(modifiers.group() if modifiers else "") or set("ukh")


def counted_by_likwid(path: Path, lines: Sequence[str], selection: Selection) -> list[Counted]:
    """A group of counters for each table of events.

    Raises:
        FileError: a number is ambiguous.
    """
    groups: list[Counted] = []
    kind = ""
    reader = csv.reader(lines, quoting=csv.QUOTE_NONE)  # LIKWID quotes nothing
    for row in reader:
        if not row:
            continue
        if row[0] == "TABLE":
            region = row[1].removeprefix("Region ") if row[1].startswith("Region ") else None
            index = next((i for i, part in enumerate(row) if part.startswith("Group ")), 0)
            selected = region == selection.region and index and "STAT" not in row[index]
            kind = row[index] if selected else ""
            if kind.endswith("Raw"):
                groups.append(Counted(name=row[index + 1] if len(row) > index + 1 else ""))
        elif groups and kind.endswith("Raw") and row[0] not in ("Event", "Region Info"):
            if numbers := _finite(path, row[2:], reader.line_num):
                groups[-1].add(row[0], sum(numbers))
        elif groups and kind.endswith("Metric") and row[0] != "Metric":
            name, _, unit = row[0].removesuffix("]").partition(" [")
            if numbers := _finite(path, row[1:], reader.line_num):
                groups[-1].values[name] = _over_threads(numbers, unit) * _factor(unit)
    return groups


def _over_threads(numbers: Sequence[float], unit: str) -> float:
    """A metric of LIKWID over all hardware threads. An uncore clock is listed for one thread of a
    socket, with 0 for the others."""
    if unit == "s":
        return max(numbers)
    if unit == "MHz":
        return sum(numbers) / max(1, len(list(filter(None, numbers))))
    return sum(numbers)


def _finite(path: Path, texts: Sequence[str], line: int) -> list[float]:
    """The numbers of a line of LIKWID, which writes them with decimal points in every locale."""
    try:
        columns, _ = read_numbers({"": texts}, ".", missing=NOT_A_VALUE)
    except UnclearNumbersError:
        return []
    return [value for value in columns[""].values.tolist() if math.isfinite(value)]


def _ncu(path: Path, lines: Sequence[str], selection: Selection) -> list[Counted]:
    entries = [
        (line, row["Metric Name"], row.get("Metric Unit", ""), row["Metric Value"])
        for line, row in _table(lines, "Kernel Name", "Metric Name", "Metric Value")
        if selection.has(row["Kernel Name"])
    ]
    if not entries:
        rows = iter(_table(lines, "Kernel Name", "ID"))
        _, units = next(rows, (0, {}))
        entries = [
            (line, name, units.get(name, ""), text)
            for line, row in rows
            if selection.has(row["Kernel Name"])
            for name, text in row.items()
            if "__" in name
        ]
    return [_summed(path, entries)]


def _summed(path: Path, entries: Sequence[tuple[int, str, str, str]]) -> Counted:
    """The sums of counters. ``entries``: line, name, unit and text of each value; texts that are no
    numbers, such as units, are skipped."""
    entries = [entry for entry in entries if re.match(r"\s*[-+.,]?[0-9]", entry[3])]
    counted = Counted()
    numbers = _numbers(path, [text for *_, text in entries], [line for line, *_ in entries])
    for (_, name, unit, _), value in zip(entries, numbers, strict=True):
        if not math.isnan(value):
            counted.add(name, value * _factor(unit))
    return counted


def _nsys(path: Path, lines: Sequence[str], selection: Selection) -> list[Counted]:
    rows = list(_table(lines, "Total Time (ns)", "Instances", "Name"))
    entries = [
        (line, name, unit, row[column])
        for line, row in rows
        if selection.has(row["Name"])
        for name, unit, column in (
            ("Total Time", "ns", "Total Time (ns)"),
            ("Instances", "", "Instances"),
        )
    ]
    return [_summed(path, entries)]


def _nvprof(path: Path, lines: Sequence[str], selection: Selection) -> list[Counted]:
    entries = [
        (line, row[name], row["Avg"], row["Invocations"])
        for name in ("Event Name", "Metric Name")
        for line, row in _table(lines, "Kernel", "Invocations", name, "Avg")
        if selection.has(row["Kernel"]) and re.match(r"[0-9]", row["Avg"])
    ]
    places = [line for line, *_ in entries]
    numbers = _numbers(
        path, [avg for *_, avg, _ in entries] + [calls for *_, calls in entries], places + places
    )
    counted = Counted()
    for (_, name, _, _), mean, calls in zip(
        entries, numbers[: len(entries)], numbers[len(entries) :], strict=True
    ):
        if math.isfinite(mean * calls):
            counted.add(name, mean * calls)
    return [counted]


def _factor(unit: str) -> float:
    return UNIT_FACTORS.get(unit.strip(), 1.0)


LAYOUTS: dict[str, Callable[[Path, Sequence[str], Selection], list[Counted]]] = {
    "perf-stat": counted_by_perf,
    "likwid": counted_by_likwid,
    "ncu": _ncu,
    "nsys": _nsys,
    "nvprof": _nvprof,
}
"""Layout -> its reader, which returns the groups of counters that were counted together."""
