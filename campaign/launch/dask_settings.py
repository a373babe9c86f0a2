"""Dask's settings for campaigns."""

from __future__ import annotations

import logging
from typing import Any

import dask

LOOPBACK_DASHBOARD = "127.0.0.1:0"
DASK_SETTINGS: dict[str, Any] = {
    # A lost worker is removed at once, so that scaling up starts another one.
    "distributed.deploy.lost-worker-timeout": "1s",
    # The number of workers that may die with a task before it is given up.
    "distributed.scheduler.allowed-failures": 2,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.limit": "60s",
    # For each worker's connection the scheduler keeps the last messages, 1,000 by default, with
    # their tasks: 4 MB a worker.
    "distributed.admin.low-level-log-length": 10,
    "distributed.comm.timeouts.connect": "30s",
}


def configure_dask() -> None:
    """Configure Dask for campaigns, in this process."""
    dask.config.set(DASK_SETTINGS)
    # Lost workers are expected and handled; progress reports what a user needs to know.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
