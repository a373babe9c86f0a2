"""Words of tiled and fused products, compared with valgrind's cache simulation, cachegrind.

    .venv/bin/python -m benchmarks.products_cachegrind

n = 520, 8-byte numbers, a last cache of 512 KiB with 16 ways: 65,536 numbers. The lines that a run
misses (``benchmarks/cachegrind.py``) are compared with the counted ones, the words over 8. First
come two products, each with the best tile that leaves room for the streamed data, one after the
other and fused, in either order; then one product with tiles of its result that fill from 16 to
88 % of the cache. Takes minutes.

The words include write-backs, which the simulation does not count: a line that is read, added to
and written back is missed once. Only fused products read parts of their result again. They have to
fetch the counted lines without these parts, and a line that is evicted between its read and its
write is missed twice.

Exits 0 if one product misses within 1 % of the count with tiles of at most 66 % of the cache, and
the fused pairs miss at most 6 % more than the count, no less than must be fetched (to 1 %), and at
least 15 % less than the unfused pair; 1 otherwise; 2 if valgrind is missing.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import numpy as np

from benchmarks import cachegrind
from benchmarks.cachegrind import LINE_BYTES, Simulation
from benchmarks.shared import argument_parser

N, LAST_KIB, ON_CHIP = 520, 512, 65536
TILES = (208, 176, 104, 240)
BEST_TILE = 208
PAIRS = {"": "(A1A2)A3", "1-2": "(A1A2)A3", "2-3": "A1(A2A3)"}
"""The products that are fused into the next one, and the order."""
CLOSE = 0.67
"""The largest share of the cache that a tile may fill for its misses to equal the count."""


def child(params: dict[str, Any], runs: int) -> None:
    """Prepare, and run the compiled loops, because Python between two runs would miss, too."""
    from numba import njit

    from kernels.host.memory import paged_array
    from kernels.products import fused
    from kernels.products.chain_kernel import ChainParams
    from kernels.products.chain_plan import LEFT, OUTPUT
    from kernels.products.chain_run import (
        Buffers,
        fused_shapes,
        needed_numbers,
        tile_and_shape,
    )

    multiply_tiled, multiply_fused_left = fused.multiply_tiled, fused.multiply_fused_left
    multiply_fused_right = fused.multiply_fused_right

    @njit(cache=True)
    def products(variant, matrices, out, tile, shape, buffers, number, runs):
        for _ in range(runs):
            left_matrix = matrices[0]
            for place in range(number):
                operands = (left_matrix, 0, N), (matrices[place + 1], 0, N), (out[place], 0, N)
                multiply_tiled(variant, *operands, (N, N, N), 0, tile, shape, buffers)
                left_matrix = out[place]

    @njit(cache=True)
    def pairs_left(variants, matrices, out, tile, between, shapes, buffers, runs):
        for _ in range(runs):
            sizes = (N, N, N, N)
            multiply_fused_left(variants, matrices, out[0], sizes, tile, between, shapes, buffers)

    @njit(cache=True)
    def pairs_right(variants, matrices, out, tile, between, shapes, buffers, runs):
        for _ in range(runs):
            sizes = (N, N, N, N)
            multiply_fused_right(variants, matrices, out[0], sizes, tile, between, shapes, buffers)

    chain = ChainParams.model_validate(params)
    node = chain.nodes[-1]
    tile = int(node.tile_x), int(node.tile_y)
    buffers = Buffers.of(*needed_numbers(chain.nodes))
    scratch = buffers.packed, buffers.tile, buffers.rows
    matrices = tuple(paged_array(N * N, np.dtype(np.float64)) for _ in range(3))
    out = tuple(paged_array(N * N, np.dtype(np.float64)) for _ in range(2))
    for matrix in (*matrices, *out):
        matrix[:] = 1.0
    if node.fused:
        variants, shapes = fused_shapes(node.fused, (N, N, N, N), tile, ON_CHIP)
        pairs = pairs_left if node.fused == LEFT else pairs_right
        pairs(variants, matrices, out, tile, buffers.between, shapes, scratch, runs)
    else:
        variant, shape = tile_and_shape(OUTPUT, tile, N, (tile[1],), ON_CHIP)
        number = len(chain.sizes) - 2
        products(variant, matrices, out, tile, shape, scratch, number, runs)


def missed_lines(params: dict[str, Any], simulation: Simulation) -> float:
    """Return the lines that a run misses in the last cache."""
    simulation.printed(params)  # compiles
    return simulation.missed_bytes(params)[1] / LINE_BYTES


def counted_lines(params: dict[str, Any]) -> float:
    """Return the words that a run moves, in lines."""
    from kernels.products.chain_kernel import ChainParams, chain_metrics

    return chain_metrics(ChainParams.model_validate(params))["words"] / 8


def fetched_lines(params: dict[str, Any]) -> float:
    """Return the counted lines less those of the result that are written back and fetched again."""
    from kernels.products.chain_kernel import ChainParams
    from kernels.products.chain_plan import LEFT, RIGHT

    node = ChainParams.model_validate(params).nodes[-1]
    tile = {LEFT: node.tile_y, RIGHT: node.tile_x}.get(node.fused, N)
    return counted_lines(params) - (-(-N // int(tile)) - 1) * N * N / 8


def compare(arguments: Namespace, simulation: Simulation) -> bool:
    """Print the tables and return whether all counts are as near as they should be."""
    fine = True
    print("               tile  of the cache     missed    counted         fetched lines")
    missed_of = {}
    for fused, order in PAIRS.items():
        params = {"sizes": [N] * 4, "order": order, "fused": fused, "on_chip": ON_CHIP}
        if not fused:  # the tile of which a whole number fits best, of either product
            params |= {"tile_x": BEST_TILE, "tile_y": BEST_TILE}
        misses, lines = missed_lines(params, simulation), counted_lines(params)
        missed_of[fused] = misses
        name = f"{order}, {fused or 'nothing'} fused"
        print(f"{name:33}{shown(misses, params)}", flush=True)
        fine &= not fused or 0.99 * fetched_lines(params) <= misses <= 1.06 * lines
    for tile in TILES:
        params = {"sizes": [N] * 3, "tile_x": tile, "tile_y": tile, "on_chip": ON_CHIP}
        misses, lines = missed_lines(params, simulation), counted_lines(params)
        share = tile * tile / ON_CHIP
        fine &= share > CLOSE or abs(misses / lines - 1) <= 0.01
        print(f"one product    {tile:4}  {share:12.0%}  {shown(misses, params)}", flush=True)
    saved = 1 - max(missed_of["1-2"], missed_of["2-3"]) / missed_of[""]
    print(f"fused {saved:.1%} fewer")
    return fine and saved >= 0.15


def shown(misses: float, params: dict[str, Any]) -> str:
    """Return the misses, both counts, and the ratios of the misses to them, as text."""
    counts = (counted_lines(params), fetched_lines(params))
    return f"{misses:9.0f}  " + "  ".join(f"{n:9.0f} {misses / n:6.3f}" for n in counts)


if __name__ == "__main__":
    parser = argument_parser(__doc__)
    parser.set_defaults(last_kib=LAST_KIB)
    sys.exit(cachegrind.main("products_cachegrind", parser, child, compare))
