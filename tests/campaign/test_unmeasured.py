"""Variants that were not measured: cross-validation over variants, and ``predict --space``.

The simulated machine's noise is off, so that what is predicted can be compared with its constants.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from campaign.results import open_store
from campaign.verbs.command_line import main
from tests.commands import answers, prints, refuses
from tests.simulated_runs import simulate

ENERGIES = {"sp_add": 53.0, "sp_mul": 37.0, "l1": 55.0, "dram": 550.0, "barrier": 0.0}
SITE = """
name = "board"
description = "A simulated machine for stencils"
[domains.core]
frequencies_mhz = [400, 800]
voltage_v = [[400, 0.8], [800, 1.0]]
[domains.mem]
frequencies_mhz = [1000, 2000]
voltage_v = [[1000, 0.9], [2000, 1.1]]
[clocks]
control = "simulated"
[classes]
sp_add = { domain = "core" }
sp_mul = { domain = "core" }
l1 = { domain = "core" }
barrier = { domain = "core" }
launch = { domain = "core" }
dram = { domain = "mem" }
[partitions.p]
[simulated]
energy_pj_per_v2 = { sp_add = 53.0, sp_mul = 37.0, l1 = 55.0, dram = 550.0, barrier = 0.0, \
launch = 0.0 }
leakage_core_w_per_v = 20.0
leakage_mem_w_per_v = 8.0
misc_w = 10.0
meter_hz = 50.0
noise = "off"
launch_s = 0.0
overlap = 1.0
rate_per_cycle = { sp_add = 800, sp_mul = 800, l1 = 1600, dram = 70, barrier = 0.05, \
launch = 0.0002 }
"""
CAMPAIGN = """
name = "tiles"
[[sites]]
site = "board.toml"
[protocol]
min_duration_s = 0.05
[[kernels]]
kernel = "stencil"
params = { stencil = ["j2d", "l2d"], size_1 = 512, size_2 = 512, steps = 32, tiling = "hexagonal" }
[kernels.space]
tile_t = [2, 8, 16]
tile_1 = [2, 8, 32]
tile_2 = [16, 128]
"""
MORE_TILES = CAMPAIGN.replace("tile_t = [2, 8, 16]", "tile_t = [2, 4, 8, 16, 32]").replace(
    "tile_2 = [16, 128]", "tile_2 = [16, 64, 128, 512]"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store with 18 variants of two stencils at four settings, and its fit."""
    path = tmp_path_factory.mktemp("unmeasured")
    (path / "board.toml").write_text(SITE)
    (path / "c.toml").write_text(CAMPAIGN)
    (path / "more.toml").write_text(MORE_TILES)
    simulate(path / "c.toml", path / "s")
    assert main(["fit", str(path / "s"), "--json"]) == 0
    return path


def true_costs(pick):
    """Energy and time of a variant by eq. 9 with the machine's constants, from its counts."""
    from kernels.stencils.counts import count_stencil
    from kernels.stencils.params import StencilParams

    counts = count_stencil(StencilParams(**pick["problem"], **pick["params"]))
    core_v = {400: 0.8, 800: 1.0}[pick["core_mhz"]]
    mem_v = {1000: 0.9, 2000: 1.1}[pick["mem_mhz"]]
    rates = {"sp_add": 800, "sp_mul": 800, "l1": 1600, "dram": 70, "barrier": 0.05}
    rates["launch"] = 0.0002
    mhz = {name: pick["mem_mhz"] if name == "dram" else pick["core_mhz"] for name in rates}
    time_s = sum(counts[name] / (rate * mhz[name] * 1e6) for name, rate in rates.items())
    dynamic_j = sum(
        counts[name] * pj * 1e-12 * (mem_v if name == "dram" else core_v) ** 2
        for name, pj in ENERGIES.items()
    )
    return dynamic_j + time_s * (20.0 * core_v + 8.0 * mem_v + 10.0), time_s


def test_left_out_variants_are_predicted_as_the_machine_computes_them(folder):
    shown = answers("crossval", folder / "s", "--scheme", "leave-one-variant-out", "--time",
        "predicted",
    )  # fmt: skip
    assert shown["n_folds"] == 36
    assert shown["n"] == 36 * 4
    assert [own["problem"]["stencil"] for own in shown["problems"]] == ["j2d", "l2d"]
    for own in shown["problems"]:
        assert own["variants"] == 18
        assert own["cases"] == 4
        assert own["wrong"] == 0
        assert own["lost_max_pct"] == 0.0
        assert own["time_error_pct"] < 0.5
        assert own["energy_error_pct"] < 1.0
        assert own["energy_error_close_pct"] <= own["energy_error_pct"] + 0.5


def test_folds_of_variants_and_one_problem(folder):
    shown = answers("crossval", folder / "s", "--scheme", "variants-kfold:6", "--problem",
        "stencil=l2d", "--objective", "time",
    )  # fmt: skip
    assert shown["n_folds"] == 6
    (own,) = shown["problems"]
    assert own["problem"]["stencil"] == "l2d"
    assert own["lost_max_pct"] == 0.0


def test_a_variant_that_was_not_measured_is_predicted_at_every_setting(folder):
    shown = answers("predict", folder / "s", "--space", folder / "more.toml")
    assert shown["simulated"]
    assert shown["fit"] == "default"
    for pick in shown["picks"]:
        assert pick["variants"] == 60
        assert pick["settings"] == 4
        energy_j, time_s = true_costs(pick)
        assert pick["energy_j"] == pytest.approx(energy_j, rel=0.01)
        assert pick["time_s"] == pytest.approx(time_s, rel=0.01)
        assert pick["near"][0] == pick["params"]
        assert pick["near_count"] == len(pick["near"]) < 60
        others = []
        for core_mhz in (400, 800):
            for mem_mhz in (1000, 2000):
                for tile_t in (2, 4, 8, 16, 32):
                    for tile_1 in (2, 8, 32):
                        for tile_2 in (16, 64, 128, 512):
                            tile = {"tile_t": tile_t, "tile_1": tile_1, "tile_2": tile_2}
                            at = {"core_mhz": core_mhz, "mem_mhz": mem_mhz, "params": tile}
                            others.append(true_costs({**pick, **at})[0])
        assert energy_j <= 1.01 * min(others)


def test_a_class_that_the_site_renames_is_in_predicted_energies(tmp_path):
    """The site counts the kernel's l1 and dram as one class, whose energy is 550 pJ/V^2."""
    one = 'words = { domain = "mem", counted_as = ["l1", "dram"] }'
    site = SITE.replace('dram = { domain = "mem" }', one).replace('l1 = { domain = "core" }\n', "")
    site = site.replace("l1 = 55.0, dram = 550.0", "words = 550.0")
    site = site.replace("l1 = 1600, dram = 70", "words = 70")
    (tmp_path / "board.toml").write_text(site)
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    store = str(tmp_path / "s")
    simulate(tmp_path / "c.toml", Path(store))
    fitted = answers("fit", store)
    prices = [entry for entry in fitted["variant_prices"] if entry["of"] == "energy"]
    assert prices and all("words" in {price["name"] for price in own["prices"]} for own in prices)
    shown = answers("variants", store, "--problem", "stencil=j2d", "--setting", "400,2000")
    for own in (shown["fastest"], shown["least_energy"], *(corner for corner in shown["hull"])):
        assert own["predicted_j"] == pytest.approx(own["energy_j"], rel=0.01)


def test_an_uncore_clock_predicts_as_a_memory_clock(folder, tmp_path):
    """The same table with the second clock under either name."""
    prints("export", folder / "s", "--csv", tmp_path / "t.csv")
    table = pd.read_csv(tmp_path / "t.csv")
    counts = [name for name in table if name.startswith("n_")]
    measured = ["kernel", "params", "repeat", "time_s", "energy_j", "core_v", "mem_v"]
    table = table[["site", *measured, "core_mhz", "mem_mhz", *counts]]
    shown = {}
    for name in ("mem_mhz", "uncore_mhz"):
        file, store = str(tmp_path / f"{name}.csv"), str(tmp_path / name)
        table.rename(columns={"mem_mhz": name}).to_csv(file, index=False)
        prints("import", file, "--store", store)
        prints("fit", store)
        one = ("--problem", "stencil=j2d")
        judged = answers("crossval", store, "--scheme", "variants-kfold:4", *one)
        (first, *_) = answers("predict", store, "--space", folder / "c.toml")["picks"]
        studied = answers("variants", store, *one)["fastest"]
        assert (first[name], studied[name]) == (1000.0, 2000.0)
        assert studied["predicted_j"] == pytest.approx(studied["energy_j"], rel=0.01)
        shown[name] = [*judged["problems"][0].values(), first["energy_j"], studied["predicted_j"]]
    numbers = [[v for v in values if isinstance(v, float)] for values in shown.values()]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)


def test_predictions_over_a_space_are_of_all_ranks(folder, tmp_path):
    """As if two ranks had each run the kernel in the same time: twice the energy of operations."""
    prints("export", folder / "s", "--csv", tmp_path / "t.csv")
    table = pd.read_csv(tmp_path / "t.csv")
    counts = [name for name in table if name.startswith("n_")]
    constant_j = (20.0 * table.core_v + 8.0 * table.mem_v + 10.0) * table.time_s
    both = table.assign(**{name: 2.0 * table[name] for name in counts}, size=2)
    both["energy_j"] = 2.0 * table.energy_j - constant_j
    measured = ["kernel", "params", "repeat", "time_s", "energy_j", "core_v", "mem_v", "size"]
    both[["site", *measured, "core_mhz", "mem_mhz", *counts]].to_csv(
        tmp_path / "b.csv", index=False
    )
    (tmp_path / "m.toml").write_text('[columns]\nranks = "size"\n')
    store, words = str(tmp_path / "two"), ("--map", str(tmp_path / "m.toml"))
    prints("import", tmp_path / "b.csv", *words, "--store", store)
    prints("fit", store)
    space = ("predict", store, "--space")
    refused = refuses(*space, folder / "c.toml")
    assert "with 2 ranks on each node, and the campaign file has ranks = 1" in refused
    file = folder / "two.toml"
    file.write_text(CAMPAIGN.replace('kernel = "stencil"', 'kernel = "stencil"\nranks = 2'))
    for pick in answers(*space, file)["picks"]:
        at = (both.core_mhz == pick["core_mhz"]) & (both.mem_mhz == pick["mem_mhz"])
        params = both.params.map(json.loads).map(lambda own: own.items())
        same = params.map((pick["problem"] | pick["params"]).items().__le__)
        (measured_j,) = both.energy_j[at & same].tolist()
        assert pick["energy_j"] == pytest.approx(measured_j, rel=0.01)


def test_energies_by_a_fit_of_other_measurements_are_warned_of(folder, tmp_path):
    """More tiles were measured after the fit."""
    store, file = tmp_path / "s", folder / "again.toml"
    shutil.copytree(folder / "s", store)
    file.write_text(CAMPAIGN.replace("tile_2 = [16, 128]", "tile_2 = [16, 64, 128]"))
    asked = (["predict", "--space", file], ["variants", "--problem", "stencil=j2d"])
    for stale in (False, True):
        for verb, *words in asked:
            said = " ".join(prints(verb, store, *words).split())
            assert ("warning: " in said and "have changed since" in said) == stale
        assert ("fit_stale" in answers("predict", store, "--space", file)) == stale
        if not stale:
            simulate(file, store)
    by_time = prints("predict", store, "--space", file, "--objective", "time")
    assert "have changed since" not in by_time


@pytest.mark.parametrize("proof", ["unproven", "stated"])
def test_times_at_clocks_that_nothing_showed_are_marked(folder, tmp_path, proof):
    """The same measurements, as of a node whose clocks nothing can read."""
    file, store = tmp_path / "t.csv", tmp_path / "s"
    prints("export", folder / "s", "--csv", file)
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    own = ("", "clock unproven") if proof == "unproven" else (proof, "ok")
    table.assign(clock_proof=own[0], status=own[1]).to_csv(file, index=False)
    prints("import", file, "--store", store)
    judged = ("crossval", store, "--scheme", "variants-kfold:3", "--problem", "stencil=j2d")
    space = ("predict", store, "--space", folder / "c.toml")
    accepted = ["--accept-unproven"] if proof == "unproven" else []
    for words in ([*judged, *accepted], space):
        by_time = [*words, "--objective", "time"]
        shown = answers(*by_time)
        assert shown.get("unproven_clocks", False) == (proof == "unproven")
        marked = "nothing showed that the settings differ" in prints(*by_time)
        assert marked == (proof == "unproven")


def threaded(*threads: int) -> str:
    """The campaign file, with these numbers of threads in its space."""
    return CAMPAIGN.replace("tile_t =", f"threads = {list(threads)}\ntile_t =")


def test_threads_divide_the_time_whatever_the_space_has(folder, tmp_path):
    """Measured with 1, 2 and 4 threads, each of which takes an equal part of the time."""
    prints("export", folder / "s", "--csv", tmp_path / "t.csv")
    table = pd.read_csv(tmp_path / "t.csv")
    counts = [name for name in table if name.startswith("n_")]
    measured = ["site", "kernel", "params", "repeat", "time_s", "energy_j", "core_mhz", "mem_mhz"]
    one = table[[*measured, *counts]]
    parts = []
    for threads in (1, 2, 4):
        params = [json.dumps(json.loads(text) | {"threads": threads}) for text in one.params]
        parts.append(one.assign(params=params, time_s=one.time_s / threads))
    pd.concat(parts).to_csv(tmp_path / "threads.csv", index=False)
    store = str(tmp_path / "s")
    prints("import", tmp_path / "threads.csv", "--store", store)
    for threads in ((1, 2), (2,), (1, 2, 4), (8,)):
        file = folder / "threads.toml"
        file.write_text(threaded(*threads))
        words = ("predict", store, "--space", str(file), "--objective", "time")
        for pick in answers(*words)["picks"]:
            assert pick["params"]["threads"] == max(threads)
            alone_s = true_costs({**pick, "params": {**pick["params"], "threads": 1}})[1]
            assert pick["time_s"] == pytest.approx(alone_s / max(threads), rel=0.01)
    file.write_text(threaded(1, 2))
    only_one = refuses("predict", folder / "s", "--space", file)
    assert (
        "was measured at board with threads = 1 alone, and variants of the space have 2" in only_one
    )


def test_the_exported_table_of_several_problems_is_not_judged_as_one(folder, tmp_path):
    """An imported table has no space: its two stencils count different work."""
    table, store = str(tmp_path / "t.csv"), str(tmp_path / "again")
    prints("export", folder / "s", "--csv", table)
    prints("import", table, "--store", store)
    words = ("crossval", store, "--scheme", "variants-kfold:4", "--objective", "time")
    said = refuses(*words)
    assert "they are of several problems" in said
    assert "name the parameters of one by --problem NAME=VALUE,..." in said
    prints("fit", store)
    best, again = (
        answers("predict", path, "--space", folder / "more.toml")["picks"]
        for path in (str(folder / "s"), store)
    )
    assert [(pick["problem"], pick["params"]) for pick in again] == [
        (pick["problem"], pick["params"]) for pick in best
    ]
    for pick, own in zip(again, best, strict=True):
        assert pick["energy_j"] == pytest.approx(own["energy_j"], rel=1e-6)
    one = answers(*words, "--problem", "stencil=j2d")
    assert [own["variants"] for own in one["problems"]] == [18]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0])
def test_a_weighted_objective_is_relative_to_the_least_of_all_variants(folder, alpha):
    """Against every variant of the space at every setting, by the machine's constants."""
    words = ("predict", str(folder / "s"), "--space", str(folder / "c.toml"))
    for pick in answers(*words, "--objective", f"weighted:{alpha:g}")["picks"]:
        settings = itertools.product((400, 800), (1000, 2000))
        tiles = itertools.product((2, 8, 16), (2, 8, 32), (16, 128))
        costs = {}
        for (core_mhz, mem_mhz), tile in itertools.product(settings, tiles):
            params = dict(zip(("tile_t", "tile_1", "tile_2"), tile, strict=True))
            at = {"core_mhz": core_mhz, "mem_mhz": mem_mhz, "params": params}
            costs[core_mhz, mem_mhz, *tile] = true_costs({**pick, **at})
        energy_j, time_s = np.array(list(costs.values())).T
        scores = alpha * time_s / time_s.min() + (1.0 - alpha) * energy_j / energy_j.min()
        best = list(costs)[int(np.argmin(scores))]
        tile = (pick["params"][name] for name in ("tile_t", "tile_1", "tile_2"))
        assert (pick["core_mhz"], pick["mem_mhz"], *tile) == best


def test_without_a_fit_the_objective_time_needs_none(folder):
    words = ("predict", str(folder / "s"), "--space", str(folder / "more.toml"))
    shown = answers(*words, "--objective", "time", "--kernel", "stencil")
    assert shown["fit"] is None
    for pick in shown["picks"]:
        assert pick["energy_j"] is None
        assert (pick["core_mhz"], pick["mem_mhz"]) == (800, 2000)
        assert pick["time_s"] == pytest.approx(true_costs(pick)[1], rel=0.01)


def test_true_energies_are_within_the_intervals_and_inseparable_ones_are_named(folder):
    fitted = open_store(folder / "s").kept_fit("board")
    for term, low, high in zip(fitted.terms, fitted.low, fitted.high, strict=True):
        if term.of in ENERGIES and not math.isnan(low):
            assert low * 0.995 <= ENERGIES[term.of] <= high * 1.005, term.name
    named = {name for group in fitted.confounded for name in group["terms"]}
    assert {"c0_sp_add", "c0_l1"} <= named  # both follow the points; l2d has one more product
    assert "c0_sp_mul" not in named


def test_what_cannot_be_predicted_is_refused(folder, tmp_path: Path):
    store, file = folder / "s", tmp_path / "c.toml"
    (tmp_path / "board.toml").write_text(SITE)
    file.write_text(CAMPAIGN.replace('["j2d", "l2d"]', '"g2d"'))
    text = refuses("predict", store, "--space", file)
    assert "has measured no variant of stencil single g2d hexagonal; it has: single j2d" in text
    assert "campaign tune" in text
    file.write_text(CAMPAIGN.replace('site = "board.toml"', 'site = "jetson-tk1"'))
    text = refuses("predict", store, "--space", file)
    assert f"{file}:3: sites: the sites are jetson-tk1, and not board" in text
    file.write_text(CAMPAIGN[: CAMPAIGN.index("[kernels.space]")])
    assert "no kernel with a space" in refuses("predict", store, "--space", file)
    text = refuses("predict", store, "--space", file, "--max-slowdown", "0.1")
    assert "--max-slowdown: not with --space" in text
    text = refuses("crossval", store, "--scheme", "variants-kfold:1")
    assert "divides the 36 variants into K folds: give a whole number K from 2 to 36" in text
    assert "--kernel: needs" in refuses("crossval", store, "--kernel", "stencil")
    text = refuses("crossval", store, "--scheme", "leave-one-variant-out", "--kernel", "fmm")
    assert "--kernel: unknown kernel 'fmm'; known: stencil" in text


def test_tables_for_people_fit_a_hundred_columns(folder):
    lines = prints("predict", folder / "s", "--space", folder / "more.toml").splitlines()
    lines += prints("crossval", folder / "s", "--scheme", "leave-one-variant-out").splitlines()
    assert max(map(len, lines)) <= 100
    assert np.any([line.startswith("board (simulated): stencil") for line in lines])


def test_the_study_of_variants_shows_what_was_predicted_beside_what_was_measured(folder):
    words = ("variants", str(folder / "s"), "--problem", "stencil=j2d")
    shown = answers(*words)
    for name in ("fastest", "least_energy"):
        assert shown[name]["predicted_s"] == pytest.approx(shown[name]["time_s"], rel=1e-3)
        assert shown[name]["predicted_j"] == pytest.approx(shown[name]["energy_j"], rel=0.02)
    text = prints(*words)
    assert "predicted from the other variants: error of time 0.0 %" in text
    assert "predicted least energy" in text


def test_a_fit_keeps_what_variants_are_predicted_from(folder):
    (shown,) = answers("coefficients", folder / "s")
    times = [own for own in shown["variant_prices"] if own["of"] == "time"]
    assert [own["family"]["stencil"] for own in times] == ["j2d", "l2d"]
    for own in times:
        assert own["n"] == 72
        assert own["error_pct"] < 0.01
        prices = {one["name"]: one for one in own["prices"]}
        # A byte from memory takes 1 / (70 bytes a cycle) of a cycle of the memory clock.
        assert prices["dram / mem_mhz"]["low"] <= 1 / (70 * 2000e6) * 1.001
        assert prices["dram / mem_mhz"]["high"] >= 1 / (70 * 2000e6) * 0.999
        assert own["inseparable"][0] == ["sp_add", "sp_mul", "l1"]
    (energy,) = [own for own in shown["variant_prices"] if own["of"] == "energy"]
    assert (energy["core_mhz"], energy["mem_mhz"]) == (800, 2000)
    assert energy["tested"] + energy["n"] == 36
    assert energy["test_error_pct"] < 1.0
    text = prints("coefficients", folder / "s")
    assert "times of variants of stencil single j2d hexagonal: from 72 measured pairs" in text
    assert "energies of variants of stencil at 800/2000 MHz: least absolute deviations" in text


def test_the_report_draws_predicted_beside_measured(folder):
    from analysis.figures.variants import variant_figures
    from campaign.results.report import report_content

    (site,) = report_content(open_store(folder / "s").store).sites
    figures = {figure.name: figure for figure in variant_figures(site.variants)}
    (name,) = [own for own in figures if own.endswith("predicted") and "j2d" in own]
    times, energies, over = figures[name].panels
    for panel in (times, energies):
        _, points = panel.series
        assert len(points.x) == 18
        assert points.y == pytest.approx(points.x, rel=0.02)
    labels = {series.label for series in over.series if series.label}
    assert labels in ({f"tile_t = {value}" for value in (2, 8, 16)},
                      {f"tile_1 = {value}" for value in (2, 8, 32)})  # fmt: skip
