"""A user's program: the MPI that starts its ranks, whether they are one world, and its output."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from campaign.measure.point_life import PartitionSetup
from campaign.measure.point_server import STEP_NAME
from campaign.measure.subprocesses import SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import canonical_json
from campaign.store.journal import decode
from campaign.store.measurement import Measurement
from dvfs.dataset import KERNEL_FAILED, NODE_LOST, OK, TIMED_OUT
from dvfs.setting import AS_FOUND, Setting
from kernels.registry import find_kernel
from sites.site_file import Environment, Partition, Site
from sites.site_reading import built_in_sites, read_site
from tests.points import a_point
from tests.slurm_cluster import SlurmCluster
from tests.waiting import wait_until

BIN = Path(sys.executable).parent
MPI_PROGRAM = str(BIN / "mpivars")
"""A small program of the wheel mpich, linked with its library."""
SYSTEM = "/usr/bin:/bin"
QUICK = Protocol(min_duration_s=0.0, warm_up_s=0.0, idle_s=0.0, timeout_s=60.0)
SINGLETONS = 'shift 2; "$@" & "$@"; wait'
"""What a launcher does whose protocol the program's library does not know: N worlds of one rank."""


def site(mpi: str | None = None, **changes: object) -> Site:
    partition = Partition(environment=Environment(mpi=mpi))
    found = read_site(built_in_sites()["localhost"])
    return found.model_copy(update={"partitions": {"p": partition}, **changes})


def measured(
    argv: list[str],
    ranks: int = 1,
    on: Site | None = None,
    setting: Setting = AS_FOUND,
    protocol: Protocol = QUICK,
    **params: object,
) -> Measurement:
    on = on or site()
    checked = find_kernel("command").params.model_validate({"argv": argv, **params})
    point = a_point(
        "command",
        site=on.name,
        partition=next(iter(on.partitions)),
        params=canonical_json(checked.model_dump(mode="json")),
        ranks=ranks,
        setting=setting,
    )
    runner = SubprocessRunner(PartitionSetup(on, protocol, ("command",), "", point.partition))
    try:
        return decode(runner.measure(point, 0))
    finally:
        runner.close()


def flags(done: Measurement) -> list[str]:
    return list(done.provenance.get("flags", []))


def stand_in(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("argv", [["mpirun", "-x"], ["sh", "-c", "mpirun -x"]], ids=str)
@pytest.mark.parametrize("order", ["after", "before", "alone"])
def test_the_sites_mpirun_is_the_one_that_a_program_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], order: str
) -> None:
    """Wherever it is on PATH. The wheel's would not understand the option."""
    stand_in(tmp_path / "site", "mpirun", 'echo "site $0 $*"')
    folders = {"after": [BIN, tmp_path / "site"], "before": [tmp_path / "site", BIN]}
    path = [str(folder) for folder in folders.get(order, [tmp_path / "site"])]
    monkeypatch.setenv("PATH", os.pathsep.join([*path, SYSTEM]))
    done = measured(argv, expect="mpirun -x")
    assert done.status == OK, done.text


def test_only_mpi_programs_of_the_environment_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mpirun", "python"):
        stand_in(tmp_path / "site", name, "echo of the site")
    monkeypatch.setenv("PATH", os.pathsep.join([str(BIN), str(tmp_path / "site"), SYSTEM]))
    code = "import sys; print(sys.prefix)"
    done = measured(["sh", "-c", f"python -c '{code}'"], expect=sys.prefix)
    assert done.status == OK, done.text
    assert measured(["sh", "-c", "mpirun"], expect="of the site").status == OK


def without_mpi(folder: Path) -> str:
    """A folder for PATH that has no MPI, also where this machine has one."""
    folder.mkdir()
    for name in ("sh", "ldd"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


def test_without_a_site_mpi_the_wheels_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(BIN), without_mpi(tmp_path / "bin")]))
    done = measured(["mpirun", "-n", "2", "sh", "-c", "echo size $PMI_SIZE"], expect="size 2")
    assert done.status == OK, done.text


def test_a_programs_ranks_are_started_by_the_sites_mpiexec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the ranks that were asked for: the counts are those of all."""
    stand_in(tmp_path / "site", "mpiexec", 'echo "mpiexec $*"')
    monkeypatch.setenv("PATH", os.pathsep.join([str(BIN), str(tmp_path / "site"), SYSTEM]))
    done = measured(["solver", "case"], 2, counts={"dp": 5.0}, expect="mpiexec -n 2 solver case")
    assert done.status == OK, done.text
    assert done.counts == {"dp": 5.0}


def test_ranks_that_are_one_world_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", without_mpi(tmp_path / "bin"))
    done = measured([MPI_PROGRAM], 3)
    assert done.status == OK, done.text
    assert flags(done) == []


def test_ranks_that_are_worlds_of_their_own_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would do all of the work, and end with 0."""
    stand_in(tmp_path / "site", "mpiexec", SINGLETONS)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "site"), SYSTEM]))
    failed = measured([MPI_PROGRAM], 2)
    assert failed.status == KERNEL_FAILED
    assert "libmpi.so" in failed.text and str(tmp_path / "site" / "mpiexec") in failed.text


def test_ranks_that_nothing_can_check_are_flagged_unless_the_program_says_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "site", "mpiexec", SINGLETONS)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "site"), SYSTEM]))
    script = ["sh", "-c", "echo 1 rank"]
    unchecked = measured(script, 2)
    assert unchecked.status == OK
    assert ["expect" in flag for flag in flags(unchecked)] == [True]
    assert flags(measured(script, 2, expect="1 rank")) == []
    assert measured(script, 2, expect="2 ranks").status == "wrong result"


def test_where_there_is_no_mpi_the_message_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First no launcher is on PATH, then one, and mpi4py finds no library."""
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "missing.so"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    params = canonical_json(find_kernel("idle").params().model_dump(mode="json"))
    point = a_point("idle", site="localhost", partition="p", params=params, ranks=2)
    runner = SubprocessRunner(PartitionSetup(site(), QUICK, ("idle",)))
    try:
        without_launcher = decode(runner.measure(point, 0))
        stand_in(tmp_path / "site", "mpiexec", SINGLETONS)
        monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "site"), SYSTEM]))
        without_library = decode(runner.measure(point, 0))
    finally:
        runner.close()
    for failed in (without_launcher, without_library):
        assert failed.status == KERNEL_FAILED
        assert "'dvfs-campaign[mpi]'" in failed.text
    assert "missing.so" in without_library.text


def test_the_first_error_of_a_program_is_kept_beside_its_last_lines() -> None:
    """Before it there are harmless lines, and after it each rank complains at length."""
    script = (
        "seq 2000; echo 'solver: error: cannot open case.cfg'; "
        "for rank in $(seq 900); do echo rank $rank: aborted; done; echo last line; exit 3"
    )
    failed = measured(["sh", "-c", script])
    assert failed.status == KERNEL_FAILED
    assert "solver: error: cannot open case.cfg\nrank 1: aborted\n" in failed.text
    assert failed.text.endswith("rank 900: aborted\nlast line")
    assert len(failed.text) < 6000
    plain = measured(["sh", "-c", "seq 9000; exit 3"])
    assert "\n1\n2\n3\n" in plain.text and plain.text.endswith("\n8999\n9000")


class Job:
    """A job on n3, in which this process measures as its worker does."""

    def __init__(self, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        options = ("-o/dev/null", "-pcpu-b", "-wn3", "-n1", "-c4")
        self.id = cluster.submit("#!/bin/bash\nsleep 600\n", *options)
        while cluster.job_state(self.id) != "RUNNING":
            time.sleep(0.1)
        variables = {**cluster.environment, "SLURM_JOB_ID": self.id, "SLURM_CPUS_ON_NODE": "4"}
        # What a step's environment has, and an inner srun would take as its options.
        variables |= {"SLURM_NTASKS": "1", "SLURM_CPUS_PER_TASK": "4"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    def steps(self) -> list[str]:
        return self.cluster.run("squeue", "--steps", f"--jobs={self.id}", "--format=%j").split()

    def site(self, control: str, mpi: str | None) -> Site:
        found = read_site(built_in_sites()["slurm-example"])
        clocks = {"control": control, "tolerance_pct": 1000.0}
        changes = {"clocks": found.clocks.model_copy(update=clocks), "meters": []}
        return site(mpi, name=found.name, domains=found.domains, **changes)


def kill_the_parent_of_srun(job: Job) -> None:
    """The measuring process, which then ends no srun, as soon as a step of ranks runs."""
    wait_until(lambda: STEP_NAME in job.steps())
    children = psutil.Process().children(recursive=True)
    (first, *_) = [child for child in children if child.name() == "srun"]
    first.parent().kill()


@pytest.mark.slurm
@pytest.mark.parametrize("control", ["slurm", "fixed"])
def test_a_programs_ranks_in_a_slurm_job(
    slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, control: str
) -> None:
    """One after another in a job: a world of two ranks, two worlds of one, a failed rank, ranks
    that are killed with their point, a step that Slurm refuses."""
    job = Job(slurm_cluster, monkeypatch)
    at = Setting(1400.0) if control == "slurm" else AS_FOUND

    def run(argv: list[str], ranks: int = 2, mpi: str | None = "pmi2", **more: object):
        return measured(argv, ranks, job.site(control, mpi), at, **more)

    good = run([MPI_PROGRAM])
    assert good.status in (OK, "clock unproven"), good.text
    assert flags(good) == []
    seen = "echo rank $PMI_RANK of $PMI_SIZE at ${SLURM_CPU_FREQ_REQ-none}"
    clock = "1400000" if control == "slurm" else "none"
    said = run(["sh", "-c", seen], expect=f"rank 1 of 2 at {clock}")
    assert said.status in (OK, "clock unproven"), said.text
    for mpi in ("none", None):  # this cluster's default is none
        apart = run([MPI_PROGRAM], mpi=mpi)
        assert apart.status == KERNEL_FAILED
        assert "libmpi.so" in apart.text
    failed = run(["sh", "-c", "test $PMI_RANK = 0 && sleep 60; echo broken; exit 3"])
    assert failed.status == KERNEL_FAILED
    assert "exit code 3" in failed.text and "broken" in failed.text
    stubborn = "trap '' TERM; exec sleep 50"
    quick = QUICK.model_copy(update={"timeout_s": 6.0})
    late = run(["sh", "-c", stubborn], protocol=quick)
    assert late.status == TIMED_OUT
    if control == "fixed":  # otherwise it is a child of another step
        wait_until(lambda: STEP_NAME not in job.steps())
        killer = threading.Thread(target=kill_the_parent_of_srun, args=(job,))
        killer.start()
        lost = run(["sh", "-c", stubborn])
        killer.join()
        assert lost.status == NODE_LOST, lost.text
    refused = run(["true"], ranks=9)
    assert refused.status == KERNEL_FAILED
    assert "srun: error: Unable to create step" in refused.text
    wait_until(lambda: STEP_NAME not in job.steps())
    slurm_cluster.scancel(job.id)
