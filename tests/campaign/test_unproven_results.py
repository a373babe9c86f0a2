"""Clocks that nothing showed: refused for different settings, and named wherever they are used."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.launch.drive import plan_record
from campaign.plan.plan import make_plan
from campaign.results import open_store
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import create_store
from campaign.store.measurement import Measurement
from campaign.store.planned import write_planned
from campaign.verbs.command_line import main
from dvfs.dataset import CLOCK_UNPROVEN, OK

CAMPAIGN = """\
name = "real"
[[sites]]
site = "jetson-tk1"
settings = { choose = "random", count = SETTINGS, seed = 1 }
[[kernels]]
kernel = "sp_fma"
[kernels.params]
level = "dram"
ops_per_word = [1, 16, 64]
"""
NOT_READ, READ, SAID = "not read", "read", "said"
TIMED, TIMED_THE_SAME = "timed", "timed the same"


def measured(folder: Path, how: str, settings: int = 6) -> Path:
    """A store of a machine that nothing simulates: clocks as an earlier version kept them, read or
    not, or with the status of this one."""
    path = folder / "c.toml"
    path.write_text(CAMPAIGN.replace("SETTINGS", str(settings)))
    plan = make_plan(path)
    store = create_store(folder / how, "real")
    ids = {"jetson-tk1/board": [p.id for p in plan.points]}
    write_planned(store, plan_record(plan, store), ids)
    with JournalWriter(store.journals) as journal:
        for point in plan.points:
            core, mem = point.setting.core_mhz, point.setting.mem_mhz
            ops = json.loads(point.params)["ops_per_word"]
            time_s = max(ops / core, 20 / mem)
            energy_j = time_s * (2 + 1e-3 * core + 2e-3 * mem) + 0.01 * ops
            made = Measurement(point=point, status=OK, time_s=time_s, energy_j=energy_j)
            if how == READ:
                made = replace(made, core_mhz_achieved=core, mem_mhz_achieved=mem)
            if how in (TIMED, TIMED_THE_SAME):
                rate = 0.31 * (core if how == TIMED else 800.0)
                made = replace(made, status=CLOCK_UNPROVEN, mem_mhz_achieved=mem)
                made = replace(made, core_mhz_timed=rate * (1 + 0.002 * (len(point.id) % 3)))
            if how == SAID:
                made = replace(made, status=CLOCK_UNPROVEN)
            journal.append(encode(made))
    return store.root


def asked(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.mark.parametrize("how", [NOT_READ, SAID])
def test_fit_and_crossval_refuse_them(tmp_path, how, capsys):
    store = measured(tmp_path, how)
    for verb in ("fit", "crossval"):
        assert asked(verb, store, "--site", "jetson-tk1") == 2
        message = capsys.readouterr().err
        assert "18 of 18 rows" in message and "--accept-unproven" in message
    assert open_store(store).kept_fits == []


@pytest.mark.parametrize("how", [NOT_READ, SAID])
def test_where_they_are_accepted_everything_says_so(tmp_path, how, capsys):
    store = measured(tmp_path, how)
    of = (store, "--site", "jetson-tk1")
    policy = tmp_path / "policy.toml"
    for words in (
        ("fit", *of, "--accept-unproven"),
        ("coefficients", store),
        ("crossval", *of, "--accept-unproven"),
        ("predict", *of),
        ("policy", *of, "--unsure", "-o", policy),
    ):
        assert asked(*words) == 0
        assert "clocks unproven" in " ".join(capsys.readouterr().out.split()), words
    assert tomllib.loads(policy.read_text())["origin"]["unproven_clocks"] is True
    for words in (("coefficients", store), ("predict", *of)):
        asked(*words, "--json")
        assert json.loads(capsys.readouterr().out)[0]["fit"]["unproven_clocks"] is True
    asked("crossval", *of, "--accept-unproven", "--json")
    assert json.loads(capsys.readouterr().out)["unproven_clocks"] is True
    report = tmp_path / "report.html"
    assert asked("report", store, "--out", report) == 0
    assert "Clocks unproven" in report.read_text()


def test_predict_refuses_them_with_a_fit_of_proven_ones(tmp_path, capsys):
    store, other = measured(tmp_path, READ), measured(tmp_path, NOT_READ)
    assert asked("fit", store, "--site", "jetson-tk1") == 0
    assert "unproven" not in capsys.readouterr().out
    (other / "fits").mkdir(exist_ok=True)
    kept = open_store(store).store.read_json("fits/jetson-tk1.json")
    for name in ("unproven_clocks", "stated_clocks"):  # as an earlier version kept it
        del kept[name]
    open_store(other).store.write_json("fits/jetson-tk1.json", kept)
    assert asked("predict", other, "--site", "jetson-tk1") == 2
    assert "--accept-unproven" in capsys.readouterr().err
    assert asked("predict", other, "--site", "jetson-tk1", "--accept-unproven") == 0
    assert "clocks unproven" in " ".join(capsys.readouterr().out.split())


def test_a_report_fits_nothing_that_was_not_accepted(tmp_path):
    store = measured(tmp_path, NOT_READ)
    report = tmp_path / "report.html"
    assert asked("report", store, "--out", report) == 0
    assert "Nothing showed at which clocks" in " ".join(report.read_text().split())


def test_a_timed_loop_whose_ratios_follow_the_clocks_is_proof_enough(tmp_path):
    """Its cycles are not known: the rates are 0.31 times the clock, or the same at all."""
    timed = open_store(measured(tmp_path, TIMED)).observations("jetson-tk1")
    assert len(timed) == 18 and not timed.unproven_clocks
    same = open_store(measured(tmp_path, TIMED_THE_SAME)).observations("jetson-tk1")
    assert same.unproven_clocks


def test_one_setting_needs_no_proof(tmp_path):
    data = open_store(measured(tmp_path, SAID, settings=1)).observations("jetson-tk1")
    assert len(data) == 3 and not data.unproven_clocks


def test_the_clocks_of_a_table_are_as_its_author_states_them(tmp_path, capsys):
    rows = [
        f"a,k{k},{core},500,{(1 + k) / core},{3.0 + k + core / 500}"
        for k in range(3)
        for core in (800, 1000, 1200, 1500)
    ]
    table = tmp_path / "t.csv"
    table.write_text("site,kernel,core_mhz,mem_mhz,time_s,energy_j\n" + "\n".join(rows) + "\n")
    assert asked("import", table, "--store", tmp_path / "s") == 0
    assert asked("fit", tmp_path / "s", "--site", "a") == 0
    assert capsys.readouterr().out.count("clocks as stated by the imported table") == 1
    assert open_store(tmp_path / "s").kept_fit("a").stated_clocks


def test_a_clock_that_was_read_back_is_proven(tmp_path):
    data = open_store(measured(tmp_path, READ)).observations("jetson-tk1")
    assert not data.unproven_clocks and not data.stated_clocks


def test_a_slowdown_in_percent_is_refused(tmp_path, capsys):
    store = measured(tmp_path, READ)
    assert asked("fit", store, "--site", "jetson-tk1") == 0
    for percent in (5, 1.5):
        assert asked("predict", store, "--site", "jetson-tk1", "--max-slowdown", percent) == 2
        assert f"{percent / 100:g} for {percent:g} %" in capsys.readouterr().err
    assert asked("predict", store, "--site", "jetson-tk1", "--max-slowdown", 0.5) == 0
