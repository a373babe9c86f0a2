"""The trade-off of work and communication: the effect of more operations on fewer bytes.

Choi & Vuduc 2012, section 6 for pi_0 = 0 and appendix A for pi_0 > 0. A new kernel of f W
operations on Q / m bytes, with f, m >= 1, replaces a baseline kernel of W operations on Q bytes,
of intensity I = W / Q. Intensity (operations per byte), f and m are arrays that broadcast together;
m may be infinite.

The closed forms are those of appendix A, which become those of section 6 at pi_0 = 0, with one
exception: the upper bound on greenup in case 1 (see :func:`bounds`).

The largest f that saves time follows from section 6.1, and the largest that saves energy from eqs.
17 and 27, with the limits of eqs. 28 and 29 for no bytes.
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
"""Values of m, which divides the bytes."""
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
    """The upper limits of f, the factor of operations, for a baseline of one intensity.

    ``faster``: the limit for less time, whatever m is; 1 if no f saves time. ``halved``,
    ``quartered``, ``no_bytes``: the limits for less energy if the bytes are divided by 2, by 4, or
    vanish; the last is also the greatest possible greenup. ``greenup_low``, ``greenup_high``: the
    range of the greenup while the new kernel is memory-bound, NaN if it cannot be.
    """

    intensity: float
    faster: float
    halved: float
    quartered: float
    no_bytes: float
    greenup_low: float
    greenup_high: float

    def as_dict(self) -> dict[str, Any]:
        """The entries in ``--json``."""
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
    """A change of an algorithm of ``intensity`` operations per byte: ``f`` times the operations on
    1 / ``m`` of the bytes; f and m are 1 or more, m may be infinite."""

    intensity: float
    f: float
    m: float


def traded(line: Roofline, trade: Trade) -> dict[str, Any]:
    """The effect of a change: speedup (eq. 15), greenup (eqs. 16 and 26), powerup (new power over
    old), its case with bounds (section 6.3), and what it saves (figure 8)."""
    point = (trade.intensity, trade.f, trade.m)
    speed_ratio, energy_ratio = float(speedup(line, *point)), float(greenup(line, *point))
    limits = bounds(line, *point)
    saved = {
        (True, True): "time and energy",
        (True, False): "time",
        (False, True): "energy",
        (False, False): "neither",
    }[speed_ratio > 1.0, energy_ratio > 1.0]
    return {
        **asdict(trade),
        "speedup": speed_ratio,
        "greenup": energy_ratio,
        "powerup": speed_ratio / energy_ratio,
        "case": CASES[int(case(line, *point))],
        "saves": saved if math.isfinite(energy_ratio) else None,
        **{name: float(value) for name, value in vars(limits).items()},
    }


def work_limits(line: Roofline) -> list[WorkLimits]:
    """The limits at the intensities :data:`AT`; none if the line has no energies."""
    if not (math.isfinite(line.op_energy_j) and line.op_energy_j > 0 and line.eps_mem_j >= 0):
        return []
    rows = []
    for share in AT:
        i = np.array(share * line.time_balance)
        limits = bounds(line, i, 1.0, 1.0)
        memory_bound = share < 1.0
        rows.append(
            WorkLimits(
                intensity=float(i),
                faster=float(most_work_for_speedup(line, i)),
                halved=float(most_work_for_greenup(line, i, HALVED)),
                quartered=float(most_work_for_greenup(line, i, QUARTERED)),
                no_bytes=float(most_work_for_greenup(line, i, NONE)),
                greenup_low=float(limits.greenup_low) if memory_bound else math.nan,
                greenup_high=float(limits.greenup_high) if memory_bound else math.nan,
            )
        )
    return rows


def work_advice(line: Roofline) -> str:
    """The meaning of the limits at B_tau and at half of it, as text; empty without energies."""
    by_share = dict(zip(AT, work_limits(line), strict=False))
    if not by_share:
        return ""
    whole, half = by_share[1.0], by_share[0.5]
    return (
        f"a kernel of {half.intensity:.3g} op/B that halves its bytes saves time with less than "
        f"{half.faster:.3g} times the operations, and energy with less than {half.halved:.3g} "
        f"times; one of {whole.intensity:.3g} op/B saves energy with less than {whole.halved:.3g} "
        f"times ({whole.no_bytes:.3g} with no bytes at all), and never time"
    )


@dataclass(frozen=True)
class Bounds:
    """The range of speedup and greenup in the case of each point; float64, of the points' shape."""

    speedup_low: np.ndarray
    speedup_high: np.ndarray
    greenup_low: np.ndarray
    greenup_high: np.ndarray


def speedup(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> np.ndarray:
    """dT = T(W, Q) / T(fW, Q/m), float64 (eq. 15): above 1 the new kernel is faster."""
    i, f, m = _points(intensity, f, m)
    return np.asarray(line.op_time_s(i) / (f * line.op_time_s(f * m * i)))


def greenup(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> np.ndarray:
    """dE = E(W, Q) / E(fW, Q/m), float64 (eq. 16, and eq. 26 with constant power).

    Above 1 the new kernel takes less energy. NaN if the line has no energies, or if an operation
    costs neither energy nor constant power.
    """
    i, f, m = _points(intensity, f, m)
    return np.asarray(line.op_total_energy_j(i) / (f * line.op_total_energy_j(f * m * i)))


def case(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> np.ndarray:
    """The case of each point, of the three in section 6.3, int64.

    1: baseline and new kernel are memory-bound in time (f m I < B_tau); 2: the new one alone is
    compute-bound (I < B_tau <= f m I); 3: both are compute-bound (I >= B_tau).

    Raises:
        ValueError: an f or m below 1, for which there is a fourth case.
    """
    i, f, m = _trade_offs(intensity, f, m)
    b_tau = line.time_balance
    return np.where(
        i >= b_tau,
        BOTH_COMPUTE_BOUND,
        np.where(f * m * i >= b_tau, BECOMES_COMPUTE_BOUND, BOTH_MEMORY_BOUND),
    ).astype(np.int64)


def bounds(line: Roofline, intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> Bounds:
    """The bounds of the speedup and the greenup of each point, by its case.

    Speedup: section 6.4 prints its value, m in case 1, B_tau / (f I) in case 2 and 1 / f in
    case 3. The bounds are its range for a kernel of intensity I if f (and, except in case 2, m)
    is free: 1 to B_tau / I, 0 to min(m, B_tau / I), and 0 to 1.

    Greenup, with b = eta B_eps, E = 1 + B^_eps(I) / I, and S = I E / (B_tau + b):
    case 1, S to E / (1 + b / B_tau); case 2, dT S to m S; case 3, E / (f + b / I) to
    E / (1 + b / (m I)). At pi_0 = 0 these are eqs. 18 to 23.

    One bound differs from appendix A.5, where the upper bound of case 1 has the denominator
    1 + (b + (1 - eta) (B_tau - I)) / B_tau: it combines f m > 1 in -f m I with
    1 / m > f I / B_tau, which cannot both be tight. With constant power the greenup exceeds that
    value. The energy of the new kernel in case 1, in units of
    W (eps_op + eps_0), is eta f + (b + (1 - eta) B_tau) / (m I); with f >= 1 and
    1 / m >= f I / B_tau it is at least 1 + b / B_tau, which it reaches at f = 1, m = B_tau / I.
    Eq. 19 with b for B_eps gives the same.

    Appendices A.5 and A.6 leave open whether S is above 1. It never is: S =
    1 - eta (B_tau - I) / (B_tau + b), and I < B_tau in both cases.

    The bounds are inclusive, as f and m may be 1. They are NaN if the line has no energies.

    Raises:
        ValueError: an f or m below 1.
    """
    i, f, m = _trade_offs(intensity, f, m)
    cases = case(line, i, f, m)
    b_tau = line.time_balance
    b = float(line.effective_balance(np.array(np.inf)))
    baseline = 1.0 + line.effective_balance(i) / i
    ratio = i * baseline / (b_tau + b)
    zero = np.zeros(i.shape)
    return Bounds(
        np.choose(cases - 1, [zero + 1.0, zero, zero]),
        np.choose(cases - 1, [b_tau / i, np.minimum(m, b_tau / i), zero + 1.0]),
        np.choose(cases - 1, [ratio, speedup(line, i, f, m) * ratio, baseline / (f + b / i)]),
        np.choose(
            cases - 1, [baseline / (1.0 + b / b_tau), m * ratio, baseline / (1.0 + b / (m * i))]
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

    An f below this value is necessary and sufficient for a greenup. Eq. 27 has f on both sides; its
    solution uses that the new kernel's energy is the greater of two forms, memory-bound and
    compute-bound in time, which are both linear in f. An infinite m (no communication) gives the
    limits of eqs. 28 and 29, 1 + B^_eps(I) / I.

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
    else:  # Operations cost no energy while bytes take longer: any saved byte is a greenup.
        memory_bound = np.where(m > 1.0, np.inf, 1.0)
    return np.asarray(np.minimum(compute_bound, memory_bound))


def _points(intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> tuple[np.ndarray, ...]:
    return np.broadcast_arrays(*(np.asarray(values, float) for values in (intensity, f, m)))


def _trade_offs(intensity: ArrayLike, f: ArrayLike, m: ArrayLike) -> tuple[np.ndarray, ...]:
    """The points as arrays of one shape; ValueError for an f or m below 1."""
    points = _points(intensity, f, m)
    if not all((values >= 1.0).all() for values in points[1:]):
        raise ValueError("f and m must be 1 or more: more operations, on fewer bytes")
    return points
