"""A table of windows and power logs as measurements: what ran from when to when, and its energy.

A row has ``start`` and ``end`` instead of ``time_s`` and ``energy_j``. With N ``iterations``
(default 1), the time is (end - start) / N, and the energy is the sum over all channels that are not
part of another channel, divided by N, with its standard uncertainty
(:mod:`campaign.store.channel_energy`).
``node`` and ``device`` select channels; a device is the part of a channel's name before the slash.
If the log has clocks, the achieved clock is their mean over the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import numpy as np

from campaign.store.channel_energy import channel_energy
from campaign.store.measurement import Trace
from campaign.table.power_logs import NS, LoggedChannel, unix_ns
from dvfs.input_files import FileError, raise_all

START, END, ITERATIONS, DEVICE, NODE = "start", "end", "iterations", "device", "node"
TAKEN = (START, END, DEVICE)
"""The columns in whose place the measurement comes."""
READ = (*TAKEN, ITERATIONS, NODE)
MARGIN_PERIODS = 20
"""Of a log, what is taken before and after a window: what :func:`channel_energy` looks at."""
LONGEST_GAP = 5.0
"""Readings further apart, in short steps of the log (and more than a second), are a gap."""
LEAST_GAP_S = 1.0
SHORT_PCT = 10
"""Which percentile of a log's steps is a short one."""
FEWEST_READINGS = 2
"""Of a power, within a window: fewer say nothing of what lies between them."""
MEASURED = ("time_s", "energy_j", "energy_std_j", "start_unix_s")


@dataclass(frozen=True)
class PowerLogs:
    """Channels of logs, and the zone of local times in the table."""

    channels: Sequence[LoggedChannel]
    zone: tzinfo | None = None


@dataclass(frozen=True)
class Windows:
    """What logs say of a table's windows. ``columns``: measured column -> float64 (rows,), NaN
    where a row has none. ``traces``: each row's. ``notes``: what was noticed, a sentence each."""

    columns: dict[str, np.ndarray]
    traces: list[list[Trace]]
    notes: list[str]


def measured_windows(
    path: Path, columns: Mapping[str, Sequence[Any]], lines: Sequence[int], logs: PowerLogs
) -> Windows:
    """The measurements of a table's rows. ``columns``: the table's, of which :data:`READ` are
    texts.

    Raises:
        FileError: it has no columns ``start`` and ``end``, or times of its own; or rows are wrong,
            or windows are not in the logs: all of them.
    """
    for name in (START, END):
        if name not in columns:
            what = f"no column {name!r}: a table of windows has {START} and {END}"
            raise FileError(what, f"it has {', '.join(columns)}", f"{path}:1")
    if given := next((name for name in (*MEASURED, "power_w") if name in columns), None):
        what = f"has a column {given!r}, but the power log gives its values"
        raise FileError(what, "remove the column, or leave --power-log out", f"{path}:1")
    nodes = {str(node) for node in columns.get(NODE, ()) if node}
    if len(nodes) > 1 and not all(each.node for each in logs.channels):
        what = "rows of several nodes, and a power log that does not name its node"
        raise FileError(what, "name the node of each log: --power-log NODE=LOG", str(path))
    rows: list[dict[str, float]] = []
    traces: list[list[Trace]] = []
    spans: list[tuple[int, int, set[str]]] = []
    wrong: list[FileError] = []
    read = {name: columns[name] for name in READ if name in columns}
    for i, line in enumerate(lines):
        row = {name: str(column[i]) for name, column in read.items() if column[i] is not None}
        try:
            start_ns, end_ns = _span_ns(row, logs.zone)
            channels = _channels(row, logs.channels)
            measured, of_row = _measured(row, start_ns, end_ns, channels)
        except ValueError as error:
            what, _, remedy = str(error).partition("; ")
            wrong.append(FileError(what, remedy, f"{path}:{line}"))
            continue
        spans.append((start_ns, end_ns, {trace.channel for trace in of_row}))
        rows.append(measured)
        traces.append(of_row)
    raise_all(wrong)
    names = dict.fromkeys(name for row in rows for name in row)
    made = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
    notes = [_summary(path, logs)]
    if pair := _overlap(spans):
        one, other = (lines[i] for i in pair)
        notes.append(
            f"{path}:{other}: the window overlaps with that of line {one} (and so may others): the "
            "energy of the overlap is in both rows"
        )
    return Windows(made, traces, notes)


def _summary(path: Path, logs: PowerLogs) -> str:
    counted = [each for each in logs.channels if each.channel.inside is None]
    names = dict.fromkeys(f"{each.node} {each.channel.name}".strip() for each in counted)
    first, last = (_said(time_ns) for time_ns in _range(logs.channels))
    return f"{path}: energies from {', '.join(names)}, logged from {first} to {last}"


def _range(channels: Sequence[LoggedChannel]) -> tuple[int, int]:
    return max(int(c.time_ns[0]) for c in channels), min(int(c.time_ns[-1]) for c in channels)


def _said(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns / NS, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _span_ns(row: Mapping[str, str], zone: tzinfo | None) -> tuple[int, int]:
    """Start and end of a row's window. Raises ValueError: cause, "; " and remedy."""
    times = []
    for name in (START, END):
        try:
            times.append(unix_ns(row.get(name, ""), zone))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    start_ns, end_ns = times
    if end_ns <= start_ns:
        raise ValueError("end is not later than start; correct it")
    return start_ns, end_ns


def _overlap(spans: Sequence[tuple[int, int, set[str]]]) -> tuple[int, int] | None:
    """The first two windows (start, end, names of channels) that overlap on a channel."""
    latest: dict[str, tuple[int, int]] = {}
    for i, (start_ns, end_ns, names) in sorted(enumerate(spans), key=lambda each: each[1][0]):
        for name in names:
            until_ns, other = latest.get(name, (start_ns, i))
            if until_ns > start_ns:
                return min(i, other), max(i, other)
            latest[name] = end_ns, i
    return None


def _measured(
    row: Mapping[str, str], start_ns: int, end_ns: int, channels: Sequence[LoggedChannel]
) -> tuple[dict[str, float], list[Trace]]:
    """A row's measurement. Raises ValueError: cause, "; " and remedy."""
    iterations = _iterations(row.get(ITERATIONS, ""))
    names = {each.channel.name for each in channels}
    energies, traces = [], []
    for each in channels:
        _check_covered(each, start_ns, end_ns)
        trace = _trace(each, start_ns, end_ns)
        traces.append(trace)
        if each.channel.inside not in names:
            energies.append(channel_energy(trace, each.channel, 0, end_ns - start_ns))
    measured = {
        "time_s": (end_ns - start_ns) / NS / iterations,
        "energy_j": sum(energy.energy_j for energy in energies) / iterations,
        # Added up, not squared: a load that starts on all devices falls on one edge in all of them.
        "energy_std_j": sum(energy.std_j for energy in energies) / iterations,
        "start_unix_s": start_ns / NS,
    }
    return measured | _achieved(channels, start_ns, end_ns), traces


def _iterations(text: str) -> int:
    if not text:
        return 1
    if not text.isdigit() or not 1 <= int(text) < 2**53:
        raise ValueError(f"iterations: found {text!r}; give a whole number from 1")
    return int(text)


def _channels(row: Mapping[str, str], channels: Sequence[LoggedChannel]) -> list[LoggedChannel]:
    """Those of the row's node and device."""
    node, device = row.get(NODE, ""), row.get(DEVICE, "")
    nodes = {each.node for each in channels} - {""}
    if node and nodes and node not in nodes:
        raise ValueError(
            f"node: found {node!r}; the logs have the nodes {', '.join(sorted(nodes))}"
        )
    found = [each for each in channels if not node or each.node in ("", node)]
    if not device:
        return found
    devices = {each.device for each in found}
    if device not in devices:
        raise ValueError(f"device: found {device!r}; the logs have {', '.join(sorted(devices))}")
    return [each for each in found if each.device == device]


def _check_covered(each: LoggedChannel, start_ns: int, end_ns: int) -> None:
    """Whether the log has readings all over the window."""
    name, time_ns = each.channel.name, each.time_ns
    if start_ns < time_ns[0] or end_ns > time_ns[-1]:
        raise ValueError(
            f"the log of {name} does not cover the window from {_said(start_ns)} to "
            f"{_said(end_ns)}: "
            f"it is from {_said(int(time_ns[0]))} to {_said(int(time_ns[-1]))}; check --time-zone, "
            "or remove the row"
        )
    first, last = np.searchsorted(time_ns, [start_ns, end_ns])
    inside = slice(max(int(first) - 1, 0), int(last) + 1)
    if not np.isfinite(each.value[inside]).all():
        raise ValueError(f"{name} has no value in the window; remove the row")
    if each.channel.kind == "energy" and (np.diff(each.value[inside]) < 0).any():
        raise ValueError(
            f"{name} began again at 0 in the window; remove the row, or log the counter's range"
        )
    if each.channel.kind == "power" and last - first < FEWEST_READINGS:
        raise ValueError(
            f"{name} has {last - first} readings within the window, and {FEWEST_READINGS} are "
            "needed; log more often, or remove the row"
        )
    steps_s = np.diff(time_ns[inside]) / NS
    longest_s = max(LONGEST_GAP * np.percentile(np.diff(time_ns), SHORT_PCT) / NS, LEAST_GAP_S)
    if steps_s.max(initial=0.0) > longest_s:
        raise ValueError(
            f"{name} has no reading for {steps_s.max():.3g} s within the window; remove the row"
        )


def _trace(each: LoggedChannel, start_ns: int, end_ns: int) -> Trace:
    """The readings around the window, from its start."""
    step_ns = float(np.median(np.diff(each.time_ns)))
    margin_ns = MARGIN_PERIODS * max(step_ns, each.channel.period_s * NS)
    first, last = np.searchsorted(each.time_ns, [start_ns - margin_ns, end_ns + margin_ns])
    time_ns, value = each.time_ns[first:last], each.value[first:last]
    kept = np.isfinite(value)
    if each.channel.kind == "energy":  # without what was counted before or after it began again
        begun = np.cumsum(np.diff(value, prepend=value[0]) < 0)
        kept &= begun == begun[np.searchsorted(time_ns, start_ns)]
    channel = each.channel
    return Trace(
        f"{each.node}/{channel.name}" if each.node else channel.name,
        channel.domain,
        "W" if channel.kind == "power" else "J",
        time_ns[kept] - start_ns,
        value[kept] - (value[kept][0] if channel.kind == "energy" else 0.0),
    )


def _achieved(channels: Sequence[LoggedChannel], start_ns: int, end_ns: int) -> dict[str, float]:
    """The mean of each clock over the window and the devices."""
    found: dict[str, list[float]] = {}
    for each in channels:
        inside = (each.time_ns >= start_ns) & (each.time_ns <= end_ns)
        for name, mhz in each.clocks_mhz.items():
            if np.isfinite(mhz[inside]).any():
                found.setdefault(f"{name}_achieved", []).append(float(np.nanmean(mhz[inside])))
    return {name: float(np.mean(means)) for name, means in found.items()}
