"""Watching a run from elsewhere, and runs that outlive their terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.commands import prints, refuses
from tests.waiting import wait_until
from tests.watched import CAMPAIGN

COMMAND = (sys.executable, "-m", "campaign")
POINTS = 2400


def started(folder: Path, repeats: int, *words: str) -> subprocess.Popen[str]:
    (folder / "c.toml").write_text(CAMPAIGN.replace("repeats = 2", f"repeats = {repeats}"))
    return subprocess.Popen(
        [*COMMAND, "run", str(folder / "c.toml"), "--store", str(folder / "S"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def phase(store: Path) -> str:
    path = store / "status.json"
    return str(json.loads(path.read_text())["phase"]) if path.exists() else ""


def watcher(store: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "watch", str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_watch_a_driver_that_is_killed_and_one_that_leaves(tmp_path: Path) -> None:
    store = tmp_path / "S"
    driver = started(tmp_path, POINTS // 8)
    wait_until(lambda: phase(store) == "measuring", 60.0, 0.1)
    os.killpg(driver.pid, signal.SIGSTOP)  # so that it does not end before it is killed
    watchers = [watcher(store) for _ in range(3)]
    for own in watchers:
        assert own.stdout is not None
        assert "jetson-tk1/board: " in own.stdout.readline()
    watchers[2].send_signal(signal.SIGINT)
    _, error = watchers[2].communicate(timeout=30)
    assert watchers[2].returncode == 130
    assert error.startswith("campaign: the run goes on; ") and error.count("\n") == 1
    # A second driver is refused as it is without --detach.
    second = started(tmp_path, POINTS // 8, "--detach")
    refused, _ = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "is using this store" in refused and "Traceback" not in refused
    assert driver.poll() is None
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    for own in watchers[:2]:
        out, _ = own.communicate(timeout=30)
        assert own.returncode == 1
        assert f"process {driver.pid} on " in out
        assert f"To go on: campaign run {tmp_path}/c.toml --store {store}" in out


def test_a_detached_driver_survives_a_hangup_and_gives_a_watcher_its_exit_code(
    tmp_path: Path,
) -> None:
    starter = started(tmp_path, 30, "--detach")
    said, _ = starter.communicate(timeout=60)
    assert starter.returncode == 0, said
    match = re.search(r"kill -INT (\d+)\n", said)
    assert match
    pid = int(match[1])
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGHUP)
    assert "240 of 240 points measured, 0 failed, 0 left: complete" in prints(
        "watch", tmp_path / "S"
    )


def test_a_store_without_a_run_says_what_shows_it(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 3, "name": "x"}')
    assert f"campaign status {tmp_path}" in refuses("watch", tmp_path)
