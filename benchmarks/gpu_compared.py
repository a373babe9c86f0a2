"""References for a GPU's rates: its peak per cycle, its driver's copy, other programs, and ncu.

The references are the operations that it can do in a cycle, the copy of its memory by its driver,
the products of other programs, and the counts of Nsight Compute (`ncu`). A :class:`Row` is one
comparison. The clocks stay as they are (`--clock-control none`). ncu may need rights to read the
counters (NVIDIA's page on ERR_NVGPUCTRPERM). Metrics: NVIDIA, Nsight Compute, Profiling Guide.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared import ROOT
from campaign.table.profiler_tables import Selection, read_counted
from dvfs.input_files import FileError
from kernels.cuda.device import explained
from kernels.cuda.products.gemm import random_matrix
from kernels.registry import find_kernel

LANES = {
    "sm_75": (64, 2),
    "sm_80": (64, 32),
    "sm_86": (128, 2),
    "sm_89": (128, 2),
    "sm_90": (128, 64),
    "sm_100": (128, 64),
    "sm_120": (128, 2),
}
"""Architecture -> multiply-adds of a multiprocessor in a cycle, single and double precision:
NVIDIA, CUDA C++ Programming Guide, throughput of native arithmetic instructions."""
TENSOR_FLOPS = {"bf16": {"sm_80": 2048, "sm_90": 4096}, "dp": {"sm_80": 128, "sm_90": 256}}
"""Number -> architecture -> flops of a multiprocessor's tensor cores in a cycle, dense: four tensor
cores, which on an A100 have 256 multiply-adds of bf16 and 16 of doubles each (NVIDIA A100 white
paper: 312 and 19.5 TFLOP/s of 108 multiprocessors at 1,410 MHz), and on an H100 twice as many
(NVIDIA H100 white paper)."""
COPIED_BYTES = 4 << 30
COPIES = 20
METRICS = {
    "sp": ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 2.0),
    "dp": ("smsp__sass_thread_inst_executed_op_dfma_pred_on.sum", 2.0),
    "l2": ("lts__t_sectors_srcunit_tex_op_read.sum", 32.0),
    "dram": ("dram__bytes_read.sum", 1.0),
}
"""Class -> metric, and operations or bytes per count."""
FMA, LOAD = ("gpu_fma", "multiply_adds"), ("gpu_load", "sums")
"""A kernel and its function."""
CASES: tuple[tuple[tuple[str, str], dict[str, object]], ...] = (
    (FMA, {"number": "sp", "level": "register"}),
    (FMA, {"number": "dp", "level": "register"}),
    (FMA, {"number": "sp", "level": "l2", "ops_per_word": 4}),
    (FMA, {"number": "sp", "level": "dram", "ops_per_word": 4}),
    (LOAD, {"level": "l2"}),
    (LOAD, {"level": "dram"}),
)
BYTES_OFF = 0.02
"""The largest relative difference of bytes; instructions must agree exactly."""
ONE = """\
import json, sys
from kernels.host.ranks import Team
from kernels.registry import find_kernel
kernel = find_kernel(sys.argv[1])
kernel.prepare(kernel.params(**json.loads(sys.argv[2])), Team()).close()
"""
"""Preparing the kernel launches one iteration."""
LIMIT_S = 30


@dataclass(frozen=True, kw_only=True)
class Row:
    """``value`` in ``unit``, compared with the reference ``of`` (``of_what``). ``bar``: the least
    share of the reference to aim at, or with ``most`` the largest value allowed. ``core_mhz``: the
    SMs' clock during the run. None: not measured; ``note`` says why."""

    what: str
    kernel: str
    value: float | None = None
    unit: str = ""
    of: float | None = None
    of_what: str = ""
    bar: float | None = None
    most: bool = False
    core_mhz: float = math.nan
    note: str = ""

    @property
    def share(self) -> float | None:
        """Return the value over its reference."""
        return self.value / self.of if self.value is not None and self.of else None

    @property
    def is_met(self) -> bool | None:
        """Return whether the bar is met; None if nothing can be compared."""
        if self.bar is None or self.value is None:
            return None
        if self.most:
            return self.value <= self.bar
        return None if self.share is None else self.share >= self.bar

    @property
    def text(self) -> str:
        """Return the row as text."""
        if self.value is None:
            return f"{self.what}: {self.note}"
        text = f"{self.what}: {self.value:.4g} {self.unit}"
        if math.isfinite(self.core_mhz):
            text += f" at {self.core_mhz:.0f} MHz"
        if self.share is not None:
            text += f", {self.share:.3f} of {self.of:.4g} ({self.of_what})"
        elif self.of_what:
            text += f" ({self.of_what})"
        if self.is_met is not None:
            aim = f"at {'most' if self.most else 'least'} {self.bar:g}"
            text += f"; bar {aim}: {'met' if self.is_met else 'not met'}"
        return f"{text}; {self.note}" if self.note else text


def multiply_add_peak(architecture: str, number: str, processors: int, mhz: float) -> float | None:
    """Return the flop/s of ``sp`` or ``dp`` at a clock; None if LANES lacks the architecture."""
    lanes = LANES.get(architecture)
    if lanes is None:
        return None
    return 2.0 * lanes[number == "dp"] * processors * mhz * 1e6


def tensor_peak(architecture: str, number: str, processors: int, mhz: float) -> float | None:
    """Return the flop/s of ``bf16`` or ``dp`` at a clock; None if TENSOR_FLOPS lacks the
    architecture."""
    flops_per_cycle = TENSOR_FLOPS[number].get(architecture)
    return None if flops_per_cycle is None else float(flops_per_cycle) * processors * mhz * 1e6


def copy_rate() -> float:
    """Return the bytes read and written per second by the device's copy, the best of several."""
    from cuda.bindings import driver
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    free, _ = _done(driver.cuMemGetInfo())
    size = min(COPIED_BYTES, int(free) // 4)
    source, target = (_done(driver.cuMemAlloc(size))[0] for _ in range(2))
    try:
        best_s = float("inf")
        for _ in range(COPIES):
            begin_s = time.perf_counter()
            _done(driver.cuMemcpyDtoD(target, source, size))
            _done(driver.cuCtxSynchronize())  # this copy returns before it has ended
            best_s = min(best_s, time.perf_counter() - begin_s)
    finally:
        for buffer in (source, target):
            _done(driver.cuMemFree(buffer))
    return 2.0 * size / best_s


def _done(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    error, *values = answer
    if int(error):
        raise RuntimeError(f"the copy failed: {error.name}")
    return tuple(values)


@dataclass(frozen=True)
class Peer:
    """``time_s``: one product by the package ``name``."""

    name: str
    time_s: float


def product_s(number: str, n: int, seconds: float) -> Peer | None:
    """Return the time of A B by torch, or else CuPy. It takes the same n x n numbers as
    ``gpu_gemm``, because a GPU's power, and so its clock, depends on them. None if neither is
    installed, or CuPy lacks the number type."""
    if find_spec("torch") is not None:
        return Peer("torch", _torch_s(number, n, seconds))
    if find_spec("cupy") is not None and number != "bf16":
        return Peer("CuPy", _cupy_s(number, n, seconds))
    return None


def _torch_s(number: str, n: int, seconds: float) -> float:
    import torch

    def on_gpu(seed: int) -> torch.Tensor:
        numbers = random_matrix(number, n, seed).reshape(n, n)
        if number == "bf16":
            return torch.from_numpy(numbers.view(np.int16)).view(torch.bfloat16).cuda()
        return torch.from_numpy(numbers).cuda()

    a, b = on_gpu(0), on_gpu(1)
    c = torch.empty_like(a)
    return _mean_s(lambda: torch.matmul(a, b, out=c), torch.cuda.synchronize, seconds)


def _cupy_s(number: str, n: int, seconds: float) -> float:
    import cupy

    a, b = (cupy.asarray(random_matrix(number, n, seed).reshape(n, n)) for seed in (0, 1))
    c = cupy.empty_like(a)
    synchronize = cupy.cuda.Device().synchronize
    return _mean_s(lambda: cupy.matmul(a, b, out=c), synchronize, seconds)


def _mean_s(product: Any, synchronize: Any, seconds: float) -> float:
    """Return the seconds of one call, a mean over about ``seconds`` after a warm-up of equal
    length, as :func:`benchmarks.gpu_here.run_for` measures."""
    product()
    synchronize()
    for _ in range(2):
        begin_s = time.perf_counter()
        calls = 0
        while time.perf_counter() - begin_s < seconds:
            for _ in range(8):
                product()
            synchronize()
            calls += 8
        mean_s = (time.perf_counter() - begin_s) / calls
    return mean_s


def variants_of_example(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the parameters of ``count`` variants of a campaign file's space, drawn at random."""
    from campaign.plan.plan import make_plan

    texts = sorted({point.params for point in make_plan(path).points})
    drawn = np.random.default_rng(1).permutation(len(texts))[:count]
    return [json.loads(texts[i]) for i in drawn]


def processors() -> int:
    """Return the number of the GPU's multiprocessors."""
    with explained("opening the GPU"):
        from cuda.core import Device

        device = Device(0)
        device.set_current()
        return int(device.properties.multiprocessor_count)


def counter_rows() -> Iterator[Row]:
    """Yield a row for each class of each case."""
    if shutil.which("ncu") is None:
        yield Row(what="counts by ncu", kernel="gpu_fma", note="not tried: ncu is not installed")
        return
    for (name, function), params in CASES:
        kernel = find_kernel(name)
        declared = kernel.counts(kernel.params.model_validate(params))
        classes = [class_name for class_name in declared if class_name in METRICS]
        try:
            counted = _counted(
                name, function, params, [METRICS[class_name][0] for class_name in classes]
            )
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            yield Row(what="counts by ncu", kernel=name, note=f"failed: {error}")
            continue
        for class_name in classes:
            metric, unit_count = METRICS[class_name]
            yield _row(
                name, params, class_name, counted[metric] * unit_count, float(declared[class_name])
            )


def _row(kernel: str, params: dict[str, object], name: str, value: float, declared: float) -> Row:
    is_bytes = name in ("l2", "dram")
    deviation = abs(value / declared - 1.0)
    agrees = deviation <= BYTES_OFF if is_bytes else value == declared
    tolerance = f"within {BYTES_OFF:.0%}" if is_bytes else "exactly"
    return Row(
        what=f"{name} of {kernel} {json.dumps(params)} by ncu",
        kernel=kernel,
        value=value,
        unit="B" if is_bytes else "flop",
        of=declared,
        of_what="as declared",
        note=f"must agree {tolerance}: {'it does' if agrees else 'it does not'}",
    )


def _counted(
    kernel: str, function: str, params: dict[str, object], metrics: list[str]
) -> dict[str, float]:
    """Return metric -> value for the first launch of the kernel."""
    command = ["ncu", "--csv", "--print-units", "base", "--clock-control", "none"]
    command += ["--kernel-name", function, "--launch-count", "1", "--metrics", ",".join(metrics)]
    command += [sys.executable, "-c", ONE, kernel, json.dumps(params)]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.run(
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
        printed.write_text(process.stdout, encoding="utf-8")
        try:
            values = read_counted(printed, "ncu", Selection()).values
        except FileError:
            values = {}
    missing = [metric for metric in metrics if metric not in values]
    if missing:
        lines = (process.stdout + process.stderr).splitlines()
        message = next((line for line in lines if line.startswith("==ERROR==")), "no values")
        raise RuntimeError(f"{missing[0]}: {message}")
    return values
