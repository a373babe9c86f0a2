"""Multiply-adds on a GPU, with a chosen number for each word loaded: ``gpu_fma``."""

from __future__ import annotations

from kernels.cuda.microbench.chains import GpuFmaParams, count_multiply_adds
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared


def _prepare(params: GpuFmaParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelFailed` where there is no GPU that can run it."""
    from kernels.cuda.microbench.fma_run import FmaRun  # noqa: PLC0415

    return FmaRun(params, team)


gpu_fma = Kernel(
    name="gpu_fma",
    summary="multiply-adds on a GPU with a chosen number for each word loaded",
    counted="two operations a multiply-add (sp, dp, half, int); 16-byte loads at the level",
    classes=("sp", "dp", "half", "int", "shared", "l1", "l2", "dram"),
    params=GpuFmaParams,
    counts=count_multiply_adds,
    prepare=_prepare,
)
