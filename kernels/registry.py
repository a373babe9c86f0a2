"""The registry of kernels, from this project and from installed packages
(:mod:`dvfs.registry`). A kernel's module is imported when the kernel is first used."""

from __future__ import annotations

from dvfs.registry import Registry
from kernels.kernel import Kernel

OURS = {
    "sp_fma": "kernels.microbench.fma:sp_fma",
    "dp_fma": "kernels.microbench.fma:dp_fma",
    "int_mad": "kernels.microbench.integer:int_mad",
    "load": "kernels.microbench.load:load",
    "chase": "kernels.microbench.chase:chase",
    "fmm": "kernels.fmm.kernel:fmm",
    "fmm_u": "kernels.fmm_u.kernel:fmm_u",
    "dgemm": "kernels.products.kernel:dgemm",
    "chain": "kernels.products.chain_kernel:chain",
    "stencil": "kernels.stencils.kernel:stencil",
    "gpu_fma": "kernels.cuda.microbench.fma:gpu_fma",
    "gpu_load": "kernels.cuda.microbench.load:gpu_load",
    "gpu_chase": "kernels.cuda.microbench.chase:gpu_chase",
    "gpu_mma": "kernels.cuda.microbench.mma:gpu_mma",
    "gpu_sfu": "kernels.cuda.microbench.sfu:gpu_sfu",
    "gpu_gemm": "kernels.cuda.products.gemm:gpu_gemm",
    "gpu_dgemm": "kernels.cuda.products.dgemm:gpu_dgemm",
    "gpu_stencil": "kernels.cuda.stencils.stencil:gpu_stencil",
    "gpu_fmm": "kernels.cuda.fmm.kernel:gpu_fmm",
    "gpu_fmm_u": "kernels.cuda.fmm.u_phase:gpu_fmm_u",
    "cuda_dgemm": "kernels.cuda.products.k20x:cuda_dgemm",
    "cuda_stencil": "kernels.cuda.stencils.counted:cuda_stencil",
    "command": "kernels.command:command",
    "idle": "kernels.idle:idle",
}
KERNELS = Registry("kernels", OURS)


def find_kernel(name: str) -> Kernel:
    """The kernel registered as ``name``.

    Raises:
        KeyError: there is no such kernel.
        UserError: the kernel is of an installed package and cannot be loaded.
    """
    kernel: Kernel = KERNELS.load(name)
    return kernel
