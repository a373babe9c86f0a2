"""The lines and marks of roofline figures, against the papers' closed forms and printed numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.figures.figure import Figure, Line, Panel, Rule
from analysis.figures.paper import _drawing
from analysis.figures.rooflines import roofline_figure
from analysis.figures.tradeoffs import greenup_figure, trade_off_points
from analysis.rooflines.roofline import PairPoints
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.platforms import FERMI, PLATFORMS, from_peaks

SETTING = Setting(852.0, 924.0)
INTENSITY = np.geomspace(0.25, 64.0, 9)
MACHINES = {"Fermi": FERMI, **{" ".join(name): rates for name, rates in PLATFORMS.items()}}


def drawn(rates: tuple[float, ...]) -> Figure:
    """The figure of a machine, with kernels of some intensities and any times."""
    points = PairPoints(
        operation="sp",
        memory="dram",
        setting=SETTING,
        kernels=[KernelInstance("k", {"i": i}) for i in range(len(INTENSITY))],
        intensity=INTENSITY,
        operations=INTENSITY * 1e9,
        time_s=np.full(len(INTENSITY), 0.1),
        energy_j=np.full(len(INTENSITY), 5.0),
    )
    return roofline_figure(points, from_peaks(*rates), simulated=False)


def rules(panel: Panel, style: str) -> list[Rule]:
    return [mark for mark in panel.series if isinstance(mark, Rule) and mark.style == style]


@pytest.mark.parametrize("rates", MACHINES.values(), ids=MACHINES)
def test_the_three_lines_are_equations_3_to_7_of_choi_and_vuduc_2012(rates):
    gop_s, gb_s, eps_op_pj, eps_mem_pj, constant_w = rates
    figure = drawn(rates)
    for panel, name in zip(figure.panels, ("time", "arch", "power"), strict=True):
        (line,) = (mark for mark in panel.series if isinstance(mark, Line))
        ns_per_op = np.maximum(1 / gop_s, 1 / (gb_s * line.x))
        nj_per_op = (eps_op_pj + eps_mem_pj / line.x) * 1e-3 + constant_w * ns_per_op
        expected = {"time": 1 / ns_per_op, "arch": 1 / nj_per_op, "power": nj_per_op / ns_per_op}
        np.testing.assert_allclose(line.y, expected[name], rtol=1e-9)


@pytest.mark.parametrize("rates", MACHINES.values(), ids=MACHINES)
def test_the_marks_stand_at_the_balances(rates):
    """Where bytes take as long as operations, and where half of the best efficiency is reached."""
    gop_s, gb_s, eps_op_pj, eps_mem_pj, constant_w = rates
    for panel in drawn(rates).panels:
        (time,), (energy,) = rules(panel, "tau"), rules(panel, "eps")
        assert time.at == pytest.approx(gop_s / gb_s, rel=1e-9)
        ns_per_op = max(1 / gop_s, 1 / (gb_s * energy.at))
        at_mark = (eps_op_pj + eps_mem_pj / energy.at) * 1e-3 + constant_w * ns_per_op
        assert at_mark == pytest.approx(2 * (eps_op_pj * 1e-3 + constant_w / gop_s), rel=1e-9)
        for mark in (time, energy):
            assert mark.text.endswith(f" {mark.at:.3g}")


def test_the_texts_of_two_marks_stand_on_either_side_and_that_of_one_to_the_right():
    for rates in MACHINES.values():
        for panel in drawn(rates).panels:
            low, high = sorted(
                (mark for mark in panel.series if isinstance(mark, Rule)), key=lambda m: m.at
            )
            assert (low.text_left, high.text_left) == (True, False)
    (panel,) = drawn((*FERMI[:2], np.nan, np.nan, np.nan)).panels
    (alone,) = (mark for mark in panel.series if isinstance(mark, Rule))
    assert (alone.style, alone.text_left) == ("tau", False)


@pytest.mark.parametrize(("panels", "width_in"), [(1, 3.58), (2, 7.16), (3, 7.16)])
def test_one_panel_is_as_wide_as_a_column_and_more_as_a_page(panels, width_in):
    figure = drawn(FERMI)
    drawing = _drawing(replace(figure, panels=figure.panels[:panels]), simulated=False)
    assert drawing.get_figwidth() == pytest.approx(width_in)


def test_the_marks_of_table_2_are_those_that_it_prints():
    for panel in drawn(FERMI).panels:
        assert round(rules(panel, "tau")[0].at, 1) == 3.6
        assert round(rules(panel, "eps")[0].at, 1) == 14.4


def test_the_bounds_of_speedup_and_greenup_are_equations_18_to_23():
    gop_s, gb_s, eps_op_pj, eps_mem_pj, _ = FERMI
    b_tau, b_eps = gop_s / gb_s, eps_mem_pj / eps_op_pj
    i, f, m = trade_off_points(from_peaks(*FERMI))
    ones = np.ones(len(i))
    speedup = np.maximum(ones, b_tau / i) / (f * np.maximum(ones, b_tau / (f * m * i)))
    scale, ratio = 1 + b_eps / i, (i + b_eps) / (b_tau + b_eps)
    memory_bound, compute_bound = f * m * i < b_tau, i >= b_tau
    cases = [
        (memory_bound, (ones, b_tau / i), (ratio, scale / (1 + b_eps / b_tau))),
        (
            ~memory_bound & ~compute_bound,
            (0 * ones, np.minimum(m, b_tau / i)),
            (speedup * ratio, m * ratio),
        ),
        (
            compute_bound,
            (0 * ones, ones),
            (scale / (f + b_eps / i), scale / (1 + b_eps / (m * i))),
        ),
    ]
    panels = greenup_figure(from_peaks(*FERMI), SETTING, simulated=False).panels
    for panel, (rows, speedups, greenups) in zip(panels, cases, strict=True):
        for bounds, vertical in ((speedups, True), (greenups, False)):
            at = [rule.at for rule in rules(panel, "bound") if rule.vertical is vertical]
            low, high = bounds
            assert at == pytest.approx([low[rows].min(), high[rows].max()], rel=1e-9)
