"""The job steps that a plan would start, for people to look at before they submit."""

from __future__ import annotations

import shlex

from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import step_words
from campaign.plan.plan import Plan


def step_examples(plan: Plan, site: str, partition: str) -> list[str]:
    """One step a setting and number of ranks, as the worker would start it; program left out.

    Empty where points are measured in the worker's own subprocesses.
    """
    entry = plan.sites[site]
    job = PartitionSetup(entry, plan.campaign.protocol, ())
    cores = entry.partitions[partition].cores
    lines = []
    for point in plan.of_partition(site, partition):
        if entry.clocks.control == "slurm" or point.ranks > 1:
            words = step_words(point, job, cores)
            lines.append(shlex.join(words) + " PYTHON -m campaign.measure ...")
    return list(dict.fromkeys(lines))
