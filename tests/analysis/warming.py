"""The temperature of a simulated node that warms up during a campaign, and its leakage.

The temperature is a first-order response: it rises towards a steady state with one time constant,
like one heat capacity behind one thermal resistance. Leakage is linear in temperature, which is
accurate to 1 % over the operating range of a circuit (Liu, Dick, Shang & Yang, Accurate
temperature-dependent integrated circuit leakage power estimation is easy, DATE 2007), so the mean
leakage is the leakage at the mean temperature. Its growth of 1 % per kelvin is assumed; US patent
6,842,714 names 30 % for 30 K.

All functions depend only on the time since the campaign began on the node, not on the kernels: the
node is assumed to be busy all the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Warming:
    """The change of a node's temperature from the campaign's start to the steady state.

    ``leakage_per_k``: growth of the leakage per kelvin, relative to that at ``start_c``, in 1/K.
    """

    start_c: float
    rise_k: float
    time_constant_s: float
    leakage_per_k: float = 0.01


def temperature_c(warming: Warming, elapsed_s: float) -> float:
    """The node's temperature ``elapsed_s`` after the campaign began on it, in degrees Celsius.

    Raises:
        ValueError: ``elapsed_s`` is negative, or the time constant is not positive.
    """
    if not (elapsed_s >= 0 and warming.time_constant_s > 0):
        raise ValueError(
            f"{elapsed_s:g} s after the start, time constant {warming.time_constant_s:g} s: "
            f"the time must not be negative, and the time constant must be above 0 s"
        )
    reached = -math.expm1(-elapsed_s / warming.time_constant_s)
    return warming.start_c + warming.rise_k * reached


def leakage_gain(warming: Warming, elapsed_s: float) -> float:
    """Leakage ``elapsed_s`` after the start, relative to that at the start.

    Raises:
        ValueError: as :func:`temperature_c`.
    """
    above_k = temperature_c(warming, elapsed_s) - warming.start_c
    return 1.0 + warming.leakage_per_k * above_k
