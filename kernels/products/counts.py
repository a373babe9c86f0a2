"""Operations and bytes of the matrix product, by class.

``dp`` is 2 n^3 for all variants: a multiply-add is two. Lanes of edge tiles outside C, and
additions of a tile's sums to C, are not counted.

Bytes follow a model: every loaded or stored byte counts once, at the smallest level that holds
everything touched since its last use. They depend on the variant:

- the inner loops load a sliver of A and one of B for each tile of C. The next tile uses the same
  sliver of B; the sliver of A is used again after the other slivers of the block, and the sliver
  of B after the other slivers of the panel and the next block of A;
- each tile of C is loaded once for each panel of B, after all other tiles of the columns, and then
  stored to the first level;
- packing loads A once for each panel's width and B once, from the level that holds everything
  touched since, and stores them to the buffers of the previous loops.

Edge tiles count as whole tiles. Lines that two tiles share, and addresses that compete for the same
set of a cache, are not modelled: the latter add misses if n is a multiple of a high power of two.
The blocks of C of all threads count, each with the caches of its thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels.fmm.counts.machine import MachineModel
from kernels.fmm.counts.tally import Tally
from kernels.products.variants import Block, Variant, blocks

ITEM_BYTES = 8


def count_product(
    n: int, threads: int, variant: Variant, machine: MachineModel
) -> dict[str, float]:
    """Class -> operations of one product, all threads together."""
    tally = Tally(64, machine.caches)
    for block in blocks(n, threads, variant):
        if block.rows and block.columns:
            _count_block(tally, n, block, variant)
    return {"dp": 2.0 * n**3, **tally.counts()}


def _count_block(tally: Tally, n: int, block: Block, variant: Variant) -> None:
    """Add the bytes of one thread; :func:`_move` converts areas from numbers to bytes."""
    rows, columns = block.rows, block.columns
    width = variant.nc or columns
    for depth, depths in _divided(n, variant.kc):
        for wide, panels in _divided(columns, width):
            slivers_b = -(-wide // variant.nr)
            panel = slivers_b * variant.nr * depth
            everything = rows * n + n * columns + rows * columns + panel
            of_panel = rows * n + n * wide + rows * wide + panel
            last_panel = everything if columns > width else of_panel
            times = depths * panels
            _move(tally, times * wide * depth, everything)
            for high, bands in _divided(rows, variant.mc):
                slivers_a = -(-high // variant.mr)
                packed = slivers_a * variant.mr * depth
                loop = panel + packed + high * depth + high * wide
                if high == min(variant.mc, rows):
                    _move(tally, times * panel, loop + wide * depth)
                _move(tally, times * bands * high * depth, last_panel)
                sweep = packed + variant.nr * (depth + high)
                _move(tally, times * bands * packed, sweep + high * depth)  # stores
                _move(tally, times * bands * packed, packed + high * depth)  # first loads
                _move(tally, times * bands * packed * (slivers_b - 1), sweep)
                tile = (variant.mr + variant.nr) * depth + variant.mr * variant.nr
                _move(tally, times * bands * panel, loop)
                _move(tally, times * bands * panel * (slivers_a - 1), tile)
                again = rows * (wide + depth) + wide * depth + panel + packed
                _move(tally, times * bands * high * wide, again if columns <= width else everything)
                _move(tally, times * bands * high * wide, 0)


def _divided(total: int, size: int) -> Iterator[tuple[int, int]]:
    """(size, number) of the parts of ``total``: of whole parts, and of the remainder."""
    for part, count in ((size, total // size), (total % size, 1)):
        if part and count:
            yield part, count


def _move(tally: Tally, numbers: float, window: float) -> None:
    tally.moved(float(numbers) * ITEM_BYTES, window * ITEM_BYTES)
