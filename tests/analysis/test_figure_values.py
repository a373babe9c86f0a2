"""What figures draw of a few measurements that can be worked out by hand: places, ends, texts."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.energy.fit import fit
from analysis.figures.energy_shares import (
    count_figure,
    instruction_data_figure,
    kind_figure,
    mean_at,
    part_styles,
    shown_kernels,
    stacked_panel,
)
from analysis.figures.figure import Axis
from analysis.figures.predictions import (
    Cases,
    case_figure,
    cases,
    error_figure,
    error_histogram,
    foremost,
    prediction_figure,
)
from analysis.measurements.observations import Observations
from analysis.report.sheets import cases_sheet
from analysis.report.tables import as_tex
from dvfs.setting import Setting, clock_columns
from tests.analysis.synthetic import grid_observations, numbered

NAN = math.nan


def measured(rows, counts=None, simulated=False) -> Observations:
    """Rows of (kernel, setting's number, time, energy); settings 500/800 and 1000/800 MHz."""
    kernel, setting, time_s, energy_j = zip(*rows, strict=True)
    settings = [Setting(500.0, 800.0), Setting(1000.0, 800.0)]
    core_mhz, mem_mhz = clock_columns(settings)[list(setting)].T
    counts = {name: np.array(n, float) for name, n in (counts or {}).items()}
    return Observations(
        site="lab",
        simulated=simulated,
        **numbered(kernel),
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=np.ones(len(rows)),
        mem_v=np.ones(len(rows)),
        time_s=np.array(time_s, float),
        energy_j=np.array(energy_j, float),
        counts=counts,
        domains={name: "mem" if name == "dram" else "core" for name in counts},
        voltage="unit",
        setting=np.array(setting, np.int64),
        settings=settings,
    )


ROWS = [
    ("a", 0, 1.0, 10.0), ("a", 0, 3.0, 30.0), ("a", 1, 1.0, 40.0),
    ("b", 0, 5.0, 50.0), ("b", 1, 2.0, 80.0), ("c", 1, 1.0, 8.0),
]  # fmt: skip
FAMILIES = {"a": "one", "b": "one", "c": "two"}
SHORT = {"a": "a", "b": "b", "c": "c"}
PREDICTED_J = np.array([11.0, 33.0, 36.0, 50.0, 100.0, NAN])


def judged(simulated=False):
    return SimpleNamespace(
        site="lab", scheme="leave:one", simulated=simulated, predicted_j=PREDICTED_J
    )


@pytest.mark.parametrize("simulated", [False, True])
def test_predictions_are_drawn_against_measurements(simulated):
    figure = prediction_figure(judged(simulated), measured(ROWS))
    scatter, histogram = figure.panels
    line, points = scatter.series
    np.testing.assert_array_equal(points.x, [10.0, 30.0, 40.0, 50.0, 80.0])
    np.testing.assert_array_equal(points.y, PREDICTED_J[:5])
    # From 10 to 100, with 4 % of its length as room on both sides.
    limits = [10.0**0.96, 10.0**2.04]
    np.testing.assert_allclose([line.x, line.y], [limits, limits])
    for axis in (scatter.x, scatter.y):
        assert [axis.low, axis.high] == pytest.approx(limits)
        assert axis.log
    assert (line.style, line.label, points.style) == ("model", "predicted = measured", "dot")
    where = "lab, leave:one, simulated" if simulated else "lab, leave:one"
    assert scatter.description == (
        f"Predicted against measured energy, {where}: 5 predictions out of fold"
    )
    assert (scatter.title, scatter.x.label) == ("Predicted energy, J", "measured energy, J")
    assert figure.name == "predictions_leave_one"
    # Errors of 10, 10, -10, 0 and 25 %, in steps of 2 %.
    bars, zero = histogram.series
    assert (histogram.x.low, histogram.x.high) == (-26.0, 26.0)
    assert dict(zip(bars.at.tolist(), bars.end.tolist(), strict=True)) == {
        at: {-9.0: 1, 1.0: 1, 11.0: 2, 25.0: 1}.get(at, 0) for at in np.arange(-25.0, 26.0, 2.0)
    }
    assert (zero.at, zero.style, zero.vertical) == (0.0, "axis", True)
    assert histogram.description == f"Histogram of the relative error of predicted energy, {where}"


def test_what_is_predicted_below_zero_has_no_place_on_a_logarithmic_axis():
    model = SimpleNamespace(
        **(vars(judged()) | {"predicted_j": np.array([-1.0, 0.0, 40, 50, 80, 8])})
    )
    scatter, histogram = prediction_figure(model, measured(ROWS)).panels
    np.testing.assert_array_equal(scatter.series[1].x, [40.0, 50.0, 80.0, 8.0])
    assert histogram.series[0].end.sum() == 6


@pytest.mark.parametrize(
    ("error_pct", "width", "reach"),
    [
        ([0.001], 0.01, 0.1), ([0.24], 0.01, 0.24), ([0.241], 0.02, 0.26), ([-2.0, 1.0], 0.1, 2.0),
        ([1200.0], 50.0, 1200.0), ([-1300.0], 1300.0, 1300.0),
        *(([23.5 * step], step, 24 * step) for step in (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)),
    ],
)  # fmt: skip
def test_a_histogram_has_at_most_48_round_steps(error_pct, width, reach):
    drawn = error_histogram(np.array(error_pct), "x")
    (bars, _) = drawn.series
    assert drawn.title == f"Predictions by error, count in {width:g} %"
    assert (drawn.x.low, drawn.x.high) == pytest.approx((-reach, reach))
    assert len(bars.at) == round(2 * reach / width) <= 48
    assert bars.width == pytest.approx(0.94 * width)
    assert bars.at[0] == pytest.approx(-reach + width / 2)
    assert (bars.start == 0).all()
    assert bars.end.sum() == len(error_pct)
    assert bars.texts[0] == f"{-reach:.3g} to {-reach + width:.3g} %: {bars.end[0]}"


def test_cases_are_means_over_repeats_by_kernel_and_setting():
    shown = cases(measured(ROWS), PREDICTED_J, FAMILIES)
    assert shown.inputs == ["b", "a"]  # the most energy first
    assert shown.settings == [Setting(1000.0, 800.0), Setting(500.0, 800.0)]
    np.testing.assert_array_equal(shown.measured_j, [[80.0, 50.0], [40.0, 20.0]])
    np.testing.assert_array_equal(shown.predicted_j, [[100.0, 50.0], [36.0, 22.0]])
    np.testing.assert_allclose(shown.error_pct, [[25.0, 0.0], [-10.0, 10.0]])
    assert (shown.site, shown.simulated) == ("lab", False)
    assert cases(measured(ROWS), np.full(6, NAN), FAMILIES) is None
    assert foremost(measured(ROWS), FAMILIES, 3) == ["b", "a", "c"]
    assert foremost(measured(ROWS), FAMILIES, 2) == ["b", "c"]  # one of each family first
    assert shown_kernels(measured(ROWS), 0, FAMILIES) == ["a", "b"]
    assert shown_kernels(measured(ROWS), 1, FAMILIES, 2) == ["b", "c"]


@pytest.mark.parametrize(
    ("listed", "inputs", "settings"),
    [
        (
            (["a", "b"], [Setting(500.0, 800.0), Setting(1000.0, 800.0)]),
            ["a", "b"],
            [500.0, 1000.0],
        ),
        ((["a"], [Setting(500.0, 800.0)]), ["b", "a"], [1000.0, 500.0]),  # not all of them
        (
            (["a", "b", "z"], [Setting(7.0, 7.0), Setting(1000.0, 800.0)]),
            ["a", "b"],
            [1000.0, 500.0],
        ),
    ],
)
def test_cases_follow_a_list_that_has_them_all(listed, inputs, settings):
    shown = cases(measured(ROWS), PREDICTED_J, FAMILIES, listed)
    assert shown.inputs == inputs
    assert [setting.core_mhz for setting in shown.settings] == settings


def test_of_many_settings_eight_from_the_first_to_the_last_are_cases():
    mhz = [Setting(100.0 * (i + 1), 800.0) for i in range(15)]
    data = measured([("a", 0, 1.0, 10.0 + i) for i in range(15)])
    data = replace(data, settings=mhz, setting=np.arange(15), core_mhz=clock_columns(mhz)[:, 0])
    shown = cases(data, np.full(15, 20.0), FAMILIES)
    assert [setting.core_mhz for setting in shown.settings] == [100.0 * i for i in range(15, 0, -2)]
    np.testing.assert_array_equal(shown.measured_j, [np.arange(24.0, 9.0, -2.0)])
    sheet = cases_sheet(shown, {})
    rows = [line.split(" & ") for line in as_tex(sheet).splitlines() if line.startswith("F1")]
    assert [(row[2], row[3]) for row in rows] == [
        (f"S{j + 1}", f"{core:,.0f}")
        for j, (core, _) in enumerate(one.clocks for one in shown.settings)
    ]


def axis_of(short: dict[str, str], before: int = 0) -> Axis:
    """The axis of the kernels a and b at three settings, with other kernels before them."""
    shown = Cases(
        site="lab",
        simulated=True,
        inputs=[*map(str, range(before)), "a", "b"],
        short=short,
        settings=[Setting(mhz) for mhz in (100.0, 200.0, 300.0)],
        measured_j=np.zeros((before + 2, 3)),
        predicted_j=np.zeros((before + 2, 3)),
        n_predicted=(before + 2, 3),
    )
    inputs = range(before, before + 2)
    assert shown.places(inputs).tolist() == [place for place, _ in shown.axis(inputs).names]
    return shown.axis(inputs)


def test_cases_have_places_in_groups_with_a_gap():
    assert axis_of(SHORT, 2) == Axis(
        names=[(0, "S1"), (1, "S2"), (2, "S3"), (4, "S1"), (5, "S2"), (6, "S3")],
        groups=[(1.0, "F3 a"), (5.0, "F4 b")],
    )
    # 740 units for 2 groups: 56 characters of 6.6 each, one between them.
    name = axis_of({"a": "x" * 60, "b": "b"}).groups[0][1]
    assert name == "F1 " + "x" * 51 + "…"
    # What tells long names apart is not cut away.
    long = {kernel: "a_solver_of_some_length_" * 3 + kernel for kernel in "ab"}
    assert [name for _, name in axis_of(long).groups] == ["F1 …a", "F2 …b"]


@pytest.mark.parametrize(
    ("least_j", "log", "low", "high"),
    [(4.0, False, 0.0, 92.0), (3.9, True, 1.95, 160.0)],  # a twentieth of 80 is 4
)
def test_bars_of_cases_stand_side_by_side(least_j, log, low, high):
    shown = Cases(
        site="lab",
        simulated=True,
        inputs=["a", "b"],
        short=SHORT,
        settings=[Setting(1000.0, 800.0), Setting(500.0, 800.0)],
        measured_j=np.array([[80.0, 20.0], [least_j, NAN]]),
        predicted_j=np.array([[60.0, 20.09], [least_j, 5.0]]),
        n_predicted=(7, 2),
    )
    figure = case_figure(shown)
    (panel,) = figure.panels
    ours, model, texts = panel.series
    assert panel.y == Axis(log=log, low=pytest.approx(low), high=pytest.approx(high))
    np.testing.assert_allclose(ours.at, [-0.2, 0.8, 2.8, 3.8])
    np.testing.assert_allclose(model.at, [0.2, 1.2, 3.2, 4.2])
    np.testing.assert_allclose(ours.start, low)
    np.testing.assert_array_equal(ours.end, [80.0, 20.0, least_j, NAN])
    np.testing.assert_array_equal(model.end, [60.0, 20.09, least_j, 5.0])
    assert (ours.style, ours.label, ours.width) == ("k0", "measured", 0.4)
    assert (model.style, model.label) == ("k1", "predicted")
    assert ours.texts[1] == "a at 500/800 MHz: 20 J measured"
    assert model.texts[2] == f"b at 1000/800 MHz: {least_j:g} J predicted"
    np.testing.assert_array_equal(texts.x, [0, 1, 3])
    np.testing.assert_array_equal(texts.y, [80.0, 20.09, least_j])
    assert texts.texts == ["−25", "0", "0"]
    assert panel.wide
    assert panel.description == (
        "Measured and predicted energy of F1 to F2 at 2 settings, lab, simulated"
    )
    assert figure.caption.endswith("F1: a; F2: b. S1: 1000/800 MHz; S2: 500/800 MHz.")
    assert "2 of 7 kernels at 2 settings." in figure.caption


def test_a_panel_has_32_cases():
    settings = [Setting(1000.0 - i, 800.0) for i in range(8)]
    names = [f"k{i}" for i in range(6)]
    ones = np.ones((6, 8))
    shown = Cases(
        site="lab",
        simulated=False,
        inputs=names,
        short={name: name for name in names},
        settings=settings,
        measured_j=ones,
        predicted_j=ones * 1.5,
        n_predicted=(6, 8),
    )
    first, last = case_figure(shown).panels
    assert [text for _, text in first.x.groups] == ["F1 k0", "F2 k1", "F3 k2", "F4 k3"]
    assert [text for _, text in last.x.groups] == ["F5 k4", "F6 k5"]
    assert last.description == "Measured and predicted energy of F5 to F6 at 8 settings, lab"
    assert first.series[2].texts[0] == "+50"


def test_errors_are_shown_by_setting_and_by_family():
    by_setting, by_family = error_figure(judged(True), measured(ROWS), FAMILIES).panels
    line, dots = by_setting.series
    np.testing.assert_allclose(dots.x, [17.5, 20.0 / 3.0])
    np.testing.assert_allclose(line.x, [10.0, 25.0, NAN, 0.0, 10.0, NAN], atol=1e-12)
    assert dots.texts == [
        "1000/800 MHz: mean 17.5 %, 10 to 25 %, 2 predictions",
        "500/800 MHz: mean 6.67 %, 0 to 10 %, 3 predictions",
    ]
    np.testing.assert_allclose(by_family.series[1].x, [11.0])
    assert [name for _, name in by_family.y.names] == ["one"]
    assert by_family.description == "Error by family of kernels, lab, leave:one, simulated"
    assert (by_setting.title, by_setting.x.label) == ("Error by setting, %", "absolute error, %")


def test_parts_of_a_bar_follow_each_other():
    panel = stacked_panel(
        "T", "power, W", ["a", "b"],
        {"sp": np.array([1.0, NAN]), "dram": np.array([3.0, 2.0]), "odd": np.array([-1.0, 0.5])},
        unit="W", description="D", names={"a": "x" * 31, "b": "B"},
    )  # fmt: skip
    ends = {bars.label: (bars.start.tolist(), bars.end.tolist()) for bars in panel.series}
    assert ends == {
        "sp": ([0.0, 0.0], [1.0, 0.0]),
        "dram": ([1.0, 0.0], [4.0, 2.0]),
        "odd": ([4.0, 2.0], [4.0, 2.5]),
    }
    assert [bars.style for bars in panel.series] == ["k1", "k4", "k6"]
    assert all(bars.across and bars.at.tolist() == [0.0, 1.0] for bars in panel.series)
    assert panel.series[1].texts == ["a: dram 3 W, 75 %", "b: dram 2 W, 80 %"]
    assert panel.y.names == [(0, "x" * 29 + "…"), (1, "B")]
    assert (panel.x.low, panel.x.high, panel.wide) == (0.0, None, False)
    whole = {"sp": np.array([25.0, 60.0]), "dram": np.array([75.0, 40.0])}
    shares = stacked_panel("T", "%", ["a", "y" * 41], whole, unit="%", description="D", wide=True)
    assert (shares.x.high, shares.wide) == (100.0, True)
    assert shares.series[0].texts[0] == "a: sp 25 %"
    assert shares.y.names[1] == (1, "y" * 39 + "…")


def test_two_parts_never_look_the_same_while_there_are_styles():
    # Those that have a style of their own take it first come; the rest take what is free.
    assert part_styles(["l1", "shared", "other", "constant"]) == {
        "l1": "k6", "shared": "k2", "other": "k7", "constant": "k8",
    }  # fmt: skip
    many = part_styles([str(i) for i in range(10)])
    assert len(set(many.values())) == 9
    assert many["9"] == "k6"


COUNTS = {"sp": [3.0] * 5 + [2.0], "int": [1.0] * 5 + [0.0], "dram": [8.0] * 5 + [4.0]}


def test_counts_are_shares_of_operations_and_of_bytes():
    data = measured(ROWS, COUNTS, simulated=True)
    mean = mean_at(data, ["b", "a", "c"], 0)
    assert mean.labels.tolist() == ["b", "a"]
    assert (mean.time_s.tolist(), mean.energy_j.tolist()) == ([5.0, 2.0], [50.0, 20.0])
    operations, moved = count_figure(data, ["a", "c"], 1).panels
    assert [bars.end.tolist() for bars in operations.series] == [[75.0, 100.0], [100.0, 100.0]]
    assert [bars.end.tolist() for bars in moved.series] == [[100.0, 100.0]]
    assert operations.title == "Operations by class, %"
    assert operations.x.label == "share of operations, %"
    assert moved.description == "Bytes moved of kernels by class, lab, simulated"
    assert count_figure(data, ["c"], 1) is None
    assert count_figure(measured(ROWS), ["a"], 1) is None


def test_a_thousandth_of_another_class_is_no_mixture_to_draw():
    counts = {"sp": np.full(6, 999.0), "int": np.full(6, 1.0)}
    assert count_figure(measured(ROWS, counts), ["a"], 1) is None
    assert count_figure(measured(ROWS, counts | {"int": np.full(6, 1.1)}), ["a"], 1) is not None


def test_kinds_of_energy_add_up_over_the_cases():
    data = grid_observations(5, kernels=3, clock_tree=False)
    model = fit(data, "choi", intervals=False)
    joules = {
        "computation": sum(data.counts[n] * pj for n, pj in (("sp", 20e-12), ("int", 45e-12))),
        "data": data.counts["dram"] * 300e-12,
    }
    joules = {
        "computation": joules["computation"] * data.core_v**2,
        "data": joules["data"] * data.mem_v**2,
    }
    names = ["kernel-1", "kernel-0"]
    places = [data.settings[7], data.settings[0]]
    listed = data.take(np.isin(data.labels, names) & np.isin(data.setting, [0, 7]))
    shown = cases(listed, listed.energy_j, dict.fromkeys(names, "one"), (names, places))
    figure = kind_figure(model, data, shown)
    (panel,) = figure.panels
    before = np.zeros(4)
    for bars in panel.series:
        np.testing.assert_array_equal(bars.at, [0.0, 1.0, 3.0, 4.0])
        np.testing.assert_allclose(bars.start, before, atol=1e-9)
        share = []
        for name in names:
            for place in places:
                row = (data.labels == name) & (data.setting == data.settings.index(place))
                part = joules.get(bars.label, data.energy_j - sum(joules.values()))
                share.append(100.0 * (part[row] / data.energy_j[row])[0])
        np.testing.assert_allclose(bars.end - bars.start, share, atol=1e-3)
        assert bars.width == 0.84
        assert bars.texts[0].startswith(f"kernel-1 at 1000/900 MHz: {bars.label} ")
        before = bars.end
    np.testing.assert_allclose(before, 100.0)
    assert panel.y == Axis(low=0.0, high=100.0)
    assert (
        panel.description
        == "Computation, data and constant power of F1 to F2, synthetic, simulated"
    )


def test_energy_of_operations_and_data_needs_counts_and_classes():
    data = grid_observations(5, kernels=3, clock_tree=False)
    model = fit(data, "choi", intervals=False)
    (operations, moved) = instruction_data_figure(model, data, ["kernel-0", "kernel-2"], 3).panels
    for i, name in enumerate(("kernel-0", "kernel-2")):
        row = np.flatnonzero((data.labels == name) & (data.setting == 3))[0]
        sp_j, int_j = data.counts["sp"][row] * 20.0, data.counts["int"][row] * 45.0
        ends = {bars.label: bars.end[i] - bars.start[i] for bars in operations.series}
        assert ends == pytest.approx(
            {"sp": 100 * sp_j / (sp_j + int_j), "int": 100 * int_j / (sp_j + int_j)}, rel=1e-3
        )
    assert [bars.label for bars in moved.series] == ["dram"]
    bare = grid_observations(5, kernels=3, counted=0.0)
    lumped = fit(bare, "choi", intervals=False)
    assert instruction_data_figure(lumped, bare, ["kernel-0"], 3) is None
    assert instruction_data_figure(model, bare, ["kernel-0"], 3) is None
    assert instruction_data_figure(lumped, data, ["kernel-0"], 3) is None
