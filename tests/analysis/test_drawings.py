"""Drawings as the page has them: every mark, tick and text of a small panel at its computed place.

The plot of a panel without a legend is 320 wide from 46 and 194 high down to 218, so that x from
0 to 10 lies at 46 + 32 x and y from 0 to 5 at 218 - 38.8 y.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.figures.figure import (
    Axis,
    Band,
    Bars,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    Scale,
    Texts,
    log_scale,
    range_panel,
    tick_text,
)
from analysis.figures.svg import figure_svgs, svg

NAN = math.nan
X, Y = Axis("x, s", low=0.0, high=10.0), Axis(low=0.0, high=5.0)


def panel(*series, x=X, y=Y, wide=False):
    return Panel("Title", x, y, series, "Description", wide)


def bars(at, start, end, **more):
    return Bars(at=np.array(at), start=np.array(start), end=np.array(end), style="b", **more)


@pytest.mark.parametrize(
    ("series", "marks"),
    [
        (
            Line(
                np.array([1.0, 2.0, NAN, 4.0, 11.0, 5.0, 6.0, 10.0]),
                np.array([1.0, 2.0, 3.0, 4.0, 1.0, 1.0, 0.5, 5.0]),
                "k",
            ),
            '<path class="line k" d="M78 179.2L110 140.4M174 62.8M206 179.2L238 198.6L366 24"/>',
        ),
        (
            Points(np.array([1.0, NAN, 12.0]), np.array([1.0, 2.0, 6.0]), texts=["a", "b", "c<"]),
            '<circle class="dot" cx="78" cy="179.2" r="3.2"><title>a</title></circle>'
            '<circle class="dot" cx="366" cy="24" r="3.2"><title>c&lt;</title></circle>',
        ),
        (
            Points(np.array([1.0]), np.array([1.0]), "ring", texts=["a"]),
            '<circle class="ring" cx="78" cy="179.2" r="6"><title>a</title></circle>',
        ),
        (
            Points(np.array([1.0, 2.0, 3.0]), np.array([1.0, NAN, -1.0])),
            '<path class="cloud dot" d="M78 179.2h0M142 218h0"/>',
        ),
        (  # no bar without an end, and none of no length
            bars([2.0, 4.0, 6.0, 8.0], [0.0, 0.0, 1.0, 0.0], [1.0, NAN, 1.0, 7.0], width=0.5),
            '<rect class="b" x="102.00" y="179.20" width="16.00" height="38.80"></rect>'
            '<rect class="b" x="294.00" y="24.00" width="16.00" height="194.00"></rect>',
        ),
        (
            bars([1.0], [2.0], [6.0], across=True, texts=["t"]),
            '<rect class="b" x="110.00" y="165.62" width="128.00" height="27.16">'
            "<title>t</title></rect>",
        ),
        (Rule(2.0, "r", vertical=False), '<path class="line r" d="M46 140.4H366"/>'),
        (Rule(5.0, "r", vertical=False), '<path class="line r" d="M46 24H366"/>'),
        # beyond the limits: what is last is the axis
        (Rule(5.1, "r", vertical=False), '<path class="axis" d="M46 24V218H366"/>'),
        (Rule(5.0, "r"), '<path class="line r" d="M206 218V24"/>'),
        (
            Band(2.0, 4.0, "w"),
            '<rect class="w" x="110.00" y="24.00" width="64.00" height="194.00">',
        ),
        (
            Texts(np.array([1.0]), np.array([1.0]), ["t<"]),
            '<text class="mid small" x="78" y="175.2">t&lt;</text>',
        ),
    ],
)
def test_marks_lie_where_their_values_say(series, marks):
    drawing = str(svg(panel(series, x=Axis(low=0.0, high=10.0))))
    assert (
        drawing.removesuffix("</svg>")
        .removesuffix("</rect>")
        .endswith(marks.removesuffix("</rect>"))
    )
    assert drawing.count('class="line ') == marks.count('class="line ')
    assert drawing.count("<circle") == marks.count("<circle")
    assert drawing.count("<rect") == marks.count("<rect")


@pytest.mark.parametrize(
    ("at", "text", "left", "style", "x"),
    [
        (5.0, "abc", False, "start", "210"),
        (5.0, "abc", True, "end", "202"),
        (10.0, "abc", False, "end", "362"),  # no room on the right
        (9.8125, "abc", False, "start", "364"),  # 360 + 3 * 6.6 is within the 380
        (9.84375, "abc", False, "end", "357"),  # 361 + 3 * 6.6 is not
        (0.0, "abcdef", True, "end", "42"),
        (0.0, "abcdefg", True, "start", "50"),  # 7 * 6.6 is more than the 46 on the left
    ],
)
def test_the_text_of_a_rule_stands_where_it_has_room(at, text, left, style, x):
    drawing = str(svg(panel(Rule(at, "r", text=text, text_left=left), x=Axis(low=0.0, high=10.0))))
    place = f"{46 + 32 * at:.1f}".removesuffix(".0")
    assert drawing.endswith(
        f'<path class="line r" d="M{place} 232V28"/>'
        f'<text class="{style}" x="{x}" y="33">{text}</text></svg>'
    )
    assert 'viewBox="0 0 380 256"' in drawing


def test_what_a_logarithmic_axis_cannot_show_is_left_out():
    points = Points(np.array([1.0, 2.0, 3.0]), np.array([10.0, 0.0, -1.0]), texts=["a", "b", "c"])
    drawing = str(svg(panel(points, y=Axis(log=True, low=1.0, high=100.0))))
    assert drawing.endswith(
        '<circle class="dot" cx="78" cy="121" r="3.2"><title>a</title></circle></svg>'
    )
    assert drawing.count("<circle") == 1


def test_axes_have_a_line_and_a_number_at_every_tick():
    grid = "".join(
        f'<path class="grid" d="M{46 + 32 * x} 218V24"/>'
        f'<text class="mid" x="{46 + 32 * x}" y="233">{x}</text>'
        for x in (0, 2, 4, 6, 8, 10)
    )
    pixels = {0: ("218", "221.6"), 1: ("179.2", "182.8"), 2: ("140.4", "144")}
    pixels |= {3: ("101.6", "105.2"), 4: ("62.8", "66.4"), 5: ("24", "27.6")}
    grid += "".join(
        f'<path class="grid" d="M46 {at}H366"/><text class="end" x="40" y="{below}">{y}</text>'
        for y, (at, below) in pixels.items()
    )
    assert str(svg(panel())) == (
        '<svg viewBox="0 0 380 260" role="img" aria-label="Description">'
        f'<text class="title" x="2" y="13">Title</text>{grid}'
        '<path class="axis" d="M46 24V218H366"/>'
        '<text class="mid" x="206" y="253">x, s</text></svg>'
    )


def test_names_take_the_place_of_numbers_and_the_first_stands_at_the_top():
    """Rows are 17 high, a small character 5.6 wide, and the groups of x take 17 below."""
    x = Axis(names=[(0.0, "S1"), (1.0, "S2")], groups=[(0.5, "F1")])
    drawing = str(svg(panel(x=x, y=Axis(names=[(0, "ab"), (1, "c")]), wide=True)))
    # From 5.6 * 2 + 12 = 23.2 to 766; half a place is 742.8 / 4.
    assert drawing == (
        '<svg viewBox="0 0 780 99" role="img" aria-label="Description">'
        '<text class="title" x="2" y="13">Title</text>'
        '<text class="mid small" x="208.9" y="73">S1</text>'
        '<text class="mid small" x="580.3" y="73">S2</text>'
        '<text class="mid" x="394.6" y="89">F1</text>'
        '<text class="end small" x="17.2" y="36.1">ab</text>'
        '<text class="end small" x="17.2" y="53.1">c</text>'
        '<path class="axis" d="M23.2 24V58H766"/></svg>'
    )
    long = str(svg(panel(x=X, y=Axis(names=[(0, "a" * 60)]))))
    assert '<path class="axis" d="M250 24V41H366"/>' in long
    assert 'viewBox="0 0 780 196"' in svg(panel(x=Axis(low=0.0, high=1.0), wide=True))


def test_the_legend_names_each_series_once_and_wraps():
    """An entry takes 27 and 6.6 a character; the panels of a figure leave as many rows free."""
    nothing = np.zeros(0)
    legend = panel(
        Points(nothing, nothing, "dot", "measured"),
        Points(nothing, nothing, "dot", "measured"),
        Line(nothing, nothing, "model", "m" * 35),
        Rule(99.0, "r", "rule"),
        bars([], [], [], label="bars"),
        Texts(nothing, nothing, []),
    )
    keys = (
        '<circle class="dot" cx="7" cy="26.0" r="3.6"/>'
        '<text class="key" x="17" y="30">measured</text>'
        f'<path class="line model" d="M81.8 26.0h11"/><text class="key" x="96.8" y="30">{"m" * 35}'
        '</text><path class="line r" d="M2 42.0h11"/><text class="key" x="17" y="46">rule</text>'
        '<rect class="b" x="55.40" y="37.00" width="10.00" height="10.00"></rect>'
        '<text class="key" x="70.4" y="46">bars</text>'
    )
    drawings = figure_svgs(Figure("name", "Caption", [legend, panel()]))
    assert f'y="13">Title</text>{keys}<path class="grid"' in drawings[0]
    for drawing in drawings:  # two rows of 16
        assert '<path class="axis" d="M46 56V250H366"/>' in drawing
        assert 'viewBox="0 0 380 292"' in drawing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.25, "0.25"), (1e-3, "0.001"), (9.99e-4, "9.99·10⁻⁴"), (-2.0, "−2"),
        (1000.0, "1,000"), (99999.0, "99,999"), (1e5, "10⁵"), (2e6, "2·10⁶"), (1e-6, "10⁻⁶"),
        (-3e-7, "−3·10⁻⁷"), (123456.0, "1.23456·10⁵"), (1234.5678, "1,234.57"),
    ],
)  # fmt: skip
def test_ticks_are_written_short(value, text):
    assert tick_text(value) == text


@pytest.mark.parametrize(
    ("scale", "values"),
    [
        (Scale(0.0, 10.0), [0, 2, 4, 6, 8, 10]),
        (Scale(0.0, 10.1), [0, 5, 10]),
        (Scale(0.0, 5.0), [0, 1, 2, 3, 4, 5]),
        (Scale(-0.5, 0.5), [-0.4, -0.2, 0, 0.2, 0.4]),
        (Scale(3.0, -4.0), [-4, -2, 0, 2]),  # the first at the top
        (Scale(101.0, 127.0), [110, 120]),
        (Scale(0.0, 26.0), [0, 10, 20]),
        (Scale(1.0, 1e3, log=True), [1, 10, 100, 1e3]),
        (Scale(0.9, 1.1e8, log=True), [1, 1e2, 1e4, 1e6, 1e8]),
        (Scale(1.0, 10.0, log=True), [1, 2, 5, 10]),
        (Scale(2.0, 500.0, log=True), [2, 5, 10, 20, 50, 100, 200, 500]),
        (Scale(1.0, 6.0, log=True), [1, 1.5, 2, 3, 4, 5]),
        (Scale(4.0, 20.0, log=True), [4, 5, 7, 10, 15, 20]),
        (Scale(10.0, 18.0, log=True), [10, 12, 14, 16, 18]),  # less than a factor of two
    ],
)
def test_ticks_are_round_values_within_the_limits(scale, values):
    ticks = scale.ticks()
    assert [value for value, _ in ticks] == pytest.approx(values, abs=1e-12)
    assert [text for _, text in ticks] == [tick_text(value) for value in values]


def test_a_logarithmic_scale_leaves_room_on_both_sides():
    assert log_scale([1.0, 100.0, -1.0, 0.0, NAN, math.inf]) == Scale(
        pytest.approx(100.0**-0.06), pytest.approx(100.0**1.06), True
    )
    assert log_scale([1.0, 1.5], 0.0) == Scale(1.0, 1.5, True)
    assert log_scale([2.0, 2.9], 0.0) == Scale(1.6, pytest.approx(3.625), True)


@pytest.mark.parametrize(
    ("x", "y", "series", "x_scale", "y_scale"),
    [
        (Axis(), Axis(), [], (0.0, 1.06), (0.0, 1.06)),
        (Axis(), Axis(include=[4.0]), [Line(np.array([-1.0, 3.0]), np.array([2.0, NAN]), "k")],
         (-1.0, 3.18), (0.0, 4.24)),
        (Axis(low=1.0), Axis(high=9.0), [Points(np.array([2.0]), np.array([3.0]))],
         (1.0, 2.12), (0.0, 9.0)),
        (Axis(), Axis(), [bars([1.0, 2.0], [0.5, -0.5], [3.0, 1.0], width=0.5)],
         (0.0, 2.25 * 1.06), (-0.5, 3.18)),
        (Axis(), Axis(), [bars([-1.0, 2.0], [0.5, -0.5], [3.0, 1.0], across=True)],
         (-0.5, 3.18), (-1.35, 2.35 * 1.06)),
        (Axis(names=[(0, "a"), (2, "b")]), Axis(names=[(0, "a"), (3, "b")]), [],
         (-0.5, 2.5), (3.5, -0.5)),
        (Axis(), Axis(), [Rule(7.0, "r"), Band(1.0, 9.0, "b")], (0.0, 1.06), (0.0, 1.06)),
        (Axis(), Axis(), [Line(np.zeros(1), np.zeros(1), "k")], (0.0, 1.0), (0.0, 1.0)),
    ],
)  # fmt: skip
def test_limits_hold_every_value(x, y, series, x_scale, y_scale):
    for scale, (low, high) in zip(
        panel(*series, x=x, y=y).scales(), (x_scale, y_scale), strict=True
    ):
        assert (scale.low, scale.high, scale.log) == (
            pytest.approx(low),
            pytest.approx(high),
            False,
        )


def test_scales_hold_their_limits_and_nothing_beyond():
    for scale in (Scale(2.0, 6.0), Scale(6.0, 2.0), Scale(2.0, 6.0, log=True)):
        assert scale.holds(2.0)
        assert scale.holds(6.0)
        assert not scale.holds(2.0 - 1e-7)
        assert not scale.holds(6.0 + 1e-7)
        assert (scale.clipped(1.0), scale.clipped(7.0)) == (scale.at(2.0), scale.at(6.0))
    assert Scale(6.0, 2.0).at(3.0) == 0.75
    assert Scale(2.0, 8.0, log=True).at(4.0) == pytest.approx(0.5)


def test_a_range_is_a_line_with_a_dot():
    drawn = range_panel(
        "T", "error, %", [("a", [1.0, 2.0, 4.0]), ("b" * 21, np.array([0.5, 0.6, 0.7]))],
        middle="mean", text="{name}: {middle:.2g}, {low:g} to {high:g}, {n}", description="D",
    )  # fmt: skip
    line, dots = drawn.series
    np.testing.assert_array_equal(line.x, [1.0, 4.0, NAN, 0.5, 0.7, NAN])
    np.testing.assert_array_equal(line.y, [0.0, 0.0, NAN, 1.0, 1.0, NAN])
    np.testing.assert_allclose([dots.x, dots.y], [[7 / 3, 0.6], [0.0, 1.0]])
    assert (line.style, line.label, dots.style) == ("span", "smallest to largest", "dot")
    assert dots.label == "mean"
    assert dots.texts == ["a: 2.3, 1 to 4, 3", "b" * 21 + ": 0.6, 0.5 to 0.7, 3"]
    assert (drawn.title, drawn.description, drawn.wide) == ("T", "D", False)
    assert drawn.x == Axis("error, %", low=0.0, include=[0.1])
    assert drawn.y == Axis(names=[(0, "a"), (1, "b" * 19 + "…")])
