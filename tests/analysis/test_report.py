"""The report: one file that says what was measured, and never more than that."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from argparse import Namespace
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import product

import numpy as np
import pytest

from analysis.choice.candidates import SettingCandidates, all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.pick import Pick, picks
from analysis.energy.fit import fit
from analysis.figures.figure import Scale, log_scale, tick_text
from analysis.figures.labels import kernel_families, natural
from analysis.figures.predictions import error_histogram
from analysis.figures.svg import svg
from analysis.measurements.campaign_energy import EnergyFactor
from analysis.measurements.observations import kernel_names, observations
from analysis.report.content import MeasurementCounts, ReportContent, SiteReport
from analysis.report.heat_maps import heat_maps, level
from analysis.report.page import render
from analysis.report.site_report import measurement_counts
from analysis.report.tables import decimals, fixed, scaled
from campaign.results import open_store
from campaign.results.report import report_content
from campaign.store.compaction import compact
from campaign.store.layout import Store
from campaign.store.measurement import Measurement, Trace
from campaign.verbs.report import run as report
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.simulated_tk1 import simulated_columns
from tests.analysis.synthetic import numbered
from tests.frames import measured_columns
from tests.points import a_point
from tests.report_tables import Tables
from tests.simulated_runs import simulate
from tests.stores import stored

EVIL = "<script>alert(1)</script>"
EVIL_KERNEL = '<img src="x" onerror=alert(2)>'
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """What a browser would see: tags with attributes, and the text outside style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.style = ""
        self.script = ""
        self.parts: dict[str, list[str]] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.parts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if "style" in self.open:
            self.style += data
            return
        if "script" in self.open:
            self.script += data
            return
        self.texts.append(data)
        for tag in set(self.open):
            self.parts[tag][-1] += data

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def measured(n=0, **changes):
    counts = MeasurementCounts(
        ok=n, kernels=10, settings=16, nodes=["n1"], meters=["board (node, power)"]
    )
    return replace(counts, **changes)


def content(*sites):
    return ReportContent("a study", "store", "2026-01-01 00:00 UTC", list(sites))


def exact(kernel, settings, energy_j, time_s, measured, measured_j):
    """Candidates whose energies and times are surely these."""
    return SettingCandidates(
        **kernel.as_dict(),
        settings=settings,
        energy_j=energy_j,
        time_s=time_s,
        measured=measured,
        measured_j=measured_j,
        energy_draws_j=energy_j[:, None],
        time_draws_s=time_s[:, None],
        time_error_s=np.zeros(len(settings)),
    )


def sure_pick(name, setting, energy_j, time_s, saving_pct, slowdown_pct):
    """A pick that surely saves this, and surely is the best."""
    return Pick(
        **KernelInstance(name).as_dict(),
        setting=setting,
        energy_j=energy_j,
        time_s=time_s,
        saving_pct=saving_pct,
        slowdown_pct=slowdown_pct,
        measured=True,
        saving_low_pct=saving_pct,
        saving_high_pct=saving_pct,
        best_probability=1.0,
        expected_loss_pct=0.0,
        race_to_halt="worse" if slowdown_pct else "right",
    )


@pytest.fixture(scope="module")
def tk1():
    """Rows of the simulated Jetson TK1, with a site and a kernel whose names are markup."""
    data = observations(simulated_columns("off", per_family=4), "tk1")
    kernel = np.where(data.labels == "dp-1", EVIL_KERNEL, data.labels)
    return replace(data, site=EVIL, **numbered(kernel))


@pytest.fixture(scope="module")
def site(tk1):
    return SiteReport(
        site=EVIL,
        simulated=True,
        measured=measured(len(tk1), failed={"timed out": 2, "kernel failed": 1}, left=5),
        data=tk1,
        fit=fit(tk1),
        crossvals=[cross_validate(tk1, s) for s in ("leave-one-setting-out", "holdout")],
        picks=picks(tk1),
        candidates=all_candidates(tk1, volts={Setting(108.0, 300.0): (0.76, 0.824)}),
        slurm={k: f"--gpu-freq=1,memory={k}" for k in kernel_names(tk1)},
    )


@pytest.fixture(scope="module")
def html(site):
    return render(content(site))


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_names_come_out_as_text(html, page):
    assert EVIL not in html
    assert EVIL_KERNEL not in html
    assert EVIL in page.text
    assert EVIL_KERNEL in page.text
    assert page.count("img") == 0
    assert page.count("script") == 1
    assert page.script == (files("analysis.report") / "page.js").read_text(encoding="utf-8")


def test_names_inside_figures_are_escaped_too(page):
    assert any(EVIL_KERNEL in title for title in page.parts["title"])
    assert any(EVIL in (attrs["aria-label"] or "") for tag, attrs in page.tags if tag == "svg")


def test_the_file_loads_nothing(html, page):
    assert "://" not in html
    assert "url(" not in page.style
    assert "@import" not in page.style
    assert {"link", "iframe", "object", "image", "use"}.isdisjoint(tag for tag, _ in page.tags)
    assert not re.search(r"fetch|XMLHttp|import\(|eval|innerHTML|document\.write", page.script)
    for _, attrs in page.tags:
        assert not {"src", "srcset", "data", "xlink:href", "style"} & set(attrs)
        assert not any(name.startswith("on") for name in attrs)
        assert (attrs.get("href") or "#").startswith("#")


def test_only_its_own_style_and_script_are_allowed(page):
    (policy,) = (a["content"] for _, a in page.tags if "http-equiv" in a)
    hashes = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in (("style", page.style), ("script", page.script))
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'"
    )


def test_it_is_light_and_dark(page):
    assert "prefers-color-scheme: dark" in page.style
    assert not any(
        re.search(r"#[0-9a-f]{3,6}\b", attrs.get(name) or "")
        for _, attrs in page.tags
        for name in ("fill", "stroke")
    )


def test_the_same_content_gives_the_same_file(site, html):
    assert render(content(site)) == html


def test_simulated_is_said_wherever_a_number_or_figure_is(page):
    assert "Simulated:" in page.text
    for part in ("h2", "h3", "figcaption"):
        assert page.parts[part]
        assert all("simulated" in text for text in page.parts[part]), part
    captions = [text for text in page.parts["caption"] if text != "Summary"]
    assert captions
    assert all("simulated" in text for text in captions)
    assert f"{EVIL} (simulated)" in page.text


def test_nothing_is_called_simulated_on_a_real_site(site):
    real = replace(
        site,
        simulated=False,
        site="real",
        data=replace(site.data, simulated=False),
        crossvals=[replace(c, simulated=False, site="real") for c in site.crossvals],
    )
    assert "simulated" not in render(content(real)).lower()


def test_what_was_measured_is_counted(page):
    assert "failed 3 (2 timed out, 1 kernel failed)" in page.text
    assert "left 5" in page.text
    assert "board (node, power)" in page.text


def test_coefficients_stand_with_interval_and_unit(page):
    # The simulated site: 27.3 pJ/V^2 a flop, 369.5 a byte of DRAM; without noise, exactly.
    assert re.search(r"c0_sp\s*27\.30\s*27\.\d\d\s*27\.\d\d\s*0\.\d\s*pJ/V² per flop", page.text)
    assert re.search(r"c0_dram\s*369\.5", page.text)
    assert "condition number" in page.text
    assert "the site's table" in page.text


def test_the_figures_are_there(page):
    # sp and dp and int on dram, sp on shared, sp on l2: three panels each; two cross-validations.
    labels = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
    for start, n in (
        ("Roofline", 5),
        ("Arch line", 5),
        ("Power line", 5),
        ("Predicted", 2),
        ("Histogram", 2),
        ("Error by", 2),
        ("Measured and predicted energy of F", 2),
        ("Energy shares", 1),
        ("Computation, data and constant power", 2),
        ("Greenup", 3),
        ("Energy saved by the picks by family", 1),
        ("Additional run time by family", 1),
        ("Energy against time", 6),
        ("Fraction of the roof, %", 1),
    ):
        assert sum(label.startswith(start) for label in labels) == n, start
    # Two cross-validations, errors and cases; time against energy and greenup; two breakdowns;
    # savings; fractions of the roof.
    assert page.count("figure") == 5 + 4 + 2 + 2 + 1 + 1


def test_predictions_all_stand_in_the_scatter(html, site):
    clouds = re.findall(r'<path class="cloud dot" d="([^"]*)"', html)
    assert [cloud.count("M") for cloud in clouds] == [c.n for c in site.crossvals]


def test_every_grid_marks_its_pick_and_fastest(html, site):
    grids = re.findall(r'<table class="grid">.*?</table>', html, re.DOTALL)
    assert len(grids) == len(site.candidates)
    for grid in grids:
        classes = [c.split() for c in re.findall(r'<td class="([^"]*)"', grid)]
        assert sum("pick" in c for c in classes) == 1
        assert sum("fast" in c for c in classes) == 1
        # One legal setting was not measured: it is predicted, and shown so.
        assert sum("guess" in c for c in classes) == 1
        assert len(classes) == 17


def test_heat_maps_mark_the_fastest_setting_that_savings_are_against(site):
    """Of equally fast settings that of the highest clocks, measured or not."""
    label, among = next(iter(site.candidates.items()))
    order = sorted(range(len(among.settings)), key=lambda i: among.settings[i].clocks)
    tied = np.zeros(len(order), bool)
    tied[order[-3:]] = True
    time_s = np.where(tied, among.time_s.min(), 2.0 * among.time_s.max())
    measured_at = np.ones(len(order), bool)
    measured_at[order[-1]] = False
    among = replace(among, time_s=time_s, measured=measured_at, time_error_s=np.zeros(len(order)))
    ((_, (shown,)),) = heat_maps(replace(site, candidates={label: among}), {label: "one"})
    marked = [
        (core, mem)
        for mem, cells in shown.rows
        for core, cell in zip(shown.core, cells, strict=True)
        if cell is not None and "fast" in cell.style.split()
    ]
    assert marked == [tuple(f"{mhz:g}" for mhz in among.settings[order[-1]].clocks)]


def test_of_a_thousand_kernels_those_with_the_most_energy_have_heat_maps(site):
    """The page of a site stays small; kernel k of a thousand spends k joules at each setting."""
    among = next(iter(site.candidates.values()))
    ones = np.ones(len(among.settings))
    every = {
        f"k{k:04d}": replace(among, label=f"k{k:04d}", energy_j=k * ones, measured_j=k * ones)
        for k in range(1, 1001)
    }
    ((_, shown),) = heat_maps(replace(site, candidates=every), dict.fromkeys(every, "one"))
    n = 10_000 // len(among.settings)
    assert [one.kernel for one in shown] == [f"k{k:04d}" for k in range(1001 - n, 1001)]


def test_picks_carry_their_srun_options(page, site):
    assert all(flags in page.text for flags in site.slurm.values())


def test_a_site_without_meters_shows_times_and_no_energy(tk1):
    timing = replace(tk1, site="bare", simulated=False, energy_j=np.full(len(tk1), math.nan))
    bare = SiteReport(
        site="bare",
        simulated=False,
        measured=measured(len(timing), without_energy=len(timing), meters=[]),
        why_no_fit="their energy is missing: this site has no meter",
        timing=timing,
    )
    page = Page(render(content(bare)))
    assert "Energy is missing" in page.text
    assert "this site has no meter" in page.text
    labels = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg"]
    assert len(labels) == 6
    assert all(label.startswith(("Roofline in time", "Fraction of the roof")) for label in labels)
    headers = " ".join(page.parts["th"])
    assert not re.search(r"\b[mµk]?J\b|\bW\b|pJ|saves", headers)
    assert page.parts["td"][4:9] == ["–"] * 5
    assert "nan" not in page.text.replace("bare", "").lower().split()
    for word in ("Arch line", "Power line", "Picks", "Coefficients"):
        assert word not in page.text
    assert page.parts["caption"][1].startswith("Times of")


def test_a_clock_that_cannot_be_set_is_as_found(tk1):
    among = exact(
        KernelInstance("k"),
        [Setting(800.0), Setting(1200.0)],
        np.array([1.0, 2.0]),
        np.array([2.0, 1.0]),
        np.array([True, True]),
        np.array([1.1, 2.0]),
    )
    chosen = sure_pick("k", Setting(800.0), 1.0, 2.0, 50.0, 100.0)
    site = SiteReport(
        site="cpu", simulated=False, measured=measured(2), picks=[chosen], candidates={"k": among}
    )
    html = render(content(site))
    assert "nan" not in html
    assert '<th scope="row">as found</th>' in html


@pytest.mark.parametrize("price", [(), (EnergyFactor(of="cost", unit="EUR", per_kwh=[0.25]),)])
def test_energies_of_a_site_are_in_kwh_and_cost_what_a_kwh_costs(price):
    """1 MJ measured. Kernel a: 2 J in 1 s where it is fastest, 1 J in 2 s where it is picked; b
    takes 30 J in 5 s, and none is saved. So 1,000 hours in equal parts take 1 kWh + 3 kWh, and the
    picks half a kWh less."""
    chosen = [
        sure_pick("a", Setting(800.0, 400.0), 1.0, 2.0, 50.0, 100.0),
        sure_pick("b", Setting(800.0, 400.0), 30.0, 5.0, 0.0, 0.0),
    ]
    counts = measured(4, energy_j=1e6)
    site = SiteReport(site="s", simulated=False, measured=counts, picks=chosen, factors=price)
    html = render(content(site))
    shown = re.findall(r"([\d.]+) kWh(?: \(([\d.]+) EUR\))?", Page(html).text)
    kwh = [4.0, 0.5, 1 / 3.6]
    assert [float(found) for found, _ in shown] == pytest.approx(kwh, rel=2e-3)
    costs = [float(found) for _, found in shown if found]
    assert costs == pytest.approx([k * 0.25 for k in kwh] if price else [], rel=2e-3)
    headings, *rows = Tables(html).by_caption["The pick of each of 2 kernels"]
    at = next(i for i, heading in enumerate(headings) if heading.endswith("kWh"))
    assert [float(row[at]) for row in rows if len(row) > 1] == [1.0, 0.0]


def test_the_price_in_a_site_file_is_that_of_what_was_measured(tmp_path):
    builtin = files("sites") / "builtin" / "jetson-tk1.toml"
    price = '\n[energy]\nprice_per_kwh = 0.31\ncurrency = "CHF"\n'
    price += 'price_source = "contract"\nprice_year = 2026\n'
    (tmp_path / "s.toml").write_text(builtin.read_text(encoding="utf-8") + price)
    (tmp_path / "c.toml").write_text(
        'name = "c"\n[[sites]]\nsite = "s.toml"\n[settings]\nchoose = "random"\ncount = 3\n'
        '[[kernels]]\nkernel = "sp_fma"\nparams = { level = "l2", ops_per_word = [1, 16] }\n'
    )
    store = tmp_path / "store"
    simulate(tmp_path / "c.toml", store)
    rows = open_store(store).dataset
    kwh = float((rows["energy_j"] * rows["iterations"]).sum()) / 3.6e6
    (site,) = report_content(Store(store)).sites
    assert site.factors == [
        EnergyFactor(of="cost", unit="CHF", per_kwh=(0.31,), source="contract", year=2026)
    ]
    assert site.measured.energy_j == pytest.approx(kwh * 3.6e6, rel=1e-12)
    # A later file without the site, as `campaign next` writes it, does not take the price away.
    other = builtin.read_text(encoding="utf-8").replace('name = "jetson-tk1"', 'name = "other"', 1)
    (tmp_path / "s.toml").write_text(other)
    simulate(tmp_path / "c.toml", store)
    priced = {one.site: one.factors for one in report_content(Store(store)).sites}
    assert priced == {"jetson-tk1": site.factors, "other": []}


def test_equal_meters_of_several_nodes_are_one():
    """As ranks on several nodes name them, and as points on one node each do."""
    board = {"domain": "node", "kind": "power", "period_s": 0.1}
    slow = board | {"period_s": 1.0}
    rows = [("n1", {"ipmi:board": board}), ("n2", {"ipmi:board": board, "p:0": board})]
    rows += [("n1", {"n3/ipmi:board": board, "n4/ipmi:board": slow, "n5/ipmi:board": board})]
    rows += [(f"m{i}", {"p:0": board | {"energy_j": i}}) for i in range(40)]

    def shown(some):
        columns = measured_columns(
            {"node": node, "meters": json.dumps(meters), "iterations": 1, "point_id": "x"}
            for node, meters in some
        )
        return measurement_counts(columns, np.ones(len(some), bool), ()).meters

    assert shown(rows[:1]) == ["ipmi:board (node, power, every 100 ms)"]
    assert [text.partition(") on ")[0::2] for text in shown(rows)] == [
        ("ipmi:board (node, power, every 100 ms", "n1, n2, n3, n5"),
        ("ipmi:board (node, power, every 1e+03 ms", "n4"),
        ("p:0 (node, power, every 100 ms", "41 nodes"),
    ]


def test_an_unmeasured_site_and_an_empty_store_have_a_page_too():
    planned = SiteReport(
        site="later",
        simulated=True,
        measured=measured(0, left=9),
        why_no_fit="no measurements of site later",
    )
    assert "No measurements of site later." in Page(render(content(planned))).text
    assert "holds no measurements" in Page(render(content())).text


def test_many_kernels_stay_within_three_megabytes(site):
    settings = [Setting(float(c), float(m)) for c in range(15) for m in range(10)]
    values = np.linspace(1.0, 3.0, len(settings))
    kernels = [KernelInstance(f"family{i % 7}", {"i": i}) for i in range(140)]
    among = {
        kernel.label: exact(kernel, settings, values, values[::-1], values < 2, values)
        for kernel in kernels
    }
    html = render(content(replace(site, candidates=among)))
    assert len(html.encode()) < 3e6
    assert Page(html).count("details") >= 7


TRACE = Trace("m:board", "node", "W", np.array([0, 10**8], np.int64), np.array([6.0, 6.0]))


def store_of(folder, site, energy_j, settings, traced=False):
    """A store with one site: four kernels of known counts, at some settings.

    ``traced``: with a trace of 6 W of every measurement.
    """
    made = []
    for (i, intensity), core_mhz in product(enumerate((0.5, 2.0, 8.0, 32.0)), settings):
        counts = {"sp": intensity * 1e8, "dram": 1e8}
        time_s = max(counts["sp"] / (2e8 * core_mhz), 5e-3)
        energy = counts["sp"] * 30e-12 + 0.04 + 6 * time_s if energy_j else math.nan
        board = {"domain": "node", "kind": "power", "period_s": 0.001, "energy_j": energy}
        made.append(
            Measurement(
                point=a_point("k", site=site, label=f"sp{i}", setting=Setting(core_mhz, 900.0)),
                status="ok",
                clock_proof="read back",
                node="n1",
                time_s=time_s,
                iterations=9,
                energy_j=energy,
                core_v=1.0,
                mem_v=1.0,
                voltage_origin="table",
                counts=counts,
                meters={"m:board": board} if energy_j else {},
                provenance={"simulated": False},
                traces=(TRACE,) * traced,
            )
        )
    failed = a_point("k", site=site, label="bad", setting=Setting(1000.0, 900.0))
    made.append(Measurement(point=failed, status="wrong result", text="sum is off"))
    return stored(folder, *made)


def page_of(folder, *store):
    store_of(folder / "s", *store)
    output = folder / "report.html"
    assert (
        report(Namespace(store=str(folder / "s"), output=str(output), fit="default", json=False))
        == 0
    )
    return Page(output.read_text(encoding="utf-8"))


def test_a_store_is_reported(tmp_path, capsys):
    page = page_of(tmp_path, "lab", True, (500.0, 700.0, 900.0, 1000.0))
    assert str(tmp_path / "report.html") in capsys.readouterr().out
    assert "failed 1 (1 wrong result)" in page.text
    assert "m:board (node, power, every 1 ms)" in page.text
    for caption in ("Summary", "The pick of each of 4 kernels", "Coefficients", "Balance points"):
        assert caption in page.parts["caption"]
    assert "--cpu-freq=" in page.text
    assert "holdout" in page.text


def test_one_setting_leaves_nothing_to_pick(tmp_path):
    page = page_of(tmp_path, "lab", True, (1000.0,))
    assert "No picks: this site was measured at one setting" in page.text
    assert "No cross-validation by leave-one-setting-out" in page.text
    assert not any("pick of each" in caption for caption in page.parts["caption"])
    assert "Coefficients" in page.parts["caption"]


def test_a_store_without_energies_is_reported_with_times(tmp_path):
    page = page_of(tmp_path, "bare", False, (500.0, 1000.0))
    assert "Energy is missing" in page.text
    assert "of these without energy 8" in page.text
    assert any(caption.startswith("Times of 4 kernels") for caption in page.parts["caption"])
    assert "nan" not in page.text


def test_numbers_are_written_with_sense():
    assert [fixed(v) for v in (0.0, 1234567.0, 0.00123456, math.nan, math.inf, 1e-9)] == [
        "0",
        "1,234,567",
        "0.001235",
        "–",
        "∞",
        "1.000e−9",
    ]
    assert [decimals(v) for v in (-0.04, 0.05, -1.26, math.nan)] == ["0.0", "0.1", "−1.3", "–"]
    assert scaled([0.0123, 0.00456], "J") == ("mJ", ["12.30", "4.56"])
    assert scaled([math.nan], "J") == ("J", ["–"])
    assert [tick_text(v) for v in (0.25, 1000.0, 1e-6, 2e6, -5.0)] == [
        "0.25",
        "1,000",
        "10⁻⁶",
        "2·10⁶",
        "−5",
    ]


def test_axes_hold_their_values():
    scale = log_scale([3.0, 3.0])
    assert 0.0 < scale.at(3.0) < 1.0
    assert scale.ticks()
    assert [text for _, text in Scale(0.0, 20.0).ticks()] == ["0", "5", "10", "15", "20"]
    assert [text for _, text in log_scale([1e-6, 1e3]).ticks()][:2] == ["10⁻⁶", "10⁻⁴"]


@pytest.mark.parametrize("reach", [1e-9, 0.3, 7.0, 600.0])
def test_the_histogram_counts_every_error(reach):
    error = np.linspace(-reach, reach, 101)
    counts = re.findall(r"%: (\d+)</title>", svg(error_histogram(error, "x")))
    assert sum(map(int, counts)) == 101


def test_grids_have_nine_shades():
    assert [level(v) for v in (0.0, 0.4, 3.0, 15.0, 1000.0)] == [0, 0, 2, 4, 8]


def test_kernels_are_grouped_by_name():
    kernels = [KernelInstance("a", {"x": 1}), KernelInstance("a", {"x": 2})]
    assert kernel_families([*kernels, KernelInstance("b", {"x": 1})]) == {
        "a x=1": "a",
        "a x=2": "a",
        "b x=1": "b",
    }
    flat = [f"fma_{i}" for i in range(9)] + ["p", "q", "r", "s"]
    assert set(kernel_families([KernelInstance(name) for name in flat]).values()) == {
        *("fma", "p", "q", "r", "s")
    }
    solvers = [KernelInstance(f"my_solver_{i % 2}_{i}") for i in range(40)]
    assert {*kernel_families(solvers).values()} == {"my_solver_0", "my_solver_1"}
    flat = [KernelInstance(f"my_solver_{i}") for i in range(96)]
    assert {*kernel_families(flat).values()} == {"my_solver"}
    many = list("pqrstuvwxyzabcdefg")
    assert "others" in kernel_families([KernelInstance(name) for name in many]).values()
    assert sorted(["x=16", "x=8"], key=natural) == ["x=8", "x=16"]


def test_damaged_traces_leave_a_report_of_the_rest(tmp_path):
    store = store_of(tmp_path / "s", "lab", True, (500.0, 700.0, 900.0, 1000.0), traced=True)
    compact(store)
    (whole,) = report_content(store).sites
    assert whole.trace is not None
    assert whole.trace.channels["m:board"][1].tolist() == [6.0, 6.0]
    (shard,) = (path for path in store.traces.rglob("c/*") if path.parent.parent.name == "value")
    shard.unlink()
    (site,) = report_content(store).sites
    assert site.trace is None
    assert any("traces of this site cannot be read" in note for note in site.notes)
    assert len(site.picks) == len(whole.picks) == 4
    page = Page(render(report_content(store)))
    assert "cannot be read" in page.text
