"""Energy counters and the powercap meter, compared with independent arithmetic."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sites.meters import MeterError
from sites.meters.shared.counter import Counter
from sites.meters.shared.open_meter import FileMeter
from sites.meters.shared.powercap_zones import find_zones
from tests.sites.meter_layouts.layout import opener

TREES = Path(__file__).parent.parent / "trees"
REPOSITORY = TREES.parent.parent
MICROJOULE = Fraction(1, 10**6)
NS_PER_S = 10**9
INTEL_CHANNELS = [
    "package-0",
    "package-0/dram",
    "package-0/core",
    "package-1",
    "package-1/dram",
    "package-1/core",
]


# --- The counter ---------------------------------------------------------------------------------


def feed(counter: Counter, readings: list[int], seconds_apart: float = 0.01) -> list[float]:
    """Every energy that the counter gives for readings taken at regular times, in J."""
    instants = [round(i * seconds_apart * NS_PER_S) for i in range(len(readings))]
    return [counter.update(raw, at, at) for raw, at in zip(readings, instants, strict=True)]


@st.composite
def true_energies(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A range, and cumulative energies with smaller steps than the range, from any phase."""
    range_units = draw(st.integers(1, 2**64))
    first = draw(st.integers(0, 10 * range_units))
    steps = draw(st.lists(st.integers(0, range_units - 1), max_size=40))
    return range_units, list(accumulate(steps, initial=first))


@given(true_energies(), st.fractions(min_value=Fraction(1, 10**9), max_value=1000))
def test_wrapped_readings_give_the_exact_energies(
    case: tuple[int, list[int]], joules_per_unit: Fraction
) -> None:
    range_units, energies = case
    counter = Counter("c", joules_per_unit, range_units=range_units)
    readings_j = feed(counter, [energy % range_units for energy in energies])
    assert readings_j == [float((energy - energies[0]) * joules_per_unit) for energy in energies]
    assert readings_j == sorted(readings_j)


@given(
    range_units=st.integers(10**4, 2**40),
    phase=st.integers(0, 2**40),
    step_share=st.fractions(min_value=Fraction(1, 50), max_value=Fraction(99, 100)),
)
def test_many_wraps_at_every_phase(range_units: int, phase: int, step_share: Fraction) -> None:
    step = max(1, int(range_units * step_share))
    energies = [phase + i * step for i in range(200)]
    counter = Counter("c", MICROJOULE, range_units=range_units)
    readings_j = feed(counter, [energy % range_units for energy in energies])
    assert 199 * step // range_units >= 3
    assert readings_j[-1] == 199 * step / 10**6


@given(
    powers_w=st.lists(st.integers(0, 400), min_size=1, max_size=40),
    gaps_ms=st.lists(st.integers(1, 60_000), min_size=40, max_size=40),
    phase=st.integers(0, 262_143_328_849),
)
def test_the_greatest_power_refuses_no_possible_energy(
    powers_w: list[int], gaps_ms: list[int], phase: int
) -> None:
    """Powers at most the greatest, read often enough: exact, with a real counter's range."""
    range_uj = 262_143_328_850
    counter = Counter("c", MICROJOULE, range_units=range_uj, max_power_w=400.0, lag_s=0.1)
    now_ms, energy_uj = 0, phase
    counter.update(energy_uj % range_uj, 0, 0)
    for power_w, gap_ms in zip(powers_w, gaps_ms, strict=False):
        now_ms += gap_ms
        energy_uj += power_w * gap_ms * 1000
        energy_j = counter.update(energy_uj % range_uj, now_ms * 10**6, now_ms * 10**6)
        assert energy_j == (energy_uj - phase) / 10**6


@given(
    last=st.integers(0, 999_999),
    raw=st.integers(0, 999_999),
    elapsed_ms=st.integers(0, 2_000),
    max_power_w=st.integers(1, 2_000),
)
def test_a_step_is_taken_exactly_where_one_energy_explains_it(
    last: int, raw: int, elapsed_ms: int, max_power_w: int
) -> None:
    """If the bound allows exactly one energy for the readings, it is taken; if not, an error."""
    range_units, step_units = 1_000_000, 1
    counter = Counter(
        "c", Fraction(1, 1000), range_units=range_units, max_power_w=float(max_power_w)
    )
    most = max_power_w * elapsed_ms + step_units
    possible = [step for step in range(raw - last, most + 1, range_units) if step >= 0]
    counter.update(last, 0, 0)
    end_ns = elapsed_ms * 10**6
    if most < range_units and possible:
        assert counter.update(raw, end_ns, end_ns) == possible[0] / 1000
        assert len(possible) == 1
    else:
        with pytest.raises(MeterError):
            counter.update(raw, end_ns, end_ns)


def test_a_counter_without_a_range_may_not_go_back() -> None:
    counter = Counter("gpu0", Fraction(1, 1000))
    assert feed(counter, [5000, 5000, 7500]) == [0.0, 0.0, 2.5]
    with pytest.raises(MeterError, match=r"gpu0 went back from 7500 to 10") as caught:
        counter.update(10, NS_PER_S, NS_PER_S)
    assert "open the meter again" in caught.value.remedy


def test_the_greatest_power_separates_a_reset_from_a_wrap() -> None:
    def last_two(last: int, raw: int) -> float:
        counter = Counter("c", MICROJOULE, range_units=10**9, max_power_w=100.0)
        return feed(counter, [last, raw], seconds_apart=1.0)[1]

    # 100 J at most in the second: from 950 J a wrap to 40 J is 90 J, from 500 J it would be 540 J.
    assert last_two(950_000_000, 40_000_000) == 90.0
    with pytest.raises(MeterError, match="was reset"):
        last_two(500_000_000, 40_000_000)
    with pytest.raises(MeterError, match="went back"):
        last_two(500_000_000, 300_000_000)
    with pytest.raises(MeterError, match="jumped"):
        last_two(500_000_000, 700_000_000)


def test_readings_too_far_apart_are_always_refused() -> None:
    counter = Counter("c", MICROJOULE, range_units=10**9, max_power_w=100.0, lag_s=0.1)
    longest_s = counter.longest_gap_s
    assert longest_s is not None
    assert longest_s == pytest.approx(9.9)
    counter.update(0, 0, 0)
    just_ns = int(longest_s * NS_PER_S)
    counter.update(5, just_ns, just_ns)
    with pytest.raises(MeterError, match="more than once") as caught:
        counter.update(6, 2 * just_ns + 10**6, 2 * just_ns + 10**6)
    assert "at least every 9.9 s" in caught.value.remedy


def test_the_time_counts_from_before_the_last_reading_to_after_this_one() -> None:
    """A reader interrupted between counter and clock has more time behind it than it seems."""
    counter = Counter("c", MICROJOULE, range_units=10**9, max_power_w=100.0)
    counter.update(0, 0, NS_PER_S)
    assert counter.update(190_000_000, NS_PER_S, 2 * NS_PER_S) == 190.0
    with pytest.raises(ValueError, match="times"):
        counter.update(190_000_000, 0, 3 * NS_PER_S)


def test_the_greatest_step_is_rounded_up() -> None:
    """1.5 J at 1 W for 1.5 s: two whole joules, and one more step that was about to show."""
    for raw, is_plausible in ((3, True), (4, False)):
        counter = Counter("c", Fraction(1), range_units=100, max_power_w=1.0)
        counter.update(0, 0, 0)
        if is_plausible:
            assert counter.update(raw, 3 * NS_PER_S // 2, 3 * NS_PER_S // 2) == raw
        else:
            with pytest.raises(MeterError, match="jumped"):
                counter.update(raw, 3 * NS_PER_S // 2, 3 * NS_PER_S // 2)


def test_nothing_is_guessed_after_an_error() -> None:
    counter = Counter("c", MICROJOULE, range_units=10**9, max_power_w=100.0)
    counter.update(500_000_000, 0, 0)
    for raw in (100, 200, 500_000_001):
        with pytest.raises(MeterError, match="was reset"):
            counter.update(raw, 10**6, 10**6)


@pytest.mark.parametrize("raw", [-1, 1001])
def test_a_reading_outside_the_range_is_an_error(raw: int) -> None:
    with pytest.raises(MeterError, match="outside its range"):
        Counter("c", MICROJOULE, range_units=1000).update(raw, 0, 0)


def test_the_full_range_reads_the_same_as_zero() -> None:
    counter = Counter("c", Fraction(1), range_units=1000)
    assert feed(counter, [999, 1000, 0, 1]) == [0.0, 1.0, 1.0, 2.0]


def test_arguments_out_of_range_are_refused() -> None:
    for wrong in ({"range_units": 0}, {"max_power_w": 0.0}, {"lag_s": -1.0}, {"step_units": 0}):
        with pytest.raises(ValueError, match="c: "):
            Counter("c", MICROJOULE, **wrong)


# --- Trees ---------------------------------------------------------------------------------------


def write_zone(directory: Path, name: str, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    """The three files of a zone; returns its energy_uj."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "name").write_text(f"{name}\n")
    (directory / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (directory / "energy_uj").write_text(f"{energy_uj}\n")
    return directory / "energy_uj"


def replace(path: Path, energy_uj: int) -> None:
    """Replace a file by a new reading, as a program that replays a tree does."""
    new = path.with_name("new")
    new.write_text(f"{energy_uj}\n")
    new.replace(path)


def powercap_of(root: Path) -> Path:
    return root / "sys/class/powercap"


def copy_tree(name: str, to: Path) -> Path:
    root = to / name
    shutil.copytree(TREES / name, root)
    return root


def energy_files(root: Path) -> dict[str, Path]:
    return {zone.channel: zone.energy_path for zone in find_zones(root)}


open_powercap = opener("powercap", FileMeter)


def longest_gap_s(meter: FileMeter) -> float:
    return min(counter.longest_gap_s or 0.0 for counter in meter.counters if counter)


def summed_j(meter: FileMeter) -> float:
    """The total: the sum of the channels that are inside no other."""
    values = zip(meter.channels, meter.read().values, strict=True)
    return sum(value for channel, value in values if channel.inside is None)


def test_two_intel_packages(tmp_path: Path) -> None:
    root = copy_tree("powercap-2s-intel", tmp_path)
    meter = open_powercap(root)
    assert [channel.name for channel in meter.channels] == INTEL_CHANNELS
    by_name = {channel.name: channel for channel in meter.channels}
    assert by_name["package-1/core"].inside == "package-1"
    assert by_name["package-0/dram"].inside is None
    assert by_name["package-0"].resolution == pytest.approx(61.035e-6)
    assert by_name["package-0/dram"].resolution == pytest.approx(15.3e-6)
    assert {channel.kind for channel in meter.channels} == {"energy"}
    before_ns = time.monotonic_ns()
    reading = meter.read()
    assert before_ns <= reading.time_ns <= time.monotonic_ns()
    assert reading.values == (0.0,) * 6
    meter.close()


def test_amd_has_package_and_core() -> None:
    meter = open_powercap(TREES / "powercap-amd")
    channels = [(channel.name, channel.domain, channel.inside) for channel in meter.channels]
    assert channels == [("package-0", "package", None), ("package-0/core", "core", "package-0")]
    assert meter.channels[0].resolution == pytest.approx(2**-16, rel=1e-4)
    # 65,533 J at up to 1 kW, less 0.1 s.
    assert longest_gap_s(meter) == pytest.approx(65.43, abs=0.01)
    meter.close()


def add_to_all(files: dict[str, Path], joules: dict[str, int]) -> None:
    for name, added_j in joules.items():
        energy_uj = int(files[name].read_text()) + added_j * 10**6
        range_uj = int(files[name].with_name("max_energy_range_uj").read_text())
        replace(files[name], energy_uj % range_uj)


ADDED_J = {
    "package-0": 50,
    "package-0/core": 30,
    "package-0/dram": 7,
    "package-1": 40,
    "package-1/core": 20,
    "package-1/dram": 5,
    "psys": 160,
}


@pytest.mark.parametrize(
    ("zones", "total_j"),
    [
        (None, 50 + 7 + 40 + 5),
        (["psys", *INTEL_CHANNELS], 160),
        (["package-0/core", "package-0/dram"], 30 + 7),
        (["package-0/core", "package-1", "package-1/core"], 30 + 40),
        (["psys", "package-1/core"], 160),
    ],
)
def test_nothing_is_summed_twice(tmp_path: Path, zones: list[str] | None, total_j: int) -> None:
    root = copy_tree("powercap-2s-intel", tmp_path)
    meter = open_powercap(root, **({} if zones is None else {"zones": zones}))
    assert summed_j(meter) == 0
    add_to_all(energy_files(root), ADDED_J)
    assert summed_j(meter) == total_j
    names = {channel.name for channel in meter.channels}
    assert {channel.inside for channel in meter.channels} <= names | {None}
    meter.close()


def test_the_other_interface_of_the_same_package_is_left_out(tmp_path: Path) -> None:
    root = copy_tree("powercap-2s-intel", tmp_path)
    powercap = powercap_of(root)
    mmio = powercap / "intel-rapl-mmio"
    write_zone(mmio / "intel-rapl-mmio:0", "package-0", 1)
    write_zone(mmio / "intel-rapl-mmio:0/intel-rapl-mmio:0:0", "uncore", 2)
    write_zone(mmio / "intel-rapl-mmio:1", "package-3", 3)
    zones = [(zone.channel, zone.control_type) for zone in find_zones(root)]
    # What only the other interface has is read from it.
    other = [("package-0/uncore", "intel-rapl-mmio"), ("package-3", "intel-rapl-mmio")]
    assert sorted(zones) == sorted(
        [(name, "intel-rapl") for name in (*INTEL_CHANNELS, "psys")] + other
    )


def test_zones_are_identified_by_name_and_not_by_index(tmp_path: Path) -> None:
    powercap = powercap_of(tmp_path)
    write_zone(powercap / "intel-rapl:7", "package-0", 10)
    write_zone(powercap / "intel-rapl:7:3", "uncore", 30)
    write_zone(powercap / "intel-rapl:0", "package-10", 20)
    write_zone(powercap / "intel-rapl:1", "package-2", 20)
    write_zone(powercap / "intel-rapl:2", "something-new", 20)
    write_zone(powercap / "dtpm:0", "package-0", 20)
    assert [zone.channel for zone in find_zones(tmp_path)] == [
        "package-0",
        "package-0/uncore",
        "package-2",
        "package-10",
    ]


def test_the_layout_with_links(tmp_path: Path) -> None:
    """The kernel's layout: every zone is a link to a directory nested in its parent's."""
    devices = tmp_path / "sys/devices/virtual/powercap"
    shutil.copytree(powercap_of(TREES / "powercap-2s-intel"), devices)
    powercap = powercap_of(tmp_path)
    powercap.mkdir(parents=True)
    for directory in [*devices.rglob("intel-rapl*")]:
        target = Path("../../devices/virtual/powercap") / directory.relative_to(devices)
        (powercap / directory.name).symlink_to(target)
        (directory / "subsystem").symlink_to(powercap)
        (directory / "device").symlink_to(directory.parent)
    meter = open_powercap(tmp_path)
    assert [channel.name for channel in meter.channels] == INTEL_CHANNELS
    assert summed_j(meter) == 0
    add_to_all(energy_files(tmp_path), ADDED_J)
    assert summed_j(meter) == 50 + 7 + 40 + 5
    meter.close()


def test_dies_that_show_one_counter_are_counted_once(tmp_path: Path) -> None:
    powercap = powercap_of(tmp_path)
    dies = {"package-0-die-0": 1000, "package-0-die-1": 1000, "package-1-die-0": 1000}
    dies |= {"package-1-die-10": 2000, "package-1-die-2": 3000}
    dies |= {"package-2-die-0": 0, "package-2-die-1": 0}
    for index, (name, energy_uj) in enumerate(dies.items()):
        write_zone(powercap / f"intel-rapl:{index}", name, energy_uj)
    meter = open_powercap(tmp_path)
    # Counters that have not moved yet prove nothing, and add nothing.
    assert [(channel.name, channel.inside) for channel in meter.channels] == [
        ("package-0-die-0", None),
        ("package-0-die-1", "package-0-die-0"),
        ("package-1-die-0", None),
        ("package-1-die-2", None),
        ("package-1-die-10", None),
        ("package-2-die-0", None),
        ("package-2-die-1", None),
    ]
    meter.close()


def test_two_zones_with_one_name_are_refused(tmp_path: Path) -> None:
    write_zone(powercap_of(tmp_path) / "intel-rapl:0", "package-0", 1)
    write_zone(powercap_of(tmp_path) / "intel-rapl:1", "package-0", 2)
    with pytest.raises(MeterError, match="are both package-0"):
        open_powercap(tmp_path)


def test_several_psys_are_read_one_at_a_time(tmp_path: Path) -> None:
    root = copy_tree("powercap-2s-intel", tmp_path)
    write_zone(powercap_of(root) / "intel-rapl/intel-rapl:3", "psys-1", 5)
    open_powercap(root).close()
    open_powercap(root, zones=["psys-1"]).close()
    with pytest.raises(ValueError, match="several psys"):
        open_powercap(root, zones=["psys", "package-0"])


# --- Options -------------------------------------------------------------------------------------


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no option zone; it has zones, max_power_w"):
        open_powercap(TREES / "powercap-amd", zone=["package-0"])


@pytest.mark.parametrize("options", [{"zones": "package-0"}, {"zones": []}, {"zones": [0]}])
def test_zones_that_are_not_a_list_of_names(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="zones is a list"):
        open_powercap(TREES / "powercap-amd", **options)


@pytest.mark.parametrize("power", [0, -1.0, "many", True, float("nan")])
def test_a_greatest_power_that_is_not_a_power(power: object) -> None:
    with pytest.raises(ValueError, match="max_power_w"):
        open_powercap(TREES / "powercap-amd", max_power_w=power)


def test_a_missing_zone_lists_those_that_exist() -> None:
    with pytest.raises(MeterError, match="no zone package-0/dram") as caught:
        open_powercap(TREES / "powercap-amd", zones=["package-0/dram"])
    assert caught.value.remedy.endswith("package-0, package-0/core")


def test_the_greatest_power_is_an_option(tmp_path: Path) -> None:
    root = copy_tree("powercap-amd", tmp_path)
    with_default, with_more = open_powercap(root), open_powercap(root, max_power_w=3e4)
    for meter in (with_default, with_more):
        meter.read()
    add_to_all(energy_files(root), {"package-0": 2000})
    # 2 kJ within some milliseconds: more than 0.1 s of 1 kW, less than 0.1 s of 30 kW.
    assert with_more.read().values == (2000.0, 0.0)
    with pytest.raises(MeterError, match=r"intel-rapl:0/energy_uj .*at up to 1000 W"):
        with_default.read()


def test_a_limit_of_the_zone_raises_the_greatest_power() -> None:
    meters = [open_powercap(TREES / "powercap-2s-intel", zones=[f"package-{i}"]) for i in (0, 1)]
    # Four times 270 W is more than 1 kW.
    for meter in meters:
        assert longest_gap_s(meter) == pytest.approx(262_143.33 / 1080 - 0.1, abs=0.01)
        meter.close()


# --- Unreadable ----------------------------------------------------------------------------------


def test_no_powercap_at_all(tmp_path: Path) -> None:
    for make in (lambda: None, lambda: powercap_of(tmp_path).mkdir(parents=True)):
        make()
        with pytest.raises(MeterError, match=r"sys/class/powercap") as caught:
            open_powercap(tmp_path)
        assert "modprobe intel_rapl_msr" in caught.value.remedy
    # A container that hides the devices leaves links to nothing.
    (powercap_of(tmp_path) / "intel-rapl:0").symlink_to("../../devices/virtual/powercap/gone")
    with pytest.raises(MeterError, match="has no RAPL zones"):
        open_powercap(tmp_path)


FORBIDDEN = """
import json, os, sys
from pathlib import Path
from sites.meters import MeterError
from sites.meters.powercap import open_meter
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    open_meter(Path(sys.argv[1]), {})
except MeterError as error:
    print(json.dumps([error.what, error.remedy]))
"""


def test_permission_denied_says_how_to_fix_it() -> None:
    """Root may read any file, so another user opens the meter, in another process."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        root = copy_tree("powercap-amd", Path(directory))
        path = powercap_of(root) / "intel-rapl:0:0/energy_uj"
        path.chmod(0o400 if os.geteuid() == 0 else 0)
        done = subprocess.run(
            [sys.executable, "-c", FORBIDDEN, str(root)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
    what, remedy = json.loads(done.stdout)
    assert str(path) in what
    for part in (f"chgrp GROUP {path}", "chmod g+r", "udev", "5.10", "CVE-2020-8694"):
        assert part in remedy


@pytest.mark.parametrize("text", ["", "\n", "abc\n", "-5\n", "1.5\n", "1_000\n", "12 34\n"])
@pytest.mark.parametrize("file", ["energy_uj", "max_energy_range_uj"])
def test_a_file_without_one_number(tmp_path: Path, file: str, text: str) -> None:
    root = copy_tree("powercap-amd", tmp_path)
    path = powercap_of(root) / "intel-rapl:0" / file
    path.write_text(text)
    with pytest.raises(MeterError) as caught:
        open_powercap(root).read()
    assert str(path) in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("file", ["name", "energy_uj", "max_energy_range_uj"])
@pytest.mark.parametrize("what", ["missing", "directory"])
def test_a_file_that_is_missing_or_a_directory(tmp_path: Path, file: str, what: str) -> None:
    root = copy_tree("powercap-amd", tmp_path)
    path = powercap_of(root) / "intel-rapl:0" / file
    path.unlink()
    if what == "directory":
        path.mkdir()
    with pytest.raises(MeterError) as caught:
        open_powercap(root).read()
    assert str(path) in caught.value.what


def test_a_range_of_zero_and_an_empty_name(tmp_path: Path) -> None:
    for file, text in (("max_energy_range_uj", "0\n"), ("name", "\n")):
        root = copy_tree("powercap-amd", tmp_path / file)
        (powercap_of(root) / "intel-rapl:0" / file).write_text(text)
        with pytest.raises(MeterError, match=file):
            open_powercap(root)


def test_a_zone_that_vanishes_while_it_is_read(tmp_path: Path) -> None:
    root = copy_tree("powercap-amd", tmp_path)
    files = energy_files(root)
    meter = open_powercap(root)
    meter.read()
    zone = files["package-0/core"].parent
    zone.rename(tmp_path / "away")
    add_to_all({"package-0": files["package-0"]}, {"package-0": 10})
    with pytest.raises(MeterError) as caught:
        meter.read()
    assert str(files["package-0/core"]) in caught.value.what
    # It came back with its counter: nothing was lost, in its own channel or the other.
    (tmp_path / "away").rename(zone)
    assert meter.read().values == (10.0, 0.0)
    meter.close()


def test_a_reset_while_it_is_read(tmp_path: Path) -> None:
    root = copy_tree("powercap-2s-intel", tmp_path)
    files = energy_files(root)
    meter = open_powercap(root)
    meter.read()
    replace(files["package-1"], 1000)
    with pytest.raises(MeterError, match="was reset") as caught:
        meter.read()
    assert str(files["package-1"]) in caught.value.what


def test_a_closed_meter_is_unreadable() -> None:
    meter = open_powercap(TREES / "powercap-amd")
    meter.close()
    meter.close()
    with pytest.raises(MeterError, match="closed"):
        meter.read()


def test_no_file_stays_open_too_long(tmp_path: Path) -> None:
    """Neither a replaced file nor, after a failed opening, any other file."""
    root = copy_tree("powercap-amd", tmp_path)
    meter = open_powercap(root)
    meter.read()
    opened = len(list(Path("/proc/self/fd").iterdir()))
    add_to_all(energy_files(root), {"package-0": 10})
    assert meter.read().values == (10.0, 0.0)
    assert len(list(Path("/proc/self/fd").iterdir())) == opened
    meter.close()
    (powercap_of(root) / "intel-rapl:0:0/max_energy_range_uj").write_text("x\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(MeterError):
        open_powercap(root)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- Reading a tree that changes ------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    # The meter's own bound allows 100 J at once; the range is 6,000 J, so that the counter may be
    # left unread for 5.9 s.
    steps_uj=st.lists(st.integers(0, 90_000_000), min_size=1, max_size=25),
    turns=st.integers(1, 12),
    phase_uj=st.integers(0, 5_999_999_999),
    in_place=st.booleans(),
)
@example(steps_uj=[90_000_000] * 25, turns=12, phase_uj=5_999_999_999, in_place=False)
def test_a_tree_gives_the_exact_energies(
    steps_uj: list[int], turns: int, phase_uj: int, in_place: bool
) -> None:
    range_uj = 6_000_000_000
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        path = write_zone(powercap_of(root) / "intel-rapl:0", "package-0", phase_uj, range_uj)
        meter = open_powercap(root)
        assert meter.read().values == (0.0,)
        for energy_uj in accumulate(steps_uj * turns):
            raw_uj = (phase_uj + energy_uj) % range_uj
            if in_place:
                path.write_text(f"{raw_uj}\n")
            else:
                replace(path, raw_uj)
            assert meter.read().values == (float(Fraction(energy_uj, 10**6)),)
        meter.close()


REPLAY = """
import json, os, sys, time
paths, powers_w, starts_uj, ranges_uj, duration_s = json.loads(sys.argv[1])
log = []
last_ns, passed_ns = time.monotonic_ns(), 0
end_ns = last_ns + duration_s * 10**9
while last_ns < end_ns:
    before_ns = time.monotonic_ns()
    # A writer that was held up catches up with no jump that its powers could not make.
    passed_ns += min(before_ns - last_ns, 20 * 10**6)
    last_ns = before_ns
    energies_uj = [power_w * passed_ns // 1000 for power_w in powers_w]
    for path, start_uj, range_uj, energy_uj in zip(paths, starts_uj, ranges_uj, energies_uj):
        with open(path + ".new", "w") as file:
            print((start_uj + energy_uj) % range_uj, file=file)
        os.rename(path + ".new", path)
    log.append([before_ns, time.monotonic_ns(), energies_uj])
    time.sleep(0.001)
print(json.dumps(log))
"""


def test_a_tree_that_another_process_replays(tmp_path: Path) -> None:
    """Every reading is an energy that the writer wrote, not older than the previous one."""
    range_uj = 1_500_000_000_000
    zones = {"package-0": "intel-rapl:0", "dram": "intel-rapl:0/intel-rapl:0:0"}
    paths = [
        write_zone(powercap_of(tmp_path) / place, name, range_uj - 10**9, range_uj)
        for name, place in zones.items()
    ]
    # Powers of no machine, so that the counters wrap at once; a reading may be 14.9 s late.
    powers_w, duration_s = [90_000, 50_000], 2.5
    meter = open_powercap(tmp_path, max_power_w=100_000)
    spans: list[tuple[int, int, int, tuple[float, ...]]] = []

    def read() -> None:
        before_ns = time.monotonic_ns()
        reading = meter.read()
        spans.append((before_ns, reading.time_ns, time.monotonic_ns(), reading.values))

    read()
    writer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            REPLAY,
            json.dumps(
                [
                    [str(p) for p in paths],
                    powers_w,
                    [range_uj - 10**9] * 2,
                    [range_uj] * 2,
                    duration_s,
                ]
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    output: list[str] = []
    waiter = threading.Thread(target=lambda: output.append(writer.communicate()[0]))
    waiter.start()
    while waiter.is_alive():
        read()
    waiter.join()
    read()
    meter.close()
    assert writer.returncode == 0
    log = json.loads(output[0])
    begun_ns, done_ns = [entry[0] for entry in log], [entry[1] for entry in log]
    for channel, power_w in enumerate(powers_w):
        written_j = [0.0] + [float(Fraction(entry[2][channel], 10**6)) for entry in log]
        for before_ns, time_ns, after_ns, values in spans:
            assert before_ns <= time_ns <= after_ns
            # The last entry that was surely written before, and the last that may have been.
            oldest = bisect_right(done_ns, before_ns)
            newest = bisect_right(begun_ns, after_ns)
            assert values[channel] in written_j[oldest : newest + 1]
        assert spans[-1][3][channel] == written_j[-1]
        assert written_j[-1] > 0.4 * power_w * duration_s
    assert len(spans) > 100


def test_a_reading_takes_tens_of_microseconds(tmp_path: Path) -> None:
    """The fastest of many readings of six channels, because other load only adds time."""
    meter = open_powercap(copy_tree("powercap-2s-intel", tmp_path))
    times_s = []
    for _ in range(500):
        start_s = time.perf_counter()
        meter.read()
        times_s.append(time.perf_counter() - start_s)
    meter.close()
    assert min(times_s) < 200e-6
