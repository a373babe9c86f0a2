"""Job steps that Slurm lost, refused or could not start, and which of them are tried again."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from campaign.launch.drive import plan_record
from campaign.launch.outcome import outcome
from campaign.measure.point_life import PartitionSetup
from campaign.measure.point_server import STEP_NAME
from campaign.measure.subprocesses import StepEnd, SubprocessRunner, step_end
from campaign.plan.campaign_file import Protocol
from campaign.plan.plan import make_plan
from campaign.plan.point import Point
from campaign.store.compaction import compact
from campaign.store.journal import decode
from campaign.store.layout import create_store
from campaign.store.measurement import CAN_PASS, Measurement
from campaign.store.planned import write_planned
from campaign.store.states import point_states
from campaign.verbs.command_line import main
from dvfs.dataset import CLOCK_UNPROVEN, KERNEL_FAILED, NODE_LOST, OK, TIMED_OUT
from sites.site_reading import built_in_sites, read_site
from tests.commands import prints
from tests.points import a_point
from tests.slurm_cluster import SlurmCluster
from tests.stores import write


@pytest.mark.parametrize(
    ("printed", "end"),
    [
        # Recorded from a Slurm 22.05 whose nodes, daemons and jobs were harmed.
        ("srun: error: Node failure on n3", StepEnd.LOST),
        ("srun: error: Timed out waiting for job step to complete", StepEnd.LOST),
        (
            "slurmstepd-n3: error: mpi/pmi2: value not properly terminated in client request\n"
            "srun: error: n3: task 0: Exited with exit code 15",
            StepEnd.LOST,
        ),
        ("srun: error: Slurm job 27429 has expired", StepEnd.GONE),
        (
            "srun: error: Unable to confirm allocation for job 27434: Unable to contact slurm "
            "controller (connect failure)",
            StepEnd.NO_ANSWER,
        ),
        ("srun: error: Only allocated 1 nodes asked for 2", StepEnd.REFUSED),
        # From the strings of srun and slurmstepd, and of slurm_errno.c.
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE "
            "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
            StepEnd.LOST,
        ),
        (
            "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME "
            "LIMIT ***",
            StepEnd.LOST,
        ),
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO "
            "PREEMPTION ***",
            StepEnd.LOST,
        ),
        (
            "srun: error: Task launch for StepId=7.0 failed on node n1: Job credential expired",
            StepEnd.LOST,
        ),
        (
            "srun: error: Unable to confirm allocation for job 7: Invalid job id specified",
            StepEnd.GONE,
        ),
        (
            "srun: error: Unable to create step for job 7: Requested node configuration is not "
            "available",
            StepEnd.REFUSED,
        ),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some of your processes "
            "may have been killed by the cgroup out-of-memory handler.\n"
            "srun: error: n1: task 0: Out Of Memory",
            StepEnd.OUT_OF_MEMORY,
        ),
        # The program's own end, and Slurm's words on it or in its output.
        ("srun: error: n1: task 0: Exited with exit code 3", StepEnd.KERNEL),
        (
            "srun: error: n1: task 1: Segmentation fault\n"
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
            StepEnd.KERNEL,
        ),
        ("my solver: Node failure on edge 3; Unable to contact slurm controller", StepEnd.KERNEL),
    ],
)
def test_what_became_of_a_step_by_slurms_words(printed: str, end: StepEnd) -> None:
    assert step_end(f"a first line\n{printed}\n") == end
    assert (KERNEL_FAILED in CAN_PASS, NODE_LOST in CAN_PASS) == (False, True)


class Step:
    """A job on n3, and a point that is measured in a step of it, from this process."""

    def __init__(
        self,
        cluster: SlurmCluster,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        sleep_s: float,
        timeout_s: float = 90.0,
    ) -> None:
        site = read_site(built_in_sites()["slurm-example"])
        clocks = site.clocks.model_copy(update={"tolerance_pct": 1000.0})
        site = site.model_copy(update={"clocks": clocks, "meters": []})
        quick = Protocol(idle_s=0.0, warm_up_s=0.0, min_duration_s=0.0, timeout_s=timeout_s)
        self.job = cluster.submit("#!/bin/bash\nsleep 600\n", "-o/dev/null", "-pcpu-b", "-wn3")
        while cluster.job_state(self.job) != "RUNNING":
            time.sleep(0.1)
        for name, value in {**cluster.environment, "SLURM_JOB_ID": self.job}.items():
            monkeypatch.setenv(name, value)
        self.runner = SubprocessRunner(PartitionSetup(site, quick, ("idle",)), folder)
        self.site = site
        self.point = self.at(0, "idle", sleep_s=sleep_s)

    def at(self, setting: int, kernel: str, **params: object) -> Point:
        """A point at one of the site's settings."""
        return a_point(
            kernel,
            site=self.site.name,
            partition=next(iter(self.site.partitions)),
            setting=self.site.settings[setting],
            params=json.dumps(params),
        )

    def python(self, code: str) -> Point:
        """A command at the first setting."""
        return self.at(0, "command", argv=[sys.executable, "-c", code])

    def measure(self, after_s: float, harm: Callable[[], object]) -> Measurement:
        """What comes of it, and of ``harm`` so long after its begin."""
        timer = threading.Timer(after_s, harm)
        timer.start()
        try:
            return decode(self.runner.measure(self.point, 0))
        finally:
            timer.join()
            self.runner.close()


@pytest.mark.slurm
def test_a_lost_step_is_no_fault_of_the_kernel(
    tmp_path: Path, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(slurm_cluster, tmp_path, monkeypatch, 60.0)
    lost = step.measure(3.0, lambda: slurm_cluster.set_node("n3", "down"))
    slurm_cluster.set_node("n3", "resume")
    assert lost.status == NODE_LOST, lost.text
    assert "srun: error: Node failure on n3" in lost.text


@pytest.mark.slurm
def test_the_points_of_a_setting_share_a_step_and_fail_alone(
    tmp_path: Path, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command hangs with a child of its own, kills its measuring process, or the whole step:
    the points before and after it are as good as any."""
    marker = f"left-{os.getpid()}"
    hang = (
        "import subprocess, sys; sleep = 'import time; time.sleep(600)'; "
        f"subprocess.run([sys.executable, '-c', sleep, '{marker}'], start_new_session=True)"
    )
    killing = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)"
    whole = "import os, signal, psutil; psutil.Process(os.getppid()).parent().kill()"
    step = Step(slurm_cluster, tmp_path, monkeypatch, 0.0, timeout_s=1.5)
    idle = step.point
    points = [idle, idle, step.python(hang), idle, step.python(killing), idle, step.python(whole)]
    points.append(step.at(1, "idle", sleep_s=0.0))
    try:
        made = [decode(step.runner.measure(point, 0)) for point in points]
    finally:
        step.runner.close()
    texts = [one.text for one in made]
    bad = {i: one.status for i, one in enumerate(made) if one.point.kernel == "command"}
    assert bad == {2: TIMED_OUT, 4: NODE_LOST, 6: NODE_LOST}, texts
    assert "killed after 1.5 s" in texts[2]
    assert "SIGKILL" in texts[4]
    good = [one for one in made if one.point.kernel == "idle"]
    assert {one.status for one in good} <= {OK, CLOCK_UNPROVEN}, texts
    steps = [one.provenance["SLURM_STEP_ID"] for one in good]
    assert steps[0] == steps[1]
    assert len(set(steps)) == 4  # of the first two, after each harm, and of the other setting
    for one in good:
        assert one.provenance["SLURM_CPU_FREQ_REQ"] == f"{one.point.setting.core_mhz * 1000:.0f}"
    left = [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]
    assert left == []
    in_queue = slurm_cluster.run("squeue", "--steps", f"--jobs={step.job}", "--format=%j")
    assert STEP_NAME not in in_queue.split()
    slurm_cluster.scancel(step.job)


@pytest.mark.slurm
def test_a_step_waits_for_a_controller_that_comes_back(
    tmp_path: Path, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(slurm_cluster, tmp_path, monkeypatch, 0.1)
    slurm_cluster.run("scontrol", "update", f"jobid={step.job}", "comment=after-it-ran")
    state = slurm_cluster.base / "state" / "job_state"
    while not state.exists() or b"after-it-ran" not in state.read_bytes():  # the rest is forgotten
        time.sleep(0.5)
    slurm_cluster.kill_controller()
    # srun itself asks for nine seconds, and gives up.
    made = step.measure(10.0, slurm_cluster.restart_controller)
    slurm_cluster.scancel(step.job)
    assert made.status in (OK, CLOCK_UNPROVEN), made.text


@pytest.mark.parametrize("compacted", [False, True])
def test_points_that_are_tried_again_are_counted_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], compacted: bool
) -> None:
    """Of five points one is ok, one failed for good, one three times, one once, one not at all."""
    path = tmp_path / "c.toml"
    path.write_text(
        'name = "small"\n[retries]\nmax = 2\n[[sites]]\nsite = "jetson-tk1"\n'
        'settings = { choose = "random", count = 5, seed = 1 }\n'
        '[[kernels]]\nkernel = "sp_fma"\nparams = { level = "dram", ops_per_word = 4 }\n'
    )
    plan = make_plan(path)
    store = create_store(tmp_path / "store", "small")
    ids = {"jetson-tk1/board": [p.id for p in plan.points]}
    write_planned(store, plan_record(plan, store), ids)
    ended = [(0, OK, 0), (1, KERNEL_FAILED, 0), (3, NODE_LOST, 0)]
    ended += [(2, NODE_LOST, attempt) for attempt in range(3)]
    for i, status, attempt in ended:
        write(store, Measurement(point=plan.points[i], status=status, attempt=attempt))
    if compacted:
        compact(store)
    lines = prints("status", store.root, code=1).splitlines()
    assert (
        lines[0] == "1 of 5 points done, 2 failed, 2 left (1 of them tried again after a failure)"
    )
    assert lines[1].split() == [
        *("site", "partition", "planned", "done", "failed", "left", "to", "retry"),
        *("seconds", "left", "node-hours"),
    ]
    main(["status", str(store.root), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["partitions"]
    now = outcome(plan, point_states(store), interrupted=False)
    assert (row["failed"], row["left"], row["waiting"]) == (now.failed, now.left, 1) == (2, 2, 1)
