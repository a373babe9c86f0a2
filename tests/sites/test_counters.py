"""Hardware counters: events' names, counting around a window, and what is derived."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dvfs.input_files import FileError, built_in_files
from sites.counters.counting import (
    EventReading,
    count_between,
    open_counters,
)
from sites.counters.group_file import BUILT_IN_GROUPS, CounterGroup, read_group
from sites.perf_event import EventError, EventSpec, find_event
from sites.site_reading import read_site
from tests.sites.meter_layouts.layout import TREES

SKX = TREES / "perf-counters-skx"
SITE = 'name = "here"\n[partitions.p]\n[counters]\n'


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("instructions", (0, 1, 0)),
        ("task-clock", (1, 1, 0)),
        ("LLC-load-misses", (3, 0x10002, 0)),  # cache 2, read 0, miss 1: perf_event_open(2)
        ("r01c7", (4, 0x01C7, 0)),
        ("cpu/event=0xc7,umask=0x10/", (4, 0x10C7, 0)),
        ("cpu/event=0x0e,umask=0x1,cmask=1,edge/", (4, 0x0104010E, 0)),
        ("cpu/cache-misses/", (4, 0x412E, 0)),
        ("cpu/event=0xc6,frontend=0x11/", (4, 0xC6, 0x11)),
        ("cpu/wide=0xabc/", (4, 0xA000000BC, 0)),
    ],
)
def test_names_of_events_give_the_numbers_that_the_kernel_takes(
    name: str, spec: tuple[int, int, int]
) -> None:
    assert find_event(SKX, name) == EventSpec(name, *spec)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("instrutions", "is not the name of an event"),
        ("gpu/event=1/", "this machine's event sources are: cpu"),
        ("cpu/evnt=1/", "format/evnt does not exist"),
        ("cpu/event=0x1ff/", "does not fit into config:0-7"),
        ("cpu/event=x/", "'x' is not a number"),
    ],
)
def test_a_wrong_name_is_refused_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(EventError, match=said):
        find_event(SKX, name)


def test_a_recorded_window_gives_flops_and_bytes_by_level_and_what_was_multiplexed() -> None:
    group = read_group(built_in_files(BUILT_IN_GROUPS)["intel-server"])
    counters = open_counters(group.events, SKX)
    counters.begin()
    counts = counters.end()
    assert counts["instructions"].count == 6_000_000
    assert counts["cycles"].count == 3_000_000
    assert not counts["cycles"].multiplexed
    # Counted half of the time: the count is doubled, and says so.
    assert counts["dp_256"].count == 500_000
    assert (counts["dp_256"].multiplexed, counts["dp_256"].share) == (True, 0.5)
    assert "sp_512" not in counts  # never counted: missing, not zero
    derived = group.derive({name: count.count for name, count in counts.items()})
    assert derived == {
        "dp": 1000 + 4 * 500_000,
        "l2": 64 * (30_000 - 20_000),
        "l3": 64 * (20_000 - 12_000),
        "dram": 64 * 12_000,
    }


def test_events_that_do_not_fit_together_derive_nothing() -> None:
    group = CounterGroup(
        description="", events={"a": "r1", "b": "r2"}, derived={"l2": {"a": 64, "b": -64}}
    )
    assert group.derive({"a": 3.0, "b": 5.0}) == {}
    assert group.derive({"a": 3.0}) == {}
    assert group.derive({"a": 5.0, "b": 5.0}) == {"l2": 0.0}


@given(
    before=st.tuples(*[st.integers(0, 2**40)] * 3),
    more=st.integers(0, 2**48),
    enabled_ns=st.integers(1, 2**40),
    share=st.floats(0.01, 1.0),
)
def test_a_scaled_count_is_what_a_steady_rate_gives(
    before: tuple[int, int, int], more: int, enabled_ns: int, share: float
) -> None:
    counted_ns = max(1, int(enabled_ns * share))
    seen = more * counted_ns // enabled_ns
    after = EventReading(before[0] + seen, before[1] + enabled_ns, before[2] + counted_ns)
    count = count_between(EventReading(*before), after)
    assert count is not None
    assert count.count == pytest.approx(more, rel=1e-9, abs=enabled_ns / counted_ns)
    assert count.share == pytest.approx(counted_ns / enabled_ns)


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_kernel_counts_threads_and_programs_that_start_after_opening() -> None:
    counters = open_counters({"clock": "task-clock", "faults": "page-faults"})
    spin(0.05)  # before the window
    began_ns = time.monotonic_ns()
    counters.begin()
    threads = [threading.Thread(target=spin, args=(0.1,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = counters.end()
    between_ns = time.monotonic_ns()
    counters.begin()
    program = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", program], check=True)
    second = counters.end()
    counters.close()
    ended_ns = time.monotonic_ns()
    # The counter and the clock that ends the loops are two clocks of the kernel: a hypervisor's
    # time counts in the first alone. Neither counts a thread for longer than the wall's clock.
    assert 0.198e9 <= first["clock"].count <= 2.05 * (between_ns - began_ns)
    assert 0.198e9 <= second["clock"].count <= 1.05 * (ended_ns - between_ns)
    assert second["faults"].count > 100  # a new interpreter


def test_an_event_that_this_machine_lacks_is_an_error_with_a_remedy() -> None:
    with pytest.raises(EventError, match="perf list"):
        open_counters({"a": "task-clock", "b": "nowhere/event=1/"})
    with pytest.raises(EventError, match="has no further reading"):
        counters = open_counters({"cycles": "cycles"}, SKX)
        for _ in range(2):
            counters.begin()
            counters.end()


@pytest.mark.parametrize("name", built_in_files(BUILT_IN_GROUPS))
def test_BUILT_IN_GROUPS_are_read_and_count_events_that_have_numbers(
    name: str, tmp_path: Path
) -> None:
    group = read_group(built_in_files(BUILT_IN_GROUPS)[name])
    shutil.copytree(SKX, tmp_path / "root")
    cpu = tmp_path / "root/sys/bus/event_source/devices/cpu"
    shutil.copytree(cpu, cpu.with_name("armv8_pmuv3_0"))
    for event in group.events.values():
        find_event(tmp_path / "root", event)


def site_with(tmp_path: Path, counters: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(SITE + counters)
    return path


def test_a_site_file_names_a_built_in_group_a_file_or_has_one(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('description = "own"\n[events]\nfaults = "page-faults"\n')
    inline = 'c = { description = "x", events = { clock = "task-clock" } }\n'
    site = read_site(site_with(tmp_path, f'a = "generic"\nb = "own.toml"\n{inline}'))
    groups = site.counter_groups
    assert list(groups) == ["a", "b", "c"]
    assert groups["b"].events == {"faults": "page-faults"}
    again = type(site).model_validate(site.model_dump(mode="json"))
    assert again.counter_groups == groups  # what a worker on another node gets


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        ('a = "genric"', r"site\.toml:4: counters\.a: unknown counter group 'genric'; .* generic"),
        ('a = "none.toml"', r"none\.toml: no such file"),
        ('a = "bad.toml"', r"bad\.toml:4: derived\.l2: no event 'f'; use those of \[events\]: e"),
        (
            'a = "generic"\nb = { description = "", events = { cycles = "r1" } }',
            r"counters\.b: the event 'cycles' is 'r1' here and 'cycles' in a group before",
        ),
        (
            'a = "intel-server"\nb = { description = "", events = { dp_256 = '
            '"cpu/event=0xc7,umask=0x10/" }, derived = { dp = { dp_256 = 4 } } }',
            r"counters\.b: it derives 'dp', as a group before does from other events; leave one",
        ),
        (
            'a = { description = "", events = { e = "r1" }, derived = { l2 = { f = 1 } } }',
            r"site\.toml:4: counters\.a\.derived\.l2: no event 'f'; use those of \[events\]: e",
        ),
        ("a = 3", r"site\.toml:4: counters\.a"),
    ],
)
def test_wrong_groups_are_refused_with_their_place(
    tmp_path: Path, counters: str, said: str
) -> None:
    (tmp_path / "bad.toml").write_text(
        'description = ""\nevents = { e = "r1" }\n[derived]\nl2 = { f = 1 }\n'
    )
    with pytest.raises(FileError, match=said):
        read_site(site_with(tmp_path, counters))
