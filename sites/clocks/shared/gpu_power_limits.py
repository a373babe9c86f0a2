"""The power limit of GPUs, whatever library sets it.

The limits before the first change are recorded in the library's unit and restored. Every GPU has a
separate journal and lock, so jobs on other GPUs of the node do not interfere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from dvfs.setting import Setting
from sites.clocks.shared.control import ClockState, IllegalClockError
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable, as_refused
from sites.clocks.shared.journal import Entry, Journal, PutBack, at_last
from sites.clocks.shared.limited import is_limit, value_of_all
from sites.clocks.shared.selected_gpus import Reopen, SetGpu, give_up, put_back_gpus, restore_gpus
from sites.gpu_error import GpuError

SETTLE_S = 2.0
"""How long a GPU may take to enforce a limit."""
WAIT_S = 0.02
PER_W = {"mw": 10**3, "uw": 10**6}


class GpuLimit(Protocol):
    """The power limit of a GPU, in the library's unit. Its methods raise GpuError."""

    device: str
    """The key that finds the GPU again."""
    label: str

    def range(self) -> tuple[int, int]:
        """The lowest and the highest limit that can be set."""

    def found(self) -> int:
        """The limit that was set last."""

    def enforced(self) -> int:
        """The limit in force."""

    def set(self, value: int) -> None: ...


@dataclass(frozen=True)
class LimitLibrary:
    """A library's unit of limits, and the commands that set and show a limit by hand."""

    control: str
    unit: str
    """A key of PER_W."""
    by_hand: str
    see: str

    def in_w(self, value: int) -> float:
        return value / PER_W[self.unit]


class GpuPowerLimits:
    """Sets some GPUs to the same power limit. ``close``: called at the end."""

    def __init__(
        self,
        root: Path,
        library: LimitLibrary,
        gpus: Sequence[GpuLimit],
        limits_w: Sequence[float],
        close: Callable[[], None],
    ) -> None:
        self.library = library
        self.gpus = [
            SetGpu(
                gpu, Journal(root, library.control, gpu.device), partial(_put_back, library, gpu)
            )
            for gpu in gpus
        ]
        self.limits_w = limits_w
        self.asked_w: float | None = None
        at_last(self, give_up, self.gpus, close)

    def range_w(self) -> tuple[float, float]:
        """The lowest and the highest limit that every GPU offers, in W."""
        with as_clocks_unavailable():
            lowest, highest = zip(*(held.gpu.range() for held in self.gpus), strict=True)
        return self.library.in_w(max(lowest)), self.library.in_w(min(highest))

    def legal(self) -> list[Setting]:
        lowest_w, highest_w = self.range_w()
        return [Setting(power_limit_w=w) for w in self.limits_w if lowest_w <= w <= highest_w]

    def set(self, setting: Setting) -> None:
        limit_w = setting.power_limit_w
        if limit_w is None:
            self.restore()
            return
        lowest_w, highest_w = self.range_w()
        if not lowest_w <= limit_w <= highest_w:
            raise IllegalClockError(
                f"power limit {limit_w:g} W: the GPU offers {lowest_w:g} to {highest_w:g} W"
            )
        self.asked_w = limit_w
        for held in self.gpus:
            self._limit(held, round(limit_w * PER_W[self.library.unit]))
        deadline_s = time.monotonic() + SETTLE_S
        for held in self.gpus:
            self._read_back(held.gpu, limit_w, deadline_s)

    def state(self) -> ClockState:
        with as_clocks_unavailable():
            limits_w = [self.library.in_w(held.gpu.enforced()) for held in self.gpus]
        return ClockState(Setting(power_limit_w=value_of_all(limits_w, self.asked_w)))

    def restore(self) -> None:
        self.asked_w = None
        restore_gpus(self.gpus, self.library.by_hand)

    def _limit(self, held: SetGpu[GpuLimit, int], value: int) -> None:
        limit, key = held.gpu, f"found_{self.library.unit}"
        held.record(limit.found, lambda before: {"gpu": limit.device, key: before})
        with as_refused():
            limit.set(value)

    def _read_back(self, limit: GpuLimit, limit_w: float, deadline_s: float) -> None:
        while True:
            with as_clocks_unavailable():
                taken_w = self.library.in_w(limit.enforced())
            if is_limit(taken_w, limit_w):
                return
            if time.monotonic() >= deadline_s:
                raise IllegalClockError(
                    f"{limit.label}: power limit {limit_w:g} W was requested, and {taken_w:g} W is "
                    "enforced"
                )
            time.sleep(WAIT_S)


def put_back_limits(
    library: LimitLibrary,
    recorded: Iterable[Entry],
    reopen: Reopen,
    limit_of: Callable[[Any, Any], GpuLimit],
) -> PutBack:
    """Restore a journal's limits. ``limit_of``: (library, GPU), as ``reopen`` gives them -> limit.

    Raises:
        KeyError, TypeError: an entry that the control cannot have written.
    """
    entries = []
    for entry in recorded:
        device, value = entry["gpu"], entry[f"found_{library.unit}"]
        if not isinstance(device, str) or type(value) is not int:
            raise TypeError("a GPU that is not text, or a limit that is not a whole number")

        def restore(opened: Any, gpu: Any, value: int = value) -> list[GpuError]:
            return _put_back(library, limit_of(opened, gpu), value)

        entries.append((device, restore, f"its power limit is {library.in_w(value):g} W"))
    return put_back_gpus(reopen, entries)


def _put_back(library: LimitLibrary, limit: GpuLimit, value: int) -> list[GpuError]:
    """Set the recorded limit and read it back; returns the failure."""
    try:
        if limit.found() == value:
            return []
        limit.set(value)
        read_back = limit.found()
    except GpuError as error:
        return [error]
    if read_back != value:
        was_w, is_w = library.in_w(value), library.in_w(read_back)
        problem = f"{limit.label}: its power limit was {was_w:g} W and is {is_w:g} W now"
        return [GpuError(problem, library.see)]
    return []
