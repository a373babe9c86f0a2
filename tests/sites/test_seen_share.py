"""What share of the time a meter sees, by synthetic readings of meters that see a known share."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.seen_share import Wave, judge, predicted_spread

PERIODS_S = (0.02, 0.05, 0.08, 0.1, 0.13, 0.2, 0.4)
UPDATE_S, STEP_S = 0.1, 0.0005
HIGH_W, LOW_W = 400.0, 150.0


def readings(power_w: np.ndarray, seen: float, first: int) -> tuple[np.ndarray, np.ndarray]:
    """What a meter has published at each step: the mean of the part of each update that it sees.

    ``first``: the step at which its first update begins.
    """
    steps, part = round(UPDATE_S / STEP_S), round(seen * UPDATE_S / STEP_S)
    published = np.full(len(power_w), np.nan)
    values = []
    for begin in range(first, len(power_w) - steps, steps):
        values.append(power_w[begin : begin + part].mean())
        published[begin + steps :] = values[-1]
    start = first + steps
    return np.arange(len(power_w))[start:] * STEP_S, published[start:]


def wave(
    period_s: float, begin_s: float, counter_seen: float, low_w: float, rng: np.random.Generator
) -> Wave:
    """A square wave for 4 s, on a meter whose updates begin at some time."""
    whole = np.ceil(4.0 / period_s) * period_s
    time_s = np.arange(round((whole + 1.5) / STEP_S)) * STEP_S
    busy = (time_s - begin_s) % period_s < period_s / 2
    power_w = np.where(busy, HIGH_W, low_w) + rng.normal(0, 5.0, len(time_s))
    first = int(rng.integers(round(UPDATE_S / STEP_S)))
    power_s, seen_w = readings(power_w, 0.25, first)
    counter_s, counted_w = readings(power_w, counter_seen, first)
    # A counter has all updates until now.
    new = np.append(True, counted_w[1:] != counted_w[:-1])
    energy_j = np.cumsum(np.where(new, counted_w * UPDATE_S, 0.0))
    polled = slice(None, None, 4)
    return Wave(
        period_s=period_s,
        busy_s=period_s / 2,
        begin_s=begin_s + 0.7,
        end_s=begin_s + 0.7 + whole,
        counter_s=counter_s[polled],
        counter_j=energy_j[polled],
        power_s=power_s[polled],
        power_w=seen_w[polled],
    )


def waves(counter_seen: float, low_w: float = LOW_W) -> list[Wave]:
    rng = np.random.default_rng(3)
    return [
        wave(period_s, phase * period_s / 8, counter_seen, low_w, rng)
        for period_s in PERIODS_S
        for phase in range(8)
    ]


def test_a_counter_that_adds_up_all_of_the_time() -> None:
    verdict = judge(waves(1.0))
    assert verdict.counter_seen == 1.0
    assert verdict.power_seen == pytest.approx(0.25, abs=0.06)
    assert verdict.update_s == pytest.approx(UPDATE_S, rel=0.05)
    assert verdict.swing == pytest.approx((HIGH_W - LOW_W) / ((HIGH_W + LOW_W) / 2), rel=0.1)
    assert "sees all of the time: `seen` of its channel stays 1" in verdict.text
    at_100_ms = next(row for row in verdict.rows if row.period_s == 0.1)
    assert at_100_ms.counter_spread < 0.02 < 0.15 < at_100_ms.power_spread
    assert max(at_100_ms.ratio) > 1.3 * min(at_100_ms.ratio)


@pytest.mark.parametrize("seen", [0.25, 0.5])
def test_a_counter_that_samples_a_part_of_the_time(seen: float) -> None:
    verdict = judge(waves(seen))
    assert verdict.counter_seen == pytest.approx(seen, abs=0.11)
    assert f"sees about {verdict.counter_seen:.0%} of the time: set `seen`" in verdict.text
    if seen == 0.25:  # as its power does, so the two agree
        ratios = [ratio for row in verdict.rows for ratio in row.ratio]
        assert ratios == pytest.approx([1.0] * len(ratios), abs=0.06)


def test_a_load_that_hardly_swings_decides_nothing() -> None:
    verdict = judge(waves(0.25, low_w=390.0))
    assert verdict.counter_seen is None
    assert verdict.text.startswith("not decided: the load's power swings by ")


def test_the_predicted_spread_by_brute_force() -> None:
    """Of a meter that sees 25 of 100 ms, for a wave of 130 ms, busy for 40 % of the time."""
    period_s, duty, seen, length_s = 0.13, 0.4, 0.25, 2.6
    step_s = 1e-4
    means = []
    for phase_s in np.arange(64) / 64 * 0.1:
        looks = phase_s + np.arange(26) * 0.1
        at = looks[:, None] + np.arange(round(seen * 0.1 / step_s)) * step_s
        means.append(np.mean(at % period_s < duty * period_s))
    assert predicted_spread(period_s, duty, seen, 0.1, length_s) == pytest.approx(
        np.std(means), abs=1e-3
    )
    assert predicted_spread(0.1, 0.5, 1.0, 0.1, 4.0) == pytest.approx(0.0, abs=1e-12)
    assert predicted_spread(0.1, 0.5, 0.25, 0.1, 4.0) > 0.35
