"""A driver as a job."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from campaign.launch.detached import command_line
from campaign.launch.live_status import LiveStatus
from campaign.launch.scheduler import Phase, Scheduler, job_name, scheduler_of
from campaign.plan.plan import Plan
from campaign.store.layout import Store, driver_lock
from dvfs.errors import ArgumentError, UserError


def submission_options(text: str) -> list[str]:
    """The words of ``--submit-options``.

    Raises:
        ArgumentError: a quote is not closed, or a word is no option.
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
    """The first scheduler of the plan that has jobs, where the driver's job is submitted.

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
    """Submit this program with ``words`` as a job; the job's id.

    Raises:
        LaunchError: the scheduler does not accept it.
        ArgumentError: a driver's job of this store is queued already, or its workers want every
            node on which it can run.
        StoreBusyError: a driver uses the store.
    """
    site = scheduler.site
    name = job_name(store.root, site.name, "")
    workers = [
        partition
        for of_site, partition in plan.partitions
        if of_site == site.name and isinstance(scheduler_of(site, partition), type(scheduler))
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
