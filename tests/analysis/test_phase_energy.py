"""Measured energy by phase: from the marks in a store to the report's section and the files."""

from __future__ import annotations

import csv
import math
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from analysis.figures.energy_shares import measured_phase_figures
from analysis.measurements.observations import FitError
from analysis.measurements.phase_energy import PhaseSplit, phase_energy, phase_splits
from analysis.report.content import SiteReport
from analysis.report.page import render
from campaign.results.report import report_content
from campaign.store.layout import Store
from campaign.store.measurement import Measurement, Trace
from campaign.store.tables import read_traces
from campaign.verbs.figures import run as figures
from campaign.verbs.report import run as report
from dvfs.dataset import PHASE_PREFIX, TIMED_OUT
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.test_report import Page, content, measured, store_of
from tests.frames import trace_columns
from tests.points import a_point
from tests.stores import stored

SITE, NAN = "lab", math.nan
ITERATIONS = 40
MARKED = 10
POWER_W = {
    (500.0, 900.0): {"near": 10.0, "far": 6.0},
    (800.0, 900.0): {"near": 16.0, "far": 8.0},
    (1000.0, 900.0): {"near": 40.0, "far": 12.0},
}
"""Setting -> watts of the package in each phase: the second takes the least energy."""
SECONDS = {"near": 30.0, "far": 10.0}
"""Seconds of each phase at 1 MHz; at 500 MHz near takes 0.06 s."""
REPEAT_GAIN = (0.98, 1.02)


def length_s(phase: str, core_mhz: float) -> float:
    return SECONDS[phase] / core_mhz


def joules(setting: tuple[float, float]) -> dict[str, float]:
    """Package joules of one iteration by phase."""
    return {name: w * length_s(name, setting[0]) for name, w in POWER_W[setting].items()}


def measurement(setting: tuple[float, float], repeat: int, counted: bool = True) -> Measurement:
    """Two counters, the core's inside the package's, and marks of the first ten iterations.

    ``counted``: whether it is said that the package's energy is the measurement's.
    """
    point = a_point(
        "k",
        site=SITE,
        label="solver",
        params='{"n": 8, "q": 4}',
        setting=Setting(*setting),
        repeat=repeat,
    )
    spent, gain = joules(setting), REPEAT_GAIN[repeat]
    one_s = sum(length_s(name, setting[0]) for name in spent)
    near_s = length_s("near", setting[0])
    edge_s = np.array([i * one_s + at for i in range(ITERATIONS) for at in (0.0, near_s)])
    edge_s = np.append(edge_s, ITERATIONS * one_s)
    steps_j = np.tile([spent["near"], spent["far"]], ITERATIONS) * gain
    package_j = np.concatenate([[0.0], np.cumsum(steps_j)])
    time_ns = np.rint(edge_s * 1e9).astype(np.int64)
    marks = {
        "near": time_ns[: 2 * MARKED],
        "far": time_ns[1 : 2 * MARKED + 1],
    }
    whole_j = sum(spent.values()) * gain
    meters = {
        "rapl:core": {
            "domain": "core",
            "kind": "energy",
            "period_s": 1e-3,
            "energy_j": whole_j / 4,
            "counts": False,
        },
        "rapl:package": {
            "domain": "package",
            "kind": "energy",
            "period_s": 1e-3,
            "energy_j": whole_j,
            "counts": counted,
        },
    }
    one = np.tile(np.array([1, 0], np.float32), MARKED)
    return Measurement(
        point=point,
        status="ok",
        node="n1",
        time_s=one_s,
        iterations=ITERATIONS,
        energy_j=whole_j,
        core_v=0.8 + setting[0] / 5000,
        mem_v=1.0,
        voltage_origin="table",
        counts={"dp": 1e6, "dram": 1e5},
        meters=meters,
        provenance={"simulated": False},
        traces=(
            Trace("rapl:core", "core", "J", time_ns, package_j / 4),
            Trace("rapl:package", "package", "J", time_ns, package_j),
            *(Trace(PHASE_PREFIX + name, "", "1", at, one) for name, at in marks.items()),
        ),
    )


def marked_store(folder: Path) -> Store:
    """A store with a kernel that marks its phases at three settings, twice each."""
    made = [
        # What is neither the fastest nor the least must not be looked at.
        measurement(setting, repeat, counted=setting != (500.0, 900.0))
        for setting in POWER_W
        for repeat in range(len(REPEAT_GAIN))
    ]
    return stored(folder, *made, compacted=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return marked_store(tmp_path_factory.mktemp("phases") / "s")


def test_joules_of_an_iteration_are_those_that_the_counter_saw(store: Store) -> None:
    """In closed form, of the package alone, though the core's counter was read as well."""
    splits, notes = phase_splits(read_traces(store), SITE)
    assert notes == []
    assert [(s.at, *s.setting.clocks) for s in splits] == [
        ("fastest", 1000.0, 900.0),
        ("least energy", 800.0, 900.0),
    ]
    for split in splits:
        assert (split.kernel, split.params) == ("solver", {"n": 8, "q": 4})
        assert split.label == "solver n=8 q=4"
        assert (split.phases, split.repeats, split.period_s) == (["near", "far"], 2, 1e-3)
        expected = joules(split.setting.clocks)
        assert split.energy_j == pytest.approx(list(expected.values()), rel=1e-6)
        lengths = [length_s(name, split.setting.core_mhz) for name in split.phases]
        assert split.time_s == pytest.approx(lengths, rel=1e-6)
        assert split.share == pytest.approx(split.energy_j / sum(expected.values()), rel=1e-6)


def test_one_setting_is_both_and_a_site_without_marks_has_none(tmp_path: Path) -> None:
    dataset = kept(tmp_path, measurement((1000.0, 900.0), 0))
    (split,) = phase_splits(dataset, SITE)[0]
    assert split.at == "fastest and least energy"
    assert split.repeats == 1
    assert phase_splits(dataset, "elsewhere") == ([], [])


def test_runs_with_other_ranks_are_no_repeats(store: Store) -> None:
    dataset = read_traces(store)
    ranks = np.where(dataset["repeat"] == 0, 1, 4)
    splits, (note,) = phase_splits(dataset.replaced({"ranks": ranks}), SITE)
    assert splits == []
    assert note.startswith(
        "No energy by phase: solver n=8 q=4 was measured with 1 and with 4 ranks"
    )


def test_an_energy_that_no_channels_make_up_is_said_and_not_guessed(tmp_path: Path) -> None:
    dataset = kept(tmp_path, measurement((1000.0, 900.0), 0, counted=False))
    splits, notes = phase_splits(dataset, SITE)
    assert splits == []
    assert len(notes) == 1
    assert "solver n=8 q=4: no energy by phase: no channel is marked as part" in notes[0]


def test_marks_that_are_not_compacted_yet_are_left_out(tmp_path: Path) -> None:
    """They are in the journal alone; the report then has no such section, and does not fail."""
    store = stored(tmp_path / "s", measurement((1000.0, 900.0), 0))
    assert report_content(store).sites[0].phases == []
    assert phase_splits(read_traces(store), SITE) == ([], [])


def test_the_report_has_the_section_where_phases_are_marked(store: Store, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    assert (
        report(Namespace(store=str(store.root), output=str(output), fit="default", json=False)) == 0
    )
    page = Page(output.read_text(encoding="utf-8"))
    assert "Energy by phase" in page.parts["h3"]
    assert "Measured energy by phase" in page.parts["caption"]
    assert "simulated" not in page.text.lower()
    labels = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
    assert sum("of solver by phase" in str(label) for label in labels) == 2
    near_j, far_j = joules((1000.0, 900.0)).values()
    shown = f"near{near_j:.2f}{near_j / (near_j + far_j) * 100:.1f}"
    assert shown in "".join(page.text.split())
    assert "solver n=8 q=4: fastest, 1000/900 MHz" in page.text
    assert "solver n=8 q=4: least energy, 800/900 MHz" in page.text


def test_a_store_without_marks_has_no_such_section(tmp_path: Path) -> None:
    store_of(tmp_path / "s", "plain", True, (500.0, 700.0, 900.0, 1000.0))
    output = tmp_path / "report.html"
    assert (
        report(Namespace(store=str(tmp_path / "s"), output=str(output), fit="default", json=False))
        == 0
    )
    assert "by phase" not in output.read_text(encoding="utf-8")


def test_the_files_hold_the_same_numbers(store: Store, tmp_path: Path) -> None:
    asked = Namespace(
        store=str(store.root), site=None, output=str(tmp_path), cap_w=None, platform=None
    )
    asked.train = asked.setting = asked.format = asked.kernel = asked.fitted_on = None
    asked.fit = "default"
    assert figures(asked) == 0
    with (tmp_path / "phase_energy.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(r["at"], r["phase"], r["simulated"]) for r in rows] == [
        (at, phase, "false") for at in ("fastest", "least energy") for phase in ("near", "far")
    ]
    expected = [j for mhz in (1000.0, 800.0) for j in joules((mhz, 900.0)).values()]
    assert [float(r["energy_j"]) for r in rows] == pytest.approx(expected, rel=1e-6)
    watts = [w for mhz in (1000.0, 800.0) for w in POWER_W[mhz, 900.0].values()]
    assert [float(r["power_w"]) for r in rows] == pytest.approx(watts, rel=1e-6)
    for ending in ("svg", "pdf", "png"):
        assert (tmp_path / f"phase_energy_solver.{ending}").stat().st_size > 1000
    assert (tmp_path / "phase_energy.tex").exists()
    (site,) = report_content(store).sites
    (figure,) = measured_phase_figures(site.phases, site.site, site.simulated)
    (near, far), shares = (panel.series for panel in figure.panels)
    # A bar a setting: near from 0, far from where near ends.
    lengths_j = [
        value for pair in zip(near.end, far.end - far.start, strict=True) for value in pair
    ]
    assert lengths_j == pytest.approx(expected, rel=1e-6)
    assert (near.start == 0).all() and (far.start == near.end).all()
    assert shares[-1].end == pytest.approx(100.0)
    assert near.texts[0].startswith("solver n=8 q=4 at=1000/900: near ")


def test_simulated_phases_say_so() -> None:
    split = PhaseSplit(
        **KernelInstance("fmm", {"n": 8}).as_dict(),
        at="fastest",
        setting=Setting(852.0, 924.0),
        phases=["up", "u"],
        energy_j=np.array([1.0, 3.0]),
        time_s=np.array([0.1, 0.2]),
        repeats=1,
        period_s=1e-3,
    )
    site = SiteReport(
        site="tk1",
        simulated=True,
        measured=measured(1),
        why_no_fit="no fit here",
        phases=[split],
    )
    page = Page(render(content(site)))
    for part, words in (
        ("h3", "Energy by phase"),
        ("caption", "Measured energy by phase"),
        ("figcaption", "by phase"),
    ):
        mine = [text for text in page.parts[part] if words in text]
        assert mine and all("simulated" in text for text in mine), part
    labels = [str(attrs["aria-label"]) for tag, attrs in page.tags if tag == "svg"]
    assert len(labels) == 2
    assert all("tk1, simulated" in label for label in labels)
    real = replace(site, simulated=False)
    assert "simulated" not in render(content(real)).lower()


def test_phases_without_energy_have_no_share() -> None:
    split = PhaseSplit(
        **KernelInstance("k").as_dict(),
        at="fastest",
        setting=Setting(1.0, 1.0),
        phases=["a"],
        energy_j=np.zeros(1),
        time_s=np.zeros(1),
        repeats=1,
        period_s=1e-3,
    )
    assert np.isnan(split.share).all()
    site = SiteReport(
        site="s", simulated=False, measured=measured(1), why_no_fit="no fit here", phases=[split]
    )
    assert "Energy by phase" in render(content(site))


def test_a_clock_that_was_left_as_found_is_unknown(tmp_path: Path) -> None:
    one = measurement((1000.0, 900.0), 0)
    found = replace(one, point=replace(one.point, setting=Setting(1000.0, None)))
    (split,) = phase_splits(kept(tmp_path, found), SITE)[0]
    assert split.setting == Setting(1000.0)


def kept(folder: Path, *measurements: Measurement) -> xr.Dataset:
    return read_traces(stored(folder / "s", *measurements, compacted=True))


def test_a_channel_of_the_energy_without_a_trace_is_named(tmp_path: Path) -> None:
    one = measurement((1000.0, 900.0), 0)
    lost = tuple(trace for trace in one.traces if trace.channel != "rapl:package")
    splits, notes = phase_splits(kept(tmp_path, replace(one, traces=lost)), SITE)
    assert splits == []
    assert notes == ["solver n=8 q=4: no trace of rapl:package is kept in measurement 0."]


@pytest.mark.parametrize("missing", [{"energy_j": NAN}, {"time_s": NAN}, {"status": TIMED_OUT}])
def test_what_has_no_energy_or_time_is_neither_the_fastest_nor_the_least(
    tmp_path: Path, missing: dict[str, Any]
) -> None:
    made = [measurement(setting, 0) for setting in POWER_W]
    splits, notes = phase_splits(kept(tmp_path, replace(made[0], **missing), *made[1:]), SITE)
    assert [(split.at, split.setting.core_mhz) for split in splits] == [
        ("fastest", 1000.0), ("least energy", 800.0),
    ]  # fmt: skip
    assert notes == []


def test_repeats_that_mark_different_phases_are_not_averaged(tmp_path: Path) -> None:
    first, second = (measurement((1000.0, 900.0), repeat) for repeat in (0, 1))
    renamed = tuple(
        replace(trace, channel=PHASE_PREFIX + "away") if trace.channel.endswith("far") else trace
        for trace in second.traces
    )
    splits, notes = phase_splits(kept(tmp_path, first, replace(second, traces=renamed)), SITE)
    assert splits == []
    assert notes == ["solver n=8 q=4: its repeats at 1000/900 MHz mark different phases."]


@pytest.mark.parametrize(
    ("left", "said"), [("rapl", "no phases are marked"), (PHASE_PREFIX, "no meter was read")]
)
def test_a_measurement_without_phases_or_without_a_meter_has_no_energy_by_phase(
    tmp_path: Path, left: str, said: str
) -> None:
    one = measurement((1000.0, 900.0), 0)
    traces = tuple(trace for trace in one.traces if trace.channel.startswith(left))
    dataset = kept(tmp_path, replace(one, traces=traces))
    with pytest.raises(FitError, match=f"no energy by phase of measurement 0: {said}"):
        phase_energy(dataset, 0)
    with pytest.raises(FitError, match="of measurement 1: no phases are marked"):
        phase_energy(dataset, 1)


POWER_SAMPLES = [(0.0, 10.0), (1.0, 30.0), (3.0, 30.0), (4.0, 0.0), (8.0, 40.0)]
"""Seconds and watts, straight between them."""


def exact_j(begin_s: float, end_s: float) -> float:
    """The area below the straight lines, by a midpoint rule whose steps end at each corner."""
    edge_s = np.linspace(begin_s, end_s, 8001)
    middle_s = (edge_s[1:] + edge_s[:-1]) / 2
    return float(np.interp(middle_s, *zip(*POWER_SAMPLES, strict=True)) @ np.diff(edge_s))


def test_a_power_is_integrated_over_each_phase_wherever_its_samples_lie() -> None:
    """In two windows; a phase may begin before the first sample. The traces stand apart in the
    store, with samples of another measurement between them."""
    near_s, far_s = [(-0.5, 0.5), (5.0, 6.5)], [(0.5, 3.25), (6.5, 8.0)]
    traces = [
        ("board", "W", POWER_SAMPLES),
        (PHASE_PREFIX + "near", "1", [(at, 1.0) for span in near_s for at in span]),
        (PHASE_PREFIX + "far", "1", [(at, 1.0) for span in far_s for at in span]),
        ("window", "1", [(-1.0, 1.0), (4.5, 0.0), (4.5, 1.0), (9.0, 0.0)]),
    ]
    kept = []
    for channel, unit, samples in traces:
        for measurement, own in ((3, samples), (1, [(0.25, 1e9)] * 3)):
            time_s, value = zip(*own, strict=True)
            kept.append((measurement, channel, unit, np.rint(np.array(time_s) * 1e9), value))
    dataset = trace_columns(kept)
    split = phase_energy(dataset, 3)
    assert split.phases == ["near", "far"]
    expected = [exact_j(0.0, 0.5) + exact_j(5.0, 6.5), exact_j(0.5, 3.25) + exact_j(6.5, 8.0)]
    np.testing.assert_allclose(split.energy_j["board"], expected, rtol=1e-6)
    assert split.time_s.tolist() == [2.5, 4.25]
    # From -0.5 to 3.25 s in the first window, and from 5 to 8 s in the second.
    assert split.marked_s == 3.75 + 3.0
