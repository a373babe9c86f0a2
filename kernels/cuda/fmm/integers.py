"""All integer instructions of ``gpu_fmm``, including those for addresses and loops.

They are counted in the machine code for :data:`ARCHITECTURE`. For each loop depth, the listing
gives the number of integer instructions in one pass, and the lists of the step give the number of
passes. Additions, multiplications, shifts, logic, comparisons and selections are counted, moves are
not. An instruction that a warp executes once for all lanes counts as 1 / 32 for each lane.
Predicated instructions count as executed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from kernels.cuda.fmm import hadamard, product
from kernels.cuda.fmm.direct import DirectVariant
from kernels.cuda.fmm.plan import DirectStep, Plan, SpectraStep, Step
from kernels.cuda.listing import Function, disassemble, read_listing
from kernels.cuda.processor import WARP
from kernels.cuda.program import Source, compile_program

ARCHITECTURE = "sm_80"
"""The architecture of the machine code on every machine, so that a plan and a measurement have the
same counts."""
INTEGER = {"IADD", "IADD3", "IMAD", "LEA", "LOP3", "SHF", "ISETP", "SEL", "IMNMX", "FSETP", "FSEL"}
"""Opcodes of integer instructions; with the prefix U a warp executes them once. FSETP and FSEL, the
comparison and selection of single precision, count as int in all kernels."""


def integer_instructions(step: Step, source: Source, name: str, plan: Plan) -> float:
    """The number of integer instructions that all threads execute in a step.

    Raises:
        KernelError: the compiler or ``nvdisasm`` is missing.
    """
    code = _function(source, name)
    if isinstance(step, DirectStep):
        passes = _direct_passes(step, plan.variant)
    elif isinstance(step, SpectraStep):
        blocks = plan.slabs.frequencies // hadamard.slice_frequencies(plan.variant.dtype.itemsize)
        threads = blocks * hadamard.THREADS
        passes = [threads * len(step.tiles.rows_out), threads * len(step.tiles.operator_of)]
    else:
        tiles, side = step.product.tiles, product.SIDE
        threads = plan.width(step.out) // side * product.THREADS
        entries = threads * len(tiles.operator_of)
        pieces = entries * (plan.width(step.source) // side)
        passes = [threads * len(tiles.rows_out), entries, pieces, pieces * (side // product.UNROLL)]
    depths = len(passes) - 1
    each = [_integers(code, depth, depths) for depth in range(len(passes))]
    return float(np.dot(each, passes))


def _direct_passes(step: DirectStep, variant: DirectVariant) -> list[int]:
    """The numbers of threads, of chunks that they process, and of passes of the inner loop."""
    jobs = step.jobs
    passes = jobs.warp_chunks(variant.tile) * WARP * (variant.threads // variant.unroll)
    return [len(jobs.jobs) * variant.threads, jobs.chunks * variant.threads, passes]


def _integers(code: Function, depth: int, depths: int) -> float:
    """The integer instructions in one pass through the loop bodies of a depth, without the loops
    inside."""
    total = 0.0
    for name, count in code.executed(depth, [0] * (depths - depth)).items():
        opcode = name.split(".", 1)[0]
        if "MOV" in name:
            continue
        if opcode in INTEGER:
            total += count
        elif opcode[0] == "U" and opcode[1:] in INTEGER:
            total += count / WARP
    return total


def _function(source: Source, name: str) -> Function:
    return _functions(source.path, tuple(source.macros.items()))[name]


@cache
def _functions(path: Path, macros: tuple[tuple[str, int | str], ...]) -> dict[str, Function]:
    program = compile_program(Source(path=path, macros=dict(macros)), ARCHITECTURE)
    return read_listing(disassemble(program.cubin))
