"""Random variants of gpu_stencil, and many of them in one source, which compiles in less time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from kernels.cuda.program import Source
from kernels.cuda.stencils.prisms import CODES, FUNCTION, SOURCE, GpuStencilParams, prism_source


def drawn(count: int, seed: int, most: int, most_threads: int) -> list[GpuStencilParams]:
    """Random variants, all stencils in both precisions in turn; sizes and tiles to about ``most``
    points. Tiles may be larger than the grid."""
    rng = random.Random(seed)
    kinds = list(itertools.product(CODES, ("single", "double")))
    rng.shuffle(kinds)
    variants = []
    for stencil, precision in itertools.islice(itertools.cycle(kinds), count):
        two = stencil != "j1d"
        threads_2 = rng.randint(1, min(most_threads, 40)) if two else 0
        variants.append(
            GpuStencilParams(
                stencil=stencil,
                size_1=rng.randint(1, most if two else 5 * most),
                size_2=rng.randint(1, most) if two else 0,
                steps=rng.randint(1, 14),
                precision=precision,
                tile_t=2 * rng.randint(1, 5),
                tile_1=rng.randint(1, most // 3 + 1),
                tile_2=rng.choice([0, 1, rng.randint(1, most), rng.randint(1, most // 2)])
                if two
                else 0,
                threads_1=rng.randint(1, max(most_threads // max(threads_2, 1), 1)),
                threads_2=threads_2,
            )
        )
    return variants


def together(variants: Sequence[GpuStencilParams], path: Path) -> Source:
    """A source whose function number i, ``wavefront_i``, is that of the variant i."""
    lines = []
    for i, params in enumerate(variants):
        macros = {**prism_source(params).macros, FUNCTION: f"{FUNCTION}_{i}"}
        lines += [f"#define {name} {value}" for name, value in macros.items()]
        lines += [f"namespace variant_{i} {{", SOURCE.read_text(encoding="utf-8"), "}"]
        lines += [f"#undef {name}" for name in (*macros, "ADD", "SUB", "MUL")]
    path.write_text("\n".join(lines), encoding="utf-8")
    return Source(path=path, macros={"TOGETHER": 1})
