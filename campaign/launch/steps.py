"""The job steps that a plan would start, to be shown before anything is submitted."""

from __future__ import annotations

import shlex

from campaign.measure.mpi import measuring_ranks, program_ranks, program_step_words
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import step_words
from campaign.plan.plan import Plan


def step_examples(plan: Plan, site: str, partition: str) -> list[str]:
    """The command of a step for each setting and number of ranks, without the program's arguments,
    and that of the step inside it where a user's program has ranks.

    Empty where points are measured in subprocesses of the worker.
    """
    entry = plan.sites[site]
    setup = PartitionSetup(entry, plan.campaign.protocol, ())
    cores = entry.partitions[partition].cores
    lines = []
    for point in plan.of_partition(site, partition):
        if entry.clocks.control == "slurm" or measuring_ranks(point, entry) > 1:
            words = step_words(point, setup, cores)
            lines.append(shlex.join(words) + " PYTHON -m campaign.measure ...")
        if program_ranks(point, entry) > 1:
            lines.append(shlex.join(program_step_words(point, entry, cores)) + " PROGRAM ...")
    return list(dict.fromkeys(lines))
