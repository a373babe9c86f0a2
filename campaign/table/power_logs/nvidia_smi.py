"""The loop of nvidia-smi: ``nvidia-smi --query-gpu=... --format=csv -lms 100``.

Times are local, without a zone. ``power.draw`` is a mean over the last second on Ampere and later,
but for GA100, and instantaneous before; ``power.draw.instant`` and ``power.draw.average`` say which
they are (:mod:`sites.meters.nvml`, with the calibration). Where only ``power.draw`` is there and
the GPU is not known to be a GA100, it is taken as a mean over half a second, between the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo
from pathlib import Path

import numpy as np

from campaign.table.delimited import number_at, read_table_text, rows_of
from campaign.table.power_logs import LogDescription, LoggedChannel, local_ns
from dvfs.input_files import FileError
from sites.meters import Channel
from sites.meters.nvml import (
    AVERAGING_S,
    GA100,
    GAIN_PCT,
    OFFSET_W,
    PARTLY_SEEN,
    PARTLY_SEEN_AVERAGING_S,
    PARTLY_SEEN_SHARE,
    PERIOD_S,
)

ABOUT = LogDescription(
    name="nvidia-smi",
    tool="nvidia-smi",
    versions="drivers 470 to 530, by published traces",
    made_by="nvidia-smi --query-gpu=timestamp,index,name,power.draw.instant,clocks.sm,clocks.mem "
    "--format=csv -lms 100",
    traps="times are local. `power.draw` is a mean over 1 s on Ampere and later but for GA100. An "
    "A100 or H100 is sampled for 25 of 100 ms",
)
MARKER = re.compile(rb"(\xef\xbb\xbf)?(?=[^\n]*\btimestamp\b)[^\n]*\bpower\.draw\b")
STAMP = "%Y/%m/%d %H:%M:%S.%f"
POWERS = ("power.draw.instant", "power.draw.average", "power.draw")
DEVICES = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
CLOCKS = {
    "core_mhz": ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr"),
    "mem_mhz": ("clocks.current.memory", "clocks.mem"),
}
Rows = list[tuple[float, ...]]
"""Time in ns, power in W, and clocks."""
SHORT_PCT, LONG_PCT = 45, 90
"""Percentiles of the steps between lines: with several GPUs, at least half are short ones."""
UNKNOWN = re.compile(r"\[.*\]|N/A")


def recognises(head: bytes) -> bool:
    """Whether the header has a time stamp and a power of nvidia-smi."""
    return MARKER.match(head) is not None


def read(path: Path, zone: tzinfo | None) -> list[LoggedChannel]:
    """A channel for each GPU.

    Raises:
        FileError: a row has not as many fields as the header, or a value is no number.
    """
    text, _ = read_table_text(path)
    with_units, table = rows_of(path, text)
    header = [name.partition(" [")[0].strip() for name in with_units]
    power = next((name for name in POWERS if name in header), "")
    if not power:
        raise FileError("has no power.draw", f"make it by: {ABOUT.made_by}", f"{path}:1")
    device = next((name for name in DEVICES if name in header), "")
    clocks = {
        ours: column
        for ours, names in CLOCKS.items()
        if (column := next((name for name in names if name in header), ""))
    }
    rows: dict[str, Rows] = {}
    names: dict[str, str] = {}
    for line, fields in table:
        place = f"{path}:{line}"
        row = dict(zip(header, map(str.strip, fields), strict=True))
        if UNKNOWN.fullmatch(row[power]):
            continue
        gpu = row.get(device, "0")
        names[gpu] = row.get("name", "")
        values = (_number(row, name, place) for name in (power, *clocks.values()))
        rows.setdefault(gpu, []).append((_time_ns(row["timestamp"], zone, place), *values))
    if not device:
        steps = np.diff([row[0] for row in rows.get("0", ())])
        if len(steps) and np.percentile(steps, SHORT_PCT) < np.percentile(steps, LONG_PCT) / 4:
            cause = "its times come in groups: it seems to cover several GPUs"
            raise FileError(cause, "query index as well", f"{path}:1")
    return [_channel(gpu, names[gpu], power, clocks, gpu_rows) for gpu, gpu_rows in rows.items()]


def _channel(
    gpu: str, name: str, power: str, clocks: Mapping[str, str], rows: Rows
) -> LoggedChannel:
    time_ns, value, *mhz = (np.array(column) for column in zip(*rows, strict=True))
    # Of readings with equal time stamps, only the first one is used.
    new = np.append(True, np.diff(time_ns) > 0)
    is_partly_seen = PARTLY_SEEN.search(name) is not None
    channel = Channel(
        name=f"gpu-{gpu}/power",
        domain="gpu",
        kind="power",
        resolution=0.01,
        period_s=PERIOD_S,
        averaging_s=_averaging_s(power, name),
        seen=PARTLY_SEEN_SHARE if is_partly_seen else 1.0,
        gain_pct=GAIN_PCT,
        offset_w=OFFSET_W,
    )
    read_mhz = {ours: column[new] for ours, column in zip(clocks, mhz, strict=True)}
    return LoggedChannel(channel, time_ns[new], value[new], read_mhz)


def _averaging_s(power: str, name: str) -> float:
    if power == "power.draw.average":
        return AVERAGING_S
    if power == "power.draw.instant" or GA100.search(name):
        return PARTLY_SEEN_AVERAGING_S if PARTLY_SEEN.search(name) else PERIOD_S
    return AVERAGING_S / 2.0


def _time_ns(text: str, zone: tzinfo | None, place: str) -> int:
    try:
        return local_ns(datetime.strptime(text, STAMP), zone)
    except ValueError as error:
        raise FileError(f"timestamp: {error}", "correct or remove this line", place) from None


def _number(row: Mapping[str, str], name: str, place: str) -> float:
    text = row[name]
    if UNKNOWN.fullmatch(text):
        return float("nan")
    return number_at(text.partition(" ")[0], name, place)
