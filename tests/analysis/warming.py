"""How a simulated node warms up during a campaign, and how its leakage follows.

The temperature is a first-order response: it rises towards a steady state with one time constant,
as one heat capacity does behind one thermal resistance. Leakage is linear in temperature, which
holds within 1 % over the range that a circuit works in (Liu, Dick, Shang and Yang, Accurate
temperature-dependent integrated circuit leakage power estimation is easy, DATE 2007); so the
mean of the leakage is the leakage at the mean temperature. How much it grows a kelvin is assumed:
1 %, the order of the 30 % for 30 K that US patent 6,842,714 names.

Pure functions of the time since the campaign began on the node. What is measured does not heat
the node more or less: the course is that of a node that is kept busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Warming:
    """A node's way from its temperature at the campaign's start to a steady one.

    ``leakage_per_k``: relative growth of the leakage a kelvin, 1/K, above that at ``start_c``.
    """

    start_c: float
    rise_k: float
    time_constant_s: float
    leakage_per_k: float = 0.01


def temperature_c(warming: Warming, elapsed_s: float) -> float:
    """The node's temperature so long after the campaign began on it, in degrees Celsius.

    Raises:
        ValueError: ``elapsed_s`` below zero, or a time constant that is not above zero.
    """
    if not (elapsed_s >= 0 and warming.time_constant_s > 0):
        raise ValueError(
            f"{elapsed_s:g} s after the start, time constant {warming.time_constant_s:g} s: "
            f"give a time from 0 s on, and a time constant above 0 s"
        )
    reached = -math.expm1(-elapsed_s / warming.time_constant_s)
    return warming.start_c + warming.rise_k * reached


def leakage_gain(warming: Warming, elapsed_s: float) -> float:
    """Leakage so long after the start over that at the start, for :func:`machine.run`.

    Raises:
        ValueError: as :func:`temperature_c`.
    """
    above_k = temperature_c(warming, elapsed_s) - warming.start_c
    return 1.0 + warming.leakage_per_k * above_k
