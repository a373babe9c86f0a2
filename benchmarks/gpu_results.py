"""Does every GPU kernel run on this GPU and compute the right result?

    .venv/bin/python benchmarks/gpu_results.py [--only NAME] [--small]

Each kernel is prepared with many parameters (data of every kind; variants are drawn at random),
runs four times, and is checked as in a measurement: by NumPy, by direct sums, or by the plain loop.
With ``--small`` the problems are small, for programs that watch every access:

    compute-sanitizer --tool memcheck .venv/bin/python benchmarks/gpu_results.py --small

Parameters that this GPU cannot run are listed with the reason. It takes about a minute. Exits with
1 if a result is wrong, 2 if there is no GPU.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_compared import variants_of_example  # noqa: E402
from benchmarks.gpu_here import need_gpu  # noqa: E402
from benchmarks.shared import argument_parser  # noqa: E402
from kernels.host.ranks import Team  # noqa: E402
from kernels.kernel import KernelError, ResultError  # noqa: E402
from kernels.registry import find_kernel  # noqa: E402

Case = tuple[str, dict[str, Any]]
ROOTS = {"single": ("estimate", "newton1"), "double": ("newton1", "newton2", "cubic")}
SHAPES = ((1, 32, 1), (2, 64, 4), (4, 256, 8), (8, 512, 2))
"""``tile``, ``threads`` and ``unroll`` of direct sums."""
TILES = ((4, 8, 64), (8, 32, 96), (16, 8, 0))
"""``tile_t``, ``tile_1`` and ``tile_2`` of stencils."""
DISTRIBUTIONS = ("plummer", "sphere", "line", "equal")
REPEATS = 3


def microbenchmarks() -> Iterator[Case]:
    """Yield the cases of examples/gpu-microbenchmarks.toml, and values of every kind."""
    text = (ROOT / "examples/gpu-microbenchmarks.toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(text)["kernels"]:
        lists = [
            value if isinstance(value, list) else [value] for value in entry["params"].values()
        ]
        for values in itertools.product(*lists):
            yield entry["kernel"], dict(zip(entry["params"], values, strict=True))
    for data in ("zeros", "ones", "normal"):
        yield "gpu_fma", {"number": "sp", "data": data}
        yield "gpu_mma", {"number": "bf16", "instruction": "wgmma", "data": data}
    for chains in (1, 512):
        yield "gpu_chase", {"level": "dram", "chains": chains}


def products(small: bool) -> Iterator[Case]:
    """Yield variants of gpu_dgemm with tensor cores and without, one with a size that no tile
    divides, and cuBLAS."""
    n = 300 if small else 2048
    variants = variants_of_example(ROOT / "examples/gpu-dgemm.toml", 1 << 20)
    for by_tensor_cores in (True, False):
        chosen = [variant for variant in variants if (variant["mma"] != "none") == by_tensor_cores]
        for params in chosen[:12]:
            yield "gpu_dgemm", params | {"n": n}
    yield "gpu_dgemm", {"n": 257 if small else 1001}
    if not small:
        for number in ("sp", "dp", "half", "bf16"):
            yield "gpu_gemm", {"number": number, "n": n}


def stencils(small: bool) -> Iterator[Case]:
    """Yield each stencil in both precisions and three tilings, with sizes that no tile divides."""
    sizes = (2003, 203, 157) if small else (100_003, 1003, 517)
    for stencil, precision, tiles in itertools.product(
        ("j1d", "j2d", "h2d", "l2d", "g2d"), ("single", "double"), TILES
    ):
        params = {"stencil": stencil, "precision": precision, "steps": 37}
        params |= dict(zip(("tile_t", "tile_1"), tiles, strict=False))
        if stencil == "j1d":
            yield "gpu_stencil", params | {"size_1": sizes[0]}
        else:
            size = {"size_1": sizes[1], "size_2": sizes[2], "tile_2": tiles[2]}
            yield "gpu_stencil", params | size


def methods(small: bool) -> Iterator[Case]:
    """Yield variants of the U phase, and the whole method by digits, precision and distribution."""
    points = {"n": 3000, "q": 60} if small else {"n": 40_000, "q": 200}
    for precision, roots in ROOTS.items():
        for root, (tile, threads, unroll) in itertools.product(roots, SHAPES):
            shape = {"tile": tile, "threads": threads, "unroll": unroll}
            yield "gpu_fmm_u", {"precision": precision, "root": root} | shape | points
    for digits in (3, 4, 6, 8, 10):
        yield "gpu_fmm", {"digits": digits} | points
    for digits in (3, 4, 5):
        yield "gpu_fmm", {"digits": digits, "precision": "single"} | points
    for cells in (1, 2, 8):
        yield "gpu_fmm", {"digits": 4, "cells": cells} | points
    for kernel, distribution in itertools.product(("gpu_fmm_u", "gpu_fmm"), DISTRIBUTIONS):
        yield kernel, {"distribution": distribution} | points


def cases(small: bool = False) -> Iterator[Case]:
    """Yield all cases, or only those of small problems."""
    if not small:
        yield from microbenchmarks()
    yield from products(small)
    yield from stencils(small)
    yield from methods(small)


def tried(kernel_name: str, params: dict[str, Any]) -> tuple[str, str]:
    """Return ``ok``, ``cannot run`` or ``WRONG``, and the time of an iteration or the reason."""
    kernel = find_kernel(kernel_name)
    assert kernel.prepare is not None
    try:
        prepared = kernel.prepare(kernel.params.model_validate(params), Team())
    except KernelError as error:
        return "cannot run", str(error)
    try:
        prepared.run(1)
        begin_s = time.perf_counter()
        prepared.run(REPEATS)
        one_s = (time.perf_counter() - begin_s) / REPEATS
        prepared.check()
    except (KernelError, ResultError) as error:
        return "WRONG", str(error)
    finally:
        prepared.close()
    return "ok", f"{one_s * 1e3:.3f} ms"


def main() -> int:
    """Run all cases and print a line for each."""
    parser = argument_parser(__doc__)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--small", action="store_true", help="small problems")
    arguments = parser.parse_args()
    gpu = need_gpu()
    print(f"{gpu.gpus[0]}, driver {gpu.driver}, CUDA {gpu.cuda}")
    counts = {"ok": 0, "cannot run": 0, "WRONG": 0}
    for kernel, params in cases(arguments.small):
        if arguments.only not in kernel:
            continue
        state, note = tried(kernel, params)
        counts[state] += 1
        print(f"{state:10} {kernel} {json.dumps(params)}: {note}", flush=True)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
