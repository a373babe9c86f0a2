"""The modelled bytes of ``stencil``, compared with valgrind's cache simulation, cachegrind.

    .venv/bin/python -m benchmarks.stencil_cachegrind [--last-kib 256]

The bytes that one iteration misses in the last cache (``benchmarks/cachegrind.py``) are compared
with the modelled bytes between memory and a tile's store (``dram``). The grids are several times as
large as the last cache, and a tile fits into it, as the model supposes; in the last case it does
not. Takes minutes.

Exits 0 when every ratio lies between 1 / 2 and 2 where a tile fits, and where it does not the
simulated bytes are more than twice the modelled ones; 1 otherwise; 2 where valgrind is missing.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any

from benchmarks import cachegrind
from benchmarks.cachegrind import FIRST_KIB, Simulation, compared
from benchmarks.shared import argument_parser

NAMES = ("stencil", "size_1", "size_2", "size_3", "steps", "tiling", "tile_t", "tile_1", "tile_2")
CASES: tuple[tuple[Any, ...], ...] = (
    ("j2d", 512, 512, 0, 8, "untiled", 0, 0, 0),
    ("j2d", 512, 512, 0, 16, "hexagonal", 8, 8, 128),
    ("j2d", 700, 600, 0, 16, "hexagonal", 16, 16, 256),
    ("h2d", 512, 512, 0, 16, "hexagonal", 4, 32, 512),
    ("h3d", 64, 64, 64, 8, "hexagonal", 4, 4, 16),
    ("j1d", 400000, 0, 0, 32, "hexagonal", 16, 1024, 0),
    ("j2d", 512, 512, 0, 16, "hexagonal", 16, 128, 0),
)
"""Values of :data:`NAMES`. The last one's tiles are larger than the last cache."""


def child(case: list[Any], iterations: int) -> None:
    """Prepare, run ``iterations`` times, and print the modelled bytes and a tile's."""
    from kernels.host.ranks import Team
    from kernels.stencils.kernel import stencil
    from kernels.stencils.params import StencilParams

    given = {name: value for name, value in zip(NAMES, case, strict=True) if value}
    params = StencilParams(**given)
    prepared = stencil.prepare(params, Team())
    prepared.run(iterations)
    print(json.dumps([prepared.counts()["dram"], stencil.metrics(params)["tile_bytes"]]))


def compare(arguments: Namespace, simulation: Simulation) -> bool:
    """Print the table and return whether every ratio is within bounds."""
    fine, last_kib = True, simulation.last_kib
    print(f"caches of {FIRST_KIB} and {last_kib} KiB; MB by the model / by the simulation")
    print("".join(f"{name:>10}" for name in NAMES) + "   tile KiB               from memory")
    for case in CASES:
        modelled, tile_bytes = simulation.printed(case)
        _, simulated = simulation.missed_bytes(case)
        text, is_within = compared(modelled, simulated)
        fits = case[5] == "untiled" or tile_bytes <= last_kib << 10
        fine &= is_within if fits else simulated > 2 * modelled
        print(
            "".join(f"{value:>10}" for value in case)
            + f"{tile_bytes / 1024:11.0f}  {text:>24}{'' if fits else '  does not fit'}",
            flush=True,
        )
    return fine


if __name__ == "__main__":
    parser = argument_parser(__doc__)
    parser.add_argument("--last-kib", type=int, default=256, help="size of the last cache, KiB")
    sys.exit(cachegrind.main("stencil_cachegrind", parser, child, compare))
