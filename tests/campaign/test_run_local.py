"""Campaigns on local Dask workers and the simulated machine: killed anywhere, they go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest

from campaign.launch.campaign_run import CampaignRun
from campaign.plan.plan import make_plan
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import create_store, open_store
from campaign.verbs.command_line import main
from sites.site_reading import built_in_sites
from tests.campaign.test_journal import measurement as journal_measurement
from tests.commands import answers, refuses, start, warns
from tests.shared_imports import program
from tests.simulated_runs import simulate
from tests.stores import measurements_of
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]

SIMULATED = """\
name = "simulated"
repeats = 5
[[sites]]
site = "jetson-tk1"
settings = { choose = "random", count = 12, seed = 1 }
[protocol]
min_duration_s = 1.0
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = [1, 2, 4, 8, 16, 32, 64, 128] }
[[kernels]]
kernel = "load"
params = { level = ["l1", "l2", "dram"] }
"""

LOCAL = """\
name = "local"
repeats = 2
[[sites]]
site = "localhost"
[protocol]
min_duration_s = 0.05
warm_up_s = 0.02
timeout_s = 30.0
[retries]
max = 1
[[kernels]]
kernel = "dp_fma"
"""


POINTS = 660
"""Of the simulated campaign: seconds of work, in which an interrupt or a kill can come."""


def campaign_file(folder: Path, text: str = SIMULATED) -> Path:
    path = folder / "c.toml"
    path.write_text(text)
    return path


def run(path: Path) -> tuple[int, str]:
    process = start(path, program())  # the imports are shared: nothing happens to this run
    out, _ = process.communicate(timeout=120)
    return process.returncode, out


def frame_of(path: Path) -> pd.DataFrame:
    return measurements_of(path.parent / "store")


def wait_until_ten_are_measured(path: Path) -> None:
    store = path.parent / "store" / "store.json"
    wait_until(lambda: store.exists() and len(frame_of(path)) >= 10, 60.0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> pd.DataFrame:
    path = campaign_file(tmp_path_factory.mktemp("undisturbed"))
    code, out = run(path)
    assert code == 0, out
    assert f"{POINTS} of {POINTS} points measured, 0 failed, 0 left: complete" in out
    return frame_of(path).set_index("point_id").sort_index()


def descendants(process: subprocess.Popen[str], word: str) -> list[psutil.Process]:
    children = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended, or is about to
            if word in " ".join(child.cmdline()):
                children.append(child)
    return children


def kill_driver(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)


def kill_all(process: subprocess.Popen[str]) -> None:
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # killed with its parent a moment ago
            child.kill()
    process.kill()


def kill_a_worker(process: subprocess.Popen[str]) -> None:
    descendants(process, "multiprocessing.spawn")[-1].kill()


def kill_a_fork_server(process: subprocess.Popen[str]) -> None:
    descendants(process, "campaign.measure.forkserver")[0].kill()


def test_a_run_leaves_what_one_process_measures(tmp_path, undisturbed):
    """Which other tests take in its place (:mod:`tests.simulated_runs`)."""
    simulate(campaign_file(tmp_path), tmp_path / "store")
    alone = frame_of(tmp_path / "c.toml").set_index("point_id").sort_index()
    when = ["start_unix_s"]
    pd.testing.assert_frame_equal(alone.drop(columns=when), undisturbed.drop(columns=when))


@pytest.mark.parametrize("harm", [kill_driver, kill_all, kill_a_worker, kill_a_fork_server])
def test_after_any_kill_it_ends_with_the_same_measurements(
    tmp_path, undisturbed, harm: Callable[[subprocess.Popen[str]], None]
):
    path = campaign_file(tmp_path)
    process = start(path)
    try:
        wait_until_ten_are_measured(path)
        family = psutil.Process(process.pid).children(recursive=True)
        harm(process)
        process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            kill_all(process)
    code, out = run(path)
    assert code == 0, out
    measured = frame_of(path).set_index("point_id").sort_index()
    assert list(measured.index) == list(undisturbed.index)
    for column in ("energy_j", "time_s", "core_mhz", "n_sp"):
        pd.testing.assert_series_equal(measured[column], undisturbed[column])
    planned = {p.id for p in make_plan(path).points}
    assert set(measured.index) == planned
    dataset = open_dataset(open_store(path.parent / "store"))
    assert dataset.sizes["trace"] == len(planned)
    _, alive = psutil.wait_procs(family, timeout=15)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], alive


@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(tmp_path, undisturbed, send):
    """To the driver alone, or to its workers too, as a terminal's Ctrl-C."""
    path = campaign_file(tmp_path)
    process = start(path)
    wait_until_ten_are_measured(path)
    send(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "interrupted; run it again to continue" in out
    assert "Traceback" not in out
    assert 10 <= len(frame_of(path)) < POINTS
    assert run(path)[0] == 0
    assert len(frame_of(path)) == POINTS


def test_ctrl_c_while_workers_start_is_one_line(tmp_path):
    process = start(campaign_file(tmp_path))
    wait_until(
        lambda: any("spawn_main" in word for word in _words_of_children(process.pid)), 60.0, 0.01
    )
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "interrupted; run it again" in out
    assert "Traceback" not in out


def _words_of_children(pid: int) -> list[str]:
    words = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            words += child.cmdline()
    return words


def test_a_complete_campaign_runs_nothing_again(tmp_path):
    path = campaign_file(tmp_path, LOCAL)
    assert run(path)[0] == 0
    before = frame_of(path)
    code, out = run(path)
    assert code == 0
    assert "dashboard" not in out
    pd.testing.assert_frame_equal(frame_of(path), before)
    assert before["energy_j"].isna().all()
    assert main(["status", str(tmp_path / "store")]) == 0
    assert "energy is missing: this site has no meter" in refuses(
        "fit", tmp_path / "store", "--site", "localhost"
    )


def test_failures_are_recorded_retried_as_often_as_allowed_and_reported(tmp_path):
    """A hanging program may pass (retried once, then left); a wrong one can't (not retried)."""
    hang = f'argv = [["{sys.executable}", "-c", "import time; time.sleep(60)"]]'
    wrong = f'argv = [["{sys.executable}", "-c", "raise SystemExit(1)"]]'
    # Long enough for a short point of a busy machine, and short for the one that hangs.
    local = LOCAL.replace("repeats = 2", "repeats = 1").replace("= 30.0", "= 6.0")
    text = local.replace('"dp_fma"', '"idle"\nparams = { sleep_s = 0.05 }') + (
        f'[[kernels]]\nkernel = "command"\nlabel = "hangs"\nparams = {{ {hang} }}\n'
        f'[[kernels]]\nkernel = "command"\nlabel = "fails"\nparams = {{ {wrong} }}\n'
    )
    path = campaign_file(tmp_path, text)
    code, out = run(path)
    assert code == 1
    assert "1 of 3 points measured, 2 failed, 0 left: not complete" in out
    store = tmp_path / "store"
    assert f"see: campaign status {store}; then fix the cause and run: campaign run {path} " in out
    assert f"--store {store} --retry-failed" in out
    assert "will be tried again" in out
    tables, _ = current_tables(open_store(tmp_path / "store"))
    tries = tables.failures.groupby("kernel")["status"].agg(list).to_dict()
    assert tries == {"hangs": ["timed out"] * 2, "fails": ["kernel failed"]}
    assert run(path)[0] == 1  # nothing is left to try
    assert len(current_tables(open_store(tmp_path / "store"))[0].failures) == 3
    shown = answers("status", tmp_path / "store", code=1)
    assert shown["failed_attempts"] == {"kernel failed": 1, "timed out": 2}


def test_a_run_waits_for_the_journal_of_a_worker_that_ends_late(tmp_path, monkeypatch):
    store = create_store(tmp_path / "store", "local")
    late = JournalWriter(store.journals)
    late.append(encode(journal_measurement()))
    run_until_done = CampaignRun.run_until_done

    def and_end_the_worker_later(run: CampaignRun) -> dict[str, str]:
        given_up = run_until_done(run)
        threading.Timer(3.0, late.close).start()
        return given_up

    monkeypatch.setattr(CampaignRun, "run_until_done", and_end_the_worker_later)
    assert main(["run", str(campaign_file(tmp_path, LOCAL)), "--store", str(store.root)]) == 0
    assert store.journal_paths() == []


def test_a_store_that_cannot_be_written_ends_the_run_with_a_clear_line(tmp_path):
    path = campaign_file(tmp_path)
    (tmp_path / "store").write_text("not a folder")
    code, out = run(path)
    assert code == 2
    assert "exists and is not a store" in out
    assert "Traceback" not in out


def test_a_run_without_progress_says_what_it_measures(tmp_path, monkeypatch):
    from campaign.launch import partition_run

    monkeypatch.setattr(partition_run, "QUIET_S", 3.0)
    monkeypatch.setattr(partition_run, "SUPERVISE_S", 0.2)
    kernel = '[[kernels]]\nkernel = "idle"\nlabel = "long"\nparams = { sleep_s = 2.0 }\n'
    path = campaign_file(tmp_path, LOCAL.partition("[[kernels]]")[0] + kernel)
    (line,) = [
        x
        for x in warns("run", path, "--store", tmp_path / "S").splitlines()
        if "no point has finished" in x
    ]
    assert "1 worker" in line
    assert "measuring long " in line
    assert "30 s" in line  # timeout_s


def test_programs_of_a_local_partition_have_its_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_PLACES", "threads")
    site = Path(str(built_in_sites()["localhost"])).read_text(encoding="utf-8")
    (tmp_path / "site.toml").write_text(
        site + '[partitions.local.environment]\nvariables = { OMP_PLACES = "cores" }\n'
    )
    shown = tmp_path / "shown"
    argv = [
        sys.executable,
        "-c",
        f"import os; open({str(shown)!r}, 'w').write(os.environ['OMP_PLACES'])",
    ]
    kernel = f'[[kernels]]\nkernel = "command"\nparams = {{ argv = [{json.dumps(argv)}] }}\n'
    text = LOCAL.partition("[[kernels]]")[0].replace('"localhost"', '"site.toml"') + kernel
    path = campaign_file(tmp_path, text)
    assert main(["run", str(path), "--store", str(tmp_path / "S")]) == 0
    assert shown.read_text() == "cores"


@pytest.mark.parametrize("key", ['modules = ["gcc"]', 'python = "/opt/python"'])
def test_a_local_partition_loads_no_modules_and_says_so(tmp_path, capsys, key):
    site = Path(str(built_in_sites()["localhost"])).read_text(encoding="utf-8")
    (tmp_path / "site.toml").write_text(f"{site}[partitions.local.environment]\n{key}\n")
    path = campaign_file(tmp_path, LOCAL.replace('"localhost"', '"site.toml"'))
    assert main(["plan", str(path)]) == 2
    name = key.partition(" ")[0]
    assert f"partitions.local.environment.{name}" in capsys.readouterr().err
