"""A sweep over caps that nothing names: each of its three signs, just there and just not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.measurements.observations import observations
from analysis.quality.power_caps import power_caps
from analysis.quality.rows import rows_of
from tests.analysis.test_quality import MEM_MHZ, sweep
from tests.frames import as_columns

UP = np.arange(10)
WIDE_W = 100.0 * np.exp(np.linspace(0.0, 1.0, 10))
"""Even in the logarithm, so that no gap is larger than another: no steps."""


def said(power_w: list[np.ndarray], time_s: list[np.ndarray]) -> str:
    """What is said of kernels at one setting, by their rows in order."""
    frame = sweep(1, core=np.array([1000.0]), mem=MEM_MHZ[:1], repeats=len(power_w[0]))
    tables = [
        frame[frame["kernel"] == "k0"].assign(kernel=f"k{k}", time_s=s, energy_j=w * s)
        for k, (w, s) in enumerate(zip(power_w, time_s, strict=True))
    ]
    rows = rows_of(as_columns(pd.concat(tables, ignore_index=True)), "s")
    return " ".join(finding.text for finding in power_caps(rows, {}))


def shuffled(seed: int) -> np.ndarray:
    """Rows that go neither up nor down: successive ones as far apart as any two."""
    for attempt in range(seed, seed + 1000):
        order = np.random.default_rng(attempt).permutation(10)
        log_w = np.log(WIDE_W)[order]
        if np.mean(np.diff(log_w) ** 2) > 0.5 * np.mean((log_w - np.median(log_w)) ** 2):
            return order
    raise AssertionError("no such order")


def ranked(least: float, most: float) -> np.ndarray:
    """Ranks of times whose correlation with the ranks 0 to 9 is in an interval."""
    for seed in range(20_000):
        rng = np.random.default_rng(seed)
        ranks = stats.rankdata(-UP + rng.normal(0.0, rng.uniform(0.5, 12.0), 10))
        if least < stats.spearmanr(UP, ranks)[0] < most:
            return ranks
    raise AssertionError("no such ranks")


@pytest.mark.parametrize(
    ("least", "most", "refused"),
    [(-1.0, -0.81, True), (-0.79, -0.7, False), (-0.2, 0.15, False), (0.25, 1.0, False)],
)
def test_slower_runs_of_less_power_are_a_cap_where_their_ranks_correlate_below_minus_0_8(
    least, most, refused
):
    order = shuffled(0)
    time_s = 1.0 + ranked(least, most)[order]
    text = said([WIDE_W[order]] * 4, [time_s] * 4)
    assert ("against the run time" in text) is refused
    assert bool(text) is refused


@pytest.mark.parametrize(("kernels", "refused"), [(1, False), (2, True)])
def test_more_than_a_quarter_of_the_kernels_must_be_slower_with_less_power(kernels, refused):
    order = shuffled(0)
    slower = [1.0 + (9.0 - UP)[order]] * kernels + [1.0 + ranked(-0.2, 0.2)[order]] * (4 - kernels)
    assert bool(said([WIDE_W[order]] * 4, slower)) is refused


def wave(share: float) -> np.ndarray:
    """An order of the powers in which the squares of successive steps are just that share of the
    squares about the median."""
    log_w = np.log(WIDE_W)
    away = np.mean((log_w - np.median(log_w)) ** 2)
    best, apart = UP, np.inf
    for seed in range(6000):
        order = np.argsort(UP + np.random.default_rng(seed).normal(0, 1.6, 10))
        found = np.mean(np.diff(log_w[order]) ** 2) / away
        if 0.0 <= (found - share) * np.sign(share - 0.25) < apart:
            best, apart = order, abs(found - share)
    return best


@pytest.mark.parametrize(("share", "refused"), [(0.245, True), (0.255, False)])
def test_power_that_goes_from_row_to_row_in_one_direction_is_a_sweep(share, refused):
    order = wave(share)
    log_w = np.log(WIDE_W)[order]
    found = np.mean(np.diff(log_w) ** 2) / np.mean((log_w - np.median(log_w)) ** 2)
    assert (found < 0.25) is np.bool_(refused)
    assert found == pytest.approx(0.25, abs=0.05)
    time_s = 1.0 + ranked(-0.2, 0.2)[order]
    text = said([WIDE_W[order]] * 3, [time_s] * 3)
    assert ("from row to row in one direction" in text) is refused


def levels(gap: float, within: float, sizes: tuple[int, ...]) -> np.ndarray:
    """Powers on levels, of rows that lie evenly about the middle of theirs."""
    parts = [gap * i + np.linspace(-within, within, size) for i, size in enumerate(sizes)]
    return 100.0 * np.exp(np.concatenate(parts))


@pytest.mark.parametrize(
    ("gap", "within", "sizes", "refused"),
    [
        (0.3, 0.01, (4, 4, 4), True),
        (0.3, 0.068, (4, 4, 4), True),  # 0.164 to the next level is more than 3 times 0.0507
        (0.3, 0.074, (4, 4, 4), False),  # 0.152 is less than 3 times 0.0552
        (0.3, 0.001, (9, 9, 1, 1, 1, 1), True),  # 18 of 22 rows have company
        (0.3, 0.001, (8, 8, 1, 1, 1, 1, 1), False),  # 16 of 21 have
    ],
)
def test_power_on_levels_far_apart_is_a_sweep_in_steps(gap, within, sizes, refused):
    power_w = levels(gap, within, sizes)
    order = np.random.default_rng(2).permutation(power_w.size)
    time_s = 1.0 + np.random.default_rng(5).permutation(power_w.size)
    text = said([power_w[order]] * 2, [time_s] * 2)
    assert ("in steps" in text) is refused
    if refused:
        spread = stats.median_abs_deviation(np.log(power_w), scale="normal")
        assert f"power varies by {100 * spread:.0f} % within kernels, in steps" in text


@pytest.mark.parametrize(("rows", "refused"), [(5, False), (6, True)])
def test_a_kernel_is_judged_from_six_rows_on(rows, refused):
    """Of so many rows that take longer the less power they have."""
    power_w = np.geomspace(100.0, 200.0, rows)
    assert bool(said([power_w] * 2, [1.0 + np.arange(rows)[::-1]] * 2)) is refused


@pytest.mark.parametrize(("spread", "refused"), [(0.048, False), (0.052, True)])
def test_power_that_hardly_varies_is_none(spread, refused):
    """Five percent: what noise is taken for where it is not known."""
    log_w = np.linspace(-1.0, 1.0, 12)
    log_w *= spread / stats.median_abs_deviation(log_w, scale="normal")
    assert all(after > before for before, after in pairwise(log_w))
    text = said([100 * np.exp(log_w)] * 2, [1.0 + np.arange(12)] * 2)
    assert bool(text) is refused


@pytest.mark.parametrize(("reached", "counted"), [(0.99, 1000.0), (0.94, 940.0)])
def test_rows_of_one_setting_count_at_the_clocks_that_were_read(reached, counted):
    frame = sweep(1, core=np.array([1000.0]), mem=MEM_MHZ[:1], repeats=3)
    mhz = np.where(frame["repeat"] == 1, 1000.0 * reached, 1000.0)
    read = {"core_mhz_achieved": mhz, "mem_mhz_achieved": np.nan, "voltage_origin": ""}
    dataset = as_columns(frame.assign(**read))
    assert list(power_caps(rows_of(dataset, "s"), {})) == []
    ran_at = observations(dataset, "s").core_mhz
    assert set(ran_at[frame["repeat"] == 1]) == {counted}
    assert set(ran_at[frame["repeat"] != 1]) == {1000.0}
