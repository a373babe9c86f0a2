"""A setting as a key, in order, and as rows of numbers."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.verbs.options import read_setting
from dvfs.dataset import Columns
from dvfs.errors import ArgumentError
from dvfs.setting import (
    AS_FOUND,
    NUMBERS,
    Setting,
    axis_values,
    clock_columns,
    distinct_settings,
    number_columns,
)

clocks = st.none() | st.sampled_from([0.0, 1.0, 852.0, 924.0]) | st.floats(0.0, 1e6)
settings = st.builds(Setting, clocks, clocks)
profiles = st.none() | st.sampled_from(["powersave", "performance", "a"])
whole = st.builds(Setting, clocks, clocks, clocks, clocks, profile=profiles)


@given(whole, whole, whole)
def test_settings_are_in_one_order(one, other, third):
    """Total: antisymmetric, transitive, and equal only where neither is less."""
    assert (one < other) + (one == other) + (one > other) == 1
    assert (one <= other) == (not other < one)
    assert (one == other) == (hash(one) == hash(other) and one.values == other.values)
    for low, high in pairwise(sorted([one, other, third])):
        assert low <= high
    assert sorted([one, other, third]) == sorted([third, other, one])
    assert one >= AS_FOUND


@given(clocks, clocks, clocks)
def test_no_clock_comes_before_any_clock(core_mhz, mem_mhz, other):
    if core_mhz is not None:
        assert Setting(None, other) < Setting(core_mhz, mem_mhz)
    if mem_mhz is not None:
        assert Setting(core_mhz, None) < Setting(core_mhz, mem_mhz)


@given(st.lists(settings, max_size=30))
def test_rows_of_numbers_and_back(of_rows):
    """A clock that is not there is NaN in numbers alone: equal rows are one setting, in order."""
    mhz = clock_columns(of_rows)
    assert mhz.shape == (len(of_rows), 2)
    assert [Setting.of(*row) for row in mhz] == of_rows
    distinct, place = distinct_settings(*mhz.T)
    assert distinct == sorted(set(of_rows))
    assert [distinct[i] for i in place] == of_rows


@given(st.lists(whole, min_size=1, max_size=30))
def test_rows_of_a_table_and_back(of_rows):
    """NaN and the empty text are no value, whatever else a row has."""
    numbers = number_columns(of_rows)
    names = np.array([one.profile or "" for one in of_rows])
    table = Columns(dict(zip(NUMBERS, numbers.T, strict=True)) | {"profile": names}, {})
    rows = np.arange(len(of_rows))
    distinct, place = distinct_settings(*axis_values(table, rows))
    assert distinct == sorted(set(of_rows))
    assert [distinct[i] for i in place] == of_rows
    assert [Setting.of_row({name: table[name][i] for name in table}) for i in rows] == of_rows
    assert [Setting.of_row(one.as_dict()) for one in of_rows] == of_rows


def test_a_clock_is_never_nan():
    with pytest.raises(ValueError, match="nan"):
        Setting(math.nan, 1.0)
    assert Setting.of(np.float32(np.nan), 5) == Setting(None, 5.0)
    assert {Setting(852): 1}[Setting.of(852.0, math.nan)] == 1


values = st.none() | st.integers(1, 99_999).map(float)


names = st.none() | st.from_regex(r"[A-Za-z0-9_.:+-]{1,9}", fullmatch=True)


@given(st.builds(Setting, values, values, values, values, profile=names))
def test_an_option_says_which_setting_it_is(setting):
    assert read_setting(setting.option_text, "--setting") == setting


@pytest.mark.parametrize("text", ["", "fast", "1,2,3,4", "nan,1", "852,x", "852,=3", "profile="])
def test_an_option_that_is_no_setting_is_refused(text):
    with pytest.raises(ArgumentError, match="--setting"):
        read_setting(text, "--setting")
