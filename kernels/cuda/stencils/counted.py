"""``cuda_stencil``: operation counts of the kernel ``stencil`` in GPU tiles, for simulated
machines."""

from __future__ import annotations

from kernels.kernel import Kernel
from kernels.stencils.counts import count_stencil, stencil_metrics
from kernels.stencils.params import StencilParams


def count_tiles(params: StencilParams) -> dict[str, float]:
    """As :func:`kernels.stencils.counts.count_stencil`; the bytes that a tile's store serves count
    as shared memory."""
    counts = count_stencil(params)
    return {("shared" if name == "l1" else name): count for name, count in counts.items()}


cuda_stencil = Kernel(
    name="cuda_stencil",
    summary="all variants of stencil on a GPU, for simulated machines only",
    counted="as stencil, with bytes of shared memory instead of l1; exact",
    classes=(
        *("sp_add", "sp_mul", "dp_add", "dp_mul", "int_add", "int_max"),
        *("shared", "dram", "barrier", "launch"),
    ),
    params=StencilParams,
    counts=count_tiles,
    metrics=stencil_metrics,
    timed=("tiles", "loops"),
    prepare=None,
)
