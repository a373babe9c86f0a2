"""Which points plans hold, in which order, how long they take, and what is said of wrong files.

test_plan and test_wrong_files say what each of them must be; here whole plans and whole messages
stay what they are. A point's id is in stores: it may never change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from campaign.plan.estimate import estimates
from campaign.plan.plan import listed_inputs, make_plan
from dvfs.input_files import FileError
from tests.campaign.test_wrong_files import CAMPAIGN, SITE, WRONG, WRONG_OPTIONS, write_files
from tests.commands import run
from tests.docs.pages import ROOT
from tests.kept import check_kept

SLURM = """\
name = "cluster"
[domains.core]
frequencies_mhz = [1000, 1500, 2000]
[clocks]
control = "slurm"
[partitions.a]
scheduler = "slurm"
nodes = 3
walltime = "00:20:00"
[partitions.b]
scheduler = "slurm"
walltime = "01:00:00"
[[meters]]
kind = "powercap"
"""
SWEEP = """\
name = "sweep"
repeats = 2
seed = 5
[[sites]]
site = "cluster.toml"
[protocol]
uncertainty_pct = 1.0
[[kernels]]
kernel = "sp_fma"
label = "few"
[kernels.params]
threads = 1
[[kernels.zip]]
level = ["l1", "dram"]
ops_per_word = [1, 8]
[[kernels]]
kernel = "idle"
ranks = 2
"""


def planned(path: Path) -> object:
    plan = make_plan(path)
    points = plan.points
    known = {(part.inputs[0].label, part.inputs[0].params): 2.5 for part in points.parts}
    shown = np.linspace(0, len(points) - 1, 4).round().astype(int).tolist()
    return {
        "points": len(points),
        "partitions": plan.partitions,
        "listed": listed_inputs(plan.campaign)[:4],
        "shown": [points[i].as_dict() for i in shown],
        "last": points[-1].id,
        "some": [point.id for point in points[2:5]],
        "order": [part.order[: part.ends[0]] for part in points.parts],
        "settings": [[str(setting) for setting in part.settings] for part in points.parts],
        "spaces": [[len(space.params), dict(space.refused)] for space in plan.spaces],
        "estimates": [
            one.as_dict()
            for times in ({}, dict.fromkeys(plan.partitions, known))
            for one in estimates(points.parts, plan.campaign.protocol, plan.sites, times)
        ],
    }


def of_text(campaign: str, site: str, name: str) -> object:
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(site)
        (Path(folder) / "c.toml").write_text(campaign)
        return planned(Path(folder) / "c.toml")


def drawn() -> object:
    """Three legal settings at random, of four kernels, in an order of its own for each repeat."""
    text = CAMPAIGN.replace(
        "repeats = 1", 'repeats = 3\nsettings = { choose = "random", count = 3, seed = 4 }'
    )
    return of_text(text.replace("[1, 2]", "[1, 2, 4, 8]"), SITE, "s.toml")


MORE = [
    ("seed without random", "c", "repeats = 1", "repeats = 1\nsettings = { seed = 3 }"),
    ("no pairs", "c", "repeats = 1", "repeats = 1\nsettings = { choose = 'pairs' }"),
    ("no count", "c", "repeats = 1", "repeats = 1\nsettings = { choose = 'random' }"),
    ("a label twice", "c", "[1, 2]\n",
     "[1, 2]\n[[kernels]]\nkernel = 'dp_fma'\nlabel = 'sp_fma'\nparams = { level = 'dram' }\n"),
    ("a partition that is not there", "c", 's.toml"', 's.toml"\npartitions = ["bord"]'),
    ("a site twice", "c", 's.toml"', 's.toml"\n[[sites]]\nsite = "s.toml"'),
    ("a parameter twice", "c", "[1, 2]\n",
     "[1, 2]\n[[kernels.zip]]\nops_per_word = [1]\nthreads = [1]\n"),
    ("a parameter of a zip", "c", "[1, 2]\n", "1\n[[kernels.zip]]\nthreads = [1, -2]\n"),
    ("too many points", "c", "[1, 2]\n", "1\nthreads = [" + "1, " * 4500 + "]\nwords = ["
     + "8, " * 4500 + "]\n"),
    ("a class that is not there", "s", "dram = 14.0", "dram = 14.0 }\nx = { y = 1.0"),
    ("ranks on a simulated machine", "c", '"sp_fma"', '"sp_fma"\nranks = 2'),
]  # fmt: skip


def message(which: str, old: str, new: str) -> str:
    """What is said of a wrong file, without its folder."""
    with TemporaryDirectory() as folder:
        path = write_files(Path(folder), which, old, new)
        done = run("plan", path)
        return f"{done.code}: {done.err.replace(folder, 'FOLDER')}"


def option(site: str) -> str:
    with TemporaryDirectory() as folder:
        scheduler = "slurm" if "slurm" in site else "local"
        path = write_files(Path(folder))
        (Path(folder) / "s.toml").write_text(
            f'{site}\n[partitions.board]\nscheduler = "{scheduler}"\n'
        )
        try:
            make_plan(path)
        except FileError as error:
            return str(error).replace(folder, "FOLDER")
        return "right"


def tiles() -> object:
    """A space whose condition uses a number of the site's device."""
    text = (ROOT / "examples" / "gpu-tiles.toml").read_text(encoding="utf-8")
    for old, new in (("2 : 32 : 2", "8 : 32 : 8"), ("1 : 64", "8 : 64 : 28"), (': 32"', ': 160"')):
        assert old in text
        text = text.replace(old, new)
    with TemporaryDirectory() as folder:
        (Path(folder) / "tiles.toml").write_text(text)
        return planned(Path(folder) / "tiles.toml")


RESULTS: dict[str, Callable[[], object]] = {
    "a space of tiles": tiles,
    "drawn settings": drawn,
    "a cluster": lambda: of_text(SWEEP, SLURM, "cluster.toml"),
    "wrong files": lambda: {one[0]: message(*one[1:4]) for one in [*WRONG, *MORE]},
    "wrong options": lambda: {place: option(site) for site, place in WRONG_OPTIONS},
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_plan_stays_what_it_is(name):
    """A later version plans the same points for the same files, and refuses the same ones."""
    check_kept("plans", name, RESULTS[name]())
