"""AMD GPUs, with a fake of AMD's package that reads a tree."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sites.meters import MeterError, open_meter
from tests.sites.meter_layouts.amdsmi import FOLDER, RESOLUTION_UJ, energy_text, importable
from tests.sites.meter_layouts.layout import copied

TREES = Path(__file__).parent.parent / "trees"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    copied("amdsmi-2-gpus", tmp_path)
    with importable(tmp_path):
        yield tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / FOLDER / name).write_text(text)


@pytest.mark.parametrize("key", ["power", "energy_accumulator"])
def test_the_accumulator_under_its_old_and_its_new_key(root: Path, key: str) -> None:
    put(root, "gpu0/energy", energy_text(5000, key))
    meter = open_meter("amdsmi", {"devices": [0]}, root)
    assert meter.read().values == (0.0, 43.0)
    put(root, "gpu0/energy", energy_text(5000 + 10**6, key))
    assert meter.read().values[0] == pytest.approx(RESOLUTION_UJ, rel=1e-15)
    meter.close()


@pytest.mark.parametrize(
    ("text", "watts", "averaging_s"),
    [
        ("current_socket_power 90\naverage_socket_power 80\n", 90.0, 0.0),
        ("current_socket_power N/A\naverage_socket_power 80\n", 80.0, 1.0),
        ("current_socket_power 65535\naverage_socket_power 80\n", 80.0, 1.0),
        ("socket_power 70\ncurrent_socket_power N/A\naverage_socket_power N/A\n", 70.0, 0.0),
    ],
)
def test_the_power_that_holds_a_number(
    root: Path, text: str, watts: float, averaging_s: float
) -> None:
    put(root, "gpu0/power", text)
    meter = open_meter("amdsmi", {"devices": [0]}, root)
    assert meter.read().values[1] == watts
    assert meter.channels[1].averaging_s == averaging_s
    assert meter.channels[1].same_as == "gpu-0/energy"


def test_energy_without_power_and_power_without_energy(root: Path) -> None:
    put(root, "gpu0/power", "current_socket_power N/A\naverage_socket_power N/A\n")
    put(root, "gpu1/energy", "!2")
    meter = open_meter("amdsmi", {}, root)
    channels = [(channel.name, channel.same_as) for channel in meter.channels]
    assert channels == [("gpu-0/energy", None), ("gpu-1/power", None)]
    put(root, "gpu0/power", "current_socket_power 0\n")
    put(root, "gpu0/energy", energy_text(0))
    with pytest.raises(MeterError, match=r"GPU 0 \(AMD.*\) offers neither.*amd-smi metric"):
        open_meter("amdsmi", {}, root)


def test_the_even_die_of_an_mi250_reports_the_card(root: Path) -> None:
    for gpu in ("gpu0", "gpu1"):
        put(root, f"{gpu}/market_name", "AMD INSTINCT MI250X (MCM) OAM AC MBA")
    meter = open_meter("amdsmi", {}, root)
    assert [channel.name for channel in meter.channels] == ["gpu-0/energy", "gpu-0/power"]
    with pytest.raises(MeterError, match=r"odd die.*even die, 0"):
        open_meter("amdsmi", {"devices": [1]}, root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!10", "render,video"),
        ("!2", "dmesg"),
        ("socket_power 0\n", "no socket_power any more"),
        ("socket_power N/A\n", "no socket_power any more"),
        ("", "no socket_power any more"),
    ],
)
def test_a_power_that_disappears_is_an_error(root: Path, text: str, said: str) -> None:
    meter = open_meter("amdsmi", {}, root)
    meter.read()
    put(root, "gpu1/power", text)
    with pytest.raises(MeterError, match=said) as caught:
        meter.read()
    assert "AMD GPU 1" in caught.value.what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("energy_accumulator N/A\ncounter_resolution N/A\n", "'N/A' in units of 'N/A'"),
        ("", "'N/A' in units"),
        ("energy_accumulator 9999999999999\ncounter_resolution 0.0\n", "units of 0.0"),
        ("energy_accumulator 9999999999999\ncounter_resolution 7.5\n", "changed its unit"),
        ("energy_accumulator 4\ncounter_resolution 15.259021759033203\n", "went back"),
    ],
)
def test_an_energy_that_is_not_a_number(root: Path, text: str, said: str) -> None:
    meter = open_meter("amdsmi", {}, root)
    meter.read()
    put(root, "gpu1/energy", text)
    with pytest.raises(MeterError, match=said):
        meter.read()


@pytest.mark.parametrize("code", [34, 2])
def test_a_library_that_does_not_start(root: Path, code: int) -> None:
    put(root, "init", f"!{code}")
    with pytest.raises(MeterError, match=rf"AMD SMI: Error code: {code}.*modprobe amdgpu"):
        open_meter("amdsmi", {}, root)


def test_a_gpu_without_a_name_is_unreadable(root: Path) -> None:
    (root / FOLDER / "gpu0/market_name").unlink()
    with pytest.raises(MeterError, match="AMD GPU 0"):
        open_meter("amdsmi", {}, root)


def test_no_gpu_and_no_such_gpu(root: Path) -> None:
    with pytest.raises(MeterError, match=r"no AMD GPU 2.*0, 1"):
        open_meter("amdsmi", {"devices": [0, 2]}, root)
    for gpu in ("gpu0", "gpu1"):
        shutil.rmtree(root / FOLDER / gpu)
    with pytest.raises(MeterError, match="lists no GPU"):
        open_meter("amdsmi", {}, root)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)  # importing it fails, as where it is not
    with pytest.raises(MeterError, match=r"amdsmi cannot be imported.*/opt/rocm"):
        open_meter("amdsmi", {})
