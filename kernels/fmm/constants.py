"""Numbers that the compiled loops, the operators and the operation counts share.

Each is defined only here, so that the counts agree with the executed code. Imports no Numba, so
that a plan can count without it. Numba does not detect a change in this file: after one, remove its
cached machine code (``__pycache__`` of the phases, or ``NUMBA_CACHE_DIR``).
"""

from __future__ import annotations

from typing import NamedTuple

PHASES = ("up", "x", "v", "down", "w", "u")
"""The phases of an evaluation, in order."""
CHILDREN = 8
"""The children of a cell, and the lanes of its spectra in the V phase."""
COARSEST = 2
"""The coarsest level with a V or W list: on coarser levels all cells touch each other."""
FAR_STEPS = {32: 1, 64: 2}
"""Bits of a number -> Newton steps of 1 / r in the loops from and to surfaces. They compute all but
a few of its bits, because solving for densities amplifies errors that are not smooth."""
EXACT_STEPS = FAR_STEPS[64]
"""Newton steps where pairs that nearly coincide are computed again in double precision."""
SMALLEST_SINGULAR = {32: 1e-7, 64: 1e-12}
"""Bits of a number -> smallest singular value that is used, relative to the largest: rounding
errors, amplified by its inverse, stay below the error of the surfaces."""

ONE_WAY, BOTH_WAYS, ITSELF = 0, 1, 2
"""The interaction of the two leaves of a U pair: sources act on targets, each leaf acts on the
other (Newton's third law), or a leaf acts on itself."""

V_REACH = 7
"""Offsets along an axis between the centres of cells in each other's V list: -3 to 3 cell sides."""
V_OFFSETS = V_REACH**3 + 1
"""Columns of the table of translations: all offsets, and zeros for cells that touch."""
TRANSFORM_ROWS = 4
"""Rows of a matrix of cosines or sines in one pass of the V phase's transform."""

DOUBLE_BYTES = 8
SPARE_VECTORS = 4
"""Vectors after the last leaf's slots: the loops read whole blocks of vectors."""


class Blocking(NamedTuple):
    """The numbers of items that the loops hold in registers.

    ``tile``: targets in a both-ways loop over sources; ``block``: vectors of targets in a one-way
    loop; ``gradient_block``: the same with gradients, where each vector has four sums; ``group``:
    pairs of parents in the V phase that share the loads of a matrix.
    """

    tile: int
    block: int
    gradient_block: int
    group: int


def blocking(registers: int) -> Blocking:
    """The blocking for ``registers`` vector registers, including the sums and the sources."""
    return Blocking(4, 5, 2, 4) if registers >= 32 else Blocking(2, 2, 1, 2)


def interleaves_complex(bits: int, vector_bytes: int) -> bool:
    """Whether the V phase keeps real and imaginary parts in one vector of 16 numbers."""
    return bits == 32 and vector_bytes >= 64
