"""Distributions of points for the kernel and for tests; they determine the shape of the tree."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Distribution = Literal["uniform", "plummer", "sphere", "line", "equal"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)


def points(distribution: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a distribution in the unit cube, and charges.

    uniform: in the cube. plummer: a Plummer sphere (Aarseth, Henon and Wielen, 1974) around the
    cube's centre, with radii up to 8 scale radii. sphere: on the largest sphere. line: along the
    cube's diagonal. equal: all at the centre.

    Returns:
        Coordinates, float64 (n, 3), in the unit cube, and charges, float64 (n,), from -1 to 1.
    """
    rng = np.random.default_rng(seed)
    match distribution:
        case "uniform":
            places = rng.random((n, 3))
        case "plummer":
            # The mass within r is r^3 / (1 + r^2)^(3/2).
            largest = (1 + 1 / 64) ** -1.5
            radius = (np.power(rng.random(n) * largest + 1e-12, -2 / 3) - 1) ** -0.5
            places = 0.5 + radius[:, None] / 16 * _directions(rng, n)
        case "sphere":
            places = 0.5 + 0.5 * _directions(rng, n)
        case "line":
            places = np.repeat(rng.random((n, 1)), 3, axis=1)
        case "equal":
            places = np.full((n, 3), 0.5)
        case _:
            raise ValueError(
                f"distribution {distribution!r} is unknown; known: {', '.join(DISTRIBUTIONS)}"
            )
    return np.clip(places, 0.0, 1.0), rng.uniform(-1, 1, n)


def _directions(rng: np.random.Generator, n: int) -> np.ndarray:
    """Unit vectors, uniform over all directions: float64 (n, 3)."""
    normal = rng.standard_normal((n, 3))
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True))
