"""What ``campaign crossval`` prints of a store, beside what its report shows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from campaign.verbs.command_line import main
from tests.commands import answers
from tests.report_tables import assert_report_shows
from tests.stores import store_of_table

CORE_MHZ = (300.0, 500.0, 700.0, 900.0, 1100.0)
MEM_MHZ = (400.0, 800.0)
SCHEMES = ("leave-one-setting-out", "holdout")


def table(counts: bool) -> pd.DataFrame:
    """Six kernels at ten settings, with the noise of meters, which leaves the choice of the form
    open: a node whose voltage rises with its clock, which the table does not have."""
    rng = np.random.default_rng(7)
    rows = []
    for kernel in range(6):
        sp, dram = 1e10 * 4.0 ** (kernel / 2), 4e9
        for core_mhz in CORE_MHZ:
            for mem_mhz in MEM_MHZ:
                core_v, mem_v = 0.7 + 3e-4 * core_mhz, 0.9 + 2e-4 * mem_mhz
                time_s = (sp / (2e7 * core_mhz) ** 1.0 + dram / (1e7 * mem_mhz)) * rng.normal(
                    1, 0.01
                )
                power_w = 4.0 + 2.0 * core_v + core_mhz * 2e-3 * core_v**2
                energy_j = sp * 60e-12 * core_v**2 + dram * 500e-12 * mem_v**2 + power_w * time_s
                rows.append(
                    {"site": "node", "kernel": f"k{kernel}", "core_mhz": core_mhz}
                    | {"mem_mhz": mem_mhz, "time_s": time_s}
                    | {"energy_j": energy_j * rng.normal(1, 0.03)}
                    | ({"n_sp": sp, "n_dram": dram} if counts else {})
                )
    return pd.DataFrame(rows)


def store_of(folder: Path, counts: bool) -> str:
    return str(store_of_table(folder, table(counts)))


@pytest.mark.parametrize(
    ("counts", "options"),
    [
        (False, []),
        (True, ["--model", "choi", "--voltage", "floor", "--robust"]),
        (True, ["--model", "choi"]),
        (False, ["--voltage", "unit"]),
        (True, None),
    ],
    ids=["no counts", "given and robust", "model given", "voltage given", "no kept fit"],
)
def test_crossval_gives_the_figures_of_the_report(tmp_path, counts, options):
    store = store_of(tmp_path, counts)
    assert options is None or main(["fit", store, *options]) == 0
    options = options or []
    assert main(["report", store, "--output", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    asked = {"model": "auto", "voltage": "auto", "robust": "--robust" in options}
    asked |= {
        name.removeprefix("--"): value
        for name, value in pairwise(options)
        if name in ("--model", "--voltage")
    }
    for scheme in SCHEMES:
        shown = answers("crossval", store, "--scheme", scheme)
        assert_report_shows(page, shown)
        nested = "auto" in (asked["model"], asked["voltage"])
        assert shown["form"] == asked | {"chosen_in_each_fold": nested}


def test_what_is_asked_for_on_the_command_line_comes_before_the_kept_fit(tmp_path):
    store = store_of(tmp_path, True)
    assert main(["fit", store, "--model", "choi", "--voltage", "unit"]) == 0
    assert main(["fit", store, "--name", "two", "--model", "choi+clock", "--voltage", "floor"]) == 0
    forms = {
        (): ("choi", "unit"),
        ("--fit", "two"): ("choi+clock", "floor"),
        ("--voltage", "floor"): ("auto", "floor"),
    }
    for options, (model, voltage) in forms.items():
        form = answers("crossval", store, "--scheme", "holdout", *options)["form"]
        assert (form["model"], form["voltage"]) == (model, voltage)
    assert main(["crossval", store, "--fit", "three"]) == 2


def test_a_holdout_names_its_halves(tmp_path):
    store = store_of(tmp_path, False)
    every = {(core_mhz, mem_mhz) for core_mhz in CORE_MHZ for mem_mhz in MEM_MHZ}

    def halves(*options: str) -> list[set[tuple[float, float]]]:
        shown = answers("crossval", store, "--scheme", "holdout", *options)
        return [
            {(one["core_mhz"], one["mem_mhz"]) for one in shown[name]} for name in ("train", "test")
        ]

    train, test = halves()
    assert (len(train), train | test, train & test) == (5, every, set())
    given = sorted(every)[2:9]
    options = [word for pair in given for word in ("--train", f"{pair[0]:g},{pair[1]:g}")]
    train, test = halves(*options)
    assert (train, test) == (set(given), every - set(given))
    assert "train" not in answers("crossval", store)
