"""Products of spectra on a GPU, frequency by frequency, gathered and added up: source and counts.

They are M2L, from the spectra of densities to the spectra of check potentials. Cells of a tile
share the loads of an operator's spectrum.

Operation counts include padded rows and frequencies. ``sp``, ``dp``: executed flops, 8 for the 4
multiply-adds of a complex multiply-add. All accesses to global memory bypass L1. ``dram``: every
used spectrum and operator, the lists, and the result once, as from a cold cache; ``l2``: all other
loads. Numbers of the lists count once for each warp. Instructions for addresses and loops are not
counted.
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
"""Threads of a block, as in the source."""
Cells = Literal[1, 2, 4, 8]
"""Rows of a tile."""
_INDEX = 4


def slice_frequencies(item: int) -> int:
    """The number of frequencies that a block computes; ``item``: bytes of a number."""
    return THREADS * 16 // (2 * item)


def hadamard_source(cells: int, item: int) -> Source:
    """The source with its macros. ``cells``: rows of a tile; ``item``: bytes of a number."""
    return Source(path=SOURCE, macros={"CELLS": cells, "DOUBLE": int(item == 8)})


def count_hadamard(tiles: Tiles, frequencies: int, item: int) -> dict[str, float]:
    """Operations and bytes. ``frequencies``: in a row, whole slices; ``item``: bytes of a
    number."""
    blocks_across = frequencies // slice_frequencies(item)
    entries, (blocks, cells) = len(tiles.operator_of), tiles.rows_out.shape
    products = entries * cells * frequencies
    results = blocks * cells * frequencies
    loaded = (products + entries * frequencies) * 2 * item
    loaded += (
        blocks_across * THREADS // WARP * (entries * (1 + cells) + blocks * (2 + cells)) * _INDEX
    )
    once = len(np.unique(tiles.rows_in)) + len(np.unique(tiles.operator_of))
    once_bytes = once * frequencies * 2 * item + sum(a.nbytes for a in tiles.lists)
    return {
        "sp" if item == 4 else "dp": 8.0 * products,
        "l2": float(loaded - once_bytes),
        "dram": float(once_bytes + results * 2 * item),
    }
