"""Two sites of one store side by side: coefficients, and times and energies of kernels."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.comparison.coefficients import compare_coefficients
from analysis.energy.fit_summary import Coefficient, FitSummary, Like
from campaign.results import open_store
from campaign.verbs.command_line import main
from tests.commands import answers, prints, refuses
from tests.docs.pages import ROOT
from tests.simulated_runs import simulate
from tests.stores import store_of_table

CAMPAIGN = """
name = "two-sites"
repeats = 2
sites = [{ site = "jetson-tk1" }, { site = "tk2.toml" }, { site = "tk3.toml" }]
[settings]
choose = "pairs"
pairs = [[852, 924], [396, 924], [648, 528], [852, 204], [396, 204], [756, 528]]
[[kernels]]
kernel = "dp_fma"
params = { level = "dram", ops_per_word = [1, 16, 128] }
[[kernels]]
kernel = "load"
params = { level = ["l2", "dram"] }
"""
TWICE = {"dram": "dram = 739.0"}
"""What differs in tk2: a byte takes twice the energy."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the Jetson TK1 and of two boards like it, tk3 with no clock of the others."""
    folder = tmp_path_factory.mktemp("sites")
    board = (ROOT / "sites" / "builtin" / "jetson-tk1.toml").read_text(encoding="utf-8")
    board = board.replace('name = "jetson-tk1"', 'name = "NAME"', 1)
    twice = board.replace("dram = 369.5", TWICE["dram"])
    assert twice != board
    (folder / "tk2.toml").write_text(twice.replace("NAME", "tk2"), encoding="utf-8")
    shifted = board.replace("NAME", "tk3")
    for mhz in (396, 648, 756, 852):
        shifted = shifted.replace(f"[{mhz}, ", f"[{mhz + 1}, ").replace(f" {mhz},", f" {mhz + 1},")
    shifted = shifted.replace("804, 852]", "804, 853]")
    (folder / "tk3.toml").write_text(shifted, encoding="utf-8")
    two = CAMPAIGN.replace(', { site = "tk3.toml" }', "")
    (folder / "two.toml").write_text(two, encoding="utf-8")
    third = CAMPAIGN.replace('{ site = "jetson-tk1" }, { site = "tk2.toml" }, ', "")
    for mhz in (396, 648, 756, 852):
        third = third.replace(f"[{mhz},", f"[{mhz + 1},")
    (folder / "third.toml").write_text(third, encoding="utf-8")
    for name in ("two.toml", "third.toml"):
        simulate(folder / name, folder / "store")
    for site in ("jetson-tk1", "tk2", "tk3"):
        words = ["--site", site, "--model", "choi", "--voltage", "known"]
        assert main(["fit", str(folder / "store"), *words]) == 0
    return folder / "store"


def test_the_one_coefficient_that_differs_is_found(store):
    first, second = answers("coefficients", store, "--site", "jetson-tk1", "--site", "tk2")
    assert "against" not in first and second["against"]["site"] == "jetson-tk1"
    rows = {row["name"]: row for row in second["against"]["coefficients"]}
    assert rows["c0_dram"]["low"] < 2.0 < rows["c0_dram"]["high"]
    for name in ("c0_dp", "c0_l2"):
        assert rows[name]["low"] < 1.0 < rows[name]["high"]
    assert [name for name, row in rows.items() if row["significant"]] == ["c0_dram"]
    assert "tk2 over jetson-tk1" in prints("coefficients", store)


def summary(value: float, half: float, n_settings: int) -> FitSummary:
    coefficient = {"name": "c0_dp", "value": value, "unit": "pJ", "low": 0.0, "high": value + half}
    return FitSummary.model_construct(
        site="x",
        model="choi",
        voltage="measured",
        n_settings=n_settings,
        coefficients=[Coefficient.model_validate(coefficient)],
    )


def test_a_ratio_s_interval_covers_the_truth_as_often_as_it_says():
    random, covered, alarms = np.random.default_rng(1), 0, 0
    truth, n, draws = 1.5, 8, 4000
    for _ in range(draws):
        fits = []
        for mean in (10.0, 10.0 * truth):
            sample = random.normal(mean, 3.0, n)
            half = 2.3646 * sample.std(ddof=1) / math.sqrt(n)  # Student's t, 7 degrees of freedom
            fits.append(summary(sample.mean(), half, n))
        (row,) = compare_coefficients(*fits)
        covered += row.low <= truth <= row.high
        sample = random.normal(10.0, 3.0, n)
        half = 2.3646 * sample.std(ddof=1) / math.sqrt(n)
        (same,) = compare_coefficients(fits[0], summary(sample.mean(), half, n))
        alarms += same.significant
        assert same.significant == (not same.low <= 1.0 <= same.high)
    assert abs(covered / draws - 0.95) < 0.015
    assert abs(alarms / draws - 0.05) < 0.015


@pytest.mark.parametrize(
    ("other", "compared"),
    [
        ({}, ["c0_dp", "c1_core"]),
        ({"voltage": "table"}, ["c0_dp", "c1_core"]),
        ({"model": "choi+clock"}, ["c0_dp"]),
        ({"voltage": "floor"}, []),
        ({"voltage": "unit", "model": "choi+clock"}, []),
    ],
)
def test_what_does_not_stand_for_the_same_is_not_said_to_differ(other, compared):
    fits = [summary(value, 0.1, 8) for value in (10.0, 20.0)]
    for fitted in fits:
        power = fitted.coefficients[0].model_copy(update={"name": "c1_core", "unit": "W/V"})
        fitted.coefficients.append(power)
    rows = compare_coefficients(fits[0], fits[1].model_copy(update=other))
    assert [row.ratio for row in rows] == pytest.approx([2.0, 2.0])
    assert [row.name for row in rows if row.significant] == compared
    assert [row.name for row in rows if math.isfinite(row.p)] == compared


def test_intervals_of_fits_that_started_from_another_are_those_of_gaussians():
    like = Like.model_construct(site="y")
    fits = [
        summary(value, 1.959964 * std, 2).model_copy(update={"like": like})
        for value, std in ((10.0, 0.3), (11.0, 0.4))
    ]
    (row,) = compare_coefficients(*fits)
    assert row.p == pytest.approx(math.erfc(2.0 / math.sqrt(2.0)), rel=1e-4)
    ratios = np.random.default_rng(1).normal(11.0, 0.4, 10**6)
    ratios /= np.random.default_rng(2).normal(10.0, 0.3, 10**6)
    assert [row.low, row.high] == pytest.approx(np.quantile(ratios, [0.025, 0.975]), rel=2e-3)


def test_sites_are_compared_where_both_were_measured(store):
    found = answers("compare", store, "--site", "jetson-tk1", "--site", "tk2")
    frame = (
        open_store(store)
        .scalars[["site", "kernel", "params", "core_mhz", "mem_mhz", "time_s", "energy_j"]]
        .to_dataframe()
    )
    keys = ["kernel", "params", "core_mhz", "mem_mhz"]
    logs = frame.assign(e=np.log(frame["energy_j"])).groupby(["site", *keys])["e"].mean()
    expected = np.exp(np.sort((logs["tk2"] - logs["jetson-tk1"]).to_numpy()))
    points = [c for c in found["changes"] if c["level"] == "point" and c["quantity"] == "energy"]
    assert np.sort([c["ratio"] for c in points]) == pytest.approx(expected)
    of_kernels = {
        c["kernel"]: c for c in found["changes"] if c["level"] == "kernel" and c["significant"]
    }
    assert set(of_kernels) and not any("l2" in name for name in of_kernels)


def test_without_a_common_setting_the_highest_clocks_are_compared(store):
    found = answers("compare", store, "--site", "jetson-tk1", "--site", "tk3")
    assert found["sites"][0]["common"] == 5
    assert "853/924 MHz" in found["sites"][0]["notes"][0]
    frame = open_store(store).scalars[["site", "core_mhz", "mem_mhz", "time_s"]].to_dataframe()
    top = [
        np.log(frame.query(f"site == '{site}' and core_mhz == {mhz} and mem_mhz == 924")["time_s"])
        for site, mhz in (("jetson-tk1", 852), ("tk3", 853))
    ]
    (change,) = [c for c in found["changes"] if c["level"] == "site" and c["quantity"] == "time"]
    assert change["ratio"] == pytest.approx(math.exp(top[1].mean() - top[0].mean()))


@pytest.mark.parametrize(
    ("columns", "of_a", "of_b", "says"),
    [
        ("power_limit_w", ["100", "300"], ["110", "310"], "a at 300 W, b at 310 W"),
        (
            "core_mhz,power_limit_w",
            ["1000,100", "1400,100", "1400,300"],
            ["1500,100", "1500,300"],
            "a at 1400 MHz, 300 W, b at 1500 MHz, 300 W",
        ),
        (
            "core_mhz,uncore_mhz",
            ["1000,", "1400,"],
            ["1400,1200", "1400,2400"],
            "a at 1400 MHz, b at 1400 MHz, uncore 2400",
        ),
        (
            "core_mhz,profile",
            ["1400,slow", "1400,quick"],
            ["1400,"],
            "a at 1400 MHz, profile quick, b at 1400 MHz",
        ),
    ],
)
def test_the_highest_setting_has_limits_uncore_clocks_and_profiles(
    tmp_path, columns, of_a, of_b, says
):
    """The last setting of each site is its highest, and b takes 0.8 of the time of a there."""
    lines = [f"site,kernel,repeat,time_s,energy_j,{columns}"]
    for site, settings, last_s in (("a", of_a, 1.0), ("b", of_b, 0.8)):
        for i, setting in enumerate(settings):
            time_s = last_s * (1.0 + 0.5 * (len(settings) - 1 - i))
            lines += [
                f"{site},k,{r},{time_s * (1 + r / 1000)},{100 + i + r},{setting}" for r in (0, 1)
            ]
    store = store_of_table(tmp_path, lines)
    found = answers("compare", store, "--site", "a", "--site", "b")
    assert found["sites"][0]["notes"][0].endswith(f"no setting is common: {says}")
    (change,) = [c for c in found["changes"] if c["level"] == "point" and c["quantity"] == "time"]
    assert change["ratio"] == pytest.approx(0.8)


@pytest.mark.parametrize("nodes", [("n1", ""), ("", "n2"), ("n1", "n2"), ("", "")])
def test_sites_are_compared_whether_or_not_their_rows_name_nodes(tmp_path, nodes):
    lines = ["site,node,kernel,repeat,core_mhz,time_s,energy_j"]
    for site, node, factor in zip("ab", nodes, (1.0, 2.0), strict=True):
        lines += [
            f"{site},{node},k,{r},{mhz},{1e3 / mhz},{factor * (100 + mhz / 10 + r)}"
            for mhz in (1000, 1400)
            for r in (0, 1)
        ]
    store = store_of_table(tmp_path, lines)
    found = answers("compare", store, "--site", "a", "--site", "b")
    (site,) = found["sites"]
    assert (site["common"], site["only_before"], site["only_after"]) == (2, 0, 0)
    ratios = [c["ratio"] for c in found["changes"] if c["quantity"] == "energy"]
    assert ratios == pytest.approx([2.0] * 4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--site", "jetson-tk1"], "two sites"),
        (["--site", "jetson-tk1", "--site", "jetson-tk1"], "two sites"),
        (["--site", "jetson-tk1", "--site", "tk4"], "unknown site"),
        (["--site", "jetson-tk1", "--site", "tk2", "--after", "2026-01-01"], "one store"),
    ],
)
def test_what_is_asked_wrongly_is_answered_with_what_can_be(store, words, says):
    assert says in refuses("compare", store, *words)
