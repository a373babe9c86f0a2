"""The U phase of the FMM on a GPU: ``gpu_fmm_u``."""

from __future__ import annotations

from kernels.cuda.fmm.u_phase import GpuFmmUParams, count_u_phase, u_metrics
from kernels.cuda.program import NEEDS
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared


def _prepare(params: GpuFmmUParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it."""
    from kernels.cuda.fmm.u_run import UPhaseRun  # noqa: PLC0415

    return UPhaseRun(params, team)


gpu_fmm_u = Kernel(
    name="gpu_fmm_u",
    summary="the U phase (P2P) of a fast multipole method on a GPU, in variants",
    counted="flops (sp or dp), reciprocal square roots (sfu), and a comparison and a selection a "
    "pair (int), as executed; bytes of shared memory by thread; bytes at l2 and dram as from a "
    "cold cache",
    classes=("sp", "dp", "sfu", "int", "shared", "l2", "dram"),
    params=GpuFmmUParams,
    counts=count_u_phase,
    metrics=u_metrics,
    prepare=_prepare,
    needs=NEEDS,
    imports=("kernels.fmm.tree.lists", "kernels.fmm.phases.u_schedule"),
)
