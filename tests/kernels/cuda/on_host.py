"""CUDA sources compiled for the host, and their machine code for GPUs."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path

from kernels.cuda.listing import Function, disassemble, read_listing
from kernels.cuda.program import FunctionUse, Source, compile_program

HERE = Path(__file__).parent
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")


def host_library(source: Source, wrapper: str, folder: Path) -> ctypes.CDLL:
    """The source compiled through a file beside this one, which includes it; kept in ``folder``."""
    macros = "-".join(map(str, source.macros.values()))
    library = folder / f"{source.path.stem}-{macros}.so"
    if not library.exists():
        subprocess.run(
            ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", *source.options,
             f'-DSOURCE="{source.path}"', "-o", str(library), str(HERE / wrapper)],
            check=True,
        )  # fmt: skip
    return ctypes.CDLL(str(library))


def compiled(source: Source, function: str, architecture: str) -> tuple[Function, FunctionUse]:
    """A function's machine code for a GPU, and what it needs."""
    program = compile_program(source, architecture)
    return _listing(program.cubin)[function], program.functions[function]


@cache
def _listing(cubin: bytes) -> dict[str, Function]:
    return read_listing(disassemble(cubin))
