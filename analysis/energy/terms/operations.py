"""The energy of operations, by class: n_k c_k V^2 of the class's domain."""

from __future__ import annotations

import numpy as np

from analysis.energy.terms.term import COMPUTATION, DATA, OperatingPoint, Term, Varying, volts
from analysis.measurements.observations import FitError, Observations
from dvfs.dataset import class_unit, moves_data


class OperationTerm(Term):
    """c0_k: the energy of one operation of class k."""

    kind = "class"
    pays_for = "operation"
    volt_power = 2

    @classmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[list[OperationTerm], list[dict[str, str]]]:
        """Return a term for each class that some row counts."""
        del varying
        counted = [name for name, values in data.counts.items() if (values > 0).any()]
        return [cls(data.domains[name], name) for name in counted], []

    @property
    def name(self) -> str:
        """``c0_dram``."""
        return f"c0_{self.of}"

    @property
    def unit(self) -> str:
        """pJ/V^2 per operation."""
        return f"pJ/V^2 per {class_unit(self.of)}"

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"energy of one {class_unit(self.of)} of class {self.of}"

    def column(self, data: Observations) -> np.ndarray:
        """Return joules of the row's operations; 0 where they are not counted.

        Raises:
            FitError: no row has counts of the class.
        """
        if self.of not in data.counts:
            raise FitError(
                f"{data.site}: no measurement has counts of {self.of!r}, which the coefficient "
                f"{self.name} needs; fit again"
            )
        n = data.counts[self.of]
        return np.asarray(np.where(np.isfinite(n), n, 0.0) * 1e-12 * volts(data, self.domain) ** 2)

    def cost(self, point: OperatingPoint) -> float:
        """pJ of one operation."""
        return float(volts(point, self.domain) ** 2)

    @property
    def measure_to_separate(self) -> str:
        """Kernels with other proportions."""
        return f"kernels that do little {self.of} for their run time, and others that do much"

    @property
    def part(self) -> str:
        """The class."""
        return self.of

    @property
    def nature(self) -> str:
        """A class that is counted in bytes moves data."""
        return DATA if moves_data(self.of) else COMPUTATION
