"""A kernel of a chain of matrix products; its order, fusing and tiles are parameters."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from kernels.fmm.counts.machine import DEFAULT_MACHINE, MachineModel, host_machine
from kernels.fmm.counts.tally import Tally
from kernels.host.memory import paged_array
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params, Prepared, ResultError, not_compiled
from kernels.products.chain_order import nodes_in_order, read_fused, read_order, with_tile
from kernels.products.chain_plan import PARENT, ChainError, Node, plan_chain
from kernels.products.chain_run import (
    KEPT,
    Buffers,
    Shape,
    fused_shapes,
    inner_split,
    needed_numbers,
    run_nodes,
    tile_and_shape,
)
from kernels.products.movement import LEFT, OUTPUT, TILES

ITEM_BYTES = 8
PROBES = 4
"""The number of random sign vectors for the check of the product (Freivalds 1977)."""
Size = Annotated[int, Field(ge=1, le=1 << 24)]


class ChainParams(Params):
    """A chain of matrices, and the plan of its product."""

    sizes: Annotated[tuple[Size, ...], Field(min_length=3, max_length=65, strict=False)]
    """P0, P1, ...: matrix i has P(i-1) rows and P(i) columns"""
    order: str = ""
    """the order, such as (A1A2)A3; empty: the one of fewest operations"""
    fused: str = ""
    """products fused into the next one, by first and last matrix, such as 1-2,4-5; plan: those that
    move the fewest words"""
    tile_x: int = Field(default=0, ge=0, le=1 << 24)
    """rows of the tile on chip, of the result or of the matrix between two fused products; 0: as
    planned"""
    tile_y: int = Field(default=0, ge=0, le=1 << 24)
    """columns of that tile; 0 with tile_x"""
    on_chip: int = Field(default=65536, ge=1, le=1 << 30)
    """numbers that fit on chip; planned tiles fill seven tenths"""

    @model_validator(mode="after")
    def _can_be_planned(self) -> ChainParams:
        if (self.tile_x == 0) != (self.tile_y == 0):
            raise ValueError("tile_x and tile_y are both 0, as planned, or both above 0")
        if self.fused == "plan" and self.order:
            raise ValueError('fused = "plan" plans the order, too: leave order out')
        try:
            assert self.nodes  # noqa: S101
        except ChainError as error:
            raise ValueError(str(error)) from None
        return self

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The products, each before the one that uses it."""
        sizes = self.sizes
        if self.order:
            splits, nodes = read_order(self.order, len(sizes) - 1), []
        else:
            nodes = list(plan_chain(sizes, self.on_chip, form=TILES).nodes)
            splits = {(node.first, node.last): node.split for node in nodes}
        if self.fused != "plan":
            nodes = nodes_in_order(sizes, splits, read_fused(self.fused, splits), self.on_chip)
        if self.tile_x:
            tile = self.tile_x, self.tile_y
            nodes = [with_tile(sizes, node, tile, inner_split(nodes, node)) for node in nodes]
        return tuple(nodes)


def count_chain(params: ChainParams, machine: MachineModel = DEFAULT_MACHINE) -> Counts:
    """Operations of one run: a multiply-add is two, and bytes count at the level that serves them.

    The words of the tiles come from the level that holds everything touched since their last use.
    The inner loops load each number of the left operand once for each register tile, and each
    packed number once for each row of register tiles. Sums are loaded and stored once for each
    packed part.
    """
    sizes, tally, ops = params.sizes, Tally(64, machine.caches), 0
    for node in params.nodes:
        p0, p1, p2 = sizes[node.first - 1], sizes[node.split], sizes[node.last]
        ops += p0 * p1 * p2
        if node.fused != PARENT:
            _count_node(tally, params, node)
    return {"dp": 2.0 * ops, **tally.counts()}


def _count_node(tally: Tally, params: ChainParams, node: Node) -> None:
    """Add the bytes of an unfused product, or of two fused ones."""
    sizes = params.sizes
    p0, p1, p2 = sizes[node.first - 1], sizes[node.split], sizes[node.last]
    tile = x, y = int(node.tile_x or 0), int(node.tile_y or 0)
    everything = p0 * p1 + p1 * p2 + p0 * p2
    products: list[tuple[int, int, int]]
    shapes: tuple[Shape, ...]
    if node.fused is None:
        kept = node.kept or OUTPUT
        products = [((x, p1, y), (x, y, p2), (p0, x, y))[KEPT.index(kept)]]
        times = [p0 * p1 * p2 / prod(products[0])]
        _, depth, columns = products[0]
        shapes = (tile_and_shape(kept, tile, depth, (columns,), params.on_chip)[1],)
    else:
        inside = sizes[inner_split(params.nodes, node)]
        if node.fused == LEFT:
            four = p0, inside, p1, p2
            products, whole = [(x, inside, y), (x, y, p2)], p0 * p1
        else:
            four = p0, p1, inside, p2
            products, whole = [(x, inside, y), (p0, x, y)], p1 * p2
        everything = sum(one * other for one, other in pairwise(four)) + p0 * p2
        times = [whole / (x * y)] * 2
        shapes = fused_shapes(node.fused, four, tile, params.on_chip)[1]
    streamed = 0.0
    for (rows, depth, columns), count, shape in zip(products, times, shapes, strict=True):
        mr, nr, wide, deep, rows_first = shape
        wide = min(wide, -(-columns // mr) * mr)
        block, passes = wide * deep, -(-depth // deep)
        updates = count * rows * depth * columns
        if rows_first:
            streams, swept = wide * (rows + depth + deep), wide * (rows + 2 * deep)
        else:
            streams = (rows + 2 * columns) * deep
            swept = x * y + streams if passes > 1 else mr * nr
        _move(tally, updates / mr, (mr + nr) * deep)
        _move(tally, updates / nr, block + nr * deep)
        _move(tally, 2 * count * passes * rows * columns, swept)
        _move(tally, count * depth * columns, block)  # packed numbers are stored
        streamed = max(streamed, streams)
    # The words that every algorithm must move come from the level of the matrices, the rest from
    # the level that holds all data between two uses of a tile.
    least = min(everything, node.words)
    _move(tally, least, everything)
    _move(tally, node.words - least, max(everything - x * y, x * y + streamed))


def _move(tally: Tally, numbers: float, window: float) -> None:
    tally.moved(float(numbers) * ITEM_BYTES, window * ITEM_BYTES)


def _matrix(rows: int, columns: int) -> np.ndarray:
    """An array that begins at a cache line, so that rows of whole lines do too."""
    return paged_array(rows * columns, np.dtype(np.float64)).reshape(rows, columns)


class PreparedChain:
    """The matrices of one rank, the buffers, and the arrays for results."""

    def __init__(self, params: ChainParams, seed: int = 0) -> None:
        """Draw numbers of about 1 / sqrt(rows), the same for the same arguments, so that products
        stay near 1. Run once, so that nothing is compiled while the kernel is measured."""
        rng = np.random.default_rng(seed)
        sizes = params.sizes
        self._params = params
        self._matrices = [_matrix(*shape) for shape in pairwise(sizes)]
        for matrix in self._matrices:
            matrix[:] = rng.uniform(-1.0, 1.0, matrix.shape) * np.sqrt(3.0 / len(matrix))
        self._buffers = Buffers.of(*needed_numbers(params.nodes))
        self._results = {
            (node.first, node.last): _matrix(sizes[node.first - 1], sizes[node.last])
            for node in params.nodes
            if node.fused != PARENT
        }
        self._signs = 2.0 * rng.integers(0, 2, (params.sizes[-1], PROBES)) - 1.0
        self.run(1)

    def run(self, iterations: int) -> None:
        """Multiply the chain ``iterations`` times."""
        params = self._params
        for _ in range(iterations):
            self._product = run_nodes(
                self._matrices, params.nodes, params.on_chip, self._buffers, self._results
            )

    def counts(self) -> Counts:
        """Operations of one run, with this host's caches."""
        return count_chain(self._params, host_machine())

    def check(self) -> None:
        """Compare the product times sign vectors with the chain times these vectors, by NumPy."""
        right, size = self._signs, np.abs(self._signs)
        for matrix in reversed(self._matrices):
            right, size = matrix @ right, np.abs(matrix) @ size
        error = np.abs(self._product @ self._signs - right)
        allowed = 4.0 * sum(self._params.sizes) * np.finfo(np.float64).eps * size
        if not (error <= allowed).all():
            row = int(np.argmax(np.nan_to_num(error, nan=np.inf).max(axis=1)))
            raise ResultError(
                f"row {row} of the product is wrong (difference {error[row].max():.3g} in sums "
                f"over its columns, allowed {allowed[row].max():.3g})"
            )

    def close(self) -> None:
        """Release the matrices."""
        self._matrices, self._results = [], {}
        self._product = np.zeros((0, 0))


def _prepare(params: ChainParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` if the loops cannot be compiled."""
    try:
        import kernels.products.fused  # noqa: F401, PLC0415  (a plan must not import Numba)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    return PreparedChain(params, team.rank)


def chain_metrics(params: ChainParams) -> dict[str, float]:
    """``words``: numbers that the tiles move to and from memory, if ``on_chip`` fit on chip."""
    return {"words": float(sum(node.words for node in params.nodes))}


chain = Kernel(
    name="chain",
    imports=("kernels.products.fused",),
    summary="a chain of matrix products in double precision: order, fused pairs and tiles",
    counted="flops (dp); bytes at each level, by a model",
    classes=("dp", "l1", "l2", "l3", "dram"),
    params=ChainParams,
    counts=count_chain,
    prepare=_prepare,
    metrics=chain_metrics,
)
