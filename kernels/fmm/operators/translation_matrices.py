"""The matrices of the method: solutions for densities, M2M, L2L and the spectra of M2L.

The operators of a kernel-independent FMM (Ying, Biros & Zorin 2004, section 3.2). For a cell of
half side h, lengths are in units of h and charges unchanged, so that G_h(r) = h G(h r):

- up_solve: from upward check potentials to upward equivalent densities, the truncated
  pseudo-inverse of the matrix from densities to check potentials. It is stored as two factors that
  are applied in turn: their product would lose the digits of the small singular values
  (Malhotra & Biros 2015, section 2.2);
- down_solve: the same downward;
- m2m, l2l: by octant, from a child's equivalent densities to its parent's check potentials, and
  from a parent's densities to its child's check potentials;
- table: the spectra of the translations of the V phase (M2L), by offset.

A homogeneous interaction (Laplace) has one set for all levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernels.fmm.constants import CHILDREN, SMALLEST_SINGULAR, V_OFFSETS, V_REACH
from kernels.fmm.operators.disk_cache import cached
from kernels.fmm.operators.interaction_kernels import INTERACTIONS
from kernels.fmm.operators.surfaces import INNER, OUTER, surface_points

FAINT = 100.0
"""A screened interaction between cells that do not touch is set to 0 where half a cell's side is
longer than this number of decay lengths: it is then less than exp(-200) of its value at one decay
length."""


@dataclass(frozen=True)
class Operators:
    """The operators of one level; rows of densities or potentials multiply them from the left.

    ``up_solve``, ``down_solve``: two factors (n, r) and (r, n); ``m2m``, ``l2l``: (8, n, n), by
    octant; ``table``: (frequencies, 2, 344), real and imaginary by offset, the last 0.
    """

    up_solve: tuple[np.ndarray, np.ndarray]
    down_solve: tuple[np.ndarray, np.ndarray]
    m2m: np.ndarray
    l2l: np.ndarray
    table: np.ndarray


@lru_cache(maxsize=64)
def build_operators(
    interaction: str, order: int, dtype: Any, half: float = 1.0, parameter: float = 0.0
) -> Operators:
    """The operators of order p for cells of half side ``half``, cached in this process.

    The solutions of a homogeneous interaction, the same for all cells, are also cached on disk.
    """
    kernel = INTERACTIONS[interaction]
    faint = parameter * half > FAINT

    def values(r: np.ndarray) -> np.ndarray:
        return np.zeros_like(r) if faint else half * kernel.values(half * r, parameter)

    def matrix(to: np.ndarray, of: np.ndarray) -> np.ndarray:
        return values(np.linalg.norm(to[:, None, :] - of[None, :, :], axis=2))

    inner, outer = surface_points(order, INNER), surface_points(order, OUTER)
    homogeneous = kernel.homogeneous
    name = f"{interaction}-{order}-{np.dtype(dtype).name}"

    def solve() -> dict[str, np.ndarray]:
        return _solve(matrix(outer, inner), dtype)

    solved = cached(name, solve) if homogeneous else solve()
    octants = np.array([[o & 1, o >> 1 & 1, o >> 2] for o in range(CHILDREN)]) - 0.5
    m2m = np.stack([matrix(outer, inner / 2 + at).T for at in octants])
    # 0.5: the child's potentials are in the child's unit, h / 2.
    l2l = np.stack([0.5 * matrix(inner / 2 + at, outer).T for at in octants])
    return Operators(
        (solved["up_first"], solved["up_second"]),
        (solved["down_first"], solved["down_second"]),
        np.ascontiguousarray(m2m, dtype),
        np.ascontiguousarray(l2l, dtype),
        _table(order, dtype, values),
    )


def _solve(matrix: np.ndarray, dtype: Any) -> dict[str, np.ndarray]:
    """The factors of both solutions, for rows: check @ first @ second = densities.

    ``matrix``: from upward equivalent densities to upward check potentials; the downward matrix is
    its transpose. Singular values up to :data:`SMALLEST_SINGULAR` times the largest are omitted.
    """
    u, size, vt = np.linalg.svd(matrix)
    used = size > SMALLEST_SINGULAR[8 * np.dtype(dtype).itemsize] * size[0]
    inverse = 1 / size[used, None]
    factors = {
        "up_first": u[:, used],
        "up_second": vt[used] * inverse,
        "down_first": vt[used].T,
        "down_second": u[:, used].T * inverse,
    }
    return {name: np.ascontiguousarray(factor, dtype) for name, factor in factors.items()}


def _table(order: int, dtype: Any, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    p, n = order, 2 * order - 1
    # Offsets of grid points in spacings: 0 to p - 1, then -(p - 1) to -1; scaled to half sides.
    step = 2 * INNER / (p - 1) * np.concatenate([np.arange(p), np.arange(1 - p, 0)])
    table = np.zeros((p * n * n, 2, V_OFFSETS), dtype)
    for at in range(V_REACH**3):
        offset = np.array([at % V_REACH, at // V_REACH % V_REACH, at // V_REACH**2]) - 3
        if np.abs(offset).max() <= 1:
            continue
        x, y, z = (2.0 * o + step for o in offset)
        r = np.sqrt(x[None, None, :] ** 2 + y[None, :, None] ** 2 + z[:, None, None] ** 2)
        spectrum = np.fft.fftn(values(r))[:p].ravel()
        table[:, 0, at], table[:, 1, at] = spectrum.real, spectrum.imag
    return table
