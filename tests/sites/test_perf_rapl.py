"""Energy through perf events: which events are opened, and the system call on this kernel."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sites.meters import MeterError
from sites.meters.perf_rapl import KernelEvent
from sites.meters.shared.open_meter import OpenMeter
from sites.perf_event import EventSpec
from tests.sites.meter_layouts.layout import copied, opener
from tests.sites.meter_layouts.perf_rapl import COUNTS, POWER

CPU_CLOCK = EventSpec("cpu-clock", source_type=1, config=0)
"""A software event that every kernel has: ns on a CPU (linux/perf_event.h)."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied("perf-rapl-2s", tmp_path / "root")


open_perf = opener("perf-rapl", OpenMeter)


def test_memory_is_outside_its_package(root: Path) -> None:
    meter = open_perf(root)
    assert [(channel.name, channel.domain, channel.inside) for channel in meter.channels] == [
        ("package-0", "package", None),
        ("package-0/dram", "dram", None),
        ("package-1", "package", None),
        ("package-1/dram", "dram", None),
    ]
    meter.close()


def test_cores_are_inside_and_amd_has_only_the_package(root: Path) -> None:
    events = root / POWER / "events"
    for suffix in ("", ".scale", ".unit"):
        (events / f"energy-ram{suffix}").rename(events / f"energy-cores{suffix}")
    (root / COUNTS / "energy-ram").rename(root / COUNTS / "energy-cores")
    meter = open_perf(root)
    assert [channel.inside for channel in meter.channels] == [None, "package-0", None, "package-1"]
    meter.close()
    meter = open_perf(root, events=["energy-cores"])
    assert [channel.inside for channel in meter.channels] == [None, None]
    meter.close()
    (events / "energy-cores").unlink()
    meter = open_perf(root)
    assert [channel.name for channel in meter.channels] == ["package-0", "package-1"]
    meter.close()
    with pytest.raises(MeterError, match="no event energy-ram") as caught:
        open_perf(root, events=["energy-ram"])
    assert caught.value.remedy.endswith("has energy-pkg")


def test_several_dies_of_a_package(root: Path) -> None:
    topology = root / "sys/devices/system/cpu/cpu28/topology"
    (topology / "physical_package_id").write_text("0\n")
    (topology / "die_id").write_text("1\n")
    meter = open_perf(root, events=["energy-pkg"])
    assert [channel.name for channel in meter.channels] == ["package-0-die-0", "package-0-die-1"]
    meter.close()


def test_the_dies_of_a_package_of_amd_show_one_counter(root: Path) -> None:
    """Linux 6.9 to 6.11 on Zen 4: the cpumask of a package with 12 dies is 0,8,16 ... 88."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("vendor_id\t: AuthenticAMD\n")
    for cpu in range(0, 96, 8):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True, exist_ok=True)
        (topology / "physical_package_id").write_text(f"{cpu // 48}\n")
        (topology / "die_id").write_text(f"{cpu // 8 % 6}\n")
        (root / COUNTS / f"energy-pkg/cpu{cpu}").write_text("7\n")
    (root / POWER / "cpumask").write_text(",".join(map(str, range(0, 96, 8))) + "\n")
    meter = open_perf(root, events=["energy-pkg"])
    assert [channel.name for channel in meter.channels] == ["package-0", "package-1"]
    meter.read()
    for i, cpu in enumerate((0, 48)):
        (root / COUNTS / f"energy-pkg/cpu{cpu}").write_text(f"{7 + (i + 1) * 2**32}\n")
    assert meter.read().values == (1.0, 2.0)
    meter.close()


def test_the_scale_is_exact(root: Path) -> None:
    meter = open_perf(root, events=["energy-pkg"])
    meter.read()
    path = root / COUNTS / "energy-pkg/cpu0"
    path.write_text(f"{int(path.read_text()) + 2**62}\n")
    assert meter.read().values == (2.0**30, 0.0)
    meter.close()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("type", "power\n"),
        ("cpumask", "\n"),
        ("cpumask", "all\n"),
        ("events/energy-pkg", "config=2\n"),
        ("events/energy-pkg.unit", "mJ\n"),
        ("events/energy-pkg.scale", "0\n"),
        ("events/energy-pkg.scale", "1/0\n"),
        ("events/energy-ram.scale", ""),
    ],
)
def test_an_invalid_event_description(root: Path, file: str, text: str) -> None:
    (root / POWER / file).write_text(text)
    with pytest.raises(MeterError, match=file):
        open_perf(root)


def test_the_system_call_counts_or_the_error_says_what_is_needed() -> None:
    """The CPU's clock runs at 1 GHz in its unit of ns, whichever CPU counts it."""
    try:
        event = KernelEvent(CPU_CLOCK, 0)
    except MeterError as error:
        assert "perf_event_paranoid" in error.remedy
        return  # this user may not count events of all processes
    start_ns, first = time.monotonic_ns(), event.read_number()
    time.sleep(0.05)
    counted, passed_ns = event.read_number() - first, time.monotonic_ns() - start_ns
    assert 0.04 * 1e9 < counted <= passed_ns + 10**7
    event.close()
    event.close()
    with pytest.raises(MeterError, match="power/cpu-clock/ on CPU 0"):
        event.read_number()


def test_an_event_that_the_kernel_does_not_know() -> None:
    unknown = EventSpec("energy-pkg", 2**31 - 5, 2)
    with pytest.raises(MeterError, match="energy-pkg/ on CPU 0") as caught:
        KernelEvent(unknown, 0)
    assert caught.value.remedy


def test_this_machine_is_read_or_the_error_says_why_not() -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))
    try:
        meter = open_perf(Path("/"))
    except MeterError as error:
        assert error.remedy
    else:
        first = meter.read()
        time.sleep(0.02)
        second = meter.read()
        assert all(b >= a for a, b in zip(first.values, second.values, strict=True))
        meter.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
