"""A clock that is set back delays nothing. Dask alone waits until the old time has come again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sites.site_file import Partition
from tests.campaign.local_workers import start_local
from tests.faults.shim import AtCall, environment

TASKS = """
from campaign.launch import timers
from distributed import Client, LocalCluster

pages = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
with LocalCluster(n_workers=1, processes=False, **pages) as cluster, Client(cluster) as client:
    print(sum(client.submit(abs, -i, pure=False).result(timeout=60) for i in range(100)))
"""

# Run in a process that has not imported campaign.launch.timers: it looks at what timers replaces.
REPLACED_PARTS = """
import inspect, json, types

def functions_that_name(module, name):
    # Functions and methods of a module whose code uses a name, as module.Class.method.
    pending = [(key, value) for key, value in vars(module).items()]
    users = []
    while pending:
        path, value = pending.pop()
        if inspect.isclass(value) and value.__module__ == module.__name__:
            pending += [(f"{path}.{key}", inner) for key, inner in vars(value).items()]
        elif inspect.isfunction(value) and value.__module__ == module.__name__:
            codes = [inspect.unwrap(value).__code__]
            while codes:
                code = codes.pop()
                codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
                if name in code.co_names:
                    users.append(path)
                    break
    return users

import distributed.batched, distributed.comm.core, distributed.metrics, tornado.ioloop
from tornado.platform.asyncio import AsyncIOLoop, BaseAsyncIOLoop

batched, core, metrics = distributed.batched, distributed.comm.core, distributed.metrics
IOLoop, PeriodicCallback = tornado.ioloop.IOLoop, tornado.ioloop.PeriodicCallback
print(json.dumps({
    "distributed.batched.time is distributed.metrics.time": batched.time is metrics.time,
    "distributed.batched.BatchedSend._background_send calls time()":
        "BatchedSend._background_send" in functions_that_name(batched, "time"),
    "distributed.batched: BatchedSend alone calls time()":
        {name.split(".")[0] for name in functions_that_name(batched, "time")} == {"BatchedSend"},
    "distributed.comm.core.time is distributed.metrics.time": core.time is metrics.time,
    "distributed.comm.core.connect calls time()": "connect" in functions_that_name(core, "time"),
    "distributed.metrics.time() has no parameters":
        metrics.time.__name__ == "time" and isinstance(metrics.time(), float),
    "tornado.ioloop.IOLoop.time(self)":
        list(inspect.signature(IOLoop.time).parameters) == ["self"],
    "tornado.platform.asyncio loops do not override IOLoop.time":
        AsyncIOLoop.time is BaseAsyncIOLoop.time is IOLoop.time,
    "tornado.platform.asyncio.BaseAsyncIOLoop.call_at uses self.time()":
        "time" in BaseAsyncIOLoop.call_at.__code__.co_names,
    "tornado.ioloop.PeriodicCallback._schedule_next uses the loop's time()":
        "time" in PeriodicCallback._schedule_next.__code__.co_names,
}))
"""


def test_the_parts_of_dask_that_are_replaced_are_where_they_were() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPLACED_PARTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"a part that campaign.launch.timers replaces: {done.stderr}"
    parts = json.loads(done.stdout)
    moved = [part for part, as_expected in parts.items() if not as_expected]
    assert moved == [], "these parts of Dask changed; adapt campaign/launch/timers.py"


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
    # A function of this module would make the worker import it, and with it campaign.launch.
    with start_local(Partition(), "127.0.0.1:0") as cluster, cluster.get_client() as client:
        names = client.run(lambda: __import__("distributed.batched").batched.time.__name__)
    assert set(names.values()) == {"monotonic"}
