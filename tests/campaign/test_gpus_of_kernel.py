"""A kernel that runs on other GPUs than the meters read, or the control sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign.measure.gpus_of_kernel import check_gpus
from kernels.registry import find_kernel
from sites.clocks import ClocksError
from sites.meters import MeterError
from sites.site_file import Site
from tests.sites.fake_nvml import installed, put
from tests.sites.meter_layouts.layout import copied

BOTH = (
    "the energy is of GPUs 0, 1, and the kernel runs on 1 of them: the others add their idle power"
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A node with two H100."""
    copied("nvml-2-gpus", tmp_path)
    with installed(tmp_path):
        yield tmp_path


def site(devices: list[int] | None, *, clocks: list[int] | None = None, kind: str = "nvml") -> Site:
    options = {} if devices is None else {"devices": devices}
    fields: dict[str, Any] = {"meters": [{"kind": kind, "options": options}]}
    if clocks is not None:
        fields["clocks"] = {"control": "nvml", "options": {"devices": clocks}}
    return Site.model_validate({"name": "here", "partitions": {"p": {}}, **fields})


def checked(root: Path, given: Site, kernel: str = "gpu_fma", ranks: int = 1) -> list[str]:
    return check_gpus(find_kernel(kernel), given, ranks, root)


def test_the_idle_gpus_that_a_meter_counts_too_are_flagged(root: Path) -> None:
    (flag,) = checked(root, site(None))
    assert flag.startswith(BOTH)
    assert checked(root, site(None), ranks=2) == []
    assert checked(root, site([0])) == []


@pytest.mark.parametrize("kernel", ["command", "idle", "dgemm"])
def test_only_kernels_of_gpus_are_checked(root: Path, kernel: str) -> None:
    assert checked(root, site(None), kernel) == []
    assert checked(root, site([1]), kernel) == []


def test_an_idle_gpu_is_not_measured_in_place_of_the_kernels(root: Path) -> None:
    with pytest.raises(MeterError, match=r"runs on GPU 0 .*, and the meter nvml reads GPU 1"):
        checked(root, site([1]))
    with pytest.raises(MeterError, match=r"runs on GPU 1 .*, and the meter nvml reads GPU 0"):
        checked(root, site([0]), ranks=2)
    assert checked(root, site([1], kind="amdsmi")) == []


def test_an_idle_gpu_is_not_set_in_place_of_the_kernels(root: Path) -> None:
    """Its clock would be read back, and prove nothing."""
    with pytest.raises(ClocksError, match=r"runs on GPU 0 .*, and the control nvml sets GPU 1"):
        checked(root, site([0], clocks=[1]))
    assert checked(root, site([0], clocks=[0])) == []
    limit = {"control": "nvml-power-limit", "limits_w": [300.0], "options": {"devices": [1]}}
    limited = Site.model_validate(site([0], clocks=[0]).model_dump() | {"power_limit": limit})
    with pytest.raises(ClocksError, match="the control nvml-power-limit sets GPU 1"):
        checked(root, limited)


def test_cuda_says_which_gpu_is_visible(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert checked(root, site([1])) == []
    assert checked(root, site(None)) == []
    with pytest.raises(MeterError, match=r"runs on GPU 1 .*, and the meter nvml reads GPU 0"):
        checked(root, site([0]))


def test_where_cuda_may_number_gpus_otherwise_none_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "gpu0/name", "NVIDIA T400")
    assert checked(root, site([1])) == []
    (flag,) = checked(root, site(None))
    assert flag.startswith(BOTH)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    with pytest.raises(MeterError, match=r"runs on GPU 0"):
        checked(root, site([1]))
