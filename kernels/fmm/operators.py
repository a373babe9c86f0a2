"""The operators of a kernel-independent FMM (Ying, Biros and Zorin, 2004, section 3.2).

For a cell of half side h, lengths in h and charges as they are, with G_h(r) = h G(h r):

- up_solve: upward check potentials to upward equivalent densities, the truncated pseudo-inverse
  of the check-from-equivalent matrix, kept as two factors, which are applied one after the other:
  their product would lose the digits that the small singular values take (Malhotra and Biros,
  2015, section 2.2);
- down_solve: the same downward;
- m2m, l2l: by octant, a child's equivalent densities to its parent's check potentials, and a
  parent's to its child's;
- table: the spectra of the translations of V by offset.

A homogeneous kernel (Laplace) has one set for all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.fmm.interactions import INTERACTIONS
from kernels.fmm.spectral import REACH
from kernels.fmm.surfaces import INNER, OUTER, surface_points

OCTANTS = 8


@dataclass(frozen=True)
class Operators:
    """One level's operators, for rows of densities or potentials that are multiplied from the left.

    ``up_solve``, ``down_solve``: two factors (n, r) and (r, n); ``m2m``, ``l2l``: (8, n, n), by
    octant; ``table``: (frequencies, 2, 344), real and imaginary by offset, the last 0.
    """

    up_solve: tuple[np.ndarray, np.ndarray]
    down_solve: tuple[np.ndarray, np.ndarray]
    m2m: np.ndarray
    l2l: np.ndarray
    table: np.ndarray


def build_operators(
    interaction: str, order: int, dtype: Any, half: float = 1.0, parameter: float = 0.0
) -> Operators:
    """The operators of order p for cells of half side ``half``."""
    kernel = INTERACTIONS[interaction]

    def matrix(to: np.ndarray, of: np.ndarray) -> np.ndarray:
        r = np.linalg.norm(to[:, None, :] - of[None, :, :], axis=2)
        return half * kernel.values(half * r, parameter)

    inner, outer = surface_points(order, INNER), surface_points(order, OUTER)
    cut = 1e-7 if np.dtype(dtype) == np.float32 else 1e-12
    up_solve, down_solve = _pseudo_inverse(matrix(outer, inner), cut), _pseudo_inverse(
        matrix(inner, outer), cut
    )
    octants = np.array([[o & 1, o >> 1 & 1, o >> 2] for o in range(OCTANTS)]) - 0.5
    m2m = np.stack([matrix(outer, inner / 2 + at).T for at in octants])
    # The child's potentials in its own unit, h / 2.
    l2l = np.stack([0.5 * matrix(inner / 2 + at, outer).T for at in octants])
    return Operators(
        (up_solve[0].astype(dtype), up_solve[1].astype(dtype)),
        (down_solve[0].astype(dtype), down_solve[1].astype(dtype)),
        np.ascontiguousarray(m2m, dtype),
        np.ascontiguousarray(l2l, dtype),
        _table(order, dtype, half, parameter, interaction),
    )


def _pseudo_inverse(matrix: np.ndarray, cut: float) -> tuple[np.ndarray, np.ndarray]:
    """check @ first @ second = densities, for rows; singular values below ``cut`` left out."""
    u, size, vt = np.linalg.svd(matrix)
    kept = size > cut * size[0]
    return u[:, kept], vt[kept] / size[kept, None]


def _table(
    order: int, dtype: Any, half: float, parameter: float, interaction: str
) -> np.ndarray:
    p, n = order, 2 * order - 1
    # Offsets of grid points, 0 to p - 1 and then -(p - 1) to -1, in units of the spacing.
    step = 2 * INNER / (p - 1) * np.concatenate([np.arange(p), np.arange(1 - p, 0)])
    table = np.zeros((p * n * n, 2, REACH**3 + 1), dtype)
    kernel = INTERACTIONS[interaction]
    for at in range(REACH**3):
        offset = np.array([at % REACH, at // REACH % REACH, at // REACH**2]) - 3
        if np.abs(offset).max() <= 1:
            continue
        x, y, z = (2.0 * o + step for o in offset)
        r = np.sqrt(x[None, None, :] ** 2 + y[None, :, None] ** 2 + z[:, None, None] ** 2)
        spectrum = np.fft.fftn(half * kernel.values(half * r, parameter))[:p].ravel()
        table[:, 0, at], table[:, 1, at] = spectrum.real, spectrum.imag
    return table
