"""The rails of Jetson boards: products of two files, their steps, and what contains what."""

from __future__ import annotations

from pathlib import Path

import pytest

from sites.meters import MeterError
from sites.meters.ina3221 import Ina3221Meter
from sites.meters.shared.meter import contains
from tests.sites.meter_layouts.ina3221 import CHIP
from tests.sites.meter_layouts.layout import copied, opener


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied("jetson-ina3221", tmp_path / "root")


open_ina3221 = opener("ina3221", Ina3221Meter)


def add_chip(root: Path, place: str, *rails: tuple[str, int, int]) -> Path:
    chip = root / "sys/bus/i2c/drivers" / place
    chip.mkdir(parents=True)
    for number, (label, voltage_mv, current_ma) in enumerate(rails, start=1):
        (chip / f"in{number}_label").write_text(f"{label}\n")
        (chip / f"in{number}_input").write_text(f"{voltage_mv}\n")
        (chip / f"curr{number}_input").write_text(f"{current_ma}\n")
    return chip


def nesting(meter: Ina3221Meter) -> list[tuple[str, str, str | None]]:
    return [(channel.name, channel.domain, channel.inside) for channel in meter.channels]


def test_the_input_of_the_module_contains_its_rails(root: Path) -> None:
    meter = open_ina3221(root)
    assert nesting(meter) == [
        ("VDD_IN", "module", None),
        ("VDD_CPU_GPU_CV", "package", "VDD_IN"),
        ("VDD_SOC", "board", "VDD_IN"),
    ]
    # mV x mA / 1000 = mW.
    assert meter.read().values == (7.141376, 1.539456, 2.0256)
    channel = meter.channels[0]
    assert channel.period_s == 0.007
    assert channel.averaging_s == 0.0
    assert channel.seen == pytest.approx(1 / 6)
    assert channel.resolution == pytest.approx(5.072 * 0.008)
    meter.close()


def test_an_agx_orin_has_no_rail_of_the_whole_module(tmp_path: Path) -> None:
    orin = [("VDD_GPU_SOC", 19680, 320), ("VDD_CPU_CV", 19680, 80), ("VIN_SYS_5V0", 4968, 953)]
    add_chip(tmp_path, "ina3221/1-0040/hwmon/hwmon3", *orin)
    add_chip(tmp_path, "ina3221/1-0041/hwmon/hwmon4", ("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 4968, 341))
    meter = open_ina3221(tmp_path)
    assert nesting(meter) == [
        ("VDD_GPU_SOC", "gpu", None),
        ("VDD_CPU_CV", "package", None),
        ("VIN_SYS_5V0", "board", None),
        ("VDDQ_VDD2_1V8AO", "dram", "VIN_SYS_5V0"),
    ]
    meter.close()


def test_the_rails_of_an_agx_xavier_add_up(tmp_path: Path) -> None:
    """Those of the SoC and of the accelerators are beside the CPU's, and no part of it."""
    one, two = ("GPU", 19000, 100), ("CPU", 19000, 150)
    add_chip(tmp_path, "ina3221x/1-0040/hwmon/hwmon3", one, two, ("SOC", 19000, 80))
    more = [("CV", 19000, 25), ("VDDRQ", 19000, 40), ("SYS5V", 19000, 60)]
    add_chip(tmp_path, "ina3221x/1-0041/hwmon/hwmon4", *more)
    meter = open_ina3221(tmp_path)
    channels = meter.channels
    assert [channel.name for channel in channels] == ["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"]
    assert not any(channel.inside for channel in channels)
    assert not any(contains(a.domain, b.domain) for a in channels for b in channels)
    meter.close()


def test_the_driver_of_older_kernels_without_an_interval(tmp_path: Path) -> None:
    add_chip(tmp_path, "ina3221x/6-0040/hwmon/hwmon2", ("POM_5V_IN", 5000, 400), ("X", 5000, 1))
    meter = open_ina3221(tmp_path)
    assert nesting(meter) == [("POM_5V_IN", "module", None)]
    # Two channels that take turns, 1.1 ms for each of the two voltages.
    assert meter.channels[0].period_s == pytest.approx(4.4e-3)
    meter.close()


def test_samples_are_an_average(root: Path) -> None:
    (root / CHIP / "samples").write_text("16\n")
    (root / CHIP / "update_interval").write_text("106\n")
    meter = open_ina3221(root)
    assert {(channel.period_s, channel.averaging_s) for channel in meter.channels} == {
        (0.106, 0.106)
    }
    meter.close()


def test_rails_are_named_by_the_option(root: Path) -> None:
    meter = open_ina3221(root, rails={"VDD_SOC": "board", "VDD_IN": "node"})
    assert nesting(meter) == [("VDD_IN", "node", None), ("VDD_SOC", "board", "VDD_IN")]
    meter.close()
    with pytest.raises(MeterError, match="no rail VDD_CORE") as caught:
        open_ina3221(root, rails={"VDD_CORE": "core"})
    assert caught.value.remedy == "the rails are VDD_IN, VDD_CPU_GPU_CV, VDD_SOC"


def test_a_rail_that_is_off_is_not_zero(root: Path) -> None:
    (root / CHIP / "in2_enable").write_text("0\n")
    meter = open_ina3221(root)
    assert [channel.name for channel in meter.channels] == ["VDD_IN", "VDD_SOC"]
    assert meter.channels[0].seen == pytest.approx(1 / 4)
    meter.close()
    with pytest.raises(MeterError, match="in2_enable is 0") as caught:
        open_ina3221(root, rails={"VDD_CPU_GPU_CV": "package"})
    assert "echo 1 >" in caught.value.remedy
    (root / CHIP / "in1_input").write_text("0\n")
    meter = open_ina3221(root)
    with pytest.raises(MeterError, match="in1_input reads 0 mV"):
        meter.read()
    meter.close()


def test_a_current_below_zero_is_kept(root: Path) -> None:
    (root / CHIP / "curr3_input").write_text("-8\n")
    meter = open_ina3221(root)
    assert meter.read().values[2] == pytest.approx(-0.040512)
    meter.close()
