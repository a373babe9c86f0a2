"""Workers as processes of this machine.

A terminal sends SIGINT to all of its processes. The driver handles it, and ends its workers. A
worker that handled it would print a traceback and lose the point that it measures.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

from distributed import LocalCluster, Worker
from distributed.diskutils import WorkSpace

from campaign.launch import timers
from campaign.launch.certificates import make_security
from campaign.launch.scheduler import LaunchError, Scheduler
from campaign.measure.subprocesses import remove_dead_scratch


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Block SIGINT, in the body, in this thread, in the threads that it starts, and in their
    processes, until these have called :func:`dask_setup`."""
    resource_tracker.ensure_running()  # its start would unblock SIGINT
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def dask_setup(worker: Worker) -> None:
    """Set, as Dask's preload of a worker, a handler of SIGINT that does nothing. If the worker
    ignored the signal, so would the programs that it starts."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


STARTS = 3
DASK_SCRATCH = "dask-scratch-space*"
"""The parent of the folders of Dask's workers, in a partition's ``local_directory``."""


class LocalScheduler(Scheduler):
    """Worker processes on this machine, one for each node of a partition."""

    title = "this machine"

    def start(
        self, partition: str, job_name: str, store: Path, dashboard: str, errors: list[LaunchError]
    ) -> LocalCluster:
        """Start workers with the partition's variables; all listen on loopback.

        They use TLS: every user of the machine can connect to loopback, and Dask runs what its
        sockets accept. The certificates stay in the memory of the driver and its workers.
        """
        entry = self.site.partitions[partition]
        for _ in range(STARTS):
            try:
                with held_back():
                    return LocalCluster(
                        n_workers=entry.nodes,
                        threads_per_worker=1,
                        processes=True,
                        host="tls://127.0.0.1",
                        protocol="tls://",
                        security=make_security(),
                        dashboard_address=dashboard,
                        local_directory=entry.local_directory,
                        memory_limit=0,
                        env=dict(entry.environment.variables),
                        preload=[timers.__name__, __name__],
                        silence_logs=logging.CRITICAL,  # of workers too, which share the terminal
                    )
            except RuntimeError as error:  # a worker was killed before it was up
                problem = str(error)
        raise LaunchError(f"local workers did not start in {STARTS} attempts: {problem}")

    def tidy(self, partition: str) -> None:
        """Remove the scratch folders of dead processes. On a job's node, the next worker does
        that."""
        folder = Path(self.site.partitions[partition].local_directory)
        remove_dead_scratch(folder)
        remove_dead_workers(folder)


def remove_dead_workers(folder: Path) -> None:
    """Remove the folders of dead Dask workers in ``folder``.

    A new worker does so as it starts; but without missing points none starts.
    """
    for scratch in folder.glob(DASK_SCRATCH):
        if scratch.is_dir() and os.access(scratch, os.W_OK):
            WorkSpace(str(scratch)).new_work_dir(prefix="tidy-").release()
