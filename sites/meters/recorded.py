"""A recorded trace that is replayed in real time: for tests and rehearsals, not for measurements.

The file is a CSV with a header: ``time_s``, seconds that increase from row to row, and one column
per channel. The replay starts with the first row when the meter is opened, and follows ``time_s``.
Channels are called ``recorded/COLUMN``, so that no result can be mistaken for one of this machine.
The whole file is read and checked when the meter is opened.

The recording ends one period after its last row. After that, reading is an error, and so is
draining once all rows have been drained.
"""

from __future__ import annotations

import csv
import io
import math
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from dvfs.files import read_input
from sites.meters.shared.meter import CONTAINS, Channel, MeterDescription, MeterError, Reading

ABOUT = MeterDescription(
    kind="recorded",
    reads="a CSV file, replayed; for tests",
    domains="as channels says",
    needs="nothing",
    options={
        "path": "its absolute path; it has a column time_s and one for each channel",
        "channels": "column = { domain, kind, unit, inside, same_as }: kind energy or power; "
        "inside: the column that contains it; same_as: one that measures the same",
    },
    probed=False,
)

CHANNEL_OPTIONS = ("domain", "kind", "unit", "inside", "same_as")
UNITS: dict[str, dict[str, float]] = {
    "energy": {"J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6},
    "power": {"W": 1.0, "mW": 1e-3, "uW": 1e-6, "kW": 1e3},
}
"""Kind of a channel -> unit -> its value in J or W."""
NS_PER_S = 10**9
MAX_LENGTH_S = 1e9
"""The longest recording, 30 years: the nanoseconds of a longer one do not fit into 64 bits."""


@dataclass(frozen=True)
class RecordedColumn:
    """A column of the recording, as the options describe it."""

    name: str
    domain: str
    kind: Literal["energy", "power"]
    to_si: float
    inside: str | None
    same_as: str | None


def open_meter(root: Path, options: Mapping[str, Any]) -> RecordedMeter:
    """Read the recording and start the replay of the columns that ``channels`` names."""
    path, columns = parse_options(options, root)
    times_s, values = read_recording(path, [column.name for column in columns])
    rows = [
        tuple(value * column.to_si for value, column in zip(row, columns, strict=True))
        for row in values
    ]
    for index, column in enumerate(columns):
        if column.kind == "energy":
            _check_rising(path, column.name, [row[index] for row in rows])
    if not all(math.isfinite(value) for row in rows for value in row):
        raise MeterError(f"{path}: a value in J or W is not finite", "check its unit")
    gaps_s = sorted(after - before for before, after in pairwise(times_s))
    period_s = gaps_s[len(gaps_s) // 2]
    channels = tuple(
        Channel(
            name=f"recorded/{column.name}",
            domain=column.domain,
            kind=column.kind,
            resolution=_step([row[index] for row in rows], column.to_si),
            period_s=period_s,
            stamped=True,
            inside=None if column.inside is None else f"recorded/{column.inside}",
            same_as=None if column.same_as is None else f"recorded/{column.same_as}",
        )
        for index, column in enumerate(columns)
    )
    return RecordedMeter(path, channels, times_s, rows, period_s)


class RecordedMeter:
    """A recording, replayed from the time at which it was opened."""

    name = "recorded"

    def __init__(
        self,
        path: Path,
        channels: tuple[Channel, ...],
        times_s: Sequence[float],
        rows: Sequence[tuple[float, ...]],
        period_s: float,
    ) -> None:
        self.channels = channels
        self._path = path
        start_ns = time.monotonic_ns()
        self._readings = [
            Reading(start_ns + round((time_s - times_s[0]) * NS_PER_S), row)
            for time_s, row in zip(times_s, rows, strict=True)
        ]
        self._times_ns = [reading.time_ns for reading in self._readings]
        self._end_ns = self._times_ns[-1] + round(period_s * NS_PER_S)
        self._drained = 0
        self._is_open = True

    def read(self) -> Reading:
        """The last row whose time has passed.

        Raises:
            MeterError: the recording has ended, or the meter is closed.
        """
        row_count = self._count_passed()
        if time.monotonic_ns() > self._end_ns:
            raise self._ended()
        return self._readings[row_count - 1]

    def drain(self) -> list[Reading]:
        """The rows whose time passed since the last call; raises as ``read`` after the last row."""
        row_count = self._count_passed()
        if row_count == self._drained and time.monotonic_ns() > self._end_ns:
            raise self._ended()
        readings = self._readings[self._drained : row_count]
        self._drained = row_count
        return readings

    def close(self) -> None:
        """Stop the replay; closing again does nothing."""
        self._is_open = False

    def _count_passed(self) -> int:
        """The number of rows whose time has passed."""
        if not self._is_open:
            raise MeterError("internal error: the recorded meter is closed", "please report it")
        return bisect_right(self._times_ns, time.monotonic_ns())

    def _ended(self) -> MeterError:
        length_s = (self._end_ns - self._times_ns[0]) / NS_PER_S
        return MeterError(
            f"the recording {self._path} ended after {length_s:.6g} s",
            "open the meter again to start over, or use a longer recording",
        )


def read_recording(path: Path, names: Sequence[str]) -> tuple[list[float], list[list[float]]]:
    """The increasing times in s, and the values of these columns at each time.

    Raises:
        MeterError: as :func:`open_meter`.
    """
    remedy = f"it must be a CSV with a header: time_s,{','.join(names)}"
    try:
        text = read_input(path).decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeterError(f"{path} cannot be read: {error}", remedy) from error
    header = [word.strip() for word in lines[0]] if lines else []
    column_names = ["time_s", *names]
    for name in column_names:
        if header.count(name) != 1:
            count = "no column" if name not in header else "several columns"
            raise MeterError(f"{path} has {count} {name}", remedy)
    indices = [header.index(name) for name in column_names]
    times_s: list[float] = []
    values: list[list[float]] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        row = []
        for name, index in zip(column_names, indices, strict=True):
            text = line[index] if index < len(line) else ""
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise MeterError(f"{path}, line {number}: {name} is {text[:40]!r}", remedy)
            row.append(value)
        if times_s and row[0] <= times_s[-1]:
            raise MeterError(
                f"{path}, line {number}: time_s does not increase", "sort the rows by time"
            )
        times_s.append(row[0])
        values.append(row[1:])
        if row[0] - times_s[0] > MAX_LENGTH_S:
            raise MeterError(f"{path}, line {number}: time_s is {row[0]:g}", "give seconds")
    if len(times_s) < 2:
        raise MeterError(f"{path} has fewer than two rows", remedy)
    return times_s, values


def _check_rising(path: Path, name: str, values: Sequence[float]) -> None:
    for before, after in pairwise(values):
        if after < before:
            raise MeterError(
                f"{path}: the energy {name} goes back from {before:.9g} J to {after:.9g} J",
                'unwrap the counter before recording it, or set kind = "power"',
            )


def _step(values: Sequence[float], to_si: float) -> float:
    """The least difference of two successive values: the resolution of the recorded meter."""
    steps = [abs(after - before) for before, after in pairwise(values) if after != before]
    return min(steps, default=to_si)


def parse_options(
    options: Mapping[str, Any], root: Path = Path("/")
) -> tuple[Path, list[RecordedColumn]]:
    path = options.get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(
            f"path is a CSV file's absolute path, such as /data/trace.csv, not {path!r}"
        )
    channels = options.get("channels")
    if not isinstance(channels, Mapping) or not channels:
        raise ValueError(
            'channels is a table of columns, such as cpu = {domain = "package", kind = "power", '
            f'unit = "W"}}, not {channels!r}'
        )
    columns = [_parse_column(str(name), entry) for name, entry in channels.items()]
    for column in columns:
        for reference in (column.inside, column.same_as):
            if reference is not None and (reference not in channels or reference == column.name):
                raise ValueError(
                    f"channel {column.name} refers to {reference!r}, which is not another channel: "
                    f"{', '.join(channels)}"
                )
    # An absolute path, too, is below `root`.
    return root / path.lstrip("/"), columns


def _parse_column(name: str, entry: Any) -> RecordedColumn:
    needed = {"domain", "kind", "unit"}
    if not isinstance(entry, Mapping) or not needed <= set(entry) <= set(CHANNEL_OPTIONS):
        raise ValueError(
            f"channel {name} is a table of {', '.join(CHANNEL_OPTIONS)}, not {entry!r}"
        )
    kind = entry["kind"]
    if kind not in ("energy", "power"):
        raise ValueError(f"the kind of channel {name} is energy or power, not {kind!r}")
    if entry["domain"] not in CONTAINS:
        raise ValueError(f"the domain of channel {name} is one of {', '.join(CONTAINS)}")
    if entry["unit"] not in UNITS[kind]:
        raise ValueError(f"the unit of channel {name} is one of {', '.join(UNITS[kind])}")
    return RecordedColumn(
        name=name,
        domain=entry["domain"],
        kind=kind,
        to_si=UNITS[kind][entry["unit"]],
        inside=entry.get("inside"),
        same_as=entry.get("same_as"),
    )
