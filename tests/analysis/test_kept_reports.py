"""What reports, figures and tables hold: every text, place and number of some whole ones.

The tests beside (test_drawings, test_figure_values, test_report) say where single marks must lie.
Here whole reports of small stores stay what they are: sections, tables, figures with all their
series, remarks, and how a file for a paper is laid out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.pick import picks
from analysis.choice.variants import VariantStudy, study
from analysis.energy.applications import application_energies
from analysis.energy.fit import fit
from analysis.figures.codesign import area_figure, front_figure
from analysis.figures.figure import Axis, Figure, Panel, Rule
from analysis.figures.labels import file_stem, kernel_families, setting_label, unit_name
from analysis.figures.paper import FILLS, LINES, POINTS, _drawing, palette
from analysis.figures.rooflines import comparison_figures, platform_figures, roofline_figure
from analysis.figures.trace import trace_figure
from analysis.measurements.observations import observations
from analysis.measurements.power_trace import PowerTrace
from analysis.measurements.variants import studied_variants
from analysis.report.content import MeasurementCounts, ReportContent, SiteReport
from analysis.report.page import render, site_view
from analysis.report.platform_sheets import platform_sheets
from analysis.report.site_figures import site_figures, site_lines, site_sheets
from analysis.report.tables import as_csv, as_tex
from analysis.report.trust import Remark
from analysis.rooflines.platforms import PLATFORMS
from analysis.rooflines.roofline import pair_points, roofline
from campaign.results import open_store
from campaign.results.report import report_content
from dvfs.kernel_instance import KernelInstance, relabelled, short_labels
from dvfs.setting import Setting
from tests.analysis.simulated_tk1 import simulated_columns
from tests.analysis.synthetic import numbered
from tests.analysis.test_applications import machine
from tests.analysis.test_phase_energy import marked_store
from tests.analysis.test_report import Page, store_of
from tests.analysis.test_trust import mixed
from tests.analysis.variant_data import variant_columns
from tests.kept import check_kept, plain


def of_store(make: Callable[[Path], object]) -> ReportContent:
    with TemporaryDirectory() as folder:
        make(Path(folder) / "s")
        return report_content(open_store(Path(folder) / "s").store)


def brief(view: dict[str, object]) -> object:
    """A site's view; its figures are kept apart."""
    return plain({name: value for name, value in view.items() if name != "figures"})


def viewed(make: Callable[[Path], object]) -> object:
    """Each site as the page shows it; when its fit was made is left out."""
    sites = [replace(site, fit_origin="a fit" * bool(site.fit)) for site in of_store(make).sites]
    return [brief(site_view(site, i)) for i, site in enumerate(sites)]


@cache
def jetson() -> SiteReport:
    """The simulated board, of some kernels, with a parameter that names phases."""
    data = observations(simulated_columns("default", per_family=2), "tk1")
    data = data.take(np.isin(data.setting, (1, 3, 6, 8, 11, 15)))
    phases = {"sp-1": "near", "int-256": "far"}
    named = {
        label: KernelInstance("solver", {"phase": phases[label], "n": 8})
        if label in phases
        else KernelInstance(label)
        for label in sorted(set(data.labels.tolist()))
    }
    kernel = np.array([named[label].label for label in data.labels.tolist()], object)
    instances = {instance.label: instance for instance in named.values()}
    data = replace(data, **numbered(kernel), instances=instances)
    found = picks(data)
    return SiteReport(
        site="tk1",
        simulated=True,
        measured=MeasurementCounts(
            ok=len(data), failed={"timed out": 2, "kernel failed": 1}, left=1234,
            without_energy=3, clock_unproven=4, kernels=10, settings=6, nodes=["n2", "n1"],
            meters=["board (node, power)"], node_hours="1.5",
        ),
        data=data,
        fit=fit(data, "choi"),
        fit_origin="default, made today",
        remarks=[Remark(severity="warning", title="t", count="3 rows", text="words", lines=["a"])],
        crossvals=[cross_validate(data, s, "choi") for s in ("leave-one-setting-out", "holdout")],
        picks=found,
        candidates=all_candidates(data, None, {Setting(300.0, 300.0): (0.8, 0.85)}),
        slurm={pick.label: f"--gpu-freq={pick.core_mhz:g}" for pick in found},
        notes=["A note."],
    )  # fmt: skip


def application() -> SiteReport:
    return SiteReport(
        site="lab", simulated=False,
        measured=MeasurementCounts(ok=26, kernels=13, settings=1, nodes=[], meters=[]),
        data=machine(), fit=fit(machine(), "choi", "unit"),
        applications=application_energies(machine(), "choi", "unit"),
    )  # fmt: skip


@cache
def variants() -> tuple[VariantStudy, ...]:
    """Variants of two problems, with counts, counters, and predicted costs."""
    rng = np.random.default_rng(8)
    rows = []
    for n in (960, 1920):
        for mr in (2, 4, 8, 16, 32):
            for order in ("ij", "ji"):
                time_s = n**3 / 1e9 * (1 + 0.3 * abs(np.log2(mr / 8))) * rng.uniform(0.9, 1.2)
                joules = time_s * (20 + 3 * np.log2(mr)) * rng.uniform(0.9, 1.1)
                counts = {"n_dp": 2.0 * n**3, "n_dram": 8.0 * n**3 / mr}
                counters = {"cycles": time_s * 1e9, "instructions": time_s * 2e9 / mr}
                labels = {"occupancy": f"{rng.uniform(0.2, 0.9):.2f}"}
                provenance = json.dumps({"counters": {"events": counters}, "labels": labels})
                params = {"n": n, "mr": mr, "order": order}
                rows.append((params, time_s, joules, counts | {"provenance": provenance}))
    found = studied_variants(variant_columns(rows), "s", {"dgemm": ("mr", "order")})
    return tuple(
        study(of, {
            instance.label: (float(1.1 * of.time_s[i]), float(0.95 * of.energy_j[i]))
            for i, instance in enumerate(of.instances)
        })
        for of in found
    )  # fmt: skip


def of_variants() -> SiteReport:
    return SiteReport(
        site="s", simulated=False, variants=list(variants()),
        measured=MeasurementCounts(ok=20, kernels=20, settings=1, nodes=["n"], meters=[]),
    )  # fmt: skip


def digest(figures: list[Figure]) -> object:
    """Figures without empty fields, so that only what is drawn is kept."""
    return [slim(plain(figure)) for figure in figures]


def slim(value: object) -> object:
    if isinstance(value, dict):
        return {
            k: slim(v) for k, v in value.items()
            if v is not None and v is not False and v not in ("", [], 0.7) and k != ""
        }  # fmt: skip
    return [slim(v) for v in value] if isinstance(value, list) else value


def chips() -> list[Figure]:
    areas, times = np.array([100.0, 200.0, 300.0, 250.0]), np.array([4.0, 2.0, 1.0, 3.0])
    front = np.array([2, 0, 1])
    parts = {
        "a": {"vector units": 60.0, "caches": 0.0, "rest": 40.0},
        "b": {"vector units": 30.0, "caches": 0.0, "rest": 10.0},
    }
    return [
        front_figure(areas, times, front, list("wxyz"), {"GTX": (398.0, 2.5)}, "Study"),
        front_figure(areas, times, front, list("wxyz"), {}, "Study"),
        area_figure(parts, "Study"),
    ]


def machines() -> list[Figure]:
    every = list(PLATFORMS.values())
    lines = [(one.name, one.line("sp")) for one in every[:3]]
    capped = platform_figures(every[1], every[1].constant_w * 1.4)[:1]
    return [*platform_figures(every[0])[-1:], *capped, *comparison_figures(lines, True)]


def bursts(samples: int) -> list[Figure]:
    """A trace with more samples than are drawn, of two channels."""
    time_s = np.linspace(-0.2, 1.3, samples)
    power_w = 10 + 5 * np.sin(40 * time_s) + np.where(np.arange(samples) % 97 == 13, 20.0, 0.0)
    trace = PowerTrace(
        kernel="k n=1", setting=Setting(852.0, 924.0), iterations=1200, time_s=0.01, energy_j=0.1,
        windows_s=np.array([[0.0, 0.4], [0.5, 1.0]]),
        channels={"board": (time_s, power_w), "core": (time_s[::2], power_w[::2] - 12)},
    )  # fmt: skip
    return [trace_figure(trace, "tk1", True)]


def layout(figure: Figure, simulated: bool) -> object:
    """How a file for a paper is laid out: sizes, axes, texts and the look of every mark."""
    drawing = _drawing(figure, simulated)
    drawing.draw_without_rendering()
    result: list[object] = [
        list(drawing.get_size_inches()),
        [text.get_text() for text in drawing.texts],
        [
            [legend._ncols, [text.get_text() for text in legend.get_texts()]]
            for legend in drawing.legends
        ],
    ]
    for axes in drawing.axes:
        if not axes.axison:
            result.append("no axes")
            continue
        marks = [
            [line.get_color(), line.get_linewidth(), str(line.get_linestyle()), line.get_marker(),
             line.get_markersize(), line.get_alpha(), line.get_markeredgewidth(),
             line.get_markeredgecolor(), np.asarray(line.get_xdata(), float)[:2],
             np.asarray(line.get_ydata(), float)[:2]]
            for line in axes.lines
        ]  # fmt: skip
        boxes = [
            [np.asarray(patch.get_bbox().bounds), patch.get_facecolor(), patch.get_linewidth()]
            for patch in axes.patches
            if hasattr(patch, "get_bbox")
        ]
        result.append(
            {
                "title": [
                    axes.get_title(),
                    axes.get_xlabel(),
                    axes.get_xscale(),
                    axes.get_yscale(),
                ],
                "limits": [*axes.get_xlim(), *axes.get_ylim()],
                "x": [[tick.get_text() for tick in axes.get_xticklabels()], axes.get_xticks()],
                "y": [[tick.get_text() for tick in axes.get_yticklabels()], axes.get_yticks()],
                "texts": [
                    [
                        text.get_text(),
                        text.get_position(),
                        text.get_ha(),
                        text.get_va(),
                        getattr(text, "xy", ()),
                    ]
                    for text in axes.texts
                ],
                "lines": [plain(mark) for mark in marks[:6]],
                "boxes": [plain(box) for box in boxes[:3]],
                "minor": len(axes.get_xticks(minor=True)),
                "grid": [bool(line.get_visible()) for line in axes.get_xgridlines()[:1]],
            }
        )
    return plain(result)


def papers() -> object:
    figures = site_figures(jetson()).all
    first = {figure.name: figure for figure in figures}
    names = ("power_trace", "measured_predicted", "pareto", "savings", "roofline_sp_dram")
    chosen = [first[name] for name in names if name in first]
    long = Panel("T", Axis("x", low=0.0, high=1.0), Axis(low=0.0, high=1.0),
                 [Rule(0.5, "tau", "l" * 60, "text"), Rule(0.2, "eps", "m" * 40, "u", True),
                  Rule(2.0, "even", "not drawn")], "D")  # fmt: skip
    chosen += [Figure("one", "c", [long]), Figure("four", "c", [long] * 4), *bursts(300)]
    return {
        "colours": palette(),
        "looks": [LINES, POINTS, FILLS],
        "files": [[figure.name, layout(figure, i % 2 == 0)] for i, figure in enumerate(chosen)],
    }


def names() -> object:
    """Names of kernels, families and settings, as figures and tables have them."""
    several = [
        KernelInstance(name, params)
        for name, params in (
            ("fma_dp", {"x": 8, "n": 1}), ("fma_dp", {"x": 16, "n": 1}), ("fma_sp", {"n": 1}),
            ("copy l2", {}), ("copy dram", {}), ("idle", {}),
        )
    ]  # fmt: skip
    many = [KernelInstance(f"{family} {i}") for family in ("a", "b", "c") for i in range(7)]
    alone = [KernelInstance(name) for name in "abcdefghi"]
    return {
        "families": [kernel_families(of) for of in (several, many, alone, several[:3])],
        "short": [short_labels(several), short_labels(many[:3])],
        "relabelled": [one.label for one in relabelled([*several, *several[:1]])],
        "settings": [setting_label(s) for s in (Setting(852.0, 924.0), Setting(1000.5), Setting())],
        "units": [unit_name(name) for name in ("sp", "dp", "int", "dram", "l2", "shared")],
        "stems": [file_stem(text) for text in ("a b/c", "--x--", "é")],
    }


def page_text() -> object:
    """The words of a page, one after the other."""
    content = ReportContent("a study", "store", "2026-01-01", [jetson(), application()])
    return [text.strip() for text in Page(render(content)).texts if text.strip()]


RESULTS: dict[str, Callable[[], object]] = {
    "view: board": lambda: brief(site_view(jetson(), 0)),
    "view: application": lambda: brief(site_view(application(), 1)),
    "view: variants": lambda: brief(site_view(of_variants(), 0)),
    "view: remarks": lambda: viewed(mixed),
    "view: phases": lambda: viewed(marked_store),
    "view: no energy": lambda: viewed(
        lambda path: store_of(path, "bare", False, (500.0, 700.0, 900.0))),
    "view: one setting": lambda: viewed(lambda path: store_of(path, "x", True, (900.0,), True)),
    "words": page_text,
    "figures: board": lambda: digest(site_figures(jetson(), cap_w=11.0).all),
    "figures: application": lambda: digest(site_figures(application()).applications),
    "figures: variants": lambda: digest(site_figures(of_variants()).variants[:4]),
    "figures: phases": lambda: digest(
        [figure for site in of_store(marked_store).sites for figure in site_figures(site).phases]),
    "figures: chips": lambda: digest(chips()),
    "figures: machines": lambda: digest(machines()),
    "figures: traces": lambda: digest([*bursts(400), *bursts(2500)]),
    "files: tables": lambda: [
        [sheet.name, as_csv(sheet).splitlines()[:3], as_tex(sheet).splitlines()[:7]]
        for site in (jetson(), of_variants(), application()) for sheet in site_sheets(site)],
    "files: machines": lambda: [
        [sheet.caption, as_csv(sheet).splitlines(), as_tex(sheet).splitlines()]
        for sheet in platform_sheets(list(PLATFORMS.values())[:3])],
    "files: drawings": papers,
    "names": names,
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_a_report_stays_what_it_is(name):
    """The same measurements give the same page, figures and tables in a later version."""
    check_kept("reports", name, RESULTS[name]())


def test_a_roofline_of_a_site_is_the_one_that_its_figure_draws():
    """The line that is written into JSON and the one in the drawing are one."""
    site = jetson()
    drawn = site_figures(site)
    known = [line for _, line in drawn.lines]
    assert [line for line in site_lines(site) if line not in known] == []
    points = pair_points(site.data, site.data.settings.index(drawn.lines[0][0].setting))[0]
    line = roofline(site.data, points.operation, points.memory, site.data.settings.index(
        points.setting), site.fit)  # fmt: skip
    (curve,) = [s for s in roofline_figure(points, line, True).panels[0].series
                if getattr(s, "style", "") == "model"]  # fmt: skip
    np.testing.assert_allclose(curve.y, line.speed_ops_s(curve.x) / 1e9)
