"""What a campaign's energy costs and emits: sums against closed forms of hand-made rows."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.choice.pick import Pick
from analysis.measurements.campaign_energy import EnergyFactor, campaign_energy
from analysis.report.content import MeasurementCounts, SiteReport
from analysis.report.sheets import energy_sheet
from analysis.report.tables import as_records
from campaign.results import open_store
from campaign.store.measurement import Measurement
from campaign.verbs.command_line import main
from dvfs.dataset import ESTIMATED
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting
from tests.commands import answers
from tests.points import a_point
from tests.simulated_runs import simulate
from tests.stores import stored

MIDNIGHT = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""
BY_HOUR = tuple(float(hour) for hour in range(1, 25))
"""An hour's value is that of the hour in which it ends, 1 to 24."""
COUNTS = MeasurementCounts(ok=1, kernels=1, settings=1, nodes=[], meters=[])


def hourly(utc_offset_h: float = 0.0) -> EnergyFactor:
    return EnergyFactor(of="CO2e", unit="kg CO2e", per_kwh=BY_HOUR, utc_offset_h=utc_offset_h)


@pytest.mark.parametrize(
    ("utc_offset_h", "start_h", "length_h", "mean"),
    [
        (0.0, 0.0, 1.0, 1.0),
        (0.0, 13.25, 0.5, 14.0),
        (0.0, 13.5, 1.0, 14.5),
        (0.0, 13.75, 1.0, 0.25 * 14.0 + 0.75 * 15.0),
        (0.0, 23.5, 1.0, (24.0 + 1.0) / 2.0),  # across midnight
        (0.0, 22.0, 4.0, (23.0 + 24.0 + 1.0 + 2.0) / 4.0),
        (0.0, 5.0, 24.0, 12.5),  # a day is the mean, whenever it begins
        (0.0, 5.0, 49.0, (48.0 * 12.5 + 6.0) / 49.0),
        (1.0, 23.5, 1.0, 1.5),  # half past midnight in CET
        (-8.0, 7.5, 1.0, (24.0 + 1.0) / 2.0),
        (5.5, 18.5, 0.25, 1.0),  # India: half an hour beside the hours of UTC
        (0.0, 7.0, 0.0, 8.0),  # no time at all: the hour that begins
    ],
)
def test_an_hourly_factor_is_the_mean_over_the_hours(utc_offset_h, start_h, length_h, mean):
    start_s = np.array([MIDNIGHT + start_h * 3600.0])
    found = hourly(utc_offset_h).over(start_s, np.array([length_h * 3600.0]))
    assert found == pytest.approx([mean], rel=1e-6)


@given(
    st.lists(st.floats(0.0, 10.0), min_size=24, max_size=24),
    st.integers(-12 * 4, 14 * 4),
    st.integers(0, 10**5),
    st.integers(1, 200),
)
def test_an_hourly_factor_is_that_of_every_minute_added(values, quarters, minute, minutes):
    factor = EnergyFactor(of="cost", unit="EUR", per_kwh=values, utc_offset_h=quarters / 4.0)
    start_s = MIDNIGHT + 60.0 * minute
    hours = ((np.arange(minutes) + minute) * 60 + 30 + quarters * 900) // 3600 % 24
    found = factor.over(np.array([start_s]), np.array([60.0 * minutes]))
    assert found[0] == pytest.approx(np.array(values)[hours.astype(int)].mean(), rel=1e-6, abs=1e-6)


def test_a_constant_factor_needs_no_start_and_an_hourly_one_guesses_none():
    start_s, length_s = (
        np.array([0.0, np.nan, MIDNIGHT, MIDNIGHT]),
        np.array([9.0, 9.0, 9.0, np.nan]),
    )
    constant = EnergyFactor(of="cost", unit="EUR", per_kwh=(0.3,))
    assert constant.over(start_s, length_s).tolist() == [0.3] * 4
    found = hourly().over(start_s, length_s)
    assert np.isnan(found).tolist() == [True, True, False, True]


def a_pick(kernel: str, energy_j: float, saving_pct: tuple[float, float, float]) -> Pick:
    return Pick(
        **KernelInstance(kernel).as_dict(), setting=Setting(800.0, 400.0), energy_j=energy_j,
        time_s=1.0, saving_pct=saving_pct[0], slowdown_pct=0.0, measured=True,
        saving_low_pct=saving_pct[1], saving_high_pct=saving_pct[2], best_probability=1.0,
        expected_loss_pct=0.0, race_to_halt="right",
    )  # fmt: skip


def a_store(folder: Path) -> Path:
    """Kernel a: 36 and 72 kJ in windows of an hour that begin at 23:30 and 05:00, and one of which
    no energy is known; b: 3.6 kJ on two nodes, without a start."""
    rows = [
        ("a", 10.0, 360, 36e3, "n1", MIDNIGHT + 23.5 * 3600),
        ("a", 10.0, 360, 72e3, "n2", MIDNIGHT + 5.0 * 3600),
        ("a", 10.0, 360, math.nan, "n1", 0.0),
        ("b", 1.0, 1800, 2.0, "n1+n2", 0.0),
    ]
    made = [
        Measurement(
            point=a_point(kernel, repeat=repeat), status="ok", node=node, start_unix_s=start_s,
            time_s=time_s, iterations=iterations, energy_j=energy_j,
        )
        for repeat, (kernel, time_s, iterations, energy_j, node, start_s) in enumerate(rows)
    ]  # fmt: skip
    return stored(folder, *made).root


def sheet_of(folder: Path, *factors: EnergyFactor, picks=()):
    energy = campaign_energy(open_store(folder).columns, "s")
    site = SiteReport(
        site="s",
        simulated=False,
        measured=COUNTS,
        energy=energy,
        factors=factors,
        picks=list(picks),
    )
    sheet = energy_sheet(site)
    assert sheet is not None
    return {row["kernel"]: row for row in as_records(sheet)}


def test_energies_costs_and_savings_are_sums_over_the_measurements(tmp_path):
    """a takes 360 x 36 kJ = 3.6 kWh at 23:30 to 00:30 (24 and 1: 12.5 kg/kWh) and 7.2 kWh at 05:00
    to 06:00 (6 kg/kWh). Its pick takes 9 kJ where the fastest setting takes 10 kJ: 360 kJ of each
    of the two, 0.1 kWh, are saved."""
    price = EnergyFactor(of="cost", unit="EUR", per_kwh=(0.5,))
    picks = [a_pick("a", 9e3, (10.0, 5.0, 20.0)), a_pick("b", 1.0, (0.0, 0.0, 0.0))]
    rows = sheet_of(a_store(tmp_path / "s"), price, hourly(), picks=picks)
    a, b, total = rows["a"], rows["b"], rows["all kernels"]
    assert (a["measurements"], b["measurements"], total["measurements"]) == (3, 1, 4)
    assert (a["without_energy"], b["without_energy"], total["without_energy"]) == (1, 0, 1)
    assert (a["without_start"], b["without_start"], total["without_start"]) == (0, 1, 1)
    assert "estimated" not in a
    assert a["energy_kwh"] == pytest.approx(3.6 + 7.2)
    assert b["energy_kwh"] == pytest.approx(3600.0 / 3.6e6)
    assert total["energy_kwh"] == pytest.approx(10.801)
    assert [row["node_hours"] for row in (a, b, total)] == pytest.approx([3.0, 1.0, 4.0])
    assert [row["cost_EUR"] for row in (a, b, total)] == pytest.approx([5.4, 0.0005, 5.4005])
    # b has no start: nothing is guessed, and nothing is 0.
    assert a["co2e_kg"] == pytest.approx(3.6 * 12.5 + 7.2 * 6.0)
    assert math.isnan(b["co2e_kg"])
    assert total["co2e_kg"] == a["co2e_kg"]
    saved_kwh = 2 * 360 * 10e3 * 0.10 / 3.6e6
    saved_kg = 360 * 10e3 * 0.10 / 3.6e6 * (12.5 + 6.0)
    for part, of in (("", 1.0), ("_low", 0.5), ("_high", 2.0)):
        assert a[f"saved_energy_kwh{part}"] == pytest.approx(saved_kwh * of)
        assert a[f"saved_cost_EUR{part}"] == pytest.approx(saved_kwh * of * 0.5)
        assert a[f"saved_co2e_kg{part}"] == pytest.approx(saved_kg * of)
    assert b["saved_energy_kwh"] == 0.0
    assert math.isnan(b["saved_co2e_kg"])
    assert total["saved_energy_kwh"] == pytest.approx(saved_kwh)
    assert math.isnan(total["saved_energy_kwh_low"])


def test_without_factors_and_picks_there_is_energy_alone(tmp_path):
    rows = sheet_of(a_store(tmp_path / "s"))
    assert list(rows["a"]) == [
        "kernel", "measurements", "without_energy", "node_hours", "energy_kwh",
    ]  # fmt: skip


def test_estimated_energies_are_counted_and_unknown_nodes_give_no_node_hours(tmp_path):
    estimated = Measurement(
        point=a_point("a"), status="ok", time_s=1.0, iterations=1, energy_j=5.0,
        provenance={"imported": True, ESTIMATED: "a load"},
    )  # fmt: skip
    (row,) = sheet_of(stored(tmp_path / "s", estimated).root).values()
    assert row["estimated"] == 1
    assert math.isnan(row["node_hours"])
    assert "without_node" not in row


def test_a_measurement_without_a_node_is_counted_and_the_others_have_node_hours(tmp_path):
    made = [
        Measurement(
            point=a_point("a", repeat=repeat), status="ok", node=node, time_s=1.0,
            iterations=1800, energy_j=5.0,
        )
        for repeat, node in enumerate(("n1", "", "n1+n2"))
    ]  # fmt: skip
    (row,) = sheet_of(stored(tmp_path / "s", *made).root).values()
    assert (row["without_node"], row["node_hours"]) == (1.0, 0.5 + 1.0)


def test_the_factors_of_a_site_file_are_those_of_the_tables_that_are_printed(tmp_path):
    builtin = files("sites") / "builtin" / "jetson-tk1.toml"
    factors = f"""
[energy]
price_per_kwh = 0.31
currency = "CHF"
price_source = "contract"
price_year = 2026
co2e_kg_per_kwh = {list(BY_HOUR)}
co2e_source = "agency"
co2e_year = 2024
utc_offset_h = -3.5
"""
    (tmp_path / "s.toml").write_text(builtin.read_text(encoding="utf-8") + factors)
    (tmp_path / "c.toml").write_text(
        'name = "c"\n[[sites]]\nsite = "s.toml"\n[settings]\nchoose = "random"\ncount = 3\n'
        '[[kernels]]\nkernel = "sp_fma"\nparams = { level = "l2", ops_per_word = [1, 16] }\n'
    )
    store = str(tmp_path / "store")
    simulate(tmp_path / "c.toml", tmp_path / "store")
    (site,) = answers("report", store)
    assert site["simulated"] is True
    assert "measurement_levels" not in site["tables"]  # nothing was measured by a meter
    assert [
        (one["unit"], len(one["per_kwh"]), one["source"], one["year"], one["utc_offset_h"])
        for one in site["energy_factors"]
    ] == [("CHF", 1, "contract", 2026, -3.5), ("kg CO2e", 24, "agency", 2024, -3.5)]
    table = site["tables"]["campaign_energy"]
    rows = open_store(store).dataset
    kwh = (rows["energy_j"] * rows["iterations"]).values / 3.6e6
    hours = (rows["start_unix_s"].values / 3600.0 - 3.5) % 24.0
    total = table["rows"][-1]
    assert total["kernel"] == "all kernels"
    assert total["energy_kwh"] == pytest.approx(kwh.sum(), rel=1e-5)
    assert total["cost_CHF"] == pytest.approx(0.31 * kwh.sum(), rel=1e-5)
    # The windows are of a second: in which hour one ends is seen only where it begins just before.
    within = kwh.sum() / 3600.0 * 24.0
    assert total["co2e_kg"] == pytest.approx((kwh * np.floor(hours + 1.0)).sum(), abs=within)
    page = tmp_path / "page.html"
    assert main(["report", store, "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert all(word in text for word in ("(contract, 2026)", "(agency, 2024)", "UTC-3.5 h"))
