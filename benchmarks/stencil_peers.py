"""Tiled stencils compared with plain loops in C and with Devito.

    .venv/bin/python -m benchmarks.stencil_peers [--rounds 5] [--devito PYTHON]

j2d in single precision, 4,096 x 4,096 points, 32 steps: untiled and in hexagonal tiles, compared
with the plain loop in benchmarks/peers/stencil_loops.c, built by gcc -O3 -march=native. h3d, 256
points along each axis: tiled compared with untiled. sw, 8,192 letters each: tiled compared with the
plain loop by rows in C. All run on one thread, in CPU time, in turn; the ratios are medians over
the rounds. A first round chooses the best tiles. At the end come wall times of one thread and of
two, which need two free cores.

Devito is not part of the project: ``python3 -m venv PEER && PEER/bin/pip install devito==4.8.23``,
and then ``--devito PEER/bin/python``.

Exits 0 if untiled j2d is at least as fast as the plain loop, the best tiles 2.5 times as fast
(and 3 times as fast as Devito, if given), tiled h3d 1.3 times as fast as untiled, and sw 3 times as
fast as the plain loop; else 1.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from operator import truediv
from pathlib import Path
from typing import Any

from benchmarks.shared import ROOT, argument_parser, interleaved, seconds_of
from kernels.host.ranks import Team
from kernels.stencils.kernel import stencil
from kernels.stencils.params import StencilParams

J2D: dict[str, Any] = {"stencil": "j2d", "size_1": 4096, "size_2": 4096, "steps": 32}
H3D: dict[str, Any] = {"stencil": "h3d", "size_1": 256, "size_2": 256, "size_3": 256, "steps": 16}
SW: dict[str, Any] = {"stencil": "sw", "size_1": 8192, "steps": 8192}
J2D_TILES = [
    {"tile_t": tile_t, "tile_1": tile_1, "tile_2": tile_2}
    for tile_t, tile_1, tile_2 in product((16, 32, 64), (16, 32, 64), (512, 1024, 2048))
]
H3D_TILES = [
    {"tile_t": tile_t, "tile_1": tile_1, "tile_2": tile_2, "tile_3": tile_3}
    for tile_t, tile_1, tile_2, tile_3 in product((4, 8), (4, 8, 16), (8, 16, 32), (128, 256))
]
SW_TILES = [
    {"tile_t": tile_t, "tile_1": tile_1, "subtile": subtile}
    for tile_t, tile_1, subtile in product((1024,), (2048, 8192), (128, 256, 512, 1024))
]
DEVITO = """
import sys, time
import numpy as np
from devito import Eq, Grid, Operator, TimeFunction, configuration
configuration["log-level"] = "ERROR"
n, steps = int(sys.argv[1]), int(sys.argv[2])
grid = Grid(shape=(n, n), extent=(n - 1, n - 1), dtype=np.float32)
u = TimeFunction(name="u", grid=grid, time_order=1, space_order=2)
u.data[:] = np.random.default_rng(0).random((n, n), np.float32)
x, y, h_x, h_y = *grid.dimensions, *grid.spacing_symbols
around = (u + u.subs(x, x + h_x) + u.subs(x, x - h_x) + u.subs(y, y + h_y) + u.subs(y, y - h_y))
operator = Operator([Eq(u.forward, 0.2 * around)])
operator.apply(time_M=1)
begin = time.process_time()
operator.apply(time_M=steps - 1)
print(time.process_time() - begin)
"""


def seconds(problem: dict[str, Any], tiling: str, tiles: dict[str, int]) -> Callable[[], float]:
    """Return a function that runs one iteration and returns its CPU seconds."""
    params = StencilParams(**problem, **({"tiling": tiling} | tiles if tiles else {}))
    prepared = stencil.prepare(params, Team())
    return partial(seconds_of, partial(prepared.run, 1), time.process_time)


def best_tiles(problem: dict[str, Any], tiling: str, tried: list[dict[str, int]]) -> dict[str, int]:
    """Return the tiles with the least CPU time, from one run each after a first."""
    return min(tried, key=lambda tiles: seconds(problem, tiling, tiles)())


def built(folder: Path) -> Path:
    """Compile the plain loops in C; return the program."""
    program = folder / "loops"
    source = ROOT / "benchmarks" / "peers" / "stencil_loops.c"
    options = ["-O3", "-march=native", "-std=c99", "-D_POSIX_C_SOURCE=199309L"]
    subprocess.run(["gcc", *options, "-o", program, source], check=True)
    return program


def printed_s(*command: str | Path) -> float:
    """Return the median of the seconds that a program prints."""
    process = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return statistics.median(float(line) for line in process.stdout.split())


def compare(
    title: str, points: float, contenders: dict[str, Callable[[], float]], rounds: int
) -> dict[str, float]:
    """Run the contenders in turn; print and return the speed of each, relative to the first."""
    times_s = interleaved(contenders, rounds)
    first = next(iter(contenders))
    ratios = {
        name: statistics.median(map(truediv, times_s[first], times_s[name])) for name in contenders
    }
    for name, ratio in ratios.items():
        rate = points / statistics.median(times_s[name]) / 1e9
        print(
            f"{title:4} {name:60} {rate:6.2f} billion points a second, {ratio:5.2f} times {first}"
        )
    return ratios


def two_threads(problem: dict[str, Any], tiling: str, tiles: dict[str, int], rounds: int) -> float:
    """Return how many times as fast two threads are as one, by wall time."""
    one, two = (
        stencil.prepare(StencilParams(**problem, tiling=tiling, **tiles, threads=threads), Team())
        for threads in (1, 2)
    )
    calls = {"one": partial(one.run, 3), "two": partial(two.run, 3)}
    times_s = interleaved({name: partial(seconds_of, run) for name, run in calls.items()}, rounds)
    return statistics.median(map(truediv, *times_s.values()))


def main() -> None:
    """Measure, print, and exit with the verdict."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devito", metavar="PYTHON")
    arguments = parser.parse_args()
    right = []
    with tempfile.TemporaryDirectory() as folder:
        plain = built(Path(folder))
        tiles = best_tiles(J2D, "hexagonal", J2D_TILES)
        contenders = {
            "plain loop in C": lambda: printed_s(plain, "j2d", "4096", "32", "1"),
            "untiled": seconds(J2D, "untiled", {}),
            f"hexagonal {tiles}": seconds(J2D, "hexagonal", tiles),
        }
        if arguments.devito:
            script = [arguments.devito, "-c", DEVITO, "4096", "32"]
            contenders["Devito"] = lambda: printed_s(*script)
        ratios = list(compare("j2d", 4096**2 * 32, contenders, arguments.rounds).values())
        right += [ratios[1] >= 1.0, ratios[2] >= 2.5]
        if arguments.devito:
            print(f"j2d  hexagonal: {ratios[2] / ratios[3]:.2f} times Devito")
            right.append(ratios[2] >= 3.0 * ratios[3])
        h3d_tiles = best_tiles(H3D, "hexagonal", H3D_TILES)
        contenders = {
            "untiled": seconds(H3D, "untiled", {}),
            f"hexagonal {h3d_tiles}": seconds(H3D, "hexagonal", h3d_tiles),
        }
        ratios = list(compare("h3d", 256**3 * 16, contenders, arguments.rounds).values())
        right.append(ratios[1] >= 1.3)
        sw_tiles = best_tiles(SW, "orthogonal", SW_TILES)
        contenders = {
            "plain loop in C": lambda: printed_s(plain, "sw", "8192", "0", "1"),
            f"orthogonal {sw_tiles}": seconds(SW, "orthogonal", sw_tiles),
        }
        ratios = list(compare("sw", 8192**2, contenders, arguments.rounds).values())
        right.append(ratios[1] >= 3.0)
    load = os.getloadavg()[0]
    sw_tiles = {"tile_1": 512, "tile_t": 512, "subtile": 512}  # many tiles in a wavefront
    for problem, tiling, chosen_tiles in ((J2D, "hexagonal", tiles), (SW, "orthogonal", sw_tiles)):
        times = two_threads(problem, tiling, chosen_tiles, arguments.rounds)
        print(f"{problem['stencil']:4} two threads {times:.2f} times one (load {load:.1f})")
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
