"""``cuda_dgemm``: the matrix product as a Tesla K20X ran it in 2015, with modelled counts.

Current compilers do not support this GPU. :mod:`kernels.cuda.products.dgemm` counts the program for
later GPUs.

The program is from Anzt et al. 2015, section 2.2: a block of dim_m x dim_n threads computes a
tile of blk_m x blk_n of C. It goes along A and B in steps of blk_k: load a stripe of each into
shared memory, wait for all threads, multiply from shared memory, wait for all threads. A thread has
blk_m / dim_m x blk_n / dim_n sums in registers.

Operation counts:

- ``dp``: 2 n^3, the same for all variants;
- ``shared``: each stripe is stored once; for every column of A's stripe a thread loads its rows of
  A and its columns of B. Spilled sums move through the same memory, once for each of these columns;
- ``dram``: concurrent blocks read the same rows of A or columns of B once, blocks of different
  rounds read them again; C is read and written once;
- ``l2``: all further reads of the blocks. Rows of B's stripe come in sectors of 32 bytes;
- ``stall``: cycles in which a processor neither multiplies nor moves shared memory. To load the
  stripes of a step it needs LATENCY_CYCLES, and LINE_CYCLES for each line of 128 bytes that a
  request touches. A request of a warp touches more lines with fewer threads along the columns
  (m_a, m_b), and half as many if each thread loads two numbers (simd). Other blocks of the
  processor multiply meanwhile. Processors without a block in the last round, and parts of tiles
  outside C, count too.

Edge tiles count as whole tiles, except in ``dp``. The constants give the best fit to the 14 rates
of Table II of Anzt et al. 2015 at 732 MHz: root mean square error 3.7 %, at most 9 %. No other data
were used to choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kernels.cuda.processor import TESLA_K20X, WARP, Gpu
from kernels.cuda.products.tiles import ITEM_BYTES, Tiles
from kernels.kernel import Kernel

SECTOR_ITEMS = 4
LINE_ITEMS = 16
ITEM_REGISTERS = 2
OTHER_REGISTERS = 20
"""Registers of a thread, without its sums, its rows of A and its columns of B."""
EFFICIENCY = 0.77
"""The share of the peak rate that the inner loop reaches without waits."""
OVERLAP = 5.0
"""p in (a^p + b^p)^(1/p), the total of ``a`` cycles of multiplying and ``b`` cycles of moving."""
LATENCY_CYCLES = 600.0
LINE_CYCLES = 2.6


class CudaDgemmParams(Tiles):
    """The product, and a variant that a Tesla K20X can run."""

    most_shared_bytes: ClassVar[int] = TESLA_K20X.shared_bytes


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The resources of a variant: ``registers`` of a thread, and ``spilled`` ones in memory;
    ``shared_bytes`` of a block; concurrent ``blocks`` of a processor."""

    registers: int
    spilled: int
    shared_bytes: int
    blocks: int


def launch(tiles: CudaDgemmParams, gpu: Gpu = TESLA_K20X) -> Launch:
    """The resources of a variant. The compiler may use as many registers as let one block run; it
    loads the next rows and columns ahead if registers are free for them."""
    threads = tiles.threads()
    rows, columns = tiles.sums()
    sums = ITEM_REGISTERS * rows * columns + OTHER_REGISTERS
    operands = ITEM_REGISTERS * (rows + columns)
    step = gpu.register_step
    most = min(gpu.thread_registers, gpu.registers // threads // step * step)
    registers = min(-(-(sums + 2 * operands) // step) * step, most)
    shared_bytes = tiles.shared_bytes()
    return Launch(
        registers=registers,
        spilled=max(0, sums + operands - most),
        shared_bytes=shared_bytes,
        blocks=gpu.resident_blocks(threads, registers, shared_bytes),
    )


def count_tiles(tiles: CudaDgemmParams, gpu: Gpu = TESLA_K20X) -> dict[str, float]:
    """Class -> operations of one product; ``stall`` in cycles, added over the processors."""
    n, m, w, k = tiles.n, tiles.blk_m, tiles.blk_n, tiles.blk_k
    runs = launch(tiles, gpu)
    down, across, steps = -(-n // m), -(-n // w), -(-n // k)
    blocks = down * across
    at_a_time = gpu.processors * runs.blocks
    rounds = -(-blocks // at_a_time)

    loaded = tiles.threads() * sum(tiles.sums()) * k
    moved = ITEM_BYTES * (loaded + (m + w) * k) + 4 * tiles.threads() * runs.spilled * k
    shared = float(blocks * steps * moved)
    dp = 2.0 * n**3

    rows = min(at_a_time, down) * m
    columns = -(-min(at_a_time, blocks) // down) * w
    depth = steps * k
    sectors = -(-k // SECTOR_ITEMS) * SECTOR_ITEMS / k
    requested = ITEM_BYTES * depth * blocks * (m + w * sectors)
    dram = min(requested, ITEM_BYTES * depth * rounds * (rows + columns))

    busy = _busy_cycles(2.0 * m * w * k, moved, gpu)
    load = LATENCY_CYCLES + LINE_CYCLES * _lines(tiles)
    cycles = rounds * gpu.processors * steps * max(runs.blocks * busy, busy + load)
    return {
        "dp": dp,
        "shared": shared,
        "l2": requested - dram,
        "dram": dram + 2 * ITEM_BYTES * n**2,
        "stall": max(0.0, cycles - _busy_cycles(dp, shared, gpu)),
    }


def launch_metrics(tiles: CudaDgemmParams, gpu: Gpu = TESLA_K20X) -> Mapping[str, float]:
    """The use of a processor by a variant; ``occupancy``: concurrent threads over their limit."""
    runs = launch(tiles, gpu)
    return {
        "registers": runs.registers,
        "shared_bytes": runs.shared_bytes,
        "occupancy": runs.blocks * tiles.threads() / gpu.threads,
    }


def _busy_cycles(dp: float, shared: float, gpu: Gpu) -> float:
    """Cycles of one processor for ``dp`` flops and ``shared`` bytes from or to shared memory."""
    multiply, move = dp / gpu.dp_flops, shared / gpu.shared_bytes_moved
    return float((multiply**OVERLAP + move**OVERLAP) ** (1 / OVERLAP)) / EFFICIENCY


def _lines(tiles: CudaDgemmParams) -> float:
    """The number of lines that the requests for the stripes of one step touch."""
    numbers = 1 + tiles.simd
    in_line_a, in_line_b = (min(LINE_ITEMS, numbers * min(m, WARP)) for m in (tiles.m_a, tiles.m_b))
    return tiles.blk_k * (tiles.blk_m / in_line_a + tiles.blk_n / in_line_b)


cuda_dgemm = Kernel(
    name="cuda_dgemm",
    summary="model of gpu_dgemm on a Tesla K20X, for simulated machines only",
    counted="flops (dp), 2 n^3; bytes of shared memory, L2 and DRAM, stalled cycles, by a model",
    classes=("dp", "shared", "l2", "dram", "stall"),
    params=CudaDgemmParams,
    counts=count_tiles,
    metrics=launch_metrics,
    prepare=None,
)
