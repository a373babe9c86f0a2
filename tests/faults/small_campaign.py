"""The campaigns that are harmed: a simulated board with its own scratch folder, few points."""

from __future__ import annotations

import json
import re
from pathlib import Path

from campaign.measure.point_life import PartitionSetup, measure
from campaign.plan.plan import Plan, make_plan
from campaign.plan.point import Point
from campaign.store.measurement import Measurement
from dvfs.dataset import OK
from sites.site_reading import built_in_sites

NAME = "c.toml"
SCRATCH = "scratch"

SIMULATED = """\
name = "faults"
[[sites]]
site = "board.toml"
[settings]
choose = "random"
count = {settings}
seed = 1
[protocol]
min_duration_s = 0.1
timeout_s = 60.0
[[kernels]]
kernel = "sp_fma"
params = {{ level = "dram", ops_per_word = [{ops}] }}
"""


PROGRAMS = """\
name = "faults"
[[sites]]
site = "here.toml"
[protocol]
idle_s = 0.0
warm_up_s = 0.0
min_duration_s = 0.05
timeout_s = 3.0
[retries]
max = 1
[[kernels]]
kernel = "command"
label = "good"
params = {{ argv = [["true"], ["true", "1"], ["true", "2"]] }}
[[kernels]]
kernel = "command"
label = "bad"
params = {{ argv = {argv} }}
"""

HERE = """\
name = "here"
[clocks]
control = "fixed"
[partitions.local]
scheduler = "local"
nodes = 2
cores = 1
local_directory = {scratch}
"""


def write_programs(folder: Path, argv: list[str]) -> Path:
    """A campaign of users' programs on this machine in ``folder``: three that do nothing, and
    ``argv``."""
    scratch = folder / SCRATCH
    scratch.mkdir(parents=True)
    (folder / "here.toml").write_text(HERE.format(scratch=json.dumps(str(scratch))))
    path = folder / NAME
    path.write_text(PROGRAMS.format(argv=json.dumps(argv)))
    return path


def write_campaign(folder: Path, kernels: int = 6, settings: int = 50, nodes: int = 1) -> Path:
    """A campaign file and its site in ``folder``: ``kernels`` times ``settings`` points.

    The site is the built-in simulated board with ``folder``'s scratch and so many nodes, which
    are Dask workers; each costs seconds to come up.
    """
    scratch = folder / SCRATCH
    scratch.mkdir(parents=True)
    site = built_in_sites()["jetson-tk1"].read_text()
    site = re.sub(
        r"(?m)^(\[partitions\.board\])$", rf"\1\nlocal_directory = {json.dumps(str(scratch))}", site
    )
    site = re.sub(r"(?m)^nodes = .*$", f"nodes = {nodes}", site)
    (folder / "board.toml").write_text(site.replace('name = "jetson-tk1"', 'name = "board"'))
    path = folder / NAME
    ops = ", ".join(str(1 << i) for i in range(kernels))
    path.write_text(SIMULATED.format(ops=ops, settings=settings))
    return path


def plan_of(folder: Path) -> Plan:
    """The plan of the campaign in ``folder``."""
    return make_plan(folder / NAME)


def measured_here(plan: Plan, point: Point) -> Measurement:
    """What a measuring subprocess would bring of a point."""
    measurement = measure(
        PartitionSetup(plan.sites[point.site], plan.campaign.protocol, ()), point, 0
    )
    assert measurement is not None and measurement.status == OK, measurement
    return measurement
