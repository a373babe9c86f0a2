"""A clock that is set back holds nothing up: Dask alone waits until it has passed a mark again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from campaign.launch.clusters import start_local
from sites.site_file import Partition
from tests.faults.shim import AtCall, environment

TASKS = """
from campaign.launch import timers
from distributed import Client, LocalCluster

with (
    LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
    Client(cluster) as client,
):
    print(sum(client.submit(abs, -i, pure=False).result(timeout=60) for i in range(100)))
"""


@pytest.mark.parametrize("reading", [400, 900, 1300])
def test_tasks_go_on_when_the_clock_is_set_back_by_a_day(tmp_path: Path, reading: int) -> None:
    at_call = AtCall(
        prefix=tmp_path, act="clock", number=reading, jump_s=-86_400, log_path=tmp_path / "hit"
    )
    done = subprocess.run(
        [sys.executable, "-c", TASKS],
        env=environment(at_call),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert at_call.hits()
    assert done.stdout.split() == ["4950"], done.stderr


def test_workers_have_these_timers() -> None:
    # A function of this module would have the worker import it, and with it what is asked for.
    with start_local(Partition(), "127.0.0.1:0") as cluster, cluster.get_client() as client:
        told = client.run(lambda: __import__("distributed.batched").batched.time.__name__)
    assert set(told.values()) == {"monotonic"}
