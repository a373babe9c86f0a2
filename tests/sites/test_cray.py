"""Cray's counters: one scan, its time, and the effects of the node's controller."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from sites.meters import MeterError
from sites.meters.cray import CrayMeter
from tests.sites.meter_layouts.cray import CHANNELS, PM_COUNTERS, counter_file, show
from tests.sites.meter_layouts.layout import TREES, copied, opener, replace

REPOSITORY = TREES.parent.parent


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied("cray-ex-4gpu", tmp_path / "root")


open_cray = opener("cray", CrayMeter)


def show_all(root: Path, value: float) -> None:
    show(root, dict.fromkeys(CHANNELS, value))


def shift_stamps(root: Path, shift_us: int) -> None:
    """Shift all stamps, as if the controller's clock were set differently."""
    for channel in CHANNELS:
        path = counter_file(root, channel)
        number, unit, stamp, us = path.read_text().split()
        replace(path, f"{number} {unit} {int(stamp) + shift_us} {us}\n")


def test_accelerators_are_inside_the_node(root: Path) -> None:
    meter = open_cray(root)
    channels = [
        (channel.name, channel.domain, channel.inside, channel.same_as)
        for channel in meter.channels
    ]
    assert channels[:4] == [
        ("node", "node", None, None),
        ("node/power", "node", None, "node"),
        ("cpu", "package", "node", None),
        ("cpu/power", "package", "node", "cpu"),
    ]
    assert channels[-1] == ("accel3/power", "gpu", "node", "accel3")
    assert {(channel.period_s, channel.stamped) for channel in meter.channels} == {(0.1, True)}
    meter.close()


def test_several_cpus_are_inside_their_sum(root: Path) -> None:
    for index in range(2):
        path = root / PM_COUNTERS / f"cpu{index}_energy"
        path.write_text("5 J 1717000000123456 us\n")
    meter = open_cray(root)
    by_name = {channel.name: channel for channel in meter.channels}
    assert by_name["cpu1"].inside == "cpu"
    assert by_name["cpu"].inside == "node"
    meter.close()


def test_the_time_of_a_reading_is_its_stamp(root: Path) -> None:
    meter = open_cray(root)
    before_ns = time.monotonic_ns()
    show_all(root, 1000)
    shown_ns = time.monotonic_ns()
    time.sleep(0.05)
    for _ in range(2):
        reading = meter.read()
        assert before_ns - 10**6 <= reading.time_ns <= shown_ns + 10**6
        time.sleep(0.05)
    meter.close()


@pytest.mark.parametrize("shift_s", [-7200, 3600])
def test_an_unsynchronised_clock_is_mapped_from_its_first_stamp(root: Path, shift_s: int) -> None:
    meter = open_cray(root)
    own_ns = time.monotonic_ns() - time.time_ns()
    times_ns, late_ns = [], []
    for value in range(5):
        show_all(root, 1000 + value)
        stamp_ns = int(counter_file(root, "node").read_text().split()[2]) * 1000
        shift_stamps(root, shift_s * 10**6)
        # The first reading comes late, and the later ones find the stamps when they are new.
        time.sleep(0.05 if value == 0 else 0.0)
        times_ns.append(meter.read().time_ns)
        assert times_ns[-1] <= time.monotonic_ns()
        late_ns.append(times_ns[-1] - (stamp_ns + own_ns))
        time.sleep(0.02)
    assert times_ns == sorted(times_ns)
    assert late_ns == sorted(late_ns, reverse=True)
    assert late_ns[0] >= 50 * 10**6
    assert late_ns[-1] > -(10**6)
    meter.close()


def test_a_clock_that_is_set_is_an_error(root: Path) -> None:
    for shift_s in (-100, 100):
        meter = open_cray(root)
        show_all(root, 1000)
        meter.read()
        show_all(root, 1001)
        shift_stamps(root, shift_s * 10**6)
        with pytest.raises(MeterError, match="clock of the node's controller"):
            meter.read()
        meter.close()


def test_files_without_stamps_are_read_at_the_time_of_the_reading(root: Path) -> None:
    for channel in CHANNELS:
        replace(counter_file(root, channel), "5 W\n" if "power" in channel else "5 J\n")
    meter = open_cray(root)
    before_ns = time.monotonic_ns()
    reading = meter.read()
    assert before_ns <= reading.time_ns <= time.monotonic_ns()
    assert set(reading.values) == {0.0, 5.0}
    assert not any(channel.stamped for channel in meter.channels)
    meter.close()


def test_freshness_that_stops_is_an_error(root: Path) -> None:
    meter = open_cray(root, stale_s=0.1)
    for value in (1000, 1001):
        show_all(root, value)
        meter.read()
        time.sleep(0.06)
    meter.read()
    time.sleep(0.1)
    with pytest.raises(MeterError, match=r"freshness has not changed from 73512347") as caught:
        meter.read()
    assert "discard" in caught.value.remedy
    # It goes on, with the same start: nothing was lost.
    show_all(root, 1005)
    assert meter.read().values[0] == 5.0
    meter.close()


def test_a_restart_is_an_error_until_the_meter_is_opened_again(root: Path) -> None:
    meter = open_cray(root)
    show_all(root, 1000)
    meter.read()
    replace(root / PM_COUNTERS / "startup", "1717000001\n")
    for value in (1001, 2000):
        show_all(root, value)
        with pytest.raises(MeterError, match="restarted"):
            meter.read()
    meter.close()
    meter = open_cray(root)
    assert meter.read().values[0] == 0.0
    meter.close()


SCANS = """
import os, shutil, sys
from pathlib import Path
from tests.sites.meter_layouts.cray import CHANNELS, PM_COUNTERS, show
root, counters = Path(sys.argv[1]), Path(sys.argv[1]) / PM_COUNTERS
for scan in range(1, 41):
    # A whole scan is put in place at once: a link that points to another directory.
    new = root / f"scan{scan}" / PM_COUNTERS
    shutil.copytree(counters, new)
    show(root / f"scan{scan}", dict.fromkeys(CHANNELS, 1000 + scan))
    os.symlink(new, root / "link")
    os.rename(root / "link", counters)
"""


def test_all_values_are_of_one_scan(root: Path) -> None:
    """Every counter and gauge shows the number of the scan; scans follow without a pause."""
    show_all(root, 1000)
    counters = root / PM_COUNTERS
    counters.rename(root / "first")
    counters.symlink_to(root / "first")
    meter = open_cray(root)
    meter.read()
    writer = subprocess.Popen([sys.executable, "-c", SCANS, str(root)], cwd=REPOSITORY)
    seen = set()
    while writer.poll() is None:
        values = meter.read().values
        energies, powers = set(values[::2]), set(values[1::2])
        assert len(energies) == 1
        assert powers == {1000 + energy_j for energy_j in energies}
        seen |= energies
    assert writer.returncode == 0
    assert len(seen) >= 3
    meter.close()


HAMMER = """
import os, sys
count = 0
while True:
    count += 1
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(f"{count}\\n")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


def test_a_scan_that_cannot_be_read_in_time_is_an_error(root: Path) -> None:
    freshness = root / PM_COUNTERS / "freshness"
    # So many counters that reading them all takes longer than a turn of another process.
    for index in range(400):
        (root / PM_COUNTERS / f"cpu{index}_energy").write_text("5 J 1717000000123456 us\n")
    meter = open_cray(root, stale_s=60)
    writer = subprocess.Popen([sys.executable, "-c", HAMMER, str(freshness)])
    try:
        end_s = time.monotonic() + 30
        with pytest.raises(MeterError, match="changed during each of 10 readings"):
            while time.monotonic() < end_s:
                meter.read()
    finally:
        writer.kill()
        writer.wait()
    meter.close()
