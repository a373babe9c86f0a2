"""The tests' Slurm in the hands of another user: its daemons, which are root's, give nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.requirement import need_root
from tests.slurm_cluster import SlurmCluster, find_program, host_address
from tests.slurm_fixtures import need_slurm
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.root]

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SECRET = "the-words-of-a-script"
RANKS = "import time; from mpi4py import MPI; MPI.COMM_WORLD.barrier(); print('up', flush=True)"
JOB = f"""\
#!/bin/bash
# {SECRET}
srun -n2 --overlap --mpi=pmi2 {sys.executable} -c "{RANKS}; time.sleep(600)" &
srun -n2 --overlap sleep 600
"""


@dataclass(frozen=True)
class Place:
    """A folder that all may enter, in it a cluster with a running job, and the other's home."""

    folder: Path
    home: Path
    cluster: SlurmCluster
    job: str


def running_steps(cluster: SlurmCluster) -> int:
    return len(cluster.run("squeue", "-h", "--steps").splitlines())


def processes(conf: Path) -> list[psutil.Process]:
    """The daemons, the clients and the job's processes of a cluster."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SLURM_CONF") == str(conf):
                found.append(process)
        except psutil.Error:
            continue
    return found


def bound(conf: Path) -> dict[str, list[str]]:
    """The addresses of the IP sockets that wait for somebody, by the program that has them."""
    addresses: dict[str, list[str]] = {}
    for process in processes(conf):
        try:
            sockets = [each for each in process.net_connections("inet") if not each.raddr]
            for each in sockets:
                addresses.setdefault(process.name(), []).append(each.laddr.ip)
        except psutil.Error:
            continue
    return addresses


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    need_root()
    need_slurm()
    # pytest's own folders are closed to others.
    folder = Path(tempfile.mkdtemp(prefix="two-users-"))
    try:
        folder.chmod(0o755)
        home = folder / "home"
        home.mkdir(mode=0o755)
        os.chown(home, NOBODY, NOBODY)
        with SlurmCluster(folder / "s", "others", {"p": 2}) as cluster:
            job = cluster.submit(JOB, "--job-name=root-s", "-n4", f"--output={folder}/out")
            wait_until(lambda: running_steps(cluster) == 3, 60.0)
            yield Place(folder, home, cluster, job)
    finally:
        shutil.rmtree(folder)


def test_all_of_slurm_listens_on_loopback_alone(place):
    conf = place.cluster.conf
    outside = subprocess.Popen(["srun", "-n1", "sleep", "600"], env=place.cluster.environment)
    try:
        wait_until(lambda: running_steps(place.cluster) == 4, 60.0)
        addresses = bound(conf)
    finally:
        outside.terminate()
        outside.wait()
    assert len(addresses["slurmctld"]) == 1
    assert len(addresses["slurmd"]) == 2
    assert len(addresses["srun"]) >= 6
    # In a container without CAP_SYS_ADMIN this may be the container's address.
    assert {each for own in addresses.values() for each in own} == {host_address()}


def test_ranks_of_a_step_have_no_socket(place):
    conf = place.cluster.conf
    wait_until(lambda: (place.folder / "out").read_text().count("up") == 2, 60.0)
    programs = [each for each in processes(conf) if RANKS in " ".join(each.cmdline())]
    ranks = [each for each in programs if each.name() != "srun"]
    assert len(ranks) == 2
    assert [each.net_connections("inet") for each in ranks] == [[], []]


NAMED = """
import ctypes, socket, sys
from pathlib import Path
from tests.security.test_slurm_daemons import bound
from tests.slurm_cluster import CLONE_NEWUTS, SlurmCluster

if ctypes.CDLL(None).unshare(CLONE_NEWUTS) != 0:
    sys.exit("may not")
socket.sethostname("198.51.100.1")
with SlurmCluster(Path(sys.argv[1]), "named", {"p": 1}) as cluster:
    print(cluster.run("srun", "-n1", "echo", "ran").strip(), *sum(bound(cluster.conf).values(), []))
"""


def test_a_host_whose_name_has_another_address(tmp_path_factory):
    """Its name is an address of no host at all, on which nothing can listen."""
    need_slurm()
    done = subprocess.run(
        [sys.executable, "-c", NAMED, str(tmp_path_factory.mktemp("named"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.stderr.strip() != "may not":  # then the host's name stays, for all that tests start
        assert done.stdout.split() == ["ran", "127.0.0.1", "127.0.0.1"], done.stderr


@pytest.fixture(scope="module")
def configurations(place: Place) -> Iterator[dict[str, Path]]:
    """Configurations that another user can make of the cluster's, should he get to know it."""
    text = place.cluster.conf.read_text()
    munge = place.folder / "munge"
    munge.mkdir(mode=0o755)
    (munge / "key").write_bytes(bytes(range(128)))
    (munge / "key").chmod(0o400)
    for path in (munge, munge / "key"):
        os.chown(path, NOBODY, NOBODY)
    own = {
        "copied": text,
        "without munge": text.replace("auth/munge", "auth/none").replace("cred/munge", "cred/none"),
        "with another key": text.replace(f"{place.cluster.base}/munge/socket", f"{munge}/socket"),
    }
    files = {name: place.folder / f"{name.replace(' ', '-')}.conf" for name in own}
    for name, words in own.items():
        files[name].write_text(words)
    names = ("key", "socket", "pid", "log", "seed")
    options = [f"--{name if name == 'socket' else f'{name}-file'}={munge}/{name}" for name in names]
    munged = subprocess.Popen(
        [str(find_program("munged")), "--foreground", *options],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until((munge / "socket").exists, 60.0)
        yield files
    finally:
        munged.terminate()
        munged.wait()


def orders(place: Place) -> dict[str, list[str]]:
    job = place.job
    return {
        "submit": ["sbatch", f"--output={place.home}/out", "--wrap=id -u"],
        "join": ["srun", f"--jobid={job}", "--overlap", "-n1", "id", "-u"],
        "allocate": ["salloc", "-n1", "--immediate=5", "srun", "id", "-u"],
        "change a job": ["scontrol", "update", f"jobid={job}", "comment=changed"],
        "change a node": ["scontrol", "update", "nodename=n1", "state=drain", "reason=changed"],
        "read the script": ["scontrol", "write", "batch_script", job, "-"],
        "read the job": ["scontrol", "show", "job", job],
        "list jobs": ["squeue", "-h"],
        "list nodes": ["sinfo", "-h"],
        "signal a step": ["scancel", "--signal=KILL", f"{job}.0"],
        "cancel": ["scancel", job],
        "reconfigure": ["scontrol", "reconfigure"],
        "shut down": ["scontrol", "shutdown"],
    }


def test_the_orders_are_ones_that_slurm_takes_from_root(place):
    """Otherwise it would mean little that they fail for another user."""
    for name in ("join", "allocate"):
        assert place.cluster.run(*orders(place)[name]).splitlines()[-1] == "0"
    assert SECRET in place.cluster.run(*orders(place)["read the script"])
    for name in ("read the job", "list jobs", "list nodes"):
        assert place.cluster.run(*orders(place)[name])


def test_no_file_of_the_cluster_is_open_to_others(place):
    assert place.cluster.base.stat().st_mode & 0o777 == 0o700


def test_another_user_gets_nothing_and_changes_nothing(place, configurations):
    def state() -> tuple[str, dict[str, str], str, str]:
        shown = place.cluster.run("scontrol", "-o", "show", "job", place.job)
        kept = [word for word in shown.split() if not word.startswith(("RunTime=", "LastSched"))]
        steps = place.cluster.run("squeue", "-h", "--steps", "-o", "%i")
        jobs = place.cluster.run("squeue", "-h", "-o", "%i %u %T")
        return " ".join(kept), place.cluster.node_states(), steps, jobs

    before = state()
    started = {
        (conf, order): subprocess.Popen(
            words,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd=place.home,
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for conf, path in configurations.items()
        for order, words in orders(place).items()
    }
    ended = {name: process.communicate(timeout=60) for name, process in started.items()}
    assert {name: out for name, (out, _) in ended.items() if out} == {}
    assert all(error for _, error in ended.values())
    assert not (place.home / "out").exists()
    assert state() == before
    assert [job.id for job in place.cluster.jobs()] == [place.job]
