"""The job scripts that a plan would submit, for people to read before they submit them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from campaign.launch.clusters import job_script
from campaign.launch.slurm import job_name
from campaign.launch.steps import step_examples
from campaign.plan.plan import Plan


def default_store(campaign: Path) -> Path:
    """The store of a campaign file that names none: beside it, by its name."""
    return campaign.with_name(campaign.stem + ".store")


def job_scripts(plan: Plan, store: Path) -> dict[str, dict[str, Any]]:
    """Site/partition -> ``jobs`` (how many), ``script`` and ``steps`` (examples of job steps)."""
    scripts = {}
    for site, partition in plan.partitions:
        entry = plan.sites[site].partitions[partition]
        if entry.scheduler == "slurm":
            scripts[f"{site}/{partition}"] = {
                "jobs": plan.sites[site].workers(partition),
                "script": job_script(plan.sites[site], partition, job_name(store, site, partition)),
                "steps": step_examples(plan, site, partition),
            }
    return scripts
