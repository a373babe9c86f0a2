"""Scratch folders that killed workers left on this host."""

from __future__ import annotations

import os
from pathlib import Path

from distributed.diskutils import WorkSpace

from campaign.measure.subprocesses import remove_dead_scratch
from campaign.plan.plan import Plan

DASK_SCRATCH = "dask-scratch-space*"
"""Where Dask's workers have their folders, in a partition's ``local_directory``."""


def tidy_scratch(plan: Plan) -> None:
    """Remove scratch folders of dead processes on this host. On a Slurm node, its next worker
    does that."""
    for name, partition in plan.partitions:
        entry = plan.sites[name].partitions[partition]
        if entry.scheduler == "local":
            folder = Path(entry.local_directory)
            remove_dead_scratch(folder)
            remove_dead_workers(folder)


def remove_dead_workers(folder: Path) -> None:
    """Remove the folders of dead Dask workers in ``folder``.

    A new worker does so as it starts; where no point is missing, none starts.
    """
    for scratch in folder.glob(DASK_SCRATCH):
        if scratch.is_dir() and os.access(scratch, os.W_OK):
            WorkSpace(str(scratch)).new_work_dir(prefix="tidy-").release()
