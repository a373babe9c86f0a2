"""Hardware counters around a point's windows, with events that every Linux counts."""

from __future__ import annotations

import sys

import pytest

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
