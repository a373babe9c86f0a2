"""The operations of the compiled loops, and the sizes on which they depend."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.fmm.constants import (
    CHILDREN,
    COARSEST,
    DOUBLE_BYTES,
    SPARE_VECTORS,
    TRANSFORM_ROWS,
    V_OFFSETS,
    blocking,
)
from kernels.fmm.counts.machine import MachineModel
from kernels.fmm.counts.tally import LOOP_OPS, Tally
from kernels.fmm.counts.work import Work
from kernels.fmm.operators.surfaces import surface_size
from kernels.fmm.phases.v_slabs import plane_frequencies, slabs
from kernels.host.exp_series import EXP_TERMS

DISTANCE_FLOPS = 8
"""Three differences and the sum of their squares."""
MASK_OPS = 5
"""Operations per lane of a pair that may coincide: a comparison, three selections, a minimum."""


def padded(count: Any, lanes: int) -> Any:
    """The number of slots of ``count`` points in whole vectors."""
    return -(-count // lanes) * lanes


class Sizes:
    """The sizes that several phases need, for a work and a machine."""

    def __init__(self, work: Work, machine: MachineModel) -> None:
        self.work, self.machine = work, machine
        self.size = work.bits // 8
        self.lanes = machine.vector_bytes // self.size
        self.tile, self.block, _, self.group = blocking(machine.registers)
        self.surface = surface_size(work.order)
        self.columns = padded(self.surface, self.lanes)
        tree = work.tree
        self.nodes = len(tree)
        self.sources = tree.end - tree.begin
        self.targets = tree.target_end - tree.target_begin
        self.own_leaves = np.flatnonzero(work.own & (tree.level >= COARSEST))
        leaves = work.leaves
        self.slots = (
            int(padded(self.targets[leaves], self.lanes).sum()) + SPARE_VECTORS * self.lanes
        )
        # A slot holds coordinates, coordinates in its leaf with its charge, and a sum.
        self.slot_bytes = 3 * DOUBLE_BYTES + 5 * self.size
        self.row_bytes = self.columns * self.size
        # Densities and check potentials, which the phases read and write alternately.
        self.rows_bytes = 2 * self.nodes * self.row_bytes
        self.level_sizes = np.add.reduceat(work.active, tree.levels[:-1], dtype=np.int64)
        self.slabs = slabs(work.order, len(work.v_list), self.size)
        planes = max(b - a for a, b in self.slabs) / work.order
        frequencies = plane_frequencies(work.order) * work.order
        spectra = 2 * frequencies * (len(work.v_list) + 1) * 2 * CHILDREN * self.size
        tables = 2 * frequencies * V_OFFSETS * self.size * len(work.v_list.levels)
        self.slab_bytes = planes * (spectra + tables)
        points = self.slots * self.slot_bytes
        self.all_bytes = points + self.rows_bytes + planes * spectra + tables

    def value_flops(self, steps: int, bits: int) -> int:
        """Flops of G(r) from r^2: the estimate, its Newton steps, and the interaction's flops."""
        flops = self.machine.estimate_flops(bits)
        homogeneous = self.work.interaction == "laplace"
        # y (3 - r^2 y^2) / 2; the last step omits the factor 1 / 2 where G is homogeneous.
        flops += 5 * steps - (1 if steps and homogeneous else 0)
        if self.work.interaction == "yukawa":
            # r, lambda r, the result, and exp: log2, two for ln 2, the series, the power.
            flops += 3 + 1 + 4 + 2 * EXP_TERMS[bits] + 1
        return flops

    def one_way(self, tally: Tally, n: Any, t1: Any, steps: int, window: Any) -> None:
        """Count ``act_one_way``: n sources on t1 targets, arrays over calls."""
        vectors = -(-t1 // self.lanes)
        blocks = vectors // self.block + vectors % self.block
        pairs = vectors * self.lanes * n
        tally.flops(pairs * (DISTANCE_FLOPS + self.value_flops(steps, self.work.bits) + 2))
        tally.ints(LOOP_OPS * blocks * n)
        tally.moved((blocks * n * 4 + vectors * self.lanes * 5) * self.size, window)

    def masked(
        self, tally: Tally, n: Any, vectors: Any, bits: int, steps: int, window: Any
    ) -> None:
        """Count ``act_one_way_masked``: n sources on ``vectors`` vectors of targets."""
        size = bits // 8
        lanes = self.machine.vector_bytes // size
        blocks = vectors // self.block + vectors % self.block
        pairs = vectors * lanes * n
        pair_flops = DISTANCE_FLOPS + self.value_flops(steps, bits) + 2 + 1
        tally.flops(pairs * pair_flops, wide=bits == 64)
        tally.ints(LOOP_OPS * blocks * n + MASK_OPS * pairs)
        tally.moved((blocks * n * 4 + vectors * lanes * 5) * size, window)

    def both_ways(self, tally: Tally, vectors: Any, t: Any, window: Any) -> None:
        """Count ``act_both_ways``: ``vectors`` vectors of sources and t targets."""
        tiles = t // self.tile + t % self.tile
        pair_flops = DISTANCE_FLOPS + self.value_flops(self.work.steps, self.work.bits) + 4
        # Every target's lanes are summed, and added to its previous sum.
        tally.flops(vectors * self.lanes * t * pair_flops + t * self.lanes)
        tally.ints(LOOP_OPS * tiles * vectors + vectors * self.lanes * t)
        vector = tiles * vectors * self.machine.vector_bytes
        tally.moved(5 * vector, window)
        # A vector of sums is stored right after its load; targets stay in the first level.
        tally.moved(vector + 6 * t * self.size, 0)

    def seen_from(self, tally: Tally, n: Any, window: Any, first: Any) -> None:
        """Count ``seen_from``: copies of n points relative to another centre, with charges."""
        tally.flops(3 * n, wide=True)
        tally.ints(LOOP_OPS * 4 * np.ceil(n / self.lanes))
        tally.moved(n * (3 * DOUBLE_BYTES + self.size), first)
        tally.moved(4 * n * self.size, window)


def count_product(
    tally: Tally, s: Sizes, calls: float, shape: tuple[int, int], width: int, scratch: int
) -> None:
    """Count ``_times``: products of matrices of a shape with ``width`` columns, 8 at a time."""
    rows, inner = shape
    blocks = rows // TRANSFORM_ROWS + rows % TRANSFORM_ROWS
    tally.flops(calls * 2 * rows * inner * width)
    tally.ints(calls * LOOP_OPS * width / CHILDREN * blocks * inner)
    numbers = width / CHILDREN * inner * (blocks * CHILDREN + rows) + rows * width
    tally.moved(calls * numbers * s.size, scratch)


def count_two_products(
    tally: Tally, s: Sizes, calls: float, shape: tuple[int, int], width: int, scratch: int
) -> None:
    """Count ``_times_both``: sums of two products as in ``_times``, the second with a sign."""
    rows, inner = shape
    blocks = rows // TRANSFORM_ROWS + rows % TRANSFORM_ROWS
    tally.flops(calls * (4 * rows * inner * width + blocks * inner * width))
    tally.ints(calls * LOOP_OPS * width / CHILDREN * blocks * inner)
    numbers = width / CHILDREN * 2 * inner * (blocks * CHILDREN + rows) + rows * width
    tally.moved(calls * numbers * s.size, scratch)
