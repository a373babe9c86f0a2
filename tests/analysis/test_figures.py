"""Figures: every mark where its number says, read back through the axis; files that stand alone."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from analysis.choice.candidates import all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.fronts import pareto_front
from analysis.choice.pick import picks
from analysis.energy.breakdown import class_parts
from analysis.energy.fit import fit
from analysis.figures.energy_shares import (
    class_figure,
    count_figure,
    kind_figure,
    mean_at,
    phase_figure,
)
from analysis.figures.figure import Axis, Panel, Points, Scale, log_scale
from analysis.figures.labels import kernel_families, setting_label, shortened
from analysis.figures.paper import _drawing, figure_files, palette
from analysis.figures.predictions import case_figure, cases, error_figure, prediction_figure
from analysis.figures.rooflines import roofline_figure
from analysis.figures.svg import svg
from analysis.figures.trace import BINS, trace_figure
from analysis.figures.tradeoffs import greenup_figure, pareto_figure, savings_figure
from analysis.measurements.observations import kernel_names, measured_volts, observations
from analysis.measurements.power_trace import PowerTrace
from analysis.predict.site import site_time_noise
from analysis.report.sheets import (
    autotuning_sheet,
    costs_sheet,
    in_sample_losses_pct,
    shares_sheet,
    validation_sheet,
)
from analysis.report.site_figures import phases
from analysis.report.tables import Field, Sheet, as_csv, as_tex
from analysis.rooflines.roofline import fastest_setting, pair_points, roofline
from analysis.ties import equally_fast
from campaign.plan.campaign_file import read_campaign
from campaign.plan.plan import listed_inputs
from campaign.verbs.figures import run as figures
from dvfs.errors import ArgumentError
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.simulated_tk1 import simulated_columns
from tests.analysis.synthetic import numbered
from tests.analysis.test_report import store_of
from tests.docs.pages import ROOT

TABLE_I_852_924 = {
    "eps_sp_pj": 29.0,
    "eps_dp_pj": 139.1,
    "eps_int_pj": 60.0,
    "eps_shared_pj": 35.4,
    "eps_l2_pj": 90.2,
    "eps_dram_pj": 377.0,
    "const_power_w": 6.8,
}
"""Choi & Vuduc 2016, Table I, first row: the costs of the simulated machine."""


@pytest.fixture(scope="module")
def data():
    return observations(simulated_columns("default", per_family=4), "tk1")


@pytest.fixture(scope="module")
def model(data):
    return fit(data, "choi")


@pytest.fixture(scope="module")
def crossval(data):
    return cross_validate(data, "leave-one-setting-out", "choi")


@pytest.fixture(scope="module")
def families(data):
    return {kernel: kernel.split("-")[0] for kernel in kernel_names(data)}


@pytest.fixture(scope="module")
def setting(data):
    return fastest_setting(data)


@pytest.fixture(scope="module")
def pair(data, model, setting):
    points = next(p for p in pair_points(data, setting) if p.operation == "sp")
    return points, roofline(data, points.operation, points.memory, setting, model)


@pytest.fixture(scope="module")
def trace():
    """Ten watts, with one sample of twenty."""
    time_s = np.linspace(-0.1, 1.1, 2000)
    power_w = np.full(2000, 10.0)
    power_w[777] = 20.0
    return PowerTrace(
        kernel="k n=1",
        setting=Setting(852.0, 924.0),
        iterations=100,
        time_s=0.01,
        energy_j=0.1,
        windows_s=np.array([[0.0, 1.0]]),
        channels={"board": (time_s, power_w)},
    )


@pytest.fixture(scope="module")
def every(data, model, crossval, families, setting, pair, trace):
    """One figure of each kind."""
    names = kernel_names(data)
    shown = cases(data, crossval.predicted_j, families)
    return [
        roofline_figure(*pair, True, 12.0),
        prediction_figure(crossval, data),
        error_figure(crossval, data, families),
        case_figure(shown),
        class_figure(model, data, names, setting),
        kind_figure(model, data, shown),
        phase_figure(model, data, np.array([families[k] for k in data.labels]), "a code"),
        greenup_figure(pair[1], setting_label(pair[0].setting), True),
        pareto_figure(all_candidates(data, names[:3]), {}, True, len(names)),
        savings_figure(picks(data), families, "tk1", True),
        trace_figure(trace, "tk1", True),
    ]


def drawn(panel):
    return ET.fromstring(svg(panel))


def number(text):
    """What a tick says: ``1,000``, ``−5``, ``2·10⁶``."""
    plain = text.replace(",", "").replace("−", "-")
    power = re.fullmatch(r"(?:([\d.]+)·)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", plain)
    if power:
        exponent = power[2].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        return float(power[1] or 1) * 10.0 ** int(exponent)
    return float(plain)


def axis(image, horizontal, log):
    """A function from a pixel to its value, by the first and the last of an axis' own ticks."""
    lines = [p.get("d") for p in image.iter("path") if p.get("class") == "grid"]
    vertical = [float(d[1:].split(" ")[0]) for d in lines if "V" in d]
    level = [float(re.split("[ H]", d[1:])[1]) for d in lines if "H" in d]
    texts = list(image.iter("text"))
    if horizontal:
        said = [t.text for t in texts if t.get("class") == "mid"][: len(vertical)]
        at = vertical
    else:
        said = [t.text for t in texts if t.get("class") == "end"][: len(level)]
        at = level
    (a, b), (u, v) = (at[0], at[-1]), (number(said[0]), number(said[-1]))
    assert a != b

    def value(pixel):
        share = (pixel - a) / (b - a)
        return u * (v / u) ** share if log else u + share * (v - u)

    return value


def circles(image, name="dot"):
    return [
        (float(c.get("cx")), float(c.get("cy")))
        for c in image.iter("circle")
        if c.get("class") == name and c.find("title") is not None
    ]


@pytest.mark.parametrize(
    ("panel", "expected", "log"),
    [
        (0, lambda p: p.operations / p.time_s / 1e9, True),
        (1, lambda p: p.operations / p.energy_j / 1e9, True),
        (2, lambda p: p.energy_j / p.time_s, False),
    ],
)
def test_roofline_dots_read_back_as_the_measurements(pair, panel, expected, log):
    points, line = pair
    image = drawn(roofline_figure(points, line, True).panels[panel])
    x, y = axis(image, True, True), axis(image, False, log)
    marks = circles(image)
    assert len(marks) == len(points.kernels)
    np.testing.assert_allclose([x(a) for a, _ in marks], points.intensity, rtol=0.01)
    np.testing.assert_allclose([y(b) for _, b in marks], expected(points), rtol=0.015)


def test_a_cloud_of_many_points_has_a_dot_where_each_lies():
    rng = np.random.default_rng(5)
    x = rng.uniform(1.0, 9.0, 20_000)
    y = x * rng.normal(1.0, 0.02, x.size)
    image = str(svg(Panel("", Axis(low=0, high=10), Axis(low=0, high=10), [Points(x, y)], "")))
    frame = re.search(r'class="axis" d="M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)"', image)
    left, top, bottom, right = map(float, frame.groups())
    cloud = re.search(r'<path class="cloud dot" d="([^"]*)"', image)[1]
    dots = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", cloud), float)
    assert 1_000 < len(dots) < 10_000
    places = np.column_stack([left + x / 10 * (right - left), bottom - y / 10 * (bottom - top)])
    far, _ = cKDTree(dots).query(places, p=np.inf)
    assert far.max() <= 0.25 + 1e-9
    assert cKDTree(places).query(dots, p=np.inf)[0].max() <= 0.25 + 1e-9


def test_a_cap_is_a_ceiling_on_power(pair):
    points, line = pair
    image = drawn(roofline_figure(points, line, True, cap_w=12.0).panels[2])
    y = axis(image, False, False)
    # The first such path is the key of the legend.
    _, capped = (p.get("d") for p in image.iter("path") if p.get("class") == "line capped")
    heights = [y(float(pixel)) for pixel in re.findall(r"[ML][\d.]+ ([\d.]+)", capped)]
    assert max(heights) == pytest.approx(12.0, abs=0.1)
    assert min(heights) < 11.9
    free = roofline_figure(points, line, True)
    assert "capped" not in "".join(map(svg, free.panels))


def test_pareto_dots_read_back_as_time_and_energy(data):
    kernel = kernel_names(data)[0]
    among, chosen = all_candidates(data, [kernel])[kernel], picks(data, [kernel])
    image = drawn(pareto_figure({kernel: among}, {kernel: chosen[0]}, True, 1).panels[0])
    x, y = axis(image, True, True), axis(image, False, True)
    every = circles(image, "dot faint")
    mine = data.take(data.labels == kernel)
    assert len(every) == len(mine)
    np.testing.assert_allclose(sorted(x(a) for a, _ in every), sorted(mine.time_s), rtol=0.01)
    np.testing.assert_allclose(sorted(y(b) for _, b in every), sorted(mine.energy_j), rtol=0.01)
    ring = [c for c in image.iter("circle") if c.get("class") == "ring" and c.get("r") == "6"]
    assert x(float(ring[0].get("cx"))) == pytest.approx(chosen[0].time_s, rel=0.01)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(points):
    time_s, energy_j = np.array(points).T
    front = pareto_front(time_s, energy_j)
    unbeaten = {
        (t, e)
        for t, e in points
        if not any((a <= t and b <= e) and (a < t or b < e) for a, b in points)
    }
    assert {(time_s[k], energy_j[k]) for k in front} == unbeaten
    assert (np.diff(time_s[front]) > 0).all()
    assert (np.diff(energy_j[front]) < 0).all()


def test_greenup_dots_are_ratios_of_times_and_energies(pair):
    points, line = pair
    panels = greenup_figure(line, setting_label(points.setting), True).panels
    assert len(panels) == 3
    for panel in panels:
        image = drawn(panel)
        x, y = axis(image, True, True), axis(image, False, True)
        dots = [c for c in image.iter("circle") if c.find("title") is not None]
        assert dots
        for dot in dots:
            said = re.match(r"I = (\S+), f = (\S+), m = (\S+):", dot.find("title").text)
            i, f, m = map(float, said.groups())
            # W = i operations on Q = 1 byte, against f W on Q / m, by eqs. 3 and 4.
            cost = []
            for work, moved in ((i, 1.0), (f * i, 1.0 / m)):
                time_s = max(work * line.tau_op_s, moved * line.tau_mem_s)
                active_j = work * line.eps_op_j + moved * line.eps_mem_j
                cost.append((time_s, active_j + line.constant_w * time_s))
            assert x(float(dot.get("cx"))) == pytest.approx(cost[0][0] / cost[1][0], rel=0.02)
            assert y(float(dot.get("cy"))) == pytest.approx(cost[0][1] / cost[1][1], rel=0.02)


def rects(image, name):
    return [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height"))
        for r in image.iter("rect")
        if r.get("class") == name and r.find("title") is not None
    ]


def test_bars_of_shares_are_as_long_as_the_shares(data, model, setting):
    names = kernel_names(data)[:6]
    image = drawn(class_figure(model, data, names, setting).panels[0])
    x = axis(image, True, False)
    parts = class_parts(model, mean_at(data, names, setting))
    constant = parts.share[:, parts.names.index("constant")] * 100.0
    bars = rects(image, "k8")
    lengths = [x(left + width) - x(left) for left, _, width, _ in bars]
    np.testing.assert_allclose(lengths, constant, atol=0.05)
    # Constant power is the last part, so every bar ends at 100 %.
    np.testing.assert_allclose([x(left + width) for left, _, width, _ in bars], 100.0, atol=0.05)


def test_bars_of_cases_are_as_high_as_the_energies(data, crossval, families):
    shown = cases(data, crossval.predicted_j, families)
    assert shown.measured_j.shape == (8, 8)
    figure = case_figure(shown)
    for name, values in (("k0", shown.measured_j), ("k1", shown.predicted_j)):
        read = []
        for panel in figure.panels:
            image = drawn(panel)
            ticks = [number(t.text) for t in image.iter("text") if t.get("class") == "end"]
            log = not np.allclose(np.diff(ticks), ticks[1] - ticks[0])
            y = axis(image, False, log)
            read += [y(top) for _, top, _, _ in rects(image, name)]
        np.testing.assert_allclose(read, values.ravel(), rtol=0.03)
    kernel, place = shown.inputs[0], shown.settings[0]
    rows = (data.labels == kernel) & (data.setting == data.settings.index(place))
    assert shown.measured_j[0, 0] == pytest.approx(data.energy_j[rows].mean())
    assert shown.error_pct[0, 0] == pytest.approx(
        (crossval.predicted_j[rows].mean() / data.energy_j[rows].mean() - 1) * 100
    )


def test_cases_are_numbered_in_the_order_of_the_campaign_file(data, crossval, families):
    kernels = sorted(set(data.labels))[:8]
    few = np.isin(data.labels, kernels) & np.isin(data.setting, range(5))
    settings = [data.settings[s] for s in (3, 0, 4, 1, 2)]
    listed = (kernels[::-1], settings)
    shown = cases(data.take(few), crossval.predicted_j[few], families, listed)
    assert shown.inputs == kernels[::-1]
    assert shown.settings == settings
    row = (data.labels == kernels[-1]) & (data.setting == 3)
    assert shown.measured_j[0, 0] == pytest.approx(data.energy_j[row].mean())


def test_the_papers_study_lists_its_inputs_in_the_papers_order():
    """Choi & Vuduc 2016, Table IV: F1 to F8 as (N, Q)."""
    campaign, _ = read_campaign(ROOT / "examples/tk1-fmm.toml")
    inputs = [json.loads(params) for _, params in listed_inputs(campaign)]
    thousands = [(p["n"] // 1024, p["q"]) for p in inputs]
    assert thousands == [
        (256, 128), (128, 64), (128, 256), (128, 512), (64, 1024), (64, 512), (64, 128), (64, 64),
    ]  # fmt: skip


def test_errors_by_setting_read_back(data, crossval, families):
    image = drawn(error_figure(crossval, data, families).panels[0])
    x = axis(image, True, False)
    error = np.abs(crossval.predicted_j / data.energy_j - 1) * 100
    means = [error[data.setting == s].mean() for s in range(len(data.settings))][::-1]
    np.testing.assert_allclose([x(a) for a, _ in circles(image)], means, atol=0.05)


def test_counts_are_drawn_where_kernels_mix_classes(data, setting):
    assert count_figure(data, kernel_names(data), setting) is None
    counts = {name: np.nan_to_num(values) for name, values in data.counts.items()}
    counts["int"] = counts["int"] + counts["sp"]
    figure = count_figure(replace(data, counts=counts), ["sp-1"], setting)
    image = drawn(figure.panels[0])
    x = axis(image, True, False)
    for name in ("k1", "k3"):
        assert [x(a + w) - x(a) for a, _, w, _ in rects(image, name)] == pytest.approx([50.0], 1e-2)


def test_phases_are_read_from_the_kernels_parameters(data):
    instances = {
        "sp-1": KernelInstance("fmm", {"phase": "near", "n": 8}),
        "dp-1": KernelInstance("fmm", {"phase": "far", "n": 8}),
    }
    kernel = np.array([instances[k].label if k in instances else k for k in data.labels], object)
    named = {instance.label: instance for instance in instances.values()}
    ((title, rows, labels),) = phases(replace(data, **numbered(kernel), instances=named))
    assert title == "fmm n=8"
    assert set(labels) == {"near", "far"}
    assert set(data.labels[rows]) == {"sp-1", "dp-1"}


def test_the_savings_are_the_medians_of_the_picks(data, families):
    chosen = picks(data)
    figure = savings_figure(chosen, families, "tk1", True)
    for panel, attribute, style in zip(
        figure.panels, ("saving_pct", "slowdown_pct"), ("k2", "k1"), strict=True
    ):
        image = drawn(panel)
        x = axis(image, True, False)
        named = [t.text for t in image.iter("text") if t.get("class") == "end small"]
        values = {
            name: [getattr(p, attribute) for p in chosen if families[p.label] == name]
            for name in named
        }
        assert set(named) == set(families.values())
        lengths = {}
        for rect in image.iter("rect"):
            if rect.get("class") == style and rect.find("title") is not None:
                left, width = float(rect.get("x")), float(rect.get("width"))
                lengths[rect.find("title").text.split(":")[0]] = x(left + width) - x(left)
        medians = {name: np.median(v) for name, v in values.items() if np.median(v)}
        assert lengths == pytest.approx(medians, abs=0.3)


def test_a_trace_keeps_its_peaks_and_marks_its_window(trace):
    (panel,) = trace_figure(trace, "tk1", True).panels
    band, line = panel.series
    assert (band.start, band.end) == (0.0, 1.0)
    assert len(line.x) <= 2 * BINS
    assert line.y.max() == 20.0
    assert line.x[np.argmax(line.y)] == trace.channels["board"][0][777]
    image = drawn(panel)
    x = axis(image, True, False)
    left, _, width, _ = next(
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height"))
        for r in image.iter("rect")
        if r.get("class") == "window" and float(r.get("width")) > 20
    )
    assert (x(left), x(left + width)) == pytest.approx((0.0, 1.0), abs=0.005)


def test_files_for_a_paper_draw_the_same_values(pair, data, crossval, families):
    points, line = pair
    axes = _drawing(roofline_figure(points, line, True), True).axes
    for one, values in zip(
        axes,
        (
            points.operations / points.time_s / 1e9,
            points.operations / points.energy_j / 1e9,
            points.energy_j / points.time_s,
        ),
        strict=True,
    ):
        dots = next(artist for artist in one.lines if artist.get_marker() == "o")
        np.testing.assert_array_equal(dots.get_xdata(), points.intensity)
        np.testing.assert_array_equal(dots.get_ydata(), values)
    shown = cases(data, crossval.predicted_j, families)
    bars = [patch for one in _drawing(case_figure(shown), True).axes for patch in one.patches]
    tops = sorted(bar.get_y() + bar.get_height() for bar in bars)
    both = [*shown.measured_j.ravel(), *shown.predicted_j.ravel()]
    np.testing.assert_allclose(tops, sorted(both))


def test_files_for_a_paper_stand_alone_and_are_always_the_same(every):
    written = [figure_files(figure, True, ("svg", "pdf", "png")) for figure in every]
    for figure, files in zip(every, written, strict=True):
        root = ET.fromstring(files["svg"].decode())
        for element in root.iter():
            for name, value in element.attrib.items():
                if name.rpartition("}")[2] in ("href", "src"):
                    assert value.startswith("#")
                assert "url(" not in value.replace("url(#", "")
        assert float(root.get("width").removesuffix("pt")) <= 516.1
        texts = "".join(root.itertext())
        assert "simulated" in texts
        assert all(panel.title in texts for panel in figure.panels)
        pdf = files["pdf"]
        assert pdf.startswith(b"%PDF")
        assert len(re.findall(rb"/Type /Page\b", pdf)) == 1
        assert b"/FontFile2" in pdf
        assert b"Helvetica" not in pdf
        assert files["png"].startswith(b"\x89PNG")
    assert figure_files(every[0], True, ("svg", "pdf", "png")) == written[0]
    real = ET.fromstring(figure_files(every[0], False, ("svg",))["svg"].decode())
    assert "simulated" not in "".join(real.itertext())


def test_the_palette_is_okabe_and_itos():
    fills = {palette()[f"k{n}"] for n in (0, 1, 2, 4, 5, 6)}
    assert fills == {"#56b4e9", "#e69f00", "#009e73", "#0072b2", "#d55e00", "#cc79a7"}


def test_costs_are_table_i():
    data = observations(simulated_columns("off", per_family=2), "tk1")
    model = fit(data, "choi")
    holdout = cross_validate(
        data, "holdout", "choi", train=[Setting(852.0, 924.0), Setting(396.0, 204.0)]
    )
    sheet = costs_sheet(model, data, [holdout])
    rows = list(csv.DictReader(io.StringIO(as_csv(sheet))))
    assert len(rows) == 16
    row = next(r for r in rows if (r["core_mhz"], r["mem_mhz"]) == ("852", "924"))
    assert (row["core_mv"], row["mem_mv"], row["type"]) == ("1030", "1010", "T")
    assert sum(r["type"] == "V" for r in rows) == 14
    for key, paper in TABLE_I_852_924.items():
        assert float(row[key]) == pytest.approx(paper, rel=0.01), key
    low, high = float(row["const_power_low_w"]), float(row["const_power_high_w"])
    assert low <= float(row["const_power_w"]) <= high
    assert row["simulated"] == "true"


def test_an_operation_costs_its_coefficient_times_the_voltage_squared():
    exact = observations(simulated_columns("off", per_family=2), "tk1")
    noise = np.random.default_rng(5).normal(1.0, 0.03, len(exact))
    noisy = replace(exact, energy_j=exact.energy_j * noise)
    model = fit(noisy, "choi")
    pj = {term.of: value for term, value in zip(model.terms, model.value, strict=True)}
    for row in csv.DictReader(io.StringIO(as_csv(costs_sheet(model, noisy)))):
        for name, domain in (("dp", "core"), ("sp", "core"), ("dram", "mem")):
            volts = float(row[f"{domain}_mv"]) / 1e3
            assert float(row[f"eps_{name}_pj"]) == pytest.approx(pj[name] * volts**2, rel=1e-4)


def test_losses_by_family_are_table_ii(data, crossval, families):
    sheet = autotuning_sheet(crossval, families)
    assert [f.key for f in sheet.fields] == [
        "family",
        "chooser",
        "mispredictions",
        "cases",
        "mean_lost_pct",
        "min_lost_pct",
        "max_lost_pct",
    ]  # as the paper's numbers are kept: one name a column
    noise = site_time_noise(data, measured_volts(data))
    for family, chooser, missed, n, mean, low, high in sheet.rows:
        lost = []
        for kernel in (k for k in kernel_names(data) if families[k] == family):
            mine = np.flatnonzero(data.labels == kernel)
            if chooser == "time oracle":  # of the equally fast ones, the highest clocks
                error_s = data.time_s[mine] * noise[kernel]
                fast = mine[equally_fast(data.time_s[mine], error_s)]
                chosen = max(fast, key=lambda row: data.settings[data.setting[row]])
            else:
                chosen = mine[np.argmin(crossval.predicted_j[mine])]
            lost.append((data.energy_j[chosen] / data.energy_j[mine].min() - 1) * 100)
        wrong = [v for v in lost if v > 0]
        assert (missed, n) == (len(wrong), len(lost))
        if wrong:
            assert (mean, low, high) == pytest.approx((np.mean(wrong), min(wrong), max(wrong)))
        else:
            assert mean == low == high == 0.0


def test_the_picks_in_sample_are_those_of_one_fit_of_all(data, crossval, families):
    model = fit(data, "choi")
    lost = in_sample_losses_pct(model, data)
    frame = pd.DataFrame(
        {
            "kernel": data.labels,
            "setting": data.setting,
            "measured": data.energy_j,
            "predicted": model.energy_j(data),
        }
    )
    for kernel, own in frame.groupby("kernel"):
        means = own.groupby("setting")[["measured", "predicted"]].mean()
        at_pick = means["measured"][means["predicted"].idxmin()]
        assert lost[kernel] == pytest.approx((at_pick / means["measured"].min() - 1) * 100)
    sheet = autotuning_sheet(crossval, families, lost)
    choosers = [row[1] for row in sheet.rows[:3]]
    assert choosers == ["model, out of fold", "model, in sample", "time oracle"]
    in_sample = [row for row in sheet.rows if row[1] == "model, in sample"]
    assert sum(row[2] for row in in_sample) == sum(pct > 0 for pct in lost.values())


def test_tables_say_the_validation(crossval, data):
    (row,) = validation_sheet([crossval]).rows
    error = np.abs(crossval.predicted_j / data.energy_j - 1) * 100
    assert row[3:] == pytest.approx(
        [len(data), error.mean(), error.std(ddof=1), error.min(), error.max()]
    )


def test_shares_in_the_table_sum_to_all(data, model):
    sheet = shares_sheet(model, data)
    parts = [i for i, f in enumerate(sheet.fields) if f.unit == "%"]
    assert np.sum([[row[i] for i in parts] for row in sheet.rows], axis=1) == pytest.approx(100.0)


def test_tex_is_a_booktabs_tabular():
    sheet = Sheet(
        "s",
        "A caption",
        True,
        [Field("kernel", "kernel & more"), Field("power_w", "power", "%", 2)],
        [["a_b #1", 1234.5], ["c", math.nan], ["d", -0.5]],
    )
    lines = as_tex(sheet).splitlines()
    assert lines[0].startswith("% A caption (simulated)")
    assert lines[1] == r"\begin{tabular}{lr}"
    assert lines[3] == r"kernel \& more & power (\%) \\"
    assert lines[5:8] == [r"a\_b \#1 & 1,234.50 \\", r"c & -- \\", r"d & $-$0.50 \\"]
    assert [line for line in lines if line.endswith("rule")] == [
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
    ]
    assert "Simulated data." in lines[-2]
    assert as_csv(sheet).splitlines() == [
        "kernel,power_w,simulated",
        "a_b #1,1234.5,true",
        "c,,true",
        "d,-0.5,true",
    ]


def test_long_names_are_cut_and_families_are_kernels_names():
    assert shortened("abcdefghij", 5) == "abcd…"
    kernels = [KernelInstance("double", {"level": level}) for level in ("dram", "l2")]
    assert set(kernel_families(kernels).values()) == {"double"}


@example(15.346396661232232, 1.0136331778000593, False, 0.5)
@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e4), st.booleans(), st.floats(0, 1))
def test_scales_invert(low, ratio, log, share):
    scale = Scale(low, low * ratio, log)
    value = low * ratio**share if log else low + share * low * (ratio - 1)
    assert scale.at(value) == pytest.approx(share, abs=1e-6)
    assert scale.holds(value)
    assert scale.clipped(low * ratio * 2) == pytest.approx(1.0)
    assert len(log_scale([low, low * ratio]).ticks()) >= 2


def test_the_verb_writes_every_file_and_says_so(tmp_path, capsys):
    store_of(tmp_path / "s", "lab", True, (500.0, 700.0, 900.0, 1000.0))
    asked = Namespace(
        store=str(tmp_path / "s"),
        site="lab",
        output=str(tmp_path / "out"),
        cap_w=None,
        train=["500,900", "700,900"],
        setting="700,900",
        kernel=None,
        fitted_on=None,
        platform=None,
        format=None,
        fit="default",
    )
    assert figures(asked) == 0
    said = capsys.readouterr().out.split("\n")[:-1]
    written = sorted(str(path) for path in (tmp_path / "out").iterdir())
    assert sorted(said) == written
    stems = {
        ending: {p[: -len(ending)] for p in written if p.endswith(ending)}
        for ending in (".svg", ".pdf", ".png", ".csv", ".tex")
    }
    assert stems[".svg"] == stems[".pdf"] == stems[".png"]
    assert stems[".csv"] == stems[".tex"]
    assert len(stems[".svg"]) >= 7
    assert len(stems[".csv"]) >= 6
    assert not any(
        "simulated" in (tmp_path / "out" / p).read_text()
        for p in written
        if p.endswith((".svg", ".tex"))
    )


def test_a_site_without_energies_has_nothing_to_fit(tmp_path, capsys):
    store_of(tmp_path / "s", "bare", False, (1000.0,))
    asked = Namespace(store=str(tmp_path / "s"), site=None, output=str(tmp_path), cap_w=None)
    asked.train = asked.setting = asked.platform = asked.format = None
    asked.kernel = asked.fitted_on = None
    asked.fit = "default"
    assert figures(asked) == 0
    assert "no energy model" in capsys.readouterr().out
    asked.output = str(tmp_path / "s" / "store.json")
    with pytest.raises(ArgumentError, match="cannot be written"):
        figures(asked)


def test_without_matplotlib_the_message_says_what_to_install(tmp_path):
    store_of(tmp_path / "s", "lab", True, (500.0, 700.0, 900.0, 1000.0))
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from campaign.verbs.command_line import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code]
    asked = subprocess.run(
        [*command, "figures", str(tmp_path / "s"), "-o", str(tmp_path / "f")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 2
    assert asked.stderr.endswith(
        "drawing figures for a paper needs matplotlib: pip install 'dvfs-campaign[figures]'\n"
    )
    page = [*command, "report", str(tmp_path / "s"), "-o", str(tmp_path / "r.html")]
    assert subprocess.run(page, check=False).returncode == 0
