"""Checks before fitting: silent on clean campaigns, and each injected fault named by its rows."""

from __future__ import annotations

import json
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from analysis.quality import Finding, check, describe
from analysis.quality.noise import MedianGrid
from analysis.quality.powers_of_ten import power_levels
from analysis.quality.rows import rows_of
from tests.analysis.simulated_tk1 import simulated_columns
from tests.frames import as_columns

CORE_MHZ = np.array([500.0, 600, 700, 800, 900, 1000, 1100, 1200])
MEM_MHZ = np.array([400.0, 800, 1600])
N_KERNELS, N_REPEATS = 8, 3
QUICK = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),  # a seed does not get simpler by being smaller
)
SEEDS = st.integers(0, 2**16)


def sweep(
    seed: int,
    noise: float = 0.02,
    core: np.ndarray = CORE_MHZ,
    mem: np.ndarray = MEM_MHZ,
    repeats: int = N_REPEATS,
    real_core: np.ndarray | None = None,
) -> pd.DataFrame:
    """A clean campaign: a roofline in time, a power of leakage, clock tree and operations.

    ``real_core``: the clock that each nominal core clock is in truth.
    """
    rng = np.random.default_rng(seed)
    kernel, c, m, repeat = (
        grid.ravel()
        for grid in np.meshgrid(
            np.arange(N_KERNELS), np.arange(core.size), mem, np.arange(repeats), indexing="ij"
        )
    )
    core_mhz = core[c]
    true_mhz = core_mhz if real_core is None else real_core[c]
    flops = 1e11 * (1.0 + np.arange(N_KERNELS))[kernel]
    intensity = np.geomspace(0.5, 60, N_KERNELS)[kernel]
    core_v = 0.7 + 0.4 * (true_mhz / 1200) ** 2
    time_s = np.maximum(flops / (true_mhz * 1e8), flops / intensity / (m * 2e7))
    power_w = flops * (40e-12 * core_v**2 + 300e-12 / intensity) / time_s + 8 * core_v
    power_w += 0.02 * core_v**2 * true_mhz + 0.004 * m
    time_s = time_s * np.exp(rng.normal(0, noise, time_s.size))
    power_w = power_w * np.exp(rng.normal(0, noise, time_s.size))
    return pd.DataFrame(
        {
            "point_id": [f"p{i}" for i in range(time_s.size)],
            "site": "s",
            "kernel": [f"k{k}" for k in kernel],
            "params": "{}",
            "node": "n",
            "status": "ok",
            "core_mhz": core_mhz,
            "mem_mhz": m,
            "repeat": repeat,
            "time_s": time_s,
            "energy_j": time_s * power_w,
            "start_unix_s": 1e9 + 10.0 * rng.permutation(time_s.size),
            "provenance": "{}",
            "clock_proof": "read back",
            "simulated": False,
        }
    )


def findings(frame: pd.DataFrame, name: str | None = None) -> list[Finding]:
    all_findings = check(as_columns(frame), "s")
    return [finding for finding in all_findings if name in (None, finding.check)]


def only(frame: pd.DataFrame, name: str) -> Finding:
    """The one finding that there is."""
    all_findings = findings(frame)
    assert [finding.check for finding in all_findings] == [name], [
        finding.text for finding in all_findings
    ]
    return all_findings[0]


def row_of(frame: pd.DataFrame, kernel: int, core: int, mem: int, repeat: int = 0) -> int:
    chosen = (frame["kernel"] == f"k{kernel}") & (frame["repeat"] == repeat)
    chosen &= (frame["core_mhz"] == CORE_MHZ[core]) & (frame["mem_mhz"] == MEM_MHZ[mem])
    return int(np.flatnonzero(chosen)[0])


@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_clean_campaigns_are_silent(repeats):
    """Each check is made for a false alarm in a hundred campaigns."""
    alarms = [
        finding.text
        for seed in range(16)
        for finding in findings(sweep(seed, 0.02 + 0.01 * (seed % 2), repeats=repeats))
    ]
    assert len(alarms) <= 1, alarms


@pytest.mark.parametrize("noise", ["off", "default"])
def test_the_simulated_jetson_is_silent(noise):
    dataset = simulated_columns(noise, per_family=4)
    assert [finding.text for finding in check(dataset, "tk1")] == []


def test_no_rows_no_findings():
    frame = sweep(0)
    assert check(as_columns(frame), "elsewhere") == []
    assert findings(frame.assign(energy_j=np.nan)) == []


@QUICK
@given(SEEDS, st.integers(0, N_KERNELS - 1), st.integers(1, 6), st.integers(0, 2), st.booleans())
def test_an_outlier_among_repeats_is_named_alone(seed, kernel, core, mem, up):
    frame = sweep(seed)
    row = row_of(frame, kernel, core, mem, seed % N_REPEATS)
    frame.loc[row, "energy_j"] *= 1.6 if up else 0.6
    finding = only(frame, "outliers")
    assert finding.rows.tolist() == [row]
    assert finding.rows.dtype == np.int64
    assert f"k{kernel} at {CORE_MHZ[core]:g}/{MEM_MHZ[mem]:g} MHz" in finding.text


@QUICK
@given(SEEDS, st.integers(0, N_KERNELS - 1), st.integers(1, 6), st.integers(0, 2))
def test_a_power_that_falls_is_named_by_the_row_out_of_line(seed, kernel, core, mem):
    frame = sweep(seed, noise=0.005, repeats=1)
    row = row_of(frame, kernel, core, mem)
    frame.loc[row, "energy_j"] *= 0.6
    finding = only(frame, "power")
    assert finding.severity == "warning"
    assert finding.rows.tolist() == [row]


@QUICK
@given(SEEDS, st.integers(0, N_KERNELS - 1), st.integers(1, 6), st.integers(0, 2))
def test_a_time_beyond_the_clocks_ratio_is_named(seed, kernel, core, mem):
    frame = sweep(seed, noise=0.005, repeats=1)
    row = row_of(frame, kernel, core, mem)
    frame.loc[row, ["time_s", "energy_j"]] *= 1.8
    finding = only(frame, "time")
    assert finding.rows.tolist() == [row]
    assert "ratio" in finding.text


def test_a_slow_row_where_both_clocks_rise_is_named():
    """No grid: every setting raises both clocks, so that there is no line to compare along."""
    frame = sweep(5, noise=0.005, core=CORE_MHZ, mem=MEM_MHZ, repeats=1)
    diagonal = {(500.0, 400.0), (800.0, 800.0), (1200.0, 1600.0)}
    pairs = list(zip(frame["core_mhz"], frame["mem_mhz"], strict=True))
    frame = frame[[pair in diagonal for pair in pairs]].reset_index(drop=True)
    row = int(np.flatnonzero((frame["kernel"] == "k3") & (frame["core_mhz"] == 1200))[0])
    frame.loc[row, ["time_s", "energy_j"]] *= 8.0
    assert row in findings(frame, "time")[0].rows


@QUICK
@given(SEEDS, st.integers(0, N_KERNELS - 1))
def test_a_kernel_listed_under_two_names_is_found_to_the_last_bit(seed, kernel):
    frame = sweep(seed)
    copy = frame[frame["kernel"] == f"k{kernel}"].assign(kernel="again")
    both = pd.concat([frame, copy], ignore_index=True)
    duplicates = findings(both, "duplicates")
    named = np.sort(np.concatenate([finding.rows for finding in duplicates]))
    expected = np.flatnonzero(both["kernel"].isin([f"k{kernel}", "again"]))
    assert named.tolist() == expected.tolist()
    assert all("again" in finding.text and f"k{kernel}" in finding.text for finding in duplicates)
    assert len(findings(both)) == len(duplicates)


def test_the_same_row_twice_is_named():
    frame = sweep(1)
    twice = pd.concat(
        [frame, frame.iloc[[7, 100]].assign(energy_j=lambda f: f["energy_j"] * 1.001)]
    )
    finding = findings(twice.reset_index(drop=True), "duplicates")[0]
    assert finding.rows.tolist() == [7, 100, len(frame), len(frame) + 1]


def test_coarse_readings_that_agree_here_and_there_are_no_copies():
    frame = sweep(2)
    frame["time_s"], frame["energy_j"] = frame["time_s"].round(1), frame["energy_j"].round(-1)
    assert findings(frame, "duplicates") == []


def with_power(frame: pd.DataFrame, power_w: np.ndarray) -> pd.DataFrame:
    return frame.assign(provenance=[json.dumps({"power_w": w}) for w in power_w.tolist()])


@QUICK
@given(SEEDS, st.sets(st.integers(0, 500), min_size=1, max_size=4))
def test_energy_that_is_not_power_times_time_is_named(seed, rows):
    frame = sweep(seed)
    power_w = (frame["energy_j"] / frame["time_s"]).to_numpy(copy=True)
    assert findings(with_power(frame, power_w)) == []
    power_w[list(rows)] *= 1.03
    assert only(with_power(frame, power_w), "energy").rows.tolist() == sorted(rows)


def test_a_wrong_unit_is_recognised_by_its_factor():
    frame = sweep(3)
    power_w = (frame["energy_j"] / frame["time_s"]).to_numpy(copy=True)
    frame["energy_j"] *= 1000.0
    unit_findings = findings(with_power(frame, power_w))
    assert [finding.check for finding in unit_findings] == ["energy", "units"]
    assert "factor of 1000" in unit_findings[0].text


def test_a_kernel_that_was_measured_at_few_settings_is_compared_at_these():
    """Its power is low there, as that of all kernels is: 0.1, 2, 40 and 800 W."""
    frame = sweep(1, core=CORE_MHZ[:4], mem=MEM_MHZ[:1], repeats=1)
    rows = rows_of(as_columns(frame), "s")
    y = np.tile(np.log([0.1, 2.0, 40.0, 800.0]), (N_KERNELS, 1))
    y[0, 2:] = np.nan
    assert power_levels(rows, MedianGrid(y, np.zeros(y.shape), np.inf)) == []
    y[0] += np.log(1000.0)
    (finding,) = power_levels(rows, MedianGrid(y, np.zeros(y.shape), np.inf))
    assert "1e+03 times as high as" in finding.text
    assert finding.rows.tolist() == [row_of(frame, 0, core, 0) for core in range(4)]


def test_a_kernel_is_its_name_and_its_parameters():
    frame = sweep(1, repeats=1)
    number = frame["kernel"].str[1:].astype(int)
    frame["kernel"] = number.floordiv(2).map(lambda i: "abcd"[i])
    frame["params"] = number.mod(2).map(lambda n: json.dumps({"n": n}))
    rows = rows_of(as_columns(frame), "s")
    expected = [f"{'abcd'[i // 2]} n={i % 2}" for i in number]
    assert [rows.kernels[code] for code in rows.kernel] == expected
    assert len(rows.kernels) == N_KERNELS


@QUICK
@given(SEEDS)
def test_capped_clocks_are_one(seed):
    """Nominal 1100 and 1200 MHz run at 1000 in truth."""
    frame = sweep(seed, noise=0.01, real_core=np.minimum(CORE_MHZ, 1000.0))
    finding = only(frame, "clocks")
    assert "core clocks 1000, 1100, 1200 MHz" in finding.text
    assert finding.rows.tolist() == np.flatnonzero(frame["core_mhz"] >= 1000).tolist()


def test_memory_clocks_in_name_only():
    frame = sweep(4, mem=np.array([800.0]))
    other = sweep(5, mem=np.array([800.0])).assign(mem_mhz=1600.0)
    both = pd.concat([frame, other], ignore_index=True)
    finding = only(both, "clocks")
    assert "memory clocks 800, 1600 MHz" in finding.text
    assert len(finding.rows) == len(both)


def test_clocks_that_were_not_held_are_named():
    frame = sweep(6).assign(core_mhz_achieved=lambda f: f["core_mhz"], mem_mhz_achieved=np.nan)
    frame.loc[[3, 5], "core_mhz_achieved"] = 450.0
    finding = only(frame, "clocks")
    assert finding.rows.tolist() == [3, 5]
    assert "in 2 rows the achieved clock is more than 5 % from the nominal one" in finding.text
    assert "ran at 450 MHz" in finding.text


def capped(seed: int) -> pd.DataFrame:
    """One nominal setting under seven power caps: the clock follows the cap."""
    frame = sweep(seed, mem=np.array([800.0]), repeats=1)
    caps = frame.groupby("kernel").cumcount()
    return frame.assign(core_mhz=1200.0, repeat=caps)


@pytest.mark.parametrize("domain", ["core", "mem"])
def test_a_clock_without_voltages_among_others_with_them_is_named(domain):
    frame = sweep(1)
    mhz = frame[f"{domain}_mhz"]
    frame[f"{domain}_v"] = np.where(mhz == 800, np.nan, 0.7 + mhz / 4000)
    finding = only(frame, "voltages")
    assert finding.severity == "warning"
    assert finding.rows.tolist() == np.flatnonzero(mhz == 800).tolist()
    # The others at the clock have one: nothing is unknown.
    frame.loc[frame["kernel"] == "k0", f"{domain}_v"] = 0.7 + mhz / 4000
    assert findings(frame) == []


@pytest.mark.parametrize("column", ["core_mhz", "mem_mhz"])
def test_rows_without_a_clock_that_others_have_are_named(column):
    frame = sweep(1)
    lacking = [row_of(frame, 2, 4, 1, repeat) for repeat in range(N_REPEATS)]
    frame.loc[lacking, column] = np.nan
    [finding] = findings(frame, "clocks")
    assert sorted(finding.rows.tolist()) == lacking
    # Under a power limit a row may have no clock.
    frame["power_limit_w"] = np.where(frame[column].isna(), 150.0, np.nan)
    assert findings(frame, "clocks") == []


def test_a_sweep_over_unnamed_power_caps_is_refused():
    for frame in (capped(7), capped(7).assign(core_mhz=np.nan, mem_mhz=np.nan)):
        finding = only(frame, "power caps")
        assert finding.severity == "refused"
        assert len(finding.rows) == len(frame)
        assert "power_limit_w" in finding.text


@pytest.mark.parametrize("key", ["power_limit", "pl", "Power-Cap", "power_limit_w"])
def test_a_sweep_over_named_power_caps_is_refused(key):
    frame = capped(8)
    by_params = frame.assign(params=[json.dumps({key: 100 + 10 * r}) for r in frame["repeat"]])
    by_label = frame.assign(
        provenance=[json.dumps({"labels": {key: f"{100 + 10 * r}"}}) for r in frame["repeat"]]
    )
    for table in (by_params, by_label):
        finding = findings(table, "power caps")[0]
        assert finding.severity == "refused"
        assert key in finding.text and len(finding.rows) == len(frame)


def test_one_cap_or_one_setting_alone_is_no_sweep_over_caps():
    assert findings(sweep(9).assign(params='{"power_limit": 200}')) == []
    frame = sweep(9, core=CORE_MHZ[:1], mem=MEM_MHZ[:1], repeats=10)
    assert findings(frame) == []


def test_a_jump_in_the_order_of_measuring_is_named():
    frame = sweep(10, noise=0.01)
    order = np.argsort(frame["start_unix_s"].to_numpy())
    late = order[int(0.7 * len(order)) :]
    frame.loc[late, "energy_j"] *= 1.05
    finding = findings(frame, "order")[0]
    assert "power" in finding.text
    named = set(finding.rows.tolist())
    assert len(named ^ set(late.tolist())) <= 0.05 * len(frame)


def test_nodes_that_differ_are_no_outliers():
    frame = sweep(11, repeats=4)
    frame["node"] = np.where(frame["repeat"] < 2, "a", "b")
    frame["repeat"] %= 2
    frame.loc[frame["node"] == "b", "energy_j"] *= 1.15
    assert findings(frame, "outliers") == []


def test_a_finding_is_described_by_its_first_rows():
    frame = sweep(12)
    dataset = as_columns(frame.assign(params='{"n": 3}'))
    lines = describe(np.arange(9), dataset, limit=2)
    assert lines[0] == "k0 n=3 at 500/400 MHz, repeat 0, node n (p0)"
    assert lines[2:] == ["and 7 further rows"]


def test_a_large_campaign_is_checked_in_a_second_or_so():
    parts = [sweep(seed) for seed in range(40)]
    frame = pd.concat(parts, ignore_index=True)
    frame["kernel"] = (
        frame["kernel"] + "-" + pd.Series(np.repeat(range(40), len(parts[0]))).map(str)
    )
    dataset = as_columns(frame)
    began = time.process_time()
    check(dataset, "s")
    assert time.process_time() - began < 1.5


def test_energies_that_are_replayed_from_a_recording_are_named():
    table = sweep(0)
    channel = {"recorded:recorded/board": {"energy_j": 1.0, "counts": True}}
    apart = {"recorded:recorded/board": {"energy_j": 1.0, "counts": False}}
    table["meters"] = json.dumps({"rapl:package": {"energy_j": 1.0, "counts": True}} | apart)
    table.loc[[3, 5], "meters"] = json.dumps(channel)
    findings = check(as_columns(table), table["site"][0])
    (finding,) = (one for one in findings if one.check == "meter")
    assert finding.severity == "warning" and finding.rows.tolist() == [3, 5]
    assert "in 2 rows the energy is replayed from a recording" in finding.text


@pytest.mark.filterwarnings("error")
def test_settings_at_which_no_kernel_of_a_class_was_measured_give_no_warning():
    """Integer kernels at two clocks, and kernels of two further classes at two others."""
    rng = np.random.default_rng(0)
    table = sweep(0, repeats=1).head(24).assign(mem_mhz=800.0)
    kernel = np.arange(24) // 2
    is_integer = kernel % 2 == 1
    table = table.assign(
        kernel=[f"k{k}" for k in kernel],
        core_mhz=np.where(is_integer, 500.0, 600.0) + 200.0 * (np.arange(24) % 2),
        time_s=rng.uniform(1.0, 1.1, 24),
        energy_j=50.0,
        n_int=np.where(is_integer, 1e9 * (kernel + 1), np.nan),
        n_sp=np.where(is_integer, np.nan, 1e9 * (kernel + 1)),
        n_dp=np.where(is_integer, np.nan, 1e8 * (kernel + 2)),
    )
    check(as_columns(table), "s")
