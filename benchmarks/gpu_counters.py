"""What one iteration executes on a GPU, counted by Nsight Compute (`ncu`), beside what is declared.

The clocks are left as they are (`--clock-control none`). ncu may need rights to read the counters
(NVIDIA's page on ERR_NVGPUCTRPERM). Metrics: NVIDIA, Nsight Compute, Profiling Guide.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu_row import Row
from campaign.profiles.profiler_tables import Selection, read_counted
from kernels.registry import find_kernel
from sites.located_toml import BadFile

ROOT = Path(__file__).parents[1]
METRICS = {
    "sp": ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 2.0),
    "dp": ("smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", 2.0),
    "dram": ("dram__bytes_read.sum", 1.0),
}
"""Class -> metric, and what one of it counts as."""
CASES = (
    {"number": "sp", "level": "register"},
    {"number": "dp", "level": "register"},
    {"number": "sp", "level": "dram", "ops_per_word": 4},
)
DRAM_OFF = 0.02
"""Bytes may differ by so much; instructions must agree exactly."""
ONE = """\
import json, sys
from kernels.host.ranks import Team
from campaign.profiles.profiler_tables import Selection, read_counted
from kernels.registry import find_kernel
from sites.located_toml import BadFile
kernel = find_kernel("gpu_fma")
kernel.prepare(kernel.params(**json.loads(sys.argv[1])), Team()).close()
"""
"""Preparing the kernel launches one iteration."""
LIMIT_S = 300


def counter_rows() -> list[Row]:
    """A row for each class of each case."""
    if shutil.which("ncu") is None:
        return [Row(what="counts by ncu", kernel="gpu_fma", note="not tried: ncu is not installed")]
    rows: list[Row] = []
    for params in CASES:
        kernel = find_kernel("gpu_fma")
        declared = kernel.counts(kernel.params.model_validate(params))
        names = [name for name in declared if name in METRICS]
        try:
            counted = _counted(params, [METRICS[name][0] for name in names])
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            rows.append(Row(what="counts by ncu", kernel="gpu_fma", note=f"failed: {error}"))
            continue
        for name in names:
            metric, each = METRICS[name]
            rows.append(_row(params, name, counted[metric] * each, float(declared[name])))
    return rows


def _row(params: dict[str, object], name: str, value: float, declared: float) -> Row:
    off = abs(value / declared - 1.0)
    agrees = off <= DRAM_OFF if name == "dram" else value == declared
    wanted = f"within {DRAM_OFF:.0%}" if name == "dram" else "exactly"
    return Row(
        what=f"{name} of {json.dumps(params)} by ncu",
        kernel="gpu_fma",
        value=value,
        unit="B" if name == "dram" else "flop",
        of=declared,
        of_what="as declared",
        note=f"must agree {wanted}: {'it does' if agrees else 'it does not'}",
    )


def _counted(params: dict[str, object], metrics: list[str]) -> dict[str, float]:
    """Metric -> its value for the first launch of the kernel."""
    command = ["ncu", "--csv", "--print-units", "base", "--clock-control", "none"]
    command += ["--kernel-name", "multiply_adds", "--launch-count", "1"]
    command += ["--metrics", ",".join(metrics), sys.executable, "-c", ONE, json.dumps(params)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder) / "ncu.csv"
        printed.write_text(done.stdout, encoding="utf-8")
        try:
            values = read_counted(printed, "ncu", Selection()).values
        except BadFile:
            values = {}
    missing = [metric for metric in metrics if metric not in values]
    if missing:
        lines = (done.stdout + done.stderr).splitlines()
        said = next((line for line in lines if line.startswith("==ERROR==")), "no values")
        raise RuntimeError(f"{missing[0]}: {said}")
    return values
