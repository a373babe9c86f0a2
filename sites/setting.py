"""A setting: a (core MHz, memory MHz) pair."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Requested or achieved clocks, in MHz.

    None means that the clock of this domain is left as found, or could not be read.
    """

    core_mhz: float | None = None
    mem_mhz: float | None = None

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
        core, mem = (
            "as found" if mhz is None else f"{mhz:g}" for mhz in (self.core_mhz, self.mem_mhz)
        )
        return f"core {core}, memory {mem} MHz"


AS_FOUND = Setting()
