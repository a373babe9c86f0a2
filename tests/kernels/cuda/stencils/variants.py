"""Random variants of gpu_stencil."""

from __future__ import annotations

import itertools
import random

from kernels.cuda.stencils.stencil import CODES, GpuStencilParams


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
