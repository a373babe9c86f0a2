"""Campaigns on a real Slurm: settings by job step, two clusters at once, every loss survived."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest
from distributed import Client, LocalCluster

from campaign.launch.certificates import make_security
from campaign.launch.scheduler import job_name
from campaign.launch.slurm import SlurmScheduler
from campaign.launch.worker import MeasuringPlugin, measure_points
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import LostAllocationError, SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.plan.plan import make_plan
from campaign.plan.point import Point
from campaign.store.hours import Spent, spent_by_partition
from campaign.store.layout import open_store
from campaign.verbs.command_line import main
from sites.site_reading import built_in_sites, read_site
from tests.commands import start
from tests.points import a_point
from tests.shared_imports import program
from tests.slurm_cluster import SlurmCluster
from tests.slurm_fixtures import PARTITION, need_slurm
from tests.stores import measurements_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(280)]

ROOT = Path(__file__).parents[2]

SITE = """\
name = "{name}"
[domains.core]
frequencies_mhz = [1400, 2000]
[clocks]
control = "slurm"
{clocks}
[slurm]
conf = "{conf}"
"""
NO_CLOCK_IS_SET = "tolerance_pct = 1000"
"""The nodes of these clusters are this machine, whose clock cannot be set: any clock will do."""


def site_file(
    folder: Path,
    cluster: SlurmCluster,
    name: str,
    partitions: list[str],
    clocks: str = NO_CLOCK_IS_SET,
    more: str = "",
) -> str:
    text = SITE.format(name=name, conf=cluster.conf, clocks=clocks)
    text += "".join(PARTITION.format(name=partition) + more for partition in partitions)
    (folder / f"{name}.toml").write_text(text)
    return f"{name}.toml"


def campaign_file(folder: Path, sites: list[str], kernels: str, repeats: int = 1) -> Path:
    path = folder / "campaign.toml"
    entries = "".join(f'[[sites]]\nsite = "{site}"\n' for site in sites)
    path.write_text(
        f'name = "real"\nrepeats = {repeats}\n{entries}'
        f"[protocol]\nmin_duration_s = 0.05\nwarm_up_s = 0.02\ntimeout_s = 60.0\n{kernels}"
    )
    return path


KERNELS = """
[[kernels]]
kernel = "dp_fma"
[[kernels]]
kernel = "load"
params = { level = ["l1", "dram"] }
[[kernels]]
kernel = "sp_fma"
label = "two-ranks"
ranks = 2
"""
SLEEPS = """
[[kernels]]
kernel = "idle"
params = { sleep_s = [0.30, 0.31, 0.32] }
"""
LONG_SLEEPS = """
[[kernels]]
kernel = "idle"
params = { sleep_s = [1.5, 1.6, 1.7] }
"""
"""A run of these goes on until Slurm has been asked about a job that is lost at its beginning."""


def finish(campaign: Path) -> str:
    process = start(campaign, program())  # the imports are shared: nothing happens to this run
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    return out


def measurements(campaign: Path) -> pd.DataFrame:
    return measurements_of(campaign.parent / "store")


def measured(campaign: Path) -> int:
    store = campaign.parent / "store"
    return len(measurements(campaign)) if (store / "store.json").exists() else 0


def assert_exactly_the_plan(campaign: Path) -> pd.DataFrame:
    frame = measurements(campaign)
    planned = [p.id for p in make_plan(campaign).points]
    assert sorted(frame["point_id"]) == sorted(planned)
    assert set(frame["status"]) == {"ok"}, set(frame["text"])
    return frame


def test_real_kernels_on_two_clusters_at_once(tmp_path, slurm_cluster, slurm_cluster_b):
    sites = [
        site_file(tmp_path, slurm_cluster, "alpha", ["cpu-a", "cpu-b"]),
        site_file(tmp_path, slurm_cluster_b, "beta", ["cpu-a"]),
    ]
    campaign = campaign_file(tmp_path, sites, KERNELS)
    out = finish(campaign)
    assert "24 of 24 points measured, 0 failed, 0 left: complete" in out
    frame = assert_exactly_the_plan(campaign)
    assert frame["energy_j"].isna().all()  # no meter here: missing, never zero
    nodes = frame.groupby(["site", "partition"])["node"].agg(set)
    assert nodes["alpha", "cpu-a"] <= {"n1", "n2"}
    assert nodes["alpha", "cpu-b"] <= {"n3", "n4"}
    steps: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for row in frame.itertuples():
        seen = json.loads(row.provenance)
        assert seen["SLURM_CPU_FREQ_REQ"] == f"{row.core_mhz * 1000:.0f}"
        step = (row.site, seen["SLURM_JOB_ID"], seen["SLURM_STEP_ID"])
        steps.setdefault(step, []).append((row.ranks, row.core_mhz))
    assert len(steps) < len(frame)
    for points in steps.values():
        assert len(set(points)) == 1  # a step has one setting
        assert points[0][0] == 1 or len(points) == 1  # ranks have a step of their own
    ranks = frame[frame["kernel"] == "two-ranks"]
    assert (ranks["ranks"] == 2).all()
    for cluster in (slurm_cluster, slurm_cluster_b):
        cluster.assert_no_jobs()
    assert list((tmp_path / "store" / "tls").iterdir()) == []


def test_a_cluster_that_sets_no_clock(tmp_path, tmp_path_factory):
    """Whatever Slurm takes and writes into a step's environment: no point is ok."""
    need_slurm()
    root = tmp_path_factory.mktemp("slurm_c")  # Slurm needs a short path
    with SlurmCluster(root, "c", {"p": 1, "q": 1}, gpus=1) as cluster:
        sites = [
            site_file(tmp_path, cluster, "cpus", ["p"], clocks="tolerance_pct = 5"),
            site_file(
                tmp_path,
                cluster,
                "gpus",
                ["q"],
                clocks='device = "gpu"',
                more='directives = ["--gres=gpu:1"]\n',
            ),
        ]
        # so low that a timed loop on a busy machine does not come near
        cpus_file = tmp_path / sites[0]
        text = cpus_file.read_text(encoding="utf-8")
        assert "[1400, 2000]" in text
        cpus_file.write_text(text.replace("[1400, 2000]", "[200, 300]"), encoding="utf-8")
        campaign = campaign_file(tmp_path, sites, SLEEPS + "[retries]\nmax = 0\n")
        process = start(campaign, program())
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 1, out
    frame = measurements(campaign)
    assert len(frame) == 12
    assert (frame["clock_proof"] == "").all()
    cpus, gpus = (frame[frame["site"] == name] for name in ("cpus", "gpus"))
    assert set(cpus["status"]) == {"clock not achieved"}, set(cpus["text"])
    assert cpus["text"].str.contains("a timed loop ran at").all()
    assert set(gpus["status"]) == {"clock not legal"}, set(gpus["text"])
    assert gpus["text"].str.contains("GpuFreq=control_disabled").all()


def faulty_run(
    tmp_path: Path,
    cluster: SlurmCluster,
    fault: Callable[[subprocess.Popen[str]], None],
    kernels: str = SLEEPS,
) -> pd.DataFrame:
    """Start, wait until some points are in, do the harm, let it end, and run once more."""
    site = site_file(tmp_path, cluster, "alpha", ["cpu-a", "cpu-b"])
    campaign = campaign_file(tmp_path, [site], kernels, repeats=2)
    process = start(campaign)
    try:
        wait_until(lambda: measured(campaign) >= 4, 60.0)
        assert process.poll() is None
        fault(process)
        if process.poll() is None:
            process.communicate(timeout=200)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    finish(campaign)
    frame = assert_exactly_the_plan(campaign)
    assert len(frame) == 3 * 2 * 2 * 2
    cluster.assert_no_jobs()
    return frame


def node_seconds(folder: Path, cluster: SlurmCluster) -> list[tuple[Spent, float]]:
    """What the store counts for each partition of :func:`faulty_run`, and Slurm's node-seconds."""
    store = open_store(folder / "store")
    return [
        (
            counted,
            sum(end - begin for begin, end in cluster.job_spans(job_name(store.root, *names))),
        )
        for label, counted in spent_by_partition(store)[0].items()
        for names in [label.split("/")]
    ]


def running(cluster: SlurmCluster) -> list:
    return [job for job in cluster.jobs() if job.state == "RUNNING"]


def test_a_cancelled_worker_job(tmp_path, slurm_cluster):
    def cancel(process: subprocess.Popen[str]) -> None:
        job = running(slurm_cluster)[0].id
        slurm_cluster.scancel(job)
        assert_loss_is_said(process, job, "CANCELLED")

    faulty_run(tmp_path, slurm_cluster, cancel, LONG_SLEEPS)


def assert_loss_is_said(process: subprocess.Popen[str], job: str, state: str) -> None:
    """A run goes on to its end, and says once that it has lost a job."""
    out, _ = process.communicate(timeout=200)
    (line,) = [line for line in out.splitlines() if f" job {job} " in line]
    assert state in line


def test_only_a_campaigns_jobs_of_this_user_are_cancelled(tmp_path, slurm_cluster):
    def submit(*options: str) -> str:
        return slurm_cluster.submit("#!/bin/bash\n", "--hold", "--output=/dev/null", *options)

    def pending() -> set[str]:
        return {job.id for job in slurm_cluster.jobs()}

    ours = [submit("--job-name=dvfs-1"), submit("--job-name=dvfs-1")]
    others = {submit("--job-name=dvfs-11"), submit("--job-name=dvfs-1", "--uid=65534")}
    site = read_site(tmp_path / site_file(tmp_path, slurm_cluster, "alpha", ["cpu-a"]))
    try:
        for job_id in others:
            SlurmScheduler(site).cancel_jobs(["dvfs-1"], job_id)
        assert pending() == {*ours, *others}
        SlurmScheduler(site).cancel_jobs(["dvfs-1"], ours[0])
        assert pending() == {ours[1], *others}
        SlurmScheduler(site).cancel_jobs(["dvfs-1"])
        assert pending() == others
    finally:
        for job_id in others:
            slurm_cluster.scancel(job_id)


def ended_job(cluster: SlurmCluster, how: str) -> str:
    """The id of a job that is over."""
    if how == "never there":
        return "4000000"
    script = "#!/bin/bash\n" + "sleep 600\n" * (how == "cancelled")
    job_id = cluster.submit(script, "--output=/dev/null")
    if how == "cancelled":
        cluster.scancel(job_id)
    while cluster.job_state(job_id) not in ("COMPLETED", "CANCELLED"):
        time.sleep(0.2)
    return job_id


def two_ranks() -> tuple[PartitionSetup, Point]:
    """A point that a step of the worker's job measures."""
    site = read_site(built_in_sites()["localhost"])
    point = a_point(
        site=site.name, partition=next(iter(site.partitions)), ranks=2, setting=site.settings[0]
    )
    return PartitionSetup(site, Protocol(timeout_s=60.0), ("idle",)), point


@pytest.mark.parametrize("how", ["completed", "cancelled", "never there"])
def test_a_step_in_a_job_that_has_ended_says_nothing_of_its_point(
    tmp_path, slurm_cluster, monkeypatch, how
):
    job_id = ended_job(slurm_cluster, how)
    for name, value in {**slurm_cluster.environment, "SLURM_JOB_ID": job_id}.items():
        monkeypatch.setenv(name, value)
    job, point = two_ranks()
    runner = SubprocessRunner(job, tmp_path)
    try:
        with pytest.raises(LostAllocationError, match="srun: error: "):
            runner.measure(point, 0)
    finally:
        runner.close()


def test_a_worker_that_outlives_its_job_ends_and_writes_nothing(tmp_path, slurm_cluster):
    job, point = two_ranks()
    gone = {"SLURM_JOB_ID": ended_job(slurm_cluster, "completed")}
    (tmp_path / "journals").mkdir()
    security = make_security()
    options = ["--no-nanny", "--no-dashboard", "--dashboard-address=127.0.0.1:0"]
    options += ["--interface=lo", f"--local-directory={tmp_path}"]
    for name, text in security.get_tls_config_for_role("worker").items():
        if name in ("ca_file", "cert", "key"):
            (tmp_path / name).write_text(text)
            options.append(f"--tls-{name.replace('_', '-')}={tmp_path / name}")
    with (
        LocalCluster(
            n_workers=0, host="tls://127.0.0.1", security=security, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(
            MeasuringPlugin(job.as_dict(), str(tmp_path / "journals"), str(tmp_path))
        )
        program = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        worker = subprocess.Popen(
            [*program, *options],
            env={**slurm_cluster.environment, **gone},
            cwd=ROOT,
        )
        try:
            client.wait_for_workers(1, timeout=60)
            task = client.submit(measure_points, [(point.as_dict(), 0)], retries=0)
            assert worker.wait(60) == 0
            assert not task.done() or task.result().results == []
        finally:
            worker.kill()
            worker.wait()
    assert list((tmp_path / "journals").iterdir()) == []


def test_a_node_that_goes_down_and_comes_back(tmp_path, slurm_cluster):
    def down(process: subprocess.Popen[str]) -> None:
        (job,) = [job.id for job in running(slurm_cluster) if job.nodes == "n1"]
        slurm_cluster.set_node("n1", "down", "test")
        time.sleep(4.0)
        slurm_cluster.set_node("n1", "resume")
        assert_loss_is_said(process, job, "NODE_FAIL")

    faulty_run(tmp_path, slurm_cluster, down, LONG_SLEEPS)


def test_a_killed_worker(tmp_path, slurm_cluster):
    def kill(process: subprocess.Popen[str]) -> None:
        mine = [
            p
            for p in psutil.process_iter(["cmdline"])
            if "distributed.cli.dask_worker" in (p.info["cmdline"] or [])
            and str(tmp_path) in " ".join(p.info["cmdline"])
        ]
        assert mine
        mine[0].kill()

    faulty_run(tmp_path, slurm_cluster, kill)


def test_a_killed_driver(tmp_path, slurm_cluster):
    def kill(process: subprocess.Popen[str]) -> None:
        os.killpg(process.pid, signal.SIGKILL)

    faulty_run(tmp_path, slurm_cluster, kill)
    for counted, by_slurm_s in node_seconds(tmp_path, slurm_cluster):
        assert not counted.complete
        assert counted.node_hours is not None
        assert 0.0 < 3600.0 * counted.node_hours <= by_slurm_s + 1e-6


def test_an_interrupted_driver_cleans_up_and_goes_on_later(tmp_path, slurm_cluster):
    def interrupt(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "interrupted; run it again to continue" in out
        slurm_cluster.assert_no_jobs()

    faulty_run(tmp_path, slurm_cluster, interrupt)
    for counted, by_slurm_s in node_seconds(tmp_path, slurm_cluster):
        assert counted == Spent(pytest.approx(by_slurm_s / 3600.0), complete=True)


def test_a_driver_that_is_a_job_of_its_own(tmp_path, slurm_cluster, capfd):
    """In a folder whose name a shell would take apart, beside a store whose path is plain."""
    folder = tmp_path / "a 'b' $(touch c)"
    folder.mkdir()
    site = site_file(folder, slurm_cluster, "alpha", ["cpu-a"])
    campaign = campaign_file(folder, [site], SLEEPS)
    store = str(tmp_path / "store")
    words = ["run", str(campaign), "--store", store, "--submit"]
    assert main([*words, "--submit-options=--partition=no-such"]) == 2
    assert "no-such" in capfd.readouterr().err
    assert main([*words, "--submit-options=--partition=cpu-b"]) == 0
    said = capfd.readouterr().out
    job = re.search(r"--signal=INT (\d+)\n", said)
    assert job and any(job[1] in str(own) for own in slurm_cluster.jobs()), said
    assert main(["watch", store]) == 0
    assert "6 of 6 points measured" in capfd.readouterr().out
    wait_until(lambda: slurm_cluster.jobs() == [], 60.0)


def test_nobody_gets_in_without_the_campaigns_certificates(tmp_path, slurm_cluster):
    """While it runs, a plain and a TLS stranger are refused, and the keys are the owner's alone."""
    from distributed import Client
    from distributed.security import Security

    def stranger(process: subprocess.Popen[str]) -> None:
        keys = list((tmp_path / "store" / "tls").iterdir())
        assert keys
        for key in [*keys, tmp_path / "store" / "tls"]:
            assert key.stat().st_mode & 0o077 == 0
        worker = next(
            p.info["cmdline"]
            for p in psutil.process_iter(["cmdline"])
            if "distributed.cli.dask_worker" in (p.info["cmdline"] or [])
            and str(tmp_path) in " ".join(p.info["cmdline"])
        )
        address = next(word for word in worker if word.startswith("tls://"))
        with pytest.raises((OSError, TimeoutError)):
            Client(address.replace("tls://", "tcp://"), timeout=3)
        with pytest.raises((OSError, TimeoutError)):
            Client(address, timeout=3, security=Security.temporary())

    faulty_run(tmp_path, slurm_cluster, stranger)


HOSTILE = {
    "SBATCH_ACCOUNT": "nobody",
    "SBATCH_CONSTRAINT": "no-such",
    "SBATCH_EXPORT": "NONE",
    "SBATCH_GRES": "gpu:9",
    "SBATCH_JOB_NAME": "other",
    "SBATCH_MEM_PER_CPU": "999999",
    "SBATCH_OUTPUT": "elsewhere.txt",
    "SBATCH_PARTITION": "cpu-b",
    "SBATCH_QOS": "none",
    "SBATCH_REQUEUE": "1",
    "SBATCH_RESERVATION": "mine",
    "SBATCH_TIMELIMIT": "99-0",
    "SBATCH_WAIT": "1",
    "SCANCEL_PARTITION": "cpu-b",
    "SCANCEL_STATE": "SUSPENDED",
    "SINFO_FORMAT": "%N",
    "SINFO_PARTITION": "cpu-b",
    "SLURM_CLUSTERS": "beta",
    "SLURM_CPUS_PER_TASK": "99",
    "SLURM_CPU_BIND": "quiet,mask_cpu:0xC0000",
    "SLURM_CPU_FREQ_REQ": "1234567",
    "SLURM_DISTRIBUTION": "plane=9",
    "SLURM_EXACT": "1",
    "SLURM_EXCLUSIVE": "user",
    "SLURM_EXPORT_ENV": "NONE",
    "SLURM_HINT": "nomultithread",
    "SLURM_JOB_NUM_NODES": "9",
    "SLURM_KILL_BAD_EXIT": "0",
    "SLURM_LABELIO": "1",
    "SLURM_MEM_PER_CPU": "2000",
    "SLURM_MEM_PER_GPU": "1000",
    "SLURM_MULTI_PROG": "1",
    "SLURM_NNODES": "9",
    "SLURM_NTASKS": "99",
    "SLURM_PARTITION": "cpu-b",
    "SLURM_STDINMODE": "none",
    "SLURM_STDOUTMODE": "none",
    "SLURM_TASK_PROLOG": "/no/such",
    "SLURM_TIMELIMIT": "99-0",
    "SLURM_WORKING_DIR": "/no/such",
    "SQUEUE_FORMAT": "%N",
    "SQUEUE_PARTITION": "cpu-b",
    "SQUEUE_STATES": "SUSPENDED",
    "SQUEUE_USERS": "nobody",
    "SRUN_CPUS_PER_TASK": "99",
    "SRUN_CONTAINER": "/no/such",
    "PMI_FD": "99",
    "PMI_RANK": "3",
}
"""Each would move, hide or break a job or a step."""
SEES = """
[[kernels]]
kernel = "command"
params = {{ argv = ["sh", "-c", "env > {folder}/step.env"] }}
"""


@pytest.mark.parametrize("export", ["", 'directives = ["--export=NONE"]\n'], ids=["all", "none"])
def test_no_variable_of_the_user_changes_what_is_measured(
    tmp_path, slurm_cluster, monkeypatch, export
):
    """In a folder whose name has a character with a meaning in the names of Slurm's files."""
    folder = tmp_path / "50%x"
    folder.mkdir()
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    environment = '[partitions.cpu-a.environment]\nvariables = { OF_THE_SITE = "a b" }\n'
    site = site_file(folder, slurm_cluster, "alpha", ["cpu-a"], more=export + environment)
    campaign = campaign_file(folder, [site], KERNELS + SEES.format(folder=tmp_path))
    out = finish(campaign)
    assert "10 of 10 points measured, 0 failed, 0 left: complete" in out
    frame = assert_exactly_the_plan(campaign)
    assert set(frame["node"]) <= {"n1", "n2"}
    step = dict(
        line.partition("=")[::2] for line in (tmp_path / "step.env").read_text().splitlines()
    )
    assert step["OF_THE_SITE"] == "a b"
    assert step["SLURM_JOB_PARTITION"] == "cpu-a"
    kept = {name: step[name] for name, value in HOSTILE.items() if step.get(name) == value}
    assert kept in ({}, {"SLURM_KILL_BAD_EXIT": "0"})
    name = job_name(open_store(folder / "store").root, "alpha", "cpu-a")
    assert list((folder / "store" / "logs").glob(f"{name}-*.log"))


def test_a_worker_that_slurm_has_moved_measures_nothing(tmp_path, slurm_cluster):
    """An administrator moves the jobs while they wait."""
    site = site_file(tmp_path, slurm_cluster, "alpha", ["cpu-a"])
    campaign = campaign_file(tmp_path, [site], SLEEPS)
    slurm_cluster.run("scontrol", "update", "partitionname=cpu-a", "state=down")
    process = start(campaign, program())
    try:
        wait_until(lambda: len(slurm_cluster.jobs()) == 2, 60.0)
        for job in slurm_cluster.jobs():
            slurm_cluster.run("scontrol", "update", f"jobid={job.id}", "partition=cpu-b")
        out, _ = process.communicate(timeout=120)
    finally:
        slurm_cluster.run("scontrol", "update", "partitionname=cpu-a", "state=up")
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1
    assert "'cpu-b' (SLURM_JOB_PARTITION), where 'cpu-a' was planned" in out
    assert measured(campaign) == 0
    slurm_cluster.assert_no_jobs()


def test_a_drivers_job_that_would_take_its_workers_nodes_is_refused(tmp_path, slurm_cluster, capfd):
    site = site_file(tmp_path, slurm_cluster, "alpha", ["cpu-a"])
    campaign = campaign_file(tmp_path, [site], SLEEPS)
    store = str(tmp_path / "store")
    words = ["run", str(campaign), "--store", store, "--submit"]
    assert main(words) == 2  # the default partition is cpu-a, whose two nodes will measure
    assert "--submit-options=--partition" in capfd.readouterr().err
    assert slurm_cluster.jobs() == []
    # Where the driver's partitions have other nodes too, it gets one of those.
    plan = make_plan(campaign)
    slurm = SlurmScheduler(plan.sites["alpha"])
    partitions = [partition for _, partition in plan.partitions]
    away = slurm.away_from_workers(["--partition=cpu-a,cpu-b"], partitions)
    assert away == ["--exclude=n1,n2"]
    assert slurm.away_from_workers(["--partition=cpu-b"], partitions) == []
