"""Workers in Slurm jobs: scripts, submission, the queue, and remedies for jobs that cannot start.

Slurm's commands run without the user's variables of Slurm (:mod:`sites.slurm_environment`), and
print in their parsable form. Only jobs of this user with a name of the campaign are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import psutil
from dask.utils import parse_bytes
from distributed.core import Status

from campaign.launch import timers
from campaign.launch.certificates import make_security
from campaign.launch.dask_settings import LOOPBACK_DASHBOARD
from campaign.launch.interrupts import ignore_further, keeping_handler
from campaign.launch.scheduler import LaunchError, Phase, QueuedJob, Scheduler, SubmissionError
from campaign.launch.slurm_placement import planned_placement
from campaign.plan.estimate import walltime_s
from campaign.store.hours import JobTime
from dvfs.errors import ArgumentError
from sites.clocks.shared.private_files import OwnershipError, open_folder
from sites.site_file import Partition
from sites.slurm_clocks import read_configuration
from sites.slurm_environment import REMOTE, run_slurm, slurm_environment

with keeping_handler():  # dask_jobqueue.runner sets one that ends the process with 0
    from dask_jobqueue.slurm import SLURMCluster, SLURMJob, slurm_format_bytes_ceil

CALL_TIMEOUT_S = 60.0
NOT_SHOWN = "***"
MAX_OUTPUT_CHARS = 500
NOT_NOW = re.compile(
    "unable to contact|timed out|connection refused|zero bytes|temporarily"
    "|partition (configuration )?not available|MaxSubmit",
    re.IGNORECASE,
)
"""sbatch's errors when the controller does not answer, a partition is down, or a user has too many
jobs: submission is repeated."""
JOB_ID = re.compile(r"^(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?\s*$", re.MULTILINE)
"""The line with a job's id, by ``sbatch --parsable`` and without it. A site may print other lines
before it."""
FORMAT = "%i|%j|%T|%M|%D|%r"
"""Id, name, state, elapsed time, nodes, and the reason, a line of any characters."""
JOB_LINE = re.compile(r"^(\d+)\|([^|\n]+)\|(\w+)\|([^|\n]*)\|([^|\n]*)\|(.*)$", re.MULTILINE)
ELAPSED = re.compile(r"(\d+-)?\d+(:\d+){1,2}")
PHASES = {
    "PENDING": Phase.WAITING,
    "RUNNING": Phase.RUNNING,
    "COMPLETING": Phase.ENDING,
    **dict.fromkeys(
        (
            *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
            *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
        ),
        Phase.OVER,
    ),
}
"""squeue's state (its manual, JOB STATE CODES) -> the phase. Slurm lists a job for some time after
its end (MinJobAge)."""
REMEDIES = (
    (
        r"PartitionTimeLimit|.*MaxWallDurationPerJobLimit|QOSTimeLimit|AssociationTimeLimit",
        "set a shorter walltime in the site file",
    ),
    (
        r"PartitionNodeLimit|PartitionConfig",
        "the partition's limits or nodes do not allow a job of one node; see: scontrol show "
        "partition; then correct the site file or name another partition",
    ),
    (r"MaxMemPerLimit|(Assoc|QOS)MaxMem(ory)?Per(Job|Node)", "set less memory in the site file"),
    (
        r"(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?",
        "ask for less in the site file (cores, memory, walltime), or set another account or qos",
    ),
    (r"QOSMin\w+", "ask for more cores or memory in the site file, or set another qos"),
    (r"AccountNotAllowed|InvalidAccount", "set an account that the partition allows"),
    (r"QOSNotAllowed|InvalidQOS", "set a qos that the partition and the account allow"),
    (
        r"BadConstraints|DependencyNeverSatisfied|ReservationDeleted|DeadLine",
        "correct the partition's directives, cores or memory in the site file",
    ),
)
"""Reasons for which an unchanged job can never start (squeue's manual, JOB REASON CODES, and
Slurm's job_state_reason_string), and the remedies. Any other reason may pass: resources,
priorities, other jobs of the same user, reservations, nodes or partitions that are down."""
STOP_BEFORE_S = 120
"""The time before its job's limit at which the driver is interrupted, so that it ends cleanly."""
DRIVER_SCRIPT = """\
#!/bin/bash
# The driver submits jobs of its own, which must not inherit what Slurm set for this one.
for name in ${{!SLURM_@}}; do [ "$name" = SLURM_CONF ] || unset "$name"; done
exec {command}
"""


class SlurmScheduler(Scheduler):
    """The Slurm of a site, reached from this host."""

    title = "Slurm"
    has_jobs = True

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """The command line of one of Slurm's commands, and its environment.

        With a prefix, such as ssh, the command line also cleans the environment. ssh passes its
        command to a shell of the other host, so that it is quoted as one word.
        """
        slurm = self.site.slurm
        prefix = list(slurm.submit_prefix)
        if not prefix:
            return list(words), slurm_environment(conf=slurm.conf)
        command = ["sh", "-c", REMOTE, "sh"]
        if slurm.conf is not None:
            command += ["env", f"SLURM_CONF={slurm.conf}"]
        command += words
        if Path(prefix[0]).name == "ssh":
            command = [shlex.join(command)]
        return [*prefix, *command], slurm_environment()

    def call(self, *words: str, stdin: str = "") -> str:
        """Run one of Slurm's commands with a text as its input, and return its output.

        Raises:
            LaunchError: the command failed, or did not answer in time.
        """
        argv, environment = self.command(*words)
        name = self.site.name
        try:
            result = run_slurm(argv, environment, CALL_TIMEOUT_S, stdin)
        except FileNotFoundError:
            raise LaunchError(
                f"{name}: {argv[0]} is not on this host; run where Slurm's commands are, or set "
                f"slurm.submit_prefix in the site file"
            ) from None
        except subprocess.TimeoutExpired:
            raise LaunchError(
                f"{name}: {words[0]} did not answer in {CALL_TIMEOUT_S:g} s; is the controller up?"
            ) from None
        if result.returncode != 0:
            output = _with_remedy(result.stderr.strip() or result.stdout.strip())
            raise LaunchError(f"{name}: {words[0]}: {output}")
        return result.stdout

    def cluster_name(self) -> str | None:
        """The name that scontrol prints."""
        try:
            printed = self.call("scontrol", "show", "config")
        except LaunchError:
            return None
        return read_configuration(printed).get("ClusterName")

    def placement(self, partition: str, cluster: str | None) -> dict[str, Any]:
        """See :mod:`campaign.launch.slurm_placement`."""
        entry = self.site.partitions[partition]
        return planned_placement(partition, entry, cluster, self.site.nodes_per_point)

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script by its text, not as a file of this host; return the job's id.

        Raises:
            SubmissionError: Slurm does not accept the job, or sbatch's output has no id.
            LaunchError: Slurm does not accept it now.
        """
        try:
            printed = self.call("sbatch", "--parsable", *options, stdin=script)
        except LaunchError as error:
            raise error if NOT_NOW.search(str(error)) else SubmissionError(str(error)) from None
        ids = JOB_ID.findall(printed)
        if not ids:
            raise SubmissionError(
                f"{self.site.name}: sbatch: no line of its output is a job's id: "
                f"{printed.strip()!r}"
            )
        return str(ids[-1])

    def queued_jobs(self, names: Iterable[str]) -> tuple[QueuedJob, ...]:
        """The jobs that squeue lists."""
        return jobs_listed(
            self.call(
                "squeue",
                "--me",
                "--noheader",
                "--states=all",
                f"--name={','.join(names)}",
                f"--format={FORMAT}",
            )
        )

    def cancel_jobs(
        self, names: Sequence[str], only_id: str | None = None
    ) -> tuple[QueuedJob, ...]:
        """Cancel by scancel."""
        jobs = self.queued_jobs(names)
        to_cancel = [
            job.id for job in jobs if job.phase != Phase.OVER and only_id in (None, job.id)
        ]
        if to_cancel:
            self.call("scancel", *to_cancel)
        return tuple(
            replace(job, phase=Phase.ENDING, time=job.time.model_copy(update={"ended": True}))
            if job.id in to_cancel
            else job
            for job in jobs
        )

    def remedy(self, reason: str) -> str | None:
        """See :data:`REMEDIES`."""
        for pattern, change in REMEDIES:
            if re.fullmatch(pattern, reason):
                return change
        return None

    def job_script(self, partition: str, job_name: str) -> str:
        """The job script of a partition, for display. A running campaign fills in the scheduler's
        address, the certificates' paths, the worker's name and the values of secrets."""
        shown = self._without_secrets(partition)
        job = shown.job_class()(
            scheduler="SCHEDULER",
            name="WORKER",
            **shown.job_keywords(partition, job_name, "STORE/logs"),
        )
        return _script_of(job)

    def _without_secrets(self, partition: str) -> Self:
        """A copy with :data:`NOT_SHOWN` in place of each value that the partition calls secret."""
        entry = self.site.partitions[partition]
        environment = entry.environment
        shown = environment.variables | dict.fromkeys(environment.secrets, NOT_SHOWN)
        environment = environment.model_copy(update={"variables": shown})
        entry = entry.model_copy(update={"environment": environment})
        partitions = self.site.partitions | {partition: entry}
        return type(self)(self.site.model_copy(update={"partitions": partitions}))

    def job_class(self, errors: list[LaunchError] | None = None) -> type[SLURMJob]:
        """A class of dask-jobqueue's jobs that this object submits and cancels.

        It appends sbatch's errors to ``errors``, because Dask's cluster does not report them.
        """
        slurm = self

        class SiteJob(SLURMJob):
            @contextlib.contextmanager
            def job_file(self) -> Iterator[str]:
                """Write no file, and no line in a log: the script may contain secret values."""
                yield ""

            async def _submit_job(self, script_filename: str) -> str:
                try:
                    return await asyncio.to_thread(slurm.submit, _script_of(self))
                except LaunchError as error:
                    if errors is not None:
                        errors.append(error)
                    raise

            async def close(self) -> None:
                if self.job_id:
                    with contextlib.suppress(LaunchError):  # the run's end cancels all jobs by name
                        await asyncio.to_thread(slurm.cancel_jobs, [self.job_name], self.job_id)
                # dask-jobqueue does not set this, and SpecCluster asserts it
                self.status = Status.closed

        return SiteJob

    def job_keywords(self, partition: str, job_name: str, log_folder: str | None) -> dict[str, Any]:
        """dask-jobqueue's keywords for a partition's jobs, each with one worker, on its first
        node."""
        entry = self.site.partitions[partition]
        # The driver replaces a lost job. A requeued one would run in addition, after two minutes.
        nodes = self.site.nodes_per_point
        directives = [f"-N {nodes}", "--no-requeue"]
        if nodes > 1:  # dask-jobqueue asks for one task, and the last of two options counts
            directives.append(f"--ntasks={nodes}")
        if entry.exclusive:
            directives.append("--exclusive")
        if entry.account is not None:
            directives.append(f"--account={shlex.quote(entry.account)}")
        if entry.qos is not None:
            directives.append(f"--qos={shlex.quote(entry.qos)}")
        if log_folder is not None:
            # % begins a field in the name, and %% is a %
            directives.append(f"-o {shlex.quote(log_folder.replace('%', '%%') + '/%x-%j.log')}")
        directives += entry.directives
        return {
            "queue": partition,
            "walltime": entry.walltime,
            "cores": 1,
            "job_cpu": entry.cores,
            "processes": 1,
            "job_mem": slurm_format_bytes_ceil(parse_bytes(entry.memory)),
            # No limit: Dask must not pause a worker for the memory that a kernel or the node needs.
            "memory": "0B",
            "job_name": job_name,
            "job_extra_directives": directives,
            "job_script_prologue": prologue(entry),
            "python": shlex.quote(entry.environment.python or sys.executable),
            "local_directory": shlex.quote(entry.local_directory),
            "interface": entry.interface,
            "nanny": False,
            "death_timeout": 60,
            "worker_extra_args": [
                *("--no-dashboard", "--dashboard-address", LOOPBACK_DASHBOARD),
                *("--preload", timers.__name__),
            ],
        }

    def start(
        self, partition: str, job_name: str, store: Path, dashboard: str, errors: list[LaunchError]
    ) -> SLURMCluster:
        """Start a job for each worker, with TLS between workers and scheduler.

        The cluster has new certificates. While it runs they are in the store's folder ``tls``,
        which only the owner can read.
        """
        logs, tls = store / "logs", store / "tls"
        logs.mkdir(parents=True, exist_ok=True)
        keywords = self.job_keywords(partition, job_name, str(logs))
        self._check_interface(partition)
        tls.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folder = open_folder(tls)
        except OwnershipError as error:
            raise LaunchError(f"{error}, so no key can be kept there; remove it") from None
        os.fchmod(folder, 0o700)
        os.close(folder)
        # The worker's command line contains the files' paths, and dask-jobqueue does not quote
        # them.
        if shlex.quote(str(tls)) != str(tls):
            raise LaunchError(
                f"{tls}: the store's path has characters that a job script cannot contain; choose "
                f"a path of letters, digits and . _ - /"
            )
        return SLURMCluster(
            job_cls=self.job_class(errors),  # type: ignore[arg-type]  # its annotation names an instance
            security=make_security(),
            protocol="tls://",
            shared_temp_directory=str(tls),
            scheduler_options={"dashboard_address": dashboard},
            silence_logs="critical",
            **keywords,
        )

    def _check_interface(self, partition: str) -> None:
        """Raise SubmissionError if this host lacks the partition's network interface."""
        interface = self.site.partitions[partition].interface
        existing = psutil.net_if_addrs()
        if interface is not None and interface not in existing:
            raise SubmissionError(
                f"{self.site.name}: partitions.{partition}.interface: this host has no network "
                f"interface {interface!r}; it has {', '.join(sorted(existing))}"
            )

    def run_in_job(
        self, partition: str, job_name: str, script: str, minutes: int, timeout_s: float
    ) -> str:
        """Run by srun, after loading the partition's modules and setting its variables."""
        entry = self.site.partitions[partition]
        options = _srun_options(entry, partition, minutes)
        argv, environment = self.command("srun", *options, f"--job-name={job_name}", "bash", "-s")
        where = f"{self.site.name}/{partition}"
        try:
            text = "\n".join([*prologue(entry), script]) + "\n"
            result = run_slurm(argv, environment, timeout_s, text)
        except FileNotFoundError:
            raise LaunchError(
                f"{where}: {argv[0]} is not on this host; run where Slurm's commands are, or "
                f"examine only this node with --here"
            ) from None
        except KeyboardInterrupt:
            ignore_further()
            self._cancel_quietly(job_name)
            raise
        except subprocess.TimeoutExpired:
            self._cancel_quietly(job_name)
            raise LaunchError(f"{where}: the job did not end within {timeout_s:g} s") from None
        if result.returncode != 0:
            output = (result.stderr.strip() or result.stdout.strip())[-MAX_OUTPUT_CHARS:]
            raise LaunchError(
                f"{where}: srun ended with {result.returncode}: {_with_remedy(output)}"
            )
        return result.stdout

    def _cancel_quietly(self, job_name: str) -> None:
        """Remove the job from the queue; a signal to this host's srun may not have reached it."""
        with contextlib.suppress(LaunchError):
            self.cancel_jobs([job_name])

    def submit_driver(
        self,
        command: Sequence[str],
        name: str,
        log: Path,
        options: Sequence[str],
        workers: Iterable[str],
    ) -> str:
        """Submit by sbatch."""
        return self.submit(
            DRIVER_SCRIPT.format(command=shlex.join(command)),
            f"--job-name={name}",
            "--ntasks=1",
            f"--chdir={Path.cwd()}",
            f"--output={str(log).replace('%', '%%')}",
            "--open-mode=append",
            f"--signal=B:INT@{STOP_BEFORE_S}",
            *options,
            *self.away_from_workers(options, workers),
        )

    def away_from_workers(self, options: Sequence[str], workers: Iterable[str]) -> list[str]:
        """The option that keeps a driver's job off the nodes for which the workers of partitions
        wait; none if the workers leave a node free, or if the options choose the node.

        Raises:
            ArgumentError: the workers need every node on which the driver's job can run.
            LaunchError: sinfo failed, or did not answer in time.
        """
        if any(word.startswith(("--nodelist", "--nodefile", "--exclude")) for word in options):
            return []
        nodes: dict[str, set[str]] = {}
        default = ""
        for line in self.call("sinfo", "--noheader", "--Node", "--format=%N|%P").splitlines():
            node, _, name = line.strip().partition("|")
            default = name.removesuffix("*") if name.endswith("*") else default
            nodes.setdefault(name.removesuffix("*"), set()).add(node)
        partitions = [word.partition("=")[2] for word in options if word.startswith("--partition=")]
        for_driver = _nodes_of(partitions[-1] if partitions else default, nodes)
        reserved: set[str] = set()
        for name in workers:
            entry = self.site.partitions[name]
            for_workers = _nodes_of(planned_placement(name, entry, None)["partition"], nodes)
            if for_driver & for_workers and len(for_workers) <= entry.nodes:
                reserved |= for_workers
        if for_driver and for_driver <= reserved:
            raise ArgumentError(
                f"--submit: the driver's job would take one of the {len(for_driver)} nodes for "
                f"which its workers wait; name another partition, such as "
                f"--submit-options=--partition=OTHER, or have fewer nodes measure (key nodes of "
                f"the partition in the site file), or run the driver on this host with --detach"
            )
        excluded = sorted(for_driver & reserved)
        return [f"--exclude={','.join(excluded)}"] if excluded else []


def _script_of(job: SLURMJob) -> str:
    script: str = job.job_script()
    return script


def jobs_listed(printed: str) -> tuple[QueuedJob, ...]:
    """The jobs in squeue's output in :data:`FORMAT`."""
    jobs = []
    for job_id, name, state, elapsed, nodes, reason in JOB_LINE.findall(printed):
        has_elapsed = ELAPSED.fullmatch(elapsed) is not None
        phase = PHASES.get(state, Phase.OTHER)
        # Slurm stops counting when a job begins to end.
        time = JobTime(
            elapsed_s=walltime_s(elapsed) if has_elapsed else 0.0,
            nodes=int(nodes) if nodes.isdecimal() else 1,
            ended=has_elapsed and phase in (Phase.ENDING, Phase.OVER),
        )
        jobs.append(
            QueuedJob(
                id=job_id,
                name=name,
                phase=phase,
                state=state,
                reason=reason.strip(),
                time=time,
                held=reason.strip().endswith("requeued held"),  # its launch failed
            )
        )
    return tuple(jobs)


def prologue(partition: Partition) -> list[str]:
    """The first lines of a job script: modules and variables, quoted for the shell.

    A module that cannot be loaded ends the job with the status of ``module load``.
    """
    lines = [f"module load {shlex.quote(name)} || exit" for name in partition.environment.modules]
    lines += [
        f"export {name}={shlex.quote(value)}"
        for name, value in partition.environment.variables.items()
    ]
    return lines


def _with_remedy(output: str) -> str:
    """The output of a failed Slurm command, with a remedy if it cannot reach a Slurm."""
    if "Could not establish a configuration source" not in output:
        return output
    return (
        f"{output}; Slurm cannot be reached from this host; run on a login node, or set slurm.conf "
        f"or slurm.submit_prefix in the site file"
    )


def _srun_options(partition: Partition, name: str, minutes: int) -> list[str]:
    options = [f"--partition={name}", "--nodes=1", "--ntasks=1", f"--time={minutes}"]
    options += ["--quiet", "--mpi=none", "--export=ALL"]
    if partition.exclusive:
        options.append("--exclusive")
    if partition.account is not None:
        options.append(f"--account={partition.account}")
    if partition.qos is not None:
        options.append(f"--qos={partition.qos}")
    return [*options, *(word for line in partition.directives for word in shlex.split(line))]


def _nodes_of(partitions: str, nodes: Mapping[str, set[str]]) -> set[str]:
    """The nodes of partitions, whose names are joined by commas as for sbatch."""
    return set().union(*(nodes.get(name, set()) for name in partitions.split(",")))
