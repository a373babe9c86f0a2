"""The arrays and matrices of the steps of a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.cuda.fmm.direct import in_planes
from kernels.cuda.fmm.plan import POINTS, ROWS, SPECTRA, Plan
from kernels.cuda.fmm.spectra import operator_spectra, transforms
from kernels.fmm.constants import COARSEST
from kernels.fmm.operators.surfaces import INNER, OUTER, surface_points


def arrays_of(plan: Plan) -> dict[str, np.ndarray]:
    """Name -> array, of the plan's dtype: points in planes, arrays of rows (rows, width), and
    ``sums`` (slots,)."""
    from kernels.fmm.tree.layout import BEYOND  # noqa: PLC0415

    tree, variant = plan.tree, plan.variant
    half, centres = tree.size / plan.unit * 0.5 ** (tree.level + 1.0), tree.centres()
    dtype, places = variant.dtype, plan.places
    if variant.precision == "single":
        places = (places - centres[plan.leaf]) / plan.unit
        centres = np.zeros_like(centres)
    far = np.flatnonzero(tree.level >= COARSEST)
    leaves = np.full((plan.slots, 4), BEYOND, dtype)
    leaves[:, 3] = 0
    leaves[plan.slot] = np.column_stack([places, plan.charges])
    arrays = {"leaves": in_planes(leaves, variant), "sums": np.zeros(plan.slots, dtype)}
    for name, radius in (("inner", INNER), ("outer", OUTER)):
        ring = surface_points(plan.order, radius)
        placed = np.full((plan.rows, plan.columns, 4), BEYOND, dtype)
        placed[..., 3] = 0
        placed[far, : len(ring), :3] = centres[far, None] + half[far, None, None] * ring
        arrays[name] = in_planes(placed.reshape(-1, 4), variant)
    return arrays | {
        name: np.zeros((plan.rows, plan.width(name)), dtype) for name in (*ROWS, *SPECTRA)
    }


def rows_within(name: str, plan: Plan) -> tuple[int, int]:
    """The position of the first number, and the stride between numbers, of an array of rows, or of
    the densities in an array of points."""
    if name in POINTS:
        planes = plan.variant.planes
        numbers = 4 // planes
        return (planes - 1) * numbers * plan.rows * plan.columns + numbers - 1, numbers
    return 0, 1


def matrices_of(plan: Plan) -> dict[str, np.ndarray]:
    """Name -> matrices (matrices, rows, columns), padded with zeros beyond the surface's points.
    Rows multiply a matrix from the left. ``m2l``, (slabs, operators, columns), has the spectra of
    the operators."""
    from kernels.fmm.operators.translation_matrices import build_operators  # noqa: PLC0415

    dtype = plan.variant.dtype
    operators = build_operators("laplace", plan.order, dtype)
    forward, backward = transforms(plan.order, plan.slabs)
    surface = plan.columns
    given = {
        "up_0": (operators.up_solve[0][None], surface, surface),
        "up_1": (operators.up_solve[1][None], surface, surface),
        "down_0": (operators.down_solve[0][None], surface, surface),
        "down_1": (operators.down_solve[1][None], surface, surface),
        "m2m": (operators.m2m, surface, surface),
        "l2l": (operators.l2l, surface, surface),
        "forward": (forward, surface, plan.slabs.columns),
        "backward": (backward, plan.slabs.columns, surface),
    }
    return {name: _padded(*shape, dtype) for name, shape in given.items()} | {
        "m2l": operator_spectra(operators.table, plan.order, plan.slabs).astype(dtype)
    }


def _padded(matrices: np.ndarray, rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
    padded = np.zeros((len(matrices), rows, columns), dtype)
    padded[:, : matrices.shape[1], : matrices.shape[2]] = matrices
    return padded
