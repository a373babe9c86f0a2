"""A driver as a Slurm job of its own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaign.launch.detached import command_line
from campaign.launch.live_status import LiveStatus
from campaign.launch.placement import planned_placement
from campaign.launch.slurm import CantLaunch, call_slurm, job_name, queued_jobs, submit
from campaign.plan.plan import Plan
from campaign.store.layout import Store, driver_lock
from dvfs.errors import BadArgument
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


def away_from_workers(plan: Plan, site: Site, options: Sequence[str]) -> list[str]:
    """The option that keeps the driver's job off the nodes for which the workers of a plan wait;
    none where they leave it a node, or where the options choose the node.

    Raises:
        BadArgument: the workers want every node on which the driver's job can run.
        CantLaunch: sinfo failed, or did not answer in time.
    """
    if any(word.startswith(("--nodelist", "--nodefile", "--exclude")) for word in options):
        return []
    nodes: dict[str, set[str]] = {}
    default = ""
    for line in call_slurm(site, "sinfo", "--noheader", "--Node", "--format=%N|%P").splitlines():
        node, _, name = line.strip().partition("|")
        default = name.removesuffix("*") if name.endswith("*") else default
        nodes.setdefault(name.removesuffix("*"), set()).add(node)
    own = [word.partition("=")[2] for word in options if word.startswith("--partition=")]
    for_driver = _nodes_of(own[-1] if own else default, nodes)
    wanted: set[str] = set()
    for name, partition in site.partitions.items():
        if (site.name, name) not in plan.partitions or partition.scheduler != "slurm":
            continue
        for_workers = _nodes_of(planned_placement(name, partition, None)["partition"], nodes)
        if for_driver & for_workers and len(for_workers) <= partition.nodes:
            wanted |= for_workers
    if for_driver and for_driver <= wanted:
        raise BadArgument(
            f"--submit: the driver's job would take one of the {len(for_driver)} nodes for which "
            f"its workers wait; name another partition, such as "
            f"--submit-options=--partition=OTHER, or have fewer nodes measure (key nodes of the "
            f"partition in the site file), or run the driver on this host with --detach"
        )
    taken = sorted(for_driver & wanted)
    return [f"--exclude={','.join(taken)}"] if taken else []


def _nodes_of(partitions: str, nodes: Mapping[str, set[str]]) -> set[str]:
    """The nodes of partitions, a list as sbatch takes it."""
    return set().union(*(nodes.get(name, set()) for name in partitions.split(",")))


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
        return submit(
            site,
            SCRIPT.format(command=shlex.join(command_line(words))),
            f"--job-name={name}",
            "--ntasks=1",
            f"--chdir={Path.cwd()}",
            f"--output={str(log).replace('%', '%%')}",
            "--open-mode=append",
            f"--signal=B:INT@{STOP_BEFORE_S}",
            *options,
        )
    except CantLaunch as error:
        live.end(1, f"the driver's job was not submitted: {error}")
        raise
