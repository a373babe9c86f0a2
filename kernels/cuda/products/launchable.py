"""What the variants of ``gpu_dgemm`` need, by the compiler, and which of them can be launched.

Neither a GPU nor a driver is needed: a variant's registers, spills and shared memory are known
before it runs. (Anzt et al. 2015 choose variants by estimates of them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernels.cuda.architectures import processor_of
from kernels.cuda.products.dgemm_counts import FUNCTION, GpuDgemmParams, dgemm_source
from kernels.cuda.program import FunctionUse, compile_program
from kernels.kernel import KernelError


@dataclass(frozen=True, kw_only=True)
class VariantUse:
    """What a variant needs: ``registers`` and ``spilled_bytes`` a thread, ``threads`` and
    ``shared_bytes`` a block; ``resident_blocks``: how many a processor runs at a time. ``refusal``
    says why the variant is left out; empty where it is not."""

    registers: int
    spilled_bytes: int
    threads: int
    shared_bytes: int
    resident_blocks: int
    refusal: str


def variant_use(params: GpuDgemmParams, architecture: str) -> VariantUse:
    """What a variant needs on an architecture, such as ``sm_90``.

    Raises:
        kernels.kernel.KernelError: the architecture is not known, has not the instruction, or there
            is no compiler for it.
    """
    processor = processor_of(architecture)
    if why := lacking(params, architecture):
        raise KernelError(why)
    use = compile_program(dgemm_source(params), architecture).functions[FUNCTION]
    threads, shared_bytes = params.threads(), params.shared_bytes()
    return VariantUse(
        registers=use.registers,
        spilled_bytes=use.spilled_bytes,
        threads=threads,
        shared_bytes=shared_bytes,
        resident_blocks=processor.resident_blocks(threads, use.registers, shared_bytes),
        refusal=refusal(params, use, processor.block_shared_bytes),
    )


def lacking(params: GpuDgemmParams, architecture: str) -> str:
    """Which instruction of the variant the architecture has not; empty where it has all."""
    capability, needed = int(architecture.removeprefix("sm_")), 80 if params.mma == "m8n8k4" else 90
    if params.mma == "none" or capability >= needed:
        return ""
    other = "m8n8k4 or none" if capability >= 80 else "none"
    return f"mma {params.mma} needs sm_{needed} or later, not {architecture}: choose {other}"


def refusal(params: GpuDgemmParams, use: FunctionUse, block_shared_bytes: int) -> str:
    """Why a variant is not launched on a GPU whose blocks have at most so many bytes of shared
    memory; empty where it is."""
    if (shared_bytes := params.shared_bytes()) > block_shared_bytes:
        return (
            f"it cannot be launched: a block needs {shared_bytes} bytes of shared memory, and this "
            f"GPU's have at most {block_shared_bytes}; make blk_m, blk_n"
            f"{' or blk_k' if params.mma == 'none' else ', blk_k or stages'} smaller"
        )
    if use.spilled_bytes:
        rows, columns = params.sums()
        return (
            f"the registers of a block of {params.threads()} threads do not suffice for {rows} x "
            f"{columns} sums of each: the compiler uses {use.registers} registers a thread and "
            f"spills {use.spilled_bytes} bytes to memory, so that more would be moved than is "
            f"counted; make blk_m or blk_n smaller, or a block's threads fewer"
        )
    return ""


def with_use(
    variants: Iterable[GpuDgemmParams], architecture: str
) -> Iterator[tuple[GpuDgemmParams, VariantUse]]:
    """Each variant with what it needs. Compiling takes some tenths of a second the first time."""
    for params in variants:
        yield params, variant_use(params, architecture)
