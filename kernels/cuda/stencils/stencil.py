"""A stencil over time on a GPU, in hexagonal tiles: ``gpu_stencil``."""

from __future__ import annotations

from kernels.cuda.architectures import processor_of
from kernels.cuda.program import NEEDS
from kernels.cuda.stencils.prisms import GpuStencilParams, count_prisms, prism_metrics, refusal
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared, not_compiled


def _prepare(params: GpuStencilParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it, or the
    loops that check it cannot be compiled."""
    try:
        import kernels.stencils.loops  # noqa: F401, PLC0415  (a plan must not import Numba)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    from kernels.cuda.stencils.stencil_run import StencilRun  # noqa: PLC0415

    return StencilRun(params, team)


def _refused_on(params: GpuStencilParams, architecture: str) -> str:
    return refusal(params, processor_of(architecture).block_shared_bytes)


gpu_stencil = Kernel(
    name="gpu_stencil",
    imports=("kernels.stencils.loops",),
    summary="a stencil over time (one or two dimensions) on a GPU, in hexagonal tiles",
    counted="additions and multiplications, bytes of shared and of global memory (dram), barriers "
    "of a block, launches; exact",
    classes=("sp_add", "sp_mul", "dp_add", "dp_mul", "shared", "dram", "barrier", "launch"),
    params=GpuStencilParams,
    counts=count_prisms,
    metrics=prism_metrics,
    timed=("tiles", "trips"),
    prepare=_prepare,
    needs=NEEDS,
    refused_on=_refused_on,
)
