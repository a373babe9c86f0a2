"""The normal equations of the energy model, by setting, and their non-negative solution.

Fitting asks for the same sums again and again: without one setting, with another voltage, with
settings drawn twice. So the sums over rows are made once, a block a setting, at the voltages that
are known (1 where none is). A voltage curve then only scales a block's columns, and leaving a
setting out or drawing it twice is a weight on its block.

What the rows determine of the coefficients (the condition, and what stays open) comes from an
orthogonal factor. The columns are an arrow: a few that all kernels share, and two of each kernel
without counts, which are 0 in the rows of all others. So the factor is found kernel by kernel, and
no matrix of rows by kernels is ever made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.costs.linear_cost import LEAST_SHARE, least_and_most
from analysis.energy.arrow_solver import block_sums, solve_blocks
from analysis.energy.terms.lumped import LumpedTerm
from analysis.energy.terms.registry import design_matrix
from analysis.energy.terms.term import MEM, Term
from analysis.measurements.observations import Observations, kernel_numbers

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
        lumped = np.flatnonzero(self.kernel >= 0)
        squares = [
            np.bincount(self.kernel[lumped], x**2, self.n_kernels) for x in self.own[lumped].T
        ]
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
        lumped = np.flatnonzero(self.kernel >= 0)
        of = self.kernel[lumped]
        first, second = (self.own[lumped] / length[q:].reshape(-1, 2)[of]).T
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
                    [np.bincount(of, direction * x, self.n_kernels) for x in shared[lumped].T],
                    axis=1,
                )
                shared[lumped] -= direction[:, None] * along_all[of]
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


@dataclass(frozen=True, kw_only=True)
class NormalEquations:
    """Sums over the rows of each setting, all divided by the measured energy squared.

    S settings, p shared terms, K kernels without counts, each with a core and a memory column,
    and C cells: such a kernel at a setting, by setting and then kernel. ``gram`` float64
    (S, p, p), ``moment`` (S, p), ``square`` (S,): the shared terms and the sum of squares of the
    target; ``own_gram`` (C, 2, 2), ``cross`` (C, 2, p), ``own_moment`` (C, 2): the kernels' own.
    ``kernel``: int64 (C,), the place of a cell's kernel in ``kernels``; ``cell_end``: int64 (S,),
    where the cells of a setting end. ``core_power``, ``mem_power`` int64 (p,): the power of either
    voltage that a shared term has. ``settings``: int64 (S,), the settings' numbers in the data.
    """

    shared: list[Term]
    own: list[Term]
    kernels: list[str]
    settings: np.ndarray
    gram: np.ndarray
    moment: np.ndarray
    square: np.ndarray
    own_gram: np.ndarray
    cross: np.ndarray
    own_moment: np.ndarray
    kernel: np.ndarray
    cell_end: np.ndarray
    core_power: np.ndarray
    mem_power: np.ndarray

    @property
    def terms(self) -> list[Term]:
        """The shared terms, then each kernel's own core and memory term."""
        return self.shared + self.own

    def of_settings(self, kept: np.ndarray) -> NormalEquations:
        """The sums of some settings, bool (S,)."""
        sizes = np.diff(self.cell_end, prepend=0)
        cells = np.repeat(kept, sizes)
        by_setting = ("settings", "gram", "moment", "square")
        by_cell = ("own_gram", "cross", "own_moment", "kernel")
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in by_setting},
            **{name: getattr(self, name)[cells] for name in by_cell},
            cell_end=np.cumsum(sizes[kept]),
        )


def settings_of(data: Observations) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the settings that ``data`` has, int64 (S,), and each row's place among them,
    int64 (rows,)."""
    settings = np.flatnonzero(np.bincount(data.setting))
    place = np.zeros(len(data.settings), np.int64)
    place[settings] = np.arange(len(settings))
    return settings, place[data.setting]


def normal_equations(
    data: Observations,
    terms: list[Term],
    weight: np.ndarray | None = None,
    columns: np.ndarray | None = None,
) -> NormalEquations:
    """Sum up the rows of ``data`` for ``terms``.

    ``weight``: float64 (rows,), 1 by default; ``columns``: the shared terms' design matrix, where
    it has been made already.
    """
    shared = [term for term in terms if term.pays_for != "kernel"]
    lumped = [term for term in terms if term.pays_for == "kernel"]
    kernels = sorted({term.of for term in lumped})
    lumped_terms: list[Term] = [term for kernel in kernels for term in LumpedTerm.both(kernel)]
    root = np.ones(len(data)) if weight is None else np.sqrt(weight)
    columns = design_matrix(data, shared) if columns is None else columns
    rows = columns * (root / data.energy_j)[:, None]
    settings, block = settings_of(data)
    size, n = len(shared), len(settings)
    gram, moment, square = block_sums(rows, root, block, n)
    number = kernel_numbers(data, kernels)
    without_counts = np.flatnonzero(number >= 0)
    has_mem = any(term.domain == MEM for term in lumped)
    scale = root[without_counts] / data.energy_j[without_counts]
    core, mem = (
        data.core_v[without_counts] ** 2 * scale,
        data.mem_v[without_counts] ** 2 * has_mem * scale,
    )
    code = block[without_counts] * len(kernels) + number[without_counts]
    there = np.bincount(code, minlength=n * len(kernels)) > 0
    cells, cell = np.flatnonzero(there), (np.cumsum(there) - 1)[code]

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, values, len(cells))

    def cells_first(parts: Sequence[object], *shape: int) -> np.ndarray:
        by_cell = np.moveaxis(np.array(parts, float).reshape(*shape, len(cells)), -1, 0)
        return np.ascontiguousarray(by_cell)

    of_mine = rows[without_counts].T
    own_gram = [[sums(core * core), sums(core * mem)], [sums(mem * core), sums(mem * mem)]]
    cross = [[sums(domain * column) for column in of_mine] for domain in (core, mem)]
    own_moment = [sums(domain * root[without_counts]) for domain in (core, mem)]
    return NormalEquations(
        shared=shared,
        own=lumped_terms,
        kernels=kernels,
        settings=settings,
        gram=gram,
        moment=moment,
        square=square,
        own_gram=cells_first(own_gram, 2, 2),
        cross=cells_first(cross, 2, size),
        own_moment=cells_first(own_moment, 2),
        kernel=cells % len(kernels),
        cell_end=np.searchsorted(cells, np.arange(1, n + 1) * len(kernels)),
        core_power=np.array([term.core_power for term in shared], np.int64),
        mem_power=np.array([term.mem_power for term in shared], np.int64),
    )


@dataclass(frozen=True)
class Solution:
    """``value``: float64, of the equations' ``terms``; ``cost``: the sum of squares left.

    ``core_slope``, ``mem_slope``: float64 (S,), how the cost changes with each setting's core
    and memory voltage, the coefficients being refitted.
    """

    value: np.ndarray
    cost: float
    core_slope: np.ndarray
    mem_slope: np.ndarray


def solve(
    equations: NormalEquations,
    weight: np.ndarray | None = None,
    core_v: np.ndarray | None = None,
    mem_v: np.ndarray | None = None,
    start: np.ndarray | None = None,
) -> Solution:
    """The coefficients >= 0 with the least sum of squared relative errors.

    ``weight`` (S,): how often each setting counts, 1 by default; ``core_v``, ``mem_v`` (S,):
    voltages that multiply those of the rows. ``start``: values to start from.
    """
    n, size = len(equations.settings), len(equations.shared)
    ones = np.ones(n)
    shared, own, cost, slope = solve_blocks(
        equations.gram,
        equations.moment,
        equations.square,
        equations.own_gram,
        equations.cross,
        equations.own_moment,
        equations.kernel,
        equations.cell_end,
        len(equations.kernels),
        equations.core_power,
        equations.mem_power,
        ones if weight is None else weight,
        ones if core_v is None else core_v,
        ones if mem_v is None else mem_v,
        np.zeros(size) if start is None else np.ascontiguousarray(start[:size]),
    )
    return Solution(np.concatenate([shared, own.reshape(-1)]), cost, slope[0], slope[1])
