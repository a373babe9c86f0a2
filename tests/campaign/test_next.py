"""campaign next and run --adaptive on the simulated Jetson TK1: what they choose and measure."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from campaign.launch.campaign_run import CampaignRun
from campaign.next.offered import offered
from campaign.plan.plan import make_plan
from campaign.results import open_store
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from tests.commands import answers, prints, refuses
from tests.simulated_runs import simulate

CAMPAIGN = """\
name = "few"
seed = 4
[[sites]]
site = "jetson-tk1"
[settings]
choose = "pairs"
pairs = [[852, 924], [396, 924], [852, 528], [396, 528], [852, 204], [72, 68], [648, 396]]
[protocol]
min_duration_s = 0.05
[[kernels]]
kernel = "sp_fma"
label = "single"
params = { level = "dram", ops_per_word = [1, 64] }
[[kernels]]
kernel = "dp_fma"
params = { level = "l2", ops_per_word = 2 }
[[kernels]]
kernel = "load"
params = { level = "dram" }
"""


def repeats_of(store: Path) -> Counter[tuple[str, str, float, float]]:
    """How often each cell of a store was measured."""
    scalars = open_store(store).scalars
    columns = [
        scalars[name].values.tolist() for name in ("kernel", "params", "core_mhz", "mem_mhz")
    ]
    return Counter(zip(*columns, strict=True))


def cells_of(store: Path) -> set[tuple[str, str, float, float]]:
    """The cells that a store has measured."""
    return set(repeats_of(store))


def command(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with a campaign file and its store, all seven settings of it measured."""
    folder = tmp_path_factory.mktemp("next")
    (folder / "few.toml").write_text(CAMPAIGN)
    simulate(folder / "few.toml", folder / "store")
    return folder


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    """The store for a test of its own; the campaign file is the other folder's."""
    shutil.copytree(whole / "store", tmp_path / "store")
    return tmp_path / "store"


def test_next_writes_a_campaign_file_of_the_points_that_it_names(copy, tmp_path):
    file = tmp_path / "next.toml"
    words = ["next", copy, "--budget", 1, "--points", 9, "--output", file]
    shown = answers(*words)
    assert (shown["measured"], shown["planned"]) == (28, 4 * 15 * 7)
    assert len(shown["points"]) == 9
    named = {
        (p["kernel"], json.dumps(p["params"], sort_keys=True), p["core_mhz"], p["mem_mhz"])
        for p in shown["points"]
    }
    plan = make_plan(file)
    planned = {
        (p.label, json.dumps(json.loads(p.params), sort_keys=True), p.setting.core_mhz,
         p.setting.mem_mhz)
        for p in plan.points
    }  # fmt: skip
    assert planned == named
    assert shown["then_loss_pct"] < shown["expected_loss_pct"]
    before = cells_of(copy)
    assert command("run", file, "--store", copy, "--quiet") == 0
    after = cells_of(copy)
    assert before < after
    assert len(after) == len(before) + 9
    # It goes on from the campaign that the points were chosen from, not from their own file.
    again = answers("next", copy, "--budget", 1, "--points", 2)
    assert (again["measured"], again["planned"]) == (37, 4 * 15 * 7)


def test_points_are_measured_again_for_picks_and_to_show_a_drift(copy, tmp_path):
    """Twice: the second file counts the repeats that the first one made."""
    file = tmp_path / "next.toml"
    for already in (1, 2):
        words = ["next", copy, "--budget", 1, "--points", 20, "--only-planned", "--enough", 0]
        points = answers(*words, "--output", file)["points"]
        # All seven settings have been measured: nothing else can be chosen.
        assert Counter(point["why"] for point in points) == {"repeat": 18, "anchor": 2}
        before = repeats_of(copy)
        anchors = [p for p in points if p["why"] == "anchor"]
        named = {
            (p["kernel"], json.dumps(p["params"], sort_keys=True, separators=(",", ":")),
             p["core_mhz"], p["mem_mhz"])
            for p in points
        }  # fmt: skip
        assert len(named) == 20
        assert {(p["core_mhz"], p["mem_mhz"]) for p in anchors} == {(852, 924), (72, 68)}
        planned = {p.repeat: p.id for p in make_plan(file).points}
        assert max(planned) == already
        simulate(file, copy)
        after = repeats_of(copy)
        assert after - before == Counter(named)
        assert set(after.values()) <= set(range(1, already + 2))


def test_how_often_a_point_was_measured_is_that_of_its_own_kernel(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(CAMPAIGN + "repeats = 3\n")
    own = make_plan(file).points
    assert Counter((p.label, p.repeat) for p in own) == {
        ("single", 0): 14, ("dp_fma", 0): 7, **{("load", repeat): 7 for repeat in range(3)},
    }  # fmt: skip
    assert [point.repeat for point in own] == sorted(point.repeat for point in own)
    file.write_text(CAMPAIGN.replace("seed = 4", "seed = 4\nrepeats = 3"))
    for_all = list(make_plan(file).points)
    # Ids and their order are those of a campaign in which all kernels have as many.
    kept = {point.id for point in own}
    assert [point.id for point in own] == [point.id for point in for_all if point.id in kept]


def test_a_cell_costs_the_repeats_that_it_lacks(tmp_path):
    """Of three: all of the first cell are missing, one of the second; of the third one more."""
    file = tmp_path / "own.toml"
    file.write_text(CAMPAIGN.replace("seed = 4", "seed = 4\nrepeats = 3"))
    plan = make_plan(file)
    (part,) = plan.points.parts
    states = {
        part.point_id(code, repeat): ("ok", 1)
        for code, often in ((1, 2), (2, 3))
        for repeat in range(often)
    }
    cells = offered(plan, part, states, None, again=True).cells
    assert cells.free[0, :3].all()
    assert cells.measurements[0, :3].tolist() == [3, 1, 1]
    hours = cells.cost(0, np.full(len(part.settings), 0.1))
    assert hours[1] == pytest.approx(hours[0] / 3)


def test_a_kernel_may_stand_twice_at_different_settings(tmp_path):
    file = tmp_path / "twice.toml"
    settings = 'settings = { choose = "pairs", pairs = [[756, 924]] }\n'
    again = '[[kernels]]\nkernel = "load"\nparams = { level = "dram" }\nrepeats = 2\n'
    file.write_text(CAMPAIGN + again + settings)
    points = make_plan(file).points
    assert len({point.id for point in points}) == len(points) == 4 * 7 + 2
    simulate(file, tmp_path / "store")
    words = ["next", tmp_path / "store", "--budget", 1, "--points", 30, "--enough", 0]
    shown = answers(*words)
    assert (shown["kernels"], shown["planned"], shown["measured"]) == (4, 4 * 15 * 7, 29)
    cells = [(p["kernel"], str(p["params"]), p["core_mhz"], p["mem_mhz"]) for p in shown["points"]]
    assert len(set(cells)) == 30
    file.write_text(CAMPAIGN + again + settings.replace("756", "396"))
    with pytest.raises(FileError, match=r"the point load .* at .*396.* is planned twice"):
        make_plan(file)


def test_next_keeps_to_its_limits(copy):
    words = ["next", copy, "--budget", 1]
    shown = answers(*words, "--points", 4, "--kernel", "dp_fma")
    assert {point["kernel"] for point in shown["points"]} == {"dp_fma"}
    assert shown["planned"] == 15 * 7
    shown = answers(*words, "--only-planned")
    assert {point["why"] for point in shown["points"]} <= {"repeat", "anchor"}
    assert shown["measured"] == shown["planned"] == 28
    one = answers("next", copy, "--budget", 1, "--points", 1)
    hours = one["points"][0]["node_hours"]
    few = answers("next", copy, "--budget", 3.5 * hours)
    assert 1 <= len(few["points"]) <= 3
    assert few["node_hours"] <= 3.5 * hours
    much = answers("next", copy, "--budget", 1, "--enough", 90)
    assert (much["points"], much["ended"]) == ([], "enough")


def test_next_for_people(copy, tmp_path):
    text = " ".join(prints("next", copy, "--budget", 1, "--points", 3).split())
    assert "4 kernels at 105 settings, 28 of 420 points measured" in text
    assert "the picks are expected to lose" in text
    text = prints("next", copy, "--budget", 1, "--points", 3, "--output", tmp_path / "n.toml")
    assert f"campaign run {tmp_path / 'n.toml'} --store {copy}" in text


def test_next_of_a_store_with_few_settings_spreads_first(whole, tmp_path):
    file = tmp_path / "one.toml"
    pairs = CAMPAIGN.index("pairs = ")
    file.write_text(
        CAMPAIGN[:pairs] + "pairs = [[396, 528]]" + CAMPAIGN[CAMPAIGN.index("\n[protocol]") :]
    )
    store = tmp_path / "store"
    simulate(file, store)
    shown = answers("next", store, "--budget", 1)
    assert shown["ended"] == "spread"
    assert shown["expected_loss_pct"] is None
    assert Counter(point["why"] for point in shown["points"]) == {"spread": 16, "anchor": 1}
    assert shown["points"].pop()["why"] == "anchor"
    settings = {(point["core_mhz"], point["mem_mhz"]) for point in shown["points"]}
    # Four more for all four kernels; those of the fastest setting come first.
    assert len(shown["points"]) == 4 * 4
    assert (852.0, 924.0) in settings
    assert shown["points"][0]["core_mhz"] == 852.0


def test_a_kernel_has_settings_of_its_own(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(CAMPAIGN)
    common = {point.id for point in make_plan(file).points}
    file.write_text(
        CAMPAIGN + 'settings = { choose = "pairs", pairs = [[396, 924], [756, 924]] }\n'
    )
    own = make_plan(file).points
    at = {(p.setting.core_mhz, p.setting.mem_mhz): p.id for p in own if p.label == "load"}
    assert set(at) == {(396.0, 924.0), (756.0, 924.0)}
    assert len(own) == 3 * 7 + 2
    # The same points have the same ids.
    assert {p.id for p in own} & common == common - {
        p.id
        for p in _points_of_load(tmp_path)
        if p.setting.core_mhz != 396 or p.setting.mem_mhz != 924
    }


def _points_of_load(folder: Path):
    (folder / "all.toml").write_text(CAMPAIGN)
    return [p for p in make_plan(folder / "all.toml").points if p.label == "load"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--budget", "0"], "--budget: found 0; must be node-hours above 0"),
        (["--budget", "1", "--points", "0"], "--points: found 0; must be 1 or more"),
        (["--budget", "1", "--enough", "-1"], "--enough: found -1; must be 0 or more"),
        (["--budget", "1", "--anchors", "-1"], "--anchors: found -1; must be 0 or more"),
        (["--budget", "1", "--kernel", "singel"], "--kernel: the campaign has no kernel 'singel'"),
        (["--budget", "1", "--partition", "gpu"], "does not measure on partition 'gpu'"),
        (["--budget", "1", "--campaign", "no.toml"], "no.toml"),
    ],
)
def test_what_is_wrong_is_said(whole, words, text):
    said = refuses("next", whole / "store", *words)
    assert text in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) <= 3


def test_an_imported_table_needs_a_campaign_file(tmp_path, whole):
    assert command("export", whole / "store", "--csv", tmp_path / "t.csv") == 0
    store = tmp_path / "store"
    assert command("import", tmp_path / "t.csv", "--store", store) == 0
    assert "--campaign C.toml" in refuses("next", store, "--budget", 1)
    words = ["next", store, "--budget", 1, "--points", 5, "--campaign", whole / "few.toml"]
    shown = answers(*words)
    assert len(shown["points"]) == 5
    assert shown["expected_loss_pct"] > 0


def test_cells_of_a_table_from_elsewhere_are_measured_ones(tmp_path, whole):
    assert command("export", whole / "store", "--csv", tmp_path / "all.csv") == 0
    table = pd.read_csv(tmp_path / "all.csv")
    names = ["site", "kernel", "params", "core_mhz", "mem_mhz", "time_s", "energy_j", "core_v"]
    table[table["core_mhz"] != 648][[*names, "mem_v"]].to_csv(tmp_path / "t.csv", index=False)
    store = tmp_path / "store"
    assert command("import", tmp_path / "t.csv", "--store", store) == 0
    words = ["next", store, "--budget", 1, "--campaign", whole / "few.toml", "--only-planned"]
    shown = answers(*words, "--enough", 0)
    assert (shown["planned"], shown["measured"]) == (28, 24)
    new = [(p["core_mhz"], p["why"]) for p in shown["points"] if p["why"] in ("spread", "pick")]
    assert {mhz for mhz, _ in new} <= {648.0}


ADAPTIVE = ("--adaptive", "--enough", "1")


@pytest.fixture(scope="module")
def adaptive(whole, tmp_path_factory) -> Path:
    """The store of an adaptive run over 18 random settings."""
    folder = tmp_path_factory.mktemp("adaptive")
    _wide(folder)
    words = ["run", folder / "wide.toml", "--store", folder / "store", "--quiet", *ADAPTIVE]
    assert command(*words) == 0
    return folder


def _wide(folder: Path) -> None:
    begin, end = CAMPAIGN.index("[settings]"), CAMPAIGN.index("[protocol]")
    settings = '[settings]\nchoose = "random"\ncount = 18\nseed = 2\n'
    (folder / "wide.toml").write_text(CAMPAIGN[:begin] + settings + CAMPAIGN[end:])


def test_an_adaptive_run_measures_a_part_and_ends_by_itself(adaptive):
    planned = len(make_plan(adaptive / "wide.toml").points)
    measured = open_store(adaptive / "store").scalars.sizes["measurement"]
    assert planned == 4 * 18
    assert 5 * 4 < measured < planned
    words = ["run", adaptive / "wide.toml", "--store", adaptive / "store", "--quiet", *ADAPTIVE]
    shown = answers(*words)
    assert shown["complete"]
    assert shown["planned"] == measured
    lost = shown["expected_loss_pct"]["jetson-tk1/board"]
    assert lost <= 1.0
    again = prints(*words)
    assert f"the picks are expected to lose {lost:.2f} % on average" in " ".join(again.split())
    assert open_store(adaptive / "store").scalars.sizes["measurement"] == measured


def test_an_adaptive_run_measures_again_rather_than_everything(tmp_path):
    """Single measurements of this board leave more than half a percent, and all settings would be
    measured once."""
    _wide(tmp_path)
    words = ["run", tmp_path / "wide.toml", "--store", tmp_path / "store", "--quiet", "--adaptive"]
    shown = answers(*words)
    often = repeats_of(tmp_path / "store")
    assert shown["complete"]
    assert shown["planned"] == sum(often.values()) < 4 * 18
    assert shown["expected_loss_pct"]["jetson-tk1/board"] <= 0.5
    assert max(often.values()) > 1
    # It goes on as it was, with nothing left to measure.
    assert answers(*words)["planned"] == shown["planned"]


def test_an_interrupted_adaptive_run_goes_on_as_it_would_have(adaptive, tmp_path, monkeypatch):
    _wide(tmp_path)
    words = ["run", tmp_path / "wide.toml", "--store", tmp_path / "store", "--quiet", *ADAPTIVE]
    batches = []

    def stops_after_two(self):
        choose(self)
        batches.append(1)
        if len(batches) == 40:
            self.interrupted.set()

    choose = CampaignRun._choose_more
    monkeypatch.setattr(CampaignRun, "_choose_more", stops_after_two)
    first = command(*words)
    monkeypatch.undo()
    assert first in (0, 130)
    while (code := command(*words)) == 130:
        pass
    assert code == 0
    ids = [
        sorted(open_store(folder / "store").scalars["point_id"].values.tolist())
        for folder in (adaptive, tmp_path)
    ]
    assert ids[0] == ids[1]


def test_options_of_an_adaptive_run_need_it(whole):
    file = whole / "few.toml"
    for words, text in (
        (["--enough", "1"], "--enough: is for a run that chooses its points; add --adaptive"),
        (["--objective", "edp"], "--objective: is for a run that chooses its points"),
        (["--adaptive", "--enough", "-2"], "--enough: found -2; must be a percentage from 0"),
        (["--adaptive", "--objective", "watts"], "watts"),
    ):
        assert text in refuses("run", file, "--store", whole / "store", *words)


def test_every_measured_energy_is_there_once(adaptive):
    scalars = open_store(adaptive / "store").scalars
    assert len(set(scalars["point_id"].values.tolist())) == scalars.sizes["measurement"]
    assert np.isfinite(scalars["energy_j"].values).all()
