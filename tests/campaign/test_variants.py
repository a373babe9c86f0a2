"""``campaign variants``: Table II of Anzt et al. 2015, imported, and a space that was planned."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from analysis.choice.variants import study
from analysis.figures.paper import figure_files
from analysis.figures.svg import figure_svgs
from analysis.measurements.variants import kernel_variants
from analysis.report.page import render
from analysis.report.site_figures import site_figures, site_sheets
from analysis.report.tables import as_csv
from campaign.launch.drive import plan_record
from campaign.plan.plan import make_plan
from campaign.results import open_store
from campaign.results.report import report_content
from campaign.store import layout
from campaign.store.planned import write_planned
from campaign.verbs.command_line import main
from campaign.verbs.variants import print_study
from tests.analysis.variant_data import variant_columns
from tests.commands import answers, prints, refuses, run
from tests.stores import store_of_table

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests/data/anzt2015/table-2.csv"
MAP = ROOT / "examples/k20x-table-2.map.toml"
KEYS = (
    "n estimated_energies fastest least_energy hull pareto alpha same_energy_slower_pct "
    "same_time_more_energy_factor metrics"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("variants") / "store")
    assert main(["import", str(TABLE), "--map", str(MAP), "--store", path]) == 0
    return path


def test_table_2_is_the_hull_in_the_papers_order(store):
    """The paper's rows with their arcs; what section 3 says of them, as it comes out right: the
    fastest takes 30.63 J, 2.2 % more than the least, not 30.87 J and 3 %."""
    shown = answers("variants", store)
    assert list(shown) == KEYS.split()
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert shown["n"] == len(shown["hull"]) == len(rows) == 14
    for corner, row in zip(shown["hull"], rows, strict=True):
        assert corner["arc"] == row.pop("arc")
        assert corner["rate_per_s"] == pytest.approx(1e9 * float(row.pop("gflops")))
        assert corner["efficiency_per_j"] == pytest.approx(1e9 * float(row.pop("gflops_per_w")))
        assert corner["params"] == {name: int(value) for name, value in row.items()}
        assert corner["kernel"] == "dgemm"
        assert corner["simulated"] is False
    fastest, least = shown["hull"][:2]
    assert shown["fastest"] == {name: v for name, v in fastest.items() if name != "arc"}
    assert shown["least_energy"]["params"] == least["params"]
    assert fastest["energy_j"] == pytest.approx(30.63, abs=0.005)
    assert fastest["energy_j"] / least["energy_j"] - 1 == pytest.approx(0.022, abs=0.0005)
    assert [variant["params"] for variant in shown["pareto"]] == [
        fastest["params"],
        least["params"],
    ]


def test_weights_and_spreads_of_table_2(store):
    """Eq. 2 switches once, from the least energy to the fastest; the spreads are those of the
    lines of figure 5 across the hull."""
    shown = answers("variants", store, "--site", "k20x", "--kernel", "dgemm")
    ends = {name: [(e["from"], e["to"]) for e in own] for name, own in shown["alpha"].items()}
    assert list(ends) == ["relative", "s_j"]
    assert ends["relative"] == [(0, pytest.approx(0.123, abs=5e-4)), (ends["relative"][0][1], 1)]
    assert ends["s_j"] == [(0, pytest.approx(0.965, abs=5e-4)), (ends["s_j"][0][1], 1)]
    for entries in shown["alpha"].values():
        assert [e["params"] for e in entries] == [
            shown["least_energy"]["params"],
            shown["fastest"]["params"],
        ]
    # Between (656, 4.4415) and (703, 4.5754) of the upper arc, and (633, 3.2919) and
    # (843, 4.0591) of the lower one.
    slower = 904 / (656 + 47 * (4.4867 - 4.4415) / (4.5754 - 4.4415)) - 1
    assert (
        shown["same_energy_slower_pct"]
        == pytest.approx(100 * slower)
        == pytest.approx(34.55, abs=0.05)
    )
    factor = 4.5849 / (3.2919 + (782 - 633) / (843 - 633) * (4.0591 - 3.2919))
    assert shown["same_time_more_energy_factor"] == pytest.approx(factor)
    assert factor == pytest.approx(1.195, abs=5e-4)
    metrics = {entry["name"]: entry for entry in shown["metrics"]}
    assert metrics["blk_k"]["kind"] == "parameter"
    assert set(metrics["blk_k"]["correlation"]) == {"rate", "efficiency", "product"}
    assert "arc" not in metrics


def test_the_text_fits_a_screen_and_all_prints_the_rest(store, capsys):
    text = prints("variants", store)
    words = " ".join(text.split())
    assert "run time varies by up to 34.6 %" in words
    assert "energy varies by up to 19.5 %" in words
    assert max(map(len, text.splitlines())) <= 100
    left_out = {"status": "kernel failed"}
    rows = [({"tile": i}, 1 + i, 50 - i, left_out if i == 30 else {}) for i in range(31)]
    many = study(kernel_variants(variant_columns(rows), "s", "dgemm"))
    print_study(many)
    text = capsys.readouterr().out
    assert "and 10 more (--all prints them)" in text
    front = text[text.index("Pareto front") : text.index("least alpha")]
    assert front.count("tile=") == 20
    assert "left out: 1 kernel failed" in text
    assert "work: 1 run" in text
    print_study(many, every_row=True)
    text = capsys.readouterr().out
    assert "more (--all" not in text
    front = text[text.index("Pareto front") : text.index("least alpha")]
    assert front.count("tile=") == 30


WRONG = {
    "--kernel gemm": "--kernel: unknown kernel 'gemm'; did you mean 'dgemm'?",
    "--problem dim_m": "--problem: found 'dim_m'; must be NAME=VALUE, several with",
    "--problem dim_m=17": "--problem: found dim_m=17; dim_m is one of 16, 32, 48, 64",
    "--setting x": "--setting: found 'x'; must be CORE,MEM in MHz",
    "--setting 9,9": "--setting: no variant was measured at 9/9 MHz; there are 732,2600",
    "--site k20": "--site: unknown site 'k20'; did you mean 'k20x'?",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_usage_is_one_message(store, capsys, words):
    capsys.readouterr()
    assert main(["variants", store, *words.split()]) == 2
    out, err = capsys.readouterr()
    assert WRONG[words] in err
    assert (out, err.count("\n")) == ("", 1)


def test_figures_and_report_have_the_variants(store):
    content = report_content(layout.open_store(Path(store)))
    figures = {figure.name: figure for figure in site_figures(content.sites[0]).variants}
    for name, text in (("hull", "Gflop/J: dgemm"), ("correlations", "n_b"), ("metrics", "by n_b")):
        figure = figures[f"variants_dgemm_{name}"]
        assert text in figure_files(figure, False, ["svg"])["svg"].decode()
        assert any(text in svg for svg in figure_svgs(figure))
    sheets = {sheet.name: as_csv(sheet) for sheet in site_sheets(content.sites[0])}
    rows = list(csv.DictReader(sheets["variants_dgemm_hull"].splitlines()))
    assert [row["arc"] for row in rows] == ["upper"] * 7 + ["lower"] * 7
    assert float(rows[0]["rate_per_s"]) == pytest.approx(904e9)
    (least, _) = csv.DictReader(sheets["variants_dgemm_alpha"].splitlines())
    assert float(least["s_j_to"]) == pytest.approx(0.9651, abs=1e-4)
    page = render(content)
    assert ">Variants" in page
    assert page.count("14 variants of dgemm at 732/2600 MHz") > 3
    assert "which is 15.6 % slower" in page
    assert "is up to 34.6 % slower" in page


SITE = """\
name = "board"
[partitions.local]
scheduler = "local"
"""
CAMPAIGN = """\
name = "c"
[[sites]]
site = "site.toml"
[[kernels]]
kernel = "dgemm"
params = { n = [64, 96], threads = 1 }
[kernels.space]
mr = [8, 16]
nr = [1, 2, 4]
where = ["mr * nr < 64"]
"""


LOAD = """\
[[kernels]]
kernel = "load"
params = { level = "l2" }
"""


def test_a_space_says_what_is_tuned(tmp_path, capsys):
    """The planned points with times made up: each size is a problem of five variants, and of the
    larger the one of nr = 1 and mr = 16 ran at clocks that nothing showed."""
    for name, text in (("site.toml", SITE), ("c.toml", CAMPAIGN)):
        (tmp_path / name).write_text(text)
    plan = make_plan(tmp_path / "c.toml")
    lines = ["point_id,site,partition,kernel,params,core_mhz,time_s,energy_j,n_dp,simulated,status"]
    for point in plan.points:
        own = json.loads(point.params)
        n, mr, nr = own["n"], own["mr"], own["nr"]
        status = "clock unproven" if (n, mr, nr) == (96, 16, 1) else "ok"
        cells = point.params.replace('"', '""')
        costs = f"{n / mr},{n * nr},{2 * n**3}"
        lines.append(f'{point.id},board,local,dgemm,"{cells}",1000,{costs},true,{status}')
    path = store_of_table(tmp_path, lines)
    store = layout.open_store(path)
    write_planned(store, plan_record(plan, store), {})
    said = refuses("variants", path)
    assert "dgemm was measured for 2 problems; name one: --problem n=64 or --problem n=96" in said
    code, out, err = run("variants", path, "--problem", "n=96", "--json")
    assert code == 0
    assert err == "left out: 1 clock unproven\n"
    shown = json.loads(out)
    assert shown["n"] == 4
    assert (shown["fastest"]["time_s"], shown["fastest"]["simulated"]) == (6.0, True)
    studied = open_store(path).variants("board", problem={"n": 96})
    assert studied.study.of.problem["n"] == 96
    assert sorted(studied.to_pandas()["params.mr"]) == [8, 8, 8, 16]
    site = report_content(store).sites[0]
    assert [one.of.problem["n"] for one in site.variants] == [64, 96]
    print_study(studied.study)
    said = capsys.readouterr().out
    assert said.startswith("board (simulated): dgemm, 4 variants at 1000 MHz")
    assert "left out: 1 clock unproven" in said
    # Later files, one of `campaign next` and one of another kernel, declare no space of it.
    points = CAMPAIGN.partition("[kernels.space]")[0].replace("1 }", "1, mr = 8, nr = 1 }")
    for text in (f'part_of = "c.toml"\n{points}', CAMPAIGN.partition("[[kernels]]")[0] + LOAD):
        (tmp_path / "later.toml").write_text(text)
        later = make_plan(tmp_path / "later.toml")
        write_planned(store, plan_record(later, store), {})
        again = report_content(store).sites[0].variants
        assert [one.of.problem["n"] for one in again] == [64, 96]


def test_a_stencil_under_power_limits_is_studied_without_predictions(tmp_path):
    """Its variants' costs are modelled by clocks alone."""
    lines = ["site,kernel,params,core_mhz,power_limit_w,time_s,energy_j"]
    for tile in (4, 8, 16, 32):
        own = {"stencil": "j1d", "size_1": 999, "steps": 64, "tiling": "hexagonal", "tile_t": 4}
        cells = json.dumps(own | {"tile_1": tile}).replace('"', '""')
        lines += [f'gpu,stencil,"{cells}",1000,{w},{1 / tile},{w / tile}' for w in (100, 200)]
    store = store_of_table(tmp_path, lines)
    shown = answers("variants", store)
    assert (shown["n"], shown["fastest"]["params"]["tile_1"]) == (4, 32)
    assert shown["fastest"]["predicted_s"] is None
    assert main(["report", str(store), "-o", str(tmp_path / "report.html")]) == 0


def test_the_predicted_least_energy_is_among_the_predicted_ones(capsys):
    """The first variant has a predicted time alone."""
    rows = [({"tile": i}, 1.0 * i, 9.0 - i) for i in (1, 2, 3, 4)]
    of = kernel_variants(variant_columns(rows), "s", "dgemm", tuned=("tile",))
    costs = {1: math.nan, 2: 7.0, 3: 4.0, 4: 6.0}
    made = study(of, {f"dgemm tile={i}": (1.0 * i, costs[i]) for i in costs})
    print_study(made)
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "predicted least energy" in x)
    assert line.split()[3] == "tile=3"
