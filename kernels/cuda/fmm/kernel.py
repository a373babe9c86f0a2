"""The fast multipole method on a GPU: ``gpu_fmm``."""

from __future__ import annotations

from kernels.cuda.fmm.evaluation import GpuFmmParams, count_evaluation, count_phases, fmm_metrics
from kernels.cuda.program import NEEDS
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared


def _prepare(params: GpuFmmParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it."""
    from kernels.cuda.fmm.run import FmmRun  # noqa: PLC0415

    return FmmRun(params, team)


gpu_fmm = Kernel(
    name="gpu_fmm",
    summary="a fast multipole method on a GPU, its phases marked",
    counted="flops (sp or dp), reciprocal square roots (sfu), and a comparison and a selection "
    "a pair (int), as executed; bytes of shared memory by thread; bytes at l2 and dram, each "
    "launch as from a cold cache",
    classes=("sp", "dp", "sfu", "int", "shared", "l2", "dram"),
    params=GpuFmmParams,
    counts=count_evaluation,
    phases=count_phases,
    metrics=fmm_metrics,
    prepare=_prepare,
    needs=NEEDS,
    imports=("kernels.fmm.tree.lists", "kernels.fmm.phases.v_m2l"),
)
