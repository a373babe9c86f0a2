"""Power that neither clock nor voltage changes: P_misc T."""

from __future__ import annotations

import numpy as np

from analysis.energy.terms.term import OperatingPoint, Term, Varying
from analysis.measurements.observations import Observations


class ConstantTerm(Term):
    """p_misc."""

    kind = "misc"
    pays_for = "time"
    volt_power = 0
    domains = ("",)

    @classmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[list[ConstantTerm], list[dict[str, str]]]:
        """One, always."""
        del data, varying
        return [cls()], []

    @property
    def name(self) -> str:
        """``p_misc``."""
        return "p_misc"

    @property
    def unit(self) -> str:
        """W."""
        return "W"

    @property
    def title(self) -> str:
        """What it is, in words."""
        return "power that neither clock nor voltage changes"

    def column(self, data: Observations) -> np.ndarray:
        """Seconds."""
        return data.time_s

    def cost(self, point: OperatingPoint) -> float:
        """W, the same at any setting."""
        del point
        return 1.0
