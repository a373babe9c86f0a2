"""Controls of the power limit, beyond what all controls of clocks must do: what devices round, what
they report against the request, and limits beside clocks."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.measure.clock_proof import UnachievedClockError, prove
from campaign.measure.window import Window
from dvfs.setting import AS_FOUND, Setting
from sites.clocks import ClocksError, IllegalClockError, open_control
from sites.clocks.shared import gpu_power_limits, kernel_files, written_files
from sites.clocks.shared.journal import restore_left_over
from sites.power_limits import power_limits_w
from sites.site_file import Site
from tests.sites.clock_hardware import wait_until_settled
from tests.sites.clock_layouts import (
    LAYOUTS,
    LONG_TERM,
    PACKAGE_0,
    PACKAGE_1,
    amdsmi_answer,
    contents,
    copy,
    fork,
    journals,
)
from tests.sites.fake_nvml import put

BY_NAME = {layout.name: layout for layout in LAYOUTS}
GPUS = replace(BY_NAME["nvml-power-limit"], options={"devices": [0, 1]})
PACKAGES = BY_NAME["powercap"]
FOUND_MW = (612_345, 700_000)


def at(limit_w: float) -> Setting:
    return Setting(power_limit_w=limit_w)


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[Path]:
    """The tree of two GPUs with different limits."""
    copy(GPUS, tmp_path)
    for index, mw in enumerate(FOUND_MW):
        put(tmp_path, f"gpu{index}/power_limit_mw", mw)
    with GPUS.running(tmp_path):
        yield tmp_path


def limits_mw(root: Path) -> tuple[int, ...]:
    return tuple(int((root / f"nvml/gpu{i}/power_limit_mw").read_text()) for i in (0, 1))


# --- What devices report against the request ------------------------------------------------------


def lies_w(asked_w: float, count: int, seed: int) -> list[float]:
    """Limits that are more than 1 % from the one that was asked for."""
    rng = random.Random(seed)
    kinds = (
        lambda: asked_w * (1 + rng.choice((-1, 1)) * rng.uniform(0.0101, 0.99)),
        lambda: asked_w * rng.choice((1e-6, 1e-3, 0.5, 2.0, 1e3)),
        lambda: asked_w + rng.choice((-1, 1)) * rng.uniform(0.01, 0.05) * asked_w,
        lambda: rng.choice((0.0, 0.001, 250.0, 265.0, 270.0, 700.0, 4294967.295)),
    )
    lies: list[float] = []
    while len(lies) < count:
        lie_w = rng.choice(kinds)()
        if abs(lie_w - asked_w) > 0.0101 * asked_w:
            lies.append(lie_w)
    return lies


def is_accepted(site: Site, asked: Setting, readings: list[Setting]) -> bool:
    windows = [Window(end_ns=1, iterations=1, traces=[], achieved=one) for one in readings]
    try:
        return prove(site, asked, windows).by != ""
    except UnachievedClockError:
        return False


def test_of_500_faked_readings_of_gpus_none_is_accepted(
    gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_power_limits, "SETTLE_S", 0.0)
    asked, site = at(350.5), GPUS.site()
    clocks = GPUS.open(gpus)
    refused, proven = 0, 0
    for number, lie_w in enumerate(lies_w(350.5, 500, 1)):
        liars = ((0,), (1,), (0, 1))[number % 3]
        for index in liars:
            put(gpus, f"gpu{index}/enforced_power_limit_mw", round(lie_w * 1e3))
        with pytest.raises(IllegalClockError, match=r"350\.5 W was requested, and"):
            clocks.set(asked)
        refused += 1
        proven += is_accepted(site, asked, [clocks.state().setting])
        for index in liars:
            (gpus / f"nvml/gpu{index}/enforced_power_limit_mw").unlink()
    assert (refused, proven) == (500, 0)
    clocks.set(asked)
    assert is_accepted(site, asked, [clocks.state().setting])
    clocks.restore()
    assert limits_mw(gpus) == FOUND_MW


def test_of_500_faked_readings_of_packages_none_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the write, and the file then shows another limit."""
    original = copy(PACKAGES, tmp_path)
    asked, site = at(120.0), PACKAGES.site()
    clocks = PACKAGES.open(tmp_path)
    clocks.set(asked)
    assert is_accepted(site, asked, [clocks.state().setting])
    refused, proven = 0, 0
    with monkeypatch.context() as patches:
        patches.setattr(
            written_files,
            "settled",
            lambda read, wanted, bound_s=0.0, within=0: kernel_files.settled(
                read, wanted, 0.0, within
            ),
        )
        for number, lie_w in enumerate(lies_w(120.0, 500, 2)):
            liars = (LONG_TERM[:1], LONG_TERM[1:], LONG_TERM)[number % 3]

            def write(path: Path, text: str, liars=liars, lie_w=lie_w) -> None:
                lies = any(str(path) == f"{tmp_path / file}_power_limit_uw" for file in liars)
                kernel_files.write_text(path, f"{round(lie_w * 1e6)}\n" if lies else text)

            patches.setattr(written_files, "write_text", write)
            with pytest.raises(IllegalClockError, match="120000000 was requested, and"):
                clocks.set(asked)
            refused += 1
            proven += is_accepted(site, asked, [clocks.state().setting])
    assert (refused, proven) == (500, 0)
    clocks.restore()
    assert contents(tmp_path) == original


def test_of_500_points_with_a_faked_or_missing_reading_none_is_accepted() -> None:
    """One window of several says another limit, or nothing."""
    site, rng = PACKAGES.site(), random.Random(3)
    accepted = 0
    for lie_w in lies_w(85.125, 500, 4):
        readings = [at(85.125 * rng.uniform(0.991, 1.009)) for _ in range(rng.randrange(4))]
        assert not readings or is_accepted(site, at(85.125), readings)
        faked = rng.choice((at(lie_w), AS_FOUND))
        readings.insert(rng.randrange(len(readings) + 1), faked)
        accepted += is_accepted(site, at(85.125), readings)
    assert accepted == 0


# --- GPUs -----------------------------------------------------------------------------------------


def test_each_gpu_is_restored_to_the_limit_that_it_had(gpus: Path) -> None:
    put(gpus, "gpu1/power_limits_mw", "100000 300000")
    put(gpus, "gpu1/power_limit_mw", 280_001)
    found_mw = limits_mw(gpus)
    clocks = GPUS.open(gpus)
    assert clocks.legal() == [at(200.0)]
    with pytest.raises(IllegalClockError, match="350 W: the GPU offers 200 to 300 W"):
        clocks.set(at(350.0))
    clocks.set(at(250.5))
    assert limits_mw(gpus) == (250_500, 250_500)
    clocks.set(AS_FOUND)
    assert (limits_mw(gpus), journals(gpus)) == (found_mw, [])
    clocks.set(at(200.0))
    clocks.restore()
    assert (limits_mw(gpus), journals(gpus)) == (found_mw, [])


def killed(site: Site, root: Path, setting: Setting) -> None:
    """Leave a setting set by a process that SIGKILL ended."""
    read, write = os.pipe()

    def work() -> None:
        clocks = open_control(site, root)
        clocks.set(setting)
        os.write(write, b"x")
        signal.pause()

    child = fork(work)
    os.close(write)
    with os.fdopen(read, "rb") as ready:
        assert ready.read(1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def both(root: Path) -> Site:
    """Clocks and limits of one GPU."""
    gpu = {"options": {"devices": [0]}}
    domains = {"core": {"frequencies_mhz": [1200]}, "mem": {"frequencies_mhz": [1593]}}
    return Site.model_validate(
        {
            "name": "both",
            "partitions": {"all": {}},
            "domains": domains,
            "clocks": gpu | {"control": "nvml", "device": "gpu"},
            "power_limit": gpu | {"control": "nvml-power-limit", "limits_w": [300, 50]},
        }
    )


def test_a_killed_process_leaves_neither_clocks_nor_limits_set(gpus: Path) -> None:
    """Each control replays its journal, though one's name begins with the other's."""
    before = contents(gpus)
    setting = Setting(1200.0, 1593.0, power_limit_w=300.0)
    clocks = open_control(both(gpus), gpus)
    assert {one.power_limit_w for one in clocks.legal() or ()} == {300.0}
    assert setting in (clocks.legal() or ())
    clocks.set(setting)
    assert clocks.state().setting == setting
    clocks.restore()
    assert contents(gpus) == before
    killed(both(gpus), gpus, setting)
    assert [name.partition("-GPU")[0] for name in journals(gpus)] == ["nvml", "nvml-power-limit"]
    lines = restore_left_over(gpus)
    assert all(line.startswith("left over, restored: ") for line in lines)
    assert any(line.endswith("its power limit is 612.345 W") for line in lines)
    assert len(lines) == 2
    assert (contents(gpus), journals(gpus)) == (before, [])


def test_a_gpu_that_refuses_a_limit_keeps_its_own(gpus: Path) -> None:
    for code, error in (("!2", IllegalClockError), ("!4", ClocksError)):
        put(gpus, "gpu0/set_power_limit", code)
        clocks = GPUS.open(gpus)
        with pytest.raises(error, match=r"^GPU 0 .*setting its power limit to 300 W"):
            clocks.set(at(300.0))
        clocks.restore()
        assert (limits_mw(gpus), journals(gpus)) == (FOUND_MW, [])


def test_a_limit_that_cannot_be_restored_is_left_to_the_next_start(gpus: Path) -> None:
    clocks = GPUS.open(gpus)
    clocks.set(at(300.0))
    put(gpus, "gpu0/set_power_limit", "!4")
    with pytest.raises(ClocksError, match="not restored: GPU 0") as caught:
        clocks.restore()
    assert "nvidia-smi --power-limit" in caught.value.remedy
    assert limits_mw(gpus) == (300_000, FOUND_MW[1])
    del clocks, caught
    gc.collect()  # the failure's trace holds the control in a circle
    (gpus / "nvml/gpu0/set_power_limit").unlink()
    assert len(restore_left_over(gpus)) == 1
    assert limits_mw(gpus) == FOUND_MW


def test_a_gpu_that_takes_another_limit_is_not_restored(gpus: Path) -> None:
    clocks = GPUS.open(gpus)
    clocks.set(at(300.0))
    put(gpus, "gpu0/taken_power_limit_mw", 612_000)
    with pytest.raises(ClocksError, match=r"limit was 612\.345 W and is 612 W now"):
        clocks.restore()
    assert len(journals(gpus)) == 1
    (gpus / "nvml/gpu0/taken_power_limit_mw").unlink()
    clocks.restore()
    assert (limits_mw(gpus), journals(gpus)) == (FOUND_MW, [])


@pytest.mark.parametrize(
    "wrong", [{"gpu": 0}, {"found_mw": "1"}, {"found_mw": True}, {"found_mw": None}]
)
def test_a_journal_with_what_is_no_limit_is_not_replayed(
    gpus: Path, wrong: dict[str, object]
) -> None:
    killed(GPUS.site(), gpus, at(300.0))
    journal = next(gpus.glob("run/campaign-clocks/*.json"))
    kept = json.loads(journal.read_text())
    kept["found"][0] |= wrong
    journal.write_text(json.dumps(kept))
    assert any("holds what nvml-power-limit does not write" in s for s in restore_left_over(gpus))


# --- Packages -------------------------------------------------------------------------------------


def test_the_state_is_the_limit_that_the_processor_rounded(tmp_path: Path) -> None:
    layout = replace(PACKAGES, limits_w=(120.3,))
    original = copy(layout, tmp_path)
    with layout.running(tmp_path):
        clocks = layout.open(tmp_path)
        clocks.set(at(120.3))
        wait_until_settled(tmp_path)
        assert clocks.state().setting == layout.shown(tmp_path) == at(120.25)
        assert is_accepted(layout.site(), at(120.3), [clocks.state().setting])
        clocks.restore()
    assert contents(tmp_path) == original


@pytest.mark.parametrize(
    ("name", "shown", "is_taken"),
    [
        ("power_limit_uw", 119_875_000, True),
        ("power_limit_uw", 120_125_000, True),
        ("power_limit_uw", 119_874_000, False),
        ("power_limit_uw", 120_126_000, False),
        ("time_window_us", 1_703_936, True),
        ("time_window_us", 1_599_000, False),
        ("time_window_us", 2_401_000, False),
    ],
)
def test_a_limit_may_be_rounded_to_the_power_unit_and_a_window_by_a_fifth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: int, is_taken: bool
) -> None:
    original = copy(PACKAGES, tmp_path)

    def write(path: Path, text: str) -> None:
        rounds = path.name.endswith(name) and text in ("2000000\n", "120000000\n")
        kernel_files.write_text(path, f"{shown}\n" if rounds else text)

    monkeypatch.setattr(written_files, "write_text", write)
    clocks = PACKAGES.open(tmp_path)
    if is_taken:
        clocks.set(at(120.0))
    else:
        with pytest.raises(IllegalClockError, match=f"{name}: .*0 was requested, and .*{shown}"):
            clocks.set(at(120.0))
    clocks.restore()
    assert contents(tmp_path) == original


def test_without_the_option_time_windows_are_left(tmp_path: Path) -> None:
    original = copy(PACKAGES, tmp_path)
    clocks = replace(PACKAGES, options={}).open(tmp_path)
    clocks.set(at(120.0))
    changed = {name for name, held in contents(tmp_path).items() if held != original[name]}
    assert changed == {f"{file}_power_limit_uw" for file in LONG_TERM}
    clocks.restore()


def test_a_zone_that_is_not_enabled_is_refused_and_its_limit_is_not_read(tmp_path: Path) -> None:
    copy(PACKAGES, tmp_path)
    clocks = PACKAGES.open(tmp_path)
    assert clocks.state().setting == at((270.0 + 250.5) / 2)
    enabled = tmp_path / PACKAGE_1 / "enabled"
    enabled.write_text("0\n")
    assert clocks.state().setting == AS_FOUND
    with pytest.raises(ClocksError, match=f"{enabled} is not 1") as caught:
        PACKAGES.open(tmp_path)
    assert f"echo 1 > {enabled}" in caught.value.remedy


def test_a_highest_limit_of_0_is_none(tmp_path: Path) -> None:
    copy(PACKAGES, tmp_path)
    for folder, number in ((PACKAGE_0, 1), (PACKAGE_1, 0)):
        (tmp_path / folder / f"constraint_{number}_max_power_uw").write_text("0\n")
    clocks = PACKAGES.open(tmp_path)
    assert clocks.legal() == [at(limit_w) for limit_w in PACKAGES.limits_w]
    clocks.set(at(400.0))
    clocks.restore()


@pytest.mark.parametrize(
    ("tree", "said"),
    [("powercap-amd", "has no constraint named long_term"), ("nvml-2-gpus", "does not exist")],
)
def test_a_machine_without_limits_of_packages(tmp_path: Path, tree: str, said: str) -> None:
    layout = replace(PACKAGES, tree=tree)
    copy(layout, tmp_path)
    with pytest.raises(ClocksError, match=said) as caught:
        layout.open(tmp_path)
    assert caught.value.remedy


@pytest.mark.parametrize("value", ["1", True, 0, -1.0, float("nan"), float("inf"), [1.0]])
def test_a_wrong_time_window(tmp_path: Path, value: object) -> None:
    with pytest.raises(ValueError, match=r"time_window_s = .*; give seconds"):
        replace(PACKAGES, options={"time_window_s": value}).open(tmp_path)


# --- What is in force, whoever set it -------------------------------------------------------------


def test_the_limits_in_force_are_those_of_gpus_and_packages(gpus: Path) -> None:
    copy(PACKAGES, gpus)
    put(gpus, "gpu1/enforced_power_limit_mw", 450_250)
    packages = {"package-0": 250.5, "package-1": 270.0}
    assert power_limits_w(gpus) == {"gpu-0": 612.345, "gpu-1": 450.25} | packages
    put(gpus, "gpu0/enforced_power_limit_mw", "!4")
    (gpus / PACKAGE_1 / "enabled").write_text("0\n")
    assert power_limits_w(gpus) == {"gpu-1": 450.25, "package-0": 250.5}
    (gpus / "nvml/init").write_text("!9\n")
    (gpus / PACKAGE_0 / "constraint_1_name").write_text("peak_power\n")
    assert power_limits_w(gpus) == {}


def test_the_caps_in_force_on_amd_gpus(tmp_path: Path) -> None:
    amd = BY_NAME["amdsmi-power-cap"]
    copy(amd, tmp_path)
    with amd.running(tmp_path):
        caps_w = {
            f"gpu-{i}": amdsmi_answer(tmp_path, f"gpu{i}/power_cap")["power_cap"] / 1e6
            for i in (0, 1)
        }
        assert power_limits_w(tmp_path) == caps_w
