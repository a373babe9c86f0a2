"""A power distribution unit whose reading, in W, a script of the site writes to a file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sites.meters.shared.meter import Channel, MeterDescription, MeterError, Reading

ABOUT = MeterDescription(
    kind="pdu-file",
    reads="a file with the node's power in W, which a script of the site writes",
    domains="node",
    needs="read access to the file",
    options={
        "path": "the file",
        "period_s": "seconds between two updates of the file (default: 1)",
    },
    probed=False,  # without a path, doctor has nothing to try
)


class PduFile:
    """One channel of power."""

    name = "pdu-file"

    def __init__(self, path: Path, period_s: float) -> None:
        self.path = path
        self.channels = (
            Channel(
                name="node",
                domain="node",
                kind="power",
                resolution=1.0,
                period_s=period_s,
                gain_pct=2.0,
            ),
        )

    def read(self) -> Reading:
        try:
            watts = float(self.path.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            remedy = "check the script that writes it"
            raise MeterError(f"{self.path}: {error}", remedy) from None
        return Reading(time.monotonic_ns(), (watts,))

    def close(self) -> None:
        """Nothing is kept open."""


def open_meter(root: Path, options: Mapping[str, Any]) -> PduFile:
    """See :mod:`sites.meters`; raises MeterError where the file has no number."""
    meter = PduFile(root / str(options["path"]).lstrip("/"), float(options.get("period_s", 1.0)))
    meter.read()
    return meter
