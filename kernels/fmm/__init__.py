"""A kernel-independent fast multipole method (Ying, Biros and Zorin, J. Comput. Phys. 196, 2004).

    >>> from kernels.fmm import evaluate
    >>> potentials = evaluate(sources, charges, digits=6)

:func:`evaluate` sums G(|t - s|) q over all sources for every target, r = 0 left out;
:func:`prepare` builds tree and operators once for many sets of charges. The modules are named
after the steps: ``morton`` and ``octree`` (the tree), ``lists`` (U, V, W, X), ``surfaces`` and
``operators``, ``points`` (P2M, P2L, M2P, L2P), ``transform`` and ``translations`` (V, M2L),
``near`` (U, P2P), and ``method``, which calls them in order.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "evaluate": "interface",
    "evaluate_with_gradient": "interface",
    "prepare": "interface",
    "BadInput": "accuracy",
}
__all__ = ["BadInput", "evaluate", "evaluate_with_gradient", "prepare"]


def __getattr__(name: str) -> Any:
    # Numba takes a while to import, and a campaign's plan does not need it.
    if name in _HOMES:
        return getattr(import_module(f"kernels.fmm.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
