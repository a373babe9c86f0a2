"""Hardware counters around a point's windows, with events that every Linux counts."""

from __future__ import annotations

import sys

import pytest

from campaign.measure.hardware_counters import counted
from campaign.measure.window import Window
from dvfs.setting import AS_FOUND
from kernels.host.ranks import Team
from sites.counters.counting import EventCount
from sites.counters.group_file import CounterGroup
from tests.campaign.test_measure import localhost, run

SOFTWARE = CounterGroup(
    description="software events",
    events={"busy_ns": "task-clock", "faults": "page-faults"},
    derived={"int": {"faults": 2}},
)
BUSY = "import time\nwhile time.process_time() < 0.15: pass"


def test_the_program_of_a_command_is_counted_and_gets_the_derived_counts() -> None:
    site = localhost(counters={"software": SOFTWARE})
    done = run("command", {"argv": [sys.executable, "-c", BUSY]}, site)
    assert done.status == "ok", done.text
    counters = done.provenance["counters"]
    assert 0.15e9 <= counters["events"]["busy_ns"] < 0.4e9  # of one run
    assert done.counts == counters["derived"] == {"int": 2 * counters["events"]["faults"]}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernels_exact_counts_stay(threads: int) -> None:
    site = localhost(counters={"software": SOFTWARE})
    params = {"level": "l1", "threads": threads}
    done = run("load", params, site)
    assert done.status == "ok", done.text
    busy_ns = done.provenance["counters"]["events"]["busy_ns"]
    assert busy_ns > 0
    assert done.counts is not None
    assert done.counts == run("load", params).counts


def test_an_event_that_the_node_lacks_is_a_flag_and_loses_no_measurement() -> None:
    group = CounterGroup(description="", events={"x": "nowhere/event=1/"}, derived={"dp": {"x": 1}})
    done = run("command", {"argv": ["true"]}, localhost(counters={"g": group}))
    assert done.status == "ok"
    assert done.counts is None
    assert "counters" not in done.provenance
    [flag] = done.provenance["flags"]
    assert flag.startswith("hardware counters were not read: /sys/bus/event_source/devices/nowhere")


def test_ranks_counters_are_added() -> None:
    site = localhost(counters={"software": SOFTWARE})
    done = run("command", {"argv": [sys.executable, "-c", BUSY]}, site, ranks=2)
    assert done.status == "ok", done.text
    assert done.provenance["counters"]["events"]["busy_ns"] >= 2 * 0.15e9


def test_events_are_of_one_iteration_and_a_flag_says_which_took_turns_most() -> None:
    """Two windows of 2 and 3 iterations. Of a turn in each window the shorter one is said."""
    windows = [
        Window(
            end_ns=10**9,
            iterations=iterations,
            traces=[],
            achieved=AS_FOUND,
            counted={
                "busy_ns": EventCount(100.0 * iterations, 1.0),
                "faults": EventCount(7.0 * iterations, share),
                "misses": EventCount(20.0 * iterations, 0.9),
            },
        )
        for iterations, share in ((2, 0.95), (3, 0.8))
    ]
    found = counted(localhost(counters={"software": SOFTWARE}), Team(), windows)
    assert found.record["events"] == pytest.approx(
        {"busy_ns": 100.0, "faults": 7.0, "misses": 20.0}
    )
    assert found.record["share"] == {"faults": 0.8, "misses": 0.9}
    assert found.derived == found.record["derived"] == pytest.approx({"int": 14.0})
    assert found.flags == [
        "2 hardware counters were counted for a part of the time and scaled; faults for 80 %"
    ]
