"""Channels that stop, in constructed series of readings."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sites.meters import Channel, hwmon
from sites.meters.shared.stopped import stopped

RAPL = Channel(name="package-0", domain="package", kind="energy", resolution=61e-6, period_s=1e-3)
GAUGE = Channel(name="gpu", domain="gpu", kind="power", resolution=1e-3, period_s=0.02)
NS_PER_S = 10**9


def times_ns(count: int, period_s: float) -> list[int]:
    return [round(i * period_s * NS_PER_S) for i in range(count)]


def test_a_counter_that_never_moves() -> None:
    said = stopped(RAPL, times_ns(300, 1e-3), [0.0] * 300)
    assert said is not None
    assert "package-0" in said
    assert "0.299 s" in said


def test_a_counter_that_stops_half_way() -> None:
    moving = [0.1 * i for i in range(500)]
    assert stopped(RAPL, times_ns(500, 1e-3), moving) is None
    assert stopped(RAPL, times_ns(1000, 1e-3), moving + [moving[-1]] * 500) is not None
    # It went on: the stretch in between is missing all the same.
    pause = [*moving, *[moving[-1]] * 300, *(moving[-1] + 0.1 * i for i in range(200))]
    assert stopped(RAPL, times_ns(1000, 1e-3), pause) is not None


@given(
    updates=st.integers(1, 60),
    period_ms=st.integers(1, 200),
    reads_a_period=st.integers(1, 7),
    moves=st.booleans(),
)
def test_an_energy_has_stopped_after_20_periods_and_a_fifth_of_a_second(
    updates: int, period_ms: int, reads_a_period: int, moves: bool
) -> None:
    """However often it is read in between, and however long it moved before."""
    channel = replace(RAPL, period_s=period_ms / 1000)
    step_ns = period_ms * 10**6 // reads_a_period
    count = updates * reads_a_period + 1
    still_s = Fraction((count - 1) * step_ns, NS_PER_S)
    before = [float(i) for i in range(40)] if moves else []
    value = before + [100.0] * count
    said = stopped(channel, [i * step_ns for i in range(len(value))], value)
    assert (said is not None) == (float(still_s) >= max(0.2, 20 * channel.period_s))


def test_a_coarse_counter_may_stay_the_same_for_a_joule_at_a_watt() -> None:
    coarse = replace(RAPL, name="psys", resolution=5.0)
    assert stopped(coarse, times_ns(4_999, 1e-3), [7.0] * 4_999) is None
    assert stopped(coarse, times_ns(5_001, 1e-3), [7.0] * 5_001) is not None


def test_a_fine_power_that_never_changes() -> None:
    assert stopped(GAUGE, times_ns(52, 0.02), [70.123] * 52) is not None
    assert stopped(GAUGE, times_ns(50, 0.02), [70.123] * 50) is None
    assert stopped(GAUGE, times_ns(500, 0.02), [70.123, 70.124] * 250) is None


def test_a_sensor_of_which_the_unit_alone_is_known_has_the_step_of_its_readings() -> None:
    """Whole watts and tenths may be steady, a milliwatt may not."""
    unknown = replace(GAUGE, resolution=hwmon.RESOLUTION)
    assert stopped(unknown, times_ns(500, 0.02), [70.0] * 500) is None
    assert stopped(unknown, times_ns(500, 0.02), [70.1] * 500) is None
    assert stopped(unknown, times_ns(500, 0.02), [70.123] * 500) is not None
    assert stopped(unknown, times_ns(500, 0.02), [70.012] + [70.0] * 499) is not None
    assert stopped(GAUGE, times_ns(500, 0.02), [70.0] * 500) is not None


def test_a_coarse_power_may_be_steady() -> None:
    for resolution, watts in ((1.0, 500.0), (1e-3, 0.5), (1e-3, 0.0)):
        coarse = replace(GAUGE, resolution=resolution)
        assert stopped(coarse, times_ns(1000, 0.02), [watts] * 1000) is None


def test_few_readings_prove_nothing() -> None:
    for count in (0, 1, 2):
        assert stopped(RAPL, times_ns(count, 1e-3), [5.0] * count) is None


def test_readings_and_times_of_different_length() -> None:
    with pytest.raises(ValueError, match="package-0: 2 times of 3 readings"):
        stopped(RAPL, [0, 1], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="go back"):
        stopped(RAPL, [0, 2, 1], [1.0, 1.0, 1.0])
