"""Clocks shown by the ratios of a timed loop over the settings of a node, against known truth."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.measurements.provenance import shown_by_timing

CLOCKS = np.arange(1000.0, 3001.0, 100.0)


def rows(rng: np.random.Generator, ran_mhz, factor: float = 0.5, noise: float = 0.003):
    """Three rows of each of CLOCKS on a node whose loop takes 1 / factor cycles."""
    asked = np.repeat(CLOCKS, 3)
    rate = factor * np.repeat(np.broadcast_to(ran_mhz, CLOCKS.shape), 3)
    return asked, rate * np.exp(noise * rng.standard_normal(len(asked)))


@pytest.mark.parametrize("factor", [1.0, 0.5, 0.123])
def test_clocks_that_were_set_are_shown_whatever_the_factor(factor):
    asked, timed = rows(np.random.default_rng(1), CLOCKS, factor)
    assert shown_by_timing(np.zeros(len(asked)), asked, timed).all()


@pytest.mark.parametrize("true_mhz", [1000.0, 2050.0, 3000.0])
def test_a_control_that_does_nothing_shows_nothing(true_mhz):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        asked, timed = rows(rng, true_mhz, noise=0.02 * rng.random())
        assert not shown_by_timing(np.zeros(len(asked)), asked, timed).any()


def test_settings_that_are_close_say_nothing():
    """Within two tolerances one constant rate agrees with all of them."""
    asked = np.array([2000.0, 2020.0, 2040.0, 2060.0])
    constant = np.full(4, 2030.0)
    assert not shown_by_timing(np.zeros(4), asked, constant).any()
    assert not shown_by_timing(np.zeros(4), asked, asked).any()
    assert not shown_by_timing(np.zeros(1), asked[:1], asked[:1]).any()


def test_each_node_is_judged_by_itself():
    rng = np.random.default_rng(3)
    asked, set_rates = rows(rng, CLOCKS)
    _, unset_rates = rows(rng, 2000.0)
    node = np.repeat(["set", "unset"], len(asked))
    shown = shown_by_timing(node, np.tile(asked, 2), np.concatenate([set_rates, unset_rates]))
    assert shown[node == "set"].all()
    assert not shown[node == "unset"].any()


def test_clocks_above_a_cap_are_not_shown():
    """As a power cap does it: higher clocks are asked for, and 2,400 MHz is the highest."""
    asked, timed = rows(np.random.default_rng(4), np.minimum(CLOCKS, 2400.0))
    shown = shown_by_timing(np.zeros(len(asked)), asked, timed)
    assert shown[asked <= 2400].all()
    assert not shown[asked > 2450].any()


def test_rows_without_a_clock_or_a_timing_are_not_shown():
    asked, timed = rows(np.random.default_rng(5), CLOCKS)
    asked[0] = timed[5] = np.nan
    shown = shown_by_timing(np.zeros(len(asked)), asked, timed)
    assert not shown[[0, 5]].any()
    assert shown.sum() == len(asked) - 2
