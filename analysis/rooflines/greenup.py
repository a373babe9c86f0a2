"""Work against communication: what doing more operations on fewer bytes costs, and what pays.

Choi & Vuduc 2012, section 6 for pi_0 = 0 and appendix A for pi_0 > 0. A baseline kernel of W
operations on Q bytes, of intensity I = W / Q, is replaced by one of f W operations on Q / m
bytes, with f, m >= 1. Intensity, f and m are arrays that broadcast together, of no unit but the
intensity's operations per byte; m may be infinite.

The closed forms come from appendix A, which at pi_0 = 0 become those of section 6, but one:
the upper bound on greenup in case 1 (see :func:`bounds`).

How much more work pays for fewer bytes on a machine is section 6.1 for time and eqs. 17 and 27 for
energy, with the limits of eqs. 28 and 29 where no byte is moved any more.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from analysis.rooflines.roofline import Roofline

AT = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The intensities of the baseline, in units of B_tau."""
HALVED, QUARTERED, NONE = 2.0, 4.0, math.inf
"""The m by which bytes are divided."""
BOTH_MEMORY_BOUND = 1
BECOMES_COMPUTE_BOUND = 2
BOTH_COMPUTE_BOUND = 3
CASES = {
    BOTH_MEMORY_BOUND: "stays memory-bound",
    BECOMES_COMPUTE_BOUND: "becomes compute-bound",
    BOTH_COMPUTE_BOUND: "stays compute-bound",
}


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


@dataclass(frozen=True)
class Bounds:
    """What the case of each point leaves possible: four float64 arrays of the points' shape."""

    speedup_low: np.ndarray
    speedup_high: np.ndarray
    greenup_low: np.ndarray
    greenup_high: np.ndarray


def speedup(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> np.ndarray:
    """dT = T(W, Q) / T(fW, Q/m), float64 (eq. 15): above 1 the new kernel is faster."""
    i, f, m = _points(intensity, f, m)
    ratio: np.ndarray = line.op_time_s(i) / (f * line.op_time_s(f * m * i))
    return ratio


def greenup(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> np.ndarray:
    """dE = E(W, Q) / E(fW, Q/m), float64 (eq. 16, and eq. 26 with constant power).

    Above 1 the new kernel takes less energy. NaN where the line has no energies, or where an
    operation costs neither energy nor constant power.
    """
    i, f, m = _points(intensity, f, m)
    ratio: np.ndarray = line.op_total_energy_j(i) / (f * line.op_total_energy_j(f * m * i))
    return ratio


def case(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> np.ndarray:
    """Which of the three cases of section 6.3 each point is, int64.

    1: baseline and new kernel are memory-bound in time (f m I < B_tau); 2: the new one alone is
    compute-bound (I < B_tau <= f m I); 3: both are compute-bound (I >= B_tau).

    Raises:
        ValueError: an f or m below 1, where there is a fourth case.
    """
    i, f, m = _trade_offs(intensity, f, m)
    b_tau = line.time_balance
    return np.where(
        i >= b_tau,
        BOTH_COMPUTE_BOUND,
        np.where(f * m * i >= b_tau, BECOMES_COMPUTE_BOUND, BOTH_MEMORY_BOUND),
    ).astype(np.int64)


def bounds(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> Bounds:
    """Between what the speedup and the greenup of each point lie, by its case.

    Speedup: section 6.4 prints its value, m in case 1, B_tau / (f I) in case 2 and 1 / f in
    case 3. The bounds are what that leaves to a kernel of intensity I when f (and, but for
    case 2, m) is free: 1 to B_tau / I, 0 to min(m, B_tau / I), and 0 to 1.

    Greenup, with b = eta B_eps, E = 1 + B^_eps(I) / I, and S = I E / (B_tau + b):
    case 1, S to E / (1 + b / B_tau); case 2, dT S to m S; case 3, E / (f + b / I) to
    E / (1 + b / (m I)). At pi_0 = 0 these are eqs. 18 to 23.

    One of them is not what appendix A.5 prints: there the upper bound of case 1 has
    1 + (b + (1 - eta) (B_tau - I)) / B_tau as its denominator, having put f m > 1 into
    -f m I together with 1 / m > f I / B_tau, which cannot both be tight. With constant power the
    greenup passes that value. The energy of the new kernel in case 1, in units of
    W (eps_op + eps_0), is eta f + (b + (1 - eta) B_tau) / (m I); with f >= 1 and
    1 / m >= f I / B_tau it is at least 1 + b / B_tau, which it reaches at f = 1, m = B_tau / I.
    That is also what eq. 19 becomes with b in the place of B_eps.

    Appendices A.5 and A.6 leave open on which side of 1 S lies. It is never above 1: it is
    1 - eta (B_tau - I) / (B_tau + b), and I < B_tau in both cases.

    The bounds hold with equality allowed, as f and m may be 1. They are NaN where the line has
    no energies.

    Raises:
        ValueError: an f or m below 1.
    """
    i, f, m = _trade_offs(intensity, f, m)
    which = case(line, i, f, m)
    b_tau = line.time_balance
    b = float(line.effective_balance(np.array(np.inf)))
    baseline = 1.0 + line.effective_balance(i) / i
    ratio = i * baseline / (b_tau + b)
    zero = np.zeros(i.shape)
    return Bounds(
        np.choose(which - 1, [zero + 1.0, zero, zero]),
        np.choose(which - 1, [b_tau / i, np.minimum(m, b_tau / i), zero + 1.0]),
        np.choose(which - 1, [ratio, speedup(line, i, f, m) * ratio, baseline / (f + b / i)]),
        np.choose(
            which - 1, [baseline / (1.0 + b / b_tau), m * ratio, baseline / (1.0 + b / (m * i))]
        ),
    )


def most_work_for_speedup(line: Roofline, intensity: ArrayLike) -> np.ndarray:
    """The f below which a new kernel with m > 1 is faster: max(1, B_tau / I), float64.

    Section 6.1: a baseline that is compute-bound in time can only become slower.
    """
    return np.maximum(1.0, line.time_balance / np.asarray(intensity, float))


def most_work_for_greenup(
    line: Roofline, intensity: ArrayLike, m: ArrayLike = np.inf
) -> np.ndarray:
    """The f below which a new kernel takes less energy, float64 (eq. 17, and eq. 27 for pi_0 > 0).

    The condition f < this is necessary and sufficient for a greenup. Eq. 27 has f on both sides;
    this is its solution: the new kernel's energy is the greater of its two forms, memory-bound
    and compute-bound in time, and each is linear in f. An infinite m, all communication
    avoided, gives the limits of eqs. 28 and 29, 1 + B^_eps(I) / I.

    Raises:
        ValueError: an m below 1.
    """
    i, _, m = _trade_offs(intensity, 1.0, m)
    eta = line.op_efficiency
    b = float(line.effective_balance(np.array(np.inf)))
    baseline = 1.0 + line.effective_balance(i) / i
    compute_bound = baseline - b / (m * i)
    memory_cost = (b + (1.0 - eta) * line.time_balance) / i
    if eta > 0.0:
        memory_bound = (baseline - memory_cost / m) / eta
    else:  # An operation is free while bytes take longer: then any byte saved is a greenup.
        memory_bound = np.where(m > 1.0, np.inf, 1.0)
    most: np.ndarray = np.minimum(compute_bound, memory_bound)
    return most


def _points(intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> tuple[np.ndarray, ...]:
    return np.broadcast_arrays(*(np.asarray(values, float) for values in (intensity, f, m)))


def _trade_offs(intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> tuple[np.ndarray, ...]:
    """The points, as arrays of one shape, if they trade communication for work."""
    points = _points(intensity, f, m)
    if not all((values >= 1.0).all() for values in points[1:]):
        raise ValueError("f and m must be 1 or more: more operations, on fewer bytes")
    return points
