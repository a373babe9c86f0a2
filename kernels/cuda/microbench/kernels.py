"""The microbenchmarks of a GPU, as kernels. CUDA is imported when one is prepared: a plan needs the
counts alone."""

from __future__ import annotations

from kernels.cuda.microbench.chains import GpuFmaParams, count_multiply_adds
from kernels.cuda.microbench.chase import GpuChaseParams, count_hops
from kernels.cuda.microbench.load import GpuLoadParams, count_loads
from kernels.cuda.microbench.mma import GpuMmaParams, count_products
from kernels.cuda.microbench.sfu import GpuSfuParams, count_values
from kernels.cuda.program import NEEDS
from kernels.host.ranks import Team
from kernels.kernel import Kernel, Prepared


def _prepare_fma(params: GpuFmaParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it."""
    from kernels.cuda.microbench.fma_run import FmaRun  # noqa: PLC0415

    return FmaRun(params, team)


def _prepare_load(params: GpuLoadParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it."""
    from kernels.cuda.microbench.load_run import LoadRun  # noqa: PLC0415

    return LoadRun(params, team)


def _prepare_chase(params: GpuChaseParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where no GPU can follow so many chains."""
    from kernels.cuda.microbench.chase_run import ChaseRun  # noqa: PLC0415

    return ChaseRun(params, team)


def _prepare_mma(params: GpuMmaParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where no GPU has such an instruction."""
    from kernels.cuda.microbench.mma_run import MmaRun  # noqa: PLC0415

    return MmaRun(params, team)


def _prepare_sfu(params: GpuSfuParams, team: Team) -> Prepared:
    """Raises :class:`kernels.kernel.KernelError` where there is no GPU that can run it."""
    from kernels.cuda.microbench.sfu_run import SfuRun  # noqa: PLC0415

    return SfuRun(params, team)


gpu_fma = Kernel(
    name="gpu_fma",
    summary="multiply-adds on a GPU with a chosen number for each word loaded",
    counted="two operations a multiply-add (sp, dp, half, int); 16-byte loads at the level",
    classes=("sp", "dp", "half", "int", "shared", "l1", "l2", "dram"),
    params=GpuFmaParams,
    counts=count_multiply_adds,
    prepare=_prepare_fma,
    needs=NEEDS,
)
gpu_load = Kernel(
    name="gpu_load",
    summary="sums of 4-byte integers that one level of a GPU's memory serves",
    counted="16-byte loads at the level; one addition (int) a word",
    classes=("int", "shared", "l1", "l2", "dram"),
    params=GpuLoadParams,
    counts=count_loads,
    prepare=_prepare_load,
    needs=NEEDS,
)
gpu_chase = Kernel(
    name="gpu_chase",
    summary="pointer chases through 128-byte lines that one level of a GPU's memory serves",
    counted="bytes of dependent loads at the level: a sector of 32 from l2 and dram, 4 from shared "
    "and l1",
    classes=("shared", "l1", "l2", "dram"),
    params=GpuChaseParams,
    counts=count_hops,
    prepare=_prepare_chase,
    needs=NEEDS,
)
gpu_mma = Kernel(
    name="gpu_mma",
    summary="matrix products of a GPU's tensor cores, from registers or from shared memory",
    counted="two operations a multiply-add (tc_dp, tc_half, tc_fp8)",
    classes=("tc_dp", "tc_half", "tc_fp8"),
    params=GpuMmaParams,
    counts=count_products,
    prepare=_prepare_mma,
    needs=NEEDS,
)
gpu_sfu = Kernel(
    name="gpu_sfu",
    summary="special functions on a GPU with a chosen number of multiply-adds for each",
    counted="one operation a special function (sfu), two a multiply-add (sp)",
    classes=("sfu", "sp"),
    params=GpuSfuParams,
    counts=count_values,
    prepare=_prepare_sfu,
    needs=NEEDS,
)
