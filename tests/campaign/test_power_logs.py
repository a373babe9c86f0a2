"""Windows of power logs as measurements: against an external meter, Slurm's own counters, and
powers whose integral is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.results import open_store
from campaign.table.power_logs import read_zone, unix_ns
from campaign.table.windows import _overlap
from campaign.verbs.command_line import main
from tests.campaign.test_table import ROOT
from tests.stores import measurements_of

BOARD = ROOT / "tests/data/gpu_power_traces"
LOG_3090 = BOARD / "5050-3090.nvidia-smi.csv"
ZERO_S = 1688840907.417245
"""Where the times of 5050-3090.external.csv begin: its first record (extract.py)."""
PROFILE = ROOT / "tests/data/other_tools/slurm_profile.h5"
BEGAN_S = 1_800_000_000
"""Of the logs written here."""


def windows(path: Path, *rows: str, columns: str = "kernel,core_mhz,start,end") -> Path:
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def taken(folder: Path, table: Path, log: Path | str, *words: str) -> pd.DataFrame:
    """The windows' measurements, in their order."""
    store = folder / "s"
    arguments = ["import", str(table), "--power-log", str(log), "--store", str(store)]
    assert main([*arguments, "--site", "x", *words]) == 0
    frame = measurements_of(store)
    return frame.sort_values("table_line", kind="stable").reset_index(drop=True)


def refused(
    folder: Path, capsys: pytest.CaptureFixture[str], table: Path, log: Path, *words: str
) -> str:
    arguments = ["import", str(table), "--power-log", str(log), "--store", str(folder / "s")]
    assert main([*arguments, "--site", "x", *words]) == 2
    assert not (folder / "s").exists()
    return capsys.readouterr().err


@pytest.mark.parametrize("zone", ["Europe/London", "+01:00"])
def test_the_loop_of_nvidia_smi_gives_the_energy_that_an_external_meter_has(
    tmp_path: Path, zone: str
) -> None:
    external = pd.read_csv(BOARD / "5050-3090.external.csv")
    spans = [(0.5, 2.0), (1.0, 4.0), (2.25, 3.5), (0.3, 4.3)]
    rows = [f"load,1950,{(ZERO_S + a) * 1e6:.0f},{(ZERO_S + b) * 1e6:.0f}" for a, b in spans]
    table = windows(tmp_path / "w.csv", *rows)
    frame = taken(tmp_path, table, LOG_3090, "--time-zone", zone)
    assert frame["repeat"].tolist() == [0, 1, 2, 3]
    log = pd.read_csv(LOG_3090, skipinitialspace=True)
    local = pd.to_datetime(log["timestamp"], format="%Y/%m/%d %H:%M:%S.%f")
    time_s = local.to_numpy().astype("datetime64[ns]").astype(np.int64) / 1e9 - 3600.0 - ZERO_S
    ratios = []
    for (a, b), (_, row) in zip(spans, frame.iterrows(), strict=True):
        true_j = np.interp(b, *external.T.values) - np.interp(a, *external.T.values)
        assert abs(row["energy_j"] - true_j) <= 2.0 * row["energy_std_j"] < 0.25 * true_j
        ratios.append(row["energy_j"] / true_j)
        assert row["time_s"] == pytest.approx(b - a, abs=2e-6)
        assert row["start_unix_s"] == pytest.approx(ZERO_S + a, abs=2e-6)
        inside = (time_s >= a) & (time_s <= b)
        mhz = log.loc[inside, "clocks.current.sm [MHz]"].mean()
        assert row["core_mhz_achieved"] == pytest.approx(mhz, rel=2e-3)
    # All have the gain of this board's sensor; a window that is shifted in time has another ratio.
    assert max(ratios) < 1.02 * min(ratios)


def test_local_times_need_a_zone_and_the_right_one(tmp_path: Path, capsys) -> None:
    table = windows(tmp_path / "w.csv", f"load,1950,{ZERO_S + 1},{ZERO_S + 2}")
    assert "--time-zone" in refused(tmp_path, capsys, table, LOG_3090)
    said = refused(tmp_path, capsys, table, LOG_3090, "--time-zone", "+02:00")
    assert f"{table}:2" in said and "2023-07-08T17:28:27Z" in said and "--time-zone" in said
    said = refused(tmp_path, capsys, table, LOG_3090, "--time-zone", "Europe/Nowhere")
    assert "Europe/Nowhere" in said
    main(["import", str(LOG_3090), "--store", str(tmp_path / "s")])
    assert "--power-log" in capsys.readouterr().err


@pytest.mark.parametrize("later_ms", [0, 2])
def test_a_loop_of_several_gpus_needs_their_index(tmp_path: Path, capsys, later_ms: int) -> None:
    """Of 100 W and 200 W, whose lines have the same time or one a little later: as those of one
    GPU, they would have the energy of 150 W."""
    table = windows(tmp_path / "w.csv", f"a,1400,{BEGAN_S + 1},{BEGAN_S + 9}")
    log = tmp_path / "log.csv"
    for header in ("timestamp, index, power.draw [W]", "timestamp, power.draw [W]"):
        lines = [header]
        for i in range(100):
            for gpu in (0, 1):
                stamp = f"2027/01/15 08:00:{i // 10:02d}.{i % 10}{gpu * later_ms:02d}"
                index = f" {gpu}," if "index" in header else ""
                lines.append(f"{stamp},{index} {100 + 100 * gpu} W")
        log.write_text("\n".join(lines) + "\n")
        if "index" in header:
            assert taken(tmp_path / "good", table, log, "--time-zone", "UTC")["energy_j"][0] == (
                pytest.approx(2400.0)
            )
    assert "query index as well" in refused(tmp_path, capsys, table, log, "--time-zone", "UTC")


def test_slurms_profile_gives_what_the_nodes_drew(tmp_path: Path) -> None:
    true = pd.read_csv(PROFILE.with_suffix(".true.csv"))
    one = true[true["node"] == "n1"]
    begins = np.diff(one["energy_j"]) / np.diff(one["time_s"]) > 100.0
    on = np.ceil(one["time_s"].to_numpy()[:-1][begins][0])
    spans = [(on, on + 2.0), (on, on + 3.0), (on + 0.2, on + 2.4)]
    table = windows(
        tmp_path / "w.csv",
        *(f"{name},1800,{a},{b},{node}" for a, b in spans for name, node in
          (("one", "n1"), ("other", "n2"), ("both", ""))),
        columns="kernel,core_mhz,start,end,node",
    )  # fmt: skip
    frame = taken(tmp_path, table, PROFILE)
    for i, row in frame.iterrows():
        a, b = spans[i // 3]
        nodes = (["n1"], ["n2"], ["n1", "n2"])[i % 3]
        of_nodes = [true[true["node"] == node][["time_s", "energy_j"]].T.values for node in nodes]
        true_j = sum(np.interp(b, *each) - np.interp(a, *each) for each in of_nodes)
        # Each of the steps .0 and .extern has the whole power: together twice as much.
        assert abs(row["energy_j"] - true_j) <= 2.0 * row["energy_std_j"] < 0.3 * true_j
        assert np.isnan(row["core_mhz_achieved"])


def powercap(path: Path, *, watts: float = 40.0, ranged: bool = True) -> Path:
    """20 s of a package that wraps at 262 J after 5 s, a core of 3 W inside it, DRAM of 2 W."""
    range_uj = 262_143_328
    columns = ["package-0 [uJ]", *["package-0 range [uJ]"] * ranged, "core-0 [uJ]", "dram-0 [J]"]
    lines = [",".join(["time", *columns])]
    for i in range(201):
        uj = (range_uj - round(5 * watts * 1e6) + round(i * watts * 1e5)) % range_uj
        cells = [uj, *[range_uj] * ranged, round(i * 3e5), i * 0.2]
        lines.append(",".join(map(str, [BEGAN_S + i / 10, *cells])))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_counters_that_wrap_are_followed_and_parts_are_counted_once(tmp_path: Path) -> None:
    table = windows(
        tmp_path / "w.csv",
        f"a,1800,{BEGAN_S + 2},{BEGAN_S + 12},10,",
        f"b,1800,{BEGAN_S + 2},{BEGAN_S + 12},,package-0",
        f"c,1800,{BEGAN_S + 13},{BEGAN_S + 14},,dram-0",
        f"d,1800,{BEGAN_S + 13},{BEGAN_S + 15},,core-0",
        columns="kernel,core_mhz,start,end,iterations,device",
    )
    frame = taken(tmp_path, table, powercap(tmp_path / "log.csv"))
    assert frame["energy_j"].tolist() == pytest.approx([42.0, 400.0, 2.0, 6.0], rel=1e-5)
    assert frame["time_s"].tolist() == pytest.approx([1.0, 10.0, 1.0, 2.0])
    # The window's whole energy is that of an iteration times the iterations.
    assert frame["iterations"].tolist() == [10, 1, 1, 1]
    # A tenth of the energy has a tenth of its uncertainty.
    assert frame["energy_std_j"][0] < 0.02 * 42.0
    traces = open_store(tmp_path / "s").dataset
    channels = set(traces["trace_channel"].values.tolist())
    assert channels == {"package-0/energy", "core-0/energy", "dram-0/energy"}


def test_a_counter_that_began_again_needs_its_range(tmp_path: Path, capsys) -> None:
    log = powercap(tmp_path / "log.csv", ranged=False)
    before = windows(tmp_path / "w.csv", f"a,1800,{BEGAN_S + 1},{BEGAN_S + 4}")
    over = windows(tmp_path / "o.csv", f"a,1800,{BEGAN_S + 1},{BEGAN_S + 6}")
    assert "range" in refused(tmp_path, capsys, over, log)
    assert taken(tmp_path, before, log)["energy_j"].tolist() == pytest.approx([126.0], rel=1e-5)


def test_a_driver_that_begins_its_counter_again_gives_no_energy(tmp_path: Path, capsys) -> None:
    """A GPU of 100 W whose driver was loaded again after 3 s: from 0.2 to 10 s it takes 980 J, and
    the counter's difference is 680 J."""
    lines = [f"{BEGAN_S}.0 #Entity TOTEC"]
    for i in range(201):
        lines.append(f"{BEGAN_S + i / 10:.3f} GPU 0 {i * 10_000 - (300_000 if i >= 30 else 0)}")
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    over = windows(tmp_path / "o.csv", f"a,1400,{BEGAN_S + 0.2},{BEGAN_S + 10}")
    assert "gpu-0/energy began again" in refused(tmp_path, capsys, over, tmp_path / "log.txt")
    later = windows(tmp_path / "l.csv", f"a,1400,{BEGAN_S + 4},{BEGAN_S + 8}")
    frame = taken(tmp_path, later, tmp_path / "log.txt")
    assert frame["energy_j"].tolist() == pytest.approx([400.0])


def dmon(path: Path, timed: bool = True) -> Path:
    """Two GPUs of 100 W and 200 W by their counters; POWER says something else."""
    header, units = "#Entity   TOTEC     POWER     SMCLK     MMCLK", "ID        mJ        W"
    lines = [f"{BEGAN_S}.0 {line}" if timed else line for line in (header, units)]
    for i in range(101):
        for gpu, watts in ((0, 100), (1, 200)):
            row = f"GPU {gpu}     {7 * 10**9 + i * watts * 100}    1.0     {1400 + gpu}     1593"
            lines.append(f"{BEGAN_S + i / 10:.3f} {row}" if timed else row)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_dmon_behind_times_gives_the_counters_energies(tmp_path: Path, capsys) -> None:
    table = windows(
        tmp_path / "w.csv",
        f"a,1400,1593,{BEGAN_S + 1},{BEGAN_S + 6},gpu-1",
        f"b,1400,1593,{BEGAN_S + 1},{BEGAN_S + 6},",
        columns="kernel,core_mhz,mem_mhz,start,end,device",
    )
    assert "ts %.s" in refused(tmp_path, capsys, table, dmon(tmp_path / "no.txt", timed=False))
    frame = taken(tmp_path, table, dmon(tmp_path / "log.txt"))
    assert frame["energy_j"].tolist() == pytest.approx([1000.0, 1500.0], rel=1e-6)
    assert frame["core_mhz_achieved"].tolist() == pytest.approx([1401.0, 1400.5])
    assert frame["mem_mhz_achieved"].tolist() == [1593.0, 1593.0]


def test_mig_instances_of_a_gpu_do_not_count_beside_it(tmp_path: Path) -> None:
    table = windows(tmp_path / "w.csv", f"a,1400,{BEGAN_S + 1},{BEGAN_S + 6}")
    log = dmon(tmp_path / "log.txt")
    lines = log.read_text().splitlines()
    parts = [line.replace("GPU 1", "GPU-I 3") for line in lines if "GPU 1" in line]
    parts += [line.replace("GPU 1", "GPU-CI 4") for line in lines if "GPU 1" in line]
    log.write_text("\n".join([*lines, *parts]) + "\n")
    assert taken(tmp_path, table, log)["energy_j"].tolist() == pytest.approx([1500.0])


@pytest.mark.parametrize("form", ["local", "unix"])
def test_tegrastats_gives_the_power_now_and_not_its_mean(tmp_path: Path, form: str) -> None:
    """A module that draws 4 W and, from between two lines on, 10 W; its times are to the second,
    four lines in each."""
    lines = []
    for i in range(80):
        second = i // 4
        mw = 4000 if second < 10 else 10_000
        stamp = f"01-15-2027 09:00:{second:02d}" if form == "local" else f"{BEGAN_S + i / 4:.3f}"
        unit = "mW" if form == "local" else ""
        lines.append(
            f"{stamp} RAM 2722/7620MB (lfb 4x2MB) CPU [5%@1510,off] GR3D_FREQ 0%@[624] "
            f"VDD_IN {mw}{unit}/3100{unit} VDD_CPU_GPU_CV 900{unit}/800{unit}"
        )
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    begins = [2, 12, 6]
    table = windows(
        tmp_path / "w.csv", *(f"k{b},624,{BEGAN_S + b},{BEGAN_S + b + 6}" for b in begins)
    )
    # 1,800,000,000 is 08:00 UTC on 15 January 2027.
    zone = ["--time-zone", "Europe/Berlin"] if form == "local" else []
    frame = taken(tmp_path, table, tmp_path / "log.txt", *zone)
    assert frame["energy_j"].tolist()[:2] == pytest.approx([24.0, 60.0], rel=1e-9)
    assert (
        abs(frame["energy_j"][2] - (3.875 * 4.0 + 2.125 * 10.0)) <= 2.0 * frame["energy_std_j"][2]
    )
    assert frame["core_mhz_achieved"].tolist() == [624.0] * 3


@pytest.mark.parametrize(
    ("rails", "watts"),
    [
        ("GPU 2000/1 CPU 3000/1 SOC 1500/1 CV 500/1 VDDRQ 800/1 SYS5V 1200/1", 9.0),
        ("VDD_GPU_SOC 5000mW/1mW VDD_CPU_CV 3000mW/1mW VIN_SYS_5V0 4000mW/1mW "
         "VDDQ_VDD2_1V8AO 1500mW/1mW", 12.0),
        ("VDD_IN 9000mW/1mW VDD_CPU_GPU_CV 3000mW/1mW VDD_SOC 2000mW/1mW", 9.0),
    ],
    ids=["agx-xavier", "agx-orin", "orin-nx"],
)  # fmt: skip
def test_each_watt_of_a_jetson_s_rails_counts_once(
    tmp_path: Path, rails: str, watts: float
) -> None:
    """On the AGX Orin the 5 V rail feeds that of the memory."""
    lines = [f"{BEGAN_S + i / 10:.3f} RAM 1/9MB (lfb 1x4MB) {rails}" for i in range(200)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    table = windows(tmp_path / "w.csv", f"a,1300,{BEGAN_S + 5},{BEGAN_S + 15}")
    frame = taken(tmp_path, table, tmp_path / "log.txt")
    assert frame["energy_j"].tolist() == pytest.approx([10 * watts])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (f"a,1800,{BEGAN_S + 5},{BEGAN_S + 5},", "end"),
        (f"a,1800,{BEGAN_S - 5},{BEGAN_S + 5},", "2027-01-15T08:00:10Z"),
        (f"a,1800,{BEGAN_S + 5},,", "end"),
        (f"a,1800,{BEGAN_S + 1},{BEGAN_S + 2},gpu-7", "gpu-0, gpu-1"),
        ("a,1800,2027-01-15T08:00:01,2027-01-15T08:00:02,", "--time-zone"),
        ("a,1800,tomorrow,2027-01-15T08:00:02Z,", "tomorrow"),
        (f"a,1800,{BEGAN_S + 1},12,", "'12'"),
    ],
)
def test_a_wrong_window_is_named(tmp_path: Path, capsys, row: str, says: str) -> None:
    good = f"a,1800,{BEGAN_S + 1},{BEGAN_S + 2},"
    columns = "kernel,core_mhz,start,end,device"
    table = windows(tmp_path / "w.csv", good, row, good, row, columns=columns)
    said = refused(tmp_path, capsys, table, dmon(tmp_path / "log.txt"))
    assert says in said
    for line in (3, 5):
        assert f"{table}:{line}" in said
    assert f"{table}:2" not in said


def test_a_number_of_iterations_that_no_number_holds_is_refused(tmp_path: Path, capsys) -> None:
    row = f"a,1800,{BEGAN_S + 1},{BEGAN_S + 2},{'9' * 400}"
    table = windows(tmp_path / "w.csv", row, columns="kernel,core_mhz,start,end,iterations")
    said = refused(tmp_path, capsys, table, dmon(tmp_path / "log.txt"))
    assert f"{table}:2" in said and "give a whole number" in said


def test_a_gap_in_the_log_is_no_energy(tmp_path: Path, capsys) -> None:
    log = dmon(tmp_path / "log.txt")
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines[:60] + lines[100:]) + "\n")
    table = windows(tmp_path / "w.csv", f"a,1400,{BEGAN_S + 1},{BEGAN_S + 8}")
    assert f"{table}:2" in refused(tmp_path, capsys, table, log)


def test_too_few_readings_are_no_energy(tmp_path: Path, capsys) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{BEGAN_S + s},100" for s in (0, 30, 60, 90)]
    log.write_text("\n".join(["time,node [W]", *rows]) + "\n")
    table = windows(
        tmp_path / "w.csv",
        f"a,1800,{BEGAN_S + 31},{BEGAN_S + 35}",
        f"b,1800,{BEGAN_S + 10},{BEGAN_S + 70}",
    )
    said = refused(tmp_path, capsys, table, log)
    assert f"{table}:2" in said and f"{table}:3" not in said


@pytest.mark.parametrize(
    "text", [b"\x89HDF\r\n\x1a\n Steps", b"time,node [W]\n1800000000,5\n", b""]
)
def test_a_damaged_log_is_named(tmp_path: Path, capsys, text: bytes) -> None:
    (tmp_path / "log").write_bytes(text)
    table = windows(tmp_path / "w.csv", f"a,1800,{BEGAN_S},{BEGAN_S + 1}")
    said = refused(tmp_path, capsys, table, tmp_path / "log")
    assert f"{tmp_path / 'log'}: " in said and "None" not in said


def test_a_table_with_energies_takes_no_log(tmp_path: Path, capsys) -> None:
    log = dmon(tmp_path / "log.txt")
    columns = "kernel,core_mhz,start,end,energy_j"
    table = windows(tmp_path / "w.csv", f"a,1,{BEGAN_S},{BEGAN_S + 1},3", columns=columns)
    assert "energy_j" in refused(tmp_path, capsys, table, log)
    table = windows(tmp_path / "v.csv", "a,1,2", columns="kernel,core_mhz,time_s")
    assert "start" in refused(tmp_path, capsys, table, log)
    (tmp_path / "not.txt").write_text("hello\n")
    assert "nvidia-smi" in refused(tmp_path, capsys, table, tmp_path / "not.txt")


def test_logs_of_two_nodes(tmp_path: Path) -> None:
    logs = [powercap(tmp_path / "n1.csv", watts=40.0), powercap(tmp_path / "n2.csv", watts=20.0)]
    table = windows(
        tmp_path / "w.csv",
        *(f"{k},1800,{BEGAN_S + 7},{BEGAN_S + 9},{node}" for k, node in
          (("a", "n1"), ("b", "n2"), ("c", ""))),
        columns="kernel,core_mhz,start,end,node",
    )  # fmt: skip
    frame = taken(tmp_path, table, f"n1={logs[0]}", "--power-log", f"n2={logs[1]}")
    assert frame["energy_j"].tolist() == pytest.approx([84.0, 44.0, 128.0], rel=1e-4)


def test_a_device_that_is_logged_twice_does_not_count_twice(tmp_path: Path, capsys) -> None:
    lines = ["time,package-0 [J],package-0 [W]", *(f"{BEGAN_S + i},{9 * i},9" for i in range(20))]
    (tmp_path / "both.csv").write_text("\n".join(lines) + "\n")
    table = windows(tmp_path / "w.csv", f"a,1800,{BEGAN_S + 2},{BEGAN_S + 4}")
    assert "package-0 is logged twice" in refused(tmp_path, capsys, table, tmp_path / "both.csv")
    stamps = (f"2027/01/15 08:00:{i:02d}.000, 0, 100.00 W" for i in range(20))
    smi = tmp_path / "smi.csv"
    smi.write_text("\n".join(["timestamp, index, power.draw.instant [W]", *stamps]) + "\n")
    again = ["--power-log", str(smi), "--time-zone", "UTC"]
    said = refused(tmp_path, capsys, table, dmon(tmp_path / "dmon.txt"), *again)
    assert "gpu-0 is logged twice" in said and str(smi) in said


def test_a_log_without_a_node_beside_one_with_a_node_is_refused(tmp_path: Path, capsys) -> None:
    """Whether its parts are within the node's power would not be known."""
    table = windows(tmp_path / "w.csv", f"a,1800,{BEGAN_S + 2},{BEGAN_S + 4}")
    log = powercap(tmp_path / "log.csv")
    said = refused(tmp_path, capsys, table, log, "--power-log", str(PROFILE))
    assert f"{log}: has no node, and other logs are of n1, n2" in said and "NODE=LOG" in said


def test_a_node_s_power_is_not_added_to_the_power_of_its_parts(tmp_path: Path) -> None:
    """The node's power is in one log, the power of its package and DRAM in another one."""
    lines = ["time,node [W]", *(f"{BEGAN_S + i / 10},70" for i in range(201))]
    (tmp_path / "node.csv").write_text("\n".join(lines) + "\n")
    table = windows(tmp_path / "w.csv", f"a,1800,{BEGAN_S + 2},{BEGAN_S + 4}")
    second = ["--power-log", str(tmp_path / "node.csv")]
    frame = taken(tmp_path, table, powercap(tmp_path / "parts.csv"), *second)
    assert frame["energy_j"].tolist() == pytest.approx([140.0], rel=1e-6)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.sets(st.sampled_from("ab")))))
def test_windows_that_overlap_are_found(drawn: list[tuple[int, int, set[str]]]) -> None:
    spans = [(start, start + length, names) for start, length, names in drawn]
    pairs = {
        (i, j)
        for j, (c, d, others) in enumerate(spans)
        for i, (a, b, names) in enumerate(spans[:j])
        if names & others and a < d and c < b
    }
    found = _overlap(spans)
    assert found in pairs if pairs else found is None


def test_logs_that_cannot_be_told_apart_are_refused(tmp_path: Path, capsys) -> None:
    one, other = powercap(tmp_path / "a.csv"), powercap(tmp_path / "b.csv")
    table = windows(tmp_path / "w.csv", f"a,1800,{BEGAN_S + 2},{BEGAN_S + 4}")
    assert "NODE=LOG" in refused(tmp_path, capsys, table, one, "--power-log", str(other))
    rows = [f"a,1800,{BEGAN_S + 2},{BEGAN_S + 4},{node}" for node in ("n1", "n2")]
    table = windows(tmp_path / "v.csv", *rows, columns="kernel,core_mhz,start,end,node")
    assert "NODE=LOG" in refused(tmp_path, capsys, table, one)


@given(st.integers(315_619_200 * 10**9, 4_000_000_000 * 10**9))
def test_a_unix_time_is_told_by_its_size(time_ns: int) -> None:
    assert unix_ns(str(time_ns), None) == time_ns
    for unit_ns in (1_000, 1_000_000, 10**9):
        assert unix_ns(str(time_ns // unit_ns), None) == time_ns // unit_ns * unit_ns
    moment = pd.Timestamp(time_ns // 1000 * 1000, tz="UTC").tz_convert("Asia/Kolkata")
    assert unix_ns(moment.isoformat(), None) == time_ns // 1000 * 1000


def test_the_hour_that_a_zone_has_twice_is_not_guessed() -> None:
    zone = read_zone("Europe/Berlin")
    assert unix_ns("2026-10-25T01:59:59", zone) == 1792886399 * 10**9
    for text in ("2026-10-25T02:30:00", "2026-03-29T02:30:00"):
        with pytest.raises(ValueError, match="--time-zone"):
            unix_ns(text, zone)
    assert unix_ns("2026-10-25T02:30:00+02:00", None) == 1792888200 * 10**9
    assert unix_ns("2026-10-25T02:30:00", read_zone("+02:00")) == 1792888200 * 10**9


@pytest.mark.parametrize("unit", ["W", "uJ"])
def test_the_stated_uncertainty_holds_the_energy_of_a_load_that_steps(
    tmp_path: Path, unit: str
) -> None:
    """A load of 200 levels in 400 s, read ten times a second; 150 windows that begin and end
    anywhere."""
    rng = np.random.default_rng(4)
    ends_s = np.append(np.sort(rng.uniform(0.0, 400.0, 200)), 400.0)
    level_w = rng.uniform(50.0, 250.0, len(ends_s))
    knots_s = np.append(0.0, ends_s)
    drawn_j = np.append(0.0, np.cumsum(np.diff(knots_s) * level_w))
    read_s = np.arange(0.0, 399.9, 0.1) + rng.uniform(0.0, 0.02, 3999)
    if unit == "W":
        values = level_w[np.searchsorted(ends_s, read_s)]
    else:
        values = np.round(np.interp(read_s, knots_s, drawn_j) * 1e6)
    lines = [f"time,node [{unit}]"]
    lines += [f"{BEGAN_S + s:.6f},{v:.12g}" for s, v in zip(read_s, values, strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    begin_s = rng.uniform(5.0, 380.0, 150).round(6)
    end_s = (begin_s + rng.uniform(0.5, 10.0, 150)).round(6)
    rows = (
        f"k,1800,{BEGAN_S + a:.6f},{BEGAN_S + b:.6f}" for a, b in zip(begin_s, end_s, strict=True)
    )
    frame = taken(tmp_path, windows(tmp_path / "w.csv", *rows), tmp_path / "log.csv")
    true_j = np.interp(end_s, knots_s, drawn_j) - np.interp(begin_s, knots_s, drawn_j)
    inside = np.abs(frame["energy_j"] - true_j) <= 2.0 * frame["energy_std_j"]
    assert inside.mean() >= 0.9
    assert (frame["energy_std_j"] / true_j).median() < 0.06
