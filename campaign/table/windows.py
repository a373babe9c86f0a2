"""Measurements from a table of windows, which has the start and end of each run, and power logs.

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
"""The columns that the measurement replaces."""
READ = (*TAKEN, ITERATIONS, NODE)
MARGIN_PERIODS = 20
"""The periods of a log before and after a window that :func:`channel_energy` needs."""
LONGEST_GAP = 5.0
"""A longer step between readings, in short steps of the log (and over a second), is a gap."""
LEAST_GAP_S = 1.0
SHORT_PCT = 10
"""The percentile of a log's steps that is a short step."""
FEWEST_READINGS = 2
"""The fewest readings of power in a window: fewer do not show the power between them."""
MEASURED = ("time_s", "energy_j", "energy_std_j", "start_unix_s")


@dataclass(frozen=True)
class PowerLogs:
    """Channels of logs, and the time zone of local times in the table."""

    channels: Sequence[LoggedChannel]
    zone: tzinfo | None = None


@dataclass(frozen=True)
class Windows:
    """The measurements of a table's windows. ``columns``: measured column -> float64 (rows,), NaN
    if a row has none. ``traces``: the traces of each row. ``notes``: a sentence each."""

    columns: dict[str, np.ndarray]
    traces: list[list[Trace]]
    notes: list[str]


def measured_windows(
    path: Path, columns: Mapping[str, Sequence[Any]], lines: Sequence[int], logs: PowerLogs
) -> Windows:
    """The measurements of a table's rows. ``columns``: the table's columns; those in :data:`READ`
    are texts.

    Raises:
        FileError: the table has no columns ``start`` and ``end``, or has a measured column; or
            rows are wrong, or windows are not in the logs: all of them.
    """
    for name in (START, END):
        if name not in columns:
            cause = f"no column {name!r}: a table of windows has {START} and {END}"
            raise FileError(cause, f"it has {', '.join(columns)}", f"{path}:1")
    if measured_name := next((name for name in (*MEASURED, "power_w") if name in columns), None):
        cause = f"has a column {measured_name!r}, but the power log gives its values"
        raise FileError(cause, "remove the column, or leave --power-log out", f"{path}:1")
    nodes = {str(node) for node in columns.get(NODE, ()) if node}
    if len(nodes) > 1 and not all(logged.node for logged in logs.channels):
        cause = "rows of several nodes, and a power log that does not name its node"
        raise FileError(cause, "name the node of each log: --power-log NODE=LOG", str(path))
    rows: list[dict[str, float]] = []
    traces: list[list[Trace]] = []
    spans: list[tuple[int, int, set[str]]] = []
    wrong: list[FileError] = []
    texts = {name: columns[name] for name in READ if name in columns}
    for i, line in enumerate(lines):
        row = {name: str(column[i]) for name, column in texts.items() if column[i] is not None}
        try:
            start_ns, end_ns = _span_ns(row, logs.zone)
            channels = _channels(row, logs.channels)
            measured, row_traces = _measured(row, start_ns, end_ns, channels)
        except ValueError as error:
            cause, _, remedy = str(error).partition("; ")
            wrong.append(FileError(cause, remedy, f"{path}:{line}"))
            continue
        spans.append((start_ns, end_ns, {trace.channel for trace in row_traces}))
        rows.append(measured)
        traces.append(row_traces)
    raise_all(wrong)
    names = dict.fromkeys(name for row in rows for name in row)
    measured_columns = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
    notes = [_summary(path, logs)]
    if pair := _overlap(spans):
        first, second = (lines[i] for i in pair)
        notes.append(
            f"{path}:{second}: the window overlaps with that of line {first} (and so may others): "
            "the energy of the overlap is in both rows"
        )
    return Windows(measured_columns, traces, notes)


def _summary(path: Path, logs: PowerLogs) -> str:
    counted = [logged for logged in logs.channels if logged.channel.inside is None]
    names = dict.fromkeys(f"{logged.node} {logged.channel.name}".strip() for logged in counted)
    first, last = (_utc(time_ns) for time_ns in _range(logs.channels))
    return f"{path}: energies from {', '.join(names)}, logged from {first} to {last}"


def _range(channels: Sequence[LoggedChannel]) -> tuple[int, int]:
    return max(int(c.time_ns[0]) for c in channels), min(int(c.time_ns[-1]) for c in channels)


def _utc(time_ns: int) -> str:
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
    for i, (start_ns, end_ns, names) in sorted(enumerate(spans), key=lambda entry: entry[1][0]):
        for name in names:
            until_ns, previous = latest.get(name, (start_ns, i))
            if until_ns > start_ns:
                return min(i, previous), max(i, previous)
            latest[name] = end_ns, i
    return None


def _measured(
    row: Mapping[str, str], start_ns: int, end_ns: int, channels: Sequence[LoggedChannel]
) -> tuple[dict[str, float], list[Trace]]:
    """A row's measurement. Raises ValueError: cause, "; " and remedy."""
    iterations = _iterations(row.get(ITERATIONS, ""))
    names = {logged.channel.name for logged in channels}
    energies, traces = [], []
    for logged in channels:
        _check_covered(logged, start_ns, end_ns)
        trace = _trace(logged, start_ns, end_ns)
        traces.append(trace)
        if logged.channel.inside not in names:
            energies.append(channel_energy(trace, logged.channel, 0, end_ns - start_ns))
    measured = {
        "time_s": (end_ns - start_ns) / NS / iterations,
        "energy_j": sum(energy.energy_j for energy in energies) / iterations,
        # A plain sum: a load that starts on all devices causes correlated errors in all of them.
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
    """The channels of the row's node and device. Raises ValueError: cause, "; " and remedy."""
    node, device = row.get(NODE, ""), row.get(DEVICE, "")
    nodes = {logged.node for logged in channels} - {""}
    if node and nodes and node not in nodes:
        raise ValueError(
            f"node: found {node!r}; the logs have the nodes {', '.join(sorted(nodes))}"
        )
    of_node = [logged for logged in channels if not node or logged.node in ("", node)]
    if not device:
        return of_node
    devices = {logged.device for logged in of_node}
    if device not in devices:
        raise ValueError(f"device: found {device!r}; the logs have {', '.join(sorted(devices))}")
    return [logged for logged in of_node if logged.device == device]


def _check_covered(logged: LoggedChannel, start_ns: int, end_ns: int) -> None:
    """Raise ValueError (cause, "; " and remedy) unless the log covers the window."""
    name, time_ns = logged.channel.name, logged.time_ns
    if start_ns < time_ns[0] or end_ns > time_ns[-1]:
        raise ValueError(
            f"the log of {name} does not cover the window from {_utc(start_ns)} to "
            f"{_utc(end_ns)}: "
            f"it is from {_utc(int(time_ns[0]))} to {_utc(int(time_ns[-1]))}; check --time-zone, "
            "or remove the row"
        )
    first, last = np.searchsorted(time_ns, [start_ns, end_ns])
    inside = slice(max(int(first) - 1, 0), int(last) + 1)
    if not np.isfinite(logged.value[inside]).all():
        raise ValueError(f"{name} has no value in the window; remove the row")
    if logged.channel.kind == "energy" and (np.diff(logged.value[inside]) < 0).any():
        raise ValueError(
            f"{name} began again at 0 in the window; remove the row, or log the counter's range"
        )
    if logged.channel.kind == "power" and last - first < FEWEST_READINGS:
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


def _trace(logged: LoggedChannel, start_ns: int, end_ns: int) -> Trace:
    """The readings around the window, with times from its start."""
    step_ns = float(np.median(np.diff(logged.time_ns)))
    margin_ns = MARGIN_PERIODS * max(step_ns, logged.channel.period_s * NS)
    first, last = np.searchsorted(logged.time_ns, [start_ns - margin_ns, end_ns + margin_ns])
    time_ns, value = logged.time_ns[first:last], logged.value[first:last]
    is_kept = np.isfinite(value)
    if logged.channel.kind == "energy":  # without readings before or after a restart of the counter
        restarts = np.cumsum(np.diff(value, prepend=value[0]) < 0)
        is_kept &= restarts == restarts[np.searchsorted(time_ns, start_ns)]
    channel = logged.channel
    return Trace(
        f"{logged.node}/{channel.name}" if logged.node else channel.name,
        channel.domain,
        "W" if channel.kind == "power" else "J",
        time_ns[is_kept] - start_ns,
        value[is_kept] - (value[is_kept][0] if channel.kind == "energy" else 0.0),
    )


def _achieved(channels: Sequence[LoggedChannel], start_ns: int, end_ns: int) -> dict[str, float]:
    """The mean of each clock over the window and the devices."""
    clocks: dict[str, list[float]] = {}
    for logged in channels:
        inside = (logged.time_ns >= start_ns) & (logged.time_ns <= end_ns)
        for name, mhz in logged.clocks_mhz.items():
            if np.isfinite(mhz[inside]).any():
                clocks.setdefault(f"{name}_achieved", []).append(float(np.nanmean(mhz[inside])))
    return {name: float(np.mean(means)) for name, means in clocks.items()}
