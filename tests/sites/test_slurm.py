"""Slurm's accounted energy, from programs with the output of sstat and sacct."""

from __future__ import annotations

from pathlib import Path

import pytest

from sites.meters import MeterError, open_meter
from tests.sites.meter_layouts.layout import copied
from tests.slurm_fixtures import need_slurm

TREES = Path(__file__).parent.parent / "trees"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    copied("slurm-energy", tmp_path)
    return tmp_path


def write_program(root: Path, name: str, body: str) -> None:
    path = root / "usr/bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_a_running_step_and_its_end(root: Path) -> None:
    meter = open_meter("slurm", {"job": 77}, root)
    assert meter.read().values == (0.0,)
    (root / "accounting/sstat/77.batch").write_text("45778\n")
    assert meter.read().values == (100.0,)
    # The step ends: sstat knows it no more, and sacct does.
    (root / "accounting/sstat/77.batch").unlink()
    (root / "accounting/sacct/77.batch").write_text("45800\n")
    assert meter.read().values == (122.0,)


def test_the_job_of_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert open_meter("slurm", {"step": 0}, root).read().values == (0.0,)
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(MeterError, match=r"not a Slurm job.*`job`"):
        open_meter("slurm", {}, root)


@pytest.mark.parametrize(
    "value", ["", "0", "18446744073709551614", "18446744073709484705", "4294967294"]
)
def test_energy_that_is_not_gathered_is_an_error(root: Path, value: str) -> None:
    (root / "accounting/sstat/77.batch").write_text(f"{value}\n")
    with pytest.raises(MeterError, match=r"no energy of step 77\.batch.*AcctGatherEnergyType"):
        open_meter("slurm", {"job": 77}, root).read()


def test_an_unknown_step(root: Path) -> None:
    with pytest.raises(MeterError, match=r"does not know step 78\.batch.*squeue -j 78"):
        open_meter("slurm", {"job": 78}, root).read()


def test_a_cluster_without_accounting(root: Path) -> None:
    """The output of sacct with AccountingStorageType=accounting_storage/none."""
    said = "echo 'Slurm accounting storage is disabled' >&2; exit 1"
    write_program(root, "sacct", said)
    with pytest.raises(MeterError, match="accounting storage is disabled"):
        open_meter("slurm", {"job": 78}, root).read()


def test_steps_of_the_same_job_are_not_summed(root: Path) -> None:
    write_program(root, "sstat", "echo '77|9'; echo '77.extern|5000'; echo '77.batch|44'")
    meter = open_meter("slurm", {"job": 77}, root)
    assert meter.read().values == (0.0,)
    write_program(root, "sstat", "echo '77|9'; echo '77.extern|7000'; echo '77.batch|45'")
    assert meter.read().values == (1.0,)


def test_a_command_that_hangs(root: Path) -> None:
    write_program(root, "sstat", "exit 1")
    write_program(root, "sacct", "sleep 30")
    with pytest.raises(MeterError, match=r"took more than 0\.2 s"):
        open_meter("slurm", {"job": 77, "limit_s": 0.2}, root).read()


def test_no_slurm_at_all(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="sacct, sstat: not installed"):
        open_meter("slurm", {"job": 77}, tmp_path)


@pytest.mark.slurm
def test_the_error_of_a_real_slurm() -> None:
    need_slurm()
    with pytest.raises(MeterError) as caught:
        open_meter("slurm", {"job": 4_000_000_000, "limit_s": 10}).read()
    assert caught.value.remedy
