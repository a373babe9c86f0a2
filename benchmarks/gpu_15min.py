"""Measurements of one NVIDIA GPU in 15 minutes, the most important first.

    .venv/bin/python benchmarks/gpu_15min.py [--out FOLDER] [--steps NAME ...] [--plan]

results
    Results of the newest kernels, then of all others, compared with NumPy's.
products
    gpu_dgemm with tensor cores (DMMA) and without, compared with cuBLAS.
energies
    40 points of all families (benchmarks/gpu_15min.toml) into a store; the model's error for
    left-out kernels, at the clocks that they ran at.
wave
    What NVML's energy counter sees of a load that goes on and off.
launches
    Single-precision multiply-adds in launches of 40 ms to 2 s, on random numbers and on zeros: is a
    long launch slower because the clock falls, or does it only look so?
rates
    Multiply-adds, loads compared with the device's copy, latencies, tensor cores, products.
counters
    Counts of `ncu`, if it is installed and allowed, compared with the declared ones.

Each step is a separate process, which is ended at its limit. FOLDER (default: gpu-15min) gets
``rows.jsonl``, a line of JSON for each row as soon as it is measured, and the stores of the
energies. Clocks, limits and modes of the GPU stay as they are. ``--plan`` prints the steps with
their limits. If no GPU can be used, the program says so in one line and exits with code 2. Bars are
aims; docs/gpu-kernels.md has the results of an H100.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import gpu_compared  # noqa: E402
from benchmarks.gpu_compared import Row  # noqa: E402
from benchmarks.gpu_here import ReadMeanwhile, Run, need_gpu, open_clocks, run_for  # noqa: E402
from benchmarks.shared import argument_parser  # noqa: E402
from dvfs.errors import UserError  # noqa: E402
from kernels.cuda.microbench.chase import HOPS  # noqa: E402
from kernels.kernel import KernelError, ResultError  # noqa: E402
from sites.meters import open_meter  # noqa: E402
from sites.nvml_library import NvmlError  # noqa: E402

CAMPAIGN = Path(__file__).with_suffix(".toml")
PRODUCTS = ROOT / "examples/gpu-dgemm.toml"
LONG_LAUNCH = Path(__file__).with_name("gpu_long_launch.cu")
PRODUCT_N = 8192
PRODUCT_BAR, ERROR_BAR = 0.9, 8.0
LEFT_OUT = "leave-one-kernel-out"
FIRST_VARIANTS = (
    ("m16n8k8", 2, 4, 128, 128, 16, 4),
    ("m16n8k4", 2, 4, 128, 128, 16, 4),
    ("m16n8k16", 2, 2, 64, 64, 32, 3),
    ("m8n8k4", 2, 4, 128, 128, 16, 4),
    ("m16n8k8", 2, 2, 64, 128, 16, 3),
    ("m16n8k8", 4, 2, 128, 128, 32, 3),
    ("m16n8k16", 2, 4, 64, 128, 32, 3),
)
"""The example's tensor-core variants that are tried first: mma, warps along rows and columns,
blk_m, blk_n, blk_k, stages."""
LAUNCH_S = (0.04, 0.4, 2.0)
DATA = {"random": (1.0, 0.3125), "zeros": (0.0, 0.0)}
"""Data -> ``size`` and ``added`` of the source."""
FALLS = 0.03
"""A smaller relative change of a rate or a clock is no fall."""


@dataclass(frozen=True)
class Bench:
    """The GPU, its clocks to read in runs, and a step's folder and end (s of CLOCK_MONOTONIC)."""

    architecture: str
    processors: int
    clocks: Any
    folder: Path
    end_s: float
    seconds: float = 1.5

    def run(self, kernel: str, **params: Any) -> Run:
        """See :func:`benchmarks.gpu_here.run_for`."""
        return run_for(kernel, params, self.seconds, self.clocks)

    def left_s(self) -> float:
        """Return the seconds until the step's end."""
        return self.end_s - time.monotonic()


def tried(what: str, kernel: str, rows: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows, or one row with the reason why they failed."""
    try:
        return rows()
    except (KernelError, ResultError, ValueError, RuntimeError, UserError) as error:
        return [Row(what=what, kernel=kernel, note=f"failed: {error}")]


def result_rows(bench: Bench) -> Iterator[Row]:
    """Yield results of the kernels, the newest first; wrong results of the newest are named."""
    from benchmarks.gpu_results import cases
    from benchmarks.gpu_results import tried as checked

    counts = {"ok": 0, "cannot run": 0, "WRONG": 0}
    all_cases = sorted(cases(), key=lambda case: not case[1].get("mma", "none").startswith("m"))
    for tried_count, (kernel, params) in enumerate(all_cases):
        if bench.left_s() < 5:
            yield Row(
                what="results", kernel=kernel, note=f"{len(all_cases) - tried_count} were not tried"
            )
            break
        state, note = checked(kernel, params)
        counts[state] += 1
        if state != "ok" or "mma" in params:
            yield Row(what=f"{state}: {json.dumps(params)}", kernel=kernel, note=note)
    summary = ", ".join(f"{count} {state}" for state, count in counts.items())
    yield Row(what="results", kernel="all", note=summary)


def ordered_variants() -> list[dict[str, Any]]:
    """Return the example's variants: the preferred tensor-core ones, the other tensor-core ones at
    random, and after every sixth one a variant without tensor cores."""
    drawn = gpu_compared.variants_of_example(PRODUCTS, 1 << 20)
    tensor = [params for params in drawn if params["mma"] != "none"]

    def place(params: dict[str, Any]) -> int:
        warps = params["dim_m"] // 8, params["dim_n"] // 4
        sizes = (params[name] for name in ("blk_m", "blk_n", "blk_k", "stages"))
        key = (params["mma"], *warps, *sizes)
        return FIRST_VARIANTS.index(key) if key in FIRST_VARIANTS else len(FIRST_VARIANTS)

    tensor.sort(key=place)
    plain_variants = [params for params in drawn if params["mma"] == "none"]
    ordered = []
    for i, params in enumerate(tensor):
        ordered.append(params)
        if i % 6 == 5 and plain_variants:
            ordered.append(plain_variants.pop())
    return ordered


def product_rows(bench: Bench) -> Iterator[Row]:
    """Yield double-precision products: cuBLAS, then variants compared with it, the best last."""
    flops = 2.0 * PRODUCT_N**3
    cublas_rows = tried("dp product", "gpu_gemm", partial(product, bench, "dp"))
    yield from cublas_rows
    best: Row | None = None
    for params in ordered_variants():
        if bench.left_s() < 8:
            break
        variant = " ".join(f"{k}={v}" for k, v in params.items() if k not in ("n", "simd"))
        try:
            run = bench.run("gpu_dgemm", **params | {"n": PRODUCT_N})
        except (KernelError, ResultError, ValueError) as error:
            yield Row(what=variant, kernel="gpu_dgemm", note=f"failed: {error}")
            continue
        row = Row(
            what=variant,
            kernel="gpu_dgemm",
            value=flops / run.time_s / 1e12,
            unit="TFLOP/s",
            of=cublas_rows[0].value,
            of_what="cuBLAS",
            core_mhz=run.core_mhz,
        )
        yield row
        if best is None or (row.value or 0.0) > (best.value or 0.0):
            best = row
    if best is not None:
        yield replace(best, what=f"the best: {best.what}", bar=PRODUCT_BAR)


def product(bench: Bench, number: str) -> list[Row]:
    """Compare cuBLAS as the kernel calls it with the product of torch or CuPy."""
    run = bench.run("gpu_gemm", number=number, n=PRODUCT_N)
    flops = 2.0 * PRODUCT_N**3
    peer = gpu_compared.product_s(number, PRODUCT_N, bench.seconds)
    return [
        Row(
            what=f"{number} product of {PRODUCT_N:,}",
            kernel="gpu_gemm",
            value=flops / run.time_s / 1e12,
            unit="TFLOP/s",
            of=None if peer is None else flops / peer.time_s / 1e12,
            of_what="torch or CuPy: neither is installed" if peer is None else peer.name,
            bar=0.97,
            core_mhz=run.core_mhz,
        )
    ]


def energy_rows(bench: Bench) -> Iterator[Row]:
    """Run the campaign as far as there is time; yield the model's error for left-out kernels."""
    from campaign.launch.drive import run as drive
    from campaign.launch.progress import progress_for
    from campaign.plan.plan import make_plan
    from campaign.store.layout import create_store

    plan = make_plan(CAMPAIGN)
    created = create_store(bench.folder.resolve() / "store", plan.campaign.name)
    # The driver ends the points that run, and keeps what was measured.
    alarm = threading.Timer(bench.left_s() - 50, os.kill, (os.getpid(), signal.SIGTERM))
    alarm.daemon = True
    alarm.start()
    outcome = drive(plan, created, progress_for(quiet=True))
    alarm.cancel()
    measured = f"{outcome.measured} of {outcome.planned} points measured, {outcome.failed} failed"
    yield Row(what="energies", kernel="all", note=measured)
    title = "error of energies, kernels left out"
    yield from tried(title, "all", partial(left_out, title, created.root))


def left_out(what: str, root: Path) -> list[Row]:
    """The error of the model for kernels left out, and what the fit says of the data."""
    from campaign.results import open_store

    store = open_store(root)
    site = store.only_site()
    store.fit(site)
    judged = store.crossval(site, LEFT_OUT).as_dict()
    return [
        Row(
            what=what,
            kernel="all",
            value=judged["mape_pct"],
            unit="%",
            bar=ERROR_BAR,
            most=True,
            note="published: 12 % on an H100 (arXiv 2603.26435)",
        )
    ]


def wave_rows(bench: Bench) -> Iterator[Row]:
    """The square wave for the energy counter: two phases of each period."""
    from benchmarks.gpu_energy_counter import measured_waves
    from benchmarks.seen_share import judge

    verdict = judge(measured_waves(phases=2, seconds=2.5))
    for row in verdict.rows:
        yield Row(
            what=f"energy counter, period {row.period_s * 1e3:.0f} ms",
            kernel="gpu_fma",
            value=statistics.fmean(row.ratio),
            unit="of the integral of the power",
            note=f"differs by {row.counter_spread:.2%} between phases, the power by "
            f"{row.power_spread:.2%}",
        )
    yield Row(what="energy counter", kernel="gpu_fma", note=verdict.text)


@dataclass(frozen=True, kw_only=True)
class LongLaunch:
    """One launch. ``share``: multiply-adds over the lanes' capacity in its cycles; ``counted_mhz``:
    its cycles over its time, by the GPU; ``shown_mhz``: NVML's mean clock, NaN if NVML shows none;
    ``reasons``: NVML's reasons for a lowered clock; ``power_w``: the mean power, NaN if nothing was
    read; ``limit_w``: the power limit."""

    data: str
    duration_s: float
    share: float
    counted_mhz: float
    shown_mhz: float
    reasons: tuple[str, ...]
    power_w: float
    limit_w: float


def judged_launches(launches: list[LongLaunch]) -> str:
    """Explain from both readings why a long launch uses a smaller share of the lanes than a short
    one."""
    texts = []
    for data in dict.fromkeys(launch.data for launch in launches):
        by_length = sorted(
            (launch for launch in launches if launch.data == data),
            key=lambda launch: launch.duration_s,
        )
        short, long = by_length[0], by_length[-1]
        reasons = ", ".join(long.reasons) or "no reason shown"
        text = f"{data}: "
        if long.share < short.share * (1 - FALLS):
            text += (
                f"fewer multiply-adds in each cycle, {long.share:.3f} of the lanes' after "
                f"{short.share:.3f}: neither the clock nor its reading"
            )
        elif long.counted_mhz < short.counted_mhz * (1 - FALLS):
            text += (
                f"the clock falls from {short.counted_mhz:.0f} to {long.counted_mhz:.0f} MHz "
                f"({reasons}; {long.power_w:.0f} of {long.limit_w:.0f} W)"
            )
        else:
            text += f"the clock stays at {long.counted_mhz:.0f} MHz ({reasons})"
        deviation = long.shown_mhz / long.counted_mhz - 1.0
        if abs(deviation) > FALLS:
            text += (
                f"; NVML's mean clock is {deviation:+.1%} off the cycles counted: "
                "a measurement's error"
            )
        texts.append(text)
    return "; ".join(texts)


def launch_rows(bench: Bench) -> Iterator[Row]:
    """Yield launches of three lengths with two kinds of numbers, each after two seconds of rest,
    and gpu_fma in runs of the same lengths."""
    from kernels.cuda.device import Gpu
    from kernels.cuda.program import Source, compile_program
    from kernels.host.ranks import Team

    gpu, meter = Gpu(Team()), open_meter("nvml", {})
    try:
        source = Source(path=LONG_LAUNCH, macros={})
        name, threads = "timed_multiply_adds", 256
        function = gpu.function(compile_program(source, gpu.architecture), name)
        blocks = gpu.resident_blocks(function, threads)
        cycles_and_ns = np.zeros((blocks, 2), np.int64)
        out, times = gpu.array(np.zeros(blocks * threads, np.float32)), gpu.array(cycles_and_ns)

        def launch(data: str, passes: int) -> np.ndarray:
            numbers = (np.float32(number) for number in DATA[data])
            gpu.run(function, blocks, threads, out, times, np.int64(passes), *numbers)
            return gpu.copied(times, cycles_and_ns)

        pass_s = launch("random", 10_000)[:, 1].mean() / 1e9 / 10_000
        lanes = gpu_compared.LANES[gpu.architecture][0]
        launches = []
        for duration_s in LAUNCH_S:
            for data in DATA:
                passes = max(1, round(duration_s / pass_s))
                time.sleep(2.0)
                with ReadMeanwhile(partial(shown_state, bench.clocks, meter), 0.005) as watched:
                    cycles, ns = launch(data, passes).mean(axis=0)
                readings = [reading for _, reading in watched.readings[1:-1]] or [UNREAD]
                lane_operations = blocks / gpu.processors * threads * passes * 128
                launches.append(
                    LongLaunch(
                        data=data,
                        duration_s=duration_s,
                        share=lane_operations / lanes / cycles,
                        counted_mhz=cycles / ns * 1e3,
                        shown_mhz=statistics.fmean(reading[0] for reading in readings),
                        reasons=tuple(
                            sorted({word for reading in readings for word in reading[1]})
                        ),
                        power_w=statistics.fmean(reading[2] for reading in readings),
                        limit_w=power_limit_w(bench.clocks),
                    )
                )
                yield Row(
                    what=f"sp multiply-adds in a launch of {duration_s} s, {data}",
                    kernel="gpu_fma",
                    value=launches[-1].share,
                    unit="of the lanes in each cycle",
                    core_mhz=launches[-1].counted_mhz,
                    note=json.dumps(plain(launches[-1])),
                )
        yield Row(what="long launches", kernel="gpu_fma", note=judged_launches(launches))
    finally:
        gpu.close()
        meter.close()
    for seconds in LAUNCH_S:
        for data in DATA:
            short = replace(bench, seconds=seconds)
            title = f"gpu_fma in runs of {seconds} s, {data}"
            for row in tried(title, "gpu_fma", partial(multiply_adds, short, "sp", data)):
                yield replace(row, what=title, bar=None)


UNREAD = math.nan, (), math.nan


def shown_state(clocks: Any, meter: Any) -> tuple[float, tuple[str, ...], float]:
    """Return the SMs' clock and why it is lowered, as NVML shows them, and the power in W."""
    power = next(
        (value for channel, value in zip(meter.channels, meter.read().values, strict=True)
         if (channel.kind, channel.domain) == ("power", "gpu")),
        math.nan,
    )  # fmt: skip
    if clocks is None:
        return math.nan, (), power
    state = clocks.state()
    mhz = state.setting.core_mhz
    return math.nan if mhz is None else mhz, state.throttled, power


def power_limit_w(clocks: Any) -> float:
    """Return the power limit in force, W; NaN if NVML does not show it."""
    if clocks is not None:
        with suppress(NvmlError), clocks.library.explained("the power limit"):
            nvml = clocks.library.nvml
            return float(nvml.nvmlDeviceGetEnforcedPowerLimit(clocks.gpus[0].handle)) / 1e3
    return math.nan


def multiply_adds(bench: Bench, number: str, data: str = "random") -> list[Row]:
    """Compare multiply-adds in registers with the lanes at the achieved clock."""
    run = bench.run("gpu_fma", number=number, level="register", data=data)
    peak = gpu_compared.multiply_add_peak(
        bench.architecture, number, bench.processors, run.core_mhz
    )
    return [
        Row(
            what=f"{number} multiply-adds",
            kernel="gpu_fma",
            value=run.rate(number) / 1e12,
            unit="TFLOP/s",
            of=None if peak is None else peak / 1e12,
            of_what="lanes at this clock",
            bar=0.95,
            core_mhz=run.core_mhz,
        )
    ]


def loads(bench: Bench, level: str) -> list[Row]:
    """Measure reads of a level: of main memory over the device's copy, of others in bytes a
    cycle."""
    run = bench.run("gpu_load", level=level)
    rate, cycles = run.rate(level), run.core_mhz * 1e6 * bench.processors
    if level == "dram":
        return [
            Row(
                what="reads of main memory",
                kernel="gpu_load",
                value=rate / 1e9,
                unit="GB/s",
                of=gpu_compared.copy_rate() / 1e9,
                of_what="the device's own copy",
                bar=0.97,
                core_mhz=run.core_mhz,
            )
        ]
    note = f"{rate / cycles:.1f} B a cycle of each multiprocessor"
    return [
        Row(
            what=f"reads of {level}",
            kernel="gpu_load",
            value=rate / 1e9,
            unit="GB/s",
            core_mhz=run.core_mhz,
            note=note,
        )
    ]


def latency(bench: Bench, level: str) -> list[Row]:
    """Measure the nanoseconds of a hop of one chain."""
    run = bench.run("gpu_chase", level=level)
    return [
        Row(
            what=f"latency of {level}",
            kernel="gpu_chase",
            value=run.time_s / HOPS[level] * 1e9,
            unit="ns a hop",
            core_mhz=run.core_mhz,
        )
    ]


def tensor_cores(bench: Bench, number: str, instruction: str) -> list[Row]:
    """Compare products of tensor cores with their peak at the achieved clock."""
    run = bench.run("gpu_mma", number=number, instruction=instruction)
    flops = sum(run.rate(name) for name in run.counts if name.startswith("tc_"))
    peak = gpu_compared.tensor_peak(bench.architecture, number, bench.processors, run.core_mhz)
    return [
        Row(
            what=f"{number} on tensor cores ({instruction})",
            kernel="gpu_mma",
            value=flops / 1e12,
            unit="TFLOP/s",
            of=None if peak is None else peak / 1e12,
            of_what="tensor cores at this clock",
            bar=0.85,
            core_mhz=run.core_mhz,
        )
    ]


def beside_host(bench: Bench, kernel: str, host: str, **params: Any) -> list[Row]:
    """Measure the speed-up of the GPU over the host's kernel for the same points."""
    run = bench.run(kernel, **params)
    host_s = run_for(host, params, bench.seconds, None).time_s
    return [
        Row(
            what=f"{kernel} beside the host's {host}",
            kernel=kernel,
            value=run.time_s * 1e3,
            unit="ms",
            core_mhz=run.core_mhz,
            note=f"the host takes {host_s * 1e3:.4g} ms: {host_s / run.time_s:.3g} times",
        )
    ]


def rate_rows(bench: Bench) -> Iterator[Row]:
    """Yield rates of the microbenchmarks, cuBLAS, and the fast multipole method."""
    for level in ("dram", "l2", "l1", "shared"):
        yield from tried(f"reads of {level}", "gpu_load", partial(loads, bench, level))
        yield from tried(f"latency of {level}", "gpu_chase", partial(latency, bench, level))
    for number in ("sp", "dp"):
        title = f"{number} multiply-adds"
        yield from tried(title, "gpu_fma", partial(multiply_adds, bench, number))
    wide = "wgmma" if bench.architecture == "sm_90" else "mma"
    for number, instruction in (("bf16", wide), ("dp", "mma")):
        title = f"{number} on tensor cores"
        yield from tried(title, "gpu_mma", partial(tensor_cores, bench, number, instruction))
    yield from tried("bf16 product", "gpu_gemm", partial(product, bench, "bf16"))
    points = {"n": 262_144, "q": 640}
    for kernel, host in (("gpu_fmm_u", "fmm_u"), ("gpu_fmm", "fmm")):
        rows = partial(beside_host, bench, kernel, host, **points)
        yield from tried(f"{kernel} beside the host's {host}", kernel, rows)


def counter_rows(_: Bench) -> Iterator[Row]:
    """See :mod:`benchmarks.gpu_compared`."""
    yield from gpu_compared.counter_rows()


@dataclass(frozen=True)
class Step:
    """The rows of a step and its time limit."""

    rows: Callable[[Bench], Iterator[Row]]
    limit_s: float


STEPS = {
    "results": Step(result_rows, 60),
    "products": Step(product_rows, 90),
    "energies": Step(energy_rows, 320),
    "wave": Step(wave_rows, 110),
    "launches": Step(launch_rows, 60),
    "rates": Step(rate_rows, 140),
    "counters": Step(counter_rows, 80),
}
"""Steps by name, the most important first; 14 minutes and 20 seconds in all."""
GRACE_S = 10.0
"""The time between SIGTERM and SIGKILL of a step."""


def plain(row: Any) -> dict[str, Any]:
    """Return a dataclass as a dict for JSON, which has no NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(row).items()
    }


def keep(folder: Path, step: str, row: Row) -> None:
    """Print a row and add it to the folder's ``rows.jsonl``."""
    print(row.text, flush=True)
    with (folder / "rows.jsonl").open("a", encoding="utf-8") as file:
        print(json.dumps({"step": step, **plain(row)}), file=file)


def run_step(name: str, folder: Path) -> int:
    """Measure a step's rows in this process; return 1 if it failed."""
    end_s = time.monotonic() + STEPS[name].limit_s - GRACE_S
    gpu = need_gpu()
    try:
        processors = gpu_compared.processors()
        bench = Bench(gpu.architectures[0], processors, open_clocks(), folder, end_s)
        for row in STEPS[name].rows(bench):
            keep(folder, name, row)
    except KernelError as error:
        keep(folder, name, Row(what=name, kernel="all", note=f"failed: {error}"))
        return 1
    return 0


def ended(command: list[str], limit_s: float) -> str:
    """Run a command and return how it ended; empty if it succeeded. At the limit it gets SIGTERM,
    and GRACE_S later SIGKILL."""
    with subprocess.Popen(command, start_new_session=True) as process:
        for number, wait_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, GRACE_S)):
            try:
                code = process.wait(wait_s)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, number)
        else:
            code = process.wait()
    if number == signal.SIGKILL:
        return f"ended at its limit of {limit_s:g} s"
    return f"ended with code {code}" if code else ""


def main() -> int:
    """Run the steps, keep their rows, and print them."""
    parser = argument_parser(__doc__)
    parser.add_argument("--out", default="gpu-15min", help="folder for the rows and stores")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--plan", action="store_true", help="print the steps and end")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plan:
        for name in arguments.steps:
            print(f"{name}: at most {STEPS[name].limit_s:g} s")
        print(f"in all: at most {sum(STEPS[name].limit_s for name in arguments.steps):g} s")
        return 0
    folder = Path(arguments.out)
    if arguments.step:
        return run_step(arguments.step, folder)
    gpu = need_gpu()
    folder.mkdir(parents=True, exist_ok=True)
    title = f"{gpu.gpus[0]} ({gpu.architectures[0]}), driver {gpu.driver}, CUDA {gpu.cuda}"
    keep(folder, "gpu", Row(what=title, kernel="all", note=time.strftime("%Y-%m-%d %H:%M:%S")))
    failed = 0
    for name in arguments.steps:
        print(f"# {name}, at most {STEPS[name].limit_s:g} s", flush=True)
        words = [sys.executable, __file__, "--step", name, "--out", str(folder)]
        if how := ended(words, STEPS[name].limit_s):
            keep(folder, name, Row(what=name, kernel="all", note=how))
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
