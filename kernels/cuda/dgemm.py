"""``cuda_dgemm``: the matrix product C = C + A B in double precision on a GPU, in variants."""

from __future__ import annotations

from kernels.cuda.dgemm_counts import count_tiles, launch_metrics
from kernels.cuda.dgemm_variants import CudaDgemmParams
from kernels.kernel import Kernel

cuda_dgemm = Kernel(
    name="cuda_dgemm",
    summary="a GPU's tiled matrix product, C = C + A B, in variants; counted only, no program yet",
    counted="flops (dp), 2 n^3; bytes of shared memory, L2 and DRAM, and stalled cycles, by a "
    "model of a Tesla K20X",
    classes=("dp", "shared", "l2", "dram", "stall"),
    params=CudaDgemmParams,
    counts=count_tiles,
    metrics=launch_metrics,
    prepare=None,
)
