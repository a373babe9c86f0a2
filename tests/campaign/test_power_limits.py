"""A campaign over power limits on the simulated board, from the site file to the picks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.measurements.power_trace import row_trace
from analysis.quality.finding import describe
from campaign.next.next_points import next_file
from campaign.plan.plan import make_plan
from campaign.results import open_store as open_results
from campaign.store.generation import MISSING, newest_generation
from campaign.store.layout import open_store
from campaign.store.tables import read_traces
from campaign.store.verify import BadShard, lost_traces
from campaign.verbs.command_line import main
from dvfs.setting import Setting
from sites.site_reading import built_in_sites, read_site
from tests.commands import answers, prints, refuses
from tests.simulated_runs import simulate
from tests.stores import measurements_of, store_of_table

LIMITS_W = (12.0, 30.0)
CAMPAIGN = """
name = "limits"
[[sites]]
site = "limited.toml"
[settings]
core_mhz = [396, 648, 852]
mem_mhz = [528, 924]
[[kernels]]
kernel = "sp_fma"
[kernels.params]
level = "dram"
ops_per_word = [1, 16, 256]
[[kernels]]
kernel = "int_mad"
[kernels.params]
level = "dram"
ops_per_word = [4, 64]
"""


def write_site(folder: Path, limits: str = "limits_w = [12, 30]") -> Path:
    text = built_in_sites()["jetson-tk1"].read_text()
    path = folder / "limited.toml"
    path.write_text(f"{text}\n[power_limit]\n{limits}\n")
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    write_site(folder)
    (folder / "campaign.toml").write_text(CAMPAIGN)
    store = folder / "store"
    simulate(folder / "campaign.toml", store)
    return store


def test_every_pair_is_measured_at_every_limit_at_the_clock_that_it_allows(measured: Path) -> None:
    frame = measurements_of(measured)
    assert len(frame) == 5 * 6 * 2
    assert set(frame["power_limit_w"]) == set(LIMITS_W)
    power_w = frame["energy_j"] / frame["time_s"]
    low = frame["power_limit_w"] == 12.0
    held_down = frame["core_mhz_achieved"] < frame["core_mhz"] - 1.0
    assert held_down.any() and not held_down[~low].any()
    # The board's noise is 3 %, and the limit is kept without it.
    assert (power_w[held_down] < 12.0 * 1.12).all()
    np.testing.assert_allclose(power_w[held_down].median(), 12.0, rtol=0.05)


def test_a_plan_of_limits_has_distinct_points_and_the_ids_of_others_stay(tmp_path: Path) -> None:
    write_site(tmp_path)
    path = tmp_path / "campaign.toml"
    path.write_text(CAMPAIGN)
    points = list(make_plan(path).points)
    assert len({point.id for point in points}) == len(points) == 60
    path.write_text(CAMPAIGN.replace("limited.toml", "jetson-tk1"))
    free = {point.id for point in make_plan(path).points}
    assert len(free) == 30
    assert not free & {point.id for point in points}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("power_limit_w = [12]", 105 * 1),
        ('choose = "pairs"\npairs = [[852, 924]]', 2),
        ('choose = "pairs"\npairs = [[852, 924, 30], [72, 68]]', 3),
        ('choose = "pairs"\npairs = [[852, 924]]\npower_limit_w = [30]', 1),
        ("core_mhz = [852]", 7 * 2),
    ],
)
def test_a_campaign_chooses_settings_by_their_values(
    tmp_path: Path, settings: str, expected: int
) -> None:
    write_site(tmp_path)
    path = tmp_path / "campaign.toml"
    chosen = re.sub(r"\[settings\]\n.*?\n\[\[", f"[settings]\n{settings}\n[[", CAMPAIGN, flags=re.S)
    path.write_text(chosen)
    (part,) = make_plan(path).points.parts
    assert len(part.settings) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limits_w = []", "limits_w"),
        ("limits_w = [9, 9]", "limits_w"),
        ("limits_w = [-3]", "limits_w"),
        ('limits_w = [9]\ncontrol = "nvml"', "power_limit.control"),
        ('limits_w = [9]\ncontrol = "nothing"', "power_limit.control"),
    ],
)
def test_a_wrong_power_limit_is_one_message_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    write_site(tmp_path, text)
    (tmp_path / "campaign.toml").write_text(CAMPAIGN)
    error = refuses("plan", tmp_path / "campaign.toml")
    assert said in error and "limited.toml:" in error and "Traceback" not in error


def test_a_limit_that_the_site_lacks_is_refused(tmp_path: Path) -> None:
    write_site(tmp_path)
    text = CAMPAIGN.replace("mem_mhz = [528, 924]", "power_limit_w = [10]")
    (tmp_path / "campaign.toml").write_text(text)
    assert "12, 30" in refuses("plan", tmp_path / "campaign.toml")


def test_every_text_of_a_measurement_has_its_limit(measured: Path) -> None:
    """The trace, the lines of a finding, show, and what is lost with a damaged file of samples."""
    data = read_traces(open_store(measured))
    rows = np.flatnonzero(data["power_limit_w"] == 12.0)[:3]
    for row in rows.tolist():
        trace = row_trace(data, row)
        assert trace is not None and trace.setting.power_limit_w == 12.0
    told = describe(rows, data, 3)
    assert [", 12 W, repeat 0" in line for line in told] == [True] * 3
    point = str(data["point_id"][rows[0]])
    assert "12 W" in prints("show", measured, point)
    generation, _ = newest_generation(open_store(measured))
    assert generation.number
    every = BadShard("value/c/0", "damaged", MISSING, [(0, 10**9)])
    lost = {one.point_id: one for one in lost_traces(generation, [every])}
    assert "power limit 12 W" in lost[point].label


def test_export_and_import_keep_the_limits(measured: Path, tmp_path: Path) -> None:
    for ending in ("csv", "parquet"):
        table, again = tmp_path / f"t.{ending}", tmp_path / ending
        option = "--csv" if ending == "csv" else "--parquet"
        assert main(["export", str(measured), option, str(table)]) == 0
        assert main(["import", str(table), "--store", str(again)]) == 0
        one, other = (measurements_of(store).sort_values("point_id") for store in (measured, again))
        for name in ("point_id", "core_mhz", "power_limit_w", "energy_j", "core_mhz_achieved"):
            pd.testing.assert_series_equal(
                one[name].reset_index(drop=True), other[name].reset_index(drop=True)
            )
        volts = [open_results(store).setting_volts("jetson-tk1") for store in (again, measured)]
        assert volts[0] == volts[1]


def test_picks_name_the_limit_and_are_the_same_by_every_road(measured: Path) -> None:
    answers("fit", measured)
    picks = answers("predict", measured)
    assert isinstance(picks, list) and len(picks) == 5
    frame = measurements_of(measured)
    for pick in picks:
        assert pick["power_limit_w"] in LIMITS_W
        mine = frame[frame["params"].map(json.loads) == pick["params"]]
        mine = mine[mine["kernel"] == pick["kernel"]]
        chosen = mine[
            (mine["core_mhz"] == pick["core_mhz"])
            & (mine["mem_mhz"] == pick["mem_mhz"])
            & (mine["power_limit_w"] == pick["power_limit_w"])
        ]
        assert chosen["energy_j"].iloc[0] <= mine["energy_j"].min() * 1.04
    for words in (
        ["crossval", str(measured)],
        ["crossval", str(measured), "--scheme", "few:5"],
        ["predict", str(measured), "--all-settings"],
        ["coefficients", str(measured)],
        ["status", str(measured)],
        ["compare", str(measured), str(measured)],
    ):
        answers(*words)
    assert main(["report", str(measured), "-o", str(measured.parent / "report.html")]) == 0
    assert "12 W" in (measured.parent / "report.html").read_text()


def test_a_policy_and_a_profile_are_refused_under_limits(measured: Path, tmp_path: Path) -> None:
    answers("fit", measured)
    assert "power limits" in refuses("policy", measured, "-o", tmp_path / "policy.toml")


def test_the_next_campaign_names_limits(measured: Path, tmp_path: Path) -> None:
    path = measured.parent / "campaign.toml"
    words = ["--campaign", str(path), "--budget", "1", "--points", "20"]
    text = answers("next", measured, *words)
    assert isinstance(text, dict)
    assert all("power_limit_w" in point for point in text["points"])


def test_settings_of_a_site_file_with_limits(tmp_path: Path) -> None:
    site = read_site(write_site(tmp_path))
    assert len(site.settings) == 105 * 2
    assert site.settings[0] == Setting(72.0, 68.0, power_limit_w=12.0)


WITH_AND_WITHOUT = """\
site,kernel,core_mhz,power_limit_w,core_mhz_achieved,time_s,energy_j
s,a,1000,,1000,1.00,100
s,a,1000,80,900,1.10,88
s,a,800,,800,1.25,110
s,a,800,80,800,1.25,110.1
s,b,1000,,1000,1.00,70
s,b,1000,80,1000,1.00,70.5
s,b,800,,800,1.25,60
s,b,800,80,800,1.25,60.9
"""


@pytest.mark.parametrize("swapped", [False, True], ids=["limit first", "limit last"])
def test_a_report_has_a_cell_for_the_limit_of_every_pick(tmp_path: Path, swapped: bool) -> None:
    """One kernel's pick is under a limit, the other's is not."""
    table = WITH_AND_WITHOUT
    if swapped:
        table = re.sub(
            "^s,[ab]", lambda name: {"s,a": "s,b", "s,b": "s,a"}[name[0]], table, flags=re.M
        )
    store = str(store_of_table(tmp_path, table.splitlines()))
    assert main(["fit", store]) == 0
    predicted = open_results(Path(store)).predict("s").predictions
    picked = {one.pick.label: one.pick.setting for one in predicted}
    first, last = ("b", "a") if swapped else ("a", "b")
    assert picked == {
        first: Setting(1000.0, power_limit_w=80.0),
        last: Setting(800.0),
    }
    assert main(["report", store, "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    of_picks = next(t for t in re.findall(r"<table.*?</table>", page, re.S) if "race to halt" in t)
    cells = [re.findall(r"<t[hd]", row) for row in re.findall(r"<tr.*?</tr>", of_picks, re.S)]
    assert len({len(row) for row in cells if len(row) > 1}) == 1
    assert main(["figures", store, "--output", str(tmp_path / "f"), "--format", "svg"]) == 0
    picks = pd.read_csv(next((tmp_path / "f").rglob("picks.csv"))).set_index("kernel")
    assert picks["power_limit_w"][first] == 80.0
    assert np.isnan(picks["power_limit_w"][last])


def test_a_search_says_which_limit_is_best(tmp_path: Path) -> None:
    """One variant at one pair of clocks, under five limits: which are then the candidates."""
    write_site(tmp_path, "limits_w = [6, 8, 10, 12, 30]")
    search = CAMPAIGN.partition("[[kernels]]")[0].replace("[396, 648, 852]", "[684]")
    (tmp_path / "c.toml").write_text(
        search.replace("[528, 924]", "[924]")
        + '[[kernels]]\nkernel = "sp_fma"\nparams = { level = "dram" }\n'
        + "[kernels.space]\nops_per_word = [64]\n[search]\nstrategy = 'all'\nbudget = 40\n"
    )
    store = tmp_path / "s"
    words = ["tune", str(tmp_path / "c.toml"), "--store", str(store)]
    (found,) = answers(*words)["found"]
    costs = measurements_of(store).groupby("power_limit_w")[["energy_j", "time_s"]].mean()
    assert len(costs) == found["candidates"] == 5
    for name, column in (("best", "energy_j"), ("fastest", "time_s")):
        assert found[name]["power_limit_w"] == costs[column].idxmin()
        assert found[name][column] == pytest.approx(costs[column].min(), rel=1e-12)
    shown = prints(*words)
    for limit_w in costs.idxmin():
        assert f"{limit_w:g} W" in shown


def test_next_lists_limits_of_core_clocks_alone(tmp_path: Path) -> None:
    """A pair of a clock and a limit would be read as two clocks."""
    (tmp_path / "s.toml").write_text(
        'name = "cpu"\n[domains.core]\nfrequencies_mhz = [1000, 1400, 1800, 2200, 2600]\n'
        '[clocks]\ncontrol = "cpufreq"\n[power_limit]\nlimits_w = [80, 120, 1000]\n'
        'control = "powercap"\n[[meters]]\nkind = "powercap"\n[partitions.p]\n'
    )
    campaign = tmp_path / "c.toml"
    campaign.write_text(
        'name = "limits"\n[[sites]]\nsite = "s.toml"\n[[kernels]]\nkernel = "sp_fma"\n'
        'params = { level = "dram", ops_per_word = [1, 64] }\n'
    )
    plan = make_plan(campaign)
    part = plan.of_partition("cpu", "p")
    cells = {(0, 0): 1, (0, 4): 1, (0, 5): 1, (1, 8): 1, (1, 14): 2}
    chosen = tmp_path / "next.toml"
    chosen.write_text(next_file(plan.campaign, campaign, part, cells, tmp_path))
    planned = sorted(
        (json.loads(point.params)["ops_per_word"], point.setting, point.repeat)
        for point in make_plan(chosen).points
    )
    asked = [((1, 64)[k], part.settings[s], r) for (k, s), n in cells.items() for r in range(n)]
    assert planned == sorted(asked)
