"""``cuda_dgemm``: the matrix product of Anzt et al. 2015 on a simulated Tesla K20X."""

from __future__ import annotations

from kernels.cuda.products.k20x_counts import CudaDgemmParams, count_tiles, launch_metrics
from kernels.kernel import Kernel

cuda_dgemm = Kernel(
    name="cuda_dgemm",
    summary="a Tesla K20X's matrix product, C = C + A B, in variants; counted only: see gpu_dgemm",
    counted="flops (dp), 2 n^3; bytes of shared memory, L2 and DRAM, and stalled cycles, by a "
    "model of a Tesla K20X",
    classes=("dp", "shared", "l2", "dram", "stall"),
    params=CudaDgemmParams,
    counts=count_tiles,
    metrics=launch_metrics,
    prepare=None,
)
