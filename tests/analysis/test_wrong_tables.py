"""Tables that are wrong as a whole or in part: seen, with kernel, setting and advice."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.measurements.provenance import UNPROVEN, clock_proofs
from analysis.quality.clocks import against_the_clocks, name_only
from analysis.quality.noise import MedianGrid
from analysis.quality.repeats import level_changes
from analysis.quality.rows import Rows, rows_of
from dvfs.dataset import CLOCK_UNPROVEN, POSSIBLE, READ_BACK, SIMULATED, STATED, TIMED
from sites.site_reading import built_in_sites, read_site
from tests.analysis.test_quality import CORE_MHZ, MEM_MHZ, findings, only, sweep
from tests.frames import as_columns


def counted(seed: int, noise: float = 0.02) -> pd.DataFrame:
    """:func:`tests.analysis.test_quality.sweep` with its operations and bytes."""
    frame = sweep(seed, noise)
    kernel = frame["kernel"].str[1:].astype(int)
    flops = 1e11 * (1.0 + kernel)
    intensity = np.geomspace(0.5, 60, kernel.max() + 1)[kernel]
    return frame.assign(n_sp=flops, n_dram=flops / intensity)


def named_rows(frame: pd.DataFrame, mask: pd.Series) -> list[int]:
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_counts_alone_change_nothing(seed):
    assert findings(counted(seed)) == []


@pytest.mark.parametrize(
    ("column", "factor", "advice"),
    [
        ("core_mhz", 1e3, "factor 1e-3"),
        ("core_mhz", 1e-3, "factor 1e3"),
        ("core_mhz", 1e6, "factor 1e-6"),
        ("mem_mhz", 1e3, "factor 1e-3"),
        ("core_v", 1e3, "factor 1e-3"),
        ("core_v", 1e6, "factor 1e-6"),
    ],
)
def test_clocks_and_voltages_that_no_device_has_are_refused(column, factor, advice):
    frame = counted(1).assign(core_v=lambda f: 0.7 + f["core_mhz"] / 4000, mem_v=1.0)
    frame[column] *= factor
    refused = [finding for finding in findings(frame) if finding.severity == "refused"]
    assert [finding.check for finding in refused] == ["units"]
    assert len(refused[0].rows) == len(frame)
    assert advice in refused[0].text and column in refused[0].text


def test_clocks_of_one_kernel_in_khz_are_named():
    frame = counted(2)
    mask = frame["kernel"] == "k3"
    frame.loc[mask, "core_mhz"] *= 1000
    refused = [finding for finding in findings(frame) if finding.severity == "refused"]
    assert [finding.rows.tolist() for finding in refused] == [named_rows(frame, mask)]
    assert "k3" in refused[0].text


def test_every_built_in_site_is_possible():
    for path in built_in_sites().values():
        site = read_site(path)
        for name in ("core", "mem"):
            domain = getattr(site.domains, name)
            low, high, _ = POSSIBLE[f"{name}_mhz"]
            assert domain is None or all(low <= mhz <= high for mhz in domain.frequencies_mhz)


@pytest.mark.parametrize(("column", "factor"), [("energy_j", 1e3), ("time_s", 1e3)])
def test_a_whole_table_in_another_unit_is_flagged(column, factor):
    """A GPU of some 30 W would draw 30 kW, or 30 mW."""
    frame = counted(3)
    frame[column] *= factor
    units = findings(frame, "units")
    assert len(units) == 1 and len(units[0].rows) == len(frame)


def test_ms_and_mj_together_are_seen_by_the_energy_of_an_operation():
    frame = counted(4)
    frame[["time_s", "energy_j"]] *= 1000
    assert "pJ an operation" in only(frame, "units").text


@pytest.mark.parametrize("factor", [1e3, 1e-3])
@pytest.mark.parametrize("columns", [["energy_j"], ["time_s"], ["time_s", "energy_j"]])
@pytest.mark.parametrize("kernel", [0, 7])
def test_one_kernel_in_another_unit_is_named_alone(columns, factor, kernel):
    frame = counted(5)
    mask = frame["kernel"] == f"k{kernel}"
    frame.loc[mask, columns] *= factor
    units = findings(frame, "units")
    assert named_rows(frame, mask) in [finding.rows.tolist() for finding in units]
    assert all(f"k{kernel}" in finding.text for finding in units)


@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_without_counts_a_kernel_far_from_all_others_in_time_is_noted(factor):
    frame = sweep(5)
    mask = frame["kernel"] == "k3"
    frame.loc[mask, ["time_s", "energy_j"]] *= factor
    finding = only(frame, "units")
    assert finding.severity == "note"
    assert finding.rows.tolist() == named_rows(frame, mask)
    assert "(k3) the time of a run is " in finding.text
    assert ("as high as" if factor > 1 else "lower than") in finding.text


@pytest.mark.parametrize("factor", [20.0, 0.05, 60.0, 1e5, 1e-5])
def test_a_kernel_that_no_factor_of_a_thousand_brings_near_the_others_is_not_noted(factor):
    frame = sweep(5)
    frame.loc[frame["kernel"] == "k3", ["time_s", "energy_j"]] *= factor
    assert findings(frame, "units") == []


@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_a_kernel_whose_counts_are_as_far_from_the_others_is_not_noted(factor):
    frame = counted(5)
    columns = ["time_s", "energy_j", "n_sp", "n_dram"]
    frame.loc[frame["kernel"] == "k3", columns] *= factor
    assert findings(frame, "units") == []
    frame.loc[frame["kernel"] == "k3", columns] /= factor
    frame.loc[frame["kernel"] == "k3", columns[:2]] *= factor
    assert findings(frame, "units") != []


def test_one_setting_and_one_cell_in_another_unit_are_named():
    frame = counted(6)
    mask = (frame["core_mhz"] == 800) & (frame["mem_mhz"] == 1600)
    in_mj = frame.copy()
    in_mj.loc[mask, "energy_j"] *= 1000
    assert named_rows(frame, mask) in [f.rows.tolist() for f in findings(in_mj, "units")]
    cell = mask & (frame["kernel"] == "k2")
    in_mj = frame.copy()
    in_mj.loc[cell, "energy_j"] *= 1000
    units = findings(in_mj, "units")
    assert named_rows(frame, cell) in [finding.rows.tolist() for finding in units]
    assert any("k2 at 800/1600 MHz" in finding.text for finding in units)


def test_voltages_that_fall_are_refused_and_one_that_dips_is_flagged():
    rising = counted(7).assign(core_v=lambda f: 0.7 + f["core_mhz"] / 4000)
    assert findings(rising) == []
    falling = rising.assign(core_v=lambda f: 1.2 - f["core_mhz"] / 4000)
    assert only(falling, "voltages").severity == "refused"
    dips = rising.copy()
    dips.loc[dips["core_mhz"] == 900, "core_v"] = 0.8
    finding = only(dips, "voltages")
    assert finding.severity == "warning" and "0.8 V at 900 MHz" in finding.text


def test_counts_that_follow_the_clock_are_flagged():
    frame = counted(8)
    share = frame["core_mhz"] / 1200
    every = frame.assign(n_sp=frame["n_sp"] * share, n_dram=frame["n_dram"] * share)
    finding = only(every, "counts")
    assert len(finding.rows) == len(frame)
    assert "2.4 times the operations at 1200" in finding.text
    one = frame.assign(n_sp=frame["n_sp"].where(frame["kernel"] != "k1", frame["n_sp"] * share))
    assert only(one, "counts").rows.tolist() == named_rows(frame, frame["kernel"] == "k1")


def test_a_class_that_is_counted_in_some_rows_of_a_kernel_is_flagged():
    frame = counted(8)
    some = (frame["kernel"] == "k1") & (frame["core_mhz"] == 900)
    finding = only(frame.assign(n_sp=frame["n_sp"].where(~some)), "counts")
    assert finding.rows.tolist() == named_rows(frame, some)
    assert "1 of " in finding.text and "k1 at 900" in finding.text and ": sp)" in finding.text
    # A kernel may count fewer classes than others, and some may count 0.
    whole = frame["kernel"] == "k1"
    assert findings(frame.assign(n_sp=frame["n_sp"].where(~whole)), "counts") == []
    assert findings(frame.assign(n_sp=frame["n_sp"].where(~whole, 0.0)), "counts") == []


def test_a_counter_of_cycles_that_wait_is_no_other_work():
    """Counters of hardware vary from run to run, and some with the clock; not the instructions."""
    frame = counted(9)
    rng = np.random.default_rng(9)
    noisy = {name: frame[name] * np.exp(rng.normal(0, 0.01, len(frame))) for name in ("n_sp",)}
    waits = frame["n_dram"] * frame["core_mhz"] * np.exp(rng.normal(0, 0.05, len(frame)))
    assert findings(frame.assign(**noisy, n_waits=waits), "counts") == []


def test_loops_of_a_fixed_duration_are_refused():
    frame = counted(10)
    power_w = frame["energy_j"] / frame["time_s"]
    fixed = frame.assign(time_s=10.0, energy_j=10.0 * power_w)
    refused = [finding for finding in findings(fixed) if finding.severity == "refused"]
    assert [finding.check for finding in refused] == ["time"]
    assert "10 s" in refused[0].text and len(refused[0].rows) == len(frame)


def test_one_kernel_of_a_fixed_duration_is_named_alone():
    frame = counted(11)
    mask = frame["kernel"] == "k4"
    power_w = frame["energy_j"] / frame["time_s"]
    frame.loc[mask, "time_s"] = 10.0
    frame.loc[mask, "energy_j"] = 10.0 * power_w[mask]
    assert named_rows(frame, mask) in [f.rows.tolist() for f in findings(frame, "time")]


def test_kernels_that_wait_for_memory_are_no_fixed_duration():
    """The core clock alone is swept: k0 and k1 take the same time at all clocks."""
    frame = counted(12, noise=0.002)
    frame = frame[(frame["mem_mhz"] == 400) & frame["kernel"].isin(["k0", "k1", "k7"])]
    assert np.ptp(np.log(frame.loc[frame["kernel"] == "k0", "time_s"])) < 0.02
    assert findings(frame.reset_index(drop=True), "time") == []


@pytest.mark.parametrize("column", ["node", "repeat"])
@pytest.mark.parametrize("apart", [1.15, 1.25])
def test_nodes_or_repeats_that_are_apart_are_named_with_their_distance(column, apart):
    frame = counted(13)
    mask = frame["repeat"] == 2
    frame["node"] = np.where(mask & (column == "node"), "b", "a")
    frame.loc[mask, "energy_j"] *= apart
    (finding,) = findings(frame, "nodes")
    percent = float(finding.text.split(" %")[0].split()[-1])
    assert percent == pytest.approx(100 * (apart - 1), abs=1.5)
    assert ("leave-one-node-out" in finding.text) == (column == "node")


def test_the_mean_of_many_noisy_rows_shows_that_nodes_are_apart():
    """192 cells of 10 % noise: the distance of two nodes is known to 1.5 %."""
    frame = sweep(33, noise=0.1, repeats=2)
    frame["node"] = np.where(frame["repeat"] == 1, "b", "a")
    frame.loc[frame["node"] == "b", ["time_s", "energy_j"]] *= 1.2
    (finding,) = findings(frame, "nodes")
    assert finding.text.startswith("time on node b is ")
    assert finding.rows.tolist() in [named_rows(frame, frame["node"] == name) for name in "ab"]


def test_nodes_a_few_percent_apart_are_not_reported():
    frame = counted(14)
    frame["node"] = np.where(frame["repeat"] == 2, "b", "a")
    frame.loc[frame["node"] == "b", "energy_j"] *= 1.05
    assert findings(frame, "nodes") == []


@pytest.mark.parametrize(("nominal", "runs_at"), [(1200, 1140), (900, 840), (500, 540)])
def test_a_nominal_clock_that_all_computing_kernels_contradict(nominal, runs_at):
    real = np.where(nominal == CORE_MHZ, runs_at, CORE_MHZ)
    frame = sweep(15, noise=0.005, real_core=real)
    clocks = [finding for finding in findings(frame, "clocks") if "only compute" in finding.text]
    assert [f.rows.tolist() for f in clocks] == [named_rows(frame, frame["core_mhz"] == nominal)]
    apparent = float(clocks[0].text.split("runs as at ")[1].split()[0])
    assert apparent == pytest.approx(runs_at, rel=0.01)


WAIT = np.linspace(0.1, 0.6, 8)
"""What kernels wait for memory, beside the 1 s that they compute at 1500 MHz."""


def three_clocks(seed: int, real_core: np.ndarray, at_once: bool = False) -> pd.DataFrame:
    """Kernels that compute and wait for memory, at 1000, 1500 and 2000 MHz as they are named."""
    core = np.array([1000.0, 1500.0, 2000.0])
    frame = sweep(seed, noise=0.005, core=core, mem=MEM_MHZ[2:])
    wait = WAIT[frame["kernel"].str[1:].astype(int)]
    compute = 1500.0 / frame["core_mhz"].map(dict(zip(core, real_core, strict=True)))
    power_w = frame["energy_j"] / frame["time_s"]
    time_s = np.maximum((1 - wait) * compute, 1.5 * wait) if at_once else compute + wait
    time_s *= np.exp(np.random.default_rng(seed + 1).normal(0, 0.005, len(frame)))
    return frame.assign(time_s=time_s, energy_j=time_s * power_w)


def test_a_nominal_clock_above_the_real_one_where_no_kernel_only_computes():
    """Cycles at a clock are no more than the straight line between the clocks beside it has."""
    frame = three_clocks(15, np.array([1000.0, 1390.0, 2000.0]))
    (finding,) = findings(frame, "clocks")
    assert finding.rows.tolist() == named_rows(frame, frame["core_mhz"] == 1500)
    assert finding.severity == "warning"
    said_pct = float(re.search(r"1500/1600 MHz: (\d+) %", finding.text)[1])
    more = (1500 / 1390 + WAIT) / (1 + WAIT)
    assert said_pct == pytest.approx(100 * (np.median(more) - 1), abs=0.6)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_cycles_that_grow_with_the_clock_contradict_none(seed, at_once):
    frame = three_clocks(seed, np.array([1000.0, 1500.0, 2000.0]), at_once)
    assert findings(frame, "clocks") == []


def test_core_and_memory_columns_that_are_swapped_are_seen():
    frame = counted(16)
    swapped = frame.assign(core_mhz=frame["mem_mhz"], mem_mhz=frame["core_mhz"])
    assert any("seem to be swapped" in finding.text for finding in findings(swapped, "clocks"))


def test_a_constant_voltage_with_a_dip_is_no_reversed_table():
    frame = counted(17).assign(core_v=0.9)
    frame.loc[frame["core_mhz"] == 900, "core_v"] = 0.85
    assert only(frame, "voltages").severity == "warning"


def test_a_kernel_of_six_times_the_power_is_in_no_other_unit():
    frame = counted(18)
    frame.loc[frame["kernel"] == "k3", "energy_j"] *= 6
    assert findings(frame, "units") == []


def test_some_kernels_of_one_fixed_duration_among_others_refuse_nothing():
    frame = counted(19)
    mask = frame["kernel"].isin(["k3", "k4", "k5"])
    power_w = frame["energy_j"] / frame["time_s"]
    frame.loc[mask, "time_s"] = 10.0
    frame.loc[mask, "energy_j"] = 10.0 * power_w[mask]
    assert {finding.severity for finding in findings(frame, "time")} == {"warning"}


@pytest.mark.parametrize(
    ("column", "proof"), [("imported", STATED), ("simulated", SIMULATED), ("", UNPROVEN)]
)
def test_clocks_of_a_store_that_does_not_say_how_they_were_shown(column, proof):
    frame = counted(20).drop(columns="clock_proof").assign(**({column: True} if column else {}))
    proofs = clock_proofs(as_columns(frame), np.arange(len(frame)))
    assert set(proofs.tolist()) == {proof}


def test_a_clock_that_was_read_back_stays_so_where_a_loop_was_timed_too():
    """Only what nothing else showed is judged by the ratios of the loop."""
    frame = counted(21).assign(clock_proof=READ_BACK, node="n")
    frame["core_mhz_timed"] = 0.5 * frame["core_mhz"]
    frame["mem_mhz_achieved"] = frame["mem_mhz"]
    unproven = np.arange(len(frame)) % 2 == 0
    frame.loc[unproven, "status"] = CLOCK_UNPROVEN
    proofs = clock_proofs(as_columns(frame), np.arange(len(frame)))
    assert set(proofs[unproven].tolist()) == {TIMED}
    assert set(proofs[~unproven].tolist()) == {READ_BACK}


@pytest.mark.parametrize(
    ("power_w", "in_order", "exponent", "how"),
    [
        (np.linspace(100.0, 240.0, 16), False, -0.5, "against the run time"),
        (np.linspace(100.0, 240.0, 16), True, 0.5, "from row to row in one direction"),
        (np.repeat([100.0, 150.0, 200.0, 250.0], 4), False, 0.5, "in steps"),
    ],
)
def test_power_that_varies_at_one_setting_as_a_sweep_does_is_refused(
    power_w, in_order, exponent, how
):
    frame = sweep(20, mem=MEM_MHZ[:1], repeats=2).assign(core_mhz=1200.0)
    rng = np.random.default_rng(20)
    for kernel in sorted(set(frame["kernel"])):
        mine = np.flatnonzero(frame["kernel"] == kernel)
        drawn_w = power_w * (1 + 1e-3 * rng.normal(size=power_w.size))
        drawn_w = drawn_w if in_order else rng.permutation(drawn_w)
        frame.loc[mine, "time_s"] = 50.0 * drawn_w**exponent
        frame.loc[mine, "energy_j"] = drawn_w * frame.loc[mine, "time_s"]
    frame["repeat"] = frame.groupby("kernel").cumcount()
    finding = only(frame, "power caps")
    assert finding.severity == "refused"
    varies_pct = 100 * stats.median_abs_deviation(np.log(power_w), scale="normal")
    assert f"power varies by {varies_pct:.0f} % within kernels, {how}:" in finding.text


def test_a_kernel_measured_on_a_part_of_a_line_does_not_hide_that_clocks_are_capped():
    frame = sweep(21, noise=0.01, real_core=np.minimum(CORE_MHZ, 1000.0))
    frame = frame[~((frame["kernel"] == "k7") & (frame["core_mhz"] == CORE_MHZ[0]))]
    finding = only(frame.reset_index(drop=True), "clocks")
    assert "core clocks 1000, 1100, 1200 MHz" in finding.text


def hand_made(core: np.ndarray, y: np.ndarray, variance: np.ndarray) -> tuple[Rows, MedianGrid]:
    """Kernels at core clocks, and a grid (kernels, clocks) of one of their quantities."""
    frame = sweep(22, core=core, mem=MEM_MHZ[:1], repeats=1)
    copies = [frame[frame["kernel"] == "k0"].assign(kernel=f"k{k:03d}") for k in range(len(y))]
    table = pd.concat(copies, ignore_index=True)
    return rows_of(as_columns(table), "s"), MedianGrid(y, variance, df=1e6)


@pytest.mark.parametrize(("beyond", "seen"), [(0.99, False), (1.01, True)])
def test_a_fall_counts_where_chance_alone_would_not_show_it_among_all_pairs(beyond, seen):
    """Two kernels, nine clocks: 36 pairs each. Of as many normal deviations, one is beyond the
    limit in one clean table of a hundred."""
    deviation = stats.norm.isf(0.01 / 2 / (2 * 36))
    y, std = np.zeros((2, 9)), 0.05
    y[0, -1] = -beyond * deviation * np.sqrt(2) * std
    rows, grid = hand_made(np.linspace(500.0, 1300.0, 9), y, np.full(y.shape, std**2))
    assert bool(list(against_the_clocks(rows, {"power": grid}))) is seen


@pytest.mark.parametrize(
    ("beyond", "said"),
    [(0.99, "several settings"), (1.01, "1 rows of 1 of 1 kernels contradict")],
)
def test_a_row_is_bad_where_the_line_through_its_neighbours_excludes_it(beyond, said):
    """Five clocks, of which the last is low: the line from the third through the fourth to it,
    with the variance of each."""
    core = np.array([500.0, 600.0, 800.0, 900.0, 1300.0])
    variance = np.array([[1e-4, 2e-4, 4e-4, 9e-4, 16e-4]])
    share = np.log(1300 / 800) / np.log(900 / 800)
    ahead = variance[0, 2:] @ [(1 - share) ** 2, share**2, 1.0]
    y = np.zeros((1, 5))
    y[0, -1] = -beyond * stats.norm.isf(0.01 / 2 / 10) * np.sqrt(ahead)
    rows, grid = hand_made(core, y, variance)
    (finding,) = against_the_clocks(rows, {"power": grid})
    assert said in finding.text


def test_a_bad_row_stands_with_the_one_that_it_contradicts_most():
    """Of five clocks the third is too high: the fourth is 0.7 below it, the fifth 0.6."""
    core = np.array([500.0, 600.0, 800.0, 900.0, 1300.0])
    rows, grid = hand_made(core, np.array([[0.0, 0.1, 1.0, 0.3, 0.4]]), np.full((1, 5), 1e-4))
    (finding,) = against_the_clocks(rows, {"power": grid})
    assert "k000 at 800/400 MHz (2.718 W; 1.35 W at 900/400 MHz)" in finding.text


@pytest.mark.parametrize(("responding", "named"), [(40, True), (1, False)])
def test_kernels_that_respond_to_no_clock_do_not_show_that_a_step_is_none(responding, named):
    """Their least-squares share is of noise: what noise alone adds to its square is taken off."""
    core = np.geomspace(500.0, 1000.0, 4)
    y = np.zeros((40, 4))
    variance = np.tile([1e-3, 1e-5, 1e-5, 1e-3], (40, 1))
    y[:responding, -1] = 6 * np.sqrt(2e-3)
    rows, grid = hand_made(core, y, variance)
    texts = [finding.text for finding in name_only(rows, {"time": grid, "power": grid})]
    assert any("629.961, 793.701" in text for text in texts) is named, texts


def test_swapped_columns_are_seen_where_many_kernels_have_one_intensity():
    """The thirds with the fewest and the most operations are compared, and nothing between."""
    ends = counted(16)
    tables = [ends[ends["kernel"].isin(["k0", "k1", "k6", "k7"])]]
    for seed, name in enumerate(("k2", "k3", "k4", "k5"), 30):
        other = counted(seed)
        tables.append(other[other["kernel"] == "k1"].assign(kernel=name))
    frame = pd.concat(tables, ignore_index=True)
    swapped = frame.assign(core_mhz=frame["mem_mhz"], mem_mhz=frame["core_mhz"])
    assert any("seem to be swapped" in finding.text for finding in findings(swapped, "clocks"))
    assert findings(frame, "clocks") == []


@pytest.mark.parametrize(("n", "seen"), [(10, False), (14, True)])
def test_a_level_changes_where_the_running_sum_exceeds_kolmogorovs_limit(n, seen):
    """Half of the rows one standard deviation up, then half down: the sum over sqrt(n) reaches
    sqrt(n) / 2, here for two quantities on one node."""
    assert (np.sqrt(n) / 2 > stats.kstwobign.isf(0.01 / 2)) is np.bool_(seen)
    frame = sweep(24, core=CORE_MHZ[:1], mem=MEM_MHZ[:1], repeats=n)
    frame = frame[frame["kernel"] == "k0"].assign(start_unix_s=1e9 + np.arange(n))
    rows = rows_of(as_columns(frame), "s")
    residual = 0.02 * np.where(np.arange(n) < n // 2, 1.0, -1.0)
    flat, sigma = np.zeros(n), np.array([0.02])
    changes = list(
        level_changes(rows, {"time": flat, "power": residual}, {"time": sigma, "power": sigma})
    )
    assert [finding.rows.tolist() for finding in changes] == seen * [list(range(n // 2, n))]
    assert all("power changes by about -3.9 %" in finding.text for finding in changes)


def test_a_jump_on_one_node_is_of_that_node_alone():
    frame = sweep(23, noise=0.01, repeats=4)
    frame["node"] = np.where(frame["repeat"] < 2, "a", "b")
    frame["repeat"] %= 2
    on_a = np.flatnonzero(frame["node"] == "a")
    in_order = on_a[np.argsort(frame["start_unix_s"].to_numpy()[on_a])]
    frame.loc[in_order[len(in_order) // 2 :], "energy_j"] *= 1.05
    (jump,) = findings(frame, "order")
    percent = jump.text.removeprefix("power changes by about +").split(" %")[0]
    assert float(percent) == pytest.approx(5.0, abs=2.0)
    assert set(jump.rows) <= set(on_a)
