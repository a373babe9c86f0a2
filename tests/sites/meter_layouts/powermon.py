"""A PowerMon 2 on a pseudo-terminal, spoken by a program of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, replace

PROGRAM = Path(__file__).parent.parent / "powermon_program.py"
FOLDER = Path("powermon")
DEVICE = Path("dev/ttyUSB0")
RAILS = {
    "0": {"name": "cpu-12v", "domain": "package", "nominal_v": 12.0},
    "3": {"name": "gpu-12v", "domain": "gpu", "nominal_v": 12},
}
SENSORS = {"cpu-12v": 0, "gpu-12v": 3}


def show(root: Path, true: Mapping[str, float]) -> None:
    """12 V, and the amperes that make the watts."""
    for name, watts in true.items():
        replace(root / FOLDER / f"rails/{SENSORS[name]}", f"12.000000 {watts / 12:.6f}\n")


def break_with(root: Path, fault: str) -> None:
    """Tell the program to go wrong in one way."""
    replace(root / FOLDER / "fault", fault)


@contextmanager
def playing_stream(root: Path) -> Iterator[None]:
    """The program, as long as the context lasts."""
    program = subprocess.Popen(
        [sys.executable, PROGRAM, root / FOLDER, root / DEVICE], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "ready\n"
        yield
    finally:
        program.kill()
        program.communicate()


LAYOUTS = [
    Layout(
        name="powermon: two rails",
        kind="powermon",
        tree="powermon-2-rails",
        channels=("cpu-12v", "gpu-12v"),
        show=show,
        faults={
            "garbage": lambda root: break_with(root, "garbage"),
            "empty": lambda root: break_with(root, "silent"),
            "gone": lambda root: break_with(root, "hang up"),
        },
        options={"device": f"/{DEVICE}", "rails": RAILS},
        running=playing_stream,
        wrong_options=(
            ({"baud": "fast"}, "whole number"),
            ({"host": "tcp://a:1"}, "either device"),
            ({"rails": {"8": RAILS["0"]}}, "0 to 7"),
        ),
        greatest_power_w=200.0,
        # A busy machine holds the program up for tenths of a second, and silence is 2 s.
        lag_s=2.2,
    )
]
