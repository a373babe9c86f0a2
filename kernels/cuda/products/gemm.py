"""The matrix product C = A B of NVIDIA's library cuBLAS: ``gpu_gemm``."""

from __future__ import annotations

from kernels.cuda.products.gemm_counts import CUBLAS_REMEDY, GpuGemmParams, count_gemm
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared


def _prepare(params: GpuGemmParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU, or no cuBLAS."""
    from kernels.cuda.products.gemm_run import GemmRun  # noqa: PLC0415

    return GemmRun(params, team)


gpu_gemm = Kernel(
    name="gpu_gemm",
    summary="the matrix product of cuBLAS, C = A B, beside which gpu_dgemm can be seen",
    counted="flops, 2 n^3 (sp, dp, or tc_half of half and bf16); the bytes that DRAM must move",
    classes=("sp", "dp", "tc_half", "dram"),
    params=GpuGemmParams,
    counts=count_gemm,
    prepare=_prepare,
    needs=(f"an NVIDIA GPU, and cuBLAS: {CUBLAS_REMEDY}",),
)
