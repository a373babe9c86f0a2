"""A setting: the core and memory clocks and the power limit that a measurement asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import total_ordering
from typing import TYPE_CHECKING, Any, SupportsFloat

if TYPE_CHECKING:
    import numpy as np


@total_ordering
@dataclass(frozen=True, slots=True)
class Setting:
    """Requested or achieved clocks, in MHz, and a power limit, in W.

    None means that there is no such clock or limit, that it is left as found, or that it could not
    be read. Settings are in order of the core clock, then the memory clock, then the power limit;
    None comes before any value.

    Raises:
        ValueError: a value is NaN, which :meth:`of` makes None of.
    """

    core_mhz: float | None = None
    mem_mhz: float | None = None
    power_limit_w: float | None = None

    def __post_init__(self) -> None:
        if any(value is not None and math.isnan(value) for value in self.values):
            raise ValueError(f"a value of a setting must be a number or None: found {self.values}")

    @classmethod
    def of(
        cls,
        core_mhz: SupportsFloat | None,
        mem_mhz: SupportsFloat | None,
        power_limit_w: SupportsFloat | None = None,
    ) -> Setting:
        """The setting of a row of a table or an array, in which NaN is no value."""
        given = (core_mhz, mem_mhz, power_limit_w)
        values = (math.nan if value is None else float(value) for value in given)
        return cls(*(None if math.isnan(value) else value for value in values))

    @property
    def values(self) -> tuple[float | None, float | None, float | None]:
        """The values of :data:`AXES`."""
        return self.core_mhz, self.mem_mhz, self.power_limit_w

    @property
    def clocks(self) -> tuple[float | None, float | None]:
        """Core and memory MHz."""
        return self.core_mhz, self.mem_mhz

    @property
    def option_text(self) -> str:
        """As ``--setting`` takes it: ``852,924``, or ``852,924,150`` with a power limit in W;
        ``852,,150`` where there is no memory clock."""
        texts = ["" if value is None else f"{value:g}" for value in self.values]
        return ",".join(texts).rstrip(",") or "as-found"

    @property
    def short_text(self) -> str:
        """As tables of terminals have it: ``852/924``, ``852/-``, ``852/924, 150 W``."""
        clocks = "/".join("-" if mhz is None else f"{mhz:g}" for mhz in self.clocks)
        return clocks if self.power_limit_w is None else f"{clocks}, {self.power_limit_w:g} W"

    @property
    def without_limit(self) -> Setting:
        """The same clocks without a power limit."""
        return Setting(*self.clocks)

    def as_dict(self) -> dict[str, float | None]:
        """The clocks, and the power limit where there is one, by the names of :data:`AXES`."""
        values = dict(zip(AXES, self.values, strict=True))
        if self.power_limit_w is None:
            del values["power_limit_w"]
        return values

    def __lt__(self, other: Setting) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[tuple[bool, float], ...]:
        return tuple((value is not None, value or 0.0) for value in self.values)

    def __str__(self) -> str:
        core, mem = self.core_mhz, self.mem_mhz
        limit = "" if self.power_limit_w is None else f", power limit {self.power_limit_w:g} W"
        if core is None and mem is None:
            return "unchanged clocks" + limit
        if mem is None:
            return f"core {core:g} MHz, memory clock unchanged" + limit
        if core is None:
            return f"core clock unchanged, memory {mem:g} MHz" + limit
        return f"core {core:g}, memory {mem:g} MHz" + limit

    @property
    def hash_text(self) -> str:
        """What random draws hash. It never changes, so that a seed always draws the same."""
        core, mem = ("as found" if mhz is None else f"{mhz:g}" for mhz in self.clocks)
        limit = "" if self.power_limit_w is None else f", power limit {self.power_limit_w:g} W"
        return f"core {core}, memory {mem} MHz{limit}"


AXES = ("core_mhz", "mem_mhz", "power_limit_w")
"""What a setting has values of: the names of its fields and of the columns of tables."""
AS_FOUND = Setting()

Volts = Mapping[Setting, tuple[float, float]]
"""The core and the memory voltage of each setting, in V."""


def distinct_settings(*values: np.ndarray) -> tuple[list[Setting], np.ndarray]:
    """The distinct settings of rows, sorted, and each row's place among them, int64 (rows,).

    ``values``: of :data:`AXES` in their order, all or the clocks alone, float64 (rows,) each, NaN
    where there is no value.
    """
    import numpy as np  # noqa: PLC0415

    code = np.zeros(len(values[0]), np.int64)
    for axis in values:
        # NaN is the last of the distinct values; no value comes first.
        distinct = np.unique(axis)
        place = np.searchsorted(distinct, axis)
        if len(distinct) and np.isnan(distinct[-1]):
            place = (place + 1) % len(distinct)
        code = code * max(len(distinct), 1) + place
    _, first, index = np.unique(code, return_index=True, return_inverse=True)
    settings = [Setting.of(*(axis[row] for axis in values)) for row in first.tolist()]
    return settings, index.astype(np.int64)


def clock_columns(settings: Iterable[Setting]) -> np.ndarray:
    """The core and memory MHz of settings for computing, float64 (settings, 2): NaN where there is
    no such clock."""
    import numpy as np  # noqa: PLC0415

    return np.array([setting.clocks for setting in settings], float).reshape(-1, 2)


def axis_columns(settings: Iterable[Setting]) -> np.ndarray:
    """The values of :data:`AXES` of settings for computing, float64 (settings, 3): NaN where there
    is none."""
    import numpy as np  # noqa: PLC0415

    return np.array([setting.values for setting in settings], float).reshape(-1, len(AXES))


def axis_values(data: Mapping[Any, Any], rows: np.ndarray) -> list[np.ndarray]:
    """The values of :data:`AXES` at some rows of a table, float64 (rows,) each: NaN where there is
    none, or no such column."""
    import numpy as np  # noqa: PLC0415

    return [
        np.asarray(data[name])[rows].astype(float) if name in data else np.full(len(rows), np.nan)
        for name in AXES
    ]
