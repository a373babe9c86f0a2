"""``gpu_dgemm``: parameters, source and operation counts of the matrix product on a GPU.

The program is that of Anzt et al. 2015, section 2.2, as CUDA C++ for today's GPUs: a block of
dim_m x dim_n threads computes a tile of blk_m x blk_n of C = C + A B. It goes along A and B in
steps of blk_k: load a stripe of each into shared memory, wait for all threads, multiply from shared
memory, wait for all threads. A thread has blk_m / dim_m x blk_n / dim_n sums in registers, which
begin as the numbers of C. The paper's texture reads are plain loads here, past the first cache. All
matrices are padded with zeros to whole tiles, so that no loop tests for an edge.

Counted are

- ``dp``: two for each multiply-add that is executed, whole tiles. Exact;
- ``shared``: each stripe is stored once; for every column of A's stripe a thread loads its rows of
  A and its columns of B. Exact, in bytes of the threads' own numbers: what several threads of a
  warp load together counts for each;
- ``l2`` and ``dram``: together what the threads load and store of A, B and C, exact. How it divides
  is a model: C is read from DRAM and written to it once; blocks start in the order of C's tiles, by
  columns, as many at a time as the GPU runs, and those of one round read the rows of A and columns
  of B that they share from DRAM once. Where A and B fit into L2, they are read from DRAM once in
  all. L2 serves the rest.

How many blocks run at a time is known on the node. A plan assumes an H100 with 132 processors, and
two registers for each number that a thread holds, with OTHER_REGISTERS beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from kernels.cuda.architectures import MOST_BLOCK_SHARED_BYTES, PROCESSORS
from kernels.cuda.processor import WARP
from kernels.cuda.products.tiles import ITEM_BYTES, Tiles
from kernels.cuda.program import Source

SOURCE = Path(__file__).with_name("dgemm.cu")
FUNCTION = "add_product"
MOST_STEPS = 256
"""Multiply-adds in one pass of the inner loop, but for tiles that need more for one step."""
OTHER_REGISTERS = 24
PLANNED_PROCESSORS, PLANNED_ARCHITECTURE, PLANNED_L2_BYTES = 132, "sm_90", 50 << 20


class GpuDgemmParams(Tiles):
    """The product, and the variant. The defaults are the fastest of Anzt et al. 2015, Table II."""

    most_shared_bytes: ClassVar[int] = MOST_BLOCK_SHARED_BYTES

    n: int = Field(ge=1, le=1 << 17)
    """rows and columns of A, B and C"""

    def padded(self) -> tuple[int, int, int]:
        """Rows and columns of C, and columns of A, in whole tiles."""
        sizes = (self.blk_m, self.blk_n, self.blk_k)
        rows, columns, depth = (-(-self.n // size) * size for size in sizes)
        return rows, columns, depth

    def blocks(self) -> int:
        """Tiles of C."""
        rows, columns, _ = self.padded()
        return rows // self.blk_m * (columns // self.blk_n)

    def steps(self) -> int:
        """Columns of A that one pass of the inner loop takes: a divisor of blk_k."""
        rows, columns = self.sums()
        numbers = 1 + self.simd
        divisors = [d for d in range(numbers, self.blk_k + 1, numbers) if self.blk_k % d == 0]
        return max((d for d in divisors if d * rows * columns <= MOST_STEPS), default=numbers)


def dgemm_source(params: GpuDgemmParams) -> Source:
    """The source with the variant's macros."""
    names = ("dim_m", "dim_n", "blk_m", "blk_n", "blk_k", "m_a", "n_a", "m_b", "n_b", "simd")
    macros: dict[str, int | str] = {name.upper(): getattr(params, name) for name in names}
    return Source(path=SOURCE, macros=macros | {"STEPS": params.steps()})


def count_product(params: GpuDgemmParams, at_a_time: int, l2_bytes: int) -> dict[str, float]:
    """Class -> operations of one product, on a GPU that runs so many blocks at a time, with so many
    bytes of second cache."""
    rows, columns, depth = params.padded()
    passes = params.blocks() * (depth // params.blk_k)
    stripes = params.blk_k * (params.blk_m + params.blk_n)
    operands = params.threads() * sum(params.sums()) * params.blk_k
    loaded = ITEM_BYTES * float(passes * stripes)
    once = ITEM_BYTES * float(depth) * (rows + columns)
    in_rounds = ITEM_BYTES * float(depth) * _read_in_rounds(params, at_a_time)
    from_dram = once if once <= l2_bytes else min(loaded, in_rounds)
    return {
        "dp": 2.0 * rows * columns * depth,
        "shared": ITEM_BYTES * float(passes) * (stripes + operands),
        "l2": loaded - from_dram,
        "dram": from_dram + 2 * ITEM_BYTES * float(rows) * columns,
    }


def _read_in_rounds(params: GpuDgemmParams, at_a_time: int) -> int:
    """Rows of A and columns of B, added over the rounds of so many blocks: the blocks of one round
    are the next tiles of C, by columns."""
    rows, _, _ = params.padded()
    down, blocks = rows // params.blk_m, params.blocks()
    first = np.arange(0, blocks, at_a_time)
    last = np.minimum(first + at_a_time, blocks) - 1
    across = last // down - first // down + 1
    return int((np.minimum(last - first + 1, down) * params.blk_m + across * params.blk_n).sum())


def count_planned(params: GpuDgemmParams) -> dict[str, float]:
    """Class -> operations of one product, on the GPU that a plan assumes."""
    rows, columns = params.sums()
    registers = min(2 * (rows * columns + rows + columns) + OTHER_REGISTERS, 255)
    processor = PROCESSORS[PLANNED_ARCHITECTURE]
    each = processor.resident_blocks(params.threads(), registers, params.shared_bytes())
    return count_product(params, PLANNED_PROCESSORS * max(each, 1), PLANNED_L2_BYTES)


def planned_metrics(params: GpuDgemmParams) -> Mapping[str, float]:
    """What is known of a variant without a compiler; a run on a GPU records more."""
    return {"shared_bytes": params.shared_bytes(), "warps": params.threads() // WARP}
