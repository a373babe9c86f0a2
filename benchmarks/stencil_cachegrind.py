"""The modelled bytes of ``stencil``, compared with valgrind's cache simulation, cachegrind.

As in ``fmm_cachegrind``: the misses of one iteration are a tenth of the difference between eleven
iterations and one. Lines that miss the last cache, times their 64 bytes, are compared with the
modelled bytes between memory and a tile's store (``dram``). The grids are several times as large as
the last cache, and a tile fits into it, as the model supposes; in the last case it does not.

Run from the root of the repository, with valgrind installed (minutes):

    .venv/bin/python benchmarks/stencil_cachegrind.py [--last-kib 256]

Exits 0 when every ratio lies between 1 / 2 and 2 where a tile fits, and where it does not the
simulated bytes are more than twice the modelled ones; 1 otherwise; 2 where valgrind is missing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.fmm_cachegrind import FEW, FIRST_KIB, compared, missed, run  # noqa: E402

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


def params_of(values: list[str]) -> Any:
    """Return the kernel's parameters of a case."""
    from kernels.stencils.params import StencilParams

    params: dict[str, Any] = dict(zip(NAMES, values, strict=True))
    whole = {name: int(value) for name, value in params.items() if value.isdigit() and int(value)}
    texts = {name: params[name] for name in ("stencil", "tiling")}
    return StencilParams(**texts, **whole)


def child(values: list[str], iterations: int) -> None:
    """Prepare, run ``iterations`` times, and print the modelled bytes and a tile's."""
    from kernels.host.ranks import Team
    from kernels.stencils.kernel import stencil

    params = params_of(values)
    assert stencil.prepare is not None and stencil.metrics is not None
    prepared = stencil.prepare(params, Team())
    prepared.run(iterations)
    counts = prepared.counts() or {}
    print(json.dumps([counts["dram"], stencil.metrics(params)["tile_bytes"]]))


def compare(last_kib: int, folder: str) -> bool:
    """Print the table and return whether every ratio is within bounds."""
    fine = True
    print(f"caches of {FIRST_KIB} and {last_kib} KiB; MB by the model / by the simulation")
    print("".join(f"{name:>10}" for name in NAMES) + "   tile KiB               from memory")
    for case in CASES:
        arguments = [*map(str, case)]
        modelled, tile_bytes = json.loads(run([*arguments, str(FEW)], [], folder, __file__).stdout)
        misses = missed(arguments, last_kib, folder, __file__)
        simulated = misses["DLmr"] + misses["DLmw"]
        text, is_within = compared(modelled, simulated)
        fits = case[5] == "untiled" or tile_bytes <= last_kib << 10
        fine &= is_within if fits else simulated > 2 * modelled
        print(
            "".join(f"{value:>10}" for value in case)
            + f"{tile_bytes / 1024:11.0f}  {text:>24}{'' if fits else '  does not fit'}",
            flush=True,
        )
    return fine


def main() -> int:
    """Print the table; returns the exit code."""
    if sys.argv[1:2] == ["--child"]:
        *values, iterations = sys.argv[2:]
        child(values, int(iterations))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--last-kib", type=int, default=256, help="size of the last cache, KiB")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (Debian: apt-get install valgrind)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="stencil-cachegrind-") as folder:
        return 0 if compare(options.last_kib, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
