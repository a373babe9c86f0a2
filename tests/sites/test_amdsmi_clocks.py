"""Controls of AMD GPUs, beyond what all controls must do: what the fake of AMD's package reports
against the request, and what is shared with the meter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dvfs.setting import AS_FOUND
from sites.clocks import ClocksError, IllegalClockError, right_to_set
from sites.clocks.shared import gpu_power_limits
from sites.clocks.shared.journal import restore_left_over
from sites.meters import open_meter
from tests.sites.clock_layouts import LAYOUTS, amdsmi_answer, contents, copy, journals
from tests.sites.test_power_limits import at, is_accepted, killed, lies_w

BY_NAME = {layout.name: layout for layout in LAYOUTS}
CAPS = replace(BY_NAME["amdsmi-power-cap"], options={})
FOUND_W = (280.0, 300.0)


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
def test_a_wrong_option(gpus: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(CAPS, options=options).open(gpus)


def test_no_such_gpu_and_none(gpus: Path) -> None:
    with pytest.raises(ClocksError, match="no AMD GPU 2"):
        replace(CAPS, options={"devices": [2]}).open(gpus)
    put(gpus, "init", "!34")
    with pytest.raises(ClocksError, match="modprobe amdgpu"):
        CAPS.open(gpus)


@pytest.mark.root
@pytest.mark.parametrize("control", ["amdsmi-power-cap"])
def test_the_right_is_that_of_root_where_there_is_a_gpu(tmp_path: Path, control: str) -> None:
    right = right_to_set(control, tmp_path)
    assert (right.can_set, "no AMD GPU" in right.why) == (False, True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert right_to_set(control, tmp_path).can_set
