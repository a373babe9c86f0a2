"""Slurm's HDF5 profile of a job, merged by ``sh5util``: the power of each node, once a second.

``/Steps/STEP/Nodes/NODE/Energy`` has ``EpochTime``, truncated to seconds, and ``Power``, in whole
watts. All steps of a job record the same node, so only one reading per time is used.
``CPUFrequency``, if there is one, is a running mean from 0 and is not read.
"""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import Any

import numpy as np

from campaign.table.delimited import HDF5
from campaign.table.power_logs import NS, LogDescription, LoggedChannel
from dvfs.extras import explain_missing
from dvfs.files import open_regular
from dvfs.input_files import FileError, readable
from sites.meters import Channel

ABOUT = LogDescription(
    name="slurm-profile",
    tool="Slurm's profile (acct_gather_profile/hdf5)",
    versions="22.05.8, with acct_gather_energy/pm_counters",
    made_by="sh5util -j JOB of a job with --profile=Energy",
    traps="times are whole seconds, powers whole watts. Each step has the node's whole power",
)
SECOND_S = 1.0
"""The resolution of time stamps, which are truncated to seconds."""


def recognises(head: bytes) -> bool:
    """Whether the file is HDF5 with the groups of a profile."""
    return head.startswith(HDF5) and b"Steps" in head


def read(path: Path, zone: tzinfo | None) -> list[LoggedChannel]:
    """A channel for each node.

    Raises:
        FileError: the file is no merged profile.
        MissingExtraError: h5py is not installed.
    """
    with explain_missing():
        import h5py  # noqa: PLC0415
    steps_by_node: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    with readable(path):
        file = open_regular(path)
    try:
        with file, h5py.File(file, "r") as profile:
            for step in profile["Steps"].values():
                for node, series in step["Nodes"].items():
                    if "Energy" in series:
                        steps_by_node.setdefault(node, []).append(_series(series["Energy"]))
    except Exception as error:  # h5py may raise anything
        cause = f"is no profile of Slurm ({type(error).__name__}: {error})"
        raise FileError(cause, f"make it by: {ABOUT.made_by}", str(path)) from None
    return [_channel(node, steps) for node, steps in steps_by_node.items()]


def _series(data: Any) -> tuple[np.ndarray, np.ndarray]:
    table = data[:]
    return table["EpochTime"].astype(np.int64), table["Power"].astype(float)


def _channel(node: str, steps: list[tuple[np.ndarray, np.ndarray]]) -> LoggedChannel:
    seconds, power_w = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    distinct, first = np.unique(seconds, return_index=True)
    channel = Channel(
        name="node/power",
        domain="node",
        kind="power",
        resolution=1.0,
        period_s=float(np.median(np.diff(distinct))) if len(distinct) > 1 else SECOND_S,
        averaging_s=SECOND_S,
        stamped=True,
    )
    # A reading is from the second after its stamp: it is entered as the mean of that second.
    return LoggedChannel(channel, distinct * NS + NS, power_w[first], node=node)
