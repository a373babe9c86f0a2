"""Clock trees: power that rises with a domain's clock, g V^2 f T."""

from __future__ import annotations

import numpy as np

from analysis.energy.terms.term import (
    DOMAIN_NAMES,
    OperatingPoint,
    Term,
    Varying,
    clock_mhz,
    more_clocks,
    volts,
    where_it_varies,
)
from analysis.measurements.observations import Observations


class ClockTreeTerm(Term):
    """g_core or g_mem."""

    kind = "clock"
    pays_for = "time"
    volt_power = 2

    @classmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[list[ClockTreeTerm], list[dict[str, str]]]:
        """One for each domain whose clock varies."""
        del data
        return where_it_varies([cls(domain) for domain in cls.domains], varying.mhz, "clock")

    @property
    def name(self) -> str:
        """``g_core``."""
        return f"g_{self.domain}"

    @property
    def unit(self) -> str:
        """W/(V^2 MHz)."""
        return "W/(V^2 MHz)"

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"clock-tree power of the {DOMAIN_NAMES[self.domain]}"

    def column(self, data: Observations) -> np.ndarray:
        """V^2 MHz s; 0 where there is no such clock."""
        clock = np.nan_to_num(clock_mhz(data, self.domain))
        return np.asarray(volts(data, self.domain) ** 2 * clock * data.time_s)

    def cost(self, point: OperatingPoint) -> float:
        """W at the setting's clock and voltage."""
        return float(volts(point, self.domain) ** 2 * clock_mhz(point, self.domain))

    @property
    def measure_to_separate(self) -> str:
        """Voltages that differ more."""
        return more_clocks(self.domain)

    @property
    def part(self) -> str:
        """A group of its own."""
        return "clock"
