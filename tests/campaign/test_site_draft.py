"""campaign init: a site file from recorded machines, and from a real Slurm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.doctor.site_draft import draft_sites
from campaign.doctor.slurm_nodes import limit_seconds
from campaign.launch.slurm import SlurmScheduler
from campaign.store.dataset import open_dataset
from campaign.store.layout import open_store
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from sites.site_file import Partition
from sites.site_reading import built_in_sites, read_site
from sites.slurm_clocks import SlurmClocks, read_configuration, slurm_clocks
from tests.commands import answers
from tests.sites.clock_layouts import answer_without_privileges
from tests.sites.fake_nvml import installed
from tests.slurm_cluster import SlurmCluster

TREES = Path(__file__).parents[1] / "trees"


def first_draft(root: Path) -> str:
    return draft_sites("lab", root)[0].text


def drafted(tree: str) -> dict:
    return tomllib.loads(first_draft(TREES / tree))


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
    assert "uncore = true" in first_draft(TREES / "cpufreq-uncore-2s")
    orin = drafted("jetson-orin")
    assert orin["clocks"] == {"control": "jetson", "device": "gpu"}
    assert 3199 in orin["domains"]["mem"]["frequencies_mhz"]
    assert "classes" not in orin


def test_a_meter_that_is_a_check_counts_only_where_there_is_no_other(tmp_path: Path) -> None:
    """A BMC's power once a second beside RAPL's counters."""
    for tree in ("powercap-2s-intel", "ipmi-node"):
        shutil.copytree(TREES / tree, tmp_path, symlinks=True, dirs_exist_ok=True)
    meters = tomllib.loads(first_draft(tmp_path))["meters"]
    assert meters == [{"kind": "powercap"}, {"kind": "ipmi", "use": "check"}]
    assert drafted("ipmi-node")["meters"] == [{"kind": "ipmi"}]


def test_where_clocks_of_cpus_are_set_a_meter_of_gpus_does_not_count_alone(tmp_path: Path) -> None:
    """Otherwise the energies of CPU kernels are those of idle GPUs."""
    for tree in ("powercap-2s-intel", "nvml-2-gpus", "cpufreq-acpi"):
        shutil.copytree(TREES / tree, tmp_path, symlinks=True, dirs_exist_ok=True)
    with installed(tmp_path):
        draft = tomllib.loads(first_draft(tmp_path))
        assert draft["clocks"]["device"] == "cpu"
        assert draft["meters"] == [{"kind": "powercap"}, {"kind": "nvml", "use": "check"}]
        shutil.rmtree(tmp_path / "sys/devices/system/cpu")
        draft = tomllib.loads(first_draft(tmp_path))
        assert draft["clocks"]["device"] == "gpu"
        assert draft["meters"][0] == {"kind": "nvml"}


def test_meters_that_are_there_and_reasons_where_none_is() -> None:
    assert [m["kind"] for m in drafted("powercap-2s-intel")["meters"]] == ["powercap"]
    nothing = first_draft(TREES / "cpufreq-acpi")
    assert "meters" not in tomllib.loads(nothing)
    (line,) = [line for line in nothing.splitlines() if "powercap" in line]
    assert line.startswith("#")
    assert "nvml" in line
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


CONFIGURATION = """\
Configuration data as of 2024-01-01T00:00:00
CpuFreqGovernors        = {governors}
GpuFreqDef              = (null)
GresTypes               = {types}
SLURM_VERSION           = {version}
TaskPlugin              = {plugin}

Cgroup Support Configuration:
ConstrainCores          = {cores}
"""
GOOD = {
    "governors": "OnDemand,Performance,UserSpace",
    "types": "gpu,nic",
    "version": "22.05.8",
    "plugin": "task/cgroup,task/affinity",
    "cores": "no",
}


@pytest.mark.parametrize(
    ("tree", "device", "changed", "key"),
    [
        ("cpufreq-acpi", "cpu", {}, None),
        ("cpufreq-acpi", "cpu", {"plugin": "task/none"}, "TaskPlugin"),
        ("cpufreq-acpi", "cpu", {"plugin": "(null)"}, "TaskPlugin"),
        ("cpufreq-acpi", "cpu", {"plugin": "task/cgroup"}, "ConstrainCores"),
        ("cpufreq-acpi", "cpu", {"plugin": "task/cgroup", "cores": "yes"}, None),
        ("cpufreq-acpi", "cpu", {"governors": "OnDemand,Performance"}, "CpuFreqGovernors"),
        ("cpufreq-acpi", "cpu", {"types": "(null)"}, None),
        ("cpufreq-intel-pstate", "cpu", {}, "userspace"),
        ("cpufreq-intel-pstate", "cpu", {"version": "23.11.4"}, None),
        ("nvml-2-gpus", "gpu", {"plugin": "task/none", "governors": "Performance"}, None),
        ("nvml-2-gpus", "gpu", {"types": "(null)"}, "GresTypes"),
    ],
)
def test_what_keeps_slurm_from_setting_clocks(
    tree: str, device: str, changed: dict[str, str], key: str | None
) -> None:
    """By Slurm's source: cpu_frequency.c, its plugins task/affinity and task/cgroup."""
    configuration = read_configuration(CONFIGURATION.format_map(GOOD | changed))
    found = slurm_clocks(configuration, device, TREES / tree)
    assert [key in line for line in found.obstacles] == ([True] if key else [])
    lists_none = tree == "cpufreq-intel-pstate"
    assert any("64" in line for line in found.remarks) == lists_none
    assert slurm_clocks({}, device, TREES / "cpufreq-acpi") == SlurmClocks()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can read; pytest's are for the user who runs it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    ("tree", "plugin", "control"),
    [
        ("cpufreq-acpi", "task/affinity", "slurm"),
        ("cpufreq-acpi", "task/none", "fixed"),
        ("cpufreq-intel-pstate", "task/affinity", "fixed"),
    ],
)
def test_slurms_control_is_drafted_only_where_it_sets_clocks(
    tree: str, plugin: str, control: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node whose files this user cannot write, as users find it."""
    root = open_folder / "root"
    shutil.copytree(TREES / tree, root)
    (open_folder / "config").write_text(CONFIGURATION.format_map(GOOD | {"plugin": plugin}))
    for name, text in (
        ("sinfo", "echo 'cpu|2|8|16000|infinite|(null)|(null)|1:8:1|up'"),
        ("scontrol", f"cat {open_folder}/config"),
    ):
        (open_folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (open_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{open_folder}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    first_draft(root)  # imports what it needs, as root
    text = answer_without_privileges(lambda: first_draft(root))
    (open_folder / "lab.toml").write_text(text)
    site = read_site(open_folder / "lab.toml")
    assert site.clocks.control == control
    assert ("TaskPlugin" in text) == (plugin == "task/none")
    assert ("scaling_min_freq" in text) == (tree == "cpufreq-intel-pstate")


def test_turbo_is_no_clock_of_a_draft_and_is_said(tmp_path: Path) -> None:
    """acpi-cpufreq lists it 1 MHz above the nominal clock."""
    shutil.copytree(TREES / "cpufreq-acpi", tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_available_freq*"):
        file.write_text(f"2601000 {file.read_text()}")
    text = first_draft(tmp_path)
    assert tomllib.loads(text)["domains"]["core"]["frequencies_mhz"] == [1200, 1800, 2200, 2600]
    assert any("2601 MHz" in line for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize("name", ["_a100.long:x@y+1", "Größe*(1)=~&!%d"])
def test_a_partition_may_have_any_name_of_slurms(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In plan, run, status, report, tables and policies of a simulated campaign."""
    monkeypatch.chdir(tmp_path)
    board = built_in_sites()["jetson-tk1"].read_text()
    Path("s.toml").write_text(board.replace("[partitions.board]", f'[partitions."{name}"]'))
    Path("c.toml").write_text(
        'name = "c"\n[[sites]]\nsite = "s.toml"\n'
        f'partitions = ["{name}"]\nsettings = {{ choose = "random", count = 6, seed = 1 }}\n'
        '[[kernels]]\nkernel = "load"\nparams = { level = ["l1", "l2", "dram"] }\n'
    )
    assert main(["plan", "c.toml"]) == 0
    assert main(["run", "c.toml", "--store", "S"]) == 0
    assert name in json.dumps(answers("status", "S"), ensure_ascii=False)
    assert set(open_dataset(open_store(Path("S"))).partition.values.tolist()) == {name}
    assert main(["export", "S", "--csv", "t.csv"]) == 0
    assert main(["import", "t.csv", "--store", "T"]) == 0
    assert set(open_dataset(open_store(Path("T"))).partition.values.tolist()) == {name}
    assert main(["report", "S", "-o", "r.html"]) == 0
    site = read_site(Path("s.toml")).model_copy(
        update={"partitions": {name: Partition(scheduler="slurm")}}
    )
    script = SlurmScheduler(site).job_script(name, "job")
    assert f"#SBATCH -p {name}\n" in script


@pytest.mark.parametrize("name", ["a/b", "a b", "a,b", "-a", "a#b", 'a"b', "a\tb", "", "a" * 65])
def test_names_that_separate_words_or_paths_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(f'name = "s"\n[partitions.{json.dumps(name)}]\n')
    with pytest.raises(FileError, match="partitions"):
        read_site(tmp_path / "s.toml")
