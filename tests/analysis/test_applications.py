"""Applications' energies by the microbenchmarks' fit, on a machine whose costs are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.energy.applications import application_energies
from analysis.figures.figure import Points
from analysis.figures.predictions import application_figure
from analysis.measurements.observations import Observations
from analysis.report.sheets import application_sheet
from analysis.report.tables import as_csv
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.analysis.synthetic import numbered

EPS_J = {"sp": 30e-12, "int": 60e-12, "dram": 400e-12, "l1": 0.0}
CONSTANT_W = 5.0
VARIANTS = {
    "tile=1": {"sp": 4e9, "int": 2e9, "dram": 1e8},
    "tile=2": {"sp": 4e9, "int": 1e9, "dram": 1e8},
    "tile=4": {"sp": 4e9, "int": 0.5e9, "dram": 1e8},
}
DEARER = {"tile=1": 1.0, "tile=2": 1.25, "tile=4": 0.9}
"""What each variant costs over what its counts say."""


def machine(variants=VARIANTS, name: str = "fmm_u") -> Observations:
    """Microbenchmarks of sp and int over bytes, and an application; one setting, no voltages."""
    rows = []
    for op in ("sp", "int"):
        for intensity in (1, 4, 16, 64, 256):
            rows.append((f"{op}_fma", f"x={intensity}", {op: intensity * 1e8, "dram": 1e8}, 1.0))
    rows += [(name, words, counts, DEARER[words]) for words, counts in variants.items()]
    rows *= 2  # repeats
    time_s = np.array(
        [max(c.get("sp", 0) / 1e11 + c.get("int", 0) / 5e10, c["dram"] / 1e10) for *_, c, _ in rows]
    )
    energy_j = np.array(
        [
            factor * (sum(n * EPS_J[k] for k, n in counts.items()) + CONSTANT_W * t)
            for (_, _, counts, factor), t in zip(rows, time_s, strict=True)
        ]
    )
    instances = [KernelInstance(kernel, dict([words.split("=")])) for kernel, words, _, _ in rows]
    ones = np.ones(len(rows))
    classes = sorted({k for *_, counts, _ in rows for k in counts})
    return Observations(
        site="lab",
        simulated=False,
        **numbered(instance.label for instance in instances),
        core_mhz=1000.0 * ones,
        mem_mhz=900.0 * ones,
        core_v=ones,
        mem_v=ones,
        time_s=time_s,
        energy_j=energy_j,
        counts={k: np.array([c.get(k, 0.0) for *_, c, _ in rows]) for k in classes},
        domains={k: "mem" if k == "dram" else "core" for k in classes},
        voltage="unit",
        setting=np.zeros(len(rows), np.int64),
        settings=[Setting(1000.0, 900.0)],
        instances={instance.label: instance for instance in instances},
    )


def test_each_variant_is_predicted_by_the_microbenchmarks_alone():
    """A variant that costs 1.25 times its counts' energy is predicted 1 / 1.25 of it, whatever
    the others cost: none of them is in the fit."""
    (shown,) = application_energies(machine(), "choi", "unit")
    assert (shown.name, shown.fitted.n) == ("fmm_u", 20)
    assert {v.kernel.label for v in shown.variants} == {f"fmm_u {words}" for words in VARIANTS}
    for variant in shown.variants:
        words = variant.kernel.label.removeprefix("fmm_u ")
        counts = VARIANTS[words]
        time_s = max(counts["sp"] / 1e11 + counts["int"] / 5e10, counts["dram"] / 1e10)
        by_counts_j = sum(n * EPS_J[k] for k, n in counts.items()) + CONSTANT_W * time_s
        assert variant.n == 2
        assert variant.measured_j == pytest.approx(DEARER[words] * by_counts_j)
        assert variant.predicted_j == pytest.approx(by_counts_j, rel=1e-3)
        assert variant.error_pct == pytest.approx(100 * (1 / DEARER[words] - 1), abs=0.2)
        without_j = by_counts_j - counts["int"] * EPS_J["int"]
        assert variant.without_integers_j == pytest.approx(without_j, rel=1e-3)
        assert variant.error_without_integers_pct < variant.error_pct


def test_each_variant_is_shown_at_the_settings_at_which_it_was_measured():
    """One of them at both settings, the others at one of them each."""
    data = machine()
    core_mhz, seen = data.core_mhz.copy(), []
    for row, label in enumerate(data.labels.tolist()):
        if label == "fmm_u tile=2" or (label == "fmm_u tile=1" and label in seen):
            core_mhz[row] = 800.0
        seen.append(label)
    data = replace(
        data,
        core_mhz=core_mhz,
        setting=(core_mhz == 1000.0).astype(np.int64),
        settings=[Setting(800.0, 900.0), Setting(1000.0, 900.0)],
    )
    (shown,) = application_energies(data, "choi", "unit")
    rows = {(v.kernel.params["tile"], v.setting.core_mhz): v for v in shown.variants}
    numbers = {("1", 800.0): 1, ("1", 1000.0): 1, ("2", 800.0): 2, ("4", 1000.0): 2}
    assert {at: variant.n for at, variant in rows.items()} == numbers
    assert len(shown.variants) == len(rows)
    for (tile, _), variant in rows.items():
        measured_j = data.energy_j[data.labels == f"fmm_u tile={tile}"]
        assert variant.measured_j == pytest.approx(measured_j[0])


def test_a_class_that_no_microbenchmark_counts_leaves_no_prediction():
    """Bytes of l1 that only a variant moves have no coefficient: missing, not free."""
    variants = VARIANTS | {"tile=4": VARIANTS["tile=4"] | {"l1": 1e9}}
    (shown,) = application_energies(machine(variants), "choi", "unit")
    missing = [v.kernel.params["tile"] for v in shown.variants if np.isnan(v.predicted_j)]
    assert missing == ["4"]
    assert len(shown.errors_pct) == 2
    last = as_csv(application_sheet(shown)).splitlines()[-1].split(",")
    assert last[0] == "fmm_u tile=4"
    assert last[5:7] == ["", ""]


def test_nothing_is_shown_without_variants_or_without_microbenchmarks():
    assert application_energies(machine({}), "choi", "unit") == []
    alone = {"tile=1": VARIANTS["tile=1"]}
    assert application_energies(machine(alone), "choi", "unit") == []
    data = machine()
    only = data.take(np.array([label.startswith("fmm_u") for label in data.labels.tolist()]))
    assert application_energies(only, "choi", "unit") == []


def test_the_figure_and_the_table_hold_each_variant():
    (shown,) = application_energies(machine(), "choi", "unit")
    figure = application_figure(shown)
    drawn = {s.label: s for s in figure.panels[0].series if isinstance(s, Points)}
    ratio = {"tile=1": 1.0, "tile=2": 0.8, "tile=4": 1 / 0.9}
    expected = [ratio[v.kernel.label.removeprefix("fmm_u ")] for v in shown.variants]
    assert drawn["all counts"].y == pytest.approx(expected, rel=2e-3)
    assert (drawn["flops, bytes and time alone"].y < drawn["all counts"].y).all()
    assert "at most 20 %" in figure.caption
    sheet = application_sheet(shown)
    assert sheet.name == "variants_fmm-u"
    # The largest error first.
    assert [row[0] for row in sheet.rows] == [f"fmm_u tile={n}" for n in (2, 4, 1)]
    assert [row[6] for row in sheet.rows] == pytest.approx([-20.0, 11.1, 0.0], abs=0.2)
