"""A driver that outlives the terminal: a process in a separate session, or a job."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from campaign.launch.live_status import LiveStatus
from campaign.launch.scheduler import Phase, Scheduler, job_name, scheduler_of
from campaign.launch.snapshot import ENDING, MEASURING, read_snapshot
from campaign.plan.plan import Plan
from campaign.store.layout import Store, driver_lock
from dvfs.errors import ArgumentError, UserError

LOOK_S = 0.1


def driver_log(store: Store) -> Path:
    """The output file of a driver without a terminal; creates its folder."""
    log = store.root / "logs" / "driver.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


def command_line(words: Sequence[str]) -> list[str]:
    """The command line of this program with the present interpreter. ``-P``: it does not run a
    folder ``campaign`` in the working directory instead."""
    return [sys.executable, "-P", "-m", "campaign", *words]


def start_detached(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start this program with ``words`` in a separate session. SIGHUP does not end it, and its
    output is appended to ``log``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a new process inherits
    try:
        # O_NOFOLLOW: another user of the store's group may have put a link there.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(log, flags, 0o666), "ab") as output:
            return subprocess.Popen(
                command_line(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    finally:
        signal.signal(signal.SIGHUP, before)


def wait_until_measuring(process: subprocess.Popen[bytes], store: Store) -> int | None:
    """Wait until a driver measures. Returns None, or the exit code if the driver has ended."""
    while True:
        exit_code = process.poll()
        if exit_code is not None:
            return exit_code
        snapshot = read_snapshot(store)
        if (
            snapshot is not None
            and snapshot.pid == process.pid
            and snapshot.phase in (MEASURING, ENDING)
        ):
            return None
        time.sleep(LOOK_S)


def submission_options(text: str) -> list[str]:
    """The words of ``--submit-options``.

    Raises:
        ArgumentError: a quote is not closed, or a word is not an option.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ArgumentError(f"--submit-options {text!r}: {error}") from None
    for word in words:
        if not word.startswith("--"):
            raise ArgumentError(
                f"--submit-options {text!r}: found {word!r}; must be options of sbatch in their "
                f"long form, such as --partition=cpu --time=2-00:00:00"
            )
    return words


def driver_scheduler(plan: Plan) -> Scheduler:
    """The first scheduler of the plan that has jobs. The driver's job is submitted to it.

    Raises:
        ArgumentError: there is none.
    """
    for site, partition in plan.partitions:
        scheduler = scheduler_of(plan.sites[site], partition)
        if scheduler.has_jobs:
            return scheduler
    raise ArgumentError("--submit: no site of this campaign has Slurm; use --detach")


def submit_driver(
    *,
    scheduler: Scheduler,
    plan: Plan,
    store: Store,
    live: LiveStatus,
    words: Sequence[str],
    log: Path,
    options: Sequence[str],
) -> str:
    """Submit this program with ``words`` as a job, and return the job's id.

    Raises:
        LaunchError: the scheduler does not accept the job.
        ArgumentError: a driver's job of this store is queued already, or its workers need every
            node on which it can run.
        StoreBusyError: a driver uses the store.
    """
    site = scheduler.site
    name = job_name(store.root, site.name, "")
    workers = [
        partition
        for site_name, partition in plan.partitions
        if site_name == site.name and isinstance(scheduler_of(site, partition), type(scheduler))
    ]
    with driver_lock(store):
        for job in scheduler.queued_jobs([name]):
            if job.phase == Phase.OVER:
                continue
            raise ArgumentError(
                f"--submit: job {job.id} is a driver of this store ({job.state}); wait for it, or "
                f"cancel it: scancel {job.id}"
            )
        live.submitted(name)
    try:
        return scheduler.submit_driver(command_line(words), name, log, options, workers)
    except UserError as error:
        live.end(1, f"the driver's job was not submitted: {error}")
        raise
