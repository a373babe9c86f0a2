"""Examining a node of a partition through one short job."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from campaign.doctor.node_examination import NodeExamination
from campaign.launch.scheduler import LaunchError, scheduler_of
from sites.site_file import Site

JOB_MINUTES = 10
JOB_TIMEOUT_S = 1800.0
"""The most time of the job, in the queue and on its node."""
MAX_OUTPUT_CHARS = 500


def examine_partition(site: Site, site_path: Path, partition_name: str) -> NodeExamination:
    """Examine the meters and clocks of a node of a partition.

    Args:
        site: the site.
        site_path: its file, which the node must be able to read under this path.
        partition_name: one of the site's partitions that have jobs.

    Raises:
        LaunchError: the job could not be started, failed, or did not end in time.
    """
    entry = site.partitions[partition_name]
    python = shlex.quote(entry.environment.python or sys.executable)
    path = shlex.quote(str(site_path.resolve()))
    printed = scheduler_of(site, partition_name).run_in_job(
        partition_name,
        f"campaign-doctor-{secrets.token_hex(4)}",
        f"{python} -m campaign.doctor.node_examination {path}",
        JOB_MINUTES,
        JOB_TIMEOUT_S,
    )
    begin = printed.find("{")  # modules may print lines before it
    if begin < 0:
        end = printed.strip()[-MAX_OUTPUT_CHARS:]
        raise LaunchError(f"{site.name}/{partition_name}: the job printed no examination: {end}")
    examination = NodeExamination.from_dict(json.loads(printed[begin:]))
    return replace(examination, partition=partition_name)
