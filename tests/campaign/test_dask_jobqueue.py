"""What launching relies on of dask-jobqueue and of Dask's clusters, parts without a promise among
them: a release that changes one fails here, and not in a campaign. sbatch and scancel are programs
that write down how they were called."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from dask_jobqueue.slurm import SLURMCluster, SLURMJob
from distributed.deploy.spec import ProcessInterface
from packaging.requirements import Requirement

from campaign.launch.dask_settings import configure_dask
from campaign.launch.scheduler import LaunchError, SubmissionError
from campaign.launch.slurm import SlurmScheduler
from sites.site_file import Partition
from sites.site_reading import built_in_sites, read_site
from tests.waiting import wait_until

PROGRAM = f"""\
#!{sys.executable} -IS
import json, os, sys, time
from pathlib import Path
name = Path(sys.argv[0]).name
folder = Path(sys.argv[0]).parents[1]
calls, jobs = folder / "calls", folder / "jobs"
if name == "squeue":
    for job in jobs.read_text().split() if jobs.exists() else []:
        print(f"{{job}}|dvfs-0|RUNNING|0:10|1|None")
    print("7|dvfs-0-of-another|RUNNING|0:10|1|None")
    sys.exit()
calls.mkdir(exist_ok=True)
script = sys.stdin.read() if name == "sbatch" else ""
(calls / f"{{time.monotonic_ns()}}.json").write_text(json.dumps([[name, *sys.argv[1:]], script]))
if name == "scancel":
    sys.exit()
if (folder / "refuse").exists():
    sys.exit("sbatch: error: Batch job submission failed: invalid partition specified: p")
print("Welcome to Cluster7, with 3 partitions\\n")
if (folder / "silent").exists():
    sys.exit()
with jobs.open("a") as file:
    print(os.getpid(), file=file)
print(7)
print(os.getpid())
"""


@pytest.fixture
def errors() -> list[LaunchError]:
    return []


@pytest.fixture
def cluster(
    tmp_path: Path, errors: list[LaunchError], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SLURMCluster]:
    """A cluster as a campaign starts one, whose Slurm only writes down how it is called."""
    for name in ("sbatch", "scancel", "squeue"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM)
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    site = read_site(built_in_sites()["slurm-example"]).model_copy(
        update={
            "partitions": {"p": Partition(scheduler="slurm", nodes=2, cores=4, memory="500MB")},
        }
    )
    configure_dask()
    made = SlurmScheduler(site).start("p", "dvfs-0", tmp_path, "127.0.0.1:0", errors)
    yield made
    made.close(timeout=20)
    for key in ("ca_file", "cert", "key"):  # they would be removed at some time, with a warning
        getattr(made, f"_job_{key}").close()


def calls(folder: Path) -> list[tuple[list[str], str]]:
    """(words, standard input) of each call of sbatch and scancel so far."""
    files = sorted((folder / "calls").glob("*.json")) if (folder / "calls").exists() else []
    return [tuple(json.loads(file.read_text())) for file in files]


def test_jobs_are_submitted_replaced_and_cancelled_by_the_specification(
    tmp_path: Path, cluster: SLURMCluster
) -> None:
    assert cluster.scheduler_info["workers"] == {}
    cluster.scale(2)
    wait_until(lambda: len(cluster.workers) == 2, 60.0)
    submitted = calls(tmp_path)
    assert [words for words, _ in submitted] == [["sbatch", "--parsable"]] * 2
    jobs = {str(name): job.job_id for name, job in cluster.workers.items()}
    assert len(set(jobs.values())) == 2
    assert all(re.fullmatch(r"\d+", job_id) for job_id in jobs.values())
    assert {str(name) for name in cluster.worker_spec} == set(jobs)

    # The script: directives, then the prologue's place, then one command.
    names = set()
    for _, script in submitted:
        head, command = script.rstrip().rsplit("\n", 1)
        assert head.startswith("#!/usr/bin/env bash\n")
        for directive in ("-J dvfs-0", "-p p", "-n 1", "-N 1", "--no-requeue", "--exclusive"):
            assert f"#SBATCH {directive}\n" in head + "\n"
        words = shlex.split(command)
        assert words[:3] == [sys.executable, "-m", "distributed.cli.dask_worker"]
        assert words[3] == cluster.scheduler.address
        names.add(words[words.index("--name") + 1])
        for option in ("--no-nanny", "--no-dashboard", "--nthreads", "--preload"):
            assert option in words
        keys = [Path(words[words.index(f"--tls-{key}") + 1]) for key in ("key", "cert", "ca-file")]
        assert all(key.parent == tmp_path / "tls" and key.exists() for key in keys)
        assert all(key.stat().st_mode & 0o077 == 0 for key in keys)

    assert names == set(jobs)

    # A worker that is taken from the specification is cancelled by its job's id, and no other.
    first = next(iter(cluster.worker_spec))
    del cluster.worker_spec[first]
    cluster.scale(len(cluster.worker_spec))
    wait_until(lambda: len(cluster.workers) == 1, 60.0)
    wait_until(lambda: len(calls(tmp_path)) == 3, 60.0)
    assert calls(tmp_path)[2][0] == ["scancel", jobs[str(first)]]
    cluster.scale(2)
    wait_until(lambda: len(cluster.workers) == 2, 60.0)
    assert calls(tmp_path)[3][0] == ["sbatch", "--parsable"]
    assert cluster.sync(cluster_workers, cluster) == []
    cluster.scale(0)
    wait_until(lambda: not cluster.workers, 60.0)
    assert sorted(words[0] for words, _ in calls(tmp_path)[4:]) == ["scancel"] * 2


async def cluster_workers(cluster: SLURMCluster) -> list[Any]:
    """The scheduler's workers, which have ``name`` and ``processing``; asked on its loop."""
    return [(w.name, w.processing) for w in cluster.scheduler.workers.values()]


def test_a_refused_job_is_listed_without_an_id(
    tmp_path: Path, cluster: SLURMCluster, errors: list[LaunchError]
) -> None:
    (tmp_path / "refuse").touch()
    cluster.scale(1)
    wait_until(lambda: errors, 60.0)
    assert isinstance(errors[0], SubmissionError)
    (job,) = wait_until(lambda: list(cluster.workers.values()), 60.0)
    assert job.job_id is None
    (tmp_path / "refuse").unlink()


def test_output_without_a_jobs_id_is_no_id(
    tmp_path: Path, cluster: SLURMCluster, errors: list[LaunchError]
) -> None:
    """A greeting of the site that has digits is no id, and nothing is cancelled by it."""
    (tmp_path / "silent").touch()
    cluster.scale(1)
    wait_until(lambda: errors, 60.0)
    assert isinstance(errors[0], SubmissionError)
    cluster.scale(0)
    wait_until(lambda: not cluster.workers, 60.0)
    assert [words[0] for words, _ in calls(tmp_path)] == ["sbatch"]


def test_the_parts_that_are_overridden() -> None:
    assert (SLURMJob.submit_command, SLURMJob.cancel_command) == ("sbatch", "scancel")
    assert list(inspect.signature(SLURMJob._submit_job).parameters) == ["self", "script_filename"]
    for method in (SLURMJob._submit_job, SLURMJob.close, ProcessInterface.close):
        assert inspect.iscoroutinefunction(method)


def test_the_release_is_one_that_was_tried() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    declared = map(Requirement, pyproject["project"]["dependencies"])
    bounds = {requirement.name: requirement.specifier for requirement in declared}["dask-jobqueue"]
    assert bounds.contains(version("dask-jobqueue"))
    assert not bounds.contains("0.10.0")
