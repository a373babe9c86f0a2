"""The matrix product C = C + A B in double precision on a GPU, in variants: ``gpu_dgemm``."""

from __future__ import annotations

from kernels.cuda.products.dgemm_counts import GpuDgemmParams, count_planned, planned_metrics
from kernels.cuda.program import NEEDS
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared


def _prepare(params: GpuDgemmParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it."""
    from kernels.cuda.products.dgemm_run import DgemmRun  # noqa: PLC0415

    return DgemmRun(params, team)


def _refused_on(params: GpuDgemmParams, architecture: str) -> str:
    from kernels.cuda.products.launchable import lacking, variant_use  # noqa: PLC0415

    return lacking(params, architecture) or variant_use(params, architecture).refusal


gpu_dgemm = Kernel(
    name="gpu_dgemm",
    summary="a GPU's tiled matrix product in double precision, C = C + A B, in variants",
    counted="flops of whole tiles (dp; by tensor cores tc_dp) and bytes of shared memory, exact; "
    "bytes of global memory, divided into l2 and dram by a model",
    classes=("dp", "tc_dp", "shared", "l2", "dram"),
    params=GpuDgemmParams,
    counts=count_planned,
    metrics=planned_metrics,
    prepare=_prepare,
    needs=NEEDS,
    refused_on=_refused_on,
)
