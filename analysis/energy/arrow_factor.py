"""What the rows of a fit determine of its coefficients: the condition, and what stays open.

The columns are an arrow: a few that all kernels share, and two of each kernel without counts, which
are 0 in the rows of all others. So their orthogonal factor is found kernel by kernel, and no matrix
of rows by kernels is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.costs.linear_cost import LEAST_SHARE, least_and_most

BISECTIONS = 64
ROUNDING = float(np.finfo(float).eps)
"""A singular value below this part of the largest cannot be told from 0."""


@dataclass(frozen=True)
class ArrowColumns:
    """n rows with q columns that all share, and two of each of K kernels.

    ``shared``: float64 (n, q), no column of it 0; ``own``: float64 (n, 2), what each row has in the
    two columns of its kernel; ``kernel``: int64 (n,), the number of its kernel, 0 to K - 1, or -1.
    """

    shared: np.ndarray
    own: np.ndarray
    kernel: np.ndarray
    n_kernels: int

    def lengths(self) -> np.ndarray:
        """Of the columns: float64 (q + 2 K,), the shared ones, then each kernel's two."""
        mine = np.flatnonzero(self.kernel >= 0)
        squares = [np.bincount(self.kernel[mine], x**2, self.n_kernels) for x in self.own[mine].T]
        of_kernels = np.sqrt(np.stack(squares, axis=1))
        return np.concatenate([np.linalg.norm(self.shared, axis=0), of_kernels.ravel()])

    def factor(self) -> ArrowFactor:
        """The triangle R of the columns, each scaled to length 1, by modified Gram-Schmidt.

        All is projected twice, which makes what is left orthogonal to rounding (Giraud, Langou and
        Rozloznik, Comput. Math. Appl. 50, 2005).
        """
        length = self.lengths()
        length[length == 0] = 1.0
        q = self.shared.shape[1]
        mine = np.flatnonzero(self.kernel >= 0)
        of = self.kernel[mine]
        first, second = (self.own[mine] / length[q:].reshape(-1, 2)[of]).T
        shared = self.shared / length[:q]
        own, cross = np.zeros((self.n_kernels, 2, 2)), np.zeros((self.n_kernels, 2, q))
        own[:, 0, 0] = np.bincount(of, first**2, self.n_kernels)
        for _ in range(2):
            along = np.bincount(of, first * second, self.n_kernels)
            second = second - first * along[of]
            own[:, 0, 1] += along
        size = np.sqrt(np.bincount(of, second**2, self.n_kernels))
        own[:, 1, 1] = np.where(size > 4 * ROUNDING, size, 0.0)
        second *= np.divide(1.0, size, out=np.zeros_like(size), where=own[:, 1, 1] > 0)[of]
        for _ in range(2):
            for i, direction in enumerate((first, second)):
                along_all = np.stack(
                    [np.bincount(of, direction * x, self.n_kernels) for x in shared[mine].T],
                    axis=1,
                )
                shared[mine] -= direction[:, None] * along_all[of]
                cross[:, i] += along_all
        triangle = np.linalg.qr(shared, mode="r")
        return ArrowFactor(own, cross, np.pad(triangle, ((0, q - len(triangle)), (0, 0))))


@dataclass(frozen=True)
class ArrowFactor:
    """The upper triangle R of columns of length 1, the kernels' own first.

    ``own``: float64 (K, 2, 2), each kernel's corner; ``cross``: (K, 2, q), the rows of the
    kernels in the shared columns; ``shared``: (q, q). A column that a kernel lacks is 0.
    """

    own: np.ndarray
    cross: np.ndarray
    shared: np.ndarray

    def condition_number(self) -> float:
        """The largest over the smallest singular value of the columns that are not 0.

        Infinite where the smallest is no more than rounding can make it, as for dependent columns.

        The smallest is 1 over the largest of the inverse, which has the same shape.
        """
        turned, size, _ = np.linalg.svd(self.own)
        cross = np.einsum("kij,kiq->kjq", turned, self.cross)
        whole = size > 0
        largest = _largest_singular_value(size[whole], cross[whole], self.shared)
        if whole.sum() < self.own.any(axis=1).sum() or not np.diag(self.shared).all():
            return np.inf
        inverse = np.linalg.inv(self.shared)
        towards = cross[whole] @ inverse / size[whole][:, None]
        by_inverse = _largest_singular_value(1.0 / size[whole], towards, inverse)
        found = largest * by_inverse
        return found if found < 1.0 / LEAST_SHARE else np.inf

    def equally_good(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest non-negative number for each column with which, together with
        other numbers for the others, all rows sum to what they do by ``value``.

        ``value``: float64 (q + 2 K,), for columns of length 1, in the order of
        :meth:`ArrowColumns.lengths`. As :func:`analysis.costs.linear_cost.equally_good`.
        """
        q = len(self.shared)
        own_value = value[q:].reshape(-1, 2)
        # Where a kernel's two columns are one direction, only the sum of its two numbers counts.
        turned, size, _ = np.linalg.svd(self.own)
        cross = np.einsum("kij,kiq->kjq", turned, self.cross)
        tolerance = LEAST_SHARE * _largest_singular_value(
            size.ravel(), cross.reshape(-1, q), self.shared
        )
        one = size[:, 1] <= tolerance
        corner = np.where(one[:, None, None], np.eye(2), self.own)
        towards = -np.linalg.solve(corner, self.cross)
        towards[one, 1] = 0.0
        merged = np.where(one[:, None], np.stack([own_value.sum(axis=1), 0 * one], 1), own_value)
        # Each direction of the shared columns moves the kernels' numbers as well: its length is
        # that of all of them.
        length = np.eye(q) + np.einsum("kiq,kip->qp", towards, towards)
        root = np.linalg.inv(np.linalg.cholesky(length)).T
        _, left, directions = np.linalg.svd(self.shared @ root)
        moving = root @ directions[left <= tolerance].T
        free = np.concatenate([moving, towards.reshape(-1, q) @ moving]).T
        low, high = least_and_most(np.concatenate([value[:q], merged.ravel()]), free)
        own_low, own_high = low[q:].reshape(-1, 2), high[q:].reshape(-1, 2)
        both = one & (self.own[:, 0, 1] > 0)
        own_low[both], own_high[both] = 0.0, own_high[both, :1]
        return low, high


def _largest_singular_value(size: np.ndarray, cross: np.ndarray, shared: np.ndarray) -> float:
    """Of [[diag(size), cross], [0, shared]]: float64 (k,), (k, q) and (q, q).

    By bisection: no singular value of R is above m where [[0, R], [R', 0]] less m on its diagonal
    has no positive eigenvalue. These are counted by Sylvester's law of inertia, the first k rows
    and columns eliminated.
    """
    q = len(shared)
    held = np.block([[np.zeros((q, q)), shared], [shared.T, np.zeros((q, q))]])

    def is_above(middle: float) -> bool:
        rest = held - middle * np.eye(2 * q)
        rest[q:, q:] += (cross.T * (middle / ((middle - size) * (middle + size)))) @ cross
        return bool((np.linalg.eigvalsh(rest) > 0).any())

    low = max(float(np.abs(part).max(initial=0.0)) for part in (size, cross, shared))
    high = float(np.sqrt(sum((part**2).sum() for part in (size, cross, shared))))
    low, high = low * (1.0 + 2 * ROUNDING), high * (1.0 + 4 * ROUNDING)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_above(middle) else (low, middle)
    return low
