"""CUDA sources compiled for the host by g++, with the headers beside this file."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from kernels.cuda.program import Source

HERE = Path(__file__).parent


def compiled_for_host(source: Source, text: str, folder: Path) -> ctypes.CDLL:
    """``source``, included by the file ``text`` of this folder; kept in ``folder``."""
    name = "-".join([source.path.stem, *map(str, source.macros.values())])
    library = folder / f"{name}.so"
    if not library.exists():
        options = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-ffp-contract=off"]
        options += [*source.options, f'-DSOURCE="{source.path}"']
        subprocess.run(["g++", *options, "-o", str(library), str(HERE / text)], check=True)
    return ctypes.CDLL(str(library))
