"""Leakage that rises with the square of a domain's voltage, q V^2 T."""

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


class QuadraticLeakageTerm(Term):
    """q_core or q_mem."""

    kind = "quadratic leak"
    pays_for = "time"
    volt_power = 2

    @classmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[list[QuadraticLeakageTerm], list[dict[str, str]]]:
        """One for each domain whose voltage varies."""
        return where_it_varies([cls(domain) for domain in cls.domains], varying.volts, "voltage")

    @property
    def name(self) -> str:
        return f"q_{self.domain}"

    @property
    def unit(self) -> str:
        return "W/V^2"

    @property
    def title(self) -> str:
        return f"quadratic leakage of the {DOMAIN_NAMES[self.domain]}"

    def column(self, data: Observations) -> np.ndarray:
        """V^2 s."""
        return np.asarray(volts(data, self.domain) ** 2 * data.time_s)

    def cost(self, at: OperatingPoint) -> float:
        """W at the setting's voltage."""
        return float(volts(at, self.domain) ** 2)

    @property
    def measure_to_separate(self) -> str:
        return more_clocks(self.domain)
