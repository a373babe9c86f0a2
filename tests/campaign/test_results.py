"""The Python interface: what it returns, beside what the command line prints."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from analysis.choice.candidates import all_candidates
from analysis.measurements.observations import kernel_names
from analysis.report.site_figures import roofline_lines, site_figures
from campaign.plan.profile_file import Profile
from campaign.results import Results, open_store
from campaign.results.findings import finding_texts
from campaign.results.fits import NoKeptFitError, Request, data_id, request_of
from campaign.results.predictions import faster_than_measured
from campaign.results.report import report_content
from campaign.results.tables import SiteFinding
from campaign.store.compaction import compact
from campaign.store.layout import NotAStoreError
from campaign.store.layout import open_store as open_layout
from campaign.store.site_record import write_site_record
from campaign.verbs.command_line import main
from dvfs.dataset import Columns
from dvfs.errors import ArgumentError
from dvfs.printable import rounded
from dvfs.setting import Setting
from tests.analysis.test_report import store_of
from tests.commands import answers, prints, refuses
from tests.stores import store_of_table

SITE = "board"
CLOCKS = (400.0, 800.0, 1200.0, 1600.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four kernels at four settings, with a fit."""
    path = tmp_path_factory.mktemp("results") / "store"
    store_of(path, SITE, True, CLOCKS)
    compact(open_layout(path))
    open_store(path).fit(SITE)
    return path


@pytest.fixture(scope="module")
def store(folder: Path) -> Results:
    return open_store(folder)


def test_the_dataset_is_lazy_xarray_and_the_sites_are_named(store):
    assert isinstance(store.dataset, xr.Dataset)
    assert int((store.dataset["status"] == "ok").sum()) == 4 * len(CLOCKS)
    assert store.dataset["energy_j"].attrs["units"] == "J"
    assert store.sites == [SITE]
    assert store.fitted_sites == [SITE]


def test_the_interface_gives_what_the_command_line_prints(folder, store):
    path = str(folder)
    assert answers("predict", path, "--site", SITE) == json.loads(
        json.dumps(rounded([plain(row) for row in store.predict(SITE).as_dicts()]))
    )
    assert answers("crossval", path, "--site", SITE) == rounded(
        plain(store.crossval(SITE).as_dict())
    )
    assert answers("status", path) == store.status().as_dict()
    shown = answers("coefficients", path, "--site", SITE)
    assert shown == rounded([store.coefficients(SITE).as_json])
    costs = answers("coefficients", path, "--core-mhz", "800", "--mem-mhz", "900")
    assert costs == rounded([plain(store.costs(SITE, 800.0, 900.0).as_dict())])
    balances = answers("roofline", path, "--site", SITE)
    assert balances == plain(store.roofline(SITE).as_dict())


def plain(value):
    """As JSON gives it back: tuples as lists, missing numbers as None."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def test_results_are_frozen_tables_that_a_notebook_shows(store):
    results = [
        store.fit(SITE),
        store.coefficients(SITE),
        store.costs(SITE, 800.0, 900.0),
        store.crossval(SITE),
        store.predict(SITE),
        store.status(),
    ]
    for result in results:
        frame = result.to_pandas()
        assert isinstance(frame, pd.DataFrame) and len(frame)
        assert "<table" in result._repr_html_()
        field = dataclasses.fields(result)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, field, None)


def test_predictions_along_a_dimension_of_kernels(store):
    picks = store.predict(SITE)
    dataset = picks.to_xarray()
    assert dataset.sizes == {"kernel": 4}
    for prediction in picks.predictions:
        one = dataset.sel(kernel=prediction.pick.label)
        assert float(one["core_mhz"]) == prediction.pick.core_mhz
        assert float(one["saving_pct"]) == prediction.pick.saving_pct


def test_a_kernel_goes_by_its_name_its_label_or_its_short_name(store):
    labels = [prediction.pick.label for prediction in store.predict(SITE).predictions]
    for name in (labels[0], f"{labels[0][:2]}\N{HORIZONTAL ELLIPSIS}{labels[0][-1:]}"):
        (one,) = store.predict(SITE, kernel=name).predictions
        assert one.pick.label == labels[0]
    with pytest.raises(ArgumentError, match="did you mean 'sp1'"):
        store.predict(SITE, kernel="sp_1")


def test_the_saving_against_the_highest_clocks_is_of_the_predicted_energies(store):
    by_kernel = all_candidates(store.observations(SITE))
    for prediction in store.predict(SITE).predictions:
        pick, among = prediction.pick, by_kernel[prediction.pick.label]
        (top,) = (i for i, one in enumerate(among.settings) if one.core_mhz == max(CLOCKS))
        saved_pct = (1.0 - pick.energy_j / float(among.energy_j[top])) * 100.0
        assert pick.saving_vs_highest_clocks_pct == pytest.approx(saved_pct, abs=1e-9)
        assert prediction.as_dict()["saving_vs_highest_clocks_pct"] == pytest.approx(saved_pct)


def test_a_fit_made_in_python_is_the_one_that_the_store_keeps(store):
    made = store.fit(SITE, model="choi", voltage="unit", name="by hand").fit
    kept = store.kept_fit(SITE, "by hand")
    assert kept.model == made.model
    np.testing.assert_array_equal(kept.value, made.value)
    assert list(store.coefficients(SITE, "by hand").to_pandas()["value"]) == made.value.tolist()


def test_report_and_figures_write_files(store, tmp_path):
    assert store.report(tmp_path / "report.html").read_text().startswith("<!")
    written = store.figures(tmp_path / "figures", formats=["svg"])
    assert {path.suffix for path in written} == {".svg", ".csv", ".tex"}


def test_a_pick_asks_for_the_core_clock_that_takes_least(store):
    rows = store.predict(SITE).as_dicts()
    assert {row["mem_mhz"] for row in rows} == {900.0}  # the store has no other
    (bound,) = (row for row in rows if row["label"] == "sp3")
    # It computes 16 / f s at f MHz, 6 W of that constant: the highest core clock takes least.
    assert bound["core_mhz"] == max(CLOCKS)
    assert bound["slurm"] == "--cpu-freq=1600000"


def test_what_cannot_be_done_is_said_in_one_line(store, tmp_path):
    for error, call in (
        (NotAStoreError, lambda: open_store(tmp_path)),
        (NoKeptFitError, lambda: store.predict("elsewhere")),
        (NoKeptFitError, lambda: store.coefficients("elsewhere")),
        (ArgumentError, lambda: store.predict(SITE, kernel="none")),
        (ArgumentError, lambda: store.costs(SITE, 1.0, 2.0)),
        (ArgumentError, lambda: store.roofline(SITE, Setting(1.0, 2.0))),
        (ArgumentError, lambda: store.report(tmp_path / "missing" / "report.html")),
    ):
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value) and "\n" not in str(caught.value)


def test_coefficients_are_read_without_numpy(folder):
    code = (
        "import sys; from campaign.verbs.command_line import main;"
        f"main(['coefficients', {str(folder)!r}]);"
        "print([m for m in ('numpy', 'xarray', 'pandas', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_picks_are_predicted_without_what_takes_long_to_import(folder):
    heavy = ("pandas", "xarray", "dask", "numba", "scipy.stats", "statsmodels", "sites.site_file")
    code = (
        "import sys; from campaign.verbs.command_line import main;"
        f"main(['predict', {str(folder)!r}, '--site', {SITE!r}]);"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "P(best)" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "kept", [{}, {"site": 3}, {"site": "board", "coefficients": [{"name": 1}]}]
)
def test_a_file_that_is_not_a_fit_is_refused_with_the_command_that_fits(folder, tmp_path, kept):
    other = tmp_path / "store"
    store_of(other, SITE, True, CLOCKS)
    open_store(other).store.write_json(f"fits/{SITE}.json", kept)
    with pytest.raises(NoKeptFitError, match=r"is not a fit .*campaign fit"):
        open_store(other).coefficients(SITE)


@pytest.mark.parametrize(("times_faster", "doubtful"), [(1.0, False), (2.0, True)])
def test_a_profile_above_the_roofline_is_warned_of(store, times_faster, doubtful):
    # At 800 MHz the kernels do 160 Gflop/s at most: 3.2e9 flops take 0.02 s.
    profile = Profile(
        kernel="app",
        core_mhz=800.0,
        mem_mhz=900.0,
        time_s=0.02 / times_faster,
        counts={"sp": 3.2e9, "dram": 1e8},
    )
    lines = faster_than_measured(profile, store.observations(SITE), Setting(800.0, 900.0))
    assert bool(lines) is doubtful
    for line in lines:
        assert "320 Gflop/s of sp at 800/900 MHz" in line
        assert "best rate measured there is 160" in line


@pytest.fixture
def own_store(tmp_path, folder) -> Results:
    """A copy of the store, for a test that changes it."""
    shutil.copytree(folder, tmp_path / "own")
    return open_store(tmp_path / "own")


def test_a_trial_does_not_replace_the_fit_that_picks_use(own_store):
    path, before = str(own_store.path), (own_store.path / "fits" / f"{SITE}.json").read_bytes()
    said = refuses("fit", path, "--site", SITE, "--voltage", "floor")
    assert "--voltage auto" in said and "--voltage floor" in said
    assert "--name" in said and "--replace" in said
    assert main(["fit", path, "--site", SITE, "--voltage", "floor", "--name", "a/b @ c"]) == 0
    assert (own_store.path / "fits" / f"{SITE}.json").read_bytes() == before
    names = {file.name for file in (own_store.path / "fits").iterdir()}
    assert f"{SITE}@a%2Fb%20%40%20c.json" in names
    assert own_store.kept_fits[0] == (SITE, "default")
    assert (SITE, "a/b @ c") in own_store.kept_fits
    assert own_store.fit(SITE).source.name == "default"  # asked for as before: it is replaced
    assert own_store.fit(SITE, voltage="floor", replace=True).fit.voltage == "floor"
    assert own_store.kept_fit(SITE).voltage == "floor"


def test_every_result_names_its_fit(own_store, tmp_path):
    path = str(own_store.path)
    own_store.fit(SITE, voltage="floor", name="trial")
    for name, voltage in (("default", own_store.kept_fit(SITE).voltage), ("trial", "floor")):
        chosen = [path, "--site", SITE, "--fit", name]
        shown = [
            *answers("predict", *chosen),
            *answers("coefficients", *chosen),
            *answers("coefficients", *chosen, "--core-mhz", "800"),
            answers("roofline", *chosen),
        ]
        for result in shown:
            assert result["fit"]["name"] == name
            assert result["fit"]["voltage"] == voltage
            assert result["fit"]["n"] == 4 * len(CLOCKS)
            assert result["fit"]["stale"] is False
        for words in (["predict", *chosen], ["coefficients", *chosen], ["roofline", *chosen]):
            assert f"fit {name}" in prints(*words)
        own_store.report(tmp_path / "report.html", name)
        assert f"<dd>{name}, made " in (tmp_path / "report.html").read_text()
        made = own_store.policy(SITE, {"fit": name}, unsure=True)
        assert made.fit.name == name
        assert made.fit.voltage == voltage
        assert made.policy.origin.fit.startswith(name)
        assert made.policy.origin.store == str(own_store.path)
        assert made.policy.origin.data_id == made.fit.data_id
    listed = answers("coefficients", path)
    assert {fit["fit"]["name"] for fit in listed} >= {"default", "trial"}
    for words in (["predict"], ["roofline"], ["coefficients"], ["report"], ["figures"]):
        site = [] if words == ["report"] else ["--site", SITE]
        assert "none" in refuses(*words, path, *site, "--fit", "none")


def test_a_fit_of_other_measurements_is_stale(own_store, tmp_path):
    assert own_store.fit_source(SITE).stale is False
    compact(open_layout(own_store.path))  # other files, the same measurements
    assert open_store(own_store.path).fit_source(SITE).stale is False
    store_of(own_store.path, SITE, True, (2000.0,))
    again = open_store(own_store.path)
    assert again.fit_source(SITE).stale is True
    predictions = again.predict(SITE)
    assert "campaign fit" in str(predictions.fit)
    assert again.policy(SITE, {}, unsure=True).fit.stale is True
    assert predictions.data_id != predictions.fit.data_id
    again.report(tmp_path / "report.html")
    assert "made for this report" in (tmp_path / "report.html").read_text()
    assert again.fit(SITE).source.stale is False


def test_a_fit_by_other_domains_is_stale(own_store):
    layout = open_layout(own_store.path)
    record = own_store.site_record(SITE)
    own_store.fit(SITE, name="now")
    assert own_store.fit_source(SITE, "now").stale is False
    write_site_record(layout, SITE, dataclasses.replace(record, device="gpu"))
    assert own_store.fit_source(SITE, "now").stale is False
    classes = record.classes | {"l2": "mem"}
    write_site_record(layout, SITE, dataclasses.replace(record, classes=classes))
    assert own_store.fit_source(SITE, "now").stale is True


def test_the_hash_of_the_measurements_depends_on_no_order(store):
    columns = store.columns
    turned = Columns({name: values[::-1] for name, values in columns.items()})
    other = columns.replaced({"energy_j": columns["energy_j"] * (1 + 1e-15)})
    assert data_id(turned, SITE) == data_id(columns, SITE) != data_id(other, SITE)


@pytest.mark.parametrize(
    ("changes", "request_"),
    [
        ({"tried": [{}]}, Request()),
        ({"voltage": "floor"}, Request("choi", "floor")),
        ({"voltage": "table"}, Request("choi", "known")),
        ({"why": "16 settings"}, None),
        ({"why": 3, "robust": None, "tried": None}, None),
    ],
)
def test_what_a_fit_of_an_earlier_version_was_asked_for(changes, request_):
    kept = {"model": "choi", "voltage": "unit", "robust": False, "tried": []}
    assert request_of(kept | {"why": "the model and the voltage were given"} | changes) == request_


def a_finding(number: int, check: str = "time") -> SiteFinding:
    kernels = [{"kernel": f"k{number}", "params": {}, "label": f"k{number}"}]
    found = {"check": check, "severity": "warning", "text": f"text {number}", "kernels": kernels}
    return SiteFinding("s", found, (f"row {number}",), ())


def test_findings_of_one_check_come_once_with_their_number() -> None:
    """Three of a check are printed one by one; of nine the first, and of what the others are."""
    few, many = [a_finding(i, "power") for i in range(3)], [a_finding(i) for i in range(9)]
    *texts, last = finding_texts(few + many, False, "--all")
    assert texts == [finding.text_for_people() for finding in (*few, many[0])]
    assert last == (
        "    and 8 more findings of this check, of k1, k2, k3, k4, k5 and 3 more "
        "(--all prints them)"
    )
    every_one = list(finding_texts(few + many, True, "--all"))
    assert every_one == [finding.text_for_people() for finding in few + many]


def test_a_cross_validation_explains_its_folds_and_columns(folder):
    for scheme, folds in (("holdout", "1 fold"), ("kfold:3", "3 folds")):
        printed = " ".join(prints("crossval", folder, "--scheme", scheme).split())
        assert f"{scheme}, {folds}, model" in printed
        assert (
            "a fold is a part of the measurements, predicted by a fit to all the others" in printed
        )
        assert "method mean % max % best picked" in printed
        assert (
            "mean %, max %: energy above that of the kernel's best measured setting; best picked: "
            "for how many of the 4 kernels the method picks that setting" in printed
        )
    printed = " ".join(prints("crossval", folder, "--scheme", "few:1").split())
    assert "all kernels measured at 1 setting drawn at random; 3 draws" in printed
    assert "12 cases (a kernel in a draw each)" in printed
    assert "nan" not in printed


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (
            "kfold:17",
            "found 'kfold:17'; kfold:K divides the 16 measurements of board into K folds: give a "
            "whole number K from 2 to 16",
        ),
        (
            "few:4",
            "found few:4; board was measured at 4 settings: give a whole number M from 1 to 3, as "
            "it leaves some settings to predict",
        ),
    ],
)
def test_more_folds_than_there_is_are_refused(folder, scheme, said):
    assert refuses("crossval", folder, "--scheme", scheme) == f"campaign: {said}\n"


def test_costs_name_an_uncore_clock_as_one(tmp_path):
    lines = ["site,kernel,core_mhz,uncore_mhz,core_v,time_s,energy_j,n_sp,n_dram"]
    for core, volt in ((1000, 0.8), (2000, 1.0)):
        for uncore in (1200, 1800):
            for sp in (1e9, 4e9, 64e9):
                time_s = max(sp / 1e8 / core, 1e9 / 1e7 / uncore)
                energy_j = volt**2 * 50e-12 * sp + 0.2 + 30.0 * volt * time_s
                lines.append(f"x,k{sp:g},{core},{uncore},{volt},{time_s!r},{energy_j!r},{sp},1e9")
    store = open_store(store_of_table(tmp_path, lines))
    store.fit("x")
    costs = store.costs("x", 1000.0, 1800.0)
    assert costs.setting == Setting(1000.0, uncore_mhz=1800.0)
    assert (costs.as_dict()["mem_mhz"], costs.as_dict()["uncore_mhz"]) == (None, 1800.0)
    assert len(store.costs_by_setting("x")) == 4
    # No voltage of the uncore is known: the 1 V of the model is not shown as one.
    assert (costs.core_v, costs.mem_v) == (pytest.approx(0.8), None)
    (site,) = store.report_tables()
    rows = site["tables"]["costs_by_setting"]["rows"]
    assert {round(row["core_mv"]) for row in rows} == {800, 1000}
    assert all(np.isnan(row["mem_mv"]) for row in rows)


def store_with_voltages(folder: Path, names: tuple[str, ...]) -> Results:
    """A store of kernels that obey the model, in a new folder; with the voltages ``names``."""
    lines = [",".join(["site,kernel,core_mhz,mem_mhz,time_s,energy_j,n_sp,n_dram", *names])]
    for core_mhz, core_v in ((500, 0.8), (800, 1.0), (1000, 1.2)):
        for mem_mhz, mem_v in ((400, 0.7), (800, 1.1)):
            for sp in (1e8, 1e9, 1e10, 1e11):
                time_s = sp / 1e8 / core_mhz + 1e9 / 1e7 / mem_mhz
                energy_j = core_v**2 * 50e-12 * sp + mem_v**2 * 300e-12 * 1e9 + 3.0 * time_s
                known = {"core_v": core_v, "mem_v": mem_v}
                row = ["x", f"k{sp:g}", core_mhz, mem_mhz, time_s, energy_j, sp, 1e9]
                lines.append(",".join(str(value) for value in [*row, *(known[n] for n in names)]))
    return open_store(store_of_table(folder, lines))


def test_figures_by_another_store_s_fit_have_its_options_and_equal_voltages(tmp_path):
    known = store_with_voltages(tmp_path / "known", ("core_v", "mem_v"))
    lacking = store_with_voltages(tmp_path / "lacking", ("core_v",))
    for i, (shown, fitted_on) in enumerate([(known, lacking), (lacking, known)]):
        out = tmp_path / str(i)
        shown.figures(out, formats=["svg"], fitted_on=fitted_on)
        judged_j = shown.crossval("x", fitted_on=fitted_on).crossval.predicted_j
        drawn_j = pd.read_csv(out / "energy_shares.csv")["predicted_j"].to_numpy()
        assert len(drawn_j) == 4
        assert np.abs(drawn_j[:, None] / judged_j - 1.0).min(axis=1).max() < 1e-6
    known.fit("x", model="choi", voltage="unit")
    other = store_with_voltages(tmp_path / "other", ("core_v", "mem_v"))
    other.figures(tmp_path / "form", formats=["svg"], fitted_on=known)
    (row,) = pd.read_csv(tmp_path / "form" / "validation.csv").to_dict("records")
    judged = other.crossval("x", fitted_on=known).as_dict()
    assert (judged["model"], judged["voltage"]) == ("choi", "unit")
    assert row["mean_pct"] == pytest.approx(judged["mape_pct"], rel=1e-6) and row["mean_pct"] > 1.0
    none = store_with_voltages(tmp_path / "none", ())
    for i, (shown, fitted_on) in enumerate([(known, none), (none, known)]):
        said = prints(
            *("figures", shown.path, "--fitted-on", fitted_on.path),
            *("--format", "svg", "-o", tmp_path / f"{i} refused"),
        )
        assert "x: no energy model: the voltages have different origins" in said
        assert not (tmp_path / f"{i} refused" / "energy_shares.csv").exists()


@pytest.fixture
def store_with_phases(tmp_path) -> Results:
    """A store of microbenchmarks and of an application that takes twice its least time, with two
    phases; three equal repeats that obey the model."""
    lines = ["site,kernel,params,repeat,core_mhz,mem_mhz,time_s,energy_j,n_sp,n_dram"]
    kernels = [("micro", {"i": i}, i * 1e8, 1e8, 1.0) for i in (0.5, 8, 64)]
    kernels += [
        ("app", {"phase": "near"}, 1e10, 1e8, 2.0),
        ("app", {"phase": "far"}, 1e9, 1e9, 2.0),
    ]
    for name, params, sp, dram, slow in kernels:
        for core_mhz in (500, 1000):
            for mem_mhz in (400, 800):
                time_s = slow * max(sp / 2e8 / core_mhz, dram / 2e7 / mem_mhz)
                energy_j = 50e-12 * sp + 300e-12 * dram + 5.0 * time_s
                values = [core_mhz, mem_mhz, time_s, energy_j, sp, dram]
                row = ["x", name, json.dumps(params).replace('"', '""')]
                lines += [
                    ",".join([row[0], row[1], f'"{row[2]}"', str(repeat), *map(str, values)])
                    for repeat in range(3)
                ]
    return open_store(store_of_table(tmp_path, lines))


def test_the_roofs_of_some_kernels_are_those_of_all(store_with_phases):
    whole, some = (
        report_content(store_with_phases.store, kernels=kernels).sites[0]
        for kernels in ([], ["app"])
    )
    of_app = [roof for roof in whole.roofs if roof.label.startswith("app")]
    assert some.roofs == of_app
    assert [roof.fraction for roof in some.roofs] == pytest.approx([0.5, 0.5])
    ((_, line),) = roofline_lines(some)[1]
    assert 1.0 / line.tau_op_s == pytest.approx(2e8 * 1000)
    assert 1.0 / line.tau_mem_s == pytest.approx(2e7 * 800)


def test_the_energy_of_a_phase_is_of_one_iteration_whatever_its_repeats(store_with_phases):
    store_with_phases.fit("x")
    site = report_content(store_with_phases.store).sites[0]
    (figure,) = [f for f in site_figures(site).breakdowns if f.name == "energy_by_phase_app"]
    drawn_j = np.sum([bars.end - bars.start for bars in figure.panels[0].series], axis=0)
    at_top = site.data.take(site.data.setting == site.data.settings.index(Setting(1000.0, 800.0)))
    of_app = [at_top.of_kernel(label) for label in kernel_names(at_top) if "app" in label]
    measured_j = [at_top.energy_j[rows].mean() for rows in of_app]
    assert np.sort(drawn_j) == pytest.approx(np.sort(measured_j), rel=1e-6)
