"""Power logs of other tools: one file each, registered here by name, and those of installed
packages (:mod:`dvfs.registry`).

Each module has ``ABOUT``, a :class:`LogDescription`; ``recognises(head) -> bool``, ``head`` being
the file's first :data:`HEAD_BYTES` bytes; and ``read(path, zone) -> list[LoggedChannel]``. It
raises :class:`~dvfs.input_files.FileError` for a file that it cannot read, also for local times
where ``zone`` is None.
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
from sites.meters.shared.domains import contains

OURS = {
    "dcgmi-dmon": "campaign.table.power_logs.dcgmi_dmon",
    "nvidia-smi": "campaign.table.power_logs.nvidia_smi",
    "powercap": "campaign.table.power_logs.powercap_loop",
    "slurm-profile": "campaign.table.power_logs.slurm_profile",
    "tegrastats": "campaign.table.power_logs.tegrastats",
}
POWER_LOGS = Registry("power_logs", OURS)
UNTRIED = "from its documentation, not tried with the tool"
NS = 1_000_000_000
SIZES = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (1e8, NS))
"""A Unix time of at least so much is in ns, us, ms or s, a count of so many ns."""
ZONE_REMEDY = "give --time-zone, as Europe/Berlin or +01:00"
_OFFSET = re.compile(r"(?P<sign>[+-])(?P<hours>[01][0-9]):(?P<minutes>[0-5][0-9])")


@dataclass(frozen=True, kw_only=True)
class LogDescription:
    """A kind of log for messages and the docs. ``versions``: those of the tool whose files were
    read, or :data:`UNTRIED`. ``made_by``: the command that writes it. ``traps``: what is easily
    taken for something else."""

    name: str
    tool: str
    versions: str
    made_by: str
    traps: str


@dataclass(frozen=True)
class LoggedChannel:
    """What a log says of one channel of a device.

    ``time_ns``: int64 (n,), Unix time, rising. ``value``: float64 (n,), W of a power or J of an
    energy since some past instant, rising. ``clocks_mhz``: ``core_mhz`` and ``mem_mhz`` as read at
    these times, float64 (n,), where the log has them. ``node``: the node, where the log or the
    command line says it.
    """

    channel: Channel
    time_ns: np.ndarray
    value: np.ndarray
    clocks_mhz: Mapping[str, np.ndarray] = field(default_factory=dict)
    node: str = ""


def read_power_log(path: Path, zone: tzinfo | None, node: str = "") -> list[LoggedChannel]:
    """The channels of a log, whose format is recognised. ``zone``: of local times in it. ``node``:
    the node that it is of, where it does not say.

    Raises:
        FileError: it is no log that is known, or cannot be read.
    """
    name = recognised_log(head_of(path))
    if name is None:
        known = "; ".join(POWER_LOGS.load(name).ABOUT.made_by for name in POWER_LOGS)
        raise FileError("is no power log that is known", f"name a file made by: {known}", str(path))
    channels: list[LoggedChannel] = POWER_LOGS.load(name).read(path, zone)
    if not channels:
        raise FileError("has no power or energy", "log it as well", str(path))
    for each in channels:
        name = each.channel.name
        if len(each.time_ns) < 2:
            raise FileError(f"{name}: fewer than two readings", "log for longer", str(path))
        if (np.diff(each.time_ns) <= 0).any():
            what = f"{name}: times that do not rise"
            raise FileError(what, "log one start of the tool a file", str(path))
    return [replace(each, node=each.node or node) for each in _nested(channels)]


def recognised_log(head: bytes) -> str | None:
    """The kind of log that a file's first bytes are of; None where they are of none."""
    return next((name for name in POWER_LOGS if POWER_LOGS.load(name).recognises(head)), None)


def _nested(channels: Sequence[LoggedChannel]) -> list[LoggedChannel]:
    """The channels, each inside one of its node whose domain contains its own."""
    made = []
    for each in channels:
        outer = next(
            (
                other.channel.name
                for other in channels
                if other.node == each.node and contains(other.channel.domain, each.channel.domain)
            ),
            None,
        )
        inside = each.channel.inside or outer
        made.append(replace(each, channel=replace(each.channel, inside=inside)))
    return made


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
            f"--time-zone {text}: no such zone; give a name as Europe/Berlin, or +01:00"
        ) from None


def unix_ns(text: str, zone: tzinfo | None) -> int:
    """A time as Unix ns: a Unix time in s, ms, us or ns, told by its size, or ISO 8601.

    Raises:
        ValueError: it is none; or a local time without a zone, or one that the zone has twice or
            not at all. The text says which, and what would do.
    """
    try:
        number = float(text)
    except ValueError:
        return local_ns(_datetime(text), zone)
    for least, unit_ns in SIZES:
        if least <= number < least * 1000:
            whole = text.strip().isdigit()
            return int(text) * unit_ns if whole else round(number * unit_ns)
    raise ValueError(f"found {text!r}; give a Unix time, or as 2026-11-29T10:00:00+01:00")


def _datetime(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"found {text!r}; give a Unix time, or as 2026-11-29T10:00:00+01:00"
        ) from None


def local_ns(moment: datetime, zone: tzinfo | None) -> int:
    """A date and time as Unix ns. ``zone``: of a local time.

    Raises:
        ValueError: as :func:`unix_ns`.
    """
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"{moment} has no time zone; {ZONE_REMEDY}")
        first, second = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        if first.utcoffset() != second.utcoffset():
            raise ValueError(
                f"{moment} is in the hour when the clocks of {zone} change; give the offset that "
                "the tool had, as --time-zone +02:00"
            )
        moment = first
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS + since.microseconds * 1_000
