"""What the method is prepared with: its setup, and a rank's part of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is computed, and how.

    ``order``: points along an edge of a surface. ``q``: most points in a leaf. ``dtype``: float32
    or float64, the type of the loops' numbers. ``steps``: Newton steps of 1 / r. ``nearest``: in
    sides of a leaf, the distance below which coordinates rounded in it are too inaccurate.
    ``interaction``, ``parameter``: of
    :data:`kernels.fmm.operators.interaction_kernels.INTERACTIONS`. ``threads``: how many compute.
    """

    order: int
    q: int
    dtype: np.dtype[Any]
    steps: int
    nearest: float
    interaction: str = "laplace"
    parameter: float = 0.0
    threads: int = 1


@dataclass(frozen=True)
class TreePart:
    """A rank's part of the tree, bool (nodes,).

    ``own``: the rank's leaves; ``active``: these and all their ancestors.
    """

    own: np.ndarray
    active: np.ndarray
