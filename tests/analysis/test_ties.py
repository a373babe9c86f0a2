"""Settings whose times differ by less than the noise of repeats are equally fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import SettingCandidates, all_candidates
from analysis.choice.losses import Predicted, case_losses
from analysis.choice.pick import pick
from analysis.measurements.observations import measured_volts, observations
from analysis.predict.site import site_time_noise
from analysis.ties import equally_fast, fastest, time_noise
from dvfs.setting import Setting
from tests.analysis.simulated_tk1 import simulated_columns

SETTINGS = [
    Setting(*mhz) for mhz in ((400.0, 900.0), (800.0, 500.0), (800.0, 900.0), (1200.0, 900.0))
]


def test_noise_is_that_of_repeats_at_the_same_setting():
    """Times of known relative scatter, of two kernels of different noise."""
    data = observations(simulated_columns("default", per_family=4), "tk1")
    data = data.take(np.repeat(np.arange(len(data)), 30))
    rng = np.random.default_rng(3)
    noisy = data.labels == data.labels[0]
    scatter = np.where(noisy, 0.02, 0.005)
    data = replace(data, time_s=data.time_s * (1.0 + scatter * rng.standard_normal(len(data))))
    noise = time_noise(data)
    assert noise[str(data.labels[0])] == pytest.approx(0.02, rel=0.1)
    others = [value for label, value in noise.items() if label != data.labels[0]]
    assert np.mean(others) == pytest.approx(0.005, rel=0.1)


def test_noise_where_there_are_few_repeats_or_none():
    """Of 3 % everywhere. One kernel has no repeats: its noise is that of the others."""
    data = observations(simulated_columns("default", per_family=4), "tk1")
    alone = str(data.labels[0])
    twice = data.take(np.concatenate([np.arange(len(data)), np.flatnonzero(data.labels != alone)]))
    rng = np.random.default_rng(3)
    one, two = (
        replace(d, time_s=d.time_s * (1.0 + 0.03 * rng.standard_normal(len(d))))
        for d in (data, twice)
    )
    noise = time_noise(two)
    others = [value for label, value in noise.items() if label != alone]
    of_all = np.sqrt(np.mean(np.square(others)))
    assert of_all == pytest.approx(0.03, rel=0.1)
    assert noise[alone] == pytest.approx(of_all)
    alone_noise = site_time_noise(one, measured_volts(one))
    assert list(alone_noise.values()) == pytest.approx([0.03] * (1 + len(others)), rel=0.2)
    assert site_time_noise(two, measured_volts(two)) == noise


def test_means_of_many_repeats_are_tied_less_often():
    """Times 3 % apart, each with a noise of 2 %: tied where measured once, not as means of 16."""
    data = observations(simulated_columns("default", per_family=2), "tk1")
    kernel = str(data.labels[0])
    rows = np.flatnonzero(data.labels == kernel)
    high, low = rows[np.argmax(data.core_mhz[rows])], rows[np.argmin(data.core_mhz[rows])]
    for repeats, lost_pct in ((2, 100.0), (16, 0.0)):
        some = data.take(np.array([high, low] * repeats))
        scatter = np.repeat(np.tile([0.98, 1.02], repeats // 2), 2)
        noise = 0.02 * np.sqrt(repeats / (repeats - 1))
        some = replace(
            some,
            time_s=np.tile([1.03, 1.0], repeats) * scatter,
            energy_j=np.tile([2.0, 1.0], repeats),
        )
        assert time_noise(some)[kernel] == pytest.approx(noise, rel=0.05)
        (case,) = case_losses(some, Predicted(some.energy_j, some.time_s))
        assert case.mean_pct("race_to_halt") == pytest.approx(lost_pct)


def test_equal_times_are_tied_at_the_rate_that_is_stated():
    """Of two settings of the same true time, the noise unties one pair of twenty."""
    rng = np.random.default_rng(5)
    times = 1.0 + 0.01 * rng.standard_normal((4000, 2))
    tied = [equally_fast(row, np.full(2, 0.01)).all() for row in times]
    assert np.mean(tied) == pytest.approx(0.95, abs=0.02)


def test_a_candidates_time_has_the_error_of_the_mean_of_its_repeats():
    data = observations(simulated_columns("default", per_family=2), "tk1")
    data = data.take(np.repeat(np.arange(len(data)), 4))
    rng = np.random.default_rng(7)
    data = replace(data, time_s=data.time_s * (1.0 + 0.02 * rng.standard_normal(len(data))))
    kernel = str(data.labels[0])
    among = all_candidates(data, [kernel])[kernel]
    assert among.time_error_s == pytest.approx(time_noise(data)[kernel] * among.time_s / 2.0)


@pytest.mark.parametrize(("first", "untied"), [(0.993, 1), (1.0, 2), (1.007, 2)])
def test_among_ties_the_highest_clocks_are_the_fastest(first, untied):
    """Whichever of two came out faster by 0.7 %, unless the noise is a tenth of that."""
    time_s = np.array([3.0, first, 1.0, 1.0 / 0.98])
    assert fastest(SETTINGS, time_s, np.full(4, 0.004)) == 2
    assert fastest(SETTINGS, time_s, np.full(4, 0.0004)) == untied


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([Setting(800.0, 900.0), Setting(900.0, 500.0), Setting(900.0, 400.0)], 1),
        ([Setting(None, mhz) for mhz in (500.0, 900.0, 700.0)], 1),
        ([Setting(mhz) for mhz in (500.0, 900.0, 700.0)], 1),
        # No power limit is the highest, whether or not another names it.
        ([Setting(900.0, power_limit_w=watts) for watts in (80.0, None, 400.0)], 1),
        ([Setting(900.0, power_limit_w=watts) for watts in (80.0, 110.0, 400.0)], 2),
    ],
)
def test_the_core_clock_comes_first_and_a_site_may_have_one_clock(settings, expected):
    assert fastest(settings, np.array([1.0, 1.001, 1.002]), np.full(3, 0.01)) == expected


@pytest.mark.parametrize("names", [("eco", "z", "performance"), ("z", "performance", "eco")])
def test_the_names_of_profiles_say_nothing(names):
    settings = [Setting(900.0, profile=name) for name in names]
    assert fastest(settings, np.array([1.001, 1.0, 1.002]), np.full(3, 0.01)) == 1


def among(energy_j: list[float], time_s: list[float], error: float) -> SettingCandidates:
    rng = np.random.default_rng(1)
    energies = np.array(energy_j)
    return SettingCandidates(
        kernel="k",
        params={},
        label="k",
        settings=SETTINGS,
        energy_j=energies,
        time_s=np.array(time_s),
        measured=np.ones(4, bool),
        measured_j=energies,
        energy_draws_j=energies[:, None] * (1 + 0.002 * rng.standard_normal((4, 400))),
        time_draws_s=np.repeat(np.array(time_s)[:, None], 400, axis=1),
        time_error_s=np.array(time_s) * error,
    )


@pytest.mark.parametrize(
    ("energy_j", "error", "verdict", "tied"),
    [
        # One is fastest: it costs more than the pick at 400 MHz.
        ([1.0, 2.0, 2.0, 3.0], 1e-6, "worse", 1),
        # Two are equally fast, and both cost more.
        ([1.0, 2.0, 2.0, 3.0], 0.01, "worse", 2),
        # The pick is one of them: the other costs more, so it depends on which is run.
        ([2.0, 1.5, 1.0, 3.0], 0.01, "open", 2),
        # The pick is the only fastest one.
        ([2.0, 1.5, 1.0, 3.0], 1e-6, "right", 1),
    ],
)
def test_race_to_halt_is_judged_over_all_that_are_equally_fast(energy_j, error, verdict, tied):
    made = pick(among(energy_j, [3.0, 1.007, 1.0, 1.5], error))
    assert (made.race_to_halt, made.equally_fast) == (verdict, tied)
    assert made.saving_pct == pytest.approx(100 * (1 - min(energy_j) / energy_j[2]))


@pytest.mark.parametrize("faster", [0, 1])
def test_noise_does_not_decide_what_race_to_halt_loses(faster):
    """Two settings of equal time within the noise, of 1 and 2 J: it runs at the higher clocks."""
    data = observations(simulated_columns("default", per_family=2), "tk1")
    kernel = str(data.labels[0])
    rows = np.flatnonzero(data.labels == kernel)
    two = [int(rows[np.argmax(data.core_mhz[rows])]), int(rows[np.argmin(data.core_mhz[rows])])]
    data = data.take(np.array(two * 2))
    time_s = np.array([1.0, 1.0, 1.02, 1.02])
    time_s[[faster, faster + 2]] *= 0.993
    data = replace(data, time_s=time_s, energy_j=np.array([2.0, 1.0, 2.0, 1.0]))
    (case,) = case_losses(data, Predicted(data.energy_j, data.time_s))
    assert case.mean_pct("race_to_halt") == case.mean_pct("highest_clocks") == pytest.approx(100.0)
    assert case.mean_pct("race_to_halt_best") == 0.0
