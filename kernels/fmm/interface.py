"""The functions for users: arrays in, potentials out, and one clear message for bad input."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.fmm.accuracy import FmmInputError, accuracy, leaf_points, newton_steps
from kernels.fmm.method import Fmm, prepare_method
from kernels.fmm.operators.interaction_kernels import INTERACTIONS
from kernels.fmm.setup import Setup
from kernels.host.vectors import estimate_bits


def prepare(sources: Any, targets: Any = None, digits: float = 6, **options: Any) -> Fmm:
    """Build tree, lists and operators once, for many sets of charges.

    Args:
        sources: (n, 3), n at least 1, finite.
        targets: (m, 3); default: the sources.
        digits: relative L2 error at most 10^-digits: 3 to 10, in single precision 3 to 5.
        options: the options of :func:`setup_for`.

    Returns:
        A method whose :meth:`kernels.fmm.method.Fmm.evaluate` takes charges.

    Raises:
        FmmInputError: the request cannot be computed.
    """
    setup = setup_for(digits, **options)
    s = _points(sources, "sources")
    t = None if targets is None or targets is sources else _points(targets, "targets")
    return prepare_method(s, t, setup)


def setup_for(
    digits: float,
    *,
    precision: str = "double",
    order: int | None = None,
    q: int | None = None,
    interaction: str = "laplace",
    parameter: float | None = None,
    threads: int | None = None,
) -> Setup:
    """The setup for the requested accuracy, for any points.

    Args:
        digits: relative L2 error at most 10^-digits: 3 to 10, in single precision 3 to 5.
        precision: single or double, of the result.
        order: points along an edge of a surface; default: the order that ``digits`` needs.
        q: most sources, and most targets, in a leaf; default: the fastest for the accuracy.
        interaction: laplace, 1 / (4 pi r), or yukawa, exp(-lambda r) / (4 pi r).
        parameter: yukawa's lambda.
        threads: number of threads; default: the CPUs on which this process may run.

    Raises:
        FmmInputError: the request cannot be computed.
    """
    asked = accuracy(digits, precision, order)
    if interaction not in INTERACTIONS:
        raise FmmInputError(
            f"interaction {interaction!r} is unknown; known: {', '.join(INTERACTIONS)}"
        )
    if not INTERACTIONS[interaction].homogeneous:
        # A screened interaction's operators exceed the range of single precision.
        asked = replace(asked, bits=64)
    if INTERACTIONS[interaction].needs_parameter:
        if parameter is None or not np.isfinite(parameter) or parameter < 0:
            raise FmmInputError(f"{interaction} needs a parameter, finite and >= 0")
    elif parameter is not None:
        raise FmmInputError(f"{interaction} takes no parameter")
    if q is not None and (int(q) != q or q < 1):
        raise FmmInputError(f"q is {q}; a leaf must hold at least 1 point")
    if threads is not None and threads < 1:
        raise FmmInputError(f"threads is {threads}; at least 1 is needed")
    return Setup(
        order=asked.order,
        q=int(q) if q is not None else leaf_points(asked),
        dtype=np.dtype(np.float32 if asked.bits == 32 else np.float64),
        steps=newton_steps(asked, estimate_bits(asked.bits)),
        nearest=asked.nearest,
        interaction=interaction,
        parameter=parameter or 0.0,
        threads=threads or len(os.sched_getaffinity(0)),
    )


def evaluate(
    sources: Any, charges: Any, targets: Any = None, digits: float = 6, **options: Any
) -> np.ndarray:
    """The potentials of charges at targets: the sum of G(|t - s|) q without pairs at r = 0.

    Args:
        sources: (n, 3).
        charges: (n,), finite.
        targets: (m, 3); default: the sources.
        digits: relative L2 error at most 10^-digits.
        options: the options of :func:`setup_for`.

    Returns:
        (m,), float64, or float32 with ``precision="single"``.

    Raises:
        FmmInputError: the request cannot be computed.
    """
    method = prepare(sources, targets, digits, **options)
    potential = method.evaluate(checked_charges(charges, method.n_sources))
    return _in_precision(potential, options)


def evaluate_with_gradient(
    sources: Any, charges: Any, targets: Any = None, digits: float = 6, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Potentials (m,) as of :func:`evaluate`, and their gradients at the targets (m, 3)."""
    method = prepare(sources, targets, digits, **options)
    potential, gradient = method.gradients(checked_charges(charges, method.n_sources))
    return _in_precision(potential, options), _in_precision(gradient, options)


def _in_precision(values: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    return values.astype(np.float32) if options.get("precision") == "single" else values


def checked_charges(charges: Any, n: int) -> np.ndarray:
    """Charges as float64 (n,).

    Raises:
        FmmInputError: the charges are not numbers, not finite, or have another shape.
    """
    try:
        given = np.asarray(charges, np.float64)
    except (TypeError, ValueError) as error:
        raise FmmInputError(f"charges are not numbers: {error}") from None
    if given.shape != (n,):
        raise FmmInputError(f"charges have the shape {given.shape}; {n} sources need ({n},)")
    _finite(given, "charges")
    return given


def _points(points: Any, what: str) -> np.ndarray:
    try:
        given = np.ascontiguousarray(points, np.float64)
    except (TypeError, ValueError) as error:
        raise FmmInputError(f"{what} are not numbers: {error}") from None
    if given.ndim != 2 or given.shape[1] != 3 or not len(given):
        raise FmmInputError(f"{what} have the shape {given.shape}; (n, 3) with n >= 1 is needed")
    _finite(given, what)
    return given


def _finite(values: np.ndarray, what: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        first = int(np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))[0])
        raise FmmInputError(
            f"{what} must be finite; {int(bad.sum())} numbers are not, the first in row {first}"
        )
