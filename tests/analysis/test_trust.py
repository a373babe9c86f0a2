"""What a report warns of, against a store in which each thing was put by hand."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from analysis.quality import Finding, check
from analysis.report.page import render
from analysis.report.trust import Remark, of_measurements, of_picks
from campaign.plan.point import Point
from campaign.results import open_store
from campaign.results.report import report_content
from campaign.store.layout import Store
from campaign.store.measurement import Measurement
from campaign.store.tables import read_columns
from dvfs.setting import Setting
from tests.analysis.test_report import Page
from tests.stores import stored

CLOCKS = (400.0, 600.0, 800.0, 1000.0, 1200.0)
REPEATS = 3
UNPROVEN = [(1, 600.0, repeat) for repeat in range(REPEATS)]
TIMED_OUT = [(4, mhz, repeat) for mhz in (400.0, 600.0) for repeat in range(REPEATS)]
NOT_ACHIEVED = [(3, 1200.0, 1), (3, 1200.0, 2)]
OUTLIER = (2, 800.0, 1)


def one(kernel: int, core_mhz: float, repeat: int, noise: np.random.Generator) -> Measurement:
    where = (kernel, core_mhz, repeat)
    point = Point(
        site="cluster",
        partition="p",
        kernel="k",
        label=f"sp{kernel}",
        params="{}",
        ranks=1,
        setting=Setting(core_mhz, 900.0),
        repeat=repeat,
    )
    if where in TIMED_OUT:
        return Measurement(point=point, status="timed out", text="killed after 600 s")
    if where in NOT_ACHIEVED:
        return Measurement(point=point, status="clock not achieved", text="ran at 1105.5 MHz")
    counts = {"sp": 4.0**kernel * 1e8, "dram": 1e8}
    time_s = max(counts["sp"] / (2e8 * core_mhz), 5e-3) * (1 + 0.004 * noise.normal())
    energy_j = (counts["sp"] * 30e-12 + 0.04 + 6 * time_s) * (1 + 0.01 * noise.normal())
    flags = [f"power was not steady after {20 + kernel} s"] if repeat == 2 else []
    return Measurement(
        point=point,
        status="clock unproven" if where in UNPROVEN else "ok",
        node="n1",
        time_s=time_s,
        iterations=9,
        energy_j=energy_j * (1.7 if where == OUTLIER else 1.0),
        core_v=1.0,
        mem_v=1.0,
        voltage_origin="table",
        counts=counts,
        clock_proof="" if where in UNPROVEN else "stated",
        provenance={"simulated": False, "flags": flags},
    )


def mixed(folder: Path) -> Store:
    """With failures, unproven clocks, an outlier, flags, and a fit that accepted them."""
    noise = np.random.default_rng(1)
    cells = product(range(5), CLOCKS, range(REPEATS))
    made = stored(folder, *(one(*cell, noise) for cell in cells))
    open_store(made.root).fit("cluster", accept_unproven=True)
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return mixed(tmp_path_factory.mktemp("trust") / "store")


@pytest.fixture(scope="module")
def site(store: Store):
    (made,) = report_content(store).sites
    return made


@pytest.fixture(scope="module")
def remarks(site) -> dict[str, Remark]:
    assert len({remark.title for remark in site.remarks}) == len(site.remarks)
    return {remark.title: remark for remark in site.remarks}


def test_failures_are_counted_by_kernel_and_reason(remarks):
    failed = remarks["failed points"]
    assert failed.count == f"{len(TIMED_OUT) + len(NOT_ACHIEVED)} points"
    assert failed.table.groups[0].rows == [
        ["timed out", "sp4", str(len(TIMED_OUT)), "killed after 600 s"],
        ["clock not achieved", "sp3", str(len(NOT_ACHIEVED)), "ran at 1105.5 MHz"],
    ]


def test_clocks_are_unproven_or_as_stated(remarks, site):
    complete = 5 * len(CLOCKS) * REPEATS - len(TIMED_OUT) - len(NOT_ACHIEVED)
    assert remarks["clocks unproven"].count == f"{len(UNPROVEN)} measurements"
    assert remarks["clocks unproven"].severity == "warning"
    assert len(remarks["clocks unproven"].lines) == len(UNPROVEN)
    assert all("sp1 at 600/900 MHz" in line for line in remarks["clocks unproven"].lines)
    assert remarks["clocks as stated"].count == f"{complete - len(UNPROVEN)} measurements"
    assert (site.measured.ok, site.measured.clock_unproven) == (complete, len(UNPROVEN))
    assert sum(site.measured.failed.values()) == len(TIMED_OUT) + len(NOT_ACHIEVED)
    assert (site.measured.kernels, site.measured.settings) == (5, len(CLOCKS))
    assert (site.measured.nodes, site.measured.without_energy, site.measured.left) == (["n1"], 0, 0)


def test_unproven_clocks_are_a_reason_against_any_fit_that_does_not_accept_them(store, tmp_path):
    shutil.copytree(store.root, tmp_path / "own")
    for file in (tmp_path / "own" / "fits").iterdir():
        file.unlink()
    (without_fit,) = report_content(Store(tmp_path / "own")).sites
    assert without_fit.fit is None
    assert "--accept-unproven" in without_fit.why_no_fit
    first = without_fit.remarks[0]
    assert (first.severity, first.title) == ("refused", "clocks unproven")


def test_one_kind_of_flag_is_one_line_with_its_count(remarks):
    flagged = remarks["flagged measurements"]
    n = 5 * len(CLOCKS) - sum(repeat == 2 for _, _, repeat in [*TIMED_OUT, *NOT_ACHIEVED])
    assert flagged.count == f"{n} measurements"
    assert len(flagged.lines) == 1
    assert flagged.lines[0].startswith(f"{n}: power was not steady")


def test_the_outlier_is_named(remarks):
    outliers = remarks["outliers of the fit"]
    assert outliers.count == "1 measurement"
    assert "sp2 at 800/900 MHz" in outliers.lines[0]


def test_the_page_says_it_near_the_top_with_a_count_and_links(store, site):
    html = render(report_content(store))
    page = Page(html)
    text = page.text
    warnings = sum(remark.severity == "warning" for remark in site.remarks)
    notes = sum(remark.severity == "note" for remark in site.remarks)
    assert f"{warnings} warnings, {notes} notes:" in text
    assert text.index("How far to trust this") < text.index("What to set, and what it saves")
    assert "Fit: default, made " in text
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a" and "remark" in attrs["href"]]
    targets = {f"#{attrs['id']}" for tag, attrs in page.tags if tag == "h4"}
    assert len(links) == len(site.remarks)
    assert set(links) == targets
    for remark in site.remarks:
        assert text.count(remark.count) >= 2
    assert "of these with unproven clocks 3" in text


def test_a_policy_says_that_clocks_are_unproven(store):
    assert open_store(store.root).policy("cluster", {}, unsure=True).policy.origin.unproven_clocks


def test_picks_are_doubted_by_their_intervals(site):
    unsure = [p for p in site.picks if p.best_probability < 0.95]
    no_gain = [p for p in site.picks if p.saving_low_pct <= 0 < p.saving_high_pct]
    counts = {remark.title: remark.count for remark in of_picks(site.picks)}
    for title, picks in (
        ("picks that are not sure", unsure),
        ("picks that may save nothing", no_gain),
    ):
        if picks:
            assert counts[title].startswith(f"{len(picks)} pick")
        else:
            assert title not in counts


def test_a_mixture_of_set_ups_is_about_all_measurements(store):
    columns = open_store(store.root).columns
    difference = {"key": "protocol.min_duration_s", "values": [[0.3, 40], [2.0, 35]]}
    mixture = {"site": "cluster", "setups": 2, "text": "under 2 set-ups: min_duration_s"}
    mixtures = json.dumps([mixture | {"differences": [difference]}])
    mixed = replace(columns, attrs={**columns.attrs, "mixtures": mixtures})
    rows = mixed["site"] == "cluster"
    remarks = of_measurements(mixed, rows, check(mixed, "cluster"), accepted=True)
    (remark,) = (remark for remark in remarks if remark.title == "check of mixed set-ups")
    assert remark.count == "all measurements"
    assert remark.text.startswith("Under 2 set-ups: min_duration_s. ")


def test_of_many_findings_of_one_check_all_others_are_written_out(store):
    columns = read_columns(store)
    findings = [Finding("outliers", "warning", np.array([k]), f"row {k} is odd") for k in range(20)]
    (remark,) = [
        remark
        for remark in of_measurements(columns, columns["site"] == "cluster", findings, True)
        if remark.title == "check of outliers"
    ]
    assert remark.lines == [f"Row {k} is odd." for k in range(1, 20)]


def test_no_rows_warn_of_nothing(store):
    columns = read_columns(store)
    none, findings = columns["site"] == "elsewhere", check(columns, "elsewhere")
    assert of_measurements(columns, none, findings, True) == []


def test_a_pick_is_not_compared_with_itself_and_below_95_never_reads_95(site):
    single = site.picks[0].setting
    same, near, far = (
        replace(
            p, label=f"k{i}", best_single=single, saving_low_pct=1.0, better_than_highest_clocks=1.0
        )
        for p, i in zip(site.picks[:3], (10, 9, 2), strict=True)
    )
    same = replace(same, better_than_best_single=0.0, gain_over_best_single_pct=0.0)
    near = replace(near, better_than_best_single=0.94996, gain_over_best_single_pct=0.2)
    far = replace(far, better_than_best_single=0.5, gain_over_best_single_pct=0.1)
    remarks = {remark.title: remark for remark in of_picks([same, near, far])}
    remark = remarks["picks not surely better than the best single setting for all kernels"]
    assert remark.count == "2 picks"
    assert remark.lines == ["k2: 50.0 %", "k9: 94.9 %"]
    alone = {remark.title for remark in of_picks([same])}
    assert not any(title.startswith("picks not surely better") for title in alone)
