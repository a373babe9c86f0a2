"""Settings with a profile or an uncore clock, from a table or a site file to the picks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.measurements.observations import FitError, observations
from analysis.predict.site import profile_speeds
from campaign.plan.plan import make_plan
from campaign.plan.point import Point
from campaign.results import open_store as open_results
from campaign.verbs.command_line import main
from dvfs.setting import Setting
from sites.site_reading import read_site
from tests.analysis.simulated_tk1 import simulated_columns
from tests.commands import answers, refuses
from tests.stores import measurements_of, store_of_table

PROFILES = {"powersave": 0.5, "balanced": 0.8, "performance": 1.0}
"""Profile -> the relative clock of the machine of the table below."""


def table_of_profiles() -> pd.DataFrame:
    """Kernels that compute for c and wait for w seconds: t = c / f + w, E = 40 t + a f^2 c."""
    rng = np.random.default_rng(4)
    rows = []
    for k, (compute_s, wait_s) in enumerate(rng.uniform(1, 3, (12, 2)).tolist()):
        dynamic_w = 10 + 20 * k
        for profile, clock in PROFILES.items():
            for repeat in range(2):
                time_s = (compute_s / clock + wait_s) * (1 + 0.002 * rng.normal())
                energy_j = 40 * time_s + dynamic_w * clock**2 * compute_s
                energy_j *= 1 + 0.005 * rng.normal()
                rows.append(("s", f"k{k}", profile, repeat, time_s, energy_j))
    return pd.DataFrame(rows, columns=["site", "kernel", "profile", "repeat", "time_s", "energy_j"])


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = store_of_table(tmp_path_factory.mktemp("profiles"), table_of_profiles())
    assert main(["fit", str(store)]) == 0
    return store


def test_picks_among_profiles_are_those_of_least_energy(profiles: Path) -> None:
    mean = table_of_profiles().groupby(["kernel", "profile"])["energy_j"].mean().unstack()
    picks = answers("predict", profiles)
    assert isinstance(picks, list) and len(picks) == 12
    best = mean.idxmin(axis=1)
    assert best.nunique() == 3
    for pick in picks:
        own = mean.loc[pick["kernel"]]
        assert (pick["core_mhz"], pick["mem_mhz"]) == (None, None)
        assert pick["slurm_cannot_set"] == "profile"
        assert own[pick["profile"]] <= own.min() * 1.01
    for words in (
        ["crossval", str(profiles)],
        ["predict", str(profiles), "--all-settings"],
        ["status", str(profiles)],
        ["compare", str(profiles), str(profiles)],
    ):
        answers(*words)
    assert main(["report", str(profiles), "-o", str(profiles.parent / "r.html")]) == 0
    assert "profile powersave" in (profiles.parent / "r.html").read_text()
    assert main(["policy", str(profiles), "-o", str(profiles.parent / "p.toml")]) == 2


def test_a_profile_left_out_is_predicted_from_the_others(profiles: Path) -> None:
    """Half of the kernels lack one profile: their picks lose less than the best single profile."""
    table = table_of_profiles()
    mean = table.groupby(["kernel", "profile"])["energy_j"].mean().unstack()
    kernels = sorted(set(table["kernel"]))
    lost, single = [], []
    for missing in PROFILES:
        for part in (kernels[::2], kernels[1::2]):
            folder = profiles.parent / f"without-{missing}-{part[0]}"
            known = table[~(table["kernel"].isin(part) & (table["profile"] == missing))]
            store = store_of_table(folder, known)
            assert main(["fit", str(store)]) == 0
            for entry in open_results(store).predict("s").predictions:
                if entry.pick.kernel in part:
                    own = mean.loc[entry.pick.kernel]
                    assert entry.pick.setting.profile is not None
                    lost.append(own[entry.pick.setting.profile] / own.min() - 1)
                    single.append(own[mean.mean().idxmin()] / own.min() - 1)
    assert np.mean(lost) < 0.5 * np.mean(single)


def test_a_column_profile_of_another_tool_is_a_label(tmp_path: Path) -> None:
    """Unless a map names it; of a table without a map it is the setting."""
    (tmp_path / "t.csv").write_text("k,profile,t,e\na,12345,1.0,2.0\n")
    (tmp_path / "m.toml").write_text(
        'unknown = "label"\n[constants]\nsite = "s"\ncore_mhz = 900\n'
        '[columns]\nkernel = "k"\ntime_s = "t"\nenergy_j = "e"\n'
    )
    words = ["import", str(tmp_path / "t.csv"), "--map", str(tmp_path / "m.toml"), "--store"]
    assert main([*words, str(tmp_path / "label")]) == 0
    row = measurements_of(tmp_path / "label").iloc[0]
    assert row["profile"] == "" and json.loads(row["provenance"])["labels"]["profile"] == "12345"
    with (tmp_path / "m.toml").open("a") as file:
        file.write('profile = "profile"\n')
    assert main([*words, str(tmp_path / "named")]) == 0
    assert measurements_of(tmp_path / "named")["profile"].tolist() == ["12345"]


def test_speeds_of_profiles_are_the_factors_of_the_times() -> None:
    """Also where each kernel has only some of them, and clocks differ too."""
    data = observations(simulated_columns("off"), "tk1")
    names = sorted(PROFILES)
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, len(data))
    settings = sorted(
        {replace(one, profile=name) for one in data.settings for name in (*names, None)}
    )
    number = {one: i for i, one in enumerate(settings)}
    speed = np.array([PROFILES[name] for name in names])
    twice = np.arange(len(data)).repeat(3)
    of = np.tile(np.arange(3), len(data))
    kept = (which[twice] != of) | (rng.random(len(twice)) < 0.5)
    twice, of = twice[kept], of[kept]
    data = replace(
        data.take(twice),
        settings=settings,
        setting=np.array(
            [
                number[replace(data.settings[s], profile=names[p])]
                for s, p in zip(data.setting[twice].tolist(), of.tolist(), strict=True)
            ]
        ),
        time_s=data.time_s[twice] / speed[of],
    )
    found = profile_speeds(data)
    assert {name: found[name] for name in names} == pytest.approx(PROFILES, rel=1e-9)


def test_export_and_import_keep_profiles(profiles: Path, tmp_path: Path) -> None:
    for ending, option in (("csv", "--csv"), ("parquet", "--parquet")):
        table, again = tmp_path / f"t.{ending}", tmp_path / ending
        assert main(["export", str(profiles), option, str(table)]) == 0
        assert main(["import", str(table), "--store", str(again)]) == 0
        one, other = (measurements_of(store).sort_values("point_id") for store in (profiles, again))
        for name in ("point_id", "profile", "uncore_mhz", "energy_j", "clock_proof"):
            pd.testing.assert_series_equal(
                one[name].reset_index(drop=True), other[name].reset_index(drop=True)
            )


def test_an_uncore_clock_is_the_second_clock_of_the_model(tmp_path: Path) -> None:
    """The same table, once with the clock as mem_mhz and once as uncore_mhz: the same picks, and
    the same coefficients to the last digit. A memory clock that is always one changes nothing."""
    rows = pd.DataFrame(dict(simulated_columns("default")))
    columns = ["site", "kernel", "params", "repeat", "core_mhz", "mem_mhz", "time_s", "energy_j"]
    table = rows[[*columns, *(name for name in rows if name.startswith("n_"))]]
    found = []
    renamed = table.rename(columns={"mem_mhz": "uncore_mhz"})
    for number, one in enumerate((table, renamed, renamed.assign(mem_mhz=3200.0))):
        store = store_of_table(tmp_path / str(number), one)
        fitted = answers("fit", store)
        picks = answers("predict", store)
        assert isinstance(fitted, dict) and isinstance(picks, list)
        clocks = [
            (pick["core_mhz"], pick["uncore_mhz"] if number else pick["mem_mhz"]) for pick in picks
        ]
        savings = [(pick["saving_pct"], pick["time_s"], pick["best_probability"]) for pick in picks]
        found.append((fitted["coefficients"], clocks, savings))
    assert found[0] == found[1] == found[2]
    assert len({mhz for _, mhz in found[0][1]}) > 1


def test_legal_settings_of_a_map_are_of_the_uncore_clock(tmp_path: Path) -> None:
    rows = [
        f"s,k{k},{core},3200,{uncore},{k + 1 + 1 / core + 1 / uncore},{k + 2}"
        for k in range(4)
        for core in (1000, 1500, 2000)
        for uncore in (1200, 2400)
    ]
    header = "site,kernel,core_mhz,mem_mhz,uncore_mhz,time_s,energy_j"
    (tmp_path / "m.toml").write_text(
        "legal = [[1000, 1200], [1500, 1800], [2000, 2400]]\n[voltage]\n"
        "core = [[1000, 0.7], [1500, 0.8], [2000, 1.0]]\n"
        "mem = [[1200, 0.7], [1800, 0.8], [2400, 0.9]]\n"
    )
    store = store_of_table(tmp_path, [header, *rows], "--map", tmp_path / "m.toml")
    assert set(measurements_of(store)["mem_v"]) == {0.7, 0.9}
    assert main(["fit", str(store)]) == 0
    picks = answers("predict", store, "--all-settings")
    assert isinstance(picks, list)
    known = {
        (1000, 1200),
        (1500, 1800),
        (2000, 2400),
        *((c, u) for c in (1000, 1500, 2000) for u in (1200, 2400)),
    }
    for pick in picks:
        assert (pick["core_mhz"], pick["uncore_mhz"]) in known
        assert pick["slurm"].startswith("--cpu-freq") and pick["slurm_cannot_set"] == "uncore_mhz"


def test_both_clocks_at_once_are_refused(tmp_path: Path) -> None:
    rows = [
        f"s,k{k},{core},{mem},{uncore},{k + 1 + 1 / core},{k + 2}"
        for k in range(3)
        for core in (1000, 2000)
        for mem in (1600, 3200)
        for uncore in (1200, 2400)
    ]
    header = "site,kernel,core_mhz,mem_mhz,uncore_mhz,time_s,energy_j"
    store = store_of_table(tmp_path, [header, *rows])
    error = refuses("fit", store, code=FitError.exit_code)
    assert "one clock for both" in error and "Traceback" not in error


SITE = """
name = "here"
[partitions.here]
[domains.core]
frequencies_mhz = [1000, 2000]
[domains.uncore]
frequencies_mhz = [1200, 2400]
[clocks]
control = "cpufreq"
options = { uncore = true }
[power_limit]
limits_w = [100, 200]
control = "powercap"
[profiles]
names = ["performance", "power"]
control = "energy-preference"
"""
CAMPAIGN = """
name = "c"
repeats = 2
[[sites]]
site = "here.toml"
[[kernels]]
kernel = "sp_fma"
[kernels.params]
level = "dram"
ops_per_word = [1, 16]
[settings]
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", 16),
        ('profile = ["power"]', 8),
        ('uncore_mhz = [1200]\nprofile = ["power"]\npower_limit_w = [100]', 2),
        ('choose = "pairs"\npairs = [[1000, 2400]]', 4),
        ('choose = "pairs"\npairs = [[1000, 2400, 200]]\nprofile = ["power"]', 1),
    ],
)
def test_a_campaign_chooses_among_all_axes(tmp_path: Path, settings: str, expected: int) -> None:
    (tmp_path / "here.toml").write_text(SITE)
    (tmp_path / "c.toml").write_text(CAMPAIGN + settings)
    points = list(make_plan(tmp_path / "c.toml").points)
    assert len({point.setting for point in points}) == expected
    assert len({point.id for point in points}) == len(points) == 2 * 2 * expected
    for point in points:
        fields = {name: getattr(point, name) for name in point.__slots__ if name != "id"}
        assert point == Point(**fields)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('names = ["performance", "power"]', "names = []", "profiles.names"),
        ('names = ["performance", "power"]', 'names = ["a", "a"]', "profiles.names"),
        ('names = ["performance", "power"]', 'names = ["two words"]', "profiles.names"),
        ('"energy-preference"', '"powercap"', "profiles.control"),
        ('"energy-preference"', '"cpufreq"', "profiles.control"),
        ('"energy-preference"', '"nothing"', "profiles.control"),
        ('control = "cpufreq"', 'control = "energy-preference"', "clocks.control"),
        ('"energy-preference"', '"energy-preference"\noptions = { a = 1 }', "profiles.options"),
        ("[domains.uncore]", "[domains.mem]\nfrequencies_mhz = [9e2]\n[domains.uncore]", "uncore"),
    ],
)
def test_a_wrong_site_file_is_one_message_with_its_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in SITE
    (tmp_path / "here.toml").write_text(SITE.replace(old, new))
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    error = refuses("plan", tmp_path / "c.toml")
    assert said in error and "here.toml:" in error and "Traceback" not in error


def test_a_profile_that_the_site_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text(SITE)
    (tmp_path / "c.toml").write_text(CAMPAIGN + 'profile = ["fast"]')
    assert "performance, power" in refuses("plan", tmp_path / "c.toml")


def stand_in(folder: Path, then: str = 'echo "$2" > "$D"') -> Path:
    """A program that sets and shows a profile, which is a file."""
    program = folder / "profile"
    (folder / "now").write_text("balanced\n")
    program.write_text(
        f'#!/bin/sh\nset -eu\nD={folder}/now\ncase $1 in\nset) {then} ;;\nshow) cat "$D" ;;\nesac\n'
    )
    program.chmod(0o755)
    return program


def measured_here(folder: Path, program: Path) -> pd.DataFrame:
    commands = {
        "set": [[str(program), "set", "{profile}"]],
        "read": [[str(program), "show"]],
        "restore": [[str(program), "set", "{profile}"]],
    }
    options = ", ".join(f"{name} = {json.dumps(words)}" for name, words in commands.items())
    (folder / "here.toml").write_text(
        'name = "here"\n[partitions.here]\n[profiles]\nnames = ["powersave", "fast"]\n'
        f'control = "command-profile"\noptions = {{ {options} }}\n'
    )
    (folder / "c.toml").write_text(
        'name = "c"\n[[sites]]\nsite = "here.toml"\n[[kernels]]\nkernel = "idle"\n'
        "[protocol]\nidle_s = 0\nwarm_up_s = 0\nmin_duration_s = 0.01\n"
    )
    main(["run", str(folder / "c.toml"), "--store", str(folder / "s")])
    return measurements_of(folder / "s")


def test_a_run_sets_each_profile_proves_it_and_restores_it(tmp_path: Path) -> None:
    frame = measured_here(tmp_path, stand_in(tmp_path))
    assert sorted(frame["profile"]) == ["fast", "powersave"]
    assert set(frame["clock_proof"]) == {"read back"}
    assert set(frame["status"]) == {"ok"}
    assert (tmp_path / "now").read_text() == "balanced\n"
    settings = read_site(tmp_path / "here.toml").settings
    assert settings == [Setting(profile="powersave"), Setting(profile="fast")]


def test_a_profile_that_is_not_taken_is_a_failure(tmp_path: Path) -> None:
    frame = measured_here(tmp_path, stand_in(tmp_path, "true"))
    assert not set(frame["status"]) & {"ok", "clock unproven"}
    assert (tmp_path / "now").read_text() == "balanced\n"
