"""The normal equations of the energy model, by setting, and their non-negative solution.

Fitting needs the same sums many times: without one setting, at another voltage, with settings drawn
twice. So the rows are summed once, one block for each setting, at the known voltages (1 where none
is known). A voltage curve then only scales a block's columns, and leaving a setting out or drawing
it twice is a weight on its block.

An orthogonal factor shows what the rows determine of the coefficients: the condition number and
the undetermined directions. The columns are an arrow: a few that all kernels share, and two for
each kernel without counts, which are 0 in the rows of all other kernels. So the factor is computed
kernel by kernel, without a matrix of rows by kernels.
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
"""A singular value below this share of the largest is rounding of 0."""


@dataclass(frozen=True)
class ArrowColumns:
    """n rows with q columns that all kernels share, and two for each of K kernels.

    ``shared``: float64 (n, q), no column of it 0; ``lumped``: float64 (n, 2), each row's values in
    the two columns of its kernel; ``kernel``: int64 (n,), the index of its kernel, or -1 for none.
    """

    shared: np.ndarray
    lumped: np.ndarray
    kernel: np.ndarray
    n_kernels: int

    def lengths(self) -> np.ndarray:
        """Return the columns' lengths: float64 (q + 2 K,), the shared ones, then each kernel's."""
        rows = np.flatnonzero(self.kernel >= 0)
        squares = [
            np.bincount(self.kernel[rows], x**2, self.n_kernels) for x in self.lumped[rows].T
        ]
        kernel_lengths = np.sqrt(np.stack(squares, axis=1))
        return np.concatenate([np.linalg.norm(self.shared, axis=0), kernel_lengths.ravel()])

    def factor(self) -> ArrowFactor:
        """Return the triangle R of the columns, scaled to length 1, by modified Gram-Schmidt.

        Two projections make the remainders orthogonal to rounding (Giraud, Langou and Rozloznik,
        Comput. Math. Appl. 50, 2005).
        """
        length = self.lengths()
        length[length == 0] = 1.0
        q = self.shared.shape[1]
        rows = np.flatnonzero(self.kernel >= 0)
        kernel = self.kernel[rows]
        first, second = (self.lumped[rows] / length[q:].reshape(-1, 2)[kernel]).T
        shared = self.shared / length[:q]
        corner, cross = np.zeros((self.n_kernels, 2, 2)), np.zeros((self.n_kernels, 2, q))
        corner[:, 0, 0] = np.bincount(kernel, first**2, self.n_kernels)
        for _ in range(2):
            along = np.bincount(kernel, first * second, self.n_kernels)
            second = second - first * along[kernel]
            corner[:, 0, 1] += along
        size = np.sqrt(np.bincount(kernel, second**2, self.n_kernels))
        corner[:, 1, 1] = np.where(size > 4 * ROUNDING, size, 0.0)
        second *= np.divide(1.0, size, out=np.zeros_like(size), where=corner[:, 1, 1] > 0)[kernel]
        for _ in range(2):
            for i, direction in enumerate((first, second)):
                along_all = np.stack(
                    [np.bincount(kernel, direction * x, self.n_kernels) for x in shared[rows].T],
                    axis=1,
                )
                shared[rows] -= direction[:, None] * along_all[kernel]
                cross[:, i] += along_all
        triangle = np.linalg.qr(shared, mode="r")
        return ArrowFactor(corner, cross, np.pad(triangle, ((0, q - len(triangle)), (0, 0))))


@dataclass(frozen=True)
class ArrowFactor:
    """The upper triangle R of columns of length 1, the kernels' columns first.

    ``corner``: float64 (K, 2, 2), each kernel's triangle; ``cross``: (K, 2, q), the kernels' rows
    in the shared columns; ``shared``: (q, q). A column that a kernel lacks is 0.
    """

    corner: np.ndarray
    cross: np.ndarray
    shared: np.ndarray

    @property
    def of_shared(self) -> np.ndarray:
        """The shared columns, of length 1, in an orthonormal basis: float64 (2 K + q, q)."""
        return np.concatenate([self.cross.reshape(-1, len(self.shared)), self.shared])

    def condition_number(self) -> float:
        """Return the largest over the smallest singular value of the columns that are not 0.

        Infinite where the smallest is rounding, as for dependent columns. The smallest is 1 over
        the largest of the inverse, which has the same shape.
        """
        rotation, size, _ = np.linalg.svd(self.corner)
        cross = np.einsum("kij,kiq->kjq", rotation, self.cross)
        nonzero = size > 0
        largest = _largest_singular_value(size[nonzero], cross[nonzero], self.shared)
        if nonzero.sum() < self.corner.any(axis=1).sum() or not np.diag(self.shared).all():
            return np.inf
        inverse = np.linalg.inv(self.shared)
        inverse_cross = cross[nonzero] @ inverse / size[nonzero][:, None]
        by_inverse = _largest_singular_value(1.0 / size[nonzero], inverse_cross, inverse)
        condition = largest * by_inverse
        return condition if condition < 1.0 / LEAST_SHARE else np.inf

    def equally_good(self, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each column's least and largest non-negative coefficient among all coefficients
        with the same row sums as ``value``.

        ``value``: float64 (q + 2 K,), for columns of length 1, in the order of
        :meth:`ArrowColumns.lengths`. As :func:`analysis.costs.linear_cost.equally_good`.
        """
        q = len(self.shared)
        kernel_value = value[q:].reshape(-1, 2)
        # Where a kernel's two columns are parallel, only the sum of its two values counts.
        rotation, size, _ = np.linalg.svd(self.corner)
        cross = np.einsum("kij,kiq->kjq", rotation, self.cross)
        tolerance = LEAST_SHARE * _largest_singular_value(
            size.ravel(), cross.reshape(-1, q), self.shared
        )
        is_merged = size[:, 1] <= tolerance
        corner = np.where(is_merged[:, None, None], np.eye(2), self.corner)
        response = -np.linalg.solve(corner, self.cross)
        response[is_merged, 1] = 0.0
        merged = np.where(
            is_merged[:, None], np.stack([kernel_value.sum(axis=1), 0 * is_merged], 1), kernel_value
        )
        # A direction of the shared columns moves the kernels' values as well; its length is over
        # all of these.
        length = np.eye(q) + np.einsum("kiq,kip->qp", response, response)
        root = np.linalg.inv(np.linalg.cholesky(length)).T
        _, singular_values, directions = np.linalg.svd(self.shared @ root)
        moving = root @ directions[singular_values <= tolerance].T
        free = np.concatenate([moving, response.reshape(-1, q) @ moving]).T
        low, high = least_and_most(np.concatenate([value[:q], merged.ravel()]), free)
        kernel_low, kernel_high = low[q:].reshape(-1, 2), high[q:].reshape(-1, 2)
        interchangeable = is_merged & (self.corner[:, 0, 1] > 0)
        kernel_low[interchangeable] = 0.0
        kernel_high[interchangeable] = kernel_high[interchangeable, :1]
        return low, high


def _largest_singular_value(size: np.ndarray, cross: np.ndarray, shared: np.ndarray) -> float:
    """Return the largest singular value of R = [[diag(size), cross], [0, shared]], whose blocks
    are made of float64 (k,), (k, q) and (q, q).

    By bisection: no singular value of R is above m if [[0, R], [R', 0]] - m I has no positive
    eigenvalue. Sylvester's law of inertia shows these after eliminating the first k rows and
    columns.
    """
    q = len(shared)
    symmetric = np.block([[np.zeros((q, q)), shared], [shared.T, np.zeros((q, q))]])

    def is_above(middle: float) -> bool:
        shifted = symmetric - middle * np.eye(2 * q)
        shifted[q:, q:] += (cross.T * (middle / ((middle - size) * (middle + size)))) @ cross
        return bool((np.linalg.eigvalsh(shifted) > 0).any())

    low = max(float(np.abs(part).max(initial=0.0)) for part in (size, cross, shared))
    high = float(np.sqrt(sum((part**2).sum() for part in (size, cross, shared))))
    low, high = low * (1.0 + 2 * ROUNDING), high * (1.0 + 4 * ROUNDING)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_above(middle) else (low, middle)
    return low


@dataclass(frozen=True, kw_only=True)
class NormalEquations:
    """Sums over the rows of each setting, each row divided by its measured energy.

    S settings, p shared terms, K kernels without counts, each with a core and a memory column,
    and C cells: such a kernel at a setting, by setting and then kernel. ``gram`` float64
    (S, p, p), ``moment`` (S, p), ``square`` (S,): products of the shared terms, with the target,
    and of the target; ``own_gram`` (C, 2, 2), ``cross`` (C, 2, p), ``own_moment`` (C, 2): products
    of the kernels' columns, with the shared terms, and with the target. ``kernel``: int64 (C,), the
    index of a cell's kernel in ``kernels``; ``cell_end``: int64 (S,), the end of each setting's
    cells. ``core_power``, ``mem_power`` int64 (p,): the powers of the core's and the memory's
    voltage in each shared term. ``settings``: int64 (S,), the settings' numbers in the data.
    """

    shared: list[Term]
    lumped: list[Term]
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
        """The shared terms, then each kernel's core and memory term."""
        return self.shared + self.lumped

    def of_settings(self, included: np.ndarray) -> NormalEquations:
        """Return the sums of the settings ``included``, bool (S,)."""
        sizes = np.diff(self.cell_end, prepend=0)
        cells = np.repeat(included, sizes)
        by_setting = ("settings", "gram", "moment", "square")
        by_cell = ("own_gram", "cross", "own_moment", "kernel")
        return replace(
            self,
            **{name: getattr(self, name)[included] for name in by_setting},
            **{name: getattr(self, name)[cells] for name in by_cell},
            cell_end=np.cumsum(sizes[included]),
        )


def settings_of(data: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the settings that ``data`` has, int64 (S,), and each row's index among
    them, int64 (rows,)."""
    settings = np.flatnonzero(np.bincount(data.setting))
    block = np.zeros(len(data.settings), np.int64)
    block[settings] = np.arange(len(settings))
    return settings, block[data.setting]


def normal_equations(
    data: Observations,
    terms: list[Term],
    weight: np.ndarray | None = None,
    columns: np.ndarray | None = None,
) -> NormalEquations:
    """Sum up the rows of ``data`` for ``terms``.

    ``weight``: float64 (rows,), 1 by default; ``columns``: the shared terms' design matrix, where
    it exists already.
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
    present = np.bincount(code, minlength=n * len(kernels)) > 0
    cells, cell = np.flatnonzero(present), (np.cumsum(present) - 1)[code]

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, values, len(cells))

    def cells_first(parts: Sequence[object], *shape: int) -> np.ndarray:
        by_cell = np.moveaxis(np.array(parts, float).reshape(*shape, len(cells)), -1, 0)
        return np.ascontiguousarray(by_cell)

    shared_columns = rows[without_counts].T
    own_gram = [[sums(core * core), sums(core * mem)], [sums(mem * core), sums(mem * mem)]]
    cross = [[sums(domain * column) for column in shared_columns] for domain in (core, mem)]
    own_moment = [sums(domain * root[without_counts]) for domain in (core, mem)]
    return NormalEquations(
        shared=shared,
        lumped=lumped_terms,
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
    """``value``: float64, of the equations' ``terms``; ``cost``: the sum of squared errors.

    ``core_slope``, ``mem_slope``: float64 (S,), the derivative of the cost by each setting's core
    and memory voltage, at the best coefficients.
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
    """Return the coefficients >= 0 with the least sum of squared relative errors.

    ``weight`` (S,): how often each setting counts, 1 by default; ``core_v``, ``mem_v`` (S,):
    factors of the rows' voltages. ``start``: values to start from.
    """
    n, size = len(equations.settings), len(equations.shared)
    ones = np.ones(n)
    shared, kernel_value, cost, slope = solve_blocks(
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
    return Solution(np.concatenate([shared, kernel_value.reshape(-1)]), cost, slope[0], slope[1])
