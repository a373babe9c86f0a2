"""``campaign demo --gpu``: what it says where GPU kernels cannot run, and what it prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.verbs.demo import measured_rows
from tests.frames import measured_columns
from tests.sites.fake_nvml import TREE, build

ROOT = Path(__file__).parents[2]
MAIN = "import sys; {}from campaign.verbs.command_line import main; sys.exit(main(sys.argv[1:]))"
WITHOUT_CUDA = MAIN.format("sys.modules['cuda'] = None; ")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The values of two H100, which the stand-in of NVML reads."""
    shutil.copytree(ROOT / "tests/trees/nvml-2-gpus" / TREE, tmp_path / TREE)
    return tmp_path


def campaign(node: Path, *words: str | Path, code: str = MAIN.format("")) -> tuple[int, str]:
    """The command on a machine whose NVML is the stand-in, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, words)],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(build().parent),
            "FAKE_NVML_TREE": str(node / TREE),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_a_gpu_it_says_where_to_run(node: Path) -> None:
    for gpu in ("gpu0", "gpu1"):
        shutil.rmtree(node / TREE / gpu)
    code, said = campaign(node, "demo", "--gpu", node / "demo")
    assert code == 2
    assert said.startswith("campaign: --gpu: no NVIDIA GPU can be used here: run where `nvidia-smi")
    assert not (node / "demo").exists()


def test_with_an_old_driver_or_without_the_packages_it_says_what_to_install(node: Path) -> None:
    """The tree's driver, 550.54.15, takes the packages of CUDA 12."""
    code, said = campaign(node, "demo", "--gpu", node / "demo")
    assert (code, said.count("\n")) == (2, 1)
    assert (
        "packages of CUDA 13 need driver 580.65 or later: pip install 'dvfs-campaign[cuda12]'"
        in said
    )
    code, said = campaign(node, "demo", "--gpu", node / "demo", code=WITHOUT_CUDA)
    assert (code, said.count("\n")) == (2, 1)
    assert said.endswith("pip install 'dvfs-campaign[cuda12]'\n")
    assert not (node / "demo").exists()


def test_a_plan_and_a_doctor_need_no_packages_of_cuda(node: Path) -> None:
    plan = campaign(node, "plan", "examples/gpu-microbenchmarks.toml", code=WITHOUT_CUDA)
    assert plan[0] == 0, plan[1]
    assert "localgpu" in plan[1]
    code, said = campaign(node, "doctor", "localgpu", code=WITHOUT_CUDA)
    assert code == 0, said
    assert "energy can be measured" in said
    assert "GPU kernels cannot run on 2 NVIDIA H100" in said


def test_the_table_has_means_over_repeats_in_order_of_energy_per_operation() -> None:
    of_sp = {"kernel": "gpu_fma", "params": '{"number":"sp"}', "n_sp": 2e11}
    of_dp = {"kernel": "gpu_fma", "params": '{"number":"dp"}', "n_dp": 1e11}
    rows = [
        of_sp | {"time_s": 0.01, "energy_j": 4.0, "core_mhz_achieved": 1980.0},
        of_dp | {"time_s": 0.02, "energy_j": 10.0, "core_mhz_achieved": 1700.0},
        of_dp | {"time_s": 0.02, "energy_j": 12.0, "core_mhz_achieved": 1720.0},
        of_dp | {"time_s": 9.0, "energy_j": 9.0, "core_mhz_achieved": 1.0, "status": "crashed"},
    ]
    sp, dp = measured_rows(measured_columns(rows))
    assert ("sp" in sp[0], "dp" in dp[0]) == (True, True)
    assert sp[1:] == pytest.approx([10.0, 4.0, 400.0, 20.0, 1980.0])
    assert dp[1:] == pytest.approx([20.0, 11.0, 550.0, 110.0, 1710.0])
