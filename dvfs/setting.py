"""A setting: the clocks, the power limit and the profile that a measurement asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import total_ordering
from typing import TYPE_CHECKING, Any, SupportsFloat

if TYPE_CHECKING:
    import numpy as np

    from dvfs.dataset import Columns


@total_ordering
@dataclass(frozen=True, slots=True)
class Setting:
    """Requested or achieved clocks, in MHz, a power limit, in W, and a profile of the site.

    ``uncore_mhz``: the clock of a CPU's last level cache, mesh and memory controllers; ``profile``:
    the name of a set of other settings, such as a governor or an energy preference. None means
    that there is no such value, that it stays unchanged, or that it could not be read. Settings
    sort by their values, the core clock first; None sorts before any value.

    Raises:
        ValueError: a number is NaN, or the profile is an empty text (:meth:`of` accepts both).
    """

    core_mhz: float | None = None
    mem_mhz: float | None = None
    uncore_mhz: float | None = None
    power_limit_w: float | None = None
    profile: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        has_nan = any(value is not None and math.isnan(value) for value in self.numbers)
        if has_nan or self.profile == "":
            raise ValueError(f"a value of a setting must be given or None: found {self.values}")

    @classmethod
    def of(
        cls,
        core_mhz: SupportsFloat | None,
        mem_mhz: SupportsFloat | None,
        uncore_mhz: SupportsFloat | None = None,
        power_limit_w: SupportsFloat | None = None,
        profile: str | None = None,
    ) -> Setting:
        """The setting of a row of a table or of arrays, where NaN and "" mean no value."""
        values = (core_mhz, mem_mhz, uncore_mhz, power_limit_w)
        numbers = (math.nan if value is None else float(value) for value in values)
        return cls(
            *(None if math.isnan(number) else number for number in numbers), profile=profile or None
        )

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Setting:
        """The setting of a row by the names of :data:`AXES`; a missing one has no value."""
        return cls.of(*(row.get(name) for name in AXES))

    @property
    def numbers(self) -> tuple[float | None, float | None, float | None, float | None]:
        """The values of :data:`NUMBERS`."""
        return self.core_mhz, self.mem_mhz, self.uncore_mhz, self.power_limit_w

    @property
    def values(self) -> tuple[float | str | None, ...]:
        """The values of :data:`AXES`."""
        return *self.numbers, self.profile

    @property
    def clocks(self) -> tuple[float | None, float | None]:
        """The two clocks of the energy model, in MHz: the core clock, and the uncore clock if the
        setting has one, else the memory clock."""
        return self.core_mhz, self.mem_mhz if self.uncore_mhz is None else self.uncore_mhz

    @property
    def option_text(self) -> str:
        """The argument of ``--setting``: ``852,924``, or ``852,924,150`` with a power limit in W;
        ``852,,150`` without a memory clock; ``uncore=1800`` and ``profile=NAME`` follow."""
        shown = (self.core_mhz, self.mem_mhz, self.power_limit_w)
        texts = ["" if value is None else f"{value:g}" for value in shown]
        uncore = "" if self.uncore_mhz is None else f"uncore={self.uncore_mhz:g}"
        profile = "" if self.profile is None else f"profile={self.profile}"
        return ",".join(filter(None, [",".join(texts).rstrip(","), uncore, profile])) or "as-found"

    @property
    def short_text(self) -> str:
        """The text in the terminal's tables: ``852/924``, ``852/-``, ``852/924, 150 W``,
        ``2000/-, uncore 1800, profile powersave``."""
        pair = (self.core_mhz, self.mem_mhz)
        clocks = "/".join("-" if mhz is None else f"{mhz:g}" for mhz in pair)
        return ", ".join([clocks, *self.further_texts])

    @property
    def further_texts(self) -> list[str]:
        """The values other than the core and memory clocks: ``uncore 1800``, ``150 W``,
        ``profile powersave``."""
        limit = [] if self.power_limit_w is None else [f"{self.power_limit_w:g} W"]
        uncore = [] if self.uncore_mhz is None else [f"uncore {self.uncore_mhz:g}"]
        return uncore + limit + ([] if self.profile is None else [f"profile {self.profile}"])

    @property
    def two_clocks(self) -> Setting:
        """The setting of :attr:`clocks` only, the second one as ``mem_mhz``."""
        return Setting(*self.clocks)

    def as_dict(self) -> dict[str, float | str | None]:
        """The core and memory clocks, and the other values that are not None, by their names in
        :data:`AXES`."""
        return {
            name: value
            for name, value in zip(AXES, self.values, strict=True)
            if value is not None or name not in OPTIONAL
        }

    def __lt__(self, other: Setting) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[tuple[bool, float | str], ...]:
        numbers = tuple((value is not None, value or 0.0) for value in self.numbers)
        return *numbers, (self.profile is not None, self.profile or "")

    def __str__(self) -> str:
        core, mem = self.core_mhz, self.mem_mhz
        if core is None and mem is None:
            return "unchanged clocks" + self._further
        if mem is None:
            return f"core {core:g} MHz, memory clock unchanged" + self._further
        if core is None:
            return f"core clock unchanged, memory {mem:g} MHz" + self._further
        return f"core {core:g}, memory {mem:g} MHz" + self._further

    @property
    def hash_text(self) -> str:
        """The text that random draws hash. Its form must never change: a seed draws the same."""
        core, mem = (
            "as found" if mhz is None else f"{mhz:g}" for mhz in (self.core_mhz, self.mem_mhz)
        )
        return f"core {core}, memory {mem} MHz{self._further}"

    @property
    def _further(self) -> str:
        uncore = "" if self.uncore_mhz is None else f", uncore {self.uncore_mhz:g} MHz"
        limit = "" if self.power_limit_w is None else f", power limit {self.power_limit_w:g} W"
        return uncore + limit + ("" if self.profile is None else f", profile {self.profile}")


NUMBERS = ("core_mhz", "mem_mhz", "uncore_mhz", "power_limit_w")
"""The numeric fields of a setting."""
AXES = (*NUMBERS, "profile")
"""The fields of a setting, which are also columns of tables."""
OPTIONAL = AXES[2:]
"""The axes that JSON and the hash of a point's id omit where they are None."""
AS_FOUND = Setting()

Volts = Mapping[Setting, tuple[float, float]]
"""The core and the memory voltage of each setting, in V."""
LegalVolts = Mapping[Setting, tuple[float | None, float | None]]
"""The voltages of a site's legal settings, in V; None where they are unknown."""


def distinct_settings(*values: np.ndarray) -> tuple[list[Setting], np.ndarray]:
    """The distinct settings of rows, sorted, and the index of each row's setting, int64 (rows,).

    ``values``: the columns of all :data:`AXES`, or of the first few, in their order: float64
    (rows,) each, NaN for no value; of the profile, texts, "" for none.
    """
    import numpy as np  # noqa: PLC0415

    from dvfs.groups import Groups  # noqa: PLC0415

    code = np.zeros(len(values[0]), np.int64)
    for axis in values:
        if axis.strides == (0,):
            continue  # one value
        distinct = np.unique(axis)
        index = np.searchsorted(distinct, axis)
        # NumPy sorts NaN last; a setting without a value sorts first.
        if axis.dtype.kind == "f" and len(distinct) and np.isnan(distinct[-1]):
            index = (index + 1) % len(distinct)
        code = code * max(len(distinct), 1) + index
    groups = Groups(code)
    settings = [Setting.of(*(axis[row] for axis in values)) for row in groups.firsts.tolist()]
    return settings, groups.numbers()


def clock_columns(settings: Iterable[Setting]) -> np.ndarray:
    """:attr:`Setting.clocks` of each setting, float64 (settings, 2), in MHz; NaN for no clock."""
    import numpy as np  # noqa: PLC0415

    return np.array([setting.clocks for setting in settings], float).reshape(-1, 2)


def number_columns(settings: Iterable[Setting]) -> np.ndarray:
    """:attr:`Setting.numbers` of each setting, float64 (settings, 4); NaN for no value."""
    import numpy as np  # noqa: PLC0415

    return np.array([setting.numbers for setting in settings], float).reshape(-1, len(NUMBERS))


def axis_values(columns: Columns, rows: np.ndarray) -> list[np.ndarray]:
    """The columns of :data:`AXES` at some rows of a table, (rows,) each, for
    :func:`distinct_settings`."""
    import numpy as np  # noqa: PLC0415

    numbers = []
    for name in NUMBERS:
        column = columns[name]
        is_constant = column.strides == (0,) and len(column)
        numbers.append(np.broadcast_to(column[0], len(rows)) if is_constant else column[rows])
    names = columns.texts("profile")
    if len(names.values) > 1 or names.values != [""]:
        return [*numbers, np.asarray(names[rows]).astype(str)]
    return [*numbers, np.broadcast_to(np.array(""), len(rows))]
