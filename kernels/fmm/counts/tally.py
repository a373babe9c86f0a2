"""The sums of the operations of one phase, by class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

LOOP_OPS = 3
"""Integer operations of one pass of a loop: increment, compare, jump."""
INDEXED_OPS = 2
"""Integer operations of one look-up: scale the index, add it to the address."""
BLAS_TILE, BLAS_LOADS = 128, 24
"""Results that a BLAS keeps in registers (16 x 8), and numbers that it loads to update them."""


@dataclass
class Tally:
    """The operations of one phase.

    ``bits``: 32 or 64, of a number in the loops; ``caches``: as in
    :class:`~kernels.fmm.counts.machine.MachineModel`; ``totals``: class -> operations so far.
    """

    bits: int
    caches: tuple[tuple[str, int], ...]
    totals: dict[str, float] = field(default_factory=dict)

    def flops(self, count: Any, wide: bool = False) -> None:
        """Add flops of the loops' type, or of double precision with ``wide``."""
        self._add("dp" if wide or self.bits == 64 else "sp", count)

    def ints(self, count: Any) -> None:
        """Add integer operations."""
        self._add("int", count)

    def moved(self, count: Any, window: Any) -> None:
        """Add bytes that the smallest level serves that holds ``window`` bytes."""
        amount, last = np.broadcast_arrays(np.asarray(count, np.float64), window)
        level = np.searchsorted([size for _, size in self.caches], last)
        for i, name in enumerate([*(name for name, _ in self.caches), "dram"]):
            self._add(name, amount[level == i])

    def product(self, m: Any, k: int, n: int) -> None:
        """Add a BLAS product of (m, k) and (k, n) matrices."""
        size = self.bits // 8
        rows = np.asarray(m, np.float64)
        updates = rows * k * n
        self.flops(2 * updates)
        self.ints(LOOP_OPS * updates / BLAS_TILE)
        operands = (rows * k + k * n + rows * n) * size
        once = np.where(rows > 0, operands, 0)
        self.moved(np.maximum(updates * size * BLAS_LOADS / BLAS_TILE - once, 0), 0)
        self.moved(once, operands)

    def counts(self) -> dict[str, float]:
        """Class -> operations, of the classes with any."""
        return {name: value for name, value in self.totals.items() if value}

    def _add(self, name: str, count: Any) -> None:
        total = float(np.sum(count, dtype=np.float64))
        self.totals[name] = self.totals.get(name, 0.0) + total
