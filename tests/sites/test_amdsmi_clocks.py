"""Controls of AMD GPUs, beyond what all controls must do: what the fake of AMD's package reports
against the request, and what is shared with the meter."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dvfs.setting import AS_FOUND, Setting
from sites.clocks import ClocksError, IllegalClockError, amdsmi, right_to_set
from sites.clocks.shared import gpu_power_limits
from sites.clocks.shared.journal import restore_left_over
from sites.meters import open_meter
from tests.sites.clock_layouts import LAYOUTS, ClockLayout, amdsmi_answer, contents, copy, journals
from tests.sites.test_power_limits import at, is_accepted, killed, lies_w

BY_NAME = {layout.name: layout for layout in LAYOUTS}
CAPS = replace(BY_NAME["amdsmi-power-cap"], options={})
CLOCKS = replace(BY_NAME["amdsmi"], options={})
FOUND_W = (280.0, 300.0)
FAST = Setting(1100.0, 1600.0)


@pytest.fixture
def gpus(tmp_path: Path) -> Iterator[Path]:
    """The tree of two GPUs with different power caps."""
    copy(CAPS, tmp_path)
    with CAPS.running(tmp_path):
        yield tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / "amdsmi" / name).write_text(text)


def change(root: Path, name: str, key: str, value: int) -> None:
    """Change one value of an answer."""
    path = root / "amdsmi" / name
    lines = (line.split() for line in path.read_text().splitlines())
    path.write_text("".join(f"{k} {value if k == key else v}\n" for k, v in lines))


def caps_w(root: Path) -> tuple[float, ...]:
    return tuple(amdsmi_answer(root, f"gpu{i}/power_cap")["power_cap"] / 1e6 for i in (0, 1))


# --- Power caps -----------------------------------------------------------------------------------


def test_of_500_faked_power_caps_none_is_accepted(
    gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_power_limits, "SETTLE_S", 0.0)
    asked, site = at(251.0), CAPS.site()
    clocks = CAPS.open(gpus)
    refused, proven = 0, 0
    for number, lie_w in enumerate(lies_w(251.0, 500, 11)):
        liars = ((0,), (1,), (0, 1))[number % 3]
        for index in liars:
            put(gpus, f"gpu{index}/taken_power_cap", str(round(lie_w * 1e6)))
        with pytest.raises((IllegalClockError, ClocksError)) as caught:
            clocks.set(asked)
        is_zero = round(lie_w * 1e6) == 0
        assert ("its power_cap is 0" if is_zero else "251 W was requested, and") in str(
            caught.value
        )
        refused += 1
        if is_zero:
            with pytest.raises(ClocksError, match="its power_cap is 0"):
                clocks.state()
        else:
            proven += is_accepted(site, asked, [clocks.state().setting])
        for index in liars:
            (gpus / f"amdsmi/gpu{index}/taken_power_cap").unlink()
            change(gpus, f"gpu{index}/power_cap", "power_cap", 299_000_000)
    assert (refused, proven) == (500, 0)
    clocks.set(asked)
    assert is_accepted(site, asked, [clocks.state().setting])
    clocks.restore()
    assert caps_w(gpus) == FOUND_W


def test_each_gpu_is_restored_to_the_cap_that_it_had(gpus: Path) -> None:
    change(gpus, "gpu1/power_cap", "min_power_cap", 150_000_000)
    change(gpus, "gpu1/power_cap", "max_power_cap", 250_000_000)
    change(gpus, "gpu1/power_cap", "power_cap", 222_000_000)
    before = contents(gpus)
    layout = replace(CAPS, limits_w=(149.0, 200.0, 251.0))
    clocks = layout.open(gpus)
    assert clocks.legal() == [at(200.0)]
    for limit_w in (149.0, 251.0):
        with pytest.raises(IllegalClockError, match=f"{limit_w:g} W: the GPU offers 150 to 250 W"):
            clocks.set(at(limit_w))
    clocks.set(at(200.5))  # the driver keeps whole watts
    assert caps_w(gpus) == (200.0, 200.0)
    assert clocks.state().setting == at(200.0)
    assert is_accepted(layout.site(), at(200.5), [clocks.state().setting])
    clocks.set(AS_FOUND)
    assert (contents(gpus), journals(gpus)) == (before, [])
    killed(layout.site(), gpus, at(200.0))
    assert caps_w(gpus) == (200.0, 200.0)
    assert sorted(restore_left_over(gpus)) == [
        "left over, restored: AMD GPU 0 (AMD Instinct MI210): its power limit is 280 W",
        "left over, restored: AMD GPU 1 (AMD Instinct MI210): its power limit is 222 W",
    ]
    assert (contents(gpus), journals(gpus)) == (before, [])


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (1, IllegalClockError, "setting its power cap to 251 W: Error code: 1"),
        (17, IllegalClockError, "setting its power cap to 251 W: Error code: 17"),
        (10, ClocksError, "setting needs root"),
        (2, ClocksError, "setting its power cap to 251 W: Error code: 2"),
    ],
)
def test_a_gpu_that_refuses_a_cap_keeps_its_own(
    gpus: Path, code: int, error: type[Exception], said: str
) -> None:
    put(gpus, "gpu0/set_power_cap", f"!{code}")
    clocks = CAPS.open(gpus)
    with pytest.raises(error, match=said):
        clocks.set(at(251.0))
    clocks.restore()
    assert (caps_w(gpus), journals(gpus)) == (FOUND_W, [])


def test_a_gpu_that_takes_another_cap_is_not_restored(gpus: Path) -> None:
    clocks = CAPS.open(gpus)
    clocks.set(at(251.0))
    put(gpus, "gpu0/taken_power_cap", "279000000")
    with pytest.raises(ClocksError, match=r"limit was 280 W and is 279 W now") as caught:
        clocks.restore()
    assert "amd-smi set --power-cap" in caught.value.remedy
    assert len(journals(gpus)) == 1
    (gpus / "amdsmi/gpu0/taken_power_cap").unlink()
    clocks.restore()
    assert (caps_w(gpus), journals(gpus)) == (FOUND_W, [])


@pytest.mark.parametrize("wrong", [{"gpu": 0}, {"found_uw": "1"}, {"found_uw": True}])
def test_a_journal_with_what_is_no_cap_is_not_replayed(
    gpus: Path, wrong: dict[str, object]
) -> None:
    killed(CAPS.site(), gpus, at(251.0))
    journal = next(gpus.glob("run/campaign-clocks/*.json"))
    kept = json.loads(journal.read_text())
    kept["found"][0] |= wrong
    journal.write_text(json.dumps(kept))
    assert any("holds what amdsmi-power-cap does not write" in s for s in restore_left_over(gpus))


# --- Clocks ---------------------------------------------------------------------------------------


def limits_text(core_min: float, core_max: float, mem_max: float) -> str:
    return f"sclk_min {core_min:.0f}\nsclk_max {core_max:.0f}\nmclk_max {mem_max:.0f}\n"


def test_of_500_faked_clocks_and_limits_none_is_accepted(
    gpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amdsmi, "SETTLE_S", 0.0)
    site, rng = CLOCKS.site(), random.Random(7)
    before = contents(gpus)
    clocks = CLOCKS.open(gpus)

    def off(mhz: float) -> int:
        return round(
            mhz * (1.0 + rng.choice((-1, 1)) * rng.uniform(0.022, rng.choice((0.06, 0.9))))
        )

    clocks.set(FAST)
    refused, proven, clocks_below = 0, 0, 0
    for number in range(500):
        gpu, kind = f"gpu{number % 2}", number % 5
        lie = [1100, 1100, 1600, 1100, 1600]
        lie[kind] = off(lie[kind])
        if kind < 3:
            put(gpus, f"{gpu}/shown_limits", limits_text(*lie[:3]))
        else:
            put(gpus, f"{gpu}/shown_clocks", f"sclk {lie[3]}\nmclk {lie[4]}\n")
        try:
            clocks.set(FAST)
        except IllegalClockError as error:
            assert "was requested, and" in str(error)
            refused += 1
        else:
            # Limits are soft: a GPU without work may run below them, and its windows show it.
            assert kind >= 3
            clocks_below += 1
            proven += is_accepted(site, FAST, [clocks.state().setting])
        for name in ("shown_limits", "shown_clocks"):
            (gpus / "amdsmi" / gpu / name).unlink(missing_ok=True)
        if number % 50 == 0:
            clocks.restore()
            assert contents(gpus) == before
            clocks.set(FAST)
    assert proven == 0
    assert refused + clocks_below == 500
    assert refused > 300
    clocks.set(FAST)
    assert is_accepted(site, FAST, [clocks.state().setting])
    clocks.restore()
    assert contents(gpus) == before


def test_a_gpu_without_work_is_set_and_its_clock_is_no_proof(gpus: Path) -> None:
    put(gpus, "gpu0/idle", "")
    put(gpus, "gpu0/clocks", "sclk 132\nmclk 1600\n")
    clocks = CLOCKS.open(gpus)
    clocks.set(FAST)
    assert clocks.state().setting == Setting(132.0, 1600.0)
    assert not is_accepted(CLOCKS.site(), FAST, [clocks.state().setting])
    (gpus / "amdsmi/gpu0/idle").unlink()
    assert is_accepted(CLOCKS.site(), FAST, [clocks.state().setting])
    clocks.restore()


@pytest.mark.parametrize("shown", ["N/A", "0"])
def test_a_clock_that_is_not_reported_is_unknown(gpus: Path, shown: str) -> None:
    put(gpus, "gpu1/shown_clocks", f"sclk {shown}\nmclk 1600\n")
    clocks = CLOCKS.open(gpus)
    assert clocks.state().setting == Setting(None, 1600.0)


@pytest.mark.parametrize("level", ["AUTO", "MANUAL"])
def test_limits_that_others_set_are_restored(gpus: Path, level: str) -> None:
    """At AUTO a Radeon keeps them; at MANUAL every GPU does."""
    if level == "AUTO":
        put(gpus, "gpu0/keeps_limits", "")
    put(gpus, "gpu0/perf_level", f"{level}\n")
    put(gpus, "gpu0/limits", limits_text(600, 1000, 1200))
    before = contents(gpus)
    layout = replace(CLOCKS, core_mhz=(1000.0, 600.0, 599.0, 1001.0), mem_mhz=(1600.0, 1200.0))
    clocks = layout.open(gpus)
    assert clocks.legal() == [Setting(600.0, 1200.0), Setting(1000.0, 1200.0)]
    for setting in (Setting(1000.0, 1200.0), Setting(600.0), Setting(None, 400.0)):
        clocks.set(setting)
    assert (gpus / "amdsmi/gpu0/limits").read_text() == limits_text(600, 1000, 400)
    clocks.restore()
    assert (contents(gpus), journals(gpus)) == (before, [])
    killed(layout.site(), gpus, Setting(1000.0, 1200.0))
    lines = restore_left_over(gpus)
    assert [line.partition(" (")[0] for line in sorted(lines)] == [
        "left over, restored: AMD GPU 0",
        "left over, restored: AMD GPU 1",
    ]
    assert (contents(gpus), journals(gpus)) == (before, [])


def test_a_clock_that_is_left_is_as_found_though_another_was_set_before(gpus: Path) -> None:
    clocks = CLOCKS.open(gpus)
    clocks.set(Setting(1100.0, 400.0))
    clocks.set(Setting(None, 1600.0))
    assert (gpus / "amdsmi/gpu0/limits").read_text() == limits_text(500, 1700, 1600)
    assert (gpus / "amdsmi/gpu0/perf_level").read_text() == "MANUAL\n"
    clocks.restore()
    # What is found is what is found at the next set.
    put(gpus, "gpu0/perf_level", "MANUAL\n")
    put(gpus, "gpu0/limits", limits_text(600, 1200, 1600))
    before = contents(gpus)
    clocks.set(FAST)
    clocks.restore()
    assert (contents(gpus), journals(gpus)) == (before, [])


def test_a_performance_level_that_could_not_be_restored_is_left(gpus: Path) -> None:
    put(gpus, "gpu1/perf_level", "DETERMINISM\n")
    before = contents(gpus)
    clocks = CLOCKS.open(gpus)
    with pytest.raises(ClocksError, match=r"AMD GPU 1 .*level is DETERMINISM"):
        clocks.set(FAST)
    assert (contents(gpus), journals(gpus)) == (before, [])


def test_a_gpu_whose_memory_clock_cannot_be_set(gpus: Path) -> None:
    put(gpus, "gpu0/limits", "sclk_min 500\nsclk_max 1700\n")
    put(gpus, "gpu0/default_limits", "sclk_min 500\nsclk_max 1700\n")
    before = contents(gpus)
    clocks = CLOCKS.open(gpus)
    assert clocks.legal() == []
    with pytest.raises(IllegalClockError, match=r"memory 1600 MHz: .* offers none that can be set"):
        clocks.set(FAST)
    clocks.set(Setting(1100.0))
    assert clocks.state().setting.core_mhz == 1100.0
    clocks.restore()
    assert (contents(gpus), journals(gpus)) == (before, [])


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (1, IllegalClockError, "setting its sclk max to 1100 MHz: Error code: 1"),
        (2, ClocksError, "setting its sclk max to 1100 MHz: Error code: 2"),
        (10, ClocksError, "setting needs root"),
    ],
)
def test_a_gpu_that_refuses_a_clock_keeps_its_own(
    gpus: Path, code: int, error: type[Exception], said: str
) -> None:
    before = contents(gpus)
    put(gpus, "gpu1/set_clk_limit", f"!{code}")
    clocks = CLOCKS.open(gpus)
    with pytest.raises(error, match=said):
        clocks.set(FAST)
    clocks.restore()
    (gpus / "amdsmi/gpu1/set_clk_limit").unlink()
    assert (contents(gpus), journals(gpus)) == (before, [])


@pytest.mark.parametrize("how", ["refuses", "shows other limits"])
def test_limits_that_cannot_be_restored_are_left_to_the_next_start(gpus: Path, how: str) -> None:
    before = contents(gpus)
    clocks = CLOCKS.open(gpus)
    clocks.set(FAST)
    fault = "gpu0/set_perf_level" if how == "refuses" else "gpu0/shown_limits"
    put(gpus, fault, "!10" if how == "refuses" else limits_text(500, 1700, 1200))
    with pytest.raises(ClocksError, match="not restored: AMD GPU 0") as caught:
        clocks.restore()
    assert "amd-smi reset" in caught.value.remedy
    del clocks, caught
    gc.collect()  # the failure's trace holds the control in a circle
    (gpus / "amdsmi" / fault).unlink()
    assert len(journals(gpus)) == 1
    assert len(restore_left_over(gpus)) == 1
    assert (contents(gpus), journals(gpus)) == (before, [])


@pytest.mark.parametrize(
    "wrong",
    [{"gpu": 0}, {"core_min": "1"}, {"mem_max": 1.5}, {"level": "HIGH"}, {"core_max": None}],
)
def test_a_journal_with_what_are_no_limits_is_not_replayed(
    gpus: Path, wrong: dict[str, object]
) -> None:
    killed(CLOCKS.site(), gpus, FAST)
    journal = next(gpus.glob("run/campaign-clocks/*.json"))
    kept = json.loads(journal.read_text())
    kept["found"][0] |= wrong
    journal.write_text(json.dumps(kept))
    lines = restore_left_over(gpus)
    assert any("holds what amdsmi does not write" in line for line in lines)


# --- Which GPUs, and with whom --------------------------------------------------------------------


def test_the_even_die_of_an_mi250_stands_for_the_card(gpus: Path) -> None:
    for gpu in ("gpu0", "gpu1"):
        put(gpus, f"{gpu}/market_name", "AMD INSTINCT MI250X (MCM) OAM AC MBA")
    change(gpus, "gpu1/power_cap", "power_cap", 0)
    clocks = CAPS.open(gpus)
    clocks.set(at(251.0))
    assert caps_w(gpus) == (251.0, 0.0)
    clocks.restore()
    with pytest.raises(ClocksError, match=r"odd die of its card.*even die, 0"):
        replace(CAPS, options={"devices": [1]}).open(gpus)
    with pytest.raises(ClocksError, match=r"GPU 0 .*two dies.*amdsmi-power-cap"):
        CLOCKS.open(gpus)


@pytest.mark.parametrize("first", ["meter", "control"])
def test_the_meter_and_a_control_do_not_end_each_others_library(gpus: Path, first: str) -> None:
    meter = open_meter("amdsmi", {"devices": [0]}, gpus)
    clocks = CAPS.open(gpus)
    if first == "control":
        del clocks
        assert meter.read().values == (0.0, 43.0)
        meter.close()
        return
    meter.close()
    clocks.set(at(251.0))
    assert clocks.state().setting == at(251.0)
    clocks.restore()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": 0}, "a list of different indices"),
        ({"devices": [0, 0]}, "a list of different indices"),
        ({"gpu": 0}, "known: devices"),
    ],
)
@pytest.mark.parametrize("layout", [CAPS, CLOCKS], ids=["caps", "clocks"])
def test_a_wrong_option(
    gpus: Path, layout: ClockLayout, options: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(layout, options=options).open(gpus)


def test_no_such_gpu_and_none(gpus: Path) -> None:
    with pytest.raises(ClocksError, match="no AMD GPU 2"):
        replace(CAPS, options={"devices": [2]}).open(gpus)
    put(gpus, "init", "!34")
    with pytest.raises(ClocksError, match="modprobe amdgpu"):
        CAPS.open(gpus)


@pytest.mark.root
@pytest.mark.parametrize("control", ["amdsmi", "amdsmi-power-cap"])
def test_the_right_is_that_of_root_where_there_is_a_gpu(tmp_path: Path, control: str) -> None:
    right = right_to_set(control, tmp_path)
    assert (right.can_set, "no AMD GPU" in right.why) == (False, True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert right_to_set(control, tmp_path).can_set
