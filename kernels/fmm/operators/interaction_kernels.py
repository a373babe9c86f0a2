"""The interaction kernels (Laplace, Yukawa): the potential of a unit charge at a distance.

An interaction is radial: G(r). For the loops it is emitted as vector instructions that compute it
from r^2; for operators and checks it is a NumPy function of r. Laplace is 1 / (4 pi r), Yukawa
(screened Coulomb) is exp(-lambda r) / (4 pi r). The loops omit the factor 1 / (4 pi).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.host.static_type import static
from kernels.host.vectors import Vectors


@dataclass(frozen=True)
class Interaction:
    """A radial interaction kernel.

    ``values``: G(r) without 1 / (4 pi), from an array of distances and the parameter. ``emit``:
    emits this as a vector, from r^2, 1 / r and the parameter. ``emit_slope``: emits G'(r) / r, from
    1 / r^2, 1 / r, G and the parameter. ``homogeneous``: whether G(s r) = G(r) / s, so that all
    levels share one set of operators.
    """

    values: Callable[[np.ndarray, float], np.ndarray]
    emit: Callable[[Vectors, Any, Any, Any], Any]
    emit_slope: Callable[[Vectors, Any, Any, Any, Any], Any]
    homogeneous: bool
    needs_parameter: bool


def _laplace(v: Vectors, r2: Any, inverse: Any, parameter: Any) -> Any:
    return inverse


def _laplace_slope(v: Vectors, inverse2: Any, inverse: Any, value: Any, parameter: Any) -> Any:
    return v.mul(v.constant(-1.0), v.mul(inverse2, value))


def _yukawa(v: Vectors, r2: Any, inverse: Any, parameter: Any) -> Any:
    r = v.mul(r2, inverse)
    return v.mul(inverse, v.exp(v.mul(v.mul(v.constant(-1.0), parameter), r)))


def _yukawa_slope(v: Vectors, inverse2: Any, inverse: Any, value: Any, parameter: Any) -> Any:
    # d/dr exp(-l r) / r = -(l + 1 / r) exp(-l r) / r
    factor = v.mul(v.constant(-1.0), v.fma(parameter, inverse, inverse2))
    return v.mul(factor, value)


def _coulomb(r: np.ndarray, parameter: float) -> np.ndarray:
    return 1.0 / r


def _screened(r: np.ndarray, parameter: float) -> np.ndarray:
    potential: np.ndarray = np.exp(-parameter * r) / r
    return potential


INTERACTIONS = {
    "laplace": Interaction(_coulomb, _laplace, _laplace_slope, True, False),
    "yukawa": Interaction(_screened, _yukawa, _yukawa_slope, False, True),
}


@static
@dataclass(frozen=True)
class Rule:
    """The interaction and the accuracy for which a loop is compiled.

    ``steps``: Newton steps after the processor's estimate of 1 / sqrt(x). A loop that takes a
    rule is compiled once for each rule.
    """

    interaction: str
    steps: int

    def name(self) -> str:
        """Everything that the compiled loops depend on, as one word."""
        return f"{self.interaction}-{self.steps}"


def emit_values(v: Vectors, rule: Rule, r2s: list[Any], parameter: Any) -> list[Any]:
    """Emit G of several r^2 times the rule's :func:`unit_of`: Newton steps from estimates of 1 / r.

    A step is y (3 - r^2 y^2) / 2. Where the interaction is homogeneous, the last step omits the
    1 / 2, which is applied to the sums. Each operation is emitted for all r^2 before the next: the
    compiler keeps this order, in which neighbouring instructions are independent.
    """
    interaction = INTERACTIONS[rule.interaction]
    ys = [v.rsqrt_estimate(r2) for r2 in r2s]
    for step in range(rule.steps):
        squares = [v.mul(y, y) for y in ys]
        factors = [
            v.nfma(r2, square, v.constant(3.0)) for r2, square in zip(r2s, squares, strict=True)
        ]
        if not (step == rule.steps - 1 and interaction.homogeneous):
            ys = [v.mul(v.constant(0.5), y) for y in ys]
        ys = [v.mul(y, factor) for y, factor in zip(ys, factors, strict=True)]
    return [interaction.emit(v, r2, y, parameter) for r2, y in zip(r2s, ys, strict=True)]


def emit_value_and_slope(v: Vectors, rule: Rule, r2: Any, parameter: Any) -> tuple[Any, Any]:
    """Emit G and G'(r) / r from r^2, with all factors of the Newton steps."""
    interaction = INTERACTIONS[rule.interaction]
    y = v.rsqrt_estimate(r2)
    for _ in range(rule.steps):
        y = v.mul(v.mul(v.constant(0.5), y), v.nfma(r2, v.mul(y, y), v.constant(3.0)))
    value = interaction.emit(v, r2, y, parameter)
    return value, interaction.emit_slope(v, v.mul(y, y), y, value, parameter)


def unit_of(rule: Rule) -> float:
    """The ratio of a loop's sums to the potentials: 2 where a factor 1 / 2 is omitted."""
    return 2.0 if rule.steps and INTERACTIONS[rule.interaction].homogeneous else 1.0
