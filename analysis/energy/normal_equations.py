"""The normal equations of the energy model, by setting, and their non-negative solution.

Fitting asks for the same sums again and again: without one setting, with another voltage, with
settings drawn twice. So the sums over rows are made once, a block a setting, at the voltages that
are known (1 where none is). A voltage curve then only scales a block's columns, and leaving a
setting out or drawing it twice is a weight on its block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.arrow_solver import block_sums, solve_blocks
from analysis.energy.terms.lumped import LumpedTerm
from analysis.energy.terms.registry import design_matrix
from analysis.energy.terms.term import MEM, Term
from analysis.measurements.cells import kernel_numbers
from analysis.measurements.observations import Observations


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
    own: list[Term] = [term for kernel in kernels for term in LumpedTerm.both(kernel)]
    root = np.ones(len(data)) if weight is None else np.sqrt(weight)
    columns = design_matrix(data, shared) if columns is None else columns
    rows = columns * (root / data.energy_j)[:, None]
    settings, block = settings_of(data)
    size, n = len(shared), len(settings)
    gram, moment, square = block_sums(rows, root, block, n)
    number = kernel_numbers(data, kernels)
    mine = np.flatnonzero(number >= 0)
    has_mem = any(term.domain == MEM for term in lumped)
    scale = root[mine] / data.energy_j[mine]
    core, mem = data.core_v[mine] ** 2 * scale, data.mem_v[mine] ** 2 * has_mem * scale
    code = block[mine] * len(kernels) + number[mine]
    there = np.bincount(code, minlength=n * len(kernels)) > 0
    cells, cell = np.flatnonzero(there), (np.cumsum(there) - 1)[code]

    def sums(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, values, len(cells))

    def cells_first(parts: Sequence[object], *shape: int) -> np.ndarray:
        by_cell = np.moveaxis(np.array(parts, float).reshape(*shape, len(cells)), -1, 0)
        return np.ascontiguousarray(by_cell)

    of_mine = rows[mine].T
    own_gram = [[sums(core * core), sums(core * mem)], [sums(mem * core), sums(mem * mem)]]
    cross = [[sums(own * column) for column in of_mine] for own in (core, mem)]
    own_moment = [sums(own * root[mine]) for own in (core, mem)]
    return NormalEquations(
        shared=shared,
        own=own,
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
