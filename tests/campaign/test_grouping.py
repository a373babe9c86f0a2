"""Clocks with jitter become the settings that they mean, and steps of a device stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from campaign.table.grouping import grouped_clocks

SETTINGS = np.arange(800.0, 2800.0, 100.0)


def rows(kernels: int, repeats: int = 1, settings: np.ndarray = SETTINGS):
    """(clock that was asked for, kernel, repeat) of every row."""
    return (
        axis.ravel()
        for axis in np.meshgrid(settings, np.arange(kernels), np.arange(repeats), indexing="ij")
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("kernels", "repeats", "jitter_mhz"), [(10, 1, 1.5), (10, 3, 4.0), (1, 5, 2.0), (80, 1, 0.4)]
)
def test_jitter_becomes_the_settings_that_were_meant(seed, kernels, repeats, jitter_mhz):
    rng = np.random.default_rng(seed)
    asked, kernel, repeat = rows(kernels, repeats)
    mhz = (asked + rng.uniform(-jitter_mhz, jitter_mhz, len(asked))).round(1)
    grouped = grouped_clocks(mhz, [kernel, repeat], "core_mhz")
    codes = np.unique(grouped.mhz, return_inverse=True)[1]
    assert np.array_equal(codes, np.unique(asked, return_inverse=True)[1])
    assert np.abs(grouped.mhz - asked).max() <= jitter_mhz
    assert f"{len(np.unique(mhz))} clocks" in grouped.note and "20 settings" in grouped.note


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        np.array([595.0, 633, 671, 709, 747, 785, 823, 861, 899, 937, 975, 1013, 1050, 1088]),
        np.arange(1200.0, 1995.0, 7.5),
        np.array([1400.0, 1800, 2200, 2600, 2601]),
        np.array([300.0, 576, 768, 1017, 1248, 1324, 1516, 1612, 1708, 1804, 1900, 1958, 2016]),
        np.concatenate([c + np.array([0.0, 5, 10]) for c in (500.0, 1000, 1500, 2000)]),
    ],
)
@pytest.mark.parametrize("kernels", [1, 12])
def test_the_steps_of_a_device_stay(settings, kernels):
    mhz, kernel, repeat = rows(kernels, 2, settings)
    grouped = grouped_clocks(mhz, [kernel, repeat], "core_mhz")
    assert np.array_equal(grouped.mhz, mhz) and not grouped.note


def test_jitter_as_wide_as_the_distance_stays():
    rng = np.random.default_rng(1)
    asked, kernel, repeat = rows(10)
    mhz = asked + rng.uniform(-40, 40, len(asked))
    assert not grouped_clocks(mhz, [kernel, repeat], "core_mhz").note


def test_repeats_without_numbers_are_grouped_where_the_map_numbers_them():
    rng = np.random.default_rng(2)
    asked, kernel, _ = rows(1, 5)
    mhz = (asked + rng.uniform(-2, 2, len(asked))).round(1)
    assert not grouped_clocks(mhz, [kernel], "core_mhz").note
    assert "20 settings" in grouped_clocks(mhz, [kernel], "core_mhz", True).note


def test_rows_without_a_clock_stay_without():
    rng = np.random.default_rng(3)
    asked, kernel, repeat = rows(10)
    mhz = (asked + rng.uniform(-1, 1, len(asked))).round(1)
    mhz[7] = np.nan
    grouped = grouped_clocks(mhz, [kernel, repeat], "mem_mhz")
    assert np.flatnonzero(np.isnan(grouped.mhz)).tolist() == [7] and grouped.note
