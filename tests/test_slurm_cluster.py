"""The real Slurm that other tests stand on: does it do what they count on?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import slurm_fixtures
from tests.slurm_cluster import SlurmCluster, SlurmError, free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slurm


def has_job(cluster: SlurmCluster, jobid: str, state: str, reason: str = "") -> bool:
    """Whether a live job has this state (and this reason, if one is given)."""
    jobs = [job for job in cluster.jobs() if job.id == jobid and job.state == state]
    return any(not reason or job.reason == reason for job in jobs)


def finished_output(cluster: SlurmCluster, tmp_path: Path, script: str, *options: str) -> str:
    """Run a batch script to its end and return what it wrote."""
    out = tmp_path / "out.txt"
    jobid = cluster.submit(f"#!/bin/bash\n{script}\n", f"--output={out}", *options)
    wait_until(lambda: cluster.job_state(jobid) not in ("PENDING", "RUNNING", "COMPLETING"))
    assert cluster.job_state(jobid) == "COMPLETED"
    return out.read_text()


def test_nodes_are_idle_and_known_by_partition(slurm_cluster: SlurmCluster) -> None:
    assert slurm_cluster.node_states() == dict.fromkeys(["n1", "n2", "n3", "n4"], "idle")
    assert slurm_cluster.partitions == {"cpu-a": ["n1", "n2"], "cpu-b": ["n3", "n4"]}
    assert slurm_cluster.jobs() == []


def test_job_runs_where_it_was_sent(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    script = 'echo "$SLURM_JOB_PARTITION $SLURMD_NODENAME"'
    assert finished_output(slurm_cluster, tmp_path, script) == "cpu-a n1\n"
    on_b = finished_output(slurm_cluster, tmp_path, script, "--partition=cpu-b")
    assert on_b == "cpu-b n3\n"


@pytest.mark.parametrize("asked", ["1400000", "852000-852000:UserSpace", "400000-2000000"])
def test_step_sees_its_clock_request(
    slurm_cluster: SlurmCluster, tmp_path: Path, asked: str
) -> None:
    task = "'echo $SLURM_CPU_FREQ_REQ $PROLOG_CPU_FREQ_REQ'"
    script = f"srun -n1 --cpu-freq={asked} sh -c {task}"
    assert finished_output(slurm_cluster, tmp_path, script) == f"{asked} {asked}\n"


def test_step_with_fake_gpu_takes_gpu_clocks(tmp_path_factory: pytest.TempPathFactory) -> None:
    slurm_fixtures.need_slurm()
    script = "srun -n1 --gpu-freq=1400,memory=900 sh -c 'echo $SLURMD_TRES_FREQ'"
    base = tmp_path_factory.mktemp("gpu")  # Slurm needs a short path
    with SlurmCluster(base / "s", "slurm_gpu", {"gpu": 1}, gpus=1) as cluster:
        said = finished_output(cluster, base, script, "--gres=gpu:1")
    # Slurm itself writes on the step's output where it can't set a GPU's clock.
    assert said.splitlines()[-1] == "gpu:1400,memory=900"


def test_two_clusters_at_once(
    slurm_cluster: SlurmCluster, slurm_cluster_b: SlurmCluster, tmp_path: Path
) -> None:
    script = "echo $SLURM_CLUSTER_NAME"
    for cluster in (slurm_cluster, slurm_cluster_b):
        assert finished_output(cluster, tmp_path, script) == f"{cluster.name}\n"


def test_scancel_ends_a_running_job(slurm_cluster: SlurmCluster) -> None:
    jobid = slurm_cluster.submit("#!/bin/bash\nsleep 600\n", "--job-name=a name", "-o/dev/null")
    wait_until(lambda: has_job(slurm_cluster, jobid, "RUNNING"))
    (job,) = slurm_cluster.jobs()
    assert (job.name, job.partition, job.nodes) == ("a name", "cpu-a", "n1")
    slurm_cluster.scancel(jobid)
    wait_until(lambda: slurm_cluster.jobs() == [])
    assert slurm_cluster.job_state(jobid) == "CANCELLED"


def test_node_down_requeues_and_release_skips_the_hold(slurm_cluster: SlurmCluster) -> None:
    jobid = slurm_cluster.submit("#!/bin/bash\nsleep 600\n", "-o/dev/null")
    wait_until(lambda: has_job(slurm_cluster, jobid, "RUNNING"))
    slurm_cluster.set_node("n1", "down", "a test's fault")
    wait_until(lambda: has_job(slurm_cluster, jobid, "PENDING", "BeginTime"))
    assert slurm_cluster.node_states()["n1"].startswith("down")
    slurm_cluster.release(jobid)
    wait_until(lambda: has_job(slurm_cluster, jobid, "RUNNING"))
    assert slurm_cluster.jobs()[0].nodes == "n2"
    slurm_cluster.scancel(jobid)
    slurm_cluster.set_node("n1", "resume")
    wait_until(lambda: set(slurm_cluster.node_states().values()) == {"idle"})


def test_controller_killed_and_restarted(slurm_cluster: SlurmCluster) -> None:
    jobid = slurm_cluster.submit("#!/bin/bash\nsleep 600\n", "-o/dev/null")
    wait_until(lambda: has_job(slurm_cluster, jobid, "RUNNING"))
    # It saves what has changed every 5 s, and forgets what it hasn't saved. A file that has just
    # been written may be of a moment before the job ran, so wait for what is in it.
    slurm_cluster.run("scontrol", "update", f"jobid={jobid}", "comment=after-it-ran")
    saved = slurm_cluster.base / "state" / "job_state"
    wait_until(lambda: saved.exists() and b"after-it-ran" in saved.read_bytes(), timeout_s=30)
    slurm_cluster.kill_controller()
    with pytest.raises(SlurmError):
        slurm_cluster.run("squeue", "-h", timeout=1)
    slurm_cluster.restart_controller()
    wait_until(lambda: has_job(slurm_cluster, jobid, "RUNNING"))
    slurm_cluster.scancel(jobid)
    wait_until(lambda: slurm_cluster.job_state(jobid) in ("CANCELLED", "COMPLETING"))


def test_slurmd_killed_and_started(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    slurm_cluster.kill_slurmd("n4")
    slurm_cluster.start_slurmd("n4")
    said = finished_output(slurm_cluster, tmp_path, "echo up", "-pcpu-b", "-wn4")
    assert said == "up\n"


def test_stop_leaves_no_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    slurm_fixtures.need_slurm()
    base = tmp_path_factory.mktemp("stop")  # Slurm needs a short path
    pids = base / "pids"
    stubborn = f"#!/bin/bash\ntrap '' TERM\nsetsid sleep 600 &\necho $$ $! > {pids}\nwait\n"
    with SlurmCluster(base / "s", "slurm_stop", {"one": 1}) as cluster:
        jobid = cluster.submit(stubborn, "-o/dev/null")
        wait_until(lambda: has_job(cluster, jobid, "RUNNING") and len(_words(pids)) == 2)
        cluster.kill_slurmd("n1")
    wait_until(lambda: not any(_is_alive(pid) for pid in _words(pids)), timeout_s=1)
    assert cluster.kill_orphans() == []


def test_too_long_a_base_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="70 at most"):
        SlurmCluster(tmp_path / ("x" * 80), "slurm_long")


def test_free_ports_differ() -> None:
    assert len(set(free_ports(9))) == 9


def test_without_slurm_a_test_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match=r"no real Slurm: .*-m 'not slurm'"):
        slurm_fixtures.need_slurm()


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
