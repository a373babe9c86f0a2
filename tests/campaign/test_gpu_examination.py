"""doctor on a node with GPUs: whether the driver, the packages and the compiler go together."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.doctor.gpu_examination import GpuExamination, examine_packages, known_architectures
from campaign.doctor.node_examination import NodeExamination, examine_node
from campaign.verbs import doctor
from sites.site_reading import find_site, read_site
from tests.sites.fake_nvml import installed, put
from tests.sites.meter_layouts.layout import copied

H100 = GpuExamination(
    gpus=["NVIDIA H100"], uuids=["GPU-5f1c"], architectures=["sm_90"], driver="580.95.05"
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    copied("nvml-2-gpus", tmp_path)
    with installed(tmp_path):
        yield tmp_path


def examined(root: Path) -> NodeExamination:
    return examine_node(read_site(find_site("localhost", root)), root)


def test_a_node_whose_gpus_can_run_kernels(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(root, "driver_version", "580.95.05")
    node = examined(root)
    doctor.print_examination(node)
    said = "GPU kernels can run: 2 NVIDIA H100 80GB HBM3 (sm_90), driver 580.95.05, packages of "
    assert f"{said}CUDA 13\n" in capsys.readouterr().out
    assert NodeExamination.from_dict(json.loads(json.dumps(node.as_dict()))) == node


def test_a_node_without_gpus_says_nothing_of_them(tmp_path: Path, capsys) -> None:
    node = examined(tmp_path)
    assert node.gpu is None
    doctor.print_examination(node)
    assert "GPU kernels" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu1/uuid", "GPU 1: "),
        ("gpu0/compute_capability", "the architecture of GPU 0 (NVIDIA H100 80GB HBM3, GPU-"),
        ("driver_version", "the driver: "),
    ],
)
def test_gpus_that_nvml_lists_and_cannot_describe(root: Path, capsys, name: str, said: str) -> None:
    put(root, name, "!15")
    node = examined(root)
    assert node.gpu is not None and node.gpu.problem is not None
    doctor.print_examination(node)
    output = capsys.readouterr().out.partition("GPU kernels cannot run: ")[2]
    assert said in output.splitlines()[0] and "NVML error 15" in output.splitlines()[0]
    assert "to fix it: discard the measurement; the GPU is lost" in output.splitlines()[1]
    assert NodeExamination.from_dict(json.loads(json.dumps(node.as_dict()))) == node


def test_gpus_that_a_variable_hides(root: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    doctor.print_examination(examined(root))
    output = capsys.readouterr().out
    assert "GPU kernels cannot run: " in output and "no GPU (CUDA_VISIBLE_DEVICES=)" in output


def test_a_library_that_lists_no_gpu_says_nothing_of_them(root: Path) -> None:
    for gpu in (root / "nvml").glob("gpu*"):
        shutil.rmtree(gpu)
    assert examined(root).gpu is None


@pytest.mark.parametrize(
    ("driver", "said", "remedy"),
    [
        ("470.82.01", "470.82.01 is too old: GPU kernels need 525.60", "ask for a newer driver"),
        ("550.54.14", "packages of CUDA 13 need driver 580.65 or later", "dvfs-campaign[cuda12]"),
    ],
)
def test_a_driver_that_is_too_old(root: Path, capsys, driver: str, said: str, remedy: str) -> None:
    put(root, "driver_version", driver)
    doctor.print_examination(examined(root))
    output = capsys.readouterr().out
    assert f"driver {driver}: " in output
    assert said in output
    assert remedy in output.partition("to fix it: ")[2]


@pytest.mark.parametrize(("driver", "extra"), [("580.95.05", "cuda13"), ("550.54.14", "cuda12")])
def test_without_the_packages_the_extra_is_the_drivers(
    monkeypatch, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    found = examine_packages(replace(H100, driver=driver))
    assert found.cuda is None and found.problem is not None
    assert "cannot be used" in found.problem
    assert found.remedy == f"pip install 'dvfs-campaign[{extra}]'"


@pytest.mark.parametrize(
    ("architecture", "remedy"), [("sm_35", "an older compiler"), ("sm_999", "a newer compiler")]
)
def test_a_compiler_that_does_not_know_the_gpu(architecture: str, remedy: str) -> None:
    known = known_architectures()
    assert {"sm_80", "sm_90", "sm_100", "sm_120"} <= set(known)
    found = examine_packages(replace(H100, architectures=[architecture]))
    assert found.problem is not None and found.remedy is not None
    assert f"does not know {architecture}; it knows {known[0]} to {known[-1]}" in found.problem
    assert remedy in found.remedy
