"""A setting: a (core MHz, memory MHz) pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    import numpy as np


@total_ordering
@dataclass(frozen=True, slots=True)
class Setting:
    """Requested or achieved clocks, in MHz.

    None means that there is no such clock, that it is left as found, or that it could not be read.
    Settings are in order of the core clock, then the memory clock; None comes before any clock.

    Raises:
        ValueError: a clock is NaN, which :meth:`of` makes None of.
    """

    core_mhz: float | None = None
    mem_mhz: float | None = None

    def __post_init__(self) -> None:
        if any(mhz is not None and math.isnan(mhz) for mhz in self.clocks):
            raise ValueError(f"a clock of a setting must be a number or None: found {self.clocks}")

    @classmethod
    def of(cls, core_mhz: SupportsFloat | None, mem_mhz: SupportsFloat | None) -> Setting:
        """The setting of a row of a table or an array, in which NaN is no clock."""
        clocks = (math.nan if mhz is None else float(mhz) for mhz in (core_mhz, mem_mhz))
        return cls(*(None if math.isnan(mhz) else mhz for mhz in clocks))

    @property
    def clocks(self) -> tuple[float | None, float | None]:
        """Core and memory MHz."""
        return self.core_mhz, self.mem_mhz

    def __lt__(self, other: Setting) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[tuple[bool, float], ...]:
        return tuple((mhz is not None, mhz or 0.0) for mhz in self.clocks)

    def __str__(self) -> str:
        core, mem = self.core_mhz, self.mem_mhz
        if core is None and mem is None:
            return "unchanged clocks"
        if mem is None:
            return f"core {core:g} MHz, memory clock unchanged"
        if core is None:
            return f"core clock unchanged, memory {mem:g} MHz"
        return f"core {core:g}, memory {mem:g} MHz"

    @property
    def hash_text(self) -> str:
        """What random draws hash. It never changes, so that a seed always draws the same."""
        core, mem = ("as found" if mhz is None else f"{mhz:g}" for mhz in self.clocks)
        return f"core {core}, memory {mem} MHz"


AS_FOUND = Setting()

Volts = Mapping[Setting, tuple[float, float]]
"""The core and the memory voltage of each setting, in V."""


def distinct_settings(
    core_mhz: np.ndarray, mem_mhz: np.ndarray
) -> tuple[list[Setting], np.ndarray]:
    """The distinct settings of rows, sorted, and each row's place among them, int64 (rows,).

    ``core_mhz``, ``mem_mhz``: float64 (rows,), NaN where there is no such clock.
    """
    import numpy as np  # noqa: PLC0415

    pair = np.zeros(len(core_mhz), np.int64)
    for mhz in (core_mhz, mem_mhz):
        # NaN is the last of the distinct values; no clock comes first.
        clocks, place = np.unique(mhz, return_inverse=True)
        if len(clocks) and np.isnan(clocks[-1]):
            place = (place + 1) % len(clocks)
        pair = pair * max(len(clocks), 1) + place
    _, first, index = np.unique(pair, return_index=True, return_inverse=True)
    settings = [Setting.of(core_mhz[row], mem_mhz[row]) for row in first.tolist()]
    return settings, index.astype(np.int64)


def clock_columns(settings: Iterable[Setting]) -> np.ndarray:
    """The core and memory MHz of settings for computing, float64 (settings, 2): NaN where there is
    no such clock."""
    import numpy as np  # noqa: PLC0415

    return np.array([setting.clocks for setting in settings], float).reshape(-1, 2)
