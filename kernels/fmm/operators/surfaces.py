"""Surfaces of equivalent and check points around a cell (Ying, Biros & Zorin 2004, section 3.2).

A surface consists of the 6 (p - 1)^2 + 2 points of a p x p x p grid that lie on the faces of a
cube. For a cell of half side 1, the cube has half side 1.05 for upward equivalent and downward
check points, and 2.95 for upward check and downward equivalent points.
"""

from __future__ import annotations

import numpy as np

INNER = 1.05
OUTER = 2.95


def surface_size(order: int) -> int:
    """The number of points of a surface of order p: 6 (p - 1)^2 + 2."""
    return 6 * (order - 1) ** 2 + 2


def surface_grid(order: int) -> np.ndarray:
    """Grid coordinates of the surface's points, 0 to p - 1: int64 (n, 3), sorted by x, y, z."""
    grid = np.stack(np.meshgrid(*[np.arange(order)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    return np.asarray(grid[((grid == 0) | (grid == order - 1)).any(axis=1)])


def surface_points(order: int, radius: float) -> np.ndarray:
    """The surface points of a cell of half side 1 at the origin: float64 (n, 3)."""
    return np.asarray((2.0 * surface_grid(order) / (order - 1) - 1.0) * radius)
