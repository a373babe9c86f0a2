"""The output of tegrastats on NVIDIA Jetson boards.

A line has the rails as ``VDD_IN 4123mW/4100mW``, earlier releases without the unit: the power now
and the mean since the start, of which the first is read. Lines begin with a local time, to the
second, from Jetson Linux 34 on; lines of one second are spread over it evenly. A Unix time before
them, as ``ts %.s`` writes, is taken in its place. The rails' domains: :mod:`sites.meters.ina3221`.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from pathlib import Path

import numpy as np

from campaign.table.delimited import read_table_text
from campaign.table.formats import UNTRIED
from campaign.table.power_logs import NS, LogDescription, LoggedChannel, local_ns, unix_ns
from dvfs.input_files import FileError
from sites.meters import Channel
from sites.meters.ina3221 import GAIN_PCT, RAILS, rail_around

ABOUT = LogDescription(
    name="tegrastats",
    tool="tegrastats (Jetson Linux 32 to 36)",
    versions=UNTRIED,
    made_by="tegrastats --interval 100 | ts %.s",
    traps="times are local and to the second; early releases have none: `ts` adds them",
)
MARKER = re.compile(rb"[^\n]*\bRAM [0-9]+/[0-9]+MB ")
LINE = re.compile(
    r"(?:(?P<unix>[0-9]{9,}(?:\.[0-9]+)?)\s+)?"
    r"(?:(?P<local>[0-9]{2}-[0-9]{2}-[0-9]{4} [0-9:]{8}) )?(?P<rest>RAM .*)"
)
RAIL = re.compile(r"\b(?P<name>[A-Z][A-Z0-9_]+) (?P<now_mw>[0-9]+)(?:mW)?/[0-9]+(?:mW)?(?=\s|$)")
GPU_CLOCK = re.compile(r"\bGR3D_FREQ [0-9]+%@\[?(?P<mhz>[0-9]+)")
STAMP = "%m-%d-%Y %H:%M:%S"


def recognises(head: bytes) -> bool:
    """Whether the first line is one of tegrastats."""
    return MARKER.match(head) is not None


def read(path: Path, zone: tzinfo | None) -> list[LoggedChannel]:
    """A channel for each rail.

    Raises:
        FileError: a line has no time.
    """
    text, _ = read_table_text(path)
    stamps: list[int] = []
    is_unix = False
    rails: dict[str, list[float]] = {}
    core_mhz: list[float] = []
    for line, words in enumerate(text.splitlines(), 1):
        match = LINE.match(words)
        if match is None:
            continue
        place = f"{path}:{line}"
        if not (match["unix"] or match["local"]):
            raise FileError("a line without a time", f"make it by: {ABOUT.made_by}", place)
        try:
            is_unix = bool(match["unix"])
            stamps.append(
                unix_ns(match["unix"], None)
                if is_unix
                else local_ns(datetime.strptime(match["local"], STAMP), zone)
            )
        except ValueError as error:
            raise FileError(f"time: {error}", "correct or remove this line", place) from None
        powers_mw = {m["name"]: float(m["now_mw"]) for m in RAIL.finditer(match["rest"])}
        for name, of_rail in (rails or {name: [] for name in powers_mw if name in RAILS}).items():
            if name not in powers_mw:
                raise FileError(f"no rail {name}", "complete or remove this line", place)
            of_rail.append(powers_mw[name] * 1e-3)
            rails[name] = of_rail
        clock = GPU_CLOCK.search(match["rest"])
        core_mhz.append(float(clock["mhz"]) if clock else np.nan)
    time_ns = np.array(stamps, np.int64)
    late_s = 0.0 if is_unix else 1.0
    if not is_unix:
        time_ns = _spread(time_ns)
    period_s = float(np.median(np.diff(time_ns))) / NS if len(time_ns) > 1 else 1.0
    domains = {name: RAILS[name] for name in rails}
    around = {name: rail_around(name, domains) for name in rails}
    return [
        LoggedChannel(
            Channel(
                name=f"{name}/power",
                domain=RAILS[name],
                kind="power",
                resolution=1e-3,
                period_s=period_s,
                inside=around[name] and f"{around[name]}/power",
                averaging_s=late_s,
                stamped=True,
                gain_pct=GAIN_PCT,
            ),
            time_ns + round(late_s * NS / 2.0),
            np.array(of_rail),
            {"core_mhz": np.array(core_mhz)},
        )
        for name, of_rail in rails.items()
    ]


def _spread(time_ns: np.ndarray) -> np.ndarray:
    """Times of one second spread over it evenly."""
    _, first, count = np.unique(time_ns, return_index=True, return_counts=True)
    place = np.arange(len(time_ns)) - np.repeat(first, count)
    spread: np.ndarray = time_ns + place * NS // np.repeat(count, count)
    return spread
