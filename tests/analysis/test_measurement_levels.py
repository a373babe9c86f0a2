"""The levels of the EE HPC WG that hand-made stores reach: each aspect at each level.

The numbers are those of table 3.1 of the methodology, and of its sections 3.1 and 3.4.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.measurements.measurement_levels import levels, metered
from analysis.report.content import MeasurementCounts, SiteReport
from analysis.report.sheets import levels_sheet
from campaign.results import open_store
from campaign.store.measurement import Measurement
from dvfs.dataset import ESTIMATED
from tests.points import a_point
from tests.stores import stored

POWER = {"kind": "power", "domain": "node", "period_s": 1.0, "counts": True}
ENERGY = POWER | {"kind": "energy", "period_s": 0.1}
BEST: dict[str, Any] = {
    "compute_nodes": 20,
    "nodes_per_supply": 4,
    "power_conversion": "upstream",
    "accuracy_pct": 1.0,
    "sampling_hz": 5000.0,
    "interconnect": "measured",
    "other_subsystems": "none",
}
"""Stated of a machine of 20 nodes."""
NAMES = {
    "1a": "1a: granularity",
    "1b": "1b: timing",
    "1c": "1c: measurements",
    "2": "2: machine fraction",
    "3": "3: subsystems",
    "4a": "4a: location of the meters",
    "4b": "4b: accuracy of the meters",
    "all": "all",
}


def a_measurement(
    repeat: int = 0,
    params: str = '{"argv": ["./solver"]}',
    channel: dict[str, Any] | None = ENERGY,
    window_s: float = 60.0,
    windows: int = 1,
    nodes: int = 20,
    power_w: float = 50e3,
    idle: bool = True,
    read_s: float | None = 0.1,
    name: str = "n0/bmc:power",
    **provenance: Any,
) -> Measurement:
    """One of runs of a program on the whole machine, with all that level 3 asks for."""
    protocol = {"windows": windows} | ({"idle_w": 9.0} if idle else {})
    sampling = {} if read_s is None else {"bmc": {"period_s": read_s}}
    return Measurement(
        point=a_point("solver", params=params, repeat=repeat), status="ok",
        node="+".join(f"n{i}" for i in range(nodes)),
        time_s=window_s * windows / 4, iterations=4, energy_j=power_w * window_s * windows / 4,
        meters={} if channel is None else {name: channel},
        provenance={"protocol": protocol, "sampling": sampling} | provenance,
    )  # fmt: skip


def found(folder: Path, measurements: list[Measurement], stated: dict[str, Any]) -> dict[str, int]:
    store = stored(folder / "s", *measurements)
    how = metered(open_store(store.root).columns, "s")
    assert how is not None
    all_levels = levels(how, {key: value for key, value in stated.items() if value is not None})
    for one in all_levels:
        assert bool(one.missing) == (one.level < 3)
        assert one.known
    by_name = {one.aspect: one.level for one in all_levels}
    assert list(by_name) == list(NAMES.values())
    return {key: by_name[name] for key, name in NAMES.items()}


def test_a_whole_machine_measured_by_the_best_meters_reaches_level_3(tmp_path):
    assert set(found(tmp_path, [a_measurement()], BEST).values()) == {3}


@pytest.mark.parametrize(
    ("aspect", "level", "measured", "stated"),
    [
        # 1a: a sample a second; for level 3 a counter that samples at 5 kHz (AC) or 120 Hz (DC).
        ("1a", 2, {"channel": POWER, "read_s": 0.5}, {}),
        ("1a", 2, {}, {"sampling_hz": 4999.0}),
        ("1a", 2, {}, {"sampling_hz": None}),
        ("1a", 3, {}, {"sampling_hz": 120.0, "power_conversion": "loss measured"}),
        ("1a", 2, {}, {"sampling_hz": 119.0, "power_conversion": "loss measured"}),
        ("1a", 2, {"channel": ENERGY, "read_s": 1.0}, {"sampling_hz": None}),
        ("1a", 0, {"channel": ENERGY, "read_s": 2.0}, {"sampling_hz": None}),
        ("1a", 0, {"channel": POWER | {"period_s": 2.0}, "read_s": 0.1}, {"sampling_hz": None}),
        ("1a", 2, {"channel": POWER | {"period_s": 5.0}}, {"sampling_hz": 50.0}),
        ("1a", 0, {"channel": POWER | {"period_s": 5.0}}, {"sampling_hz": 0.5}),
        ("1a", 0, {"read_s": None}, {"sampling_hz": None}),
        # 1b: a core phase of a minute; the full run for levels 2 and 3.
        ("1b", 1, {"params": "{}"}, {}),
        ("1b", 0, {"window_s": 59.0}, {}),
        ("1b", 0, {"window_s": 30.0, "windows": 2}, {}),
        # 1c: readings a tenth of the core phase apart; idle power and the full run; energies.
        ("1c", 0, {"channel": POWER | {"period_s": 7.0}}, {}),
        ("1c", 0, {"read_s": None}, {}),
        ("1c", 1, {"idle": False}, {}),
        ("1c", 1, {"params": "{}"}, {}),
        ("1c", 2, {"channel": POWER}, {}),
        # 2, of 20 nodes: all, or at least 15 and 2 kW, 15 and 10 kW; 40 kW for level 1.
        ("2", 3, {"power_w": 100.0}, {"nodes_per_supply": None}),
        ("2", 2, {"nodes": 16}, {}),
        ("2", 2, {"nodes": 16, "power_w": 10e3}, {}),
        ("2", 1, {"nodes": 16, "power_w": 9.9e3}, {}),
        ("2", 1, {"nodes": 16, "power_w": 2e3}, {}),
        ("2", 0, {"nodes": 16, "power_w": 1.9e3}, {}),
        ("2", 1, {"nodes": 12, "power_w": 40e3}, {}),
        ("2", 0, {"nodes": 12, "power_w": 39e3}, {}),
        ("2", 1, {"nodes": 12, "power_w": 40e3}, {"compute_nodes": None}),
        ("2", 0, {"nodes": 16}, {"nodes_per_supply": None}),
        ("2", 0, {"nodes": 18}, {}),
        # ... of 200: a tenth is 20, an eighth 25.
        ("2", 1, {"nodes": 24}, {"compute_nodes": 200}),
        ("2", 2, {"nodes": 28}, {"compute_nodes": 200}),
        ("2", 0, {"nodes": 16, "power_w": 30e3}, {"compute_nodes": 200}),
        # 3
        ("3", 0, {"channel": ENERGY | {"domain": "package"}}, {}),
        ("3", 0, {}, {"interconnect": None}),
        ("3", 1, {}, {"other_subsystems": None}),
        ("3", 2, {}, {"interconnect": "estimated"}),
        ("3", 2, {}, {"other_subsystems": "estimated"}),
        # 4a
        ("4a", 0, {}, {"power_conversion": None}),
        ("4a", 1, {}, {"power_conversion": "loss by manufacturer"}),
        ("4a", 2, {}, {"power_conversion": "loss of one supply"}),
        ("4a", 3, {}, {"power_conversion": "loss measured"}),
        ("4a", 0, {"channel": ENERGY | {"domain": "gpu"}}, {}),
        # 4b: 5, 2 and 1 %.
        ("4b", 0, {}, {"accuracy_pct": None}),
        ("4b", 0, {}, {"accuracy_pct": 5.1}),
        ("4b", 1, {}, {"accuracy_pct": 5.0}),
        ("4b", 2, {}, {"accuracy_pct": 2.0}),
        ("4b", 2, {}, {"accuracy_pct": 1.1}),
        # Without a meter nothing is reached, whatever is stated.
        ("all", 0, {"channel": None}, {}),
        ("4b", 0, {"channel": None}, {}),
        ("1b", 0, {"channel": ENERGY | {"counts": False}}, {}),
        ("3", 0, {"imported": True, ESTIMATED: "by load"}, {}),
        ("4b", 0, {"name": "recorded/bmc:power"}, {}),
        ("all", 1, {}, {"accuracy_pct": 3.0}),
    ],
)
def test_a_level_is_reached_by_what_it_asks_for(tmp_path, aspect, level, measured, stated):
    assert found(tmp_path, [a_measurement(**measured)], BEST | stated)[aspect] == level


@pytest.mark.parametrize(
    ("aspect", "level", "worse"),
    [
        ("1a", 2, {"channel": POWER, "read_s": 0.5}),
        ("1b", 0, {"window_s": 10.0}),
        ("1c", 1, {"params": "{}"}),
        ("1c", 1, {"idle": False}),
        ("2", 0, {"nodes": 4, "power_w": 5e3}),
        ("3", 0, {"channel": ENERGY | {"domain": "dram"}}),
        ("4b", 0, {"channel": None}),
    ],
)
def test_a_site_reaches_what_all_of_its_measurements_reach(tmp_path, aspect, level, worse):
    rows = [a_measurement(0), a_measurement(1, **worse), a_measurement(2)]
    assert found(tmp_path, rows, BEST)[aspect] == level


def test_nothing_stated_and_an_imported_row_reach_no_level(tmp_path):
    assert set(found(tmp_path / "a", [a_measurement(params="{}")], {}).values()) == {0, 1, 2}
    bare = Measurement(point=a_point("k"), status="ok", time_s=100.0, iterations=1, energy_j=1e6)
    assert set(found(tmp_path / "b", [bare], BEST).values()) == {0}


def test_the_sheet_has_a_row_an_aspect_and_none_where_there_is_nothing(tmp_path):
    counts = MeasurementCounts(ok=1, kernels=1, settings=1, nodes=[], meters=[])
    site = SiteReport(site="s", simulated=False, measured=counts)
    assert levels_sheet(site) is None
    store = stored(tmp_path / "s", a_measurement())
    how = metered(open_store(store.root).columns, "s")
    assert how is not None
    sheet = levels_sheet(
        SiteReport(site="s", simulated=False, measured=counts, levels=levels(how, {}))
    )
    assert sheet is not None
    assert [row[:2] for row in sheet.rows] == [
        [NAMES["1a"], "2"], [NAMES["1b"], "3"], [NAMES["1c"], "3"], [NAMES["2"], "none"],
        [NAMES["3"], "none"], [NAMES["4a"], "none"], [NAMES["4b"], "none"], ["all", "none"],
    ]  # fmt: skip
