"""A JSON file is written whole or not at all, whenever its writer is killed or its disk is full."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.store.layout import create_store, driver_lock, open_store
from tests.faults.shim import AtCall, environment

ROOT = Path(__file__).parents[2]
CODE = """
import json, os, sys
from pathlib import Path
from campaign.store.layout import open_store
from tests.faults.shim import arm
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        store = open_store(Path(asked["store"]))
        arm(asked["variables"])
        try:
            store.write_json("fits/a.json", {"value": 2})
            store.list_index()
        except OSError:
            os._exit(1)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.parametrize("is_new", [True, False])
def test_killed_or_full_at_any_call_a_reader_finds_the_old_or_the_new_value(tmp_path, is_new):
    whole = create_store(tmp_path / "whole", "test").root
    if not is_new:
        open_store(whole).write_json("fits/a.json", {"value": 1})
    old = None if is_new else {"value": 1}
    server = subprocess.Popen(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    log, victim = tmp_path / "log", tmp_path / "victim"
    count = AtCall(prefix=victim, act="count", log_path=log)

    def write(at_call: AtCall) -> int:
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(whole, victim)
        asked = {"store": str(victim), "variables": at_call.variables()}
        print(json.dumps(asked), file=server.stdin, flush=True)
        assert server.stdout is not None
        return int(server.stdout.readline())

    assert write(count) == 0
    calls = len(count.hits())
    assert calls > 8
    faults = [replace(count, act=act, log_path=None) for act in ("kill-before", "kill-after")]
    faults += [
        replace(count, act="errno", error=error, always=True, log_path=None)
        for error in ("ENOSPC", "EIO")
    ]
    found = set()
    for fault in faults:
        for number in range(1, calls + 1):
            write(replace(fault, number=number))
            value = open_store(victim).read_json("fits/a.json")
            assert value in (old, {"value": 2})
            with driver_lock(open_store(victim)):  # the next writer
                pass
            store = open_store(victim)
            assert store.read_json("fits/a.json") == value
            assert ("fits/a.json" in store.listed()) == (value is not None)
            found.add(str(value))
    server.stdin.close()
    assert server.wait(10) == 0
    assert found == {str(old), "{'value': 2}"}
