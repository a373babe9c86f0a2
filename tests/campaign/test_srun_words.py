"""Points in job steps, with a program in place of srun that prints what srun prints, or starts what
it is asked to start: what becomes of a point, and how often a step is started.

test_step_failures does this on a real Slurm; here each end of a step comes at will.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.measure import subprocesses
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import LostAllocationError, SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.store.journal import decode
from campaign.store.measurement import Measurement
from dvfs.setting import Setting
from sites.site_file import Site
from tests.points import a_point

QUICK = Protocol(min_duration_s=0.01, warm_up_s=0.0, timeout_s=20.0)
NO_ANSWER = "srun: error: Unable to contact slurm controller (connect failure)"
SRUN = f"""#!{sys.executable} -IS
import os, sys
words = sys.argv[1:]
with open({{starts!r}}, "a") as file:
    print(*words, file=file)
program = [word for word in words if not word.startswith("--")]
for word in words:
    if word.startswith("--gpu-freq="):
        os.environ["SLURMD_TRES_FREQ"] = "gpu:" + word.partition("=")[2]
if {{printed!r}}:
    print({{printed!r}}, file=sys.stderr)
    sys.exit(3)
os.execv(program[0], program)
"""


class Steps:
    """A worker in a job, whose steps are started by a program named srun."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
        self.list = folder / "starts"
        self.list.touch()
        programs = folder / "bin"
        programs.mkdir()
        (programs / "srun").write_text(SRUN.format(starts=str(self.list), printed=printed))
        (programs / "squeue").write_text("#!/bin/sh\nexit 1\n")
        for program in programs.iterdir():
            program.chmod(0o700)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_ID", "7")
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", "8")
        monkeypatch.setattr(subprocesses, "STEP_PAUSE_S", 0.05)
        monkeypatch.setattr(subprocesses, "STEP_WAIT_S", 0.4)
        self.site = Site.model_validate(
            {
                "name": "gpus",
                "partitions": {"all": {"scheduler": "slurm"}},
                "domains": {"core": {"frequencies_mhz": [1110.0, 1410.0]}},
                "clocks": {"control": "slurm", "device": "gpu"},
            }
        )
        self.runner = SubprocessRunner(PartitionSetup(self.site, QUICK, ("idle",)))

    def measure(self, core_mhz: float, repeat: int = 0) -> Measurement:
        point = a_point(
            site="gpus",
            partition="all",
            params='{"sleep_s":0.0}',
            setting=Setting(core_mhz),
            repeat=repeat,
        )
        return decode(self.runner.measure(point, 0))

    def starts(self) -> list[str]:
        return self.list.read_text().splitlines()


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[Steps] = []

    def make(printed: str = "") -> Steps:
        made.append(Steps(tmp_path, monkeypatch, printed))
        return made[-1]

    yield make
    for one in made:
        one.runner.close()


def test_a_step_is_kept_for_the_points_of_its_setting(steps: Callable[..., Steps]) -> None:
    one = steps()
    settings = [1110.0, 1110.0, 1410.0, 1410.0, 1110.0]
    done = [one.measure(mhz, repeat) for repeat, mhz in enumerate(settings)]
    # Nothing on this machine shows the clock of such a GPU.
    assert [m.status for m in done] == ["clock unproven"] * 5, [m.text for m in done]
    assert [m.point.setting.core_mhz for m in done] == settings
    starts = one.starts()
    assert [
        f"--gpu-freq={mhz}" in line for line, mhz in zip(starts, (1110, 1410, 1110), strict=True)
    ]
    for words in starts:
        assert "--ntasks=1 --cpus-per-task=8 " in words
        assert words.endswith(f"-m campaign.measure.forkserver {one.runner.setup_file}")


def test_a_step_that_was_killed_is_started_again_for_the_next_point(
    steps: Callable[..., Steps],
) -> None:
    one = steps()
    assert one.measure(1110.0).status == "clock unproven"
    assert one.runner._server is not None
    one.runner._server.process.kill()
    one.runner._server.process.wait()
    assert one.measure(1110.0, 1).status == "clock unproven"
    assert len(one.starts()) == 2


def test_a_slurm_that_does_not_answer_is_asked_for_a_while(steps: Callable[..., Steps]) -> None:
    one = steps(NO_ANSWER)
    with pytest.raises(LostAllocationError) as gone:
        one.measure(1110.0)
    assert str(gone.value) == f"Slurm does not answer: {NO_ANSWER}"
    assert len(one.starts()) > 1


def test_no_step_is_started_again_in_a_job_that_has_ended(steps: Callable[..., Steps]) -> None:
    printed = "srun: error: Slurm job 7 has expired"
    one = steps(printed)
    with pytest.raises(LostAllocationError, match=printed):
        one.measure(1110.0)
    assert len(one.starts()) == 1


@pytest.mark.parametrize(
    ("printed", "status", "text"),
    [
        (
            "srun: error: Node failure on n3",
            "node lost",
            "Slurm lost or ended the job step; output: ",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.",
            "kernel failed",
            "out of memory in a job step; output: ",
        ),
        (
            "srun: error: Unable to create step for job 7: Only allocated 1 nodes asked for 2",
            "kernel failed",
            "Slurm cannot start the job step; output: ",
        ),
        (
            "something else",
            "kernel failed",
            "the measuring subprocess ended with exit status 3; output: ",
        ),
        (
            "GpuFreq=control_disabled",
            "clock not legal",
            "Slurm does not set the clocks (core 1110 MHz, memory clock unchanged): ",
        ),
    ],
)
def test_what_srun_prints_is_the_reason(steps, printed, status, text) -> None:
    one = steps(printed)
    made = one.measure(1110.0)
    assert (made.status, made.text) == (status, text + printed)
    assert len(one.starts()) == 1


def test_a_closed_worker_starts_no_step(steps: Callable[..., Steps]) -> None:
    one = steps()
    one.runner._closed = True
    with pytest.raises(LostAllocationError, match="this worker ends"):
        one.measure(1110.0)
    assert one.starts() == []
