"""A step's accounted energy: programs that print what sstat and sacct print."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.sites.meter_layouts.layout import Layout, file_faults, replace

ENERGY = Path("accounting/sstat/77.batch")
START_J = 1000


def show(root: Path, true: Mapping[str, float]) -> None:
    """Whole joules of a step that has already used some."""
    replace(root / ENERGY, f"{START_J + int(true['node/energy'])}\n")


LAYOUTS = [
    Layout(
        name="slurm: a running step",
        kind="slurm",
        tree="slurm-energy",
        channels=("node/energy",),
        show=show,
        faults=file_faults(ENERGY, Path("usr/bin"), "n/a\n", empty="\n")
        | {
            "reset": lambda root: replace(root / ENERGY, "1\n"),
            "went back": lambda root: replace(root / ENERGY, f"{START_J}\n"),
        },
        options={"job": 77},
        wrong_options=(({"job": "all"}, "number"), ({"step": "last"}, "number of a step or batch")),
        named=("77.batch",),
    )
]
