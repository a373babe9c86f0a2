"""The check for energies that no meter of this machine measured: replays of a recording."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from analysis.quality.finding import Finding
from analysis.quality.rows import Rows
from dvfs.dataset import RECORDED_PREFIX, texts_of

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns


def recorded_energies(dataset: xr.Dataset | Columns, rows: Rows) -> list[Finding]:
    """Rows whose energy is of a channel of the meter ``recorded``."""
    if "meters" not in dataset:
        return []
    meters = texts_of(dataset, "meters")
    replayed = meters.array(bool, [_is_replayed(str(text)) for text in meters.values])[rows.index]
    if not replayed.any():
        return []
    return [
        Finding(
            "meter",
            "warning",
            rows.index[replayed],
            f"in {replayed.sum()} rows the energy is replayed from a recording (meter recorded): "
            "it is of the machine and the moment of that recording, and no measurement of these "
            "kernels; use it for rehearsals only",
        )
    ]


def _is_replayed(meters: str) -> bool:
    if RECORDED_PREFIX not in meters:
        return False
    return any(
        RECORDED_PREFIX in name and isinstance(channel, dict) and channel.get("counts", True)
        for name, channel in json.loads(meters).items()
    )
