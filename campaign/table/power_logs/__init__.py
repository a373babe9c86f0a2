"""Power logs of other tools: one file each, registered here by name, and those of installed
packages (:mod:`dvfs.registry`).

Each module has ``ABOUT``, a :class:`LogDescription`; ``recognises(head) -> bool``, where ``head``
is the beginning of the file; and ``read(path, zone) -> list[LoggedChannel]``. ``read`` raises
:class:`~dvfs.input_files.FileError` if it cannot read the file, or if times in it are local and
``zone`` is None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from campaign.table.delimited import head_of
from dvfs.errors import ArgumentError
from dvfs.input_files import FileError
from dvfs.registry import Registry
from sites.meters import Channel
from sites.meters.shared.meter import contains

OURS = {
    "dcgmi-dmon": "campaign.table.power_logs.dcgmi_dmon",
    "nvidia-smi": "campaign.table.power_logs.nvidia_smi",
    "powercap": "campaign.table.power_logs.powercap_loop",
    "slurm-profile": "campaign.table.power_logs.slurm_profile",
    "tegrastats": "campaign.table.power_logs.tegrastats",
}
POWER_LOGS = Registry("power_logs", OURS)
NS = 1_000_000_000
UNITS_NS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (1e8, NS))
"""The least Unix time, as a number, that is taken to be in ns, us, ms or s; and that unit in ns.
1e8 s is in 1973, and 1e11 ms as well."""
ZONE_REMEDY = "give --time-zone, such as Europe/Berlin or +01:00"
_UNIX = re.compile(r"[0-9]+(\.[0-9]*)?")
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>[01][0-9]):(?P<minutes>[0-5][0-9])")


@dataclass(frozen=True, kw_only=True)
class LogDescription:
    """A kind of log, for messages and the docs. ``versions``: the versions of the tool whose files
    were read, or :data:`campaign.table.formats.UNTRIED`. ``made_by``: the command that writes such
    a log. ``traps``: what is easily misread."""

    name: str
    tool: str
    versions: str
    made_by: str
    traps: str


@dataclass(frozen=True)
class LoggedChannel:
    """The readings of one channel.

    ``time_ns``: int64 (n,), Unix time, increasing. ``value``: float64 (n,), power in W, or energy
    in J since some past instant. ``clocks_mhz``: ``core_mhz`` and ``mem_mhz``, float64 (n,), at the
    same times, if the log has them. ``node``: the name of the node; empty if it is not known.
    """

    channel: Channel
    time_ns: np.ndarray
    value: np.ndarray
    clocks_mhz: Mapping[str, np.ndarray] = field(default_factory=dict)
    node: str = ""

    @property
    def device(self) -> str:
        """The part of the channel's name before the slash."""
        return self.channel.name.partition("/")[0]


def read_power_logs(logs: Sequence[tuple[str, Path]], zone: tzinfo | None) -> list[LoggedChannel]:
    """The channels of all logs. A channel whose domain is part of another channel's domain on the
    same node gets that channel's name as ``inside``, also where they are in different logs.

    Args:
        logs: the node and the file of each log. The node is empty if it is not known.
        zone: the time zone of local times in the logs.

    Raises:
        FileError: a file is not a known power log or cannot be read, a device of a node is logged
            twice, or some logs have a node and some have none.
    """
    channels: list[LoggedChannel] = []
    devices = set()
    paths: dict[str, Path] = {}
    for node, path in logs:
        for logged in _read_one(path, zone):
            channel = replace(logged, node=logged.node or node)
            device = channel.node, channel.device
            if device in devices:
                cause = f"{channel.device} is logged twice, so that its energy would count twice"
                remedy = "leave one out, or name the node of each log: NODE=LOG"
                raise FileError(cause, remedy, str(path))
            devices.add(device)
            paths.setdefault(channel.node, path)
            channels.append(channel)
    if "" in paths and len(paths) > 1:
        cause = f"has no node, and other logs are of {', '.join(sorted({*paths} - {''}))}"
        raise FileError(cause, "name the node of each log: NODE=LOG", str(paths[""]))
    return _nested(channels)


def _read_one(path: Path, zone: tzinfo | None) -> list[LoggedChannel]:
    kind = recognised_log(head_of(path))
    if kind is None:
        commands = "; ".join(POWER_LOGS.load(name).ABOUT.made_by for name in POWER_LOGS)
        raise FileError("is not a known power log", f"use the output of: {commands}", str(path))
    channels: list[LoggedChannel] = POWER_LOGS.load(kind).read(path, zone)
    if not channels:
        raise FileError("has no power or energy readings", "log them as well", str(path))
    for logged in channels:
        name = logged.channel.name
        if len(logged.time_ns) < 2:
            raise FileError(f"{name} has fewer than two readings", "log for longer", str(path))
        if (np.diff(logged.time_ns) <= 0).any():
            cause = f"{name}: the times are not increasing"
            raise FileError(cause, "give each run of the tool its own file", str(path))
    return channels


def recognised_log(head: bytes) -> str | None:
    """The kind of power log that begins with these bytes; None if it is not one."""
    return next((name for name in POWER_LOGS if POWER_LOGS.load(name).recognises(head)), None)


def _nested(channels: Sequence[LoggedChannel]) -> list[LoggedChannel]:
    """The channels with ``inside`` set: see :func:`read_power_logs`."""
    nested = []
    for logged in channels:
        outer = logged.channel.inside or next(
            (
                candidate.channel.name
                for candidate in channels
                if candidate.node == logged.node
                and contains(candidate.channel.domain, logged.channel.domain)
            ),
            None,
        )
        nested.append(replace(logged, channel=replace(logged.channel, inside=outer)))
    return nested


def read_zone(text: str) -> tzinfo:
    """A time zone by its name or its offset from UTC.

    Raises:
        ArgumentError: there is no such zone.
    """
    if text in ("Z", "UTC"):
        return UTC
    if match := _OFFSET.fullmatch(text):
        offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
        return timezone(-offset if match["sign"] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ArgumentError(
            f"--time-zone {text}: unknown time zone; give one such as Europe/Berlin or +01:00"
        ) from None


def unix_ns(text: str, zone: tzinfo | None) -> int:
    """A time as Unix ns. It is a Unix time in s, ms, us or ns (see :data:`UNITS_NS`) or ISO 8601.

    Raises:
        ValueError: it is neither; or it is a local time and ``zone`` is None; or it occurs twice
            or never in ``zone``. The message has the cause, "; " and the remedy.
    """
    text = text.strip()
    if _UNIX.fullmatch(text):
        for least, unit_ns in UNITS_NS:
            if least <= float(text) < least * 1000:
                return int(text) * unit_ns if text.isdigit() else round(float(text) * unit_ns)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"found {text!r}; give a Unix time or a time such as 2026-11-29T10:00:00+01:00"
        ) from None
    return local_ns(moment, zone)


def local_ns(moment: datetime, zone: tzinfo | None) -> int:
    """A date and time as Unix ns. ``zone``: the time zone of a local time.

    Raises:
        ValueError: as :func:`unix_ns`.
    """
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{moment} has no time zone; {ZONE_REMEDY}")
        first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if first.utcoffset() != second.utcoffset():
            raise ValueError(
                f"{moment} occurs twice or never in {zone} (change to or from summer time); give "
                "the offset from UTC, such as --time-zone +02:00"
            )
        moment = first
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS + since.microseconds * 1_000
