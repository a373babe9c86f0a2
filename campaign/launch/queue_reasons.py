"""Which of squeue's reasons say that a job can never start as it is, and what to change.

The words are those of squeue's manual (JOB REASON CODES) and of Slurm's job_state_reason_string.
Any other reason may pass: resources, priorities, other jobs of the same user, reservations, nodes
or partitions that are down.
"""

from __future__ import annotations

import re

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
"""Reason -> what to change."""


def remedy(reason: str) -> str | None:
    """What to change where a job with this reason can never start; None where it may start."""
    for words, change in REMEDIES:
        if re.fullmatch(words, reason):
            return change
    return None
