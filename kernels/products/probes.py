"""Checks of a matrix product, C = C + A B, by products with vectors of signs (Freivalds 1977).

One vector of random signs misses a wrong number of C with a probability of at most 1/2. Its
operations are proportional to the numbers of C.
"""

from __future__ import annotations

import numpy as np

from kernels.kernel import ResultError

PROBES = 4


class Probes:
    """The expected products of a block of C with sign vectors, after any number of additions.

    ``a``: (rows, n), ``b``: (n, columns), ``c``: (rows, columns), the initial block.
    ``first_row`` and ``first_column``: its begin in C.
    """

    def __init__(
        self,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        seed: int,
        first_row: int = 0,
        first_column: int = 0,
    ) -> None:
        signs = np.random.default_rng(seed).integers(0, 2, (c.shape[1], PROBES))
        self._signs = 2.0 * signs - 1.0
        self._a, self._b = a, b
        self._first_row, self._first_column = first_row, first_column
        self._before, self._size_before = c @ self._signs, np.abs(c).sum(axis=1)

    def check(self, c: np.ndarray, runs: int) -> None:
        """Compare the block times the vectors with C + runs A B times the vectors, by NumPy.

        Raises:
            ResultError: names the row with the largest error.
        """
        right = self._before + runs * (self._a @ (self._b @ self._signs))
        error = np.abs(c @ self._signs - right)
        size = self._size_before + runs * (np.abs(self._a) @ np.abs(self._b).sum(axis=1))
        # Every addition rounds once, in the product and in the runs.
        allowed = (self._a.shape[1] + runs) * np.finfo(c.dtype).eps * size
        if not (error <= allowed[:, None]).all():
            row = int(np.argmax(np.nan_to_num(error, nan=np.inf).max(axis=1) - allowed))
            raise ResultError(
                f"row {self._first_row + row} of C is not that of C + A B (difference "
                f"{error[row].max():.3g} in sums over columns {self._first_column} to "
                f"{self._first_column + c.shape[1] - 1}, allowed {allowed[row]:.3g})"
            )
