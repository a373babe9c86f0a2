"""How tasks of a real Dask have ended: a result, an error, a task that was dropped, a worker that
died with the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import dask
import pytest
from distributed import Client, Nanny

from campaign.launch.campaign_run import TaskEnd, task_end
from sites.site_file import Partition
from tests.campaign.local_workers import start_local
from tests.waiting import wait_until


@pytest.fixture
def client() -> Iterator[Client]:
    """One worker in a process of its own, which is started again where it dies. A campaign that
    another test ran in this process would have it removed for good after a second."""
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "150s"}),
        start_local(Partition(), "127.0.0.1:0") as cluster,
        Client(cluster) as made,
    ):
        yield made


def test_a_result_and_an_error_are_taken(client: Client) -> None:
    added, divided = client.submit(sum, (2, 3)), client.submit(divmod, 1, 0)
    assert task_end(added, 20.0) == TaskEnd(5)
    end = task_end(divided, 20.0)
    assert end is not None
    assert end.result is None
    assert isinstance(end.error, ZeroDivisionError)


def test_a_task_that_is_dropped_while_its_result_is_awaited_has_neither(client: Client) -> None:
    future = client.submit(time.sleep, 60.0)
    threading.Timer(0.5, client.cancel, [future]).start()
    assert task_end(future, 20.0) == TaskEnd()
    assert task_end(future, 20.0) == TaskEnd()


def test_a_result_that_does_not_come_in_time_is_asked_for_again(client: Client) -> None:
    future = client.submit(time.sleep, 1.0)
    began_s = time.monotonic()
    assert task_end(future, 0.2) is None
    assert time.monotonic() - began_s < 1.0
    assert task_end(future, 20.0) == TaskEnd()


def test_a_result_that_was_asked_for_too_briefly_still_comes(client: Client) -> None:
    """Dask joins the requests for results of one client: one that was cancelled at a bad moment
    would spoil all later ones. A millisecond and less is such a moment in some of 600 trials."""
    futures = [client.submit(sum, (2, n)) for n in range(20)]
    for future in futures:
        for turn in range(30):
            if task_end(future, turn * 0.0002) is not None:
                break
    assert [task_end(future, 20.0) for future in futures] == [TaskEnd(2 + n) for n in range(20)]


def test_a_result_that_died_with_its_worker_is_computed_again(client: Client) -> None:
    future = client.submit(sum, (2, 3))
    assert task_end(future, 20.0) == TaskEnd(5)
    cluster = client.cluster
    assert cluster is not None
    (nanny,) = cluster.workers.values()
    assert isinstance(nanny, Nanny)
    assert nanny.process is not None
    nanny.process.process._process.kill()
    # Dask tries to reach the dead worker for 30 s, on a busy machine more than once.
    assert wait_until(lambda: task_end(future, 0.5), 150.0) == TaskEnd(5)
