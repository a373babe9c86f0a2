"""The order, type, Newton steps and leaf size for the requested digits. Imports no Numba."""

from __future__ import annotations

from dataclasses import dataclass


class FmmInputError(ValueError):
    """The request cannot be computed; the message names what can be."""


ERRORS = {
    4: 6e-4,
    5: 6e-5,
    6: 7.5e-6,
    7: 9e-7,
    8: 1.8e-7,
    9: 1.8e-8,
    10: 3e-9,
    11: 6e-10,
    12: 2.5e-10,
    13: 6e-11,
}
"""Order -> upper bound of the relative L2 error: three times the largest error measured with
uniform, Plummer, sphere and line distributions of 20,000 points, charges uniform in -1 to 1 and in
0 to 1, two seeds. The error with charges of both signs grows slowly with the number of points."""
SINGLE_DIGITS = 5.5
"""The most digits for which single precision suffices: from order 7 on its rounding errors exceed
the method's error."""
DIGITS = (3, 10)
SINGLE_ASKED = (3, 5)
"""The range of digits that can be requested, in double and in single precision."""
NEWTON_BITS = {32: 21, 64: 50}
"""Bits of a number -> the most correct bits of 1 / r for which Newton steps are taken."""

LEAF_POINTS = {32: {4: 256, 5: 320, 6: 320}, 64: {6: 280, 7: 280, 8: 320, 9: 350, 10: 400}}
"""Bits -> order -> Q with about equal near and far work. Higher orders use the largest Q."""


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of a potential.

    ``order``: points along an edge of a surface. ``bits``: 32 or 64, of a number in the loops.
    ``digits``: the requested digits. ``nearest``: in sides of a leaf; pairs of points at smaller
    distances are computed again from the input coordinates, in double precision.
    """

    order: int
    bits: int
    digits: float

    @property
    def nearest(self) -> float:
        """The distance below which coordinates rounded in a leaf are too inaccurate."""
        return float(10.0 ** (self.digits - (16 if self.bits == 64 else 8)))


def accuracy(digits: float, precision: str, order: int | None = None) -> Accuracy:
    """The accuracy for ``digits`` digits; ``precision``: single or double, of the result.

    Double-precision potentials of few digits are computed in single precision, with coordinates
    relative to the centres of cells, and summed in double precision.

    Raises:
        FmmInputError: ``digits`` or ``order`` is out of range, or the precision is unknown.
    """
    if precision not in {"single", "double"}:
        raise FmmInputError(f"precision {precision!r} is unknown; known: single, double")
    low, high = SINGLE_ASKED if precision == "single" else DIGITS
    if not low <= digits <= high:
        raise FmmInputError(
            f"{digits} digits cannot be computed in {precision} precision; {low} to {high} can"
        )
    if order is None:
        order = next(p for p, error in ERRORS.items() if error <= 10.0**-digits)
    elif not 2 < order <= max(ERRORS):
        raise FmmInputError(f"order {order} cannot be computed; orders 3 to {max(ERRORS)} can")
    bits = 32 if precision == "single" or digits <= SINGLE_DIGITS else 64
    return Accuracy(order, bits, digits)


def newton_steps(asked: Accuracy, estimate_bits: int) -> int:
    """Newton steps from the processor's estimate of 1 / r to the requested digits.

    ``estimate_bits``: correct bits of the estimate; a step doubles them, less 0.6.
    """
    wanted = min(asked.digits * 3.3219 + 0.5, NEWTON_BITS[asked.bits])
    steps, reached = 0, float(estimate_bits)
    while reached < wanted:
        steps, reached = steps + 1, 2 * reached - 0.6
    return steps


def leaf_points(asked: Accuracy) -> int:
    """The fastest limit on the points in a leaf (Q) for an accuracy."""
    table = LEAF_POINTS[asked.bits]
    return table.get(asked.order, max(table.values()))
