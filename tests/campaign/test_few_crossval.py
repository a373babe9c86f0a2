"""Few measurements from the command line: who picks, a profile's pick, and what few cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.choice.candidates import profile_candidates
from analysis.choice.pick import pick, picks
from analysis.energy.models import FormRequest
from analysis.measurements.observations import measured_volts
from campaign.results import open_store
from campaign.verbs.command_line import main
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations
from tests.commands import answers, refuses
from tests.stores import store_of_table


def printed(value: float) -> object:
    """A number as JSON has it: half of its sixth digit may be lost."""
    return pytest.approx(value, rel=5.1e-6)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Twelve kernels at eight settings; kernel-2 at one of them alone."""
    data = grid_observations(4, kernels=12, noise=0.02)
    data = data.take((data.labels != "kernel-2") | (data.setting == 0))
    columns = {"kernel": data.labels, "core_mhz": data.core_mhz, "mem_mhz": data.mem_mhz}
    columns |= {"core_v": data.core_v, "mem_v": data.mem_v}
    columns |= {"time_s": data.time_s, "energy_j": data.energy_j}
    columns |= {f"n_{name}": values for name, values in data.counts.items()}
    table = pd.DataFrame(columns)
    path = store_of_table(tmp_path_factory.mktemp("few"), table, "--site", "few")
    assert main(["fit", str(path), "--model", "choi", "--voltage", "known"]) == 0
    return path


def test_predict_says_who_picked_where_that_was_tried(store, capsys):
    """Of the kernel with one setting, the others of which have all."""
    capsys.readouterr()
    assert main(["predict", str(store)]) == 0
    out = " ".join("".join(capsys.readouterr()).split())
    (few,) = answers("predict", store, "--kernel", "kernel-2")
    lost = {name: few[f"{name}_lost_pct"] for name in ("model", "best_single", "highest_clocks")}
    assert lost[few["chosen_by"]] == min(lost.values())
    said = (
        f"(kernel-2): tried on measured kernels, picks by the model lose "
        f"{few['model_lost_pct']:.2f} %"
    )
    assert (said in out) == (few["chosen_by"] != "model")


def test_predict_picks_for_a_profile(store, tmp_path):
    profile = tmp_path / "app.toml"
    setting = "core_mhz = 1000\nmem_mhz = 900\ntime_s = 0.1\n"
    counts = {"sp": 5e8, "int": 1e9, "dram": 1e9}
    lines = "".join(f"{name} = {n:g}\n" for name, n in counts.items())
    profile.write_text(f'kernel = "app"\n{setting}[counts]\n{lines}')
    known = open_store(store)
    known.fit("few", robust=True, name="robust")
    energies_j = []
    for name, form in (
        ("default", FormRequest("choi", "known")),
        ("robust", FormRequest(robust=True)),
    ):
        (row,) = answers("predict", store, "--profile", profile, "--fit", name)
        among = profile_candidates(
            known.observations("few"),
            "app",
            counts=counts,
            measured_s=0.1,
            measured_at=Setting(1000.0, 900.0),
            volts=known.setting_volts("few"),
            form=form,
        )
        own = pick(among)
        assert (row["core_mhz"], row["mem_mhz"]) == own.setting.clocks
        assert row["energy_j"] == printed(own.energy_j)
        assert row["expected_loss_pct"] == printed(own.expected_loss_pct)
        energies_j.append(row["energy_j"])
    assert energies_j[0] != pytest.approx(energies_j[1], rel=1e-3)
    profile.write_text(f'kernel = "app"\n{setting}[counts]\ntensor = 1e9\n')
    assert "count no 'tensor'" in refuses("predict", store, "--profile", profile)


def test_crossval_with_few_measurements(store, capsys):
    capsys.readouterr()
    assert main(["crossval", str(store), "--scheme", "few:all", "--new", "1"]) == 0
    out = " ".join("".join(capsys.readouterr()).split())
    assert "at 8 settings drawn at random, the kernels judged at 1 of these; 3 draws" in out
    shown = answers("crossval", store, "--scheme", "few:3")
    assert (shown["scheme"], shown["new"], shown["draws"]) == ("few:3", None, 3)
    assert shown["decision"]["cases"] == 11 * 3  # kernel-2 was not measured everywhere
    made = open_store(store).crossval_few("few", 3)
    table = made.to_pandas()
    assert len(table) == 33
    for chooser in ("picks", "best_measured", "best_single", "race_to_halt", "random"):
        lost, of_all = made.as_dict()["decision"][chooser], table[chooser]
        assert lost["mean_lost_pct"] == pytest.approx(of_all.mean(), rel=1e-12)
        if chooser != "random":
            assert lost["max_lost_pct"] == of_all.max()
            assert lost["exact"] == np.sum(of_all == 0.0)
        assert shown["decision"][chooser] == {name: printed(value) for name, value in lost.items()}
    data = open_store(store).observations("few")
    rows = pd.DataFrame({"kernel": data.kernel, "setting": data.setting, "energy_j": data.energy_j})
    cells = rows.pivot_table(index="kernel", columns="setting", values="energy_j").dropna()
    worst = (cells.max(axis=1) / cells.min(axis=1)).max()
    random = made.as_dict()["decision"]["random"]
    assert random["max_lost_pct"] == pytest.approx(100.0 * (worst - 1.0), rel=1e-12)
    assert random["exact"] == pytest.approx(33 / len(cells.columns), rel=1e-12)
    assert "few:3" in made._repr_html_()


@pytest.mark.parametrize(
    "words", [["--model", "choi"], ["--voltage", "known"], ["--robust"], ["--fit", "other"]]
)
def test_crossval_of_picks_refuses_the_form_of_a_fit(store, words):
    assert words[0] in refuses("crossval", store, "--scheme", "few:3", *words)


def test_a_holdout_is_judged_among_all_settings_too(store, capsys):
    """By brute force: of the settings that it was fitted on and of those that it was not."""
    pairs = [(400.0, 500.0), (400.0, 900.0), (600.0, 500.0), (600.0, 900.0), (800.0, 500.0)]
    train = [Setting(*pair) for pair in pairs]
    options = ["--model", "choi", "--voltage", "known", "--scheme", "holdout"]
    for core_mhz, mem_mhz in pairs:
        options += ["--train", f"{core_mhz:g},{mem_mhz:g}"]
    shown = answers("crossval", store, *options)
    data = open_store(store).observations("few")
    seen = np.array([data.settings[s] in train for s in data.setting])
    above, picked = {}, {}
    for made in picks(data.take(seen), volts=measured_volts(data)):
        mine = data.labels == made.label
        if len(np.unique(data.setting[mine])) < 8:
            continue
        order = np.argsort(data.setting[mine])
        own = data.energy_j[mine][order]
        above[made.label] = (own / own.min() - 1.0) * 100.0
        picked[made.label] = data.settings.index(made.setting)
    known = [data.settings.index(pair) for pair in train]
    expected = {
        "picks": [above[label][picked[label]] for label in above],
        "best_measured": [one[known].min() for one in above.values()],
        "random": [one.mean() for one in above.values()],
    }
    made = open_store(store).crossval(
        "few", scheme="holdout", train=train, model="choi", voltage="known"
    )
    among_all = made.as_dict()["among_all_settings"]
    assert among_all["cases"] == shown["among_all_settings"]["cases"] == len(above) == 11
    for chooser, lost in expected.items():
        mean_pct = among_all[chooser]["mean_lost_pct"]
        assert mean_pct == pytest.approx(np.mean(lost), rel=1e-9)
        assert shown["among_all_settings"][chooser]["mean_lost_pct"] == printed(mean_pct)
    assert shown["decision"]["cases"] == 11, "and by the three settings left out alone"
    assert main(["crossval", str(store), *options]) == 0
    out = " ".join("".join(capsys.readouterr()).split())
    assert "among all settings, also those fitted on (11 kernels measured at all of them)" in out
    assert "among_all_settings" not in answers("crossval", store, "--model", "choi")
