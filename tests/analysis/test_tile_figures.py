"""Least times over two of a kernel's parameters: which two, and every point of the lines."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.variants import VariantStudy, study
from analysis.figures.figure import Points
from analysis.figures.svg import svg
from analysis.figures.variants import (
    parameters_panel,
    scaling_figure,
    scalings,
    time_figure,
    two_parameters,
)
from analysis.measurements.variants import kernel_variants, studied_variants
from analysis.report.tables import as_csv
from analysis.report.variant_sheets import costs_sheet, scaling_sheet
from dvfs.setting import Setting
from tests.analysis.variant_data import variant_columns

HEIGHTS, WIDTHS, UNROLL = (2, 4, 8), (16, 32, 64, 128, 256, 512, 1024), (1, 2)


def seconds(height: int, width: int, unroll: int) -> float:
    """Least at a height of 4 and a width of 128; unrolling matters little."""
    return 1.0 + abs(math.log2(height / 4)) + 0.1 * abs(math.log2(width / 128)) + 0.01 * unroll


def tiles(cost=seconds, heights=HEIGHTS, widths=WIDTHS) -> VariantStudy:
    """All tiles, each predicted to take a tenth more time, and less energy, than it does."""
    made = [
        ({"order": "ij", "height": h, "width": w, "unroll": u}, cost(h, w, u), 5.0)
        for h in heights
        for w in widths
        for u in UNROLL
    ]
    tuned = ("height", "width", "unroll")
    of = kernel_variants(variant_columns(made), "s", "dgemm", tuned=tuned)
    predicted = {one.label: (float(1.1 * of.time_s[i]), 4.0) for i, one in enumerate(of.instances)}
    return study(of, predicted)


def test_the_two_parameters_that_change_the_least_time_most_the_one_of_more_values_first():
    assert two_parameters(tiles()) == ("width", "height")
    assert two_parameters(tiles(widths=WIDTHS[:3], heights=(1, 2, 4, 8))) == ("height", "width")
    # Two values are too few, whatever they change.
    steep = tiles(lambda h, w, u: h * w * 100.0**u)
    assert two_parameters(steep) == ("width", "height")
    assert two_parameters(tiles(heights=(2, 4))) is None


def test_a_third_parameter_is_left_out_by_what_it_changes():
    made = [
        ({"a": a, "b": b, "c": c}, 1.0 + a + 0.1 * b + 0.01 * c, 5.0)
        for a in (1, 2, 3)
        for b in (1, 2, 3, 4)
        for c in (1, 2, 3, 4, 5)
    ]
    of = kernel_variants(variant_columns(made), "s", "dgemm", tuned=("a", "b", "c"))
    assert two_parameters(study(of)) == ("b", "a")


def test_a_line_for_every_height_goes_through_the_least_time_at_each_width():
    panel = parameters_panel(tiles(), ("width", "height"), "T", "W")
    points = [series for series in panel.series if isinstance(series, Points)]
    lines = [series for series in panel.series if not isinstance(series, Points)]
    assert [one.label for one in points] == [f"height = {h}" for h in HEIGHTS]
    assert [one.style for one in points] == [f"dot by{i}" for i in range(3)]
    assert [one.style for one in lines] == [f"by{i}" for i in range(3)]
    for height, dots, line in zip(HEIGHTS, points, lines, strict=True):
        least = [min(seconds(height, w, u) for u in UNROLL) for w in WIDTHS]
        np.testing.assert_array_equal(dots.x, WIDTHS)
        np.testing.assert_allclose(dots.y, least)
        np.testing.assert_array_equal([line.x, line.y], [dots.x, dots.y])
        assert dots.texts[2] == f"width = 64, height = {height}: {least[2]:.4g} s"
    assert (panel.x.label, panel.x.log) == ("width", True)
    assert panel.title == "Least time, s: T"
    assert panel.description == "Least time over width, a line for each height, W"
    from_0 = tiles(lambda h, w, u: h + w / 1e4 + u, widths=(0, *WIDTHS))
    zero = parameters_panel(from_0, two_parameters(from_0), "T", "W")
    assert not zero.x.log


def test_of_many_heights_six_are_drawn_from_the_least_to_the_highest():
    heights = (2, 4, 6, 8, 10, 12, 14, 16, 18)
    shown = tiles(heights=heights, widths=(*WIDTHS, 5, 6, 7))
    panel = parameters_panel(shown, two_parameters(shown), "T", "W")
    drawn = [one.label for one in panel.series if isinstance(one, Points)]
    at = np.unique(np.linspace(0, 8, len(drawn)).round().astype(int))
    assert drawn == [f"height = {heights[i]}" for i in at]
    assert len(drawn) < len(heights)


def test_predicted_costs_are_drawn_against_measured_ones():
    shown = tiles()
    figure = time_figure(shown, "T")
    time, energy, over = figure.panels
    assert figure.name == "variants_T_predicted"
    assert figure.caption.startswith(
        "42 variants of T at 1000/500 MHz: predicted from the other variants beside measured, and "
        "the least time over width for values of height (Prajapati"
    )
    measured = np.array([variant.time_s for variant in shown.variants])
    np.testing.assert_allclose(time.series[1].x, measured)
    np.testing.assert_allclose(time.series[1].y, 1.1 * measured)
    low, high = measured.min(), 1.1 * measured.max()
    room = (high / low) ** 0.04
    np.testing.assert_allclose(time.series[0].x, [low / room, high * room])
    assert (time.x.low, time.y.high) == pytest.approx((low / room, high * room))
    assert (time.title, time.x.label) == ("Predicted time, s: T", "measured time, s")
    first = shown.variants[0]
    assert time.series[1].texts[0] == (
        f"{first.name}: {first.time_s:.4g} s measured, {1.1 * first.time_s:.4g} s predicted"
    )
    assert set(energy.series[1].y) == {4.0}
    assert energy.series[1].texts[0].endswith("5 J measured, 4 J predicted")
    assert over.title == "Least time, s: T"


def test_what_is_not_predicted_has_no_panel():
    shown = tiles()
    bare = replace(
        shown, variants=[replace(v, predicted_s=math.nan, predicted_j=math.nan)
                         for v in shown.variants]
    )  # fmt: skip
    assert time_figure(bare, "T") is None
    only = replace(shown, variants=[replace(v, predicted_j=math.nan) for v in shown.variants])
    assert [panel.title[:15] for panel in time_figure(only, "T").panels] == [
        "Predicted time,",
        "Least time, s: ",
    ]
    signs = [-1.0 if i % 2 else 4.0 for i in range(len(shown.variants))]
    mixed = [replace(v, predicted_j=sign) for v, sign in zip(shown.variants, signs, strict=True)]
    figure = time_figure(replace(shown, variants=mixed), "T")
    assert len(figure.panels[1].series[1].x) == 21


@pytest.mark.parametrize("sizes", [(0, 0.5, 1), (-2, -1, 0), (1, 2, 4)])
def test_a_size_of_0_is_drawn_too(sizes):
    """A logarithmic axis has no place for it."""
    rows = [({"tile": i, "bias": at}, 9.0 + at + i, 1.0) for at in sizes for i in (1, 2, 3)]
    found = studied_variants(variant_columns(rows), "s", {"dgemm": ["tile"]})
    studies = [study(one) for one in found]
    (scaling,) = scalings(studies)
    assert scaling.sizes == list(sizes)
    for panel in scaling_figure(scaling).panels:
        assert svg(panel).count("<circle") == 3 * len(sizes)


def test_sizes_are_compared_at_one_setting():
    """The largest size has most variants at another clock, where it takes twice the time."""
    rows = [
        ({"tile": i, "n": n}, 1.0 * n * i * (2.0 if mhz < 1000.0 else 1.0), 1.0, {"core_mhz": mhz})
        for n in (1, 2, 3, 4)
        for i in (1, 2, 3, 4)
        for mhz in (500.0, 1000.0)
        if (n, i, mhz) != (4, 4, 1000.0)
    ]
    found = studied_variants(variant_columns(rows), "s", {"dgemm": ["tile"]})
    studies = [study(one) for one in found]
    assert [one.of.setting.core_mhz for one in studies] == [1000.0] * 3 + [500.0]
    (scaling,) = scalings(studies)
    assert (scaling.setting, scaling.sizes) == (Setting(1000.0, 500.0), [1, 2, 3])
    for i in (1, 2, 3, 4):
        assert [cost.time_s for cost in scaling.variants[f"tile={i}"]] == [i, 2 * i, 3 * i]
    assert "at 1000/500 MHz" in scaling_figure(scaling).caption
    assert scaling_sheet(scaling).caption == "Variants of dgemm over n at 1000/500 MHz"


def test_a_variant_without_a_prediction_leaves_its_cells_empty():
    rows = [({"tile": i}, 1.0 * i, 5.0) for i in (1, 2, 3)]
    of = kernel_variants(variant_columns(rows), "s", "dgemm", tuned=("tile",))
    made = study(of, {"dgemm tile=1": (1.5, 6.0), "dgemm tile=3": (3.5, math.nan)})
    shown = as_csv(costs_sheet(made, "dgemm")).splitlines()
    head, *cells = csv.reader(shown)
    names = ("time_s", "predicted_s", "predicted_j", "repeats")
    assert [[own[head.index(name)] for name in names] for own in cells] == [
        ["1", "1.5", "6", "1"],
        ["2", "", "", "1"],
        ["3", "3.5", "", "1"],
    ]
