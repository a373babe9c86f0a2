"""The transforms of M2L on a GPU, as products with matrices (Ying, Biros & Zorin 2004, 3.3).

Equivalent and check surfaces are parts of p x p x p grids of the same spacing. The sum over the
densities of a source cell is therefore a convolution, for which n = 2p - 1 points a side suffice.
The transform from a surface's densities to their spectrum is a linear map, and so is the inverse.
The densities are real: of the n^3 frequencies, k and -k are complex conjugates, and one of each
pair is stored, (n^3 + 1) / 2 in total.

The spectra of a large tree do not fit in memory together. The frequencies are therefore divided
into slabs of equal size, which are computed, multiplied and transformed back one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.cuda.fmm.hadamard import slice_frequencies
from kernels.fmm.constants import V_REACH
from kernels.fmm.operators.surfaces import surface_grid

SLAB_BYTES = 2 << 30
"""The most bytes of the spectra of a slab, sources and targets together, unless it is one slice."""


@dataclass(frozen=True, kw_only=True)
class Slabs:
    """``count`` slabs of ``frequencies``, in whole slices; the last is padded with zeros."""

    count: int
    frequencies: int

    @property
    def columns(self) -> int:
        """The length of a row of a slab's spectra: real and imaginary parts, interleaved."""
        return 2 * self.frequencies


def cut(order: int, rows: int, item: int) -> Slabs:
    """The slabs for spectra of ``rows`` rows; ``item``: bytes of a number."""
    in_slice = slice_frequencies(item)
    slices = -(-len(kept_frequencies(order)) // in_slice)
    fit = max(1, SLAB_BYTES // (2 * rows * in_slice * 2 * item))
    count = -(-slices // fit)
    return Slabs(count=count, frequencies=-(-slices // count) * in_slice)


def kept_frequencies(order: int) -> np.ndarray:
    """One of each pair k and -k, as indices into an array of p x n x n (kz, ky, kx), the layout of
    the host's spectra: int64 ((n^3 + 1) / 2,)."""
    p, n = order, 2 * order - 1
    z, y, x = np.indices((p, n, n)).reshape(3, -1)
    return np.flatnonzero((z > 0) | ((y > 0) & (y < p)) | ((y == 0) & (x < p)))


def transforms(order: int, slabs: Slabs) -> tuple[np.ndarray, np.ndarray]:
    """The matrices from a surface's densities to a slab of their spectrum, float64 (slabs, surface,
    columns), and from a slab of the potentials' spectrum to its part of the potentials at a
    surface's points, (slabs, columns, surface). Rows multiply them from the left."""
    p, n = order, 2 * order - 1
    kept = kept_frequencies(order)
    waves = np.stack([kept % n, kept // n % n, kept // n**2])
    # Angles are integer multiples of 2 pi / n modulo one turn, for exact cosines.
    steps = surface_grid(p) @ waves % n
    turn = 2 * np.pi / n * np.arange(n)
    forward = np.zeros((len(steps), slabs.count * slabs.frequencies, 2))
    forward[:, : len(kept), 0] = np.cos(turn)[steps]
    forward[:, : len(kept), 1] = -np.sin(turn)[steps]
    # A stored frequency also represents its conjugate; 0 represents only itself.
    times = np.full(slabs.count * slabs.frequencies, 2 / n**3)
    times[0] = 1 / n**3
    backward = (forward * times[:, None]).reshape(len(steps), slabs.count, slabs.columns)
    by_slab = forward.reshape(len(steps), slabs.count, slabs.columns).swapaxes(0, 1)
    return np.ascontiguousarray(by_slab), np.ascontiguousarray(backward.transpose(1, 2, 0))


def operator_spectra(table: np.ndarray, order: int, slabs: Slabs) -> np.ndarray:
    """The spectra of the M2L operators by slab and far offset: float64 (slabs, 316, columns).

    ``table``: see :class:`kernels.fmm.operators.translation_matrices.Operators`.
    """
    kept, far = kept_frequencies(order), far_offsets()
    spectra = np.zeros((len(far), slabs.count * slabs.frequencies, 2))
    spectra[:, : len(kept)] = table[kept][:, :, far].transpose(2, 0, 1)
    by_slab = spectra.reshape(len(far), slabs.count, slabs.columns).swapaxes(0, 1)
    return np.ascontiguousarray(by_slab)


def far_offsets() -> np.ndarray:
    """The indices, in 7 x 7 x 7 (z slowest), of the offsets of separate cells: int64 (316,)."""
    at = np.arange(V_REACH**3)
    offsets = np.stack([at % V_REACH, at // V_REACH % V_REACH, at // V_REACH**2]) - V_REACH // 2
    return np.flatnonzero(np.abs(offsets).max(axis=0) > 1)
