"""doctor on nodes with meters and without them, on this host and through real Slurm jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.doctor.node_examination import NodeExamination, examine_node, extreme_settings
from campaign.verbs import doctor
from campaign.verbs.command_line import main
from dvfs.setting import Setting
from sites.clocks.slurm import what_flags_set
from sites.site_reading import built_in_sites, find_site, read_site
from tests.commands import prints, refuses, run
from tests.docs.pages import ROOT
from tests.sites.clock_layouts import LAYOUTS, copy
from tests.slurm_cluster import SlurmCluster

LOCAL = """\
name = "lab"
[clocks]
control = "fixed"
[partitions.local]
scheduler = "local"
"""
SLURM = """\
name = "cluster"
[slurm]
conf = "{conf}"
[partitions.cpu-a]
scheduler = "slurm"
memory = "500MB"
[partitions.cpu-b]
scheduler = "slurm"
memory = "500MB"
"""


def recorded(folder: Path, kind: str, use: str = "energy") -> str:
    """A [[meters]] entry whose recording of 100 W lies in the folder."""
    rows = [f"{i * 0.01:.2f},{100 * i * 0.01 + 0.3 * (i % 2):.3f}" for i in range(2000)]
    (folder / f"{kind}.csv").write_text("time_s,board\n" + "\n".join(rows) + "\n")
    unit = "J" if kind == "energy" else "W"
    return (
        f'[[meters]]\nkind = "recorded"\nuse = "{use}"\n[meters.options]\n'
        f'path = "{folder / kind}.csv"\n'
        f'channels = {{ board = {{ domain = "node", kind = "{kind}", unit = "{unit}" }} }}\n'
    )


def examine(folder: Path, text: str) -> tuple[int, dict]:
    (folder / "site.toml").write_text(text)
    done = run("doctor", folder / "site.toml", "--json")
    return done.code, json.loads(done.out)


def test_clocks_are_tried_at_the_lowest_and_the_highest_setting():
    board = read_site(built_in_sites()["jetson-tk1"])
    assert extreme_settings(board) == [Setting(72.0, 68.0), Setting(852.0, 924.0)]
    settings = (Setting(900.0), Setting(1500.0), Setting(1200.0))
    one_clock = board.model_copy(update={"settings": settings})
    assert extreme_settings(one_clock) == [Setting(900.0), Setting(1500.0)]
    assert extreme_settings(board.model_copy(update={"settings": settings[:1]})) == [Setting(900.0)]


def test_without_any_meter_one_line_names_those_that_are_not_there(tmp_path, capsys):
    """An empty folder in place of / is a node without meters."""
    examination = examine_node(read_site(find_site("localhost", tmp_path)), tmp_path)
    assert examination.can_measure_energy is False
    doctor.print_examination(examination)
    output = capsys.readouterr().out
    assert "clock control 'fixed': clocks are not set; " in output
    (line,) = [line for line in output.splitlines() if "powercap" in line]
    assert all(kind in line for kind in ("nvml", "cray", "hwmon"))
    assert len(output.splitlines()) <= 6


def test_a_meter_that_is_there_and_cannot_be_read_comes_with_its_remedy(tmp_path, capsys):
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    (zone / "energy_uj").mkdir(parents=True)  # not a file: reading it fails
    (zone / "name").write_text("package-0\n")
    doctor.print_examination(examine_node(read_site(find_site("localhost", tmp_path)), tmp_path))
    lines = capsys.readouterr().out.splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("  powercap: ")]
    assert str(zone) in lines[at]
    assert lines[at + 1].strip()
    (absent,) = [line for line in lines if "nvml" in line]
    assert "powercap" not in absent


def test_a_readable_meter_is_observed(tmp_path):
    code, report = examine(tmp_path, LOCAL + recorded(tmp_path, "energy"))
    assert code == 0
    assert report["can_measure_energy"] is True
    (meter,) = report["meters"]
    (channel,) = meter["channels"]
    assert channel["domain"] == "node"
    assert channel["measured_period_s"] == pytest.approx(0.01, rel=0.2)
    assert meter["counts"] == [channel["name"]]
    assert 0 < meter["read_s"] < 0.1
    assert report["clocks"]["control"] == "fixed"


def test_a_meter_used_only_as_a_check_does_not_count(tmp_path):
    text = LOCAL + recorded(tmp_path, "energy", use="check")
    code, report = examine(tmp_path, text)
    assert code == 1
    assert report["can_measure_energy"] is False


@pytest.mark.parametrize(
    ("domains", "counted"),
    [
        (("package", "node"), [[], ["recorded/all"]]),
        (("package", "dram"), [["recorded/part"], ["recorded/all"]]),
    ],
    ids=["inside another meter's domain", "beside each other"],
)
def test_meters_count_as_they_do_in_a_measurement(tmp_path, domains, counted):
    """Of two meters only what a measurement adds up counts: nothing twice."""
    text = LOCAL
    for name, domain in zip(("part", "all"), domains, strict=True):
        (tmp_path / name).mkdir()
        entry = recorded(tmp_path / name, "energy").replace("board", name)
        csv = tmp_path / name / "energy.csv"
        csv.write_text(csv.read_text().replace("board", name))
        text += entry.replace('domain = "node"', f'domain = "{domain}"')
    code, report = examine(tmp_path, text)
    assert code == 0
    assert [meter["counts"] for meter in report["meters"]] == counted


def test_one_unreadable_meter_means_no_energy(tmp_path):
    """A measurement fails where any meter of the site file cannot be read."""
    text = LOCAL + recorded(tmp_path, "energy") + '[[meters]]\nkind = "cray"\nuse = "check"\n'
    code, report = examine(tmp_path, text)
    assert code == 1
    assert report["can_measure_energy"] is False
    assert report["meters"][0]["counts"] == ["recorded/board"]
    assert "every meter of the site file must be readable" in prints(
        "doctor", tmp_path / "site.toml", code=1
    )


def test_two_meters_of_one_channel_mean_no_energy(tmp_path):
    """As in a measurement, where its energy would count twice."""
    meter = recorded(tmp_path, "energy")
    code, report = examine(tmp_path, LOCAL + meter + meter.replace('"energy"', '"check"', 1))
    assert code == 1
    assert (
        report["meters"][1]["problem"] == "two meters of the site file read recorded:recorded/board"
    )
    assert report["can_measure_energy"] is False


def test_an_examination_is_the_same_from_its_json(tmp_path):
    (tmp_path / "site.toml").write_text(LOCAL + recorded(tmp_path, "energy"))
    examination = examine_node(read_site(tmp_path / "site.toml"))
    text = json.dumps(examination.as_dict())
    assert NodeExamination.from_dict(json.loads(text)) == examination


def test_a_partition_of_a_site_without_slurm_is_refused(tmp_path):
    (tmp_path / "site.toml").write_text(LOCAL)
    assert "has no Slurm partition; leave --partition out" in refuses(
        "doctor", tmp_path / "site.toml", "--partition", "p"
    )


def test_each_problem_comes_with_a_remedy(tmp_path):
    meters = '[[meters]]\nkind = "cray"\n[[meters]]\nkind = "powercap"\n'
    meters += '[meters.options]\nzones = ["no-such-zone"]\n'
    code, report = examine(tmp_path, LOCAL + meters)
    assert code == 1
    cray, powercap = report["meters"]
    assert "pm_counters" in cray["problem"]
    assert cray["remedy"]
    assert "powercap" in powercap["problem"]
    assert "to fix it: " in prints("doctor", tmp_path / "site.toml", code=1)


def test_clocks_that_cannot_be_set_say_why(tmp_path):
    text = LOCAL.replace('"fixed"', '"cpufreq"').replace(
        "[clocks]", "[domains.core]\nfrequencies_mhz = [1000, 2000]\n[clocks]"
    )
    (tmp_path / "site.toml").write_text(text)
    clocks = examine_node(read_site(tmp_path / "site.toml"), tmp_path).clocks
    assert clocks.can_set is False
    assert "cpufreq" in clocks.why
    assert clocks.remedy


@pytest.mark.slurm
def test_a_node_of_each_partition_is_asked_through_a_job(
    slurm_cluster: SlurmCluster, tmp_path: Path
):
    text = SLURM.format(conf=slurm_cluster.conf)
    code, report = examine(tmp_path, text)
    assert code == 1
    assert [node["partition"] for node in report] == ["cpu-a", "cpu-b"]
    assert all(node["clocks"]["control"] == "fixed" for node in report)
    assert "cluster/cpu-b on node" in prints(
        "doctor", tmp_path / "site.toml", "--partition", "cpu-b", code=1
    )
    assert "cpu-a, cpu-b" in refuses("doctor", tmp_path / "site.toml", "--partition", "gpu", code=1)


SETS_CLOCKS = """\
[domains.core]
frequencies_mhz = [1400, 1700, 2000]
[clocks]
control = "slurm"
tolerance_pct = 5
"""


@pytest.mark.slurm
def test_a_step_at_two_settings_shows_whether_slurm_sets_clocks(
    slurm_cluster: SlurmCluster, tmp_path: Path
):
    """This machine's clock cannot be set, whatever Slurm takes."""
    text = SLURM.format(conf=slurm_cluster.conf).partition("[partitions.cpu-b]")[0]
    (tmp_path / "site.toml").write_text(text + SETS_CLOCKS)
    printed = prints("doctor", tmp_path / "site.toml", code=1)
    assert "clock control 'slurm': clocks cannot be set; the clock did not follow" in printed
    version = slurm_cluster.run("srun", "--version").strip()
    assert f"  {version}: --cpu-freq writes the governor" in printed
    assert "TaskPlugin=task/none" in printed  # in that cluster's configuration
    tried = [line for line in printed.splitlines() if line.startswith("  tried core ")]
    assert ["1400" in line for line in tried] == [True, False]
    assert "asked for 2000 MHz, and a timed loop ran at" in tried[1]


def test_without_a_job_slurms_clocks_were_not_tried(tmp_path, capsys):
    (tmp_path / "site.toml").write_text(SLURM.format(conf="x") + SETS_CLOCKS)
    main(["doctor", str(tmp_path / "site.toml"), "--here"])
    printed = capsys.readouterr().out
    assert "clocks not tried; only a job step can show" in printed
    assert "can be set" not in printed


def test_slurms_configuration_says_without_a_job_that_no_clock_is_set(
    tmp_path, capsys, monkeypatch
):
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'TaskPlugin   = task/none'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "site.toml").write_text(SLURM.format(conf="x") + SETS_CLOCKS)
    main(["doctor", str(tmp_path / "site.toml"), "--here", "--json"])
    clocks = json.loads(capsys.readouterr().out)["clocks"]
    assert clocks["can_set"] is False
    assert ["TaskPlugin" in line for line in clocks["obstacles"]] == [True]
    main(["doctor", str(tmp_path / "site.toml"), "--here"])
    assert clocks["obstacles"][0].split(":")[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "device", "said"),
    [
        ("slurm 23.11.4", "cpu", "cpufreq"),
        ("slurm-wlm 22.05.8", "gpu", "application clocks"),
        ("slurm 25.11.2", "gpu", "application clocks"),
        ("slurm 26.05.0", "gpu", "locks the graphics"),
        ("slurm 27.11.0", "gpu", "locks the graphics"),
        ("", "gpu", "from Slurm 26.05 on"),
    ],
)
def test_what_slurms_flags_set(version, device, said):
    assert said in what_flags_set(version, device)


def test_a_job_prints_the_examination_of_its_node(tmp_path):
    """As the job of a partition runs it: a program that prints one line of JSON."""
    (tmp_path / "site.toml").write_text(LOCAL)
    words = [sys.executable, "-m", "campaign.doctor.node_examination", tmp_path / "site.toml"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    there = NodeExamination.from_dict(json.loads(done.stdout))
    here = examine_node(read_site(tmp_path / "site.toml"))
    assert (there.site, there.node, there.simulated) == ("lab", here.node, False)
    assert (there.clocks.control, there.clocks.why) == ("fixed", here.clocks.why)
    assert [m.meter for m in there.meters_elsewhere] == [m.meter for m in here.meters_elsewhere]


def test_clocks_of_the_site_file_that_the_node_lacks_are_listed(tmp_path):
    """On a tree of a node with 1200, 1800, 2200 and 2600 MHz."""
    layout = next(layout for layout in LAYOUTS if layout.name == "cpufreq-acpi")
    copy(layout, tmp_path)
    text = LOCAL.replace('"fixed"', '"cpufreq"\noptions = { cpus = "0-1" }')
    text = text.replace(
        "[clocks]", "[domains.core]\nfrequencies_mhz = [1200, 1900, 2600, 3000]\n[clocks]"
    )
    (tmp_path / "site.toml").write_text(text)
    clocks = examine_node(read_site(tmp_path / "site.toml"), tmp_path).clocks
    assert (clocks.settings, clocks.offered) == (4, 4)
    assert clocks.not_offered == [f"core {mhz} MHz, memory clock unchanged" for mhz in (1900, 3000)]
    assert clocks.can_set is True
    assert clocks.others == []


def test_a_control_of_the_sites_programs_is_not_said_to_fail(tmp_path, capsys):
    """Whether they may set a clock shows when one is set; the uncore clock is no memory clock."""
    show = tmp_path / "show"
    show.write_text("#!/bin/sh\necho 2600, 2400\n")
    show.chmod(0o755)
    options = (
        f"set = [['{show}', '{{core_mhz}}', '{{uncore_mhz}}']]\nread = [['{show}']]\n"
        f"restore = [['{show}', '{{core_mhz}}', '{{uncore_mhz}}']]\n"
        "pattern = '(?P<core>[0-9]+), (?P<uncore>[0-9]+)'\n"
    )
    text = LOCAL.replace('"fixed"', f'"command"\n[clocks.options]\n{options}')
    domains = "[domains.core]\nfrequencies_mhz = [1000, 2600]\n[domains.uncore]\n"
    text = text.replace("[clocks]", f"{domains}frequencies_mhz = [1200, 2400]\n[clocks]")
    (tmp_path / "site.toml").write_text(text)
    clocks = examine_node(read_site(tmp_path / "site.toml")).clocks
    assert (clocks.can_set, clocks.remedy) == (None, None)
    assert (clocks.core_mhz_now, clocks.mem_mhz_now, clocks.uncore_mhz_now) == (2600, None, 2400)
    main(["doctor", str(tmp_path / "site.toml")])
    assert "cannot" not in capsys.readouterr().out.partition("clock control")[2].splitlines()[0]


PREFERENCES = "sys/devices/system/cpu/cpufreq/policy1/energy_performance_preference"
PROFILES = '[profiles]\nnames = ["power"]\ncontrol = "energy-preference"\n'


def test_the_profile_comes_with_the_one_in_force(tmp_path, capsys):
    copy(next(layout for layout in LAYOUTS if layout.name == "energy-preference"), tmp_path)
    (tmp_path / "site.toml").write_text(LOCAL + PROFILES)
    site = read_site(tmp_path / "site.toml")
    node = examine_node(site, tmp_path)
    assert node.clocks.profile is not None
    assert (node.clocks.profile.can_set, node.clocks.profile.now) == (True, "balance_performance")
    assert NodeExamination.from_dict(json.loads(json.dumps(node.as_dict()))) == node
    doctor.print_examination(node)
    assert "now balance_performance\n" in capsys.readouterr().out
    (tmp_path / PREFERENCES).unlink()
    profile = examine_node(site, tmp_path).clocks.profile
    assert profile is not None and not profile.can_set
    assert "intel_pstate" in (profile.remedy or "")


LIMITS = '[power_limit]\nlimits_w = [120, 300]\ncontrol = "powercap"\n'


def test_the_power_limit_comes_with_its_range_and_the_one_in_force(tmp_path, capsys):
    copy(next(layout for layout in LAYOUTS if layout.name == "powercap"), tmp_path)
    (tmp_path / "site.toml").write_text(LOCAL + LIMITS)
    site = read_site(tmp_path / "site.toml")
    node = examine_node(site, tmp_path)
    limit = node.clocks.power_limit
    assert limit is not None
    assert (limit.control, limit.can_set) == ("powercap", True)
    assert (limit.lowest_w, limit.highest_w) == (None, 265.0)
    assert node.clocks.power_limits_w == {"package-0": 250.5, "package-1": 270.0}
    assert node.clocks.not_offered == ["unchanged clocks, power limit 300 W"]
    assert NodeExamination.from_dict(json.loads(json.dumps(node.as_dict()))) == node
    doctor.print_examination(node)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "power limit: " in line]
    for part in ("can be set", "265 W", "package-0 250.5 W, package-1 270 W"):
        assert part in line
    (tmp_path / "sys/class/powercap/intel-rapl:0/enabled").write_text("0\n")
    clocks = examine_node(site, tmp_path).clocks
    assert clocks.power_limits_w == {"package-0": 250.5}
    assert clocks.power_limit is not None
    assert (clocks.power_limit.can_set, clocks.power_limit.highest_w) == (False, None)
    assert "echo 1 >" in (clocks.power_limit.remedy or "")


def test_limits_in_force_are_shown_where_none_is_set(tmp_path, capsys):
    copy(next(layout for layout in LAYOUTS if layout.name == "powercap"), tmp_path)
    (tmp_path / "site.toml").write_text(LOCAL)
    node = examine_node(read_site(tmp_path / "site.toml"), tmp_path)
    assert node.clocks.power_limit is None
    doctor.print_examination(node)
    printed = capsys.readouterr().out
    assert "power limit: now package-0 250.5 W, package-1 270 W\n" in printed
