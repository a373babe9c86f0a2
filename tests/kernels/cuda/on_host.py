"""CUDA sources compiled for the host, and their machine code for GPUs."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernels.cuda.listing import Function, disassemble, read_listing
from kernels.cuda.program import FunctionUse, Source, compile_program
from tests.session_folder import made_once

HERE = Path(__file__).parent
FLAGS = ("-std=c++20", "-O0", "-w", "-fPIC", "-pthread", "-ffp-contract=off")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(")


def host_library(source: Source, wrapper: str, folder: Path, **macros: int) -> ctypes.CDLL:
    """The source compiled with more macros through a file below this folder, which includes it;
    kept in ``folder``."""
    values = "-".join(map(str, source.macros.values()))
    library = folder / f"{source.path.stem}-{values}.so"
    if not library.exists():
        headers = made_once("headers", _compile_headers) / "standard.h"
        more = [*source.options, *(f"-D{name}={value}" for name, value in macros.items())]
        subprocess.run(
            ["g++", *FLAGS, "-shared", "-include", str(headers), *more,
             f'-DSOURCE="{source.path}"', "-o", str(library), str(HERE / wrapper)],
            check=True,
        )  # fmt: skip
    return ctypes.CDLL(str(library))


def _compile_headers(folder: Path) -> None:
    """Those of the C++ library that all wrappers include: half of the time that a wrapper takes."""
    lines = re.findall("^#include <.*>$", (HERE / "host.h").read_text(), re.MULTILINE)
    path = folder / "standard.h"
    path.write_text("\n".join([*lines, ""]))
    subprocess.run(["g++", *FLAGS, "-x", "c++-header", "-o", f"{path}.gch", str(path)], check=True)


def compiled(source: Source, function: str, architecture: str) -> tuple[Function, FunctionUse]:
    """A function's machine code for a GPU, and what it needs."""
    program = compile_program(source, architecture)
    return _listing(program.cubin)[function], program.functions[function]


def compiled_together(
    functions: Sequence[tuple[Source, str]], architecture: str, folder: Path
) -> list[tuple[Function, FunctionUse]]:
    """Functions of sources, each as :func:`compiled` gives it. All are compiled as one program, in
    ``folder``: a start of the disassembler takes half a second."""
    source = together([source for source, _ in functions], folder / "together.cu")
    program = compile_program(source, architecture)
    listing = _listing(program.cubin)
    names = [f"{name}_{i}" for i, (_, name) in enumerate(functions)]
    return [(listing[name], program.functions[name]) for name in names]


def together(sources: Sequence[Source], path: Path) -> Source:
    """The sources as one, kept at ``path``. Functions of the first get _0 at the end of their
    names, those of the second _1, and so on."""
    parts = []
    for i, source in enumerate(sources):
        own, macros = source.path.read_text(encoding="utf-8"), {**source.macros}
        macros |= {name: f"{name}_{i}" for name in _FUNCTION.findall(own)}
        parts += [f"#define {name} {value}" for name, value in macros.items()]
        parts += [f"namespace source_{i} {{", own, "}"]
        parts += [f"#undef {name}" for name in {*macros, *_MACRO.findall(own)}]
    path.write_text("\n".join(parts), encoding="utf-8")
    return Source(path=path, macros={}, specific=any(source.specific for source in sources))


@cache
def _listing(cubin: bytes) -> dict[str, Function]:
    return read_listing(disassemble(cubin))
