"""A meter that reads 10 W."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sites.meters.shared.meter import Channel, MeterDescription, Reading

ABOUT = MeterDescription(
    kind="ten-watts", reads="10 W", domains="node", needs="nothing", options={}, probed=False
)


class TenWatts:
    """One channel of power."""

    name = "ten-watts"
    channels = (
        Channel(
            name="node", domain="node", kind="power", resolution=0.1, period_s=0.01, gain_pct=1.0
        ),
    )

    def read(self) -> Reading:
        return Reading(time.monotonic_ns(), (10.0,))

    def close(self) -> None:
        """Nothing is open."""


def open_meter(root: Path, options: Mapping[str, Any]) -> TenWatts:
    ABOUT.check_options(options)
    return TenWatts()
