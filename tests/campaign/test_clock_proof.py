"""A clock is shown or it is not: controls that do nothing, readers that repeat, timed loops."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from campaign.measure import clock_proof, point_life
from campaign.measure.clock_proof import ClockProof, UnachievedClockError, prove
from campaign.measure.window import Window
from dvfs.setting import AS_FOUND, Setting
from kernels.host.timed_clock import timed_core_mhz
from sites.clocks import CONTROLS
from tests.campaign import pretended_clocks
from tests.campaign.pretended_clocks import measured, pretending_site
from tests.sites.clock_layouts import LAYOUTS, copy


@pytest.fixture(autouse=True)
def pretends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control that is registered and does nothing."""
    monkeypatch.setitem(CONTROLS, "pretends", pretended_clocks.__name__)


def true_mhz() -> float:
    """The clock of this machine, which no control of these tests sets."""
    return statistics.median(timed_core_mhz())


def test_a_control_that_does_nothing_proves_nothing():
    """At clocks below and above all that turbo gives this machine: none is taken as shown."""
    seen = [mhz for _ in range(10) for mhz in timed_core_mhz()]
    mhz = [round(min(seen) * factor) for factor in (0.25, 0.4, 0.6)]
    mhz += [round(max(seen) * factor) for factor in (1.25, 2.0)]
    site = pretending_site([float(m) for m in mhz])
    for setting in site.settings:
        done = measured(site, setting)
        assert done.status == "clock not achieved", done.text
        assert "timed loop" in done.text
        assert done.clock_proof == ""


def test_the_machine_at_its_own_clock_is_shown_by_timing():
    for _ in range(8):  # turbo may change the clock between two timings
        site = pretending_site([true_mhz()], pct=8.0)  # its turbo has steps of 3 %
        done = measured(site, site.settings[0])
        if done.status == "ok":
            break
    assert (done.status, done.clock_proof) == ("ok", "timed"), done.text
    assert done.core_mhz_timed == pytest.approx(site.settings[0].core_mhz, rel=0.08)
    assert math.isnan(done.core_mhz_achieved)


def test_nothing_is_asked_and_nothing_has_to_be_shown():
    for _ in range(5):  # turbo may change the clock between two timings
        done = measured(pretending_site([10.0, 20.0]), AS_FOUND)
        assert (done.status, done.clock_proof, done.text) == ("ok", "", "")
        now_mhz = pytest.approx(true_mhz(), rel=0.1)
        if done.core_mhz_timed == now_mhz:
            break
    assert done.core_mhz_timed == now_mhz


def test_where_neither_reading_nor_timing_works_the_measurement_is_kept(monkeypatch):
    monkeypatch.setattr(point_life, "_timed_cpus", lambda site, team: frozenset())
    site = pretending_site([1000.0])
    done = measured(site, site.settings[0])
    assert done.status == "clock unproven"
    assert done.text == "core clock 1000 MHz: this node does not report it"
    assert done.time_s > 0
    assert math.isnan(done.core_mhz_timed)


def test_what_a_driver_repeats_is_no_clock(tmp_path, monkeypatch):
    """cpufreq on a processor without counters: its files show what was asked for."""
    layout = next(one for one in LAYOUTS if one.name == "cpufreq-acpi")
    root = tmp_path / "machine"
    copy(layout, root)
    (root / "proc/cpuinfo").write_text("flags\t\t: fpu tsc hypervisor\n")
    monkeypatch.setattr(point_life, "open_control", lambda site: layout.open(root))
    monkeypatch.setattr(point_life, "_timed_cpus", lambda site, team: frozenset())
    with layout.running(root):
        for setting in (layout.legal[0], layout.legal[-1]):
            done = measured(pretending_site([setting.core_mhz or 0.0]), setting)
            shown = (root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq").read_text()
            assert done.status == "clock unproven", shown
            assert math.isnan(done.core_mhz_achieved)


def window(
    core: float | None = None,
    mem: float | None = None,
    before: tuple[float, ...] = (),
    after: tuple[float, ...] = (),
    apart_pct: float = 0.0,
) -> Window:
    return Window(
        end_ns=1,
        iterations=1,
        traces=[],
        achieved=Setting(core, mem),
        timed_mhz=(before, after),
        conditions={"clocks_apart_pct": apart_pct} if apart_pct else {},
    )


AT_1000 = window(before=(1001.0, 999.0), after=(1000.0, 998.0))
ONE_MEMORY, TWO_MEMORIES = [800.0], [400.0, 800.0]


@pytest.mark.parametrize(
    ("mem_mhz", "windows", "by", "missing"),
    [
        (None, [window(core=1010.0)], "read back", ""),
        (None, [AT_1000], "timed", ""),
        (None, [AT_1000, AT_1000], "timed", ""),
        # One window of several, one edge, or one CPU that is not shown: nothing is.
        (None, [AT_1000, window()], "", "core clock 1000 MHz: this node"),
        (None, [window(core=1000.0), window()], "", "core clock 1000 MHz: this node"),
        (None, [AT_1000, window(before=(1000.0,), after=(900.0,))], "", "900 to 1001 MHz"),
        (None, [window(before=(1000.0,), after=(1000.0, 1000.0, 900.0))], "", "timed loop"),
        (None, [window(before=(1000.0,))], "", "core clock"),
        # A memory clock that cannot be other than it is needs no proof; one of several does.
        (ONE_MEMORY, [AT_1000], "timed", ""),
        (TWO_MEMORIES, [AT_1000], "", "memory clock 800 MHz: this node does not report it"),
        (TWO_MEMORIES, [window(core=1000.0, mem=801.0)], "read back", ""),
        (TWO_MEMORIES, [window(mem=801.0, before=(1000.0,), after=(1000.0,))], "timed", ""),
        (TWO_MEMORIES, [window(core=1000.0)], "", "memory clock"),
    ],
)
def test_what_shows_a_clock(mem_mhz, windows, by, missing):
    asked = Setting(1000.0, 800.0 if mem_mhz else None)
    proof = prove(pretending_site([1000.0], mem_mhz), asked, windows)
    assert proof.by == by
    assert missing in proof.missing
    assert bool(proof.missing) == (by == "")


@pytest.mark.parametrize(
    ("mem_mhz", "windows", "said"),
    [
        (None, [window(core=900.0)], "ran at 900 MHz"),
        (ONE_MEMORY, [window(core=1000.0, mem=400.0)], "memory clock: asked for 800 MHz"),
        (None, [window(before=(2000.0,), after=(2000.0,))], "a timed loop ran at 2000 MHz"),
        (None, [window(before=(500.0,), after=(510.0,))], "500 MHz before and 510 MHz after"),
        # What files repeat and the loop contradicts.
        (None, [window(core=1000.0, before=(2000.0,), after=(2000.0,))], "timed loop"),
        (None, [AT_1000, window(before=(2000.0,), after=(2000.0,))], "timed loop"),
        (None, [window(core=1000.0, apart_pct=30.0)], "30 % apart"),
    ],
)
def test_what_contradicts_a_clock_is_a_failure(mem_mhz, windows, said):
    asked = Setting(1000.0, 800.0 if mem_mhz else None)
    with pytest.raises(UnachievedClockError, match=said):
        prove(pretending_site([1000.0], mem_mhz), asked, windows)


@pytest.mark.parametrize(
    ("core", "edges", "apart_pct", "by"),
    [
        (800.0, ((810.0,), (790.0,)), 0.0, "read back"),
        (800.0, ((), ()), 30.0, "read back"),
        (None, ((810.0,), (790.0,)), 0.0, ""),
        (None, ((1000.0,), (1000.0,)), 0.0, "timed"),
    ],
)
def test_a_power_limit_may_lower_the_core_clock_of_each_device(core, edges, apart_pct, by):
    """Read back or timed: what the limit does is no failure, and a clock that only a loop shows
    to be lower is not shown."""
    one = window(core=core, before=edges[0], after=edges[1], apart_pct=apart_pct)
    one = replace(one, achieved=replace(one.achieved, power_limit_w=150.0))
    asked = Setting(1000.0, power_limit_w=150.0)
    proof = prove(pretending_site([1000.0]), asked, [one])
    assert (proof.by, bool(proof.missing)) == (by, by == "")
    with pytest.raises(UnachievedClockError, match="1500 MHz before"):
        prove(pretending_site([1000.0]), asked, [replace(one, timed_mhz=((1500.0,), (1500.0,)))])


def test_nothing_asked_is_nothing_missing():
    assert prove(pretending_site([1000.0]), AS_FOUND, [window(core=3.0)]) == ClockProof()


def test_timing_is_not_taken_closer_than_it_is():
    """A tolerance of 0 % is for clocks that are read; a reference clock may be 0.2 % off."""
    site = pretending_site([1000.0], pct=0.0)
    near = window(before=(998.0,), after=(998.0,))
    assert prove(site, Setting(1000.0), [near]).by == "timed"
    with pytest.raises(UnachievedClockError):
        prove(site, Setting(1000.0), [window(before=(990.0,), after=(990.0,))])
    assert clock_proof.TIMED_PCT < 1.0
