"""Hardware counters beside exact counts, and fractions of the roof."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from analysis.figures.rooflines import utilisation_figure
from analysis.measurements.hardware_counters import kernel_counters
from analysis.measurements.observations import observations
from analysis.report.content import SiteReport
from analysis.report.sheets import utilisation_sheet
from analysis.rooflines.roofline import roof_fractions
from tests.analysis.test_report import measured as counted_rows
from tests.frames import measured_columns


def counted(**counters: object) -> str:
    return json.dumps({"counters": counters})


def test_counters_of_a_kernel_are_medians_beside_its_exact_counts() -> None:
    rows = [
        {
            "provenance": counted(
                events={"cycles": 100.0, "instructions": instructions},
                derived={"dp": dp, "own": 7.0},
                share=share,
            ),
            "n_dp": 50.0,
        }
        for instructions, dp, share in (
            (200.0, 50.0, {}),
            (300.0, 55.0, {"x": 0.25}),
            (250.0, 60.0, {}),
        )
    ]
    failed = {"status": "kernel failed", "provenance": rows[0]["provenance"]}
    other = {"site": "t", "provenance": rows[0]["provenance"]}
    [one] = kernel_counters(measured_columns([*rows, failed, other, {"kernel": "without"}]), "s")
    assert (one.label, one.rows) == ("k", 3)
    assert one.instructions_per_cycle == 2.5
    assert one.counted == {"dp": 55.0, "own": 7.0}
    assert one.counted_over_exact == pytest.approx({"dp": 1.1})
    assert one.least_share == 0.25


def test_a_fraction_of_the_roof_is_a_kernels_rate_over_the_best_rate_at_its_setting() -> None:
    """Two clocks: the flop roof is 10 and 20 flop/s, the byte roof 4 byte/s at both."""
    rows = []
    for core_mhz, flops in ((1000.0, 10.0), (2000.0, 20.0)):
        rows += [
            {"kernel": "flops", "n_dp": flops, "n_dram": 0.0},
            {"kernel": "bytes", "n_dp": 0.0, "n_dram": 4.0},
            # 5 flops and 1 byte in 1 s at the first clock: half of the flop roof, a quarter of
            # the other. It is as slow at the second clock: a quarter of each.
            {"kernel": "slow", "n_dp": 5.0, "n_dram": 1.0},
            {"kernel": "unknown"},
        ]
        for row in rows[-4:]:
            row["core_mhz"] = core_mhz
    fractions = roof_fractions(observations(measured_columns(rows), "s"))
    assert {f.label: f.fraction for f in fractions} == {"flops": 1.0, "bytes": 1.0, "slow": 0.375}
    assert {f.label: f.limited_by for f in fractions}["bytes"] == "dram"


def test_a_run_that_counted_one_of_both_says_nothing_of_instructions_per_cycle() -> None:
    rows = [
        {"provenance": counted(events={"cycles": 0.0, "instructions": 5.0}, derived={"dp": 50.0})},
        {"provenance": counted(events={"cycles": 10.0, "instructions": 5.0})},
        {"provenance": counted(events={"cycles": 10.0})},
        {"kernel": "none", "provenance": counted(events={"instructions": 5.0})},
        {"kernel": "empty", "provenance": counted()},
    ]
    by_label = {entry.label: entry for entry in kernel_counters(measured_columns(rows), "s")}
    assert set(by_label) == {"k", "none"}
    assert (by_label["k"].rows, by_label["k"].instructions_per_cycle) == (3, 0.5)
    assert by_label["k"].counted_over_exact == {}
    assert math.isnan(by_label["none"].instructions_per_cycle)


def utilised() -> SiteReport:
    """Three kernels, of which two were counted, one of them without cycles."""
    rows = [
        {"kernel": "a", "n_dp": 10.0, "n_dram": 1.0,
         "provenance": counted(events={"cycles": 10.0, "instructions": 15.0},
                               derived={"dp": 12.0}, share={"x": 0.5})},
        {"kernel": "b", "n_dp": 5.0, "n_dram": 1.0, "provenance": counted(derived={"own": 1.0})},
        {"kernel": "c", "n_dp": 2.5, "n_dram": 4.0},
    ]  # fmt: skip
    made = measured_columns(rows)
    return SiteReport(
        site="s", simulated=False, measured=counted_rows(3), data=observations(made, "s"),
        counters=kernel_counters(made, "s"),
    )  # fmt: skip


def test_the_table_of_the_roof_has_a_row_a_kernel_and_what_was_counted_of_it() -> None:
    site = utilised()
    sheet = utilisation_sheet(site)
    rows = [dict(zip([field.key for field in sheet.fields], r, strict=True)) for r in sheet.rows]
    assert [(row["kernel"], row["roof_fraction_pct"]) for row in rows] == [
        ("a", 100.0), ("b", 50.0), ("c", 100.0),
    ]  # fmt: skip
    by_cycle = [row["instructions_per_cycle"] for row in rows]
    over_exact = [row["counted_over_exact_dp"] for row in rows]
    assert by_cycle == pytest.approx([1.5, math.nan, math.nan], nan_ok=True)
    assert over_exact == pytest.approx([1.2, math.nan, math.nan], nan_ok=True)
    shares = [row["counted_share_pct"] for row in rows]
    assert shares == pytest.approx([50.0, 100.0, math.nan], nan_ok=True)
    bare = utilisation_sheet(replace(site, counters=[]))
    assert [field.key for field in bare.fields] == ["kernel", "roof_fraction_pct", "limited_by"]


def test_the_figure_of_the_roof_has_a_second_panel_where_cycles_were_counted() -> None:
    site = utilised()
    families = {"a": "first", "b": "first", "c": "other"}
    roofs = roof_fractions(site.data)
    figure = utilisation_figure(roofs, site.counters, families, "s", False)
    assert [panel.description for panel in figure.panels] == [
        "Fraction of the roof, % by family of kernels, s",
        "Instructions per cycle by family of kernels, s",
    ]
    uncounted = [entry for entry in site.counters if entry.label == "b"]
    assert len(utilisation_figure(roofs, uncounted, families, "s", False).panels) == 1
