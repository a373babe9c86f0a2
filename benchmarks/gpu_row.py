"""A row of benchmarks/gpu_all.py: a measured value beside what it is compared with, and its bar."""

from __future__ import annotations

import math
from dataclasses import dataclass

MISSING = "not in this version"


@dataclass(frozen=True, kw_only=True)
class Row:
    """``value`` in ``unit``, over ``of`` (``of_what``); ``bar``: the least share of it that is
    aimed at, or with ``most`` the most that the value itself may be. ``core_mhz``: the SMs' clock
    meanwhile. None: not measured, and ``note`` says why."""

    what: str
    kernel: str
    value: float | None = None
    unit: str = ""
    of: float | None = None
    of_what: str = ""
    bar: float | None = None
    most: bool = False
    core_mhz: float = math.nan
    note: str = ""

    @property
    def share(self) -> float | None:
        """The value over what it is compared with."""
        return self.value / self.of if self.value is not None and self.of else None

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is met; None where nothing can be compared."""
        if self.bar is None or self.value is None:
            return None
        if self.most:
            return self.value <= self.bar
        return None if self.share is None else self.share >= self.bar

    @property
    def text(self) -> str:
        """The row for people."""
        if self.value is None:
            return f"{self.what}: {self.note}"
        text = f"{self.what}: {self.value:.4g} {self.unit}"
        if math.isfinite(self.core_mhz):
            text += f" at {self.core_mhz:.0f} MHz"
        if self.share is not None:
            text += f", {self.share:.3f} of {self.of:.4g} ({self.of_what})"
        elif self.of_what:
            text += f" ({self.of_what})"
        if self.is_met is not None:
            aim = f"at {'most' if self.most else 'least'} {self.bar:g}"
            text += f"; bar {aim}: {'met' if self.is_met else 'not met'}"
        return f"{text}; {self.note}" if self.note else text
