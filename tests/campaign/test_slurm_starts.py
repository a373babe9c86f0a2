"""The jobs of a real Slurm's partitions: which are started, given up and released, and when."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from campaign.launch.slurm_queue import job_name
from campaign.launch.starts import BACKOFF_S, MAX_BACKOFF_S, Starts, last_lines
from campaign.plan.plan import make_plan
from campaign.store.dataset import current_tables
from campaign.store.layout import open_store
from tests.slurm_cluster import SlurmCluster

ROOT = Path(__file__).parents[2]
SITE = """\
name = "{name}"
[clocks]
control = "fixed"
[slurm]
conf = "{conf}"
[partitions.{partition}]
scheduler = "slurm"
nodes = {nodes}
cores = 2
memory = "500MB"
interface = "lo"
{more}
"""
CAMPAIGN = """\
name = "starts"
{sites}
[protocol]
min_duration_s = 0.05
warm_up_s = 0.02
[retries]
starts = 2
[[kernels]]
kernel = "idle"
params = {{ sleep_s = {sleeps} }}
"""
BAD = {
    "nopython": ("cpu-a", 1, '[partitions.cpu-a.environment]\npython = "/nope/python"'),
    "nomodule": ("cpu-b", 2, '[partitions.cpu-b.environment]\nmodules = ["gcc/99"]'),
    "noscratch": ("cpu-b", 1, 'local_directory = "/dev/null/scratch"'),
}
"""Site -> its partition, its nodes, and what is wrong with it."""


def write_site(folder: Path, cluster: SlurmCluster, name: str, entry: tuple[str, int, str]) -> None:
    partition, nodes, more = entry
    text = SITE.format(name=name, conf=cluster.conf, partition=partition, nodes=nodes, more=more)
    (folder / f"{name}.toml").write_text(text)


def run_on(
    folder: Path, names: list[str], sleeps: Sequence[float] = (0.10, 0.11)
) -> subprocess.CompletedProcess[str]:
    """``campaign run --json`` on these sites."""
    sites = "".join(f'[[sites]]\nsite = "{name}.toml"\n' for name in names)
    (folder / "c.toml").write_text(CAMPAIGN.format(sites=sites, sleeps=list(sleeps)))
    words = ["campaign", "run", str(folder / "c.toml"), "--store", str(folder / "S"), "--json"]
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slurm
def test_workers_that_cannot_start_are_given_up_and_other_partitions_go_on(
    tmp_path: Path, slurm_cluster: SlurmCluster
) -> None:
    write_site(tmp_path, slurm_cluster, "good", ("cpu-a", 1, ""))
    for name, entry in BAD.items():
        write_site(tmp_path, slurm_cluster, name, entry)
    done = run_on(tmp_path, ["good", *BAD])
    assert done.returncode == 1, done.stderr
    end = json.loads(done.stdout)
    assert (end["ok"], end["failed"], end["left"]) == (2, 0, 6)
    assert set(end["given_up"]) == {f"{name}/{entry[0]}" for name, entry in BAD.items()}
    assert "/nope/python: No such file or directory" in end["given_up"]["nopython/cpu-a"]
    assert "module" in end["given_up"]["nomodule/cpu-b"]
    assert "/dev/null/scratch" in end["given_up"]["noscratch/cpu-b"]
    # The log's lines are shown, and the log and its job are named.
    assert "\n    " in done.stderr
    logs = list((tmp_path / "S" / "logs").iterdir())
    nodes = sum(nodes for _, nodes, _ in BAD.values())
    assert len(logs) <= 1 + 2 * nodes, "no more than two starts a partition"
    name = job_name(tmp_path / "S", "nomodule", "cpu-b")
    failed = [log for log in logs if log.name.startswith(name)]
    for log in failed:
        assert slurm_cluster.job_state(log.stem.rpartition("-")[2]) == "FAILED"
        assert "dask" not in log.read_text(), "no worker starts after a module that is missing"
    assert 2 <= len(failed) <= 4
    assert slurm_cluster.jobs() == []

    write_site(tmp_path, slurm_cluster, "nopython", ("cpu-a", 1, ""))
    again = run_on(tmp_path, ["good", "nopython"])
    assert again.returncode == 0, again.stderr
    assert "nopython/cpu-a: 2 points to measure" in again.stderr
    assert "good/cpu-a" not in again.stderr, "what was measured is not measured again"
    frame = current_tables(open_store(tmp_path / "S"))[0].measurements
    assert sorted(frame["point_id"]) == sorted(p.id for p in make_plan(tmp_path / "c.toml").points)
    assert slurm_cluster.jobs() == []


@pytest.mark.slurm
def test_nodes_are_released_when_nothing_is_left_for_them(
    tmp_path: Path, slurm_cluster: SlurmCluster
) -> None:
    """Three points of 4 s: on two nodes one of these has nothing to do after its first, and on the
    other partition's one node they take 4 s longer."""
    write_site(tmp_path, slurm_cluster, "wide", ("cpu-a", 2, ""))
    write_site(tmp_path, slurm_cluster, "narrow", ("cpu-b", 1, ""))
    began = datetime.now().timestamp()
    done = run_on(tmp_path, ["wide", "narrow"], sleeps=(4.0, 4.1, 4.2))
    assert done.returncode == 0, done.stderr
    frame = current_tables(open_store(tmp_path / "S"))[0].measurements
    assert set(frame["status"]) == {"ok"}
    frame["end"] = frame["start_unix_s"] + frame["time_s"] * frame["iterations"]
    last_s = frame.groupby("site")["end"].max()
    assert last_s["narrow"] > last_s["wide"] + 2.0, "this test needs a partition that ends later"
    name = job_name(tmp_path / "S", "wide", "cpu-a")
    ends_s = sorted(end for end in job_ends(slurm_cluster, name) if end > began)
    assert len(ends_s) == 2
    print(f"released {[end - last_s['wide'] for end in ends_s]} s after the last point")
    assert ends_s[0] < last_s["wide"], "a node without a point is released while others measure"
    assert ends_s[1] < last_s["wide"] + 15.0
    assert ends_s[1] < last_s["narrow"], "it does not wait for the other partition"


def job_ends(cluster: SlurmCluster, name: str) -> list[float]:
    """When the jobs of this name ended, by Slurm, in Unix seconds (whole ones)."""
    jobs = cluster.run("scontrol", "-o", "show", "job").splitlines()
    fields = [dict(w.partition("=")[::2] for w in job.split()) for job in jobs]
    ends = [job["EndTime"] for job in fields if job.get("JobName") == name]
    return [datetime.fromisoformat(end).timestamp() for end in ends]


def test_failed_starts_are_further_apart_each_time_and_bounded() -> None:
    starts = Starts(most=20)
    waits = []
    now_s = 100.0
    while not starts.spent:
        assert starts.allowed(now_s)
        waits.append(starts.fail(now_s))
        assert not starts.allowed(now_s + waits[-1] - 0.01)
        now_s += waits[-1]
    assert not starts.allowed(now_s + 1e6)
    assert waits[:3] == [BACKOFF_S, 2 * BACKOFF_S, 4 * BACKOFF_S]
    assert len(waits) == 20
    assert waits[-1] == MAX_BACKOFF_S
    starts.reset()
    assert starts.allowed(now_s)


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == []
    log.write_bytes(
        b"x" * 10_000 + b"\n" + b"".join(b"line %d\n\n" % i for i in range(9)) + b"\xff"
    )
    assert last_lines(log) == [*(f"line {i}" for i in range(5, 9)), "\ufffd"]
