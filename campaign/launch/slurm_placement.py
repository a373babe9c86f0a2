"""Where Slurm has put a worker, compared with what was planned.

Slurm may move a job that was planned for one partition to another one: by a plugin of the site, by
an administrator, or by an option in the site file's directives. What is measured there must not be
stored as the planned partition's.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from sites.site_file import Partition

VARIABLES = {
    "cluster": "SLURM_CLUSTER_NAME",
    "partition": "SLURM_JOB_PARTITION",
    "constraint": "SLURM_JOB_CONSTRAINTS",
    "node": "SLURMD_NODENAME",
    "number of nodes": "SLURM_JOB_NUM_NODES",
}
"""What Slurm says in a job's environment. Slurm before 22.05 does not say the constraint."""
DIRECTIVES = {
    "partition": ("-p", "--partition"),
    "constraint": ("-C", "--constraint"),
    "node": ("-w", "--nodelist"),
}


class PlacementError(Exception):
    """A worker is not where its partition's jobs were planned. No point has failed."""


def planned_placement(
    name: str, partition: Partition, cluster: str | None, nodes: int = 1
) -> dict[str, Any]:
    """Where the jobs of a partition should run: its directives decide, as they do for sbatch.

    Args:
        name: the partition's name in the site file, and in Slurm where no directive names another.
        partition: its entry.
        cluster: the name of the site's cluster, None where it is unknown.
        nodes: how many a job has.
    """
    planned = {
        "cluster": cluster,
        "partition": name,
        "constraint": None,
        "node": None,
        "number of nodes": str(nodes),
    }
    words = [word for line in partition.directives for word in shlex.split(line)]
    for thing, (short, long) in DIRECTIVES.items():
        for i, word in enumerate(words):
            if word in (short, long):
                planned[thing] = words[i + 1] if i + 1 < len(words) else None
            elif word.startswith(f"{long}="):
                planned[thing] = word.partition("=")[2]
            elif word.startswith(short):
                planned[thing] = word.removeprefix(short)
    return planned


def check_placement(
    planned: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> None:
    """Compare :func:`planned_placement` with what Slurm says to the job of this process.

    Of a list of partitions or nodes one is enough, and all features of the planned constraint must
    be among those of the job. What Slurm does not say is not compared.

    Raises:
        PlacementError: it differs.
    """
    given = os.environ if environment is None else environment
    for thing, variable in VARIABLES.items():
        expected, found = planned[thing], given.get(variable)
        if not expected or not found:
            continue
        if thing == "constraint":
            right = _features(expected) <= _features(found)
        else:  # of a list of nodes in brackets only Slurm knows the names
            right = found in expected.split(",") or "[" in expected
        if not right:
            raise PlacementError(
                f"Slurm runs the job of this worker in {thing} {found!r} ({variable}), where "
                f"{expected!r} was planned; nothing is measured there"
            )


def _features(constraint: str) -> set[str]:
    return set(re.findall(r"[^\s&|,*()\[\]]+", constraint))
