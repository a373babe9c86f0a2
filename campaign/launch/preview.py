"""The job scripts and job steps of a plan, for people to read before anything is submitted."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from campaign.launch.scheduler import job_name, scheduler_of
from campaign.measure.mpi import measuring_ranks, program_ranks, program_step_words
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import step_words
from campaign.plan.plan import Plan


def default_store(campaign: Path) -> Path:
    """The default store of a campaign file: in its folder, with its name."""
    return campaign.with_name(campaign.stem + ".store")


def job_scripts(plan: Plan, store: Path) -> dict[str, dict[str, Any]]:
    """Site/partition -> ``jobs`` (their number), ``script`` and ``steps`` (examples of steps)."""
    scripts = {}
    for site, partition in plan.partitions:
        name = job_name(store, site, partition)
        script = scheduler_of(plan.sites[site], partition).job_script(partition, name)
        if script:
            scripts[f"{site}/{partition}"] = {
                "jobs": plan.sites[site].workers(partition),
                "script": script,
                "steps": step_examples(plan, site, partition),
            }
    return scripts


def step_examples(plan: Plan, site: str, partition: str) -> list[str]:
    """The command of a step for each setting and number of ranks, without the program's arguments,
    and that of the step inside it if a user's program has ranks.

    Empty if points are measured in subprocesses of the worker.
    """
    entry = plan.sites[site]
    setup = PartitionSetup(entry, plan.campaign.protocol, ())
    cores = entry.partitions[partition].cores
    lines = []
    for point in plan.of_partition(site, partition):
        if entry.clocks.in_steps or measuring_ranks(point, entry) > 1:
            words = step_words(point, setup, cores)
            lines.append(shlex.join(words) + " PYTHON -m campaign.measure ...")
        if program_ranks(point, entry) > 1:
            lines.append(shlex.join(program_step_words(point, entry, cores)) + " PROGRAM ...")
    return list(dict.fromkeys(lines))
