"""Random faults on a real Slurm: what a site's scheduler does to a campaign, and worse.

``python -m tests.faults.slurm_faults --count 50 --seed 1`` starts a cluster of its own and prints
an outcome a line; ``--kind`` does one kind only. Each fault has a campaign of its own on simulated
nodes, so that every measurement and every sample of it is known beforehand, bit by bit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from campaign.launch.scheduler import job_name
from campaign.plan.plan import make_plan
from tests.faults import local_run
from tests.faults.checker import Expected, Judgement, expected_of, judge, measured_ids
from tests.faults.local_run import Running
from tests.faults.outcome import Outcome
from tests.slurm_cluster import Job, SlurmCluster, SlurmError

LIMIT_S = 150.0
"""A run that has not ended by itself after so long hangs: no fault here lasts a sixth of it."""
REFUSAL_S = 40.0
"""An error of launching must be reported within this time."""
GONE_S = 20.0
"""Jobs and processes must be gone so long after the last run."""
LOOKS = 100
"""At workers, of some milliseconds, before it is asked whether the run has ended."""
EARLY = 300
"""Points after which more than enough of a campaign is left for a worker to be found at work."""
ATTEMPTS = 3
MAX_FURTHER_RUNS = 2
DISK_MB = 64
"""Of a file system that fills up: much more than a campaign's store here needs."""
WALLTIME_EVERY = 25
"""Slurm looks at its jobs' time limits every half minute: one such fault in so many."""

SIMULATED = """\
name = "simulated"
[domains.core]
frequencies_mhz = [72, 396, 648, 852]
voltage_v = [[72, 0.76], [396, 0.77], [648, 0.89], [852, 1.03]]
[domains.mem]
frequencies_mhz = [204, 528, 924]
voltage_v = [[204, 0.8], [528, 0.88], [924, 1.01]]
[clocks]
control = "simulated"
[classes]
sp = { domain = "core" }
dram = { domain = "mem" }
[simulated]
energy_pj_per_v2 = { sp = 27.3, dram = 369.5 }
rate_per_cycle = { sp = 345.6, dram = 14.4 }
leakage_core_w_per_v = 2.86
leakage_mem_w_per_v = 3.81
misc_w = 0.0
"""
IDLE = """\
name = "idle"
"""
PARTITION = """\
[partitions.{name}]
scheduler = "slurm"
nodes = {nodes}
cores = 2
memory = "{memory}"
walltime = "00:10:00"
interface = "{interface}"
directives = [{directives}]
local_directory = "{scratch}"
"""
CAMPAIGN = """\
name = "faults"
repeats = {repeats}
[[sites]]
site = "site.toml"
[protocol]
min_duration_s = {min_duration_s}
warm_up_s = 0.0
timeout_s = 60.0
"""
REPEATS = 15
"""Of 72 simulated points a partition: some seconds of work, in which a fault can hit."""
WORK = """\
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = [1, 2, 4, 16, 64, 128] }
"""


class MissedError(Exception):
    """The fault found nothing to harm: the campaign was over, or its jobs did not come."""


@dataclass(frozen=True)
class Stage:
    """Where one fault happens. ``partitions``: the campaign's partitions, and the nodes of each."""

    cluster: SlurmCluster
    folder: Path
    random: Random
    partitions: tuple[tuple[str, int], ...] = (("cpu-a", 1), ("cpu-b", 1))
    repeats: int = REPEATS
    seen: set[str] = field(default_factory=set)
    """The points that were measured when the store was last looked at."""

    @property
    def campaign(self) -> Path:
        """The campaign file."""
        return self.folder / "c.toml"

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self.folder / "store"


@dataclass(frozen=True)
class Disturbed:
    """What was done, and how the run that it was done to ended."""

    what: str
    exit_code: int | None
    output: str
    wanted_code: int | None = None
    """The only exit code that will do; None where the run may end complete or resumable."""
    wanted_words: tuple[str, ...] = ()
    """What the last line must say."""
    missed: str = ""
    """Why nothing was harmed after all."""


# The campaign


def write_files(
    stage: Stage, simulated: bool = True, changed: Mapping[str, str] | None = None
) -> None:
    """The site and campaign files; ``changed`` goes to the last partition's section."""
    scratch = stage.folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    text = SIMULATED if simulated else IDLE
    for name, nodes in stage.partitions:
        fields = {"memory": "500MB", "interface": "lo", "directives": ""}
        if name == stage.partitions[-1][0]:
            fields |= changed or {}
        text += PARTITION.format(name=name, nodes=nodes, scratch=scratch, **fields)
    text += f'[slurm]\nconf = "{stage.cluster.conf}"\n'
    (stage.folder / "site.toml").write_text(text)
    sleeps = [round(0.3 + i / 1000, 3) for i in range(120)]
    work = WORK if simulated else f'[[kernels]]\nkernel = "idle"\nparams = {{ sleep_s = {sleeps} }}'
    duration_s = 1.0 if simulated else 0.05
    stage.campaign.write_text(
        CAMPAIGN.format(min_duration_s=duration_s, repeats=stage.repeats if simulated else 1) + work
    )


def start(stage: Stage) -> Running:
    """Begin ``campaign run`` in a session of its own."""
    # With it SIGABRT makes Python say where every thread is: what hangs, and why.
    environment = os.environ | {"PYTHONFAULTHANDLER": "1"}
    mark = local_run.new_mark()
    return local_run.start(stage.folder, mark, environment, output=f"output-{mark}")


def end(running: Running, limit_s: float = LIMIT_S) -> tuple[int | None, str]:
    """Wait for a run to end; (its exit code, what it said), None where it had to be ended."""
    try:
        return running.process.wait(limit_s), running.text()
    except subprocess.TimeoutExpired:
        running.process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(10)
        kill(running)
        return None, running.text()


def kill(running: Running) -> None:
    """Kill a driver at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()


def last_line(output: str) -> str:
    """The last line that says something, before it was ended if it was."""
    return local_run.last_line(output.partition("Fatal Python error: Aborted")[0])


def measured(stage: Stage) -> int:
    """How many points the store holds as measured; none of them may be gone later."""
    held = measured_ids(stage.store)
    stage.seen.update(held)
    return len(held)


def wait_for(process: Running | None, what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until ``what`` is true and return it.

    Raises:
        MissedError: the run ended first, or it took too long.
    """
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        if process is not None and process.ended():
            raise MissedError(f"the run ended before: {last_line(process.text())}")
        if time.monotonic() > deadline:
            raise MissedError(f"nothing to harm in {seconds:g} s")
        time.sleep(0.05)
    return answer


def wait_for_progress(stage: Stage, process: Running, at_least: int = 0, at_most: int = 900) -> str:
    """Let the campaign get to a random place; the text says which."""
    points = stage.random.randint(at_least, at_most)
    wait_for(process, lambda: queued(stage, "RUNNING"))
    wait_for(process, lambda: measured(stage) >= points)
    return f"at {points} points"


def queued(stage: Stage, state: str) -> list[Job]:
    """The campaign's jobs in this state."""
    sites = ("simulated", "idle")
    names = {job_name(stage.store, site, name) for site in sites for name, _ in stage.partitions}
    return [j for j in stage.cluster.jobs() if j.state == state and j.name in names]


def a_running_job(stage: Stage, process: Running) -> Job:
    """One of the campaign's jobs that run, at random."""
    jobs = wait_for(process, lambda: queued(stage, "RUNNING"))
    job: Job = stage.random.choice(sorted(jobs, key=lambda job: job.nodes))
    return job


def workers(stage: Stage) -> list[psutil.Process]:
    """The campaign's worker processes."""
    return [p for p in processes(stage.folder) if "distributed.cli.dask_worker" in _words(p)]


def processes(folder: Path) -> list[psutil.Process]:
    """Processes that name a fault's folder in their command line, zombies left out."""
    of_folder = []
    for process in psutil.process_iter():
        if any(str(folder) in word for word in _words(process)):
            of_folder.append(process)
    return sorted(of_folder, key=lambda process: process.pid)


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


def pause(stage: Stage, longest_s: float) -> float:
    """Do nothing for a random time; how long, in s."""
    seconds = round(stage.random.uniform(0.0, longest_s), 1)
    time.sleep(seconds)
    return seconds


def set_partition(cluster: SlurmCluster, name: str, state: str) -> None:
    """Set a partition UP, DOWN, DRAIN or INACTIVE."""
    cluster.run("scontrol", "update", f"partitionname={name}", f"state={state}")


def lose_state(cluster: SlurmCluster, down_s: float = 0.0) -> None:
    """Kill the controller, and start it without its state: no jobs, and their ids once more."""
    cluster.kill_controller()
    state = cluster.base / "state"
    shutil.rmtree(state)
    state.mkdir()
    time.sleep(down_s)
    cluster.restart_controller()


# The faults


def cancel_running(stage: Stage) -> Disturbed:
    """Somebody cancels a worker's job."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    job = a_running_job(stage, process)
    stage.cluster.scancel(job.id)
    return Disturbed(f"job {job.id} on {job.nodes} cancelled {at}", *end(process))


def cancel_pending(stage: Stage) -> Disturbed:
    """A job is cancelled before it could start, and its partition's nodes come free later."""
    name = stage.random.choice(stage.partitions)[0]
    for node in stage.cluster.partitions[name]:
        stage.cluster.set_node(node, "drain")
    process = start(stage)
    job = wait_for(process, lambda: [j for j in queued(stage, "PENDING") if j.partition == name])[0]
    waited_s = pause(stage, 3.0)
    stage.cluster.scancel(job.id)
    drained_s = pause(stage, 4.0)
    for node in stage.cluster.partitions[name]:
        stage.cluster.set_node(node, "resume")
    what = f"job {job.id} of {name} cancelled after {waited_s} s pending"
    return Disturbed(f"{what}, its nodes given back {drained_s} s later", *end(process))


def node_down(stage: Stage) -> Disturbed:
    """A node goes down under a worker and comes back."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    node = a_running_job(stage, process).nodes
    stage.cluster.set_node(node, "down")
    down_s = pause(stage, 5.0)
    stage.cluster.set_node(node, "resume")
    return Disturbed(f"{node} down {at} for {down_s} s", *end(process))


def drain(stage: Stage) -> Disturbed:
    """All of a partition's nodes are drained, and perhaps the job there is cancelled too."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    job = a_running_job(stage, process)
    nodes = stage.cluster.partitions[job.partition]
    for node in nodes:
        stage.cluster.set_node(node, "drain")
    what = f"{job.partition} drained {at}"
    if stage.random.random() < 0.5:
        stage.cluster.scancel(job.id)
        what += f", job {job.id} cancelled"
    drained_s = pause(stage, 6.0)
    for node in nodes:
        stage.cluster.set_node(node, "resume")
    return Disturbed(f"{what}, given back after {drained_s} s", *end(process))


def slurmd_killed(stage: Stage) -> Disturbed:
    """A node's slurmd dies and is started again; Slurm may have given the node up meanwhile."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    node = a_running_job(stage, process).nodes
    stage.cluster.kill_slurmd(node)
    gone_s = pause(stage, stage.random.choice([3.0, 14.0]))
    stage.cluster.start_slurmd(node)
    return Disturbed(f"slurmd of {node} killed {at}, started after {gone_s} s", *end(process))


def controller_killed(stage: Stage) -> Disturbed:
    """The controller dies and comes back; jobs go on, and those of the last seconds are lost."""
    process = start(stage)
    if stage.random.random() < 0.3:
        wait_for(process, stage.cluster.jobs)
        at = "as the first job was submitted"
    else:
        at = wait_for_progress(stage, process)
    stage.cluster.kill_controller()
    gone_s = pause(stage, 6.0)
    stage.cluster.restart_controller()
    return Disturbed(f"controller killed {at}, started after {gone_s} s", *end(process))


def state_lost(stage: Stage) -> Disturbed:
    """The controller comes back without its state: the ids of this campaign's jobs come again."""
    lose_state(stage.cluster)
    process = start(stage)
    at = wait_for_progress(stage, process)
    before = sorted(job.id for job in stage.cluster.jobs())
    orphan = stage.random.choice([*workers(stage), None])
    what = f"controller's state lost {at}, jobs were {', '.join(before)}"
    if orphan is not None:
        what += f"; step daemon of process {orphan.pid} killed first"
        _step_daemon(orphan).kill()
    lose_state(stage.cluster, round(stage.random.uniform(0.0, 2.0), 1))
    return Disturbed(what, *end(process))


def requeue(stage: Stage) -> Disturbed:
    """An administrator requeues a job that asked not to be, and it starts beside its heir."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    job = a_running_job(stage, process)
    try:
        stage.cluster.run("scontrol", "requeue", job.id)
        what = "requeued at once"
    except SlurmError:
        what = "requeue refused at first"
        _requeue_though_it_forbids(stage, job.id)
    held_s = pause(stage, 4.0)
    with contextlib.suppress(SlurmError):  # the driver may have cancelled it meanwhile
        stage.cluster.release(job.id)
    return Disturbed(f"job {job.id} {what}, {at}; released after {held_s} s", *end(process))


def requeued_orphan(stage: Stage) -> Disturbed:
    """A job is requeued; its frozen old worker thaws beside the new one and writes late."""
    process = start(stage)
    at = wait_for_progress(stage, process, 1, EARLY)
    writers = wait_for(process, lambda: _writers(stage))
    late = _Orphan(wait_for(process, lambda: _a_computing_one(stage, writers)), stage.store)
    _requeue_though_it_forbids(stage, late.job)
    pause(stage, 2.0)
    with contextlib.suppress(SlurmError):
        stage.cluster.release(late.job)
    frozen_s = pause(stage, 5.0)
    late.thaw()
    code, out = end(process)
    what = f"job {late.job} requeued {at}, its worker frozen and thawed {frozen_s} s later"
    return _late(what, late, code, out)


def late_orphan(stage: Stage) -> Disturbed:
    """The driver dies; a frozen worker that Slurm lost writes when the next driver is at work."""
    process = start(stage)
    at = wait_for_progress(stage, process, 1, EARLY)
    writers = wait_for(process, lambda: _writers(stage))
    late = _Orphan(wait_for(process, lambda: _a_computing_one(stage, writers)), stage.store)
    kill(process)
    measured(stage)
    stage.cluster.set_node(late.node, "down")
    stage.cluster.set_node(late.node, "resume")
    after_s = round(stage.random.uniform(0.0, 12.0), 1)
    process = start(stage)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.process.wait(after_s)
    late.thaw()
    code, out = end(process)
    what = f"driver killed {at}, a worker of job {late.job} frozen and its node lost"
    return _late(f"{what}; thawed {after_s} s into the next run", late, code, out)


def orphan_goes_on(stage: Stage) -> Disturbed:
    """A job ends for Slurm, but its worker goes on."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    worker = stage.random.choice(wait_for(process, lambda: workers(stage)))
    node = worker.environ()["SLURMD_NODENAME"]
    _step_daemon(worker).kill()
    stage.cluster.set_node(node, "down")
    down_s = pause(stage, 4.0)
    stage.cluster.set_node(node, "resume")
    what = f"step daemon on {node} killed {at}, node down for {down_s} s, its worker left alive"
    return Disturbed(what, *end(process))


def partition_down(stage: Stage) -> Disturbed:
    """A partition is down, drained or inactive for a while, from before the run or during it."""
    name = stage.random.choice(stage.partitions)[0]
    state = stage.random.choice(["DOWN", "DOWN", "DRAIN", "INACTIVE"])
    if state == "DOWN" and stage.random.random() < 0.5:
        set_partition(stage.cluster, name, state)
        process = start(stage)
        wait_for(process, lambda: queued(stage, "PENDING"))
        at = "before the run"
    else:
        process = start(stage)
        at = wait_for_progress(stage, process)
        set_partition(stage.cluster, name, state)
        for job in queued(stage, "RUNNING"):
            if job.partition == name:
                stage.cluster.scancel(job.id)
                at += f", job {job.id} cancelled"
    down_s = pause(stage, 10.0)
    set_partition(stage.cluster, name, "UP")
    return Disturbed(f"{name} {state} {at}, up again {down_s} s later", *end(process))


def driver_killed(stage: Stage) -> Disturbed:
    """The driver dies while one partition's job runs and the other's waits."""
    name = stage.random.choice(stage.partitions)[0]
    set_partition(stage.cluster, name, "DOWN")
    process = start(stage)
    wait_for(process, lambda: queued(stage, "PENDING"))
    at = wait_for_progress(stage, process)
    kill(process)
    code, out = end(process)
    set_partition(stage.cluster, name, "UP")
    what = f"driver killed {at}, with a job of {name} pending"
    return Disturbed(what, code, out, wanted_code=-signal.SIGKILL)


def shell_ended(stage: Stage) -> Disturbed:
    """The login shell of the driver ends, which sends it SIGHUP."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.process.pid, signal.SIGHUP)
    code, out = end(process)
    return Disturbed(f"login shell ended {at}", code, out, wanted_code=-signal.SIGHUP)


def worker_killed(stage: Stage) -> Disturbed:
    """A worker is killed, as the kernel's OOM killer does."""
    process = start(stage)
    at = wait_for_progress(stage, process)
    worker = stage.random.choice(wait_for(process, lambda: workers(stage)))
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.kill()
    return Disturbed(f"worker {worker.pid} killed {at}", *end(process))


def disk_full(stage: Stage) -> Disturbed:
    """The store's file system, a small one of its own, fills up; later there is room again."""
    stage.store.mkdir(parents=True)
    size = f"size={DISK_MB}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(stage.store)], check=True)
    process = start(stage)
    at = wait_for_progress(stage, process)
    other = stage.store / "other"
    with other.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    code, out = end(process)
    wait_for(None, lambda: not workers(stage))  # room is made later than they end
    other.unlink()
    what = f"disk of {DISK_MB} MB full {at}"
    return Disturbed(what, code, out, wanted_code=1, wanted_words=("No space left", "again"))


def walltime(stage: Stage) -> Disturbed:
    """A job reaches its time limit with points left. They sleep: this one takes long."""
    write_files(stage, simulated=False)
    process = start(stage)
    wait_for(process, lambda: measured(stage) >= 3)
    job = a_running_job(stage, process)
    stage.cluster.run("scontrol", "update", f"jobid={job.id}", "EndTime=now+1")
    wait_for(process, lambda: job.id not in {j.id for j in queued(stage, "RUNNING")})
    had = measured(stage)
    return Disturbed(f"job {job.id} at its time limit, {had} points measured", *end(process))


def no_interface(stage: Stage) -> Disturbed:
    """The site file names a network interface that is not there."""
    write_files(stage, changed={"interface": "ib7"})
    code, out = end(start(stage), REFUSAL_S)
    write_files(stage)
    name = stage.partitions[-1][0]
    what = f'{name} with interface = "ib7"'
    return Disturbed(what, code, out, wanted_code=2, wanted_words=(name, "interface", "ib7"))


REFUSED = {
    "feature": ({"directives": '"--constraint=nosuch"'}, "Invalid feature specification"),
    "gres": ({"directives": '"--gres=gpu:nosuch:1"'}, "Invalid generic resource"),
    "memory": ({"memory": "900GB"}, "Requested node configuration is not available"),
    "reservation": ({"directives": '"--reservation=nosuch"'}, "reservation is invalid"),
}
"""What is asked for -> the partition's changed keys, and Slurm's words for it."""


def refused(stage: Stage) -> Disturbed:
    """Slurm refuses a partition's jobs."""
    kind = stage.random.choice(sorted(REFUSED))
    changed, said = REFUSED[kind]
    write_files(stage, changed=changed)
    code, out = end(start(stage), REFUSAL_S)
    write_files(stage)
    what = f"{stage.partitions[-1][0]} with {changed}"
    return Disturbed(what, code, out, wanted_code=2, wanted_words=(said,))


def no_partition(stage: Stage) -> Disturbed:
    """The site file names a partition that Slurm has not; then an administrator makes it."""
    code, out = end(start(stage), REFUSAL_S)
    name = stage.partitions[-1][0]
    stage.cluster.run("scontrol", "create", f"partitionname={name}", "nodes=n3")
    what = f"partition {name}, which is not there"
    return Disturbed(what, code, out, wanted_code=2, wanted_words=("Invalid partition name",))


KINDS: dict[str, Callable[[Stage], Disturbed]] = {
    "scancel": cancel_running,
    "scancel-pending": cancel_pending,
    "node-down": node_down,
    "drain": drain,
    "slurmd-killed": slurmd_killed,
    "controller-killed": controller_killed,
    "state-lost": state_lost,
    "requeue": requeue,
    "requeued-orphan": requeued_orphan,
    "late-orphan": late_orphan,
    "orphan-goes-on": orphan_goes_on,
    "partition-down": partition_down,
    "driver-killed": driver_killed,
    "shell-ended": shell_ended,
    "worker-killed": worker_killed,
    "no-interface": no_interface,
    "refused": refused,
    "no-partition": no_partition,
    "disk-full": disk_full,
    "walltime": walltime,
}
PARTITIONS_OF = {
    "no-partition": (("cpu-a", 1), ("nosuch", 1)),
    "walltime": (("cpu-a", 1),),
}
"""The partitions of kinds that want others than most."""
REPEATS_OF = dict.fromkeys(("no-interface", "refused", "no-partition"), 1)
"""The repeats of kinds that are over before anything is measured."""


class _Orphan:
    """A worker that is frozen and whose step daemon is dead, so that Slurm can't end it."""

    def __init__(self, worker: psutil.Process, store: Path) -> None:
        self.worker = worker
        environment = worker.environ()
        self.job = environment["SLURM_JOB_ID"]
        self.node = environment["SLURMD_NODENAME"]
        journals = _journals(store, worker)
        if not journals:
            raise MissedError(f"process {worker.pid} has no journal to write to late")
        # Open, so that its end is known though it may be compacted and removed.
        self._journal = os.open(journals[0], os.O_RDONLY)
        # In this order: a stopped process whose group loses its last parent is sent a SIGHUP.
        _step_daemon(worker).kill()
        _wait_for_a_new_point(worker, self._journal)
        try:
            worker.suspend()
        except psutil.NoSuchProcess:
            raise MissedError(f"process {worker.pid} ended with its step daemon") from None
        time.sleep(1.0)  # Slurm must have missed its daemon, or it still ends the worker itself
        self._size = os.fstat(self._journal).st_size

    def thaw(self) -> None:
        """Let it go on."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.worker.resume()

    def wait(self) -> int:
        """Wait until it is gone (what stays, the check finds); how many bytes it wrote late."""
        with contextlib.suppress(psutil.TimeoutExpired):
            self.worker.wait(GONE_S)
        late = os.fstat(self._journal).st_size - self._size
        os.close(self._journal)
        return late


def _late(what: str, late: _Orphan, code: int | None, output: str) -> Disturbed:
    """What an orphan did that was thawed; nothing, where it wrote nothing."""
    count = late.wait()
    missed = "" if count else "no byte was late"
    return Disturbed(f"{what}, {count} bytes were late", code, output, missed=missed)


def _wait_for_a_new_point(worker: psutil.Process, journal: int) -> None:
    """Wait until it has written a record and computes the next point: it is not frozen between
    the two, when it has nothing to write."""
    size = os.fstat(journal).st_size
    deadline = time.monotonic() + 10.0
    while os.fstat(journal).st_size == size or not _computes(worker):
        if time.monotonic() > deadline:
            raise MissedError(f"process {worker.pid} computes no further point")


def _journals(store: Path, worker: psutil.Process) -> list[Path]:
    return sorted((store / "journals").glob(f"*-{worker.pid}-*.journal"))


def _writers(stage: Stage) -> list[psutil.Process]:
    """The worker processes that have a journal."""
    return [worker for worker in workers(stage) if _journals(stage.store, worker)]


def _a_computing_one(stage: Stage, writers: Sequence[psutil.Process]) -> psutil.Process | None:
    """One of them that computes a point now: what waits for the driver has nothing to write."""
    for _ in range(LOOKS):
        worker = stage.random.choice(writers)
        if _computes(worker):
            return worker
    return None


def _computes(worker: psutil.Process) -> bool:
    """Whether one of its threads besides the first, which is Dask's, runs at three looks."""
    threads = set(Path(f"/proc/{worker.pid}/task").glob("[0-9]*"))
    threads -= {Path(f"/proc/{worker.pid}/task/{worker.pid}")}
    for _ in range(3):
        threads = {thread for thread in threads if _is_running(thread)}
        time.sleep(0.002)
    return bool(threads)


def _is_running(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    return False


def _step_daemon(worker: psutil.Process) -> psutil.Process:
    """The slurmstepd above a worker."""
    daemons = [parent for parent in worker.parents() if "slurmstepd" in parent.name()]
    if not daemons:
        raise MissedError(f"no step daemon above process {worker.pid}")
    return daemons[0]


def _requeue_though_it_forbids(stage: Stage, job: str) -> None:
    stage.cluster.run("scontrol", "update", f"jobid={job}", "requeue=1")
    stage.cluster.run("scontrol", "requeue", job)


# The check


def disturb(cluster: SlurmCluster, kind: str, seed: int, folder: Path) -> Outcome:
    """One fault in a new ``folder``, the runs after it, and the verdict; the cluster healthy.
    What found nothing to harm is done again.

    Raises:
        SlurmError: the cluster can't be brought back to health; start another.
    """
    began = time.monotonic()
    why = ""
    for attempt in range(ATTEMPTS):
        random = Random(f"{seed} {attempt}" if attempt else seed)
        try:
            return _tried(cluster, kind, seed, random, folder / str(attempt))
        except MissedError as error:
            why = str(error)
    verdict = f"the fault missed {ATTEMPTS} times, at last: {why}"
    return Outcome(
        kind=kind,
        seed=seed,
        what="",
        exit_code=None,
        last_line="",
        verdict=verdict,
        ok=False,
        seconds=time.monotonic() - began,
    )


def _tried(cluster: SlurmCluster, kind: str, seed: int, random: Random, folder: Path) -> Outcome:
    began = time.monotonic()
    partitions = PARTITIONS_OF.get(kind, (("cpu-a", 1), ("cpu-b", 1)))
    stage = Stage(cluster, folder, random, partitions, REPEATS_OF.get(kind, REPEATS))
    write_files(stage)
    code: int | None = None
    said = what = ""
    complaints: list[str] = []
    try:
        done = KINDS[kind](stage)
        code, what, said = done.exit_code, done.what, last_line(done.output)
        after = judge(make_plan(stage.campaign), stage.store, True, None, _expected(stage))
        complaints += _wrong_end(done, after) + _lost(stage, done, after)
        further = _finish(stage, after.planned, complaints)
        judgement = judge(make_plan(stage.campaign), stage.store, False, None, _expected(stage))
        complaints += _still_there(stage) + judgement.findings
        verdict = f"{judgement} after {further} more run{'s'[: further - 1]}"
        if done.missed and not complaints:
            raise MissedError(done.missed)
    except SlurmError as error:
        complaints.append(f"Slurm itself: {error}")
        verdict = "not judged"
    finally:
        for process in processes(folder):
            with contextlib.suppress(psutil.Error):
                process.kill()
        heal(cluster)
        if stage.store.is_mount():
            subprocess.run(["umount", "--lazy", str(stage.store)], check=True)
    if complaints:
        more = f" and {len(complaints) - 5} more" if len(complaints) > 5 else ""
        verdict = f"{verdict}: {'; '.join(complaints[:5])}{more}"
    seconds = time.monotonic() - began
    return Outcome(
        kind=kind,
        seed=seed,
        what=what,
        exit_code=code,
        last_line=said,
        verdict=verdict,
        ok=not complaints,
        seconds=seconds,
    )


def _lost(stage: Stage, done: Disturbed, after: Judgement) -> list[str]:
    """What was measured before the fault, or reported so, and is not in the store: measured
    again it would be the same, bit for bit."""
    findings = list(after.findings)
    acknowledged = local_run.points_acknowledged(done.output)
    if after.measured < acknowledged:
        findings.append(
            f"{acknowledged} points were reported as measured, and {after.measured} are there"
        )
    gone = stage.seen - measured_ids(stage.store)
    if gone:
        findings.append(f"{len(gone)} points that were measured are gone, such as {min(gone)}")
    return findings


def _wrong_end(done: Disturbed, after: Judgement) -> list[str]:
    """What is wrong with how the disturbed run ended."""
    said = last_line(done.output)
    if done.exit_code is None:
        return [f"did not end by itself; {_where(done.output)}"]
    findings = []
    if "Traceback (most recent call last)" in done.output:
        findings.append(f"a traceback: {done.output[-2000:]}")
    if done.wanted_code is not None:
        if done.exit_code != done.wanted_code:
            findings.append(f"exit code {done.exit_code}, not {done.wanted_code}")
        findings += [
            f"the last line lacks {word!r}" for word in done.wanted_words if word not in said
        ]
    elif done.exit_code == 0:
        if after.word != "complete" or not said.endswith(": complete"):
            findings.append(f"exit code 0, but: {after}")
    elif done.exit_code != 1 or "run" not in said or "again" not in said:
        findings.append(f"exit code {done.exit_code}, and the last line does not say how to go on")
    return findings


def _where(output: str) -> str:
    """Where a run's main thread was when SIGABRT ended it, innermost first."""
    main = output.rpartition("Current thread")[2].partition("Extension modules")[0]
    frames = [line.strip().removeprefix("File ") for line in main.splitlines() if "File" in line]
    return f"it was in {'; '.join(frames)}"


def _finish(stage: Stage, planned: int, complaints: list[str]) -> int:
    """Run undisturbed until complete; how often it took."""
    for i in range(MAX_FURTHER_RUNS):
        held = measured(stage)
        code, out = end(start(stage))
        complaints += local_run.measured_again(out, planned, held)
        if code == 0:
            return i + 1
        if code != 1 or "Traceback" in out:
            why = _where(out) if code is None else out[-2000:]
            complaints.append(f"undisturbed, it ended with {code}: {why}")
            return i + 1
    complaints.append(f"not complete after {MAX_FURTHER_RUNS} undisturbed runs: {last_line(out)}")
    return MAX_FURTHER_RUNS


def _expected(stage: Stage) -> Mapping[str, Expected | None]:
    """Point id -> what it must have measured; most faults share one plan."""
    plan = make_plan(stage.campaign)
    key = hash(tuple(point.id for point in plan.points))
    if key not in _KNOWN:
        _KNOWN[key] = expected_of(plan)
    return _KNOWN[key]


_KNOWN: dict[int, Mapping[str, Expected | None]] = {}


def _still_there(stage: Stage) -> list[str]:
    """Jobs and processes that the last run has left behind."""
    deadline = time.monotonic() + GONE_S
    while True:
        alive = [f"job {j.id} is still {j.state}" for j in stage.cluster.jobs()]
        alive += [f"process {p.pid} still runs: {_words(p)[:4]}" for p in processes(stage.folder)]
        if not alive or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return alive


def heal(cluster: SlurmCluster) -> None:
    """Bring a cluster back to health: all nodes idle, all partitions up, no job.

    Raises:
        SlurmError: it does not come back.
    """
    try:
        answers = "UP" in cluster.run("scontrol", "ping", timeout=5)
    except SlurmError:
        answers = False
    if not answers:
        cluster.restart_controller()
    for name in cluster.partitions:
        set_partition(cluster, name, "UP")
    for partitions in PARTITIONS_OF.values():
        for name, _ in partitions:
            if name not in cluster.partitions:
                with contextlib.suppress(SlurmError):  # it is not there
                    cluster.run("scontrol", "delete", f"partitionname={name}")
    jobs = cluster.jobs()
    if jobs:
        cluster.run("scancel", *(job.id for job in jobs))
    deadline = time.monotonic() + 40.0
    while cluster.jobs() or set(cluster.node_states().values()) != {"idle"}:
        if time.monotonic() > deadline:
            raise SlurmError(f"not healthy again: {cluster.jobs()} {cluster.node_states()}")
        for node, state in cluster.node_states().items():
            if state.startswith(("down", "drain")):
                with contextlib.suppress(SlurmError):  # it came back meanwhile
                    cluster.set_node(node, "resume")
        time.sleep(0.2)
    cluster.kill_orphans()


def start_cluster(base: Path) -> SlurmCluster:
    """A real Slurm of two partitions of two nodes, ready."""
    return SlurmCluster(base, "faults", {"cpu-a": 2, "cpu-b": 2})


def run(count: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Outcome]:
    """``count`` random faults, each kind as often as the others but for the slow walltime."""
    choices = Random(seed)
    with tempfile.TemporaryDirectory(prefix="sf-") as name, contextlib.ExitStack() as clusters:
        base = Path(name)
        cluster = clusters.enter_context(start_cluster(base / "slurm-0"))
        for i, kind in enumerate(_draw(count, choices, kinds)):
            fault_seed = choices.randrange(1 << 32)
            folder = base / f"fault-{i}"
            try:
                yield disturb(cluster, kind, fault_seed, folder)
            except SlurmError as error:
                yield Outcome(
                    kind=kind,
                    seed=fault_seed,
                    what="",
                    exit_code=None,
                    last_line="",
                    verdict=f"Slurm itself: {error}",
                    ok=False,
                    seconds=0.0,
                )
                clusters.close()
                cluster = clusters.enter_context(start_cluster(base / f"slurm-{i + 1}"))
            shutil.rmtree(folder, ignore_errors=True)


def _draw(count: int, choices: Random, kinds: Sequence[str]) -> Iterator[str]:
    """``count`` kinds in a random order; of fewer than there are, any."""
    quick = [kind for kind in kinds if kind != "walltime"]
    choices.shuffle(quick)
    few = round(count / WALLTIME_EVERY) if quick else count  # of 20 there is one
    slow = ["walltime"] * (few if "walltime" in kinds else 0)
    drawn = slow + [quick[i % len(quick)] for i in range(count - len(slow))]
    choices.shuffle(drawn)
    yield from drawn


def main() -> int:
    """See the module's text; 1 if a fault was not survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=len(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, action="append", help="only this kind; repeatable")
    arguments = parser.parse_args()
    failed = 0
    for outcome in run(arguments.count, arguments.seed, arguments.kind or tuple(KINDS)):
        failed += not outcome.ok
        print(outcome.line(), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
