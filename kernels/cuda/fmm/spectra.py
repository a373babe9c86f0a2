"""The transforms of M2L on a GPU, as products with matrices (Ying, Biros & Zorin 2004, 3.3).

Equivalent and check surfaces are parts of p x p x p grids of one spacing, so that the sum over
a source cell's densities is a convolution, for which n = 2p - 1 points a side suffice. From the
densities of a surface to their spectrum is one linear map, and so is the way back. The densities
are real: of the n^3 frequencies, k and -k are complex conjugates, and one of each pair is kept,
(n^3 + 1) / 2 in all.

All spectra of a large tree do not fit in memory at once. The frequencies are therefore cut into
slabs of equal size, which are computed, multiplied and transformed back one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.cuda.fmm.hadamard import slice_frequencies
from kernels.fmm.constants import V_REACH
from kernels.fmm.operators.surfaces import surface_grid

SLAB_BYTES = 2 << 30
"""Most bytes of a slab's spectra, of sources and targets together, unless it has only one slice."""


@dataclass(frozen=True, kw_only=True)
class Slabs:
    """``count`` slabs of ``frequencies``, whole slices; what the last has beyond those of the
    order is 0."""

    count: int
    frequencies: int

    @property
    def columns(self) -> int:
        """Numbers in a row of a slab's spectra: real and imaginary parts, side by side."""
        return 2 * self.frequencies


def cut(order: int, rows: int, item: int) -> Slabs:
    """The slabs for spectra of so many rows; ``item``: bytes of a number."""
    in_slice = slice_frequencies(item)
    slices = -(-len(kept_frequencies(order)) // in_slice)
    fit = max(1, SLAB_BYTES // (2 * rows * in_slice * 2 * item))
    count = -(-slices // fit)
    return Slabs(count=count, frequencies=-(-slices // count) * in_slice)


def kept_frequencies(order: int) -> np.ndarray:
    """One of each pair k and -k, as places in an array of p x n x n (kz, ky, kx), which is how the
    host's spectra are stored: int64 ((n^3 + 1) / 2,)."""
    p, n = order, 2 * order - 1
    z, y, x = np.indices((p, n, n)).reshape(3, -1)
    return np.flatnonzero((z > 0) | ((y > 0) & (y < p)) | ((y == 0) & (x < p)))


def transforms(order: int, slabs: Slabs) -> tuple[np.ndarray, np.ndarray]:
    """From a surface's densities to a slab of their spectrum, and from a slab of the potentials'
    spectrum to its part of the sum at a surface's points: float64 (slabs, surface, columns) and
    (slabs, columns, surface). A row is multiplied from the left."""
    p, n = order, 2 * order - 1
    kept = kept_frequencies(order)
    waves = np.stack([kept % n, kept // n % n, kept // n**2])
    # Angles in whole steps of 2 pi / n, so that they are as exact as the cosines of one turn.
    steps = surface_grid(p) @ waves % n
    turn = 2 * np.pi / n * np.arange(n)
    forward = np.zeros((len(steps), slabs.count * slabs.frequencies, 2))
    forward[:, : len(kept), 0] = np.cos(turn)[steps]
    forward[:, : len(kept), 1] = -np.sin(turn)[steps]
    # A frequency that is kept also represents its conjugate, 0 only itself.
    times = np.full(slabs.count * slabs.frequencies, 2 / n**3)
    times[0] = 1 / n**3
    backward = (forward * times[:, None]).reshape(len(steps), slabs.count, slabs.columns)
    by_slab = forward.reshape(len(steps), slabs.count, slabs.columns).swapaxes(0, 1)
    return np.ascontiguousarray(by_slab), np.ascontiguousarray(backward.transpose(1, 2, 0))


def operator_spectra(table: np.ndarray, order: int, slabs: Slabs) -> np.ndarray:
    """The spectra of M2L by slab and far offset: float64 (slabs, 316, columns).

    ``table``: of :class:`kernels.fmm.operators.translation_matrices.Operators`.
    """
    kept, far = kept_frequencies(order), far_offsets()
    spectra = np.zeros((len(far), slabs.count * slabs.frequencies, 2))
    spectra[:, : len(kept)] = table[kept][:, :, far].transpose(2, 0, 1)
    by_slab = spectra.reshape(len(far), slabs.count, slabs.columns).swapaxes(0, 1)
    return np.ascontiguousarray(by_slab)


def far_offsets() -> np.ndarray:
    """The offsets, of 7 x 7 x 7 (z slowest), of cells that do not touch: int64 (316,)."""
    at = np.arange(V_REACH**3)
    offsets = np.stack([at % V_REACH, at // V_REACH % V_REACH, at // V_REACH**2]) - V_REACH // 2
    return np.flatnonzero(np.abs(offsets).max(axis=0) > 1)
