"""All measurements of the GPU kernels on one NVIDIA GPU, each beside its bar.

    .venv/bin/python benchmarks/gpu_all.py [--json] [--seconds 2] [--no-energies] [--store DIR]

Rates are over what the GPU can do at the clock of its SMs that NVML showed meanwhile
(benchmarks/gpu_peaks.py): sp and dp multiply-adds, bf16 on tensor cores, reads of main memory over
the device's own copy, products beside those of torch or CuPy, near interactions of the FMM beside
the host's. Where `ncu` is installed and allowed, it counts what one iteration executes. Then
`examples/gpu-microbenchmarks.toml` is measured into a store, and the model's error for kernels left
out is printed; published for such models: 12 % on an H100 (arXiv 2603.26435).

Kernels that this version does not have are listed as such. No clock is set. It takes about half an
hour; without energies a few minutes. Where there is no GPU it says so in one line, with exit code
2. Bars are aims; docs/gpu-kernels.md has what an H100 gave.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import gpu_peaks, gpu_peers  # noqa: E402
from benchmarks.gpu_counters import counter_rows  # noqa: E402
from benchmarks.gpu_here import Run, is_registered, need_gpu, open_clocks, run_for  # noqa: E402
from benchmarks.gpu_row import MISSING, Row  # noqa: E402
from kernels.cuda.microbench.chase import HOPS  # noqa: E402
from kernels.kernel import KernelError, ResultError  # noqa: E402

EXAMPLE = ROOT / "examples/gpu-microbenchmarks.toml"
PRODUCT_N = 8192
ERROR_BAR = 8.0


@dataclass(frozen=True)
class Bench:
    """The GPU that is measured, and for how long each time."""

    architecture: str
    processors: int
    seconds: float
    clocks: Any

    def run(self, kernel: str, **params: Any) -> Run:
        """See :func:`benchmarks.gpu_here.run_for`."""
        return run_for(kernel, params, self.seconds, self.clocks)


def tried(what: str, kernel: str, rows: Callable[[], list[Row]]) -> list[Row]:
    """The rows, or one that says why there are none."""
    if not is_registered(kernel):
        return [Row(what=what, kernel=kernel, note=MISSING)]
    try:
        return rows()
    except (KernelError, ResultError, ValueError, RuntimeError) as error:
        return [Row(what=what, kernel=kernel, note=f"failed: {error}")]


def multiply_adds(bench: Bench, number: str) -> list[Row]:
    """Multiply-adds in registers over the lanes at the achieved clock."""
    run = bench.run("gpu_fma", number=number, level="register")
    peak = gpu_peaks.multiply_add_peak(bench.architecture, number, bench.processors, run.core_mhz)
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
    """Reads of a level: of main memory over the device's own copy, of others in bytes a cycle."""
    run = bench.run("gpu_load", level=level)
    rate, cycles = run.rate(level), run.core_mhz * 1e6 * bench.processors
    if level == "dram":
        return [
            Row(
                what="reads of main memory",
                kernel="gpu_load",
                value=rate / 1e9,
                unit="GB/s",
                of=gpu_peaks.copy_rate() / 1e9,
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
    """Nanoseconds of a hop of one chain."""
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


def tensor_cores(bench: Bench) -> list[Row]:
    """bf16 on tensor cores over their peak at the achieved clock."""
    instruction = "wgmma" if bench.architecture == "sm_90" else "mma"
    run = bench.run("gpu_mma", number="bf16", instruction=instruction)
    flops = sum(run.rate(name) for name in run.counts if name.startswith("tc_"))
    peak = gpu_peaks.tensor_peak(bench.architecture, bench.processors, run.core_mhz)
    return [
        Row(
            what=f"bf16 on tensor cores ({instruction})",
            kernel="gpu_mma",
            value=flops / 1e12,
            unit="TFLOP/s",
            of=None if peak is None else peak / 1e12,
            of_what="tensor cores at this clock",
            bar=0.85,
            core_mhz=run.core_mhz,
        )
    ]


def product(bench: Bench, number: str) -> list[Row]:
    """cuBLAS as the kernel calls it beside the product of torch or CuPy."""
    run = bench.run("gpu_gemm", number=number, n=PRODUCT_N)
    flops = 2.0 * PRODUCT_N**3
    peer = gpu_peers.product_s(number, PRODUCT_N, bench.seconds)
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


def variants(bench: Bench) -> list[Row]:
    """The best of 20 variants of the own dp product beside cuBLAS."""
    best, failed = None, 0
    for params in gpu_peers.variants_of_example(ROOT / "examples/gpu-dgemm.toml", 20):
        try:
            run = bench.run("gpu_dgemm", **params | {"n": PRODUCT_N})
        except (KernelError, ResultError, ValueError):
            failed += 1
            continue
        best = run if best is None or run.time_s < best.time_s else best
    if best is None:
        raise RuntimeError("none of the variants of examples/gpu-dgemm.toml ran")
    flops = 2.0 * PRODUCT_N**3
    blas = None
    if is_registered("gpu_gemm"):
        blas = flops / bench.run("gpu_gemm", number="dp", n=PRODUCT_N).time_s / 1e12
    return [
        Row(
            what=f"own dp product of {PRODUCT_N:,}, best of 20 variants",
            kernel="gpu_dgemm",
            value=flops / best.time_s / 1e12,
            unit="TFLOP/s",
            of=blas,
            of_what="cuBLAS",
            core_mhz=best.core_mhz,
            note=f"{failed} of 20 variants did not run" if failed else "",
        )
    ]


def beside_host(bench: Bench, kernel: str, host: str, **params: Any) -> list[Row]:
    """How much faster the GPU is than the host's kernel of the same points."""
    run = bench.run(kernel, **params)
    own = run_for(host, params, bench.seconds, None)
    return [
        Row(
            what=f"{kernel} beside the host's {host}",
            kernel=kernel,
            value=run.time_s * 1e3,
            unit="ms",
            core_mhz=run.core_mhz,
            note=f"the host takes {own.time_s * 1e3:.4g} ms: {own.time_s / run.time_s:.3g} times",
        )
    ]


def rate_rows(bench: Bench) -> Iterator[Row]:
    """All rows that need no energies."""
    for number in ("sp", "dp"):
        yield from tried(
            f"{number} multiply-adds", "gpu_fma", partial(multiply_adds, bench, number)
        )
    for level in ("dram", "l2", "l1", "shared"):
        yield from tried(f"reads of {level}", "gpu_load", partial(loads, bench, level))
        yield from tried(f"latency of {level}", "gpu_chase", partial(latency, bench, level))
    yield from tried("bf16 on tensor cores", "gpu_mma", partial(tensor_cores, bench))
    for number in ("bf16", "dp"):
        yield from tried(f"{number} product", "gpu_gemm", partial(product, bench, number))
    yield from tried("own dp product", "gpu_dgemm", partial(variants, bench))
    points = {"n": 262_144, "q": 640}
    for kernel, host in (("gpu_fmm_u", "fmm_u"), ("gpu_fmm", "fmm")):
        yield from tried(
            f"{kernel} beside the host's {host}",
            kernel,
            partial(beside_host, bench, kernel, host, **points),
        )


def energy_rows(folder: Path) -> Iterator[Row]:
    """The campaign of the example, and the model's error for kernels left out."""
    from campaign.launch.drive import run as drive
    from campaign.launch.progress import progress_for
    from campaign.plan.plan import make_plan
    from campaign.results import open_store
    from campaign.store.layout import create_store

    plan = make_plan(EXAMPLE)
    created = create_store(folder.resolve(), plan.campaign.name)
    outcome = drive(plan, created, progress_for(quiet=True))
    store = open_store(created.root)
    measured = (
        f"{outcome.measured} of {outcome.planned} points measured now, {outcome.failed} failed"
    )
    store.fit("localgpu")
    judged = store.crossval("localgpu", "leave-one-kernel-out").as_dict()
    yield Row(
        what="error of energies, kernels left out",
        kernel="all",
        value=judged["mape_pct"],
        unit="%",
        bar=ERROR_BAR,
        most=True,
        note=f"{measured}; published: 12 % on an H100 (arXiv 2603.26435)",
    )


def all_rows(bench: Bench, energies: Path | None) -> Iterator[Row]:
    """Every row as soon as it is measured; with energies in a store in this folder."""
    yield from rate_rows(bench)
    yield from counter_rows()
    if energies is not None:
        yield from energy_rows(energies)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--no-energies", action="store_true")
    parser.add_argument("--store", help="where the energies go (default: a temporary folder)")
    arguments = parser.parse_args()
    gpu = need_gpu()
    bench = Bench(gpu.architectures[0], gpu_peers.processors(), arguments.seconds, open_clocks())
    title = (
        f"{gpu.gpus[0]} ({bench.architecture}, {bench.processors} multiprocessors), "
        f"driver {gpu.driver}, CUDA {gpu.cuda}"
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        energies = None if arguments.no_energies else Path(arguments.store or folder) / "store"
        if not arguments.json:
            print(title, flush=True)
        for row in all_rows(bench, energies):
            rows.append(row)
            print(row.text, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        plain = [
            {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(r).items()}
            for r in rows
        ]
        print(json.dumps({"gpu": title, "rows": plain}, indent=1))


if __name__ == "__main__":
    main()
