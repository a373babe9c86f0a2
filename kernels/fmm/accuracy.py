"""From the digits asked for to what is computed: order, type, steps. Imports no Numba."""

from __future__ import annotations

from dataclasses import dataclass


class BadInput(ValueError):
    """What was asked for can't be computed; the message says what would do."""


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
"""Order -> the relative L2 error that it stays below. Three times the largest that was measured
over uniform, Plummer, sphere and line, 20,000 points each, charges uniform in -1 to 1 and in 0 to
1, two seeds; the error of charges of both signs grows slowly with the number of points."""
SINGLE_DIGITS = 5.5
"""What single precision is enough for: from order 7 on its rounding is the larger error."""
DIGITS = (3, 10)
SINGLE_ASKED = (3, 5)
"""Digits that can be asked for, of double and of single precision."""
NEWTON_BITS = {32: 21, 64: 50}
"""Of 1 / r, at most, by the type's bits."""

LEAF_POINTS = {32: {4: 256, 5: 320, 6: 320}, 64: {6: 280, 7: 280, 8: 320, 9: 350, 10: 400}}
"""Q by bits and order, where the two halves of the work are about even; the largest for more."""


@dataclass(frozen=True)
class Accuracy:
    """How a potential is computed.

    ``order``: points along an edge of a surface. ``bits``: 32 or 64, of the loops' numbers.
    ``digits``: what was asked for. ``nearest``: in sides of a leaf; what is nearer is taken
    again in double precision.
    """

    order: int
    bits: int
    digits: float

    @property
    def nearest(self) -> float:
        """By how much the rounding of single coordinates may stand out beside a distance."""
        return 0.0 if self.bits == 64 else 10.0 ** (self.digits - 8)


def accuracy(digits: float, precision: str, order: int | None = None) -> Accuracy:
    """What computes ``digits`` digits; ``precision``: single or double, of what is asked for.

    Double-precision potentials of few digits are computed in single precision, on coordinates
    from the centres of cells, and added up in double.

    Raises:
        BadInput: digits that the precision has not, or an unknown precision.
    """
    if precision not in {"single", "double"}:
        raise BadInput(f"precision {precision!r} is unknown; known: single, double")
    low, high = SINGLE_ASKED if precision == "single" else DIGITS
    if not low <= digits <= high:
        raise BadInput(
            f"{digits} digits are out of reach in {precision} precision; {low} to {high} can be "
            f"asked for"
        )
    if order is None:
        order = next(p for p, error in ERRORS.items() if error <= 10.0**-digits)
    elif not 2 < order <= max(ERRORS):
        raise BadInput(f"order {order} is out of reach; 3 to {max(ERRORS)} can be asked for")
    bits = 32 if precision == "single" or digits <= SINGLE_DIGITS else 64
    return Accuracy(order, bits, digits)


def newton_steps(asked: Accuracy, estimate_bits: int) -> int:
    """Newton steps from the processor's estimate of 1 / r to the digits asked for.

    ``estimate_bits``: of the estimate's largest error; a step doubles them but for 0.6.
    """
    wanted = min(asked.digits * 3.3219 + 0.5, NEWTON_BITS[asked.bits])
    steps, reached = 0, float(estimate_bits)
    while reached < wanted:
        steps, reached = steps + 1, 2 * reached - 0.6
    return steps


def leaf_points(asked: Accuracy) -> int:
    """Q for an accuracy."""
    table = LEAF_POINTS[asked.bits]
    return table.get(asked.order, max(table.values()))
