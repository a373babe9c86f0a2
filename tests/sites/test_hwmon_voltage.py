"""The measured core voltage beside a clock control."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvfs.setting import Setting
from sites.clocks import ClocksError, open_control
from sites.site_file import Clocks, Partition, Site
from tests.sites.clock_layouts import LAYOUTS, contents, copy, journals


def site(chip: str = "amdgpu", label: str = "vddgfx") -> Site:
    clocks = Clocks.model_validate({"core_voltage": {"chip": chip, "label": label}})
    return Site(name="s", clocks=clocks, partitions={"p": Partition()})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for i, (name, label, mv) in enumerate(
        [("nct6798", "Vcore", 1088), ("amdgpu", "vddgfx", 856), ("amdgpu", "vddnb", 900)]
    ):
        chip = tmp_path / f"sys/class/hwmon/hwmon{i}"
        chip.mkdir(parents=True)
        (chip / "name").write_text(f"{name}\n")
        (chip / "in0_label").write_text(f"{label}\n")
        (chip / "in0_input").write_text(f"{mv}\n")
    return tmp_path


def test_it_is_found_by_chip_and_label_and_read_each_time(tree: Path) -> None:
    control = open_control(site(), tree)
    assert control.state().core_v == 0.856
    (tree / "sys/class/hwmon/hwmon1/in0_input").write_text("912\n")
    assert control.state().core_v == 0.912
    assert open_control(site("nct6798", "Vcore"), tree).state().core_v == 1.088


def test_a_missing_input_and_invalid_text_are_errors(tree: Path) -> None:
    with pytest.raises(ClocksError, match="0 inputs 'vddx'"):
        open_control(site(label="vddx"), tree)
    control = open_control(site(), tree)
    (tree / "sys/class/hwmon/hwmon1/in0_input").write_text("N/A\n")
    with pytest.raises(ClocksError, match="not mV"):
        control.state()


def test_clocks_with_a_voltage_are_set_and_put_back_as_without_it(tree: Path) -> None:
    layout = next(layout for layout in LAYOUTS if layout.name == "jetson-orin")
    original = copy(layout, tree)
    voltage = {"core_voltage": {"chip": "amdgpu", "label": "vddgfx"}}
    clocks = layout.site().clocks.model_dump() | voltage
    own = layout.site().model_copy(update={"clocks": Clocks.model_validate(clocks)})
    control = open_control(own, tree)
    assert control.legal() == list(layout.legal)
    control.set(Setting(612.0, 2133.0))
    assert layout.shown(tree) == Setting(612.0, 2133.0)
    assert (control.state().setting.mem_mhz, control.state().core_v) == (2133.0, 0.856)
    control.restore()
    assert contents(tree) == original
    assert journals(tree) == []


def test_a_voltage_that_goes_away_is_an_error_with_its_file(tree: Path) -> None:
    control = open_control(site(), tree)
    file = tree / "sys/class/hwmon/hwmon1/in0_input"
    file.unlink()
    with pytest.raises(ClocksError, match="in0_input: No such file") as error:
        control.state()
    assert "leave clocks.core_voltage out" in error.value.remedy


def test_chips_without_a_name_and_labels_that_cannot_be_read_are_passed_over(tree: Path) -> None:
    (tree / "sys/class/hwmon/hwmon0/name").unlink()
    (tree / "sys/class/hwmon/hwmon2/in0_label").unlink()
    (tree / "sys/class/hwmon/hwmon2/in0_label").mkdir()
    assert open_control(site(), tree).state().core_v == 0.856
    with pytest.raises(ClocksError, match="0 inputs 'Vcore' of a chip 'nct6798'"):
        open_control(site("nct6798", "Vcore"), tree)
