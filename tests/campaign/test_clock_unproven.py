"""A point whose clocks nothing showed is done: it is counted apart, and not measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign.launch.drive import plan_record
from campaign.launch.outcome import missing_points, outcome
from campaign.plan.plan import Plan, make_plan
from campaign.results.fits import UNPROVEN_CLOCKS
from campaign.store.compaction import compact
from campaign.store.layout import Store, create_store
from campaign.store.measurement import Measurement
from campaign.store.planned import write_planned
from campaign.store.states import point_states
from campaign.verbs.command_line import main
from dvfs.dataset import CLOCK_UNPROVEN, OK
from tests.commands import answers, prints
from tests.stores import write

CAMPAIGN = """\
name = "small"
[[sites]]
site = "jetson-tk1"
settings = { choose = "random", count = 5, seed = 1 }
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = 4 }
"""


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Store, Plan]:
    """A store whose points are ok, but for the last two: one unproven, one not measured."""
    path = tmp_path / "c.toml"
    path.write_text(CAMPAIGN)
    plan = make_plan(path)
    store = create_store(tmp_path / "store", "small")
    ids = {"jetson-tk1/board": [point.id for point in plan.points]}
    write_planned(store, plan_record(plan, store), ids)
    statuses = zip(plan.points[:4], (OK, OK, OK, CLOCK_UNPROVEN), strict=True)
    for point, status in statuses:
        write(store, Measurement(point=point, status=status, time_s=1.0, energy_j=2.0))
    return store, plan


@pytest.mark.parametrize("compacted", [False, True])
def test_it_is_done_and_counted_apart(planned, compacted, capsys):
    store, plan = planned
    if compacted:
        compact(store)
    states = point_states(store)
    for retry_failed in (False, True):
        assert missing_points(plan, states, retry_failed) == [(plan.points[4], 0)]
    now = outcome(plan, states, interrupted=False)
    assert (now.ok, now.clock_unproven, now.measured, now.failed, now.left) == (3, 1, 4, 0, 1)
    assert not now.complete
    main(["status", str(store.root)])
    assert capsys.readouterr().out.startswith(
        "4 of 5 points done (ok 3, clock unproven 1), 0 failed, 1 left\n"
    )
    main(["status", str(store.root), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["partitions"]
    assert (row["done"], row["clock_unproven"], row["failed"]) == (4, 1, 0)


def test_what_a_search_found_at_unproven_clocks_says_so(tmp_path):
    """The settings may all be one: the best of them is no pick to rely on."""
    store = create_store(tmp_path / "store", "small")
    file = tmp_path / "tune.toml"
    file.write_text(CAMPAIGN.replace("ops_per_word = 4", "ops_per_word = [4, 8]"))
    points = sorted(make_plan(file).points, key=lambda point: point.params)
    for point in points:
        status = CLOCK_UNPROVEN if point == points[-1] else OK
        write(store, Measurement(point=point, status=status, time_s=1.0, energy_j=2.0))
    found = answers("tune", file, "--store", store.root)["found"]
    assert [one["unproven_clocks"] for one in found] == [False, True]
    assert prints("tune", file, "--store", store.root).count(UNPROVEN_CLOCKS) == 1
