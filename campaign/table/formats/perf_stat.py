"""The output of perf stat as rows: a run is a measurement.

Its forms: text, ``-x`` (any delimiter) and ``-j``, in any locale. Several runs in a file
(``--append``) begin with a line ``# started on``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from campaign.table.delimited import read_table_text
from campaign.table.formats import Columns, FormatDescription, columns_of
from campaign.table.map_file import TableMap
from campaign.table.profiler_tables import Selection, counted_by_perf, summed_once
from dvfs.input_files import FileError

PACKAGE, MEMORY, PLATFORM = (f"power/energy-{part}/" for part in ("pkg", "ram", "psys"))
DURATION = "duration_time"
FACTORS = {"msec": 1e-3, "ns": 1e-9}
STARTED = "# started on"
IS_TEXT = re.compile(r"\s*Performance counter stats for |#\s+time\s+counts\s+unit\s+events")
TEXT_FIELDS = re.compile(
    r"(?P<where>\s*(?:[0-9]+[.,][0-9]{9}\s+)?(?:[SDNC][^\s/]*[0-9]\s+(?:[0-9]+\s+)?)?)"
    r"(?P<value>[0-9][0-9.,\s\u00a0\u202f'\u2019]*|<not counted>|<not supported>)"
    r"\s(?:(?P<unit>Joules|ns|msec)\s+)?(?P<event>[A-Za-z][^\s]*)(?:\s.*)?"
)
"""A line of text: the time of an interval and the part of the machine, if any; value, unit, event.
"""
ELAPSED = re.compile(r"\s*(?P<value>[0-9]+[.,][0-9]+)\s.*seconds time elapsed.*")
NAMED = re.compile(r"\s*Performance counter stats for '(?P<name>.*)'(?: \([0-9]+ runs\))?:")
INTERVAL = re.compile(r'\s*[0-9]+\.[0-9]{9}[^0-9]|\{"interval"')
MARKER = re.compile(
    rb"Performance counter stats for '|#\s+time\s+counts\s+unit\s+events|"
    rb"[,;|\t]Joules[,;|\t]power/energy-|"
    rb'"counter-value" : "[^"]*", "unit" : "[^"]*", "event"'
)
ABOUT = FormatDescription(
    name="perf-stat",
    tool="perf stat",
    versions="6.1",
    reads="`perf stat -a -e power/energy-pkg/,power/energy-ram/,duration_time`: text, `-x`, `-j`, "
    "`--append`",
    needs=("kernel", "time_s without duration_time"),
    traps="with decimal commas use `-x\\;` or LC_ALL=C. "
    "`-I` is summed. Package and DRAM are taken, else psys, which has both",
    rows="runs",
    repeats=True,
)


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file has perf's heading, or a line of its energy events."""
    return MARKER.search(head) is not None


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The runs as columns; and notes. All events are labels.

    Raises:
        FileError: the file has no event, an energy was not counted, or the time is not known.
    """
    text, notes = read_table_text(path)
    rows = []
    for line, run in _runs(text.splitlines()):
        values, not_counted, noted = _events(path, run)
        notes += noted
        if not values and not not_counted:
            continue
        place = f"{path}:{line}"
        row = _row(values, not_counted, place, mapping)
        if row.get("energy_j") == 0:
            row["energy_j"] = None
            notes.append(f"{place}: an energy of 0 J: the counter gave no reading")
        if MEMORY in values and not {"energy_j"} & (row.keys() | mapping.given):
            notes.append(f"{place}: has the energy of DRAM alone, which is none of a run")
        if any(INTERVAL.match(part) and not ELAPSED.match(part) for part in run):
            notes.append(f"{place}: the intervals of -I are summed to one measurement")
        if name := next((m["name"] for m in map(NAMED.match, run) if m), ""):
            row["kernel"] = name[:200]
        rows.append((line, row))
    if not rows:
        raise FileError(
            "has no event of perf stat", "write it by perf stat -a -j -o FILE", str(path)
        )
    return columns_of(rows), notes


def _runs(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The first line's number, and the lines, of each run; lines before it are empty."""
    starts = [i for i, line in enumerate(lines) if line.startswith(STARTED)] or [0]
    starts[0] = 0
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield start + 1, [""] * start + list(lines[start:end])


def _events(path: Path, run: Sequence[str]) -> tuple[dict[str, float], set[str], list[str]]:
    """Event -> value, of energies in J, of times in s; the events without a value; and notes."""
    if not any(IS_TEXT.match(line) for line in run):
        (counted,) = counted_by_perf(path, run, Selection())
        return counted.values, {*counted.not_counted}, [f"{path}: {n}" for n in counted.notes]
    counts: list[tuple[str, str, float]] = []
    without = set()
    elapsed_s = None
    for line in run:
        if elapsed := ELAPSED.fullmatch(line):
            elapsed_s = float(elapsed["value"].replace(",", "."))
        elif (match := TEXT_FIELDS.fullmatch(line)) is None:
            continue
        elif match["value"].startswith("<"):
            without.add(match["event"])
        else:
            value = _number(match["value"]) * FACTORS.get(match["unit"], 1.0)
            counts.append((match["where"], match["event"], value))
    values, notes = summed_once(counts)
    if elapsed_s is not None:
        values.setdefault(DURATION, elapsed_s)
    return values, without, [f"{path}: {note}" for note in notes]


def _number(text: str) -> float:
    """A number of perf's text. It is whole or has two decimals after the last mark; all other marks
    group digits."""
    whole, fraction = re.fullmatch(r"(.*?)(?:[.,]([0-9]{2}))?\s*", text).groups()  # type: ignore[union-attr]
    return float(re.sub("[^0-9]", "", whole) + (f".{fraction}" if fraction else ""))


def _row(
    values: dict[str, float], not_counted: set[str], place: str, mapping: TableMap
) -> dict[str, Any]:
    row: dict[str, Any] = dict(values)
    if DURATION in values:
        row["time_s"] = round(row.pop(DURATION), 9)
    elif "time_s" not in mapping.given:
        raise FileError(
            "has no time: perf stat writes none with -x and -j",
            "count the event duration_time too, or give --set time_s=SECONDS",
            place,
        )
    for parts in ((PACKAGE, MEMORY), (PLATFORM,)):
        if missing := [part for part in parts if part in not_counted]:
            raise FileError(
                f"{missing[0]}: not counted",
                "run perf stat -a as root, with events that perf list names",
                place,
            )
        if parts[0] in values:
            row["energy_j"] = sum(values[part] for part in parts if part in values)
            break
    return row
