"""What the programs that measure a GPU compare with, and what they say of it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_counters, gpu_peers
from benchmarks.gpu_peaks import LANES, multiply_add_peak, tensor_peak
from benchmarks.gpu_row import Row
from kernels.cuda.microbench.chains import GpuFmaParams, count_multiply_adds

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("architecture", "processors", "mhz", "sp", "dp", "bf16"),
    [
        ("sm_80", 108, 1410, 19.5, 9.7, 312),
        ("sm_90", 132, 1980, 66.9, 33.5, None),
        ("sm_90", 132, 1830, None, None, 989.4),
        ("sm_86", 82, 1695, 35.6, 0.556, None),
        ("sm_89", 128, 2520, 82.6, 1.29, None),
    ],
)
def test_peaks_are_those_of_nvidias_data_sheets(architecture, processors, mhz, sp, dp, bf16):
    """A100, H100 SXM at two clocks, RTX 3090, RTX 4090, in TFLOP/s."""
    for number, expected in (("sp", sp), ("dp", dp)):
        if expected is not None:
            peak = multiply_add_peak(architecture, number, processors, mhz)
            assert peak == pytest.approx(expected * 1e12, rel=0.01)
    if bf16 is not None:
        assert tensor_peak(architecture, processors, mhz) == pytest.approx(bf16 * 1e12, rel=0.01)


def test_an_unknown_architecture_has_no_peak():
    assert "sm_999" not in LANES
    assert multiply_add_peak("sm_999", "sp", 100, 1000.0) is None
    assert tensor_peak("sm_89", 128, 2520.0) is None


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
    drawn = gpu_peers.variants_of_example(ROOT / "examples/k20x-dgemm.toml", 20)
    assert len({tuple(sorted(params.items())) for params in drawn}) == 20
    assert all(params["dim_m"] * params["dim_n"] % 32 == 0 for params in drawn)
    assert drawn == gpu_peers.variants_of_example(ROOT / "examples/k20x-dgemm.toml", 20)


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
    sp, dp, _, of_l2, sp_of_dram, of_dram, loads_l2, loads_dram = gpu_counters.counter_rows()
    assert sp.value == in_registers["sp"]
    assert sp.note == "must agree exactly: it does"
    assert dp.value is None and "ERR_NVGPUCTRPERM" in dp.note
    assert sp_of_dram.note == "must agree exactly: it does not"
    assert of_dram.note == "must agree within 2%: it does"
    assert of_l2.note == loads_l2.note == "must agree within 2%: it does not"
    assert loads_dram.note == "must agree within 2%: it does not", "gpu_load reads twice as much"


@pytest.mark.parametrize(
    "words", [["gpu_all.py", "--json"], ["gpu_energy_counter.py", "--json"], ["gpu_results.py"]]
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
