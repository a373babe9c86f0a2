"""What the doctor says of nodes with meters and without, here and through real Slurm jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign.command_line import main
from campaign.verbs import doctor
from sites.site_file import find_site, read_site
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


def examine(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict]:
    (folder / "site.toml").write_text(text)
    code = main(["doctor", str(folder / "site.toml"), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_no_meter_at_all_is_said_in_words_that_help(tmp_path, capsys):
    """A machine without any file has no meter, whichever machine this is."""
    found = doctor.examine(read_site(find_site("localhost", tmp_path)), tmp_path)
    assert found["can_measure_energy"] is False
    doctor.print_told(found)
    told = capsys.readouterr().out
    assert "No meter tells energy on this node" in told
    assert "energies will be missing" in told
    for kind in ("powercap", "nvml", "cray", "hwmon"):
        assert f"  {kind}: " in told


def test_a_meter_that_answers_is_watched(tmp_path, capsys):
    code, told = examine(tmp_path, LOCAL + recorded(tmp_path, "energy"), capsys)
    assert code == 0
    assert told["can_measure_energy"] is True
    (meter,) = told["meters"]
    (channel,) = meter["channels"]
    assert channel["domain"] == "node"
    assert channel["measured_period_s"] == pytest.approx(0.01, rel=0.2)
    assert meter["counts"] == [channel["name"]]
    assert 0 < meter["read_s"] < 0.1
    assert told["clocks"]["control"] == "fixed"


def test_a_meter_that_only_checks_is_no_energy(tmp_path, capsys):
    text = LOCAL + recorded(tmp_path, "energy", use="check")
    code, told = examine(tmp_path, text, capsys)
    assert code == 1
    assert told["can_measure_energy"] is False


def test_what_is_missing_comes_with_what_would_mend_it(tmp_path, capsys):
    meters = '[[meters]]\nkind = "cray"\n[[meters]]\nkind = "powercap"\n'
    meters += '[meters.options]\nzone = "package-0"\n'
    code, told = examine(tmp_path, LOCAL + meters, capsys)
    assert code == 1
    cray, powercap = told["meters"]
    assert "pm_counters" in cray["problem"]
    assert cray["remedy"]
    assert "zones" in powercap["problem"]
    assert main(["doctor", str(tmp_path / "site.toml")]) == 1
    assert "to mend it: " in capsys.readouterr().out


def test_clocks_that_can_not_be_set_say_why(tmp_path):
    text = LOCAL.replace('"fixed"', '"cpufreq"').replace(
        "[clocks]", "[domains.core]\nfrequencies_mhz = [1000, 2000]\n[clocks]"
    )
    (tmp_path / "site.toml").write_text(text)
    told = doctor.examine(read_site(tmp_path / "site.toml"), tmp_path)
    assert told["clocks"]["can_set"] is False
    assert "cpufreq" in told["clocks"]["why"]
    assert told["clocks"]["remedy"]


@pytest.mark.slurm
def test_a_node_of_each_partition_is_asked_through_a_job(
    slurm_cluster: SlurmCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    text = SLURM.format(conf=slurm_cluster.conf)
    code, told = examine(tmp_path, text, capsys)
    assert code == 1
    assert [each["partition"] for each in told] == ["cpu-a", "cpu-b"]
    assert all(each["clocks"]["control"] == "fixed" for each in told)
    assert main(["doctor", str(tmp_path / "site.toml"), "--partition", "cpu-b"]) == 1
    assert "cluster/cpu-b on node" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path / "site.toml"), "--partition", "gpu"]) == 1
    assert "cpu-a, cpu-b" in capsys.readouterr().err
