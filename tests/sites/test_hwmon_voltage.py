"""The measured core voltage beside a clock control."""

from __future__ import annotations

from pathlib import Path

import pytest

from sites.clocks import ClocksUnavailable, open_control
from sites.site_file import Clocks, Partition, Site


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
    with pytest.raises(ClocksUnavailable, match="0 inputs 'vddx'"):
        open_control(site(label="vddx"), tree)
    control = open_control(site(), tree)
    (tree / "sys/class/hwmon/hwmon1/in0_input").write_text("N/A\n")
    with pytest.raises(ClocksUnavailable, match="not mV"):
        control.state()
