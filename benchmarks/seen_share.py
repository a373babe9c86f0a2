"""What share of the time a meter sees, from its readings of a load that goes on and off.

A meter that sees a part of each of its periods misreads a load whose period is near a multiple or a
fraction of its period. The error depends on the phase between the two: the same load, begun at
other phases, seems to have other energies. The spread of these gives the share. The load is
compared with itself, so no second meter is needed, and a wrong calibration does no harm.

Yang, Adamek & Armour (arXiv 2312.02741) found in this way that the power of an A100 is a mean over
25 of every 100 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SHARES = np.array([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
"""The shares that are compared."""
PHASES = 64
SLOW_S = 0.3
"""Waves with at least this period show the levels of the load."""
LEAST_SWING = 0.2
"""A load whose levels differ by less, relative to its mean power, shows nothing."""
EXPLAINED = 0.35
"""The largest residual of the best share, as a part of half the swing."""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """One run of a load that is busy for ``busy_s`` of every ``period_s``.

    ``begin_s``, ``end_s``: bounds of its whole periods. ``counter_s``, ``counter_j``: when an
    energy counter was read, and its values; ``power_s``, ``power_w``: the same of a power. Values
    repeat until the meter has a new one.
    """

    period_s: float
    busy_s: float
    begin_s: float
    end_s: float
    counter_s: np.ndarray
    counter_j: np.ndarray
    power_s: np.ndarray
    power_w: np.ndarray


@dataclass(frozen=True, kw_only=True)
class PeriodRow:
    """The waves of one period. ``ratio``: the counter's energy over the integral of the power, by
    wave; ``counter_spread``, ``power_spread``: the standard deviation of each energy over the
    waves, relative to its mean."""

    period_s: float
    ratio: list[float]
    counter_spread: float
    power_spread: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``rows`` by period; ``update_s``: the median time between two new values of the power;
    ``swing``: (high - low) / mean of the load's power; ``counter_seen``, ``power_seen``: the share
    of the time that each sees, None if the waves do not show it; ``text``: the conclusion."""

    rows: list[PeriodRow]
    update_s: float
    swing: float
    counter_seen: float | None
    power_seen: float | None
    text: str


def new_values(time_s: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the readings at which the value is new."""
    new = np.append(True, value[1:] != value[:-1])
    return time_s[new], value[new]


def counter_energy_j(wave: Wave) -> float:
    """Return the counter's energy over the whole periods, interpolated between its new values."""
    edges_j = np.interp([wave.begin_s, wave.end_s], *new_values(wave.counter_s, wave.counter_j))
    return float(edges_j[1] - edges_j[0])


def power_energy_j(wave: Wave) -> float:
    """Return the integral of the power over the whole periods: each new value holds until the
    next."""
    time_s, power_w = new_values(wave.power_s, wave.power_w)
    edges = np.clip(np.append(time_s, max(wave.end_s, time_s[-1])), wave.begin_s, wave.end_s)
    edges[0] = wave.begin_s
    return float(np.sum(np.diff(edges) * power_w))


def predicted_spread(
    period_s: float, duty: float, seen: float, update_s: float, length_s: float
) -> float:
    """Return the standard deviation, over all phases, of the busy share that a meter sees.

    It sees the first ``seen * update_s`` of every ``update_s``.
    """
    first = np.arange(PHASES)[:, None] / PHASES * update_s
    looks = first + np.arange(max(round(length_s / update_s), 1)) * update_s

    def busy_before(time_s: np.ndarray) -> np.ndarray:
        whole = np.floor(time_s / period_s)
        return duty * period_s * whole + np.minimum(time_s - whole * period_s, duty * period_s)

    width_s = seen * update_s
    share = (busy_before(looks + width_s) - busy_before(looks)) / width_s
    return float(share.mean(axis=1).std())


def judge(waves: Sequence[Wave]) -> Verdict:
    """Return what the counter and the power see, from several waves of each period, each begun at a
    different phase; some periods must be SLOW_S or more."""
    by_period: dict[float, list[Wave]] = {}
    for wave in waves:
        by_period.setdefault(wave.period_s, []).append(wave)
    rows, spreads = [], []
    for period_s, same_period in sorted(by_period.items()):
        counter = np.array([counter_energy_j(w) / (w.end_s - w.begin_s) for w in same_period])
        power = np.array([power_energy_j(w) / (w.end_s - w.begin_s) for w in same_period])
        spread = [float(mean_w.std() / mean_w.mean()) for mean_w in (counter, power)]
        spreads.append(spread)
        rows.append(
            PeriodRow(
                period_s=period_s,
                ratio=(counter / power).tolist(),
                counter_spread=spread[0],
                power_spread=spread[1],
            )
        )
    update_s = float(
        np.median(np.concatenate([np.diff(new_values(w.power_s, w.power_w)[0]) for w in waves]))
    )
    swing = _swing([wave for wave in waves if wave.period_s >= SLOW_S])
    predicted = np.array(
        [
            [
                predicted_spread(
                    period_s,
                    float(np.mean([w.busy_s for w in same_period])) / period_s,
                    seen,
                    update_s,
                    float(np.mean([w.end_s - w.begin_s for w in same_period])),
                )
                for period_s, same_period in sorted(by_period.items())
            ]
            for seen in SHARES
        ]
    )
    counter_seen, power_seen = (
        _nearest(predicted * swing, measured, swing) for measured in np.array(spreads).T
    )
    return Verdict(
        rows=rows,
        update_s=update_s,
        swing=swing,
        counter_seen=counter_seen,
        power_seen=power_seen,
        text=_text(swing, update_s, counter_seen, power_seen),
    )


def _swing(slow: Sequence[Wave]) -> float:
    """Return (high - low) / mean of the load, by the power's readings of slow waves; 0 without
    any."""
    if not slow:
        return 0.0
    levels = [np.percentile(new_values(w.power_s, w.power_w)[1], [10, 90]) for w in slow]
    mean_w = np.mean([power_energy_j(w) / (w.end_s - w.begin_s) for w in slow])
    low, high = np.mean(levels, axis=0)
    return float((high - low) / mean_w)


def _nearest(predicted: np.ndarray, measured: np.ndarray, swing: float) -> float | None:
    """Return the share whose spreads (shares, periods) are nearest; None if the load swings too
    little, or no share explains the readings."""
    off = np.sqrt(np.mean((predicted - measured) ** 2, axis=1))
    best = int(np.argmin(off))
    if swing < LEAST_SWING or off[best] > EXPLAINED * swing / 2.0:
        return None
    return float(SHARES[best])


def _text(swing: float, update_s: float, counter: float | None, power: float | None) -> str:
    if swing < LEAST_SWING:
        return (
            f"not decided: the load's power swings by {swing:.0%} of its mean only; use a kernel "
            f"that needs more power"
        )
    if counter is None:
        return "not decided: no share of the time explains the counter's spread over the phases"
    if counter >= 0.9:
        conclusion = "the energy counter sees all of the time: `seen` of its channel stays 1"
    else:
        conclusion = (
            f"the energy counter sees about {counter:.0%} of the time: set `seen` of its channel "
            f"to {counter:g} (sites/meters/nvml.py)"
        )
    power_share = "an unknown share" if power is None else f"about {power:.0%}"
    return f"{conclusion}; the power, new every {update_s * 1e3:.0f} ms, sees {power_share}"
