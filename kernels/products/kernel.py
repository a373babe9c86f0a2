"""The matrix product C = C + A B in double precision, as a kernel of a campaign.

The matrices are square, stored by columns, and packed for the caches: see
:mod:`kernels.products.loops` for the layers, :mod:`kernels.products.counts` for what is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from pydantic import Field

from kernels.fmm.counts.machine import DEFAULT_MACHINE, host_machine
from kernels.host.memory import paged_array
from kernels.host.prepared import PreparedParts
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Prepared, not_compiled
from kernels.products.counts import count_product
from kernels.products.probes import Probes
from kernels.products.variants import Block, Variant, blocks

DTYPE = np.dtype(np.float64)


class DgemmParams(Variant):
    """The product, and the variant."""

    n: int = Field(ge=0, le=1 << 20)
    """rows and columns of A, B and C"""
    threads: int = Field(default=1, ge=1, le=4096)
    """threads of one rank, each with a block of C"""

    def variant(self) -> Variant:
        """The parameters that do not change the result."""
        return Variant(**{name: getattr(self, name) for name in Variant.model_fields})


def count_dgemm(params: DgemmParams) -> Counts:
    """Operations of one product of one rank, on the machine assumed by a plan."""
    return count_product(params.n, params.threads, params.variant(), DEFAULT_MACHINE)


@dataclass(frozen=True)
class Matrices:
    """A, B and C: float64 (n * n,), by columns."""

    n: int
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray

    @classmethod
    def random(cls, n: int, seed: int) -> Matrices:
        """Matrices of numbers between -1 and 1, the same for the same arguments.

        Raises:
            kernels.kernel.KernelError: there is too little memory.
        """
        flat = [paged_array(n * n, DTYPE) for _ in range(3)]
        rng = np.random.default_rng(seed)
        for matrix in flat:
            rng.random(out=matrix)
            np.subtract(2 * matrix, 1, out=matrix)
        return cls(n, *flat)

    def square(self) -> list[np.ndarray]:
        """A, B and C: views of shape (n, n)."""
        return [flat.reshape(self.n, self.n).T for flat in (self.a, self.b, self.c)]


class ProductPart:
    """The block of C of one thread, and its buffers."""

    def __init__(self, variant: Variant, matrices: Matrices, block: Block, seed: int) -> None:
        from kernels.products.loops import add_product  # noqa: PLC0415  (a plan must not import it)

        self._add_product, self._variant = add_product, variant
        self._matrices, self._block = matrices, block
        n, mr, nr = matrices.n, variant.mr, variant.nr
        high = min(variant.mc, -(-block.rows // mr) * mr)
        wide = -(-block.columns // nr) * nr
        wide = min(variant.nc or wide, wide)
        deep = min(variant.kc, n)
        # Blocks are no larger than the matrices.
        self._sizes = (mr, nr, max(high, mr), max(deep, 1), max(wide, nr))
        lengths = (high * deep, wide * deep, mr * nr)
        self._packed = tuple(paged_array(length, DTYPE) for length in lengths)
        for buffer in self._packed:
            buffer[:] = 0.0
        self._probes = Probes(*self._of_block(), seed, block.row, block.column)
        self._runs = 0

    def run(self, iterations: int) -> None:
        """Add A B to the block ``iterations`` times."""
        block, matrices = self._block, self._matrices
        self._add_product(
            self._variant,
            (matrices.a, matrices.b, matrices.c),
            matrices.n,
            (block.row, block.last_row, block.column, block.last_column),
            self._sizes,
            self._packed,
            iterations,
        )
        self._runs += iterations

    def check(self) -> None:
        """Compare the block with its part of C + runs A B: see :mod:`kernels.products.probes`."""
        self._probes.check(self._of_block()[2], self._runs)

    def _of_block(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows of A, the columns of B, and the block of C, as views."""
        a, b, c = self._matrices.square()
        rows = slice(self._block.row, self._block.last_row)
        columns = slice(self._block.column, self._block.last_column)
        return a[rows], b[:, columns], c[rows, columns]


class PreparedProduct(PreparedParts):
    """The parts of one rank, and the variant, whose operations are counted for this host."""

    def __init__(self, params: DgemmParams, matrices: Matrices, seed: int = 0) -> None:
        """Add A B to C once, so that nothing is compiled while the kernel is measured."""
        self._params = params
        variant = params.variant()
        divided = blocks(params.n, params.threads, variant)
        super().__init__(
            [partial(ProductPart, variant, matrices, block, seed) for block in divided], None
        )

    def counts(self) -> Counts:
        """Operations of one product, all threads together, with this host's caches."""
        params = self._params
        return count_product(params.n, params.threads, params.variant(), host_machine())


def _prepare(params: DgemmParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` if compilation fails, or memory is too small."""
    try:
        import kernels.products.loops  # noqa: F401, PLC0415  (a plan must not import Numba)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    return PreparedProduct(params, Matrices.random(params.n, team.rank), team.rank)


dgemm = Kernel(
    name="dgemm",
    imports=("kernels.products.loops",),
    summary="a packed matrix product in double precision, in variants",
    counted="flops (dp), 2 n^3; bytes at each level, by a model",
    classes=("dp", "l1", "l2", "l3", "dram"),
    params=DgemmParams,
    counts=count_dgemm,
    prepare=_prepare,
)
