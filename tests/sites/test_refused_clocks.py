"""What a refusal says of the clocks that are offered, beside a search of the legal settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from dvfs.setting import Setting
from sites.clocks import IllegalClockError, open_control
from sites.site_reading import built_in_sites, read_site
from tests.sites.clock_layouts import LAYOUTS, ClockLayout, copy

BY_NAME = {layout.name: layout for layout in LAYOUTS}


def asked_beside(listed_mhz: list[float]) -> list[float]:
    """Clocks beyond both ends of a list, and nearer to one of each two neighbours."""
    between = [low + share * (high - low) for low, high in pairwise(listed_mhz)
               for share in (0.3, 0.7)]  # fmt: skip
    return [listed_mhz[0] * 0.5, *between, listed_mhz[-1] * 1.5]


@contextmanager
def refusals(layout: ClockLayout, root: Path) -> Iterator[Callable[[Setting], str]]:
    """A function that gives the text with which the control refuses a setting."""
    copy(layout, root)
    with layout.running(root):
        clocks = layout.open(root)

        def refused(setting: Setting) -> str:
            with pytest.raises(IllegalClockError) as refusal:
                clocks.set(setting)
            return str(refusal.value)

        yield refused
        clocks.restore()


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("cpufreq-acpi", "core"),
        ("jetson-orin", "core"),
        ("jetson-orin", "memory"),
        ("jetson-nano", "core"),
        ("nvml", "core"),
    ],
)
def test_the_two_nearest_of_the_listed_clocks_are_offered(
    tmp_path: Path, name: str, domain: str
) -> None:
    layout = BY_NAME[name]
    core = domain == "core"
    memory = None if name != "nvml" else layout.legal[-1].mem_mhz
    listed = sorted(
        {
            mhz
            for setting in layout.legal
            if memory is None or setting.mem_mhz == memory
            if (mhz := setting.core_mhz if core else setting.mem_mhz) is not None
        }
    )
    few = listed if len(listed) < 8 else listed[:: len(listed) // 6]
    with refusals(layout, tmp_path) as refused:
        for mhz in set(asked_beside(few)).difference(listed):
            text = refused(Setting(mhz, memory) if core else Setting(None, mhz))
            said = [float(n) for n in re.findall(r"[\d.]+", text.partition("the nearest: ")[2])]
            assert said == sorted(sorted(listed, key=lambda one: abs(one - mhz))[:2]), text
            assert f"{domain} {mhz:g} MHz" in text


def test_a_memory_clock_beyond_a_range_is_refused_with_both_ends(tmp_path: Path) -> None:
    with refusals(BY_NAME["jetson-nano"], tmp_path) as refused:
        for mhz in (10.0, 1866.0):
            assert refused(Setting(None, mhz)).endswith("nearest: 204 and 1600")


def test_an_uncore_clock_between_two_steps_is_refused_with_the_range(tmp_path: Path) -> None:
    with refusals(BY_NAME["uncore-2s"], tmp_path) as refused:
        text = refused(Setting(None, 1250.0))
    assert text == "memory 1250 MHz: the uncore offers 1200 to 2400 MHz in steps of 100"


def test_a_memory_clock_that_a_gpu_lacks_is_refused_with_all_it_has(tmp_path: Path) -> None:
    layout = BY_NAME["nvml"]
    offered = ", ".join(f"{mhz:g}" for mhz in sorted({s.mem_mhz or 0.0 for s in layout.legal}))
    with refusals(layout, tmp_path) as refused:
        assert refused(Setting(None, 1000.0)) == f"memory 1000 MHz: the GPU offers {offered}"


def test_a_simulated_machine_refuses_what_is_not_in_its_table() -> None:
    clocks = open_control(read_site(built_in_sites()["jetson-tk1"]))
    clocks.set(Setting(852.0, 924.0))
    with pytest.raises(IllegalClockError, match="core 853, memory 924 MHz: not a legal setting"):
        clocks.set(Setting(853.0, 924.0))
    assert clocks.state().setting == Setting(852.0, 924.0)
