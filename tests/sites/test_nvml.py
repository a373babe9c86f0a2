"""The NVML meter and its library: the real pynvml with a fake library that reads a tree."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from sites.meters import MeterError, open_meter
from sites.meters.nvml import GAIN_PCT
from sites.meters.shared.open_meter import OpenMeter
from sites.nvml_library import LIBRARY, NvmlError, find_gpus, open_library
from sites.nvml_power_model import power_models
from tests.sites.fake_nvml import TREE, installed, put
from tests.sites.meter_layouts.layout import copied, opener

TREES = Path(__file__).parent.parent / "trees"
UUIDS = (
    "GPU-5f1c0d2e-0000-4a6b-9c11-000000000000",
    "GPU-5f1c0d2e-1111-4a6b-9c11-111111111111",
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    copied("nvml-2-gpus", tmp_path)
    with installed(tmp_path):
        yield tmp_path


open_nvml = opener("nvml", OpenMeter)


def drop(root: Path, *names: str) -> None:
    for name in names:
        (root / TREE / name).unlink()


def names(meter: OpenMeter) -> list[str]:
    return [channel.name for channel in meter.channels]


def test_energy_counts_from_the_first_reading_and_power_is_shown(root: Path) -> None:
    meter = open_nvml(root)
    assert meter.read().values == (0.0, 71.234, 0.0, 70.002)
    put(root, "gpu0/energy_mj", 81234567890 + 12345)
    put(root, "gpu1/energy_mj", 18446744073000 + 1)
    put(root, "gpu1/field_186_0", 699999)
    assert meter.read().values == (12.345, 71.234, 0.001, 699.999)
    meter.close()


def test_the_channels_of_an_h100(root: Path) -> None:
    energy, power = open_nvml(root, devices=[0]).channels
    assert (energy.domain, energy.kind, energy.inside, energy.same_as) == (
        "gpu",
        "energy",
        None,
        None,
    )
    assert energy.wraps_at_j is None
    assert (power.domain, power.kind, power.same_as) == ("gpu", "power", "gpu-0/energy")
    assert (power.averaging_s, power.seen, energy.seen) == (0.025, 0.25, 1.0)
    assert GAIN_PCT == power.gain_pct == energy.gain_pct == 5.0


def test_an_unknown_gpu_is_assumed_to_sample_all_of_the_time(root: Path) -> None:
    put(root, "gpu0/name", "NVIDIA GeForce RTX 4090")
    power = open_nvml(root, devices=[0]).channels[1]
    assert (power.seen, power.averaging_s) == (1.0, 0.0)


def test_power_falls_back_from_instant_to_average_to_usage(root: Path) -> None:
    put(root, "gpu0/name", "NVIDIA L4")
    put(root, "gpu0/field_185_0", 50000)
    put(root, "gpu0/field_186_0", "!3")
    meter = open_nvml(root, devices=[0])
    assert meter.channels[1].averaging_s == 1.0
    assert meter.read().values[1] == 50.0
    put(root, "gpu0/power_usage_mw", 60000)
    drop(root, "gpu0/field_185_0")
    meter = open_nvml(root, devices=[0])
    assert meter.channels[1].averaging_s == 1.0
    assert meter.read().values[1] == 60.0


@pytest.mark.parametrize(
    ("name", "architecture", "averaging_s"),
    [
        ("Tesla V100-SXM2-16GB", "5", 0.0),
        ("NVIDIA A100-SXM4-40GB", "7", 0.025),
        ("NVIDIA A30", "7", 0.0),
        ("NVIDIA A40", "7", 1.0),
        ("NVIDIA L4", "!13", 1.0),
    ],
)
def test_power_usage_is_a_mean_as_nvidia_documents(
    root: Path, name: str, architecture: str, averaging_s: float
) -> None:
    drop(root, "gpu0/field_185_0", "gpu0/field_186_0")
    put(root, "gpu0/name", name)
    put(root, "gpu0/architecture", architecture)
    assert open_nvml(root, devices=[0]).channels[1].averaging_s == averaging_s


def test_a_gpu_before_volta_has_only_power(root: Path) -> None:
    drop(root, "gpu0/energy_mj")
    meter = open_nvml(root, devices=[0])
    assert names(meter) == ["gpu-0/power"]
    assert meter.channels[0].same_as is None


def test_a_gpu_without_energy_and_power_is_unreadable(root: Path) -> None:
    drop(root, "gpu0/energy_mj", "gpu0/field_185_0", "gpu0/field_186_0", "gpu0/power_usage_mw")
    with pytest.raises(MeterError, match=rf"GPU 0 .*{UUIDS[0]}.*neither.*nvidia-smi -q"):
        open_nvml(root)


def test_gh200_counts_the_module_and_its_gpu_is_inside(root: Path) -> None:
    put(root, "gpu0/name", "NVIDIA GH200 480GB")
    put(root, "gpu0/field_186_1", 500000)
    meter = open_nvml(root, devices=[0])
    channels = [(c.name, c.domain, c.kind, c.inside, c.same_as) for c in meter.channels]
    assert channels == [
        ("gpu-0/energy", "module", "energy", None, None),
        ("gpu-0/module-power", "module", "power", None, "gpu-0/energy"),
        ("gpu-0/power", "gpu", "power", "gpu-0/energy", None),
    ]
    assert meter.read().values == (0.0, 500.0, 71.234)


@pytest.mark.parametrize("field", [185, 186])
def test_the_memory_has_a_power_of_its_own_inside_the_gpus(root: Path, field: int) -> None:
    put(root, f"gpu0/field_{field}_2", 21500)
    meter = open_nvml(root, devices=[0])
    memory = meter.channels[2]
    assert (memory.name, memory.domain, memory.kind, memory.inside, memory.same_as) == (
        "gpu-0/memory-power",
        "gpu-memory",
        "power",
        "gpu-0/energy",
        None,
    )
    assert memory.averaging_s == (1.0 if field == 185 else 0.025)
    assert meter.read().values == (0.0, 71.234, 21.5)
    drop(root, "gpu0/energy_mj")
    assert open_nvml(root, devices=[0]).channels[1].inside == "gpu-0/power"
    put(root, "gpu0/name", "NVIDIA GH200 480GB")
    assert open_nvml(root, devices=[0]).channels[-1].inside == "gpu-0/power"


@pytest.mark.parametrize("value", ["!2", "!3", 0, 71234])
def test_a_driver_without_the_memorys_scope(root: Path, value: object) -> None:
    """It refuses the scope, has nothing there, or gives the power of the whole GPU."""
    put(root, "gpu0/field_186_2", value)
    assert names(open_nvml(root, devices=[0])) == ["gpu-0/energy", "gpu-0/power"]


def test_nvmls_power_model_is_read_where_a_gpu_has_one(root: Path) -> None:
    assert power_models(root) == []
    put(root, "gpu1/power_model", "1095000 310500 345000 120000 1095000 310500 1980000 700000")
    assert power_models(root) == [
        {
            "gpu": UUIDS[1],
            "best_core_mhz": 1095.0,
            "best_power_w": 310.5,
            "core_mhz": [345.0, 1095.0, 1980.0],
            "power_w": [120.0, 310.5, 700.0],
        }
    ]
    put(root, "init", "!9")
    assert power_models(root) == []


def test_each_field_has_its_own_return_code(root: Path) -> None:
    meter = open_nvml(root)
    put(root, "gpu1/field_186_0", "!15")
    with pytest.raises(MeterError, match=r"GPU 1 .*field 186.*GPU is lost.*Xid"):
        meter.read()


def test_a_refused_field_is_an_error_and_not_taken_as_unsupported(root: Path) -> None:
    put(root, "gpu0/field_186_0", "!4")
    with pytest.raises(MeterError, match=r"Insufficient Permissions.*/dev/nvidia"):
        open_nvml(root)


def test_a_reloaded_driver_is_noticed(root: Path) -> None:
    meter = open_nvml(root)
    meter.read()
    put(root, "gpu0/energy_mj", 5)
    for _ in range(2):
        with pytest.raises(MeterError, match=r"GPU 0 .*went back.*reset"):
            meter.read()


@pytest.mark.parametrize(
    ("code", "said"),
    [(9, "modprobe nvidia"), (18, "updated while it was loaded"), (4, "/dev/nvidia"), (999, "999")],
)
def test_a_library_that_does_not_start_says_why(root: Path, code: int, said: str) -> None:
    put(root, "init", f"!{code}")
    with pytest.raises(MeterError, match=said) as raised:
        open_nvml(root)
    assert str(root / LIBRARY) in raised.value.what


def test_a_missing_library_means_no_driver(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"libnvidia-ml\.so\.1.*nvidia-smi -L"):
        open_nvml(tmp_path)


def test_no_gpu_at_all(root: Path) -> None:
    shutil.rmtree(root / TREE / "gpu0")
    shutil.rmtree(root / TREE / "gpu1")
    with pytest.raises(MeterError, match="lists no GPU"):
        open_nvml(root)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("1", [1]),
        ("1,0", [1, 0]),
        (f"{UUIDS[1]}", [1]),
        ("GPU-5f1c0d2e-0", [0]),
        ("0,-1,1", [0]),
    ],
)
def test_cuda_visible_devices_chooses(
    root: Path, monkeypatch: pytest.MonkeyPatch, visible: str, indices: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    energies = [name for name in names(open_nvml(root)) if name.endswith("energy")]
    assert energies == [f"gpu-{index}/energy" for index in indices]


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        ("", "lists no GPU"),
        ("NoDevFiles", "lists no GPU"),
        ("7", "no GPU 7.*0 = GPU-5f1c0d2e-0"),
        ("GPU-5f", "several UUIDs begin"),
        ("MIG-1234", "slice"),
    ],
)
def test_cuda_visible_devices_without_a_valid_gpu(
    root: Path, monkeypatch: pytest.MonkeyPatch, visible: str, said: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(MeterError, match=said):
        open_nvml(root)


def test_cuda_numbers_different_gpus_differently(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, "gpu0/name", "NVIDIA T400")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(MeterError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        open_nvml(root)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert names(open_nvml(root)) == ["gpu-0/energy", "gpu-0/power"]


def test_devices_take_precedence_over_cuda_visible_devices(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert names(open_nvml(root, devices=[UUIDS[1]]))[0] == "gpu-1/energy"


def test_a_gpu_named_by_index_and_by_uuid_counts_once(root: Path) -> None:
    with pytest.raises(MeterError, match=r"GPU 1 .*named twice in the option `devices`"):
        open_nvml(root, devices=[1, UUIDS[1]])
    assert names(open_nvml(root, devices=[0, UUIDS[1]]))[0] == "gpu-0/energy"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": 0}, "no option device.*devices"),
        ({"devices": 0}, r"devices is a list such as \[0, 1\]"),
        ({"devices": "GPU-1"}, "devices is a list"),
        ({"devices": []}, "devices is a list"),
        ({"devices": [True]}, "neither an index nor a UUID"),
        ({"devices": [-1]}, "neither an index nor a UUID"),
        ({"devices": [1, 1]}, "twice"),
    ],
)
def test_invalid_options(root: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        open_nvml(root, **options)


def test_a_closed_meter(root: Path) -> None:
    meter = open_nvml(root)
    meter.close()
    meter.close()
    with pytest.raises(MeterError, match="closed"):
        meter.read()


def test_a_tree_does_not_change_the_module_of_the_process(root: Path) -> None:
    before = dict(vars(pynvml))
    meter = open_nvml(root)
    assert vars(pynvml) == before
    meter.close()


def test_this_machine_has_gpus_or_the_error_says_what_is_missing() -> None:
    try:
        meter = open_meter("nvml", {})
    except MeterError as error:
        assert error.remedy
    else:
        assert meter.read().time_ns > 0
        meter.close()


def test_locked_clocks_of_the_fake_library(root: Path) -> None:
    library = open_library(root)
    nvml, gpu = library.nvml, find_gpus(library)[0]
    assert nvml.nvmlDeviceGetSupportedMemoryClocks(gpu.handle) == [2619, 1593]
    assert nvml.nvmlDeviceGetSupportedGraphicsClocks(gpu.handle, 2619)[:2] == [1980, 1965]
    nvml.nvmlDeviceSetGpuLockedClocks(gpu.handle, 1200, 1200)
    nvml.nvmlDeviceSetMemoryLockedClocks(gpu.handle, 1593, 1593)
    assert (root / TREE / "gpu0/gpu_locked_clocks_mhz").read_text() == "1200 1200\n"
    assert nvml.nvmlDeviceGetClockInfo(gpu.handle, nvml.NVML_CLOCK_SM) == 1200
    assert nvml.nvmlDeviceGetClockInfo(gpu.handle, nvml.NVML_CLOCK_MEM) == 1593
    put(root, "gpu0/held_to_mhz", 900)
    assert nvml.nvmlDeviceGetClockInfo(gpu.handle, nvml.NVML_CLOCK_GRAPHICS) == 900
    nvml.nvmlDeviceResetGpuLockedClocks(gpu.handle)
    nvml.nvmlDeviceResetMemoryLockedClocks(gpu.handle)
    assert not (root / TREE / "gpu0/gpu_locked_clocks_mhz").exists()
    put(root, "gpu0/gpu_locked_clocks_mhz", "!4")
    with pytest.raises(nvml.NVMLError_NoPermission):
        nvml.nvmlDeviceSetGpuLockedClocks(gpu.handle, 1200, 1200)
    assert nvml.nvmlDeviceGetTemperature(gpu.handle, nvml.NVML_TEMPERATURE_GPU) == 34
    assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu.handle) == 0
    library.close()


def test_two_trees_at_once(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    copied("nvml-2-gpus", other)
    first = open_library(root)
    with installed(other):
        second = open_library(other)
        assert second.nvml.nvmlLib is not first.nvml.nvmlLib
        second.close()
    assert [gpu.index for gpu in find_gpus(first)] == [0, 1]
    first.close()


def test_a_closed_library_is_an_error(root: Path) -> None:
    library = open_library(root)
    library.close()
    library.close()
    with pytest.raises(NvmlError, match="Uninitialized"):
        find_gpus(library)
