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
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_row import Row
from campaign.profiles.profiler_tables import Selection, read_counted
from dvfs.input_files import FileError
from kernels.registry import find_kernel

ROOT = Path(__file__).parents[1]
METRICS = {
    "sp": ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 2.0),
    "dp": ("smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", 2.0),
    "l2": ("lts__t_sectors_srcunit_tex_op_read.sum", 32.0),
    "dram": ("dram__bytes_read.sum", 1.0),
}
"""Class -> metric, and what one of it counts as."""
FMA, LOAD = ("gpu_fma", "multiply_adds"), ("gpu_load", "sums")
"""A kernel, and its function's name."""
CASES: tuple[tuple[tuple[str, str], dict[str, object]], ...] = (
    (FMA, {"number": "sp", "level": "register"}),
    (FMA, {"number": "dp", "level": "register"}),
    (FMA, {"number": "sp", "level": "l2", "ops_per_word": 4}),
    (FMA, {"number": "sp", "level": "dram", "ops_per_word": 4}),
    (LOAD, {"level": "l2"}),
    (LOAD, {"level": "dram"}),
)
BYTES_OFF = 0.02
"""Bytes may differ by so much; instructions must agree exactly."""
ONE = """\
import json, sys
from kernels.host.ranks import Team
from kernels.registry import find_kernel
kernel = find_kernel(sys.argv[1])
kernel.prepare(kernel.params(**json.loads(sys.argv[2])), Team()).close()
"""
"""Preparing the kernel launches one iteration."""
LIMIT_S = 300


def counter_rows() -> Iterator[Row]:
    """A row for each class of each case."""
    if shutil.which("ncu") is None:
        yield Row(what="counts by ncu", kernel="gpu_fma", note="not tried: ncu is not installed")
        return
    for (name, function), params in CASES:
        kernel = find_kernel(name)
        declared = kernel.counts(kernel.params.model_validate(params))
        classes = [one for one in declared if one in METRICS]
        try:
            counted = _counted(name, function, params, [METRICS[one][0] for one in classes])
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            yield Row(what="counts by ncu", kernel=name, note=f"failed: {error}")
            continue
        for one in classes:
            metric, each = METRICS[one]
            yield _row(name, params, one, counted[metric] * each, float(declared[one]))


def _row(kernel: str, params: dict[str, object], name: str, value: float, declared: float) -> Row:
    is_bytes = name in ("l2", "dram")
    off = abs(value / declared - 1.0)
    agrees = off <= BYTES_OFF if is_bytes else value == declared
    wanted = f"within {BYTES_OFF:.0%}" if is_bytes else "exactly"
    return Row(
        what=f"{name} of {kernel} {json.dumps(params)} by ncu",
        kernel=kernel,
        value=value,
        unit="B" if is_bytes else "flop",
        of=declared,
        of_what="as declared",
        note=f"must agree {wanted}: {'it does' if agrees else 'it does not'}",
    )


def _counted(
    kernel: str, function: str, params: dict[str, object], metrics: list[str]
) -> dict[str, float]:
    """Metric -> its value for the first launch of the kernel."""
    command = ["ncu", "--csv", "--print-units", "base", "--clock-control", "none"]
    command += ["--kernel-name", function, "--launch-count", "1", "--metrics", ",".join(metrics)]
    command += [sys.executable, "-c", ONE, kernel, json.dumps(params)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
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
        except FileError:
            values = {}
    missing = [metric for metric in metrics if metric not in values]
    if missing:
        lines = (done.stdout + done.stderr).splitlines()
        said = next((line for line in lines if line.startswith("==ERROR==")), "no values")
        raise RuntimeError(f"{missing[0]}: {said}")
    return values
