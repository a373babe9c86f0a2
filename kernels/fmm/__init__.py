"""A kernel-independent fast multipole method (Ying, Biros & Zorin 2004).

    >>> from kernels.fmm import evaluate
    >>> potentials = evaluate(sources, charges, digits=6)

:func:`evaluate` sums G(|t - s|) q over all sources for every target, without pairs at r = 0;
:func:`prepare` builds tree and operators once for many sets of charges.

The modules:

- ``interface``: these functions, and the checks of their input; ``accuracy``: the order, type and
  Newton steps for the requested digits;
- ``method``: the method prepared for its points, and the order of its phases;
- ``tree``: Morton keys, the octree, the U, W and X lists (``lists``), the V lists (``v_list``), and
  the memory layout of the points;
- ``operators``: the interaction kernels (Laplace, Yukawa), the surfaces, and the matrices of the
  solutions, M2M, L2L and M2L;
- ``phases``: the compiled loops of P2M, P2L, M2P and L2P, of the V phase (M2L by Fourier
  transforms), and of the U phase (P2P);
- ``mpi_ranks``: the method on points that are distributed over MPI ranks;
- ``kernel``: the method as a kernel of a campaign; ``distributions``: its points; ``counts``: its
  operations; ``constants``: the numbers that loops and counts share.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "evaluate": "interface",
    "evaluate_with_gradient": "interface",
    "prepare": "interface",
    "FmmInputError": "accuracy",
}
__all__ = ["FmmInputError", "evaluate", "evaluate_with_gradient", "prepare"]


def __getattr__(name: str) -> Any:
    # Importing Numba is slow, and a campaign's plan does not need it.
    if name in _MODULES:
        return getattr(import_module(f"kernels.fmm.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
