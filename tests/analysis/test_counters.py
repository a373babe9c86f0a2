"""Hardware counters beside exact counts, and fractions of the roof."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import xarray as xr

from analysis.measurements.hardware_counters import kernel_counters
from analysis.measurements.observations import observations
from analysis.time.roof_fractions import roof_fractions


def dataset(rows: list[dict[str, object]]) -> xr.Dataset:
    """One measurement a row; columns that a row leaves out get a usual value."""
    usual: dict[str, object] = {
        "site": "s",
        "kernel": "k",
        "params": "{}",
        "status": "ok",
        "provenance": "{}",
        "simulated": False,
        "node": "n1",
        "core_mhz": 1000.0,
        "mem_mhz": math.nan,
        "core_v": math.nan,
        "mem_v": math.nan,
        "voltage_origin": "",
        "time_s": 1.0,
        "energy_j": 1.0,
        "energy_std_j": math.nan,
        "n_dp": math.nan,
        "n_dram": math.nan,
    }
    columns = {name: [row.get(name, value) for row in rows] for name, value in usual.items()}
    text = ("site", "kernel", "params", "status", "provenance", "node", "voltage_origin")
    return xr.Dataset(
        {
            name: ("measurement", np.array(values, object if name in text else None))
            for name, values in columns.items()
        }
    )


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
    [one] = kernel_counters(dataset([*rows, failed, other, {"kernel": "without"}]), "s")
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
    fractions = roof_fractions(observations(dataset(rows), "s"))
    assert {f.label: f.fraction for f in fractions} == {"flops": 1.0, "bytes": 1.0, "slow": 0.375}
    assert {f.label: f.limited_by for f in fractions}["bytes"] == "dram"
