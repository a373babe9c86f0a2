"""Points for tests that need one and do not mind which."""

from __future__ import annotations

from typing import Any

from campaign.plan.point import Point
from dvfs.setting import AS_FOUND


def a_point(kernel: str = "idle", **content: Any) -> Point:
    """A point of this content; what is left out is the simplest that a plan can have."""
    usual = {
        "site": "s",
        "partition": "p",
        "label": kernel,
        "params": "{}",
        "ranks": 1,
        "setting": AS_FOUND,
        "repeat": 0,
    }
    return Point(kernel=kernel, **(usual | content))
