"""Leakage: power that rises with a domain's voltage, c1 V T."""

from __future__ import annotations

import numpy as np

from analysis.energy.terms.term import (
    DOMAIN_NAMES,
    OperatingPoint,
    Term,
    Varying,
    more_clocks,
    volts,
    where_it_varies,
)
from analysis.measurements.observations import Observations


class LeakageTerm(Term):
    """c1_core or c1_mem."""

    kind = "leak"
    pays_for = "time"
    volt_power = 1

    @classmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[list[LeakageTerm], list[dict[str, str]]]:
        """One for each domain whose voltage varies."""
        del data
        return where_it_varies([cls(domain) for domain in cls.domains], varying.volts, "voltage")

    @property
    def name(self) -> str:
        """``c1_core``."""
        return f"c1_{self.domain}"

    @property
    def unit(self) -> str:
        """W/V."""
        return "W/V"

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"leakage power of the {DOMAIN_NAMES[self.domain]}"

    def column(self, data: Observations) -> np.ndarray:
        """V s."""
        return np.asarray(volts(data, self.domain) * data.time_s)

    def cost(self, point: OperatingPoint) -> float:
        """W at the setting's voltage."""
        return float(volts(point, self.domain))

    @property
    def measure_to_separate(self) -> str:
        """Voltages that differ more."""
        return more_clocks(self.domain)
