"""campaign init: a site file from recorded machines, and from a real Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from campaign.command_line import main
from campaign.site_draft import draft_site
from campaign.slurm_nodes import limit_seconds
from sites.site_reading import read_site
from tests.slurm_cluster import SlurmCluster

TREES = Path(__file__).parents[1] / "trees"


def drafted(tree: str) -> dict:
    return tomllib.loads(draft_site("lab", TREES / tree))


def test_the_clocks_are_those_that_the_machine_lists() -> None:
    """cpufreq's own table; a spread over a range that has none; a GPU's two domains."""
    listed = drafted("cpufreq-acpi")
    files = TREES.glob("cpufreq-acpi/sys/devices/system/cpu/cpu*/cpufreq/scaling_available_freq*")
    khz = {int(word) for file in files for word in file.read_text().split()}
    assert listed["domains"]["core"]["frequencies_mhz"] == sorted(k / 1000 for k in khz)
    assert listed["classes"] == {"dram": {"domain": "core"}}
    spread = drafted("cpufreq-uncore-2s")["domains"]["core"]["frequencies_mhz"]
    files = TREES.glob("cpufreq-uncore-2s/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_m*_freq")
    assert len(spread) == 8
    assert [spread[0], spread[-1]] == sorted(int(file.read_text()) / 1000 for file in files)
    assert "uncore = true" in draft_site("lab", TREES / "cpufreq-uncore-2s")
    orin = drafted("jetson-orin")
    assert orin["clocks"] == {"control": "jetson", "device": "gpu"}
    assert 3199 in orin["domains"]["mem"]["frequencies_mhz"]
    assert "classes" not in orin


def test_meters_that_are_there_and_reasons_where_none_is() -> None:
    assert [m["kind"] for m in drafted("powercap-2s-intel")["meters"]] == ["powercap"]
    nothing = draft_site("lab", TREES / "cpufreq-acpi")
    assert "meters" not in tomllib.loads(nothing)
    assert "#   powercap: " in nothing
    assert max(map(len, nothing.splitlines())) <= 100


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("infinite", None), ("30:00", 1800), ("1-00:00:00", 86400), ("2:03:04", 7384), ("n/a", None)],
)
def test_time_limits_as_slurm_prints_them(text: str, seconds: int | None) -> None:
    assert limit_seconds(text) == seconds


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    assert main(["init", "-o", str(path), "--name", "lab"]) == 0
    written = path.read_text()
    assert read_site(path).name == "lab"
    path.write_text("mine")
    assert main(["init", "-o", str(path), "--name", "lab"]) == 2
    assert path.read_text() == "mine"
    assert main(["init", "-o", str(path), "--name", "lab", "--force"]) == 0
    assert path.read_text() == written
    assert main(["init", "--name", "a b"]) == 2


@pytest.mark.slurm
def test_the_partitions_of_a_real_slurm(tmp_path: Path, slurm_cluster: SlurmCluster) -> None:
    """Both partitions, as scontrol has them, and a file that doctor's job accepts."""
    path = tmp_path / "cluster.toml"
    subprocess.run(
        [sys.executable, "-m", "campaign", "init", "-o", path],
        env=slurm_cluster.environment, check=True, timeout=120,
    )  # fmt: skip
    site = read_site(path)
    assert list(site.partitions) == ["cpu-a", "cpu-b"]
    for partition, node in zip(site.partitions.values(), ("n1", "n3"), strict=True):
        shown = slurm_cluster.run("scontrol", "show", "node", node)
        assert f" CPUTot={partition.cores} " in shown
        assert partition.scheduler == "slurm"
    assert site.slurm.conf == str(slurm_cluster.conf)
    assert "the partition has 2" in path.read_text()
    examined = subprocess.run(
        [sys.executable, "-m", "campaign", "doctor", path, "--partition", "cpu-a", "--json"],
        env=slurm_cluster.environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert json.loads(examined.stdout)[0]["partition"] == "cpu-a"
