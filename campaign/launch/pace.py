"""When a campaign will end, estimated from the start times of its last points."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike

LAST = 200


def seconds_to_end(start_unix_s: ArrayLike, left: int, now: float | None = None) -> float | None:
    """Seconds until ``left`` points are done at the pace of the last ones.

    None when fewer than two points are done, or when no point has begun for so long that no
    campaign seems to be running.
    """
    recent = np.sort(np.asarray(start_unix_s, float))[-LAST:]
    if recent.size < 2:
        return None
    pace_s = float(recent[-1] - recent[0]) / (recent.size - 1)
    idle_s = (time.time() if now is None else now) - float(recent[-1])
    return left * pace_s if idle_s < max(60.0, 20.0 * pace_s) else None
