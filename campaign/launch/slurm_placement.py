"""Compares the placement of a worker by Slurm with the planned one.

Slurm may run a job that was planned for one partition in another: by a plugin of the site, by an
administrator, or by an option in the site file's directives. Measurements there must not be stored
as those of the planned partition.
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
"""The variables of a job's environment. Slurm before 22.05 does not set the constraint."""
DIRECTIVES = {
    "partition": ("-p", "--partition"),
    "constraint": ("-C", "--constraint"),
    "node": ("-w", "--nodelist"),
}


class PlacementError(Exception):
    """A worker is not in its planned place. No point has failed."""


def planned_placement(
    name: str, partition: Partition, cluster: str | None, nodes: int = 1
) -> dict[str, Any]:
    """The planned placement of a partition's jobs. Its directives decide, as they do for sbatch.

    Args:
        name: the partition's name in the site file, and in Slurm if no directive names another.
        partition: the partition's entry.
        cluster: the name of the site's cluster, None if unknown.
        nodes: the number of nodes of a job.
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
    """Compare :func:`planned_placement` with Slurm's variables in the job of this process.

    One match in a list of partitions or nodes is enough, and the job must have all features of the
    planned constraint. A variable that Slurm does not set is not compared.

    Raises:
        PlacementError: they differ.
    """
    variables = os.environ if environment is None else environment
    for thing, variable in VARIABLES.items():
        expected, actual = planned[thing], variables.get(variable)
        if not expected or not actual:
            continue
        if thing == "constraint":
            matches = _features(expected) <= _features(actual)
        else:  # only Slurm can expand a list of nodes in brackets
            matches = actual in expected.split(",") or "[" in expected
        if not matches:
            raise PlacementError(
                f"Slurm runs the job of this worker in {thing} {actual!r} ({variable}), where "
                f"{expected!r} was planned; nothing is measured there"
            )


def _features(constraint: str) -> set[str]:
    return set(re.findall(r"[^\s&|,*()\[\]]+", constraint))
