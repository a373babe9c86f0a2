"""A driver as a Slurm job of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from campaign.errors import BadArgument
from campaign.launch.clusters import CantLaunch, call_slurm
from campaign.launch.detached import command_line
from campaign.launch.live_status import LiveStatus
from campaign.launch.slurm_queue import job_name, queued_jobs
from campaign.plan.plan import Plan
from campaign.store.layout import Store, driver_lock
from sites.site_file import Site

STOP_BEFORE_S = 120
"""The driver is interrupted so long before its job's time limit, and ends in order."""
SCRIPT = """\
#!/bin/bash
# The driver submits jobs of its own, which must not inherit what Slurm set for this one.
for name in ${{!SLURM_@}}; do [ "$name" = SLURM_CONF ] || unset "$name"; done
exec {command}
"""


def submission_options(text: str) -> list[str]:
    """The words of ``--submit-options``.

    Raises:
        BadArgument: a quote is not closed, or a word is no option.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadArgument(f"--submit-options {text!r}: {error}") from None
    for word in words:
        if not word.startswith("--"):
            raise BadArgument(
                f"--submit-options {text!r}: found {word!r}; must be options of sbatch in their "
                f"long form, such as --partition=cpu --time=2-00:00:00"
            )
    return words


def slurm_site(plan: Plan) -> Site:
    """The first site of the plan that has Slurm, where the driver's job is submitted.

    Raises:
        BadArgument: there is none.
    """
    for site, partition in plan.partitions:
        if plan.sites[site].partitions[partition].scheduler == "slurm":
            return plan.sites[site]
    raise BadArgument("--submit: no site of this campaign has Slurm; use --detach")


def submit_driver(
    *,
    site: Site,
    store: Store,
    live: LiveStatus,
    words: Sequence[str],
    log: Path,
    options: Sequence[str],
) -> str:
    """Submit this program with ``words`` as a job; the job's id.

    Raises:
        CantLaunch: Slurm does not accept it.
        BadArgument: a driver's job of this store is queued already.
        StoreBusy: a driver uses the store.
    """
    name = job_name(store.root, site.name, "")
    with driver_lock(store):
        for job in queued_jobs(site, [name]):
            if job.over:
                continue
            raise BadArgument(
                f"--submit: job {job.id} is a driver of this store ({job.state}); wait for it, or "
                f"cancel it: scancel {job.id}"
            )
        live.submitted(name)
    try:
        printed = call_slurm(
            site,
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            "--ntasks=1",
            f"--chdir={Path.cwd()}",
            f"--output={str(log).replace('%', '%%')}",
            "--open-mode=append",
            f"--signal=B:INT@{STOP_BEFORE_S}",
            *options,
            stdin=SCRIPT.format(command=shlex.join(command_line(words))),
        )
    except CantLaunch as error:
        live.end(1, f"the driver's job was not submitted: {error}")
        raise
    return printed.strip().partition(";")[0]
