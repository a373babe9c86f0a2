"""The arrays and matrices that the steps of a plan read and write."""

from __future__ import annotations

import numpy as np

from kernels.cuda.fmm.direct import DirectVariant, in_planes
from kernels.cuda.fmm.plan import POINTS, ROWS, Plan, far_offsets
from kernels.fmm.constants import COARSEST, V_REACH
from kernels.fmm.operators.surfaces import INNER, OUTER, surface_points


def arrays_of(plan: Plan, variant: DirectVariant) -> dict[str, np.ndarray]:
    """Name -> float64 array: points in planes, rows (rows, columns), and ``sums`` (slots,)."""
    from kernels.fmm.tree.layout import BEYOND  # noqa: PLC0415

    tree = plan.tree
    half, centres = tree.size * 0.5 ** (tree.level + 1.0), tree.centres()
    far = np.flatnonzero(tree.level >= COARSEST)
    leaves = np.full((plan.slots, 4), BEYOND)
    leaves[:, 3] = 0
    leaves[plan.slot] = np.column_stack([plan.places, plan.charges])
    arrays = {"leaves": in_planes(leaves, variant), "sums": np.zeros(plan.slots)}
    for name, radius in (("inner", INNER), ("outer", OUTER)):
        ring = surface_points(plan.order, radius)
        placed = np.full((plan.rows, plan.columns, 4), BEYOND)
        placed[..., 3] = 0
        placed[far, : len(ring), :3] = centres[far, None] + half[far, None, None] * ring
        arrays[name] = in_planes(placed.reshape(-1, 4), variant)
    return arrays | {name: np.zeros((plan.rows, plan.columns)) for name in ROWS}


def rows_within(name: str, plan: Plan) -> tuple[int, int]:
    """Of an array of rows, or of the densities among points: the place of the first number, and
    from one number to the next."""
    if name in POINTS:
        return 2 * plan.rows * plan.columns + 1, 2
    return 0, 1


def matrices_of(plan: Plan) -> dict[str, np.ndarray]:
    """Name -> float64 (matrices, columns, columns), with zeros beyond the surface's points. A row
    is multiplied with a matrix from the left."""
    from kernels.fmm.operators.translation_matrices import build_operators  # noqa: PLC0415

    operators = build_operators("laplace", plan.order, np.float64)
    given = {
        "up_0": operators.up_solve[0][None],
        "up_1": operators.up_solve[1][None],
        "down_0": operators.down_solve[0][None],
        "down_1": operators.down_solve[1][None],
        "m2m": operators.m2m,
        "l2l": operators.l2l,
    }
    padded = {name: np.zeros((len(a), plan.columns, plan.columns)) for name, a in given.items()}
    for name, matrix in given.items():
        padded[name][:, : matrix.shape[1], : matrix.shape[2]] = matrix
    ring = surface_points(plan.order, INNER)
    far = far_offsets()
    padded["m2l"] = np.zeros((len(far), plan.columns, plan.columns))
    for matrix, at in zip(padded["m2l"], far, strict=True):
        cells = np.array([at % V_REACH, at // V_REACH % V_REACH, at // V_REACH**2]) - V_REACH // 2
        # From source to target, both of half side 1.
        apart = ring[None] + 2.0 * cells - ring[:, None]
        matrix[: len(ring), : len(ring)] = 1 / np.linalg.norm(apart, axis=2)
    return padded
