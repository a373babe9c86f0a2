"""campaign tune on the simulated Jetson TK1: what it chooses, keeps and finds; and replays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.launch.campaign_run import CampaignRun
from campaign.launch.outcome import limit_text
from campaign.plan.plan import make_plan
from campaign.results import open_store
from campaign.store.layout import open_store as open_folder
from campaign.store.planned import planned_ids
from campaign.variants.search_results import search_results
from campaign.variants.search_table import read_search
from campaign.variants.tuning import Tuning
from campaign.verbs.command_line import main
from tests.commands import answers, prints, refuses
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]

TUNE = """\
name = "tuned"
repeats = 2
[[sites]]
site = "jetson-tk1"
settings = { choose = "random", count = 12, seed = 1 }
[protocol]
min_duration_s = 0.05
[[kernels]]
kernel = "sp_fma"
params = { level = ["l2", "dram"] }
[kernels.space]
ops_per_word = [1, 2, 4, 8, 16, 32]
[search]
strategy = "neighbours"
budget = 60
batch = 8
"""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A campaign that was searched to its end, and its store."""
    folder = tmp_path_factory.mktemp("tuned")
    file = folder / "tune.toml"
    file.write_text(TUNE)
    assert main(["tune", str(file), "--store", str(folder / "store"), "--quiet"]) == 0
    return file, folder / "store"


def measured_ids(store):
    return sorted(open_store(store).scalars["point_id"].values.tolist())


def test_a_search_measures_its_budget_and_each_problem_an_equal_part(tuned):
    _, store = tuned
    scalars = open_store(store).scalars
    assert scalars.sizes["measurement"] == 60
    levels = [json.loads(own)["level"] for own in scalars["params"].values.tolist()]
    assert levels.count("l2") == levels.count("dram") == 30
    frame = scalars[["params", "core_mhz", "mem_mhz", "repeat"]].to_dataframe()
    assert set(frame.groupby(["params", "core_mhz", "mem_mhz"])["repeat"].count()) == {2}


def test_what_is_found_is_the_least_of_the_measurements(tuned):
    file, store = tuned
    tuning = Tuning(make_plan(file), open_folder(store), read_search(file))
    frame = open_store(store).scalars[["params", "core_mhz", "mem_mhz", "energy_j", "time_s"]]
    means = frame.to_dataframe().groupby(["params", "core_mhz", "mem_mhz"]).mean().reset_index()
    results = {result.params["level"]: result for result in search_results(tuning)}
    assert set(results) == {"l2", "dram"}
    for level, result in results.items():
        own = means[means["params"].str.contains(f'"{level}"')]
        least = own.loc[own["energy_j"].idxmin()]
        quickest = own.loc[own["time_s"].idxmin()]
        assert result.best.setting.core_mhz == least["core_mhz"]
        assert result.best.energy_j == pytest.approx(least["energy_j"])
        lost = (least["time_s"] / quickest["time_s"] - 1) * 100
        assert result.best.time_lost_pct == pytest.approx(lost)
        assert result.fastest.time_s == pytest.approx(quickest["time_s"])
        assert json.loads(least["params"])["ops_per_word"] == result.best.variant["ops_per_word"]
        assert result.best.slurm.startswith(f"--gpu-freq={least['core_mhz']:g},")
        assert (result.candidates, result.measured, result.failed) == (72, 15, 0)
        assert result.simulated


def test_a_search_that_is_killed_goes_on_with_the_points_that_it_had_chosen(tuned, tmp_path):
    file, store = tuned
    words = ["tune", str(file), "--store", str(tmp_path / "store"), "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "campaign", *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    journals = tmp_path / "store" / "journals"
    wait_until(lambda: any(path.stat().st_size > 4000 for path in journals.glob("*")), 60.0, 0.01)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert main(words) == 0
    assert measured_ids(tmp_path / "store") == measured_ids(store)


def test_a_search_at_its_end_measures_nothing(tuned):
    file, store = tuned
    before = measured_ids(store)
    printed = answers("tune", file, "--store", store)
    assert printed["run"]["ok"] == 60
    assert [one["best"]["energy_lost_pct"] for one in printed["found"]] == [0.0, 0.0]
    assert measured_ids(store) == before


def test_a_larger_budget_adds_to_what_is_measured(tuned, tmp_path):
    file, store = tuned
    search = read_search(file).model_copy(update={"budget": 70, "strategy": "all"})
    tuning = Tuning(make_plan(file), open_folder(store), search)
    assert tuning.most("jetson-tk1", "board") == 10
    assert tuning.begin().points[0].site == "jetson-tk1"
    planned = {own.decode() for own in planned_ids(tuning.store)["jetson-tk1/board"].tolist()}
    assert len(planned) == 70
    assert set(measured_ids(store)) < planned
    assert tuning.next_points("jetson-tk1", "board") == []  # those chosen are not measured yet


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('strategy = "neighbors"', "unknown strategy 'neighbors'; did you mean 'neighbours'"),
        ('objective = "joules"', "search.objective"),
        ("budget = 1", "found 1, and each point is measured 2 times"),
        ("budget = 0", "search.budget"),
        ("batches = 4", "search.batches"),
    ],
)
def test_a_wrong_search_is_refused_with_its_line(tmp_path, line, message):
    key = line.split()[0]
    kept = [own for own in TUNE.splitlines() if not own.startswith(f"{key} =")]
    file = tmp_path / "c.toml"
    file.write_text("\n".join([*kept, line]) + "\n")
    for words in (["plan", str(file)], ["tune", str(file), "--store", str(tmp_path / "store")]):
        error = refuses(*words)
        assert f"{file}:{len(kept) + 1}" in error
        assert message in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name a campaign file, or --replay S"),
        (["--replay", "S", "--site", "tk1"], "--site: unknown site 'tk1'"),
        (["--replay", "S", "--kernel", "fma"], "--kernel: unknown kernel 'fma'"),
        (["--replay", "S", "--strategy", "mod"], "unknown strategy 'mod'; did you mean 'model'"),
        (["--replay", "S"], "name one: --problem level=dram or --problem level=l2"),
        (["--replay", "S", "--trials", "0"], "--trials: found 0; must be 1 or more"),
        (["c.toml", "--replay", "S"], "leave out the campaign file"),
    ],
)
def test_a_wrong_usage_is_refused(tuned, words, message):
    _, store = tuned
    assert message in refuses("tune", *(str(store) if word == "S" else word for word in words))


def test_a_replay_ends_with_no_loss_once_all_are_measured(tuned):
    _, store = tuned
    words = ["--budget", "15", "--trials", "2", "--strategy", "random", "--strategy", "neighbours"]
    words += ["--problem", "level=dram"]
    played = answers("tune", "--replay", store, *words)
    assert played["candidates"] == 15
    assert played["measurements"] == [15]
    assert played["mean_lost_pct"] == {"random": [0.0], "neighbours": [0.0]}


def test_a_search_for_energy_without_a_meter_ends_after_its_first_batch(tmp_path):
    (tmp_path / "site.toml").write_text(
        'name = "bare"\n[clocks]\ncontrol = "fixed"\n[partitions.local]\nscheduler = "local"\n'
    )
    file = tmp_path / "c.toml"
    file.write_text(
        'name = "c"\n[[sites]]\nsite = "site.toml"\n[protocol]\nmin_duration_s = 0.0\n'
        'warm_up_s = 0.0\n[[kernels]]\nkernel = "idle"\n[kernels.space]\n'
        "sleep_s = [0.001, 0.002, 0.003]\n"
        '[search]\nstrategy = "all"\nbatch = 2\nobjective = "edp"\n'
    )
    message = refuses("tune", file, "--store", tmp_path / "store", "--quiet")
    assert "search.objective: edp needs energies, and no energy of idle was measured" in message
    assert "bare/local" in message
    assert len(measured_ids(tmp_path / "store")) == 2


def test_a_limit_that_is_reached_between_two_batches_says_so(tuned, tmp_path, monkeypatch):
    """The limit is noticed when a batch has been measured and the next is not chosen yet."""
    file, _ = tuned
    store = tmp_path / "store"
    choose_more = CampaignRun._choose_more

    def limit_then_choose(self):
        for partition in self.partitions:
            if not partition.left:
                partition.stop(limit_text(100.0))
        choose_more(self)

    monkeypatch.setattr(CampaignRun, "_choose_more", limit_then_choose)
    words = ["tune", str(file), "--store", str(store), "--quiet", "--max-node-hours", "100"]
    last = prints(*words, code=1).splitlines()[-1]
    assert last.endswith(
        f"not complete; --max-node-hours 100 is reached; to go on, allow more: campaign tune {file}"
        f" --store {store} --max-node-hours HOURS"
    )
    assert 0 < len(measured_ids(store)) < 60
    monkeypatch.undo()
    assert main(words) == 0
    assert len(measured_ids(store)) == 60


def test_a_detached_search_is_watched_to_its_end(tuned, tmp_path):
    file, store = tuned
    words = ["tune", str(file), "--store", str(tmp_path / "store"), "--detach"]
    assert "to watch it: campaign watch" in prints(*words)
    assert "60 of 60 points measured, 0 failed, 0 left: complete" in prints(
        "watch", tmp_path / "store"
    )
    assert measured_ids(tmp_path / "store") == measured_ids(store)
