"""The output of ``dcgmi dmon``, each line behind a Unix time.

dcgmi prints no times, so a program must put them there, as ``ts`` of moreutils does. Its header
names each field by a short name; those read here are POWER (field 155, W), TOTEC (156, mJ since the
driver was loaded), SMCLK (100) and MMCLK (101, MHz). TOTEC is taken where it is there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path

import numpy as np

from campaign.table.delimited import read_table_text
from campaign.table.formats import UNTRIED
from campaign.table.power_logs import LogDescription, LoggedChannel, unix_ns
from dvfs.input_files import FileError
from sites.meters import Channel
from sites.meters.nvml import GAIN_PCT, OFFSET_W, PERIOD_S

ABOUT = LogDescription(
    name="dcgmi-dmon",
    tool="dcgmi dmon (DCGM 3, 4)",
    versions=UNTRIED,
    made_by="dcgmi dmon -e 156,155,100,101 -d 100 | ts %.s",
    traps="it prints no times: `ts` adds them",
)
MARKER = re.compile(rb"[^\n]*#[ ]?Entity\b")
HEADER = re.compile(r"(?P<time>\S+\s+)?#\s?Entity\s+(?P<names>.*)")
ROW = re.compile(r"(?P<time>[0-9.]+)\s+(?P<entity>[A-Z][A-Za-z-]*\s+[0-9/]+)\s+(?P<values>\S.*)")
UNTIMED = re.compile(r"\s*[A-Z][A-Za-z-]*\s+[0-9/]+\s")
CLOCKS = {"core_mhz": "SMCLK", "mem_mhz": "MMCLK"}


def recognises(head: bytes) -> bool:
    """Whether the file has the header of dmon."""
    return MARKER.match(head) is not None


def read(path: Path, zone: tzinfo | None) -> list[LoggedChannel]:
    """A channel for each GPU.

    Raises:
        FileError: a line has no time, or not as many values as the header.
    """
    text, _ = read_table_text(path)
    names: list[str] = []
    rows: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for line, words in enumerate(text.splitlines(), 1):
        place = f"{path}:{line}"
        if header := HEADER.match(words):
            names = header["names"].split()
        elif row := ROW.match(words):
            values = row["values"].split()
            if len(values) != len(names):
                cause = f"{len(values)} values where the header has {len(names)}"
                raise FileError(cause, "complete or remove this line", place)
            try:
                time_ns = unix_ns(row["time"], zone)
            except ValueError as error:
                raise FileError(f"time: {error}", "pipe dmon through `ts %.s`", place) from None
            entity = " ".join(row["entity"].split())
            rows.setdefault(entity, []).append((time_ns, dict(zip(names, values, strict=True))))
        elif UNTIMED.match(words):
            raise FileError("a line without a time", f"make it by: {ABOUT.made_by}", place)
    field = next((name for name in ("TOTEC", "POWER") if name in names), "")
    if not field:
        raise FileError("has neither TOTEC nor POWER", f"make it by: {ABOUT.made_by}", str(path))
    # GPU-I and GPU-CI, a GPU's MIG instances, have no separate energy.
    return [_channel(gpu, field, readings) for gpu, readings in rows.items() if gpu[:4] == "GPU "]


def _channel(entity: str, name: str, rows: Sequence[tuple[int, dict[str, str]]]) -> LoggedChannel:
    valid_rows = [(time_ns, row) for time_ns, row in rows if _number(row[name]) is not None]
    factor = 1e-3 if name == "TOTEC" else 1.0
    channel = Channel(
        name=f"gpu-{entity[4:]}/{'energy' if name == 'TOTEC' else 'power'}",
        domain="gpu",
        kind="energy" if name == "TOTEC" else "power",
        resolution=1e-3,
        period_s=PERIOD_S,
        averaging_s=0.0 if name == "TOTEC" else PERIOD_S,
        gain_pct=GAIN_PCT,
        offset_w=OFFSET_W,
    )
    return LoggedChannel(
        channel,
        np.array([time_ns for time_ns, _ in valid_rows], np.int64),
        np.array([_number(row[name]) for _, row in valid_rows], float) * factor,
        {
            ours: np.array([_number(row[field]) for _, row in valid_rows], float)
            for ours, field in CLOCKS.items()
            if valid_rows and field in valid_rows[0][1]
        },
    )


def _number(text: str) -> float | None:
    """A value; None for N/A."""
    try:
        return float(text)
    except ValueError:
        return None
