"""The energy of a kernel without counts: a V_p^2 + b V_m^2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from analysis.energy.terms.term import (
    COMPUTATION,
    CORE,
    DATA,
    DOMAIN_NAMES,
    MEM,
    OperatingPoint,
    Term,
    Varying,
    volts,
)
from analysis.measurements.observations import Observations, kernel_names, kernel_numbers

LETTERS = {CORE: "a", MEM: "b"}


class LumpedTerm(Term):
    """a[kernel] or b[kernel]: the energy of one run of the kernel in the core or the memory."""

    kind = "lumped"
    pays_for = "kernel"
    volt_power = 2

    @classmethod
    def both(cls, kernel: str) -> list[LumpedTerm]:
        """Return a kernel's two terms, the core's first."""
        return [cls(domain, kernel) for domain in LETTERS]

    @classmethod
    def terms_for(
        cls, data: Observations, varying: Varying
    ) -> tuple[list[LumpedTerm], list[dict[str, str]]]:
        """Return two terms for each kernel without counts; one where no voltage varies."""
        kernels = kernel_names(data.take(~data.has_counts))
        terms = [term for kernel in kernels for term in cls.both(kernel)]
        any_varies = any(varying.volts.values())
        return [term for term in terms if any_varies or term.domain == CORE], []

    @property
    def name(self) -> str:
        """``a[dgemm n=64]``."""
        return f"{LETTERS[self.domain]}[{self.of}]"

    @property
    def unit(self) -> str:
        """J/V^2."""
        return "J/V^2"

    @property
    def title(self) -> str:
        """What it is, in words."""
        return f"{DOMAIN_NAMES[self.domain]} energy of one run of {self.of}"

    def column(self, data: Observations) -> np.ndarray:
        """Return joules in the kernel's rows, 0 in all others."""
        return np.where(data.of_kernel(self.of), volts(data, self.domain) ** 2, 0.0)

    @classmethod
    def columns(cls, data: Observations, terms: Sequence[LumpedTerm]) -> sparse.coo_array:
        """Return all columns, by one pass over the rows for each domain."""
        rows, columns, joules = [], [], []
        for domain in LETTERS:
            column = {term.of: i for i, term in enumerate(terms) if term.domain == domain}
            row_column = np.array([*column.values(), -1])[kernel_numbers(data, list(column))]
            with_term = np.flatnonzero(row_column >= 0)
            rows.append(with_term)
            columns.append(row_column[with_term])
            joules.append(volts(data, domain)[with_term] ** 2)
        entries = np.concatenate(joules), (np.concatenate(rows), np.concatenate(columns))
        return sparse.coo_array(entries, shape=(len(data), len(terms)))

    def cost(self, point: OperatingPoint) -> float:
        """J of one run."""
        return float(volts(point, self.domain) ** 2)

    @property
    def part(self) -> str:
        """The domain."""
        return DOMAIN_NAMES[self.domain]

    @property
    def nature(self) -> str:
        """Computation for the core, data for the memory."""
        return DATA if self.domain == MEM else COMPUTATION
