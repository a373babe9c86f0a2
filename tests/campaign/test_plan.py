"""Plans are pure: the same files, the same points, ids and order, wherever they are made."""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.measure import protocol
from campaign.plan import estimate
from campaign.plan import plan as plan_module
from campaign.plan.campaign_file import Campaign
from campaign.plan.estimate import (
    BATCHED_S,
    START_S,
    SUBPROCESS_S,
    estimates,
    measuring_s,
    walltime_s,
)
from campaign.plan.plan import make_plan
from campaign.plan.planned_points import in_batches
from campaign.plan.point import Point, canonical_json
from campaign.plan.profile_file import Profile
from campaign.results import Results, open_store
from dvfs.input_files import FileError, FileModel
from dvfs.setting import Setting
from kernels.parameters import field_texts
from sites.clocks import CONTROLS
from tests.commands import prints, refuses
from tests.stores import store_of_table


def campaign_file(folder: Path, **changes: str) -> Path:
    path = folder / "c.toml"
    texts = {
        "head": 'name = "c"\nseed = 5\nrepeats = 2\n[[sites]]\nsite = "jetson-tk1"\n',
        "settings": '[settings]\nchoose = "random"\ncount = 6\nseed = 1\n',
        "kernels": '[[kernels]]\nkernel = "idle"\nparams = { sleep_s = [0, 1, 2] }\n',
    } | changes
    path.write_text("".join(texts.values()))
    return path


def test_the_id_is_the_hash_of_the_content():
    """Golden: these ids name stored measurements, and may never change."""
    point = Point(
        site="s",
        partition="p",
        kernel="sp_fma",
        label="single",
        params='{"level":"dram"}',
        ranks=1,
        setting=Setting(852, 924),
        repeat=0,
    )
    assert point.id == "e2f94e1fa2b05481f6a8191a"
    assert Point.from_dict(json.loads(json.dumps(point.as_dict()))) == point


def test_the_same_files_give_the_same_plan_in_another_process(tmp_path):
    path = campaign_file(tmp_path)
    here = [p.id for p in make_plan(path).points]
    code = (
        "import pathlib, sys; from campaign.plan.plan import make_plan;"
        "print(' '.join(p.id for p in make_plan(pathlib.Path(sys.argv[1])).points))"
    )
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
        )
        assert there.stdout.split() == here


def test_each_repeat_is_a_block_in_an_order_of_its_own(tmp_path):
    points = make_plan(campaign_file(tmp_path)).points
    assert len(points) == 2 * 3 * 6
    blocks = [points[:18], points[18:]]
    for repeat, block in enumerate(blocks):
        assert {p.repeat for p in block} == {repeat}
        assert Counter(p.setting for p in block).most_common(1)[0][1] == 3
    orders = [[(p.params, p.setting) for p in block] for block in blocks]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    by_clock = sorted(orders[0], key=lambda point: point[1])
    assert orders[0] != by_clock


def test_the_table_of_points_is_what_hashing_each_point_gives(tmp_path, monkeypatch):
    """In chunks that end within an input's settings, too. Golden: runs continue in this order."""
    kernels = (
        '[[kernels]]\nkernel = "sp_fma"\nlabel = "re-1"\n'
        '[kernels.params]\nlevel = "dram"\nops_per_word = [1, 2, 4]\n'
        '[[kernels]]\nkernel = "load"\nparams = { level = ["l2", "dram"] }\n'
    )
    path = campaign_file(tmp_path, kernels=kernels)
    points = make_plan(path).points
    assert len(points) == len(list(points)) == 2 * 5 * 6
    assert points[-1] == list(points)[-1] == points[50:][-1]
    for point in points:
        fields = {name: getattr(point, name) for name in point.__slots__ if name != "id"}
        assert point == Point(**fields)
        assert points[0:60].count(point) == 1
    for repeat in (0, 1):
        own = [p.id for p in points if p.repeat == repeat]
        keys = [hashlib.sha256(f"5:{repeat}:{own_id}".encode()).digest() for own_id in own]
        assert keys == sorted(keys)
    monkeypatch.setattr("campaign.plan.planned_points.CHUNK", 7)
    counts: list[int] = []
    assert list(make_plan(path, counts.append).points) == list(points)
    assert counts == [7, 14, 21, 28, 30, 37, 44, 51, 58, 60]


def test_where_steps_set_the_clocks_every_round_has_all_settings_once_at_random():
    settings = [Setting(mhz, None) for mhz in (1400.0, 1800.0, 2200.0, 2600.0)]
    setting_of = partial(operator.and_, 3)  # of input * 4 + setting
    rounds = []
    for repeat in range(60):
        block = np.random.default_rng(repeat).permutation(4 * 40)
        ordered = in_batches(block, settings, 0, repeat).tolist()
        assert sorted(ordered) == list(range(4 * 40))
        turns = [ordered[:56], ordered[56:108], ordered[108:]]  # 40 is 14, 13 and 13
        for turn, size in zip(turns, (14, 13, 13), strict=True):
            assert [len(list(points)) for _, points in groupby(turn, setting_of)] == [size] * 4
            assert set(map(setting_of, turn)) == {0, 1, 2, 3}
        rounds.append(tuple(setting for setting, _ in groupby(turns[0], setting_of)))
    firsts = Counter(order[0] for order in rounds)
    assert len(set(rounds)) > 12  # of 24 orders
    assert set(firsts) == {0, 1, 2, 3}
    assert min(firsts.values()) > 5  # a quarter of 60 is 15


SLURM_SITE = """\
name = "s"
[clocks]
control = "fixed"
[[meters]]
kind = "powercap"
[partitions.p]
scheduler = "slurm"
nodes = 2
walltime = "{walltime}"
"""
PROTOCOL = """\
[protocol]
idle_s = 2.0
warm_up_s = 3.0
min_duration_s = 20.0
trim_s = 0.5
cool_down_s = 4.0
"""


def slurm_campaign(folder: Path, walltime: str) -> Path:
    (folder / "s.toml").write_text(SLURM_SITE.format(walltime=walltime))
    head = 'name = "c"\nrepeats = 50\n[[sites]]\nsite = "s.toml"\n'
    return campaign_file(folder, head=head, settings=PROTOCOL)


def test_an_estimate_is_the_sum_of_the_protocols_steps(tmp_path):
    """By hand: idle 2, warm-up 3 and two stretches of 0.5, a window of 20 + 2 * 0.5, cool-down 4;
    150 points on two nodes."""
    plan = make_plan(slurm_campaign(tmp_path, "10:00"))
    parts, protocol = plan.points.parts, plan.campaign.protocol
    (got,) = estimates(parts, protocol, plan.sites, {})
    point_s = 2 + 4 + 21 + 4 + SUBPROCESS_S
    assert got.point_s == pytest.approx(point_s)
    assert got.walltime_points == int((600 - START_S) / point_s) == 18
    assert got.wall_s == pytest.approx(75 * point_s + 5 * START_S)  # 75 points in jobs of 18
    assert got.node_hours == pytest.approx(2 * got.wall_s / 3600)
    # One of three kernels is known to take 100 s: so do its warm-up, its stretches and its window.
    known = {("s", "p"): {("idle", parts[0].inputs[0].params): 100.0}}
    (longer,) = estimates(parts, protocol, plan.sites, known)
    assert longer.known_inputs == 1
    assert longer.point_s - got.point_s == pytest.approx(((100 + 200 + 100) - (4 + 21)) / 3)
    # A store's points each took 12 s more than their steps, but one.
    taken = {(one.label, one.params): 31.0 + 12.0 for one in parts[0].inputs[:2]}
    (later,) = estimates(parts, protocol, plan.sites, {}, {("s", "p"): taken | {("x", ""): 90.0}})
    assert later.point_s == pytest.approx(31.0 + 12.0)


def test_a_kernel_counts_in_an_estimate_as_often_as_it_is_measured(tmp_path):
    """By hand: one kernel of 100 s is measured 50 times, a short one twice."""
    path = slurm_campaign(tmp_path, "10:00:00")
    kernels = """
[[kernels]]
kernel = "idle"
params = { sleep_s = 1 }
[[kernels]]
kernel = "idle"
label = "twice"
repeats = 2
params = { sleep_s = 2 }
"""
    path.write_text(path.read_text().partition("[[kernels]]")[0] + kernels)
    plan = make_plan(path)
    (part,) = plan.points.parts
    known = {("idle", entry.params): 100.0 for entry in part.inputs if entry.label == "idle"}
    (got,) = estimates([part], plan.campaign.protocol, plan.sites, {("s", "p"): known})
    long_s, short_s = 2 + (100 + 200) + 100 + 4, 2 + 4 + 21 + 4
    assert len(part) == got.points == 52
    assert got.point_s * 52 == pytest.approx(50 * long_s + 2 * short_s + 52 * SUBPROCESS_S)


def test_the_time_of_an_iteration_is_that_of_the_partition_measured_on(tmp_path):
    """Three machines of very different speed; a kernel that one did not measure has the time of its
    site, or of all."""
    times = {
        ("s", "p", "a"): (1.0, 2.0, 3.0),
        ("s", "q", "a"): (10.0, 20.0, 30.0),
        ("s", "q", "b"): (40.0, 50.0, 60.0),
        ("t", "p", "a"): (100.0, 200.0, 300.0),
        ("t", "p", "c"): (400.0, 500.0, 600.0),
    }
    rows = [(*place, "{}", "ok", time_s) for place, of in times.items() for time_s in of]
    names = ("site", "partition", "kernel", "params", "status", "time_s")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    for place, expected in (
        (("s", "p"), [2.0, 50.0, 500.0]),
        (("s", "q"), [20.0, 50.0, 500.0]),
        (("t", "p"), [200.0, 50.0, 500.0]),
        (("s", "new"), [6.5, 50.0, 500.0]),  # of both partitions of its site
        (("new", "p"), [20.0, 50.0, 500.0]),
    ):
        found = Results.iteration_times(SimpleNamespace(columns=columns), *place)
        assert [found[kernel, "{}"] for kernel in "abc"] == expected


def test_the_times_between_points_are_those_of_one_node(tmp_path):
    """Two nodes in turn: a point every 5 s on one and every 7 s on the other."""
    rows = [
        f"s,k,{{}},n{node},{i},1000,1,1,{1000 + 100000 * node + i * gap}"
        for node, gap in ((1, 5), (2, 7))
        for i in range(2)
    ]
    header = "site,kernel,params,node,repeat,core_mhz,time_s,energy_j,start_unix_s"
    store = store_of_table(tmp_path, [header, *rows])
    assert open_store(store).point_times() == {
        ("s", f"n{node}"): {("k", "{}"): pytest.approx(gap)} for node, gap in ((1, 5.0), (2, 7.0))
    }


SET_CLOCKS = [
    control
    for control in sorted(set(CONTROLS) - {"fixed", "simulated"})
    if not CONTROLS.load(control).ABOUT.axis
]
OPTIONS = {
    "command": '[clocks.options]\nset = [["set", "{core_mhz}"]]\nread = [["read"]]\n'
    'restore = [["restore"]]\n'
}


@pytest.mark.parametrize("control", SET_CLOCKS)
def test_points_come_in_batches_only_where_slurm_sets_the_clocks(tmp_path, control):
    """Elsewhere a change of the setting costs no job step, and the order is a hash's."""
    (tmp_path / "s.toml").write_text(
        f'name = "s"\n[clocks]\ncontrol = "{control}"\n{OPTIONS.get(control, "")}[domains.core]\n'
        'frequencies_mhz = [1000, 2000, 3000, 4000]\n[partitions.p]\nscheduler = "slurm"\n'
    )
    head = 'name = "c"\nseed = 5\n[[sites]]\nsite = "s.toml"\n'
    kernels = '[[kernels]]\nkernel = "idle"\nparams = { sleep_s = [1, 2, 3, 4, 5, 6, 7, 8] }\n'
    plan = make_plan(campaign_file(tmp_path, head=head, settings="", kernels=kernels))
    changes = sum(a.setting != b.setting for a, b in itertools.pairwise(plan.points))
    keys = [hashlib.sha256(f"5:0:{point.id}".encode()).digest() for point in plan.points]
    (got,) = estimates(plan.points.parts, plan.campaign.protocol, plan.sites, {})
    launch_s = got.point_s - measuring_s(plan.campaign.protocol, plan.sites["s"])
    if control == "slurm":
        assert changes == 3
        assert launch_s == pytest.approx(BATCHED_S)
    else:
        assert changes > 10
        assert keys == sorted(keys)
        assert launch_s == pytest.approx(SUBPROCESS_S)


@pytest.mark.parametrize("walltime", ["00:30", "00:00:30"])
def test_a_point_that_no_job_can_hold_is_refused(tmp_path, walltime):
    with pytest.raises(FileError) as error:
        make_plan(slurm_campaign(tmp_path, walltime))
    text = str(error.value)
    assert "c.toml:" in text
    assert (
        f"s/p: a point takes at least 31 s by the protocol, and a job's walltime is {walltime}"
        in text
    )
    assert "partitions.p.walltime in" in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:00", 60),
        ("100:00:00", 360_000),
        ("05:30", 330),
        ("2-00:00:00", 172_800),
        ("1-01:30", 91_800),
    ],
)  # as in sbatch's manual: minutes:seconds, hours:minutes:seconds, days-hours:minutes
def test_a_walltime_is_read_as_slurm_reads_it(text, seconds):
    assert walltime_s(text) == seconds


def test_the_estimate_s_stretch_is_the_protocol_s():
    """A plan does not import what measures."""
    assert estimate.STRETCH_S == protocol.STRETCH_S


@pytest.mark.parametrize("limit", [11, 12, 35, 36, 100])
def test_the_points_of_all_sites_together_are_limited(tmp_path, monkeypatch, limit):
    """Three inputs, twice, on two partitions of one site and on four of the other: 12 and 24."""
    monkeypatch.setattr(plan_module, "MAX_POINTS", limit)
    head = 'name = "c"\nrepeats = 2\n'
    for name, count in (("a", 2), ("b", 4)):
        tables = "".join(f"[partitions.p{i}]\n" for i in range(count))
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\n{tables}')
        head += f'[[sites]]\nsite = "{name}.toml"\n'
    path = campaign_file(tmp_path, head=head, settings="")
    if limit >= 36:
        assert len(make_plan(path).points) == 36
        return
    with pytest.raises(FileError) as error:
        make_plan(path)
    planned, partitions = (12, 2) if limit < 12 else (36, 4)
    said = f"{planned} points so far: 3 parameter sets at 1 settings, 2 times on {partitions} "
    assert said in str(error.value)
    assert f"at most {limit}: plan several" in str(error.value)


PAIRS = {
    "campaign": [[852, 924], [612, 924]],
    "site": [[612, 924], [396, 204], [852, 204]],
    "kernel": [[852, 924], [72, 68]],
}


@pytest.mark.parametrize("site_has_own", [True, False])
@pytest.mark.parametrize("kernels_with_own", [(), ("a",), ("a", "b")])
def test_each_kernel_has_its_own_settings_or_the_site_s_or_the_campaign_s(
    tmp_path, site_has_own, kernels_with_own
):
    def table(whose: str) -> str:
        return f'settings = {{ choose = "pairs", pairs = {PAIRS[whose]} }}\n'

    path = tmp_path / "c.toml"
    path.write_text(
        'name = "c"\nrepeats = 2\n' + table("campaign")
        + '[[sites]]\nsite = "jetson-tk1"\n' + (table("site") if site_has_own else "")
        + "".join(
            f'[[kernels]]\nkernel = "idle"\nlabel = "{label}"\n'
            + (table("kernel") if label in kernels_with_own else "")
            + f"[kernels.params]\nsleep_s = {sleeps}\n"
            for label, sleeps in (("a", [1, 2]), ("b", [3]))
        )
    )  # fmt: skip
    brute = Counter(
        (repeat, label, sleep_s, Setting(*map(float, pair)))
        for repeat in (0, 1)
        for label, sleeps in (("a", [1, 2]), ("b", [3]))
        for sleep_s in sleeps
        for pair in PAIRS[
            "kernel" if label in kernels_with_own else "site" if site_has_own else "campaign"
        ]
    )
    points = make_plan(path).points
    found = [(p.repeat, p.label, json.loads(p.params)["sleep_s"], p.setting) for p in points]
    assert Counter(found) == brute
    assert len(points) == len(found)
    for point in points:
        fields = {name: getattr(point, name) for name in point.__slots__ if name != "id"}
        assert point == Point(**fields)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[0, 1, 2]", "[0, 1, 2, 1]", 'idle {"sleep_s":1.0} at core 852, memory 924'),
        ("[[852, 924], [612, 924]]", "[[852, 924], [612, 924], [612, 924]]",
         'idle {"sleep_s":0.0} at core 612, memory 924'),
        ('"jetson-tk1"', '"jetson-tk1"\npartitions = ["board", "board"]',
         'idle {"sleep_s":0.0} at core 852, memory 924'),
    ],
)  # fmt: skip
def test_what_is_planned_twice_is_named(tmp_path, old, new, named):
    settings = '[settings]\nchoose = "pairs"\npairs = [[852, 924], [612, 924]]\n'
    path = campaign_file(tmp_path, settings=settings)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(FileError) as error:
        make_plan(path)
    assert f"the point {named} MHz is planned twice" in str(error.value)


WORKSTATION = """\
name = "{name}"
{meter}
[partitions.local]
scheduler = "local"
{further}
"""
POWERCAP, NVML = (f'[[meters]]\nkind = "{kind}"' for kind in ("powercap", "nvml"))
SECOND = '[partitions.second]\nscheduler = "local"'


@pytest.mark.parametrize(
    ("sites", "named"),
    [
        ([(POWERCAP, "nodes = 2")], "partitions.local.nodes: found 2"),
        ([(POWERCAP, ""), (NVML, "")], "sites[1]: s0/local and s1/local would measure"),
        ([(POWERCAP, SECOND)], "sites[0]: s0/local and s0/second would measure"),
        ([("", ""), (NVML, "")], "sites[1]: s0/local and s1/local would measure"),
        ([(POWERCAP, "nodes = 1")], None),
        ([("", ""), ("", "nodes = 2")], None),  # no meter counts them together
    ],
)
def test_points_that_a_meter_would_count_together_are_refused(tmp_path, sites, named):
    """Several points on this machine at a time: each would have the energy of all. A workstation
    with a site file for its CPUs and one for its GPUs is two partitions of this machine."""
    for i, (meter, further) in enumerate(sites):
        text = WORKSTATION.format(name=f"s{i}", meter=meter, further=further)
        (tmp_path / f"s{i}.toml").write_text(text)
    path = campaign_file(tmp_path, settings="")
    listed = "".join(f'[[sites]]\nsite = "s{i}.toml"\n' for i in range(len(sites)))
    text = path.read_text()
    old = '[[sites]]\nsite = "jetson-tk1"\n'
    assert old in text
    path.write_text(text.replace(old, listed))
    if named is None:
        assert len(make_plan(path).partitions) == len(sites)
    else:
        with pytest.raises(FileError) as error:
            make_plan(path)
        assert named in str(error.value)
        assert "at the same time" in str(error.value)


def test_a_kernel_has_one_number_of_ranks(tmp_path):
    """Others need a label, by which they are told apart."""
    entry = '[[kernels]]\nkernel = "idle"\nranks = 2\n'
    path = campaign_file(tmp_path, settings="")
    path.write_text(path.read_text().replace("jetson-tk1", "localhost") + entry)
    with pytest.raises(FileError) as error:
        make_plan(path)
    assert 'idle {"sleep_s":0.0} with 1 and with 2 ranks' in str(error.value)
    path.write_text(path.read_text() + 'label = "two"\n')
    assert {(point.label, point.ranks) for point in make_plan(path).points} == {
        ("idle", 1),
        ("two", 2),
    }


def test_another_seed_changes_the_order_alone(tmp_path):
    first = make_plan(campaign_file(tmp_path)).points
    other = make_plan(
        campaign_file(
            tmp_path, head='name = "c"\nseed = 6\nrepeats = 2\n[[sites]]\nsite = "jetson-tk1"\n'
        )
    ).points
    assert {p.id for p in first} == {p.id for p in other}
    assert [p.id for p in first] != [p.id for p in other]


values = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)


@given(ops=values, threads=values, excluded=st.integers(1, 64), zipped=st.booleans())
def test_sweeps_are_what_brute_force_says(tmp_path_factory, ops, threads, excluded, zipped):
    if zipped:
        size = min(len(ops), len(threads))
        ops, threads = ops[:size], threads[:size]
        table = f"[[kernels.zip]]\nops_per_word = {ops}\nthreads = {threads}\n"
        expected = set(zip(ops, threads, strict=True))
    else:
        table = f"[kernels.params]\nops_per_word = {ops}\nthreads = {threads}\nlevel = 'dram'\n"
        expected = set(itertools.product(ops, threads))
    fixed = "[kernels.params]\nlevel = 'dram'\n" if zipped else ""
    expected = {pair for pair in expected if pair[0] != excluded}
    if not expected:
        return
    kernels = (
        f'[[kernels]]\nkernel = "sp_fma"\n{fixed}{table}'
        f"[[kernels.exclude]]\nops_per_word = {excluded}\n"
    )
    folder = tmp_path_factory.mktemp("plan")
    plan = make_plan(campaign_file(folder, kernels=kernels))
    times_planned = Counter(
        (json.loads(p.params)["ops_per_word"], json.loads(p.params)["threads"]) for p in plan.points
    )
    assert set(times_planned) == expected
    assert set(times_planned.values()) == {2 * 6}


def test_exclude_removes_what_matches_in_every_key(tmp_path):
    kernels = (
        '[[kernels]]\nkernel = "sp_fma"\n[kernels.params]\nlevel = "dram"\n'
        "ops_per_word = [1, 2, 4]\nthreads = [1, 2]\n"
        "[[kernels.exclude]]\nops_per_word = 2\nthreads = 1\n"
    )
    plan = make_plan(campaign_file(tmp_path, kernels=kernels))
    params = [json.loads(point.params) for point in plan.points]
    pairs = {(one["ops_per_word"], one["threads"]) for one in params}
    assert pairs == set(itertools.product([1, 2, 4], [1, 2])) - {(2, 1)}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_canonical_json_is_one_text_for_one_value(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@pytest.mark.parametrize("model", [Campaign, Profile], ids=lambda model: model.__name__)
def test_every_key_of_an_input_file_has_a_description(model: type[FileModel]) -> None:
    def tables(table: type[FileModel]) -> Iterator[type[FileModel]]:
        yield table
        for field in table.model_fields.values():
            for part in (field.annotation, *get_args(field.annotation)):
                if isinstance(part, type) and issubclass(part, FileModel):
                    yield from tables(part)

    undescribed = [
        f"{table.__name__}.{name}"
        for table in tables(model)
        for name in table.model_fields
        if not field_texts(table).get(name)
    ]
    assert undescribed == []


SPACE = """\
[[kernels]]
kernel = "fmm_u"
params = {{ n = 4096, precision = ["single", "double"] }}
[kernels.space]
tile = [1, 2, 4]
unroll = "1 : device.lanes : tile"
where = [{where}]
"""
LAB = """\
name = "lab"
[device]
lanes = 4
[partitions.local]
"""


def with_space(folder: Path, where: str, device: str = LAB) -> Path:
    (folder / "lab.toml").write_text(device)
    head = 'name = "c"\n[[sites]]\nsite = "lab.toml"\n'
    return campaign_file(folder, head=head, settings="", kernels=SPACE.format(where=where))


def test_variants_of_a_space_are_points_as_those_of_a_sweep(tmp_path):
    """The same ids as the same parameter sets written out; and what its conditions refused."""
    plan = make_plan(with_space(tmp_path, '"unroll != 3", "unroll <= 2 * tile"'))
    pairs = [(1, 1), (1, 2), (2, 1), (4, 1)]
    zipped = "zip = [{ tile = [1, 1, 2, 4], unroll = [1, 2, 1, 1] }]"
    kernels = SPACE.partition("[kernels.space]")[0].format() + zipped + "\n"
    written = make_plan(
        campaign_file(tmp_path, head='name = "c"\n[[sites]]\nsite = "lab.toml"\n', settings="",
                      kernels=kernels)
    )  # fmt: skip
    assert [p.id for p in plan.points] == [p.id for p in written.points]
    assert len(plan.points) == 2 * len(pairs)
    (space,) = plan.spaces
    assert space.refused == {"unroll != 3": 4, "unroll <= 2 * tile": 2}
    printed = prints("plan", with_space(tmp_path, '"unroll != 3", "unroll <= 2 * tile"'))
    assert "space of fmm_u at lab: 8 variants; the first:\n  tile=1 unroll=1\n" in printed
    assert re.search(r"unroll <= 2 \* tile +2\n", printed)


@pytest.mark.parametrize(
    ("where", "device", "message"),
    [
        ('"tile < 9", "zz > 1"', LAB, "c.toml:10: kernels[0].space.where[1]: unknown name 'zz'"),
        (
            '"tile < 9"',
            LAB.replace("lanes", "cores"),
            "c.toml:9: kernels[0].space.unroll: the site",
        ),
        ('"unroll > 9"', LAB, "no variant is left: 'unroll > 9' refused the last"),
        ('"tile == 1"', LAB.replace("4", "8"), "kernels[0].space.unroll: found 3"),
    ],
)
def test_a_wrong_space_is_named_with_its_line(tmp_path, where, device, message):
    errors = refuses("plan", with_space(tmp_path, where, device))
    assert message in " ".join(errors.split()), errors
