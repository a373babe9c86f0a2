"""hwmon's sensors: which are found, how they are chosen, and which contain which."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from sites.meters import MeterError
from sites.meters.hwmon import find_sensors
from sites.meters.shared.open_meter import FileMeter
from tests.sites.meter_layouts.layout import TREES, opener

HWMON = Path("sys/class/hwmon")


open_hwmon = opener("hwmon", FileMeter)


def add_chip(
    root: Path, index: int, name: str, files: Mapping[str, object], device: str = ""
) -> None:
    directory = root / HWMON / f"hwmon{index}"
    directory.mkdir(parents=True)
    (directory / "name").write_text(f"{name}\n")
    for file, text in files.items():
        (directory / file).write_text(f"{text}\n")
    if device:
        home = root / "sys/devices" / device
        home.mkdir(parents=True, exist_ok=True)
        (directory / "device").symlink_to(home)


def nesting(meter: FileMeter) -> list[tuple[str, str, str | None]]:
    return [(channel.name, channel.domain, channel.inside) for channel in meter.channels]


def test_a_module_contains_its_cpu() -> None:
    meter = open_hwmon(TREES / "grace-hwmon")
    assert nesting(meter) == [
        ("Module Power Socket 0", "module", None),
        ("Module Power Socket 1", "module", None),
        ("Grace Power Socket 0", "package", "Module Power Socket 0"),
        ("Grace Power Socket 1", "package", "Module Power Socket 1"),
        ("CPU Power Socket 0", "core", "Grace Power Socket 0"),
        ("CPU Power Socket 1", "core", "Grace Power Socket 1"),
        ("SysIO Power Socket 0", "uncore", "Grace Power Socket 0"),
        ("SysIO Power Socket 1", "uncore", "Grace Power Socket 1"),
    ]
    assert {(channel.period_s, channel.averaging_s) for channel in meter.channels} == {(0.05, 0.05)}
    assert dict(
        zip((channel.name for channel in meter.channels), meter.read().values, strict=True)
    )["Module Power Socket 0"] == pytest.approx(612.345)
    meter.close()


def test_a_grace_without_a_module(tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(TREES / "grace-hwmon", root)
    for label in (root / HWMON).glob("hwmon*/device/power1_oem_info"):
        if "Module" in label.read_text() or "Grace Power Socket 1" in label.read_text():
            shutil.rmtree(label.parent.parent)
    meter = open_hwmon(root)
    assert nesting(meter)[:3] == [
        ("Grace Power Socket 0", "package", None),
        ("CPU Power Socket 0", "core", "Grace Power Socket 0"),
        ("CPU Power Socket 1", "core", None),
    ]
    meter.close()


def test_the_files_of_newer_kernels_are_the_chips_own(tmp_path: Path) -> None:
    files = {"power1_average": 5_000_000, "power1_oem_info": "CPU Power Socket 0"}
    add_chip(tmp_path, 7, "power_meter", files)
    meter = open_hwmon(tmp_path)
    assert nesting(meter) == [("CPU Power Socket 0", "core", None)]
    assert meter.read().values == (5.0,)
    meter.close()


def test_amd_sockets() -> None:
    meter = open_hwmon(TREES / "amd-energy-hwmon")
    assert nesting(meter) == [("Esocket0", "package", None), ("Esocket1", "package", None)]
    meter.close()


def test_intel_gpus(tmp_path: Path) -> None:
    """By the kernel's ABI documents: energy 1 is the device or the card, energy 2 a part of it, and
    chips i915_gtN are parts of i915."""
    card = {"energy1_label": "card", "energy1_input": 5_000_000}
    package = {"energy2_label": "pkg", "energy2_input": 3_000_000}
    add_chip(tmp_path, 0, "xe", {**card, **package}, "0000:03:00.0")
    meter = open_hwmon(tmp_path)
    assert nesting(meter) == [("card", "gpu", None)]
    meter.close()
    add_chip(tmp_path, 1, "xe", package, "0000:04:00.0")
    add_chip(tmp_path, 2, "i915_gt0", {"energy1_input": 1}, "0000:0a:00.0")
    add_chip(tmp_path, 3, "i915", {"energy1_input": 7_000_000}, "0000:0a:00.0")
    meter = open_hwmon(tmp_path)
    names = ["0000:03:00.0/card", "0000:04:00.0/pkg", "0000:0a:00.0/i915-1"]
    assert sorted(nesting(meter)) == [(name, "gpu", None) for name in names]
    meter.read()
    for index, number, uj in ((0, 1, 15_000_000), (1, 2, 23_000_000), (3, 1, 37_000_000)):
        (tmp_path / HWMON / f"hwmon{index}/energy{number}_input").write_text(f"{uj}\n")
    channels = (channel.name for channel in meter.channels)
    by_name = dict(zip(channels, meter.read().values, strict=True))
    assert by_name == dict(zip(names, (10.0, 20.0, 30.0), strict=True))
    meter.close()


def test_a_counter_and_a_power_of_one_label_are_the_same_energy(tmp_path: Path) -> None:
    labels = {"energy1_label": "pkg", "power1_label": "pkg"}
    add_chip(tmp_path, 0, "xe", {**labels, "energy1_input": 10, "power1_input": 7_000_000})
    meter = open_hwmon(tmp_path, sensors=[{"chip": "xe", "label": "pkg", "domain": "gpu"}])
    channels = [(channel.name, channel.kind, channel.same_as) for channel in meter.channels]
    assert channels == [("pkg", "energy", None), ("pkg/power", "power", "pkg")]
    assert meter.read().values == (0.0, 7.0)
    meter.close()


def test_the_average_is_read_where_there_are_both(tmp_path: Path) -> None:
    files = {"power2_input": 1, "power2_average": 3_000_000, "update_interval": 250}
    add_chip(tmp_path, 0, "c", files)
    meter = open_hwmon(tmp_path, sensors=[{"chip": "c", "number": 2, "domain": "board"}])
    assert [(channel.name, channel.period_s) for channel in meter.channels] == [("c-2", 0.25)]
    assert meter.read().values == (3.0,)
    meter.close()


def test_two_chips_with_one_name_are_distinguished_by_device(tmp_path: Path) -> None:
    for index, device in ((3, "0000:c1:00.0"), (0, "0000:41:00.0")):
        power = {"power1_average": (index + 1) * 10**6, "power1_label": "PPT"}
        add_chip(tmp_path, index, "amdgpu", power, device)
    sensor = {"chip": "amdgpu", "label": "PPT", "domain": "gpu"}
    with pytest.raises(MeterError, match="are both amdgpu PPT") as caught:
        open_hwmon(tmp_path, sensors=[sensor])
    assert "0000:41:00.0, 0000:c1:00.0" in caught.value.remedy
    meter = open_hwmon(
        tmp_path,
        sensors=[{**sensor, "device": device} for device in ("0000:c1:00.0", "0000:41:00.0")],
    )
    assert [channel.name for channel in meter.channels] == ["0000:c1:00.0/PPT", "0000:41:00.0/PPT"]
    assert meter.read().values == (4.0, 1.0)
    meter.close()


def test_a_missing_sensor_lists_those_that_exist() -> None:
    sensor = {"chip": "amd_energy", "label": "Esocket9", "domain": "package"}
    with pytest.raises(MeterError, match="no sensor Esocket9") as caught:
        open_hwmon(TREES / "amd-energy-hwmon", sensors=[sensor])
    assert "amd_energy Ecore002, amd_energy Ecore003, amd_energy Esocket0" in caught.value.remedy


def test_sensors_without_a_known_domain_are_not_read(tmp_path: Path) -> None:
    add_chip(tmp_path, 0, "corsairpsu", {"power1_input": 5, "power1_label": "power total"})
    assert [str(sensor) for sensor in find_sensors(tmp_path)] == ["corsairpsu power total"]
    with pytest.raises(MeterError, match="whose domain is known") as caught:
        open_hwmon(tmp_path)
    assert "corsairpsu power total" in caught.value.remedy
