"""Random variants of the GPU's matrix product."""

from __future__ import annotations

import random

from kernels.cuda.products.dgemm import GpuDgemmParams

THREAD_SHAPES = [(8, 4), (4, 16), (16, 6), (8, 16), (16, 16), (32, 8), (64, 4), (24, 12), (32, 16)]


def drawn(
    count: int, seed: int, most_threads: int = 512, most_sums: int = 48
) -> list[GpuDgemmParams]:
    """Random variants, half of them with simd; few enough sums for a block's registers."""
    rng = random.Random(seed)
    variants: list[GpuDgemmParams] = []
    while len(variants) < count:
        dim_m, dim_n = rng.choice(THREAD_SHAPES)
        rows, columns = rng.randint(1, 8), rng.randint(1, 8)
        blk_m, blk_n, blk_k = dim_m * rows, dim_n * columns, rng.randint(1, 32)
        threads, simd = dim_m * dim_n, len(variants) % 2
        numbers = 1 + simd
        shapes = [(m, threads // m) for m in range(1, threads + 1) if threads % m == 0]
        of_a = [s for s in shapes if blk_m % (numbers * s[0]) == 0 and blk_k % s[1] == 0]
        of_b = [s for s in shapes if blk_k % (numbers * s[0]) == 0 and blk_n % s[1] == 0]
        if not of_a or not of_b or threads > most_threads or rows * columns > most_sums:
            continue
        if threads > 256 and rows * columns > 30:
            continue
        (m_a, n_a), (m_b, n_b) = rng.choice(of_a), rng.choice(of_b)
        variants.append(
            GpuDgemmParams(
                n=rng.randint(1, 5000),
                dim_m=dim_m,
                dim_n=dim_n,
                blk_m=blk_m,
                blk_n=blk_n,
                blk_k=blk_k,
                m_a=m_a,
                n_a=n_a,
                m_b=m_b,
                n_b=n_b,
                simd=simd,
            )
        )
    return variants


def drawn_with(mma: str, seed: int) -> GpuDgemmParams:
    """A random variant by tensor cores, of few enough numbers for a thread's registers."""
    rng = random.Random(seed)
    k = int(mma.partition("n8k")[2])
    warps_m, warps_n = rng.choice([(1, 2), (2, 1), (2, 2), (4, 2)])
    threads = 32 * warps_m * warps_n
    blk_m, blk_n = warps_m * 16 * rng.randint(1, 2), warps_n * 8 * rng.randint(1, 4)
    blk_k = 2 * k * rng.randint(1, 2) if k > 4 else 8 * rng.randint(1, 3)
    of_a = [m_a for m_a in (8, 16) if blk_m % (2 * m_a) == 0 and blk_k % (threads // m_a) == 0]
    of_b = [m_b for m_b in (2, 4, 8) if blk_k % (2 * m_b) == 0 and blk_n % (threads // m_b) == 0]
    if not of_a or not of_b:
        return drawn_with(mma, seed + 1000)
    m_a, m_b = rng.choice(of_a), rng.choice(of_b)
    return GpuDgemmParams(
        n=rng.randint(1, 5000),
        dim_m=8 * warps_m,
        dim_n=4 * warps_n,
        blk_m=blk_m,
        blk_n=blk_n,
        blk_k=blk_k,
        m_a=m_a,
        n_a=threads // m_a,
        m_b=m_b,
        n_b=threads // m_b,
        simd=1,
        mma=mma,
        stages=rng.randint(2, 5),
        band=rng.choice([0, 8]),
    )
