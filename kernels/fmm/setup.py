"""The setup of the method, and a rank's part of the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The parameters of the method, for any points.

    ``order``: points along an edge of a surface. ``q``: most points in a leaf. ``dtype``: float32
    or float64, the type of the loops' numbers. ``steps``: Newton steps of 1 / r. ``nearest``: in
    sides of a leaf, the distance below which coordinates rounded in it are too inaccurate.
    ``interaction``, ``parameter``: see
    :data:`kernels.fmm.operators.interaction_kernels.INTERACTIONS`. ``threads``: their number.
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
    """A rank's part of the tree: two masks, bool (nodes,).

    ``own``: the rank's leaves; ``active``: these leaves and all their ancestors.
    """

    own: np.ndarray
    active: np.ndarray
