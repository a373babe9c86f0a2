"""What is said where the driver is too old, busy or broken: CUDA for Python on a stand-in of the
driver's library, in a process of its own. The classes and texts of the errors are the packages'."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FAKE = Path(__file__).with_name("fake_libcuda.c")
ROOT = Path(__file__).parents[3]
OPEN = """\
import json, os, sys
from kernels.cuda.device import Gpu
from kernels.host.ranks import Team
from kernels.kernel import KernelError
said = {}
for case in json.loads(sys.argv[1]):
    name, _, value = case.partition("=")
    os.environ[name] = value
    try:
        Gpu(Team())
    except KernelError as error:
        said[case] = str(error)
    del os.environ[name]
print(json.dumps(said))
"""
CASES = {
    "FAKE_VERSION=12020": "the driver offers CUDA 12.2: the installed packages of CUDA 13 need "
    "driver 580.65 or later",
    "FAKE_cuInit=100": "CUDA_ERROR_NO_DEVICE: there is no GPU here: run where `nvidia-smi -L`",
    "FAKE_cuInit=803": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: the driver was updated",
    "FAKE_cuInit=34": "CUDA_ERROR_STUB_LIBRARY: the libcuda.so.1 that was found is the toolkit's",
    "FAKE_cuDevicePrimaryCtxRetain=46": "CUDA_ERROR_DEVICE_UNAVAILABLE: the GPU is in exclusive "
    "mode and busy",
    "FAKE_cuDevicePrimaryCtxRetain=2": "CUDA_ERROR_OUT_OF_MEMORY: the GPU's memory does not",
}
LACKING = ("cuDeviceGetCount", "cuDevicePrimaryCtxRetain")
"""Functions without which CUDA for Python raises errors of two kinds."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", folder / "libcuda.so.1", FAKE], check=True)
    return folder


def said_of(library: Path, cases: list[str], **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, json.dumps(cases)],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(library), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


def test_a_driver_that_cannot_be_used_is_named_with_what_to_do(library: Path) -> None:
    said = said_of(library, list(CASES))
    assert said.keys() == CASES.keys()
    for case, expected in CASES.items():
        assert said[case].startswith(f"opening the GPU: {expected}"), said[case]


@pytest.mark.parametrize("name", LACKING)
def test_a_driver_that_lacks_a_function_is_too_old(library: Path, name: str) -> None:
    """The functions are looked up once a process."""
    said = said_of(library, ["UNUSED=1"], FAKE_LACKS=name)["UNUSED=1"]
    assert said.startswith(f"opening the GPU: the driver lacks {name}: ")
    assert "need driver 580.65 or later" in said
    assert "'dvfs-campaign[cuda12]'" in said


FUNCTIONS = """\
from kernels.cuda.device import Gpu
from kernels.cuda.program import Program
from kernels.host.ranks import Team
gpu = Gpu(Team())
program = Program(architecture="sm_90", cubin=b"code", functions={})
for shared_bytes in (48 << 10, 100_000):
    gpu.function(program, "f", shared_bytes)
"""


def test_a_block_with_much_shared_memory_asks_for_it(library: Path) -> None:
    """8 is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; up to 48 KiB nothing need be asked."""
    done = subprocess.run(
        [sys.executable, "-c", FUNCTIONS],
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "attribute 8 of kernel 3 is 100000 on device 0\n"
