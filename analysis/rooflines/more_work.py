"""How much more work pays for fewer bytes on a machine: conditions as numbers to plan with.

Choi & Vuduc 2012, section 6.1 for time, eqs. 17 and 27 for energy, with the limits of eqs. 28 and
29 where no byte is moved any more, and the bounds on greenup of a kernel that stays memory-bound.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.rooflines.greenup import (
    BECOMES_COMPUTE_BOUND,
    BOTH_COMPUTE_BOUND,
    BOTH_MEMORY_BOUND,
    bounds,
    case,
    greenup,
    most_work_for_greenup,
    most_work_for_speedup,
    speedup,
)
from analysis.rooflines.roofline import Roofline

AT = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The intensities of the baseline, in units of B_tau."""
HALVED, QUARTERED, NONE = 2.0, 4.0, math.inf
"""The m by which bytes are divided."""


@dataclass(frozen=True, kw_only=True)
class WorkLimits:
    """What f, the factor of more operations, must stay below for a baseline of one intensity.

    ``faster``: for less time, however many bytes are saved; 1 where none is. ``halved``,
    ``quartered``, ``no_bytes``: for less energy when the bytes are divided by 2, by 4, or
    vanish; the last is also the greatest greenup there is. ``greenup_low``, ``greenup_high``:
    between what the greenup lies while the new kernel stays memory-bound, NaN where it cannot.
    """

    intensity: float
    faster: float
    halved: float
    quartered: float
    no_bytes: float
    greenup_low: float
    greenup_high: float

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``; the keys say what f is compared with."""
        return {
            "intensity": self.intensity,
            "faster_below_f": self.faster,
            "less_energy_below_f": {
                "bytes_halved": self.halved,
                "bytes_quartered": self.quartered,
                "no_bytes": self.no_bytes,
            },
            "memory_bound_greenup_low": self.greenup_low,
            "memory_bound_greenup_high": self.greenup_high,
        }


@dataclass(frozen=True)
class Trade:
    """A change of an algorithm: from ``intensity`` operations per byte to ``f`` times the
    operations and a part 1 / ``m`` of the bytes; f and m are 1 or more, m may be infinite."""

    intensity: float
    f: float
    m: float


CASES = {
    BOTH_MEMORY_BOUND: "stays memory-bound",
    BECOMES_COMPUTE_BOUND: "becomes compute-bound",
    BOTH_COMPUTE_BOUND: "stays compute-bound",
}


def traded(line: Roofline, trade: Trade) -> dict[str, Any]:
    """What a change does: speedup (eq. 15), greenup (eqs. 16 and 26), powerup, which is the new
    power over the old one; its case, between what its case lets both lie (section 6.3), and in
    which part of the plane of both it is (figure 8)."""
    point = (trade.intensity, trade.f, trade.m)
    faster, greener = float(speedup(line, *point)), float(greenup(line, *point))
    within = bounds(line, *point)
    saves = {
        (True, True): "time and energy",
        (True, False): "time",
        (False, True): "energy",
        (False, False): "neither",
    }[faster > 1.0, greener > 1.0]
    return {
        **asdict(trade),
        "speedup": faster,
        "greenup": greener,
        "powerup": faster / greener,
        "case": CASES[int(case(line, *point))],
        "saves": saves if math.isfinite(greener) else None,
        **{name: float(value) for name, value in vars(within).items()},
    }


def work_limits(line: Roofline) -> list[WorkLimits]:
    """The limits at the intensities :data:`AT`; none where the line has no energies."""
    if not (math.isfinite(line.op_energy_j) and line.op_energy_j > 0 and line.eps_mem_j >= 0):
        return []
    rows = []
    for share in AT:
        i = np.array(share * line.time_balance)
        below = bounds(line, i, 1.0, 1.0)
        memory_bound = share < 1.0
        rows.append(
            WorkLimits(
                intensity=float(i),
                faster=float(most_work_for_speedup(line, i)),
                halved=float(most_work_for_greenup(line, i, HALVED)),
                quartered=float(most_work_for_greenup(line, i, QUARTERED)),
                no_bytes=float(most_work_for_greenup(line, i, NONE)),
                greenup_low=float(below.greenup_low) if memory_bound else math.nan,
                greenup_high=float(below.greenup_high) if memory_bound else math.nan,
            )
        )
    return rows


def work_advice(line: Roofline) -> str:
    """What the limits at B_tau mean, in a sentence or two; empty without energies."""
    at = dict(zip(AT, work_limits(line), strict=False))
    if not at:
        return ""
    whole, half = at[1.0], at[0.5]
    return (
        f"a kernel of {half.intensity:.3g} op/B that halves its bytes saves time with less than "
        f"{half.faster:.3g} times the operations, and energy with less than {half.halved:.3g} "
        f"times; one of {whole.intensity:.3g} op/B saves energy with less than {whole.halved:.3g} "
        f"times ({whole.no_bytes:.3g} with no bytes at all), and never time"
    )
