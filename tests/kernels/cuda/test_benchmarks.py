"""What the programs that measure a GPU compare with, and what they say of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import gpu_15min, gpu_compared
from benchmarks.gpu_15min import LongLaunch, judged_launches
from benchmarks.gpu_compared import LANES, Row, multiply_add_peak, tensor_peak
from campaign.plan.plan import make_plan
from kernels.cuda.microbench.fma import GpuFmaParams, count_multiply_adds
from kernels.cuda.program import Source
from kernels.registry import KERNELS
from tests.kernels.cuda.on_host import compiled
from tests.sites.fake_nvml import TREE, build
from tests.stores import store_of_table

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("architecture", "processors", "mhz", "sp", "dp", "bf16", "tensor_dp"),
    [
        ("sm_80", 108, 1410, 19.5, 9.7, 312, 19.5),
        ("sm_90", 132, 1980, 66.9, 33.5, None, 67),
        ("sm_90", 132, 1830, None, None, 989.4, None),
        ("sm_86", 82, 1695, 35.6, 0.556, None, None),
        ("sm_89", 128, 2520, 82.6, 1.29, None, None),
    ],
)
def test_peaks_are_those_of_nvidias_data_sheets(
    architecture, processors, mhz, sp, dp, bf16, tensor_dp
):
    """A100, H100 SXM at two clocks, RTX 3090, RTX 4090, in TFLOP/s."""
    for number, expected in (("sp", sp), ("dp", dp)):
        if expected is not None:
            peak = multiply_add_peak(architecture, number, processors, mhz)
            assert peak == pytest.approx(expected * 1e12, rel=0.01)
    for number, expected in (("bf16", bf16), ("dp", tensor_dp)):
        if expected is not None:
            peak = tensor_peak(architecture, number, processors, mhz)
            assert peak == pytest.approx(expected * 1e12, rel=0.01)


def test_an_unknown_architecture_has_no_peak():
    assert "sm_999" not in LANES
    assert multiply_add_peak("sm_999", "sp", 100, 1000.0) is None
    assert tensor_peak("sm_89", "bf16", 128, 2520.0) is None


def test_a_row_says_whether_its_bar_is_met():
    row = Row(
        what="sp multiply-adds",
        kernel="gpu_fma",
        value=61.0,
        unit="TFLOP/s",
        of=66.9,
        of_what="lanes at this clock",
        bar=0.95,
        core_mhz=1980.0,
    )
    assert row.text == (
        "sp multiply-adds: 61 TFLOP/s at 1980 MHz, 0.912 of 66.9 (lanes at this clock); "
        "bar at least 0.95: not met"
    )
    error = Row(what="error", kernel="all", value=7.5, unit="%", bar=8.0, most=True)
    assert error.text == "error: 7.5 %; bar at most 8: met"
    assert Row(what="reads", kernel="gpu_load", note="not in this version").is_met is None


def test_variants_are_drawn_from_the_space_of_a_campaign():
    drawn = gpu_compared.variants_of_example(ROOT / "examples/k20x-dgemm.toml", 20)
    assert len({tuple(sorted(params.items())) for params in drawn}) == 20
    assert all(params["dim_m"] * params["dim_n"] % 32 == 0 for params in drawn)
    assert drawn == gpu_compared.variants_of_example(ROOT / "examples/k20x-dgemm.toml", 20)


NCU = """\
#!/bin/sh
echo '==PROF== Connected to process 77'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
for metric in $(echo "$@" | tr ', ' '\\n\\n' | grep '\\.sum$'); do
    case $metric in
        *ffma*) echo "\\"0\\",\\"multiply_adds\\",\\"$metric\\",\\"inst\\",\\"$FFMA\\"" ;;
        *dfma*) echo '==ERROR== ERR_NVGPUCTRPERM' ;;
        lts*) echo "\\"0\\",\\"multiply_adds\\",\\"$metric\\",\\"sector\\",\\"$SECTORS\\"" ;;
        *) echo "\\"0\\",\\"multiply_adds\\",\\"$metric\\",\\"byte\\",\\"$BYTES\\"" ;;
    esac
done
"""
"""In the place of ncu: it prints the layout that ncu documents, for the metrics asked for."""


def test_counts_by_ncu_must_agree_exactly_and_bytes_nearly(tmp_path, monkeypatch):
    program = tmp_path / "ncu"
    program.write_text(NCU)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    in_registers = count_multiply_adds(GpuFmaParams(number="sp", level="register"))
    dram = count_multiply_adds(GpuFmaParams(number="sp", level="dram", ops_per_word=4))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FFMA", f"{in_registers['sp'] / 2:,.0f}")
    monkeypatch.setenv("BYTES", f"{dram['dram'] * 1.01:.0f}")
    monkeypatch.setenv("SECTORS", f"{dram['dram'] / 32 * 1.05:.0f}")
    sp, dp, _, of_l2, sp_of_dram, of_dram, loads_l2, loads_dram = gpu_compared.counter_rows()
    assert sp.value == in_registers["sp"]
    assert sp.note == "must agree exactly: it does"
    assert dp.value is None and "ERR_NVGPUCTRPERM" in dp.note
    assert sp_of_dram.note == "must agree exactly: it does not"
    assert of_dram.note == "must agree within 2%: it does"
    assert of_l2.note == loads_l2.note == "must agree within 2%: it does not"
    assert loads_dram.note == "must agree within 2%: it does not", "gpu_load reads twice as much"


@pytest.mark.parametrize(
    "words", [["gpu_15min.py"], ["gpu_energy_counter.py", "--json"], ["gpu_results.py"]]
)
def test_where_there_is_no_gpu_nothing_is_tried(words: list[str], tmp_path: Path) -> None:
    """With a library of NVML's name that does not load, so also on a machine with a GPU."""
    (tmp_path / "libnvidia-ml.so.1").write_text("none")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / words[0], *words[1:]],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("nothing was tried: no NVIDIA GPU can be used here (run where")
    assert done.stdout.count("\n") == 1


def test_the_steps_take_fifteen_minutes_and_measure_forty_points() -> None:
    assert sum(step.limit_s for step in gpu_15min.STEPS.values()) <= 15 * 60
    plan = make_plan(gpu_15min.CAMPAIGN)
    assert len(plan.points) == 40
    families = {name for name in KERNELS if name.startswith("gpu_")}
    assert {point.kernel for point in plan.points} == families
    variants = gpu_15min.ordered_variants()
    first = [one for one in variants if one["mma"] != "none"][: len(gpu_15min.FIRST_VARIANTS)]
    found = {
        (one["mma"], one["dim_m"] // 8, one["dim_n"] // 4, *(one[name] for name in SIZES))
        for one in first
    }
    assert found == set(gpu_15min.FIRST_VARIANTS)


SIZES = ("blk_m", "blk_n", "blk_k", "stages")


def launch(data: str, duration_s: float, share: float, mhz: float, shown: float) -> LongLaunch:
    return LongLaunch(
        data=data,
        duration_s=duration_s,
        share=share,
        counted_mhz=mhz,
        shown_mhz=shown,
        reasons=("software power cap",) if mhz < 1900 else (),
        power_w=690.0,
        limit_w=700.0,
    )


@pytest.mark.parametrize(
    ("long", "keys"),
    [
        ((0.99, 1750, 1751), ["the clock falls from 1980 to 1750 MHz", "power cap", "690 of 700"]),
        ((0.99, 1750, 1980), ["the clock falls", "NVML's mean clock is +13.1% off"]),
        ((0.89, 1980, 1980), ["neither the clock nor its reading", "0.890", "0.990"]),
        ((0.99, 1980, 2200), ["the clock stays at 1980", "+11.1% off"]),
        ((0.98, 1970, 1975), ["the clock stays at 1970 MHz (no reason shown)"]),
    ],
)
def test_a_long_launch_is_judged_by_cycles_clock_and_reading(long: tuple, keys: list[str]) -> None:
    said = judged_launches(
        [
            launch("zeros", 2.0, 0.99, 1980, 1980),
            launch("random", 2.0, *long),
            launch("random", 0.04, 0.99, 1980, 1980),
        ]
    )
    zeros, random = said.split("; random: ")
    assert zeros.startswith("zeros: the clock stays")
    assert [key for key in keys if key not in random] == []
    assert ("off" in random) == any("off" in key for key in keys)


def test_the_launches_program_multiplies_and_adds_as_often_as_is_counted() -> None:
    source = Source(path=gpu_15min.LONG_LAUNCH, macros={})
    for architecture in ("sm_80", "sm_90", "sm_100"):
        function, use = compiled(source, "timed_multiply_adds", architecture)
        executed = function.executed(1)
        assert sum(n for name, n in executed.items() if name.startswith("FFMA")) == 128
        assert use.registers <= 64, "four blocks and more of each processor"
        assert not [name for name in executed if name.startswith(("LDG", "LDS", "LDL", "ST"))]


def test_kernels_left_out_are_judged_at_the_clocks_that_they_ran_at(tmp_path: Path) -> None:
    """Of a GPU that ran at other clocks than were asked for. Energies are 10 pJ a flop, 50 pJ a
    byte and 90 W, so that the model has no error."""
    work = pd.DataFrame(
        {
            "site": "gpu",
            "kernel": [f"k{i}" for i in range(10)],
            "core_mhz": 1980.0,
            "mem_mhz": 2619.0,
            "core_mhz_achieved": [1980.0 - 20 * (i % 4) for i in range(10)],
            "mem_mhz_achieved": 2619.0,
            "n_sp": [1e12 * (1 + i) for i in range(10)],
            "n_dram": [1e11 * (1 + i * i % 7) for i in range(10)],
        }
    )
    work["time_s"] = work["n_sp"] / 3e10 / work["core_mhz_achieved"] + work["n_dram"] / 3e12
    work["energy_j"] = 1e-11 * work["n_sp"] + 5e-11 * work["n_dram"] + 90.0 * work["time_s"]
    (row,) = gpu_15min.left_out("error", store_of_table(tmp_path, work))
    assert row.value == pytest.approx(0.0, abs=0.1)
    assert row.is_met


def test_a_step_is_ended_at_its_limit_and_says_how_it_ended() -> None:
    python = [sys.executable, "-c"]
    assert gpu_15min.ended([*python, "pass"], 20) == ""
    assert gpu_15min.ended([*python, "raise SystemExit(3)"], 20) == "ended with code 3"
    assert gpu_15min.ended(["sleep", "60"], 0.2) == "ended at its limit of 0.2 s"


def test_a_gpu_that_cannot_be_opened_fails_each_step_in_a_line(tmp_path: Path) -> None:
    """NVML's stand-in shows two H100, and there is no driver to open them."""
    tree = tmp_path / TREE
    shutil.copytree(ROOT / "tests/trees/nvml-2-gpus" / TREE, tree)
    (tree / "driver_version").write_text("580.95.05\n")
    (tmp_path / "libcuda.so.1").write_text("none")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/gpu_15min.py", "--out", tmp_path / "out",
         "--steps", "products", "launches"],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": f"{build().parent}:{tmp_path}",
            "FAKE_NVML_TREE": str(tree),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    kept = [json.loads(line) for line in (tmp_path / "out/rows.jsonl").read_text().splitlines()]
    assert [row["step"] for row in kept] == ["gpu", *["products"] * 2, *["launches"] * 2]
    assert "H100" in kept[0]["what"]
    assert kept[1]["note"].startswith("failed: opening the GPU")
    assert kept[2]["note"] == "ended with code 1"
    assert all(row["value"] is None for row in kept)
