"""Products of spectra on a GPU, frequency by frequency, gathered and added up: source and counts.

M2L between the spectra of densities and those of check potentials. Cells of a tile share the loads
of an operator's spectrum.

How operations are counted, of padded rows and frequencies too: ``dp``: flops as executed, 8 for the
4 multiply-adds of a complex one. Bytes of global memory, all of which is accessed beyond the first
cache: ``dram``: every spectrum and operator that is used, the lists, and the result once, as from a
cold cache; ``l2``: all other loads. Numbers of the lists are loaded once a warp. What addresses and
loops need is not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from kernels.cuda.fmm.tiles import Tiles
from kernels.cuda.processor import WARP
from kernels.cuda.program import Source

SOURCE = Path(__file__).with_name("hadamard.cu")
FUNCTION = "products_of_spectra"
THREADS = 64
"""As in the source: of a block, and frequencies that it computes."""
Cells = Literal[1, 2, 4, 8]
"""Rows of a tile."""
_COMPLEX, _INDEX = 16, 4


def hadamard_source(cells: int) -> Source:
    """The source; ``cells``: rows of a tile."""
    return Source(path=SOURCE, macros={"CELLS": cells})


def count_hadamard(tiles: Tiles, frequencies: int) -> dict[str, float]:
    """Operations and bytes; ``frequencies``: of a row, a multiple of 64."""
    entries, (blocks, cells) = len(tiles.operator_of), tiles.rows_out.shape
    products = entries * cells * frequencies
    results = blocks * cells * frequencies
    loaded = (products + entries * frequencies) * _COMPLEX
    loaded += frequencies // WARP * (entries * (1 + cells) + blocks * (2 + cells)) * _INDEX
    once = len(np.unique(tiles.rows_in)) + len(np.unique(tiles.operator_of))
    once_bytes = once * frequencies * _COMPLEX + sum(a.nbytes for a in tiles.lists)
    return {
        "dp": 8.0 * products,
        "l2": float(loaded - once_bytes),
        "dram": float(once_bytes + results * _COMPLEX),
    }
