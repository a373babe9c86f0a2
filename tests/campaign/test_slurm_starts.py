"""The jobs of a real Slurm's partitions: which are started, given up and released, and when."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from campaign.launch.job_queue import Look, QueueWatch
from campaign.launch.job_workers import BACKOFF_S, MAX_BACKOFF_S, JobWorkers, Starts, last_lines
from campaign.launch.progress import PLAIN_EVERY_S, UNCHANGED_EVERY_S, PlainProgress
from campaign.launch.scheduler import Phase, QueuedJob, job_name
from campaign.launch.slurm import SlurmScheduler
from campaign.launch.snapshot import PartitionNow
from campaign.plan.plan import make_plan
from campaign.store.hours import JobTime, Spent, spent_by_partition
from campaign.store.layout import open_store
from sites.site_reading import built_in_sites, read_site
from tests.campaign.begun_points import assert_none_was_cut_off, command_with_log
from tests.slurm_cluster import SlurmCluster, SlurmError
from tests.stores import measurements_of

ROOT = Path(__file__).parents[2]
SLURM = SlurmScheduler(read_site(built_in_sites()["slurm-example"]))
SITE = """\
name = "{name}"
[clocks]
control = "fixed"
[slurm]
conf = "{conf}"
no_answer_s = 120.0
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
    "toolong": ("cpu-b", 1, 'walltime = "2-00:00:00"'),
}
"""Site -> its partition, its nodes, and what is wrong with it."""


def write_site(folder: Path, cluster: SlurmCluster, name: str, entry: tuple[str, int, str]) -> None:
    partition, nodes, more = entry
    text = SITE.format(name=name, conf=cluster.conf, partition=partition, nodes=nodes, more=more)
    (folder / f"{name}.toml").write_text(text)


def start_on(
    folder: Path, names: list[str], sleeps: Sequence[float] = (0.10, 0.11)
) -> subprocess.Popen[str]:
    """Begin ``campaign run --json`` on these sites."""
    sites = "".join(f'[[sites]]\nsite = "{name}.toml"\n' for name in names)
    (folder / "c.toml").write_text(CAMPAIGN.format(sites=sites, sleeps=list(sleeps)))
    return start_campaign(folder)


def start_campaign(folder: Path, *more: str) -> subprocess.Popen[str]:
    """Begin ``campaign run --json`` with the campaign that is there."""
    words = ["campaign", "run", str(folder / "c.toml"), "--store", str(folder / "S"), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", *words, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def counted_jobs(folder: Path, cluster: SlurmCluster, site: str) -> list[tuple[float, float]]:
    """When a site's jobs began and ended; the store counts the same node-hours as Slurm."""
    jobs = cluster.job_spans(job_name(folder / "S", site, "cpu-a"))
    counted, _ = spent_by_partition(open_store(folder / "S"))
    node_h = sum(end - begin for begin, end in jobs) / 3600.0
    assert counted[f"{site}/cpu-a"] == Spent(pytest.approx(node_h), complete=True)
    return jobs


def run_on(
    folder: Path, names: list[str], sleeps: Sequence[float] = (0.10, 0.11)
) -> subprocess.CompletedProcess[str]:
    """:func:`start_on`, to its end."""
    return ended(start_on(folder, names, sleeps))


def ended(run: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """A run, when it has ended."""
    try:
        out, error = run.communicate(timeout=240)
    finally:
        run.kill()
    return subprocess.CompletedProcess(run.args, run.returncode, out, error)


@pytest.mark.slurm
def test_workers_that_cannot_start_are_given_up_and_other_partitions_go_on(
    tmp_path: Path, slurm_cluster: SlurmCluster
) -> None:
    write_site(tmp_path, slurm_cluster, "good", ("cpu-a", 1, ""))
    for name, entry in BAD.items():
        write_site(tmp_path, slurm_cluster, name, entry)
    slurm_cluster.run("scontrol", "update", "partitionname=cpu-b", "MaxTime=1-00:00:00")
    done = run_on(tmp_path, ["good", *BAD])
    assert done.returncode == 1, done.stderr
    end = json.loads(done.stdout)
    assert (end["ok"], end["failed"], end["left"]) == (2, 0, 8), done.stderr
    assert set(end["given_up"]) == {f"{name}/{entry[0]}" for name, entry in BAD.items()}
    assert "/nope/python: No such file or directory" in end["given_up"]["nopython/cpu-a"]
    assert "module" in end["given_up"]["nomodule/cpu-b"]
    assert "/dev/null/scratch" in end["given_up"]["noscratch/cpu-b"]
    assert "can never start (PartitionTimeLimit)" in end["given_up"]["toolong/cpu-b"], done.stderr
    assert "can never start (PartitionTimeLimit); set a shorter walltime" in done.stderr
    # The log's lines are shown, and the log and its job are named.
    assert "\n    " in done.stderr
    logs = list((tmp_path / "S" / "logs").iterdir())
    nodes = sum(nodes for _, nodes, _ in BAD.values())
    assert job_name(tmp_path / "S", "toolong", "cpu-b") not in " ".join(map(str, logs))
    assert len(logs) <= 1 + 2 * nodes, "no more than two starts a partition"
    name = job_name(tmp_path / "S", "nomodule", "cpu-b")
    failed = [log for log in logs if log.name.startswith(name)]
    for log in failed:
        assert slurm_cluster.job_state(log.stem.rpartition("-")[2]) == "FAILED"
        assert "dask" not in log.read_text(), "no worker starts after a module that is missing"
    assert 2 <= len(failed) <= 4
    slurm_cluster.assert_no_jobs()

    write_site(tmp_path, slurm_cluster, "nopython", ("cpu-a", 1, ""))
    again = run_on(tmp_path, ["good", "nopython"])
    assert again.returncode == 0, again.stderr
    assert "nopython/cpu-a: 2 points to measure" in again.stderr
    assert "good/cpu-a" not in again.stderr, "what was measured is not measured again"
    frame = measurements_of(tmp_path / "S")
    assert sorted(frame["point_id"]) == sorted(p.id for p in make_plan(tmp_path / "c.toml").points)
    slurm_cluster.assert_no_jobs()


@pytest.mark.slurm
def test_nodes_are_released_when_nothing_is_left_for_them(
    tmp_path: Path, slurm_cluster: SlurmCluster
) -> None:
    """Three points that sleep 5 s twice: on two nodes one of these has nothing to do after its
    first, and on the other partition's one node they take a point longer. Slurm's accounting knows
    whole seconds."""
    write_site(tmp_path, slurm_cluster, "wide", ("cpu-a", 2, ""))
    write_site(tmp_path, slurm_cluster, "narrow", ("cpu-b", 1, ""))
    began = datetime.now().timestamp()
    done = run_on(tmp_path, ["wide", "narrow"], sleeps=(5.0, 5.1, 5.2))
    assert done.returncode == 0, done.stderr
    frame = measurements_of(tmp_path / "S")
    assert set(frame["status"]) == {"ok"}
    frame["end"] = frame["start_unix_s"] + frame["time_s"] * frame["iterations"]
    last_s = frame.groupby("site")["end"].max()
    assert last_s["narrow"] > last_s["wide"] + 5.0, "this test needs a partition that ends later"
    jobs = counted_jobs(tmp_path, slurm_cluster, "wide")
    ends_s = sorted(end for _, end in jobs if end > began)
    assert len(ends_s) == 2
    print(f"released {[end - last_s['wide'] for end in ends_s]} s after the last point")
    assert ends_s[0] < last_s["wide"], "a node without a point is released while others measure"
    assert ends_s[1] < last_s["wide"] + 15.0
    assert ends_s[1] < last_s["narrow"], "it does not wait for the other partition"


@pytest.mark.slurm
def test_a_run_ends_in_order_at_its_limit_of_node_hours(
    tmp_path: Path, slurm_cluster: SlurmCluster
) -> None:
    log = tmp_path / "log"
    write_site(tmp_path, slurm_cluster, "site", ("cpu-a", 1, ""))
    # Half of the points take more than 1 s, and the limit is 5 s on one node.
    sites = '[[sites]]\nsite = "site.toml"\n'
    campaign = CAMPAIGN.format(sites=sites, sleeps=[0.1]) + command_with_log(log, 1.0)
    campaign = campaign.replace('name = "starts"', 'name = "starts"\nrepeats = 8')
    (tmp_path / "c.toml").write_text(campaign)
    done = ended(start_campaign(tmp_path, "--max-node-hours", str(5.0 / 3600.0)))
    assert done.returncode == 1, done.stderr
    end = json.loads(done.stdout)
    assert (end["failed"], end["left"]) == (0, 16 - end["ok"]) and end["left"] > 0
    assert end["given_up"] == {"site/cpu-a": "--max-node-hours 0.00138888888889 is reached"}
    assert "are estimated to take" in done.stderr
    assert_none_was_cut_off(log)
    slurm_cluster.assert_no_jobs()
    assert len(counted_jobs(tmp_path, slurm_cluster, "site")) == 1


@pytest.mark.slurm
def test_a_queue_that_waits_is_shown_and_a_slurm_that_is_gone_ends_the_run(
    tmp_path: Path, slurm_cluster: SlurmCluster
) -> None:
    write_site(tmp_path, slurm_cluster, "site", ("cpu-a", 1, ""))
    site = tmp_path / "site.toml"
    site.write_text(site.read_text().replace("no_answer_s = 120.0", "no_answer_s = 4.0"))
    for node in ("n1", "n2"):
        slurm_cluster.set_node(node, "drain")
    run = start_on(tmp_path, ["site"])
    try:
        assert run.stderr is not None
        lines = iter(run.stderr.readline, "")
        shown = next(line for line in lines if "pending" in line)
        assert re.search(
            r"site/cpu-a: 0 done, 0 failed, 2 left, no estimate yet; 0 workers; jobs: 0 running, "
            r"1 pending for \d+ s \((ReqNodeNotAvail|Nodes required for job are DOWN)",
            shown,
        )
        slurm_cluster.kill_controller()
        out, rest = run.communicate(timeout=120)
    finally:
        run.kill()
        slurm_cluster.restart_controller()
    assert run.returncode == 1, rest
    assert rest.count("Unable to contact slurm controller") <= 3, "it is said once"
    assert rest.count("Slurm does not answer (") == 1
    end = json.loads(out)
    assert "Slurm has not answered for" in end["given_up"]["site/cpu-a"]
    assert (end["failed"], end["left"]) == (0, 2)
    deadline = time.monotonic() + 30.0
    while (states := slurm_cluster.node_states())["n1"] != "idle" or states["n2"] != "idle":
        assert time.monotonic() < deadline, states
        for node in ("n1", "n2"):
            with suppress(SlurmError):  # it has not registered with the new controller yet
                slurm_cluster.set_node(node, "resume")
        time.sleep(0.2)
    again = run_on(tmp_path, ["site"])
    assert again.returncode == 0, again.stderr
    slurm_cluster.assert_no_jobs()


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


@pytest.mark.parametrize(
    ("reason", "never"),
    [
        ("PartitionTimeLimit", True),
        ("PartitionNodeLimit", True),
        ("PartitionConfig", True),
        ("MaxMemPerLimit", True),
        ("BadConstraints", True),
        ("AccountNotAllowed", True),
        ("QOSMaxWallDurationPerJobLimit", True),
        ("AssocMaxCpuPerJobLimit", True),
        ("AssocMaxNodePerJobLimit", True),
        ("Resources", False),
        ("Priority", False),
        ("None", False),
        ("AssocMaxJobsLimit", False),
        ("AssocGrpCpuLimit", False),
        ("QOSMaxCpuPerUserLimit", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("ReqNodeNotAvail, UnavailableNodes:n[3-4]", False),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher", False),
        ("PartitionDown", False),
        ("PartitionInactive", False),
        ("BeginTime", False),
        ("JobHeldUser", False),
        ("Licenses", False),
        ("Reservation", False),
    ],
)
def test_reasons_that_never_pass(reason: str, never: bool) -> None:
    """By squeue's manual, JOB REASON CODES."""
    assert (SLURM.remedy(reason) is not None) == never


def test_lines_come_when_something_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress()
    progress.start({"s/p": 4}, {"s/p": "http://127.0.0.1:1/status"})
    waits = PartitionNow(pending=2, pending_s=3725.0, reason="Priority\x1b[2J")

    def lines_after(seconds: float, now: PartitionNow) -> list[str]:
        capsys.readouterr()
        progress._shown -= seconds  # as if that much later
        progress._last = {name: (key, s - seconds) for name, (key, s) in progress._last.items()}
        progress.show({"s/p": now})
        return capsys.readouterr().err.splitlines()

    assert lines_after(PLAIN_EVERY_S / 2, waits) == []
    assert lines_after(PLAIN_EVERY_S, waits) == [
        "s/p: 0 done, 0 failed, 4 left, no estimate yet; 0 workers; jobs: 0 running, 2 pending for "
        "1 h 2 min (Priority\\x1b[2J)"
    ]
    assert lines_after(PLAIN_EVERY_S, replace(waits, pending_s=3800.0)) == []
    works = PartitionNow(workers=1, running=1, measuring="dp_fma {} at core 1400 MHz")
    assert lines_after(PLAIN_EVERY_S, works)[0].endswith(
        "1 worker; jobs: 1 running; now dp_fma {} at core 1400 MHz"
    )
    assert lines_after(PLAIN_EVERY_S, works) == []
    assert len(lines_after(UNCHANGED_EVERY_S, works)) == 1


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == []
    log.write_bytes(
        b"x" * 10_000 + b"\n" + b"".join(b"line %d\n\n" % i for i in range(9)) + b"\xff"
    )
    assert last_lines(log) == [*(f"line {i}" for i in range(5, 9)), "\ufffd"]


def test_a_partition_is_given_up_when_two_looks_in_a_row_give_the_same_reason() -> None:
    """Not by one look, and not by two with another reason, or a run of the job, in between."""
    job = QueuedJob(
        id="7",
        name="mine",
        phase=Phase.WAITING,
        state="PENDING",
        reason="PartitionNodeLimit",
        time=JobTime(elapsed_s=0.0, nodes=1, ended=False),
    )
    limited = (job,)
    waits = (replace(job, reason="Resources"),)
    other_limit = (replace(job, reason="PartitionTimeLimit"),)
    runs = (replace(job, phase=Phase.RUNNING, state="RUNNING", reason="None"),)
    looks = [(), limited, waits, limited, other_limit, runs, other_limit, other_limit]
    watch = SimpleNamespace(look=Look(-1.0, ()), silent_since=None)
    cluster = SimpleNamespace(
        scheduler_info={"workers": {}}, workers={}, worker_spec={}, sync=lambda call: []
    )
    workers = JobWorkers(
        cluster=cluster,
        scheduler=SLURM,
        label="site/part",
        job_name="mine",
        logs=Path("logs"),
        watch=cast("QueueWatch", watch),
        starts=Starts(most=2),
        no_answer_s=60.0,
    )
    given_up = []
    for began_s, jobs in enumerate(looks):
        watch.look = Look(float(began_s), jobs)
        messages = [note for _ in range(3) for note in workers.supervise(0)]
        given_up.append(bool(messages))
        assert bool(workers.given_up) == bool(messages)
    assert given_up == [False] * 7 + [True]
    assert "job 7 can never start (PartitionTimeLimit)" in workers.given_up
