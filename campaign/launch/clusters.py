"""A Dask cluster for each partition: local processes, or a Slurm job for each worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
from dask.utils import parse_bytes
from distributed import LocalCluster
from distributed.core import Status

from campaign.launch import ctrl_c, timers
from campaign.launch.certificates import make_security
from campaign.launch.interrupts import keeping_handler
from campaign.launch.slurm import CantLaunch, SubmissionRefused, cancel_jobs, submit
from sites.clocks.shared.private_files import NotOwned, open_folder
from sites.site_file import Partition, Site

with keeping_handler():  # dask_jobqueue.runner sets one that ends the process with 0
    from dask_jobqueue.slurm import SLURMCluster, SLURMJob, slurm_format_bytes_ceil

LOOPBACK_DASHBOARD = "127.0.0.1:0"
NOT_SHOWN = "***"
STARTS = 3
DASK_SETTINGS: dict[str, Any] = {
    # A lost worker is removed at once, so that scaling up starts another one.
    "distributed.deploy.lost-worker-timeout": "1s",
    # How many workers may die with a task before it is given up.
    "distributed.scheduler.allowed-failures": 2,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.limit": "60s",
    "distributed.comm.timeouts.connect": "30s",
}


def slurm_job_class(site: Site, errors: list[CantLaunch] | None = None) -> type[SLURMJob]:
    """dask-jobqueue's job, submitted and cancelled by :mod:`campaign.launch.slurm`.

    sbatch's errors are added to ``errors``, because Dask's cluster does not report them.
    """

    class SiteJob(SLURMJob):
        @contextlib.contextmanager
        def job_file(self) -> Iterator[str]:
            """No file, and no line in a log: the script may hold values that are secret."""
            yield ""

        async def _submit_job(self, script_filename: str) -> str:
            try:
                return await asyncio.to_thread(submit, site, self.job_script())
            except CantLaunch as error:
                if errors is not None:
                    errors.append(error)
                raise

        async def close(self) -> None:
            if self.job_id:
                with contextlib.suppress(CantLaunch):  # the run's end cancels all jobs by name
                    await asyncio.to_thread(cancel_jobs, site, [self.job_name], self.job_id)
            self.status = Status.closed  # dask-jobqueue does not set it, and SpecCluster asserts it

    return SiteJob


def job_keywords(
    site: Site, partition_name: str, job_name: str, log_folder: str | None
) -> dict[str, Any]:
    """dask-jobqueue's keywords for a partition's jobs: one worker in each job, on its first
    node."""
    partition = site.partitions[partition_name]
    # A lost job is replaced here. A requeued one would run after two minutes, beside the new one.
    nodes = site.nodes_per_point
    directives = [f"-N {nodes}", "--no-requeue"]
    if nodes > 1:  # dask-jobqueue asks for one task, and the last of two options counts
        directives.append(f"--ntasks={nodes}")
    if partition.exclusive:
        directives.append("--exclusive")
    if partition.account is not None:
        directives.append(f"--account={shlex.quote(partition.account)}")
    if partition.qos is not None:
        directives.append(f"--qos={shlex.quote(partition.qos)}")
    if log_folder is not None:
        # % begins a field of the name, and %% is a %
        directives.append(f"-o {shlex.quote(log_folder.replace('%', '%%') + '/%x-%j.log')}")
    directives += partition.directives
    return {
        "queue": partition_name,
        "walltime": partition.walltime,
        "cores": 1,
        "job_cpu": partition.cores,
        "processes": 1,
        "job_mem": slurm_format_bytes_ceil(parse_bytes(partition.memory)),
        # No limit: Dask must not pause a worker for the memory that a kernel or the node needs.
        "memory": "0B",
        "job_name": job_name,
        "job_extra_directives": directives,
        "job_script_prologue": prologue(partition),
        "python": shlex.quote(partition.environment.python or sys.executable),
        "local_directory": shlex.quote(partition.local_directory),
        "interface": partition.interface,
        "nanny": False,
        "death_timeout": 60,
        "worker_extra_args": [
            *("--no-dashboard", "--dashboard-address", LOOPBACK_DASHBOARD),
            *("--preload", timers.__name__),
        ],
    }


def prologue(partition: Partition) -> list[str]:
    """The job script's lines before the worker: modules and variables, quoted for the shell.

    A module that cannot be loaded ends the job with the status of ``module load``.
    """
    lines = [f"module load {shlex.quote(name)} || exit" for name in partition.environment.modules]
    lines += [
        f"export {name}={shlex.quote(value)}"
        for name, value in partition.environment.variables.items()
    ]
    return lines


def job_script(site: Site, partition_name: str, job_name: str) -> str:
    """The job script for a node of a partition, to be shown. A running campaign fills in the
    scheduler's address, the certificates' paths, the worker's name and the values of secrets."""
    site = _without_secrets(site, partition_name)
    job = slurm_job_class(site)(
        scheduler="SCHEDULER",
        name="WORKER",
        **job_keywords(site, partition_name, job_name, "STORE/logs"),
    )
    script: str = job.job_script()
    return script


def _without_secrets(site: Site, partition_name: str) -> Site:
    """A site with :data:`NOT_SHOWN` in place of each value that a partition calls secret."""
    partition = site.partitions[partition_name]
    environment = partition.environment
    shown = environment.variables | dict.fromkeys(environment.secrets, NOT_SHOWN)
    environment = environment.model_copy(update={"variables": shown})
    partition = partition.model_copy(update={"environment": environment})
    return site.model_copy(update={"partitions": site.partitions | {partition_name: partition}})


def start_local(partition: Partition, dashboard: str) -> LocalCluster:
    """Worker processes on this machine, one for each node, which have the partition's variables;
    all listen on loopback.

    They use TLS: every user of the machine can connect to loopback, and Dask runs what its
    sockets accept. The certificates stay in the memory of the driver and its workers.
    """
    for _ in range(STARTS):
        try:
            with ctrl_c.held_back():
                return LocalCluster(
                    n_workers=partition.nodes,
                    threads_per_worker=1,
                    processes=True,
                    host="tls://127.0.0.1",
                    protocol="tls://",
                    security=make_security(),
                    dashboard_address=dashboard,
                    local_directory=partition.local_directory,
                    memory_limit=0,
                    env=dict(partition.environment.variables),
                    preload=[timers.__name__, ctrl_c.__name__],
                    silence_logs=logging.CRITICAL,  # of workers too, which share the terminal
                )
        except RuntimeError as error:  # a worker was killed before it was up
            problem = str(error)
    raise CantLaunch(f"local workers did not start in {STARTS} attempts: {problem}")


def start_slurm(
    site: Site,
    partition_name: str,
    job_name: str,
    log_folder: Path,
    tls_folder: Path,
    dashboard: str,
    errors: list[CantLaunch],
) -> SLURMCluster:
    """A scheduler on this host and a job for each worker, with TLS between them.

    The certificates are made for this cluster. While it runs they are in ``tls_folder``, which
    only the owner can read.
    """
    keywords = job_keywords(site, partition_name, job_name, str(log_folder))
    _check_interface(site, partition_name)
    tls_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        folder = open_folder(tls_folder)
    except NotOwned as error:
        raise CantLaunch(f"{error}, so no key can be kept there; remove it") from None
    os.fchmod(folder, 0o700)
    os.close(folder)
    # The worker's command line contains the files' paths, and dask-jobqueue does not quote them.
    if shlex.quote(str(tls_folder)) != str(tls_folder):
        raise CantLaunch(
            f"{tls_folder}: the store's path has characters that a job script cannot contain; "
            f"choose a path of letters, digits and . _ - /"
        )
    return SLURMCluster(
        job_cls=slurm_job_class(site, errors),  # type: ignore[arg-type]  # its annotation names an instance
        security=make_security(),
        protocol="tls://",
        shared_temp_directory=str(tls_folder),
        scheduler_options={"dashboard_address": dashboard},
        silence_logs="critical",
        **keywords,
    )


def _check_interface(site: Site, partition_name: str) -> None:
    """Raise SubmissionRefused if this host lacks the partition's network interface."""
    wanted = site.partitions[partition_name].interface
    existing = psutil.net_if_addrs()
    if wanted is not None and wanted not in existing:
        raise SubmissionRefused(
            f"{site.name}: partitions.{partition_name}.interface: this host has no network "
            f"interface {wanted!r}; it has {', '.join(sorted(existing))}"
        )


def configure_dask() -> None:
    """Configure Dask for campaigns, in this process."""
    dask.config.set(DASK_SETTINGS)
    # Lost workers are expected and handled; progress reports what a user needs to know.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
