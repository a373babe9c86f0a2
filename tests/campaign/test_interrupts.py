"""Ctrl-C in real processes: one line on standard error, and exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.campaign.test_doctor import SLURM
from tests.campaign.test_wrong_files import write_files
from tests.slurm_cluster import SlurmCluster

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupted_plan_is_one_line_and_130(tmp_path: Path, signals: int) -> None:
    """The plan is large, so that it is interrupted while it is made."""
    path = write_files(tmp_path, "c", "[1, 2]", str(list(range(1, 20_000))))
    process = subprocess.Popen(
        [sys.executable, "-m", "campaign", "plan", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    while b"pydantic" not in Path(f"/proc/{process.pid}/maps").read_bytes():
        time.sleep(0.01)  # the verb runs
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors == "campaign: interrupted; run it again\n"
    assert process.returncode == 130


def test_a_demo_that_is_interrupted_while_it_measures_goes_no_further(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "campaign", "demo", str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    assert process.stderr is not None
    assert "points to measure" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed.endswith("interrupted; run it again to continue\n")
    assert "fit" not in printed
    assert "campaign:" not in errors
    assert not (tmp_path / "demo" / "report.html").exists()


def test_an_interrupt_in_an_exec_does_not_change_the_exit_code(tmp_path: Path) -> None:
    """As in the text of a dataclass, while modules are imported: CPython then kills itself."""
    text = """
import sys
from campaign.launch.interrupts import ignore_further
try:
    exec("import os, time; os.kill(os.getpid(), 2); time.sleep(9)")
except KeyboardInterrupt:
    ignore_further()
sys.exit(130)
"""
    (tmp_path / "interrupted.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )  # fmt: skip
    assert done.returncode == 130


WRAPPED = """
import sys
from campaign.verbs import command_line
from campaign.__main__ import start
from campaign.verbs import status

class Interrupted:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt

def verb(arguments):
    class Wrapping:
        attribute = Interrupted()

status.run = verb
if {early}:
    command_line.main = lambda: verb(None)
sys.argv = ["campaign", "status", "s"]
sys.exit(start())
"""


@pytest.mark.parametrize("early", [False, True])
def test_an_interrupt_while_a_class_gets_its_attributes(early: bool) -> None:
    """Python 3.11 raises a RuntimeError with the interrupt as its cause."""
    words = [sys.executable, "-c", WRAPPED.format(early=early)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "campaign: interrupted; run it again\n")


DROPPED = """
import os, sys
from campaign.verbs import command_line
from campaign.__main__ import start

class Deleted:
    def __del__(self):
        os.kill(os.getpid(), 2)

def verb():
    {body}
    while True:
        pass

command_line.main = verb
sys.exit(start())
"""


@pytest.mark.parametrize("body", ["Deleted()", "import interrupted; assert interrupted.whole"])
def test_an_interrupt_that_python_would_drop_or_wrap_comes_afterwards(
    tmp_path: Path, body: str
) -> None:
    """In a callback Python prints and drops it; a module may take it for an error of its own."""
    text = (
        "import os\ntry:\n    os.kill(os.getpid(), 2)\nexcept BaseException:\n    pass\nwhole = 1\n"
    )
    (tmp_path / "interrupted.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", DROPPED.format(body=body)], cwd=tmp_path, timeout=30,
        env=dict(os.environ, PYTHONPATH=f"{ROOT}:{tmp_path}"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "campaign: interrupted; run it again\n")


def test_importing_what_submits_jobs_keeps_the_handler() -> None:
    """dask-jobqueue sets one that ends the process with 0."""
    code = (
        "import signal; before = signal.getsignal(signal.SIGINT);"
        "import campaign.launch.slurm;"
        "assert signal.getsignal(signal.SIGINT) is before"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.slurm
def test_an_interrupted_doctor_leaves_no_job(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SLURM.format(conf=slurm_cluster.conf))
    slurm_cluster.run("scontrol", "update", "PartitionName=cpu-a", "State=DOWN")  # it waits
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "campaign", "doctor", str(tmp_path / "site.toml")],
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, PYTHONPATH=str(ROOT)),
        )

        def doctors_jobs() -> str:
            lines = slurm_cluster.run("squeue", "--noheader", "--format=%j %t").splitlines()
            return " ".join(line for line in lines if "doctor" in line and "CG" not in line)

        deadline_s = time.monotonic() + 60
        while not doctors_jobs() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=90)
        left = doctors_jobs()
    finally:
        slurm_cluster.run("scontrol", "update", "PartitionName=cpu-a", "State=UP")
    assert errors == "campaign: interrupted; run it again\n"
    assert process.returncode == 130
    assert left == ""
