"""The cost of a growing campaign: plan, run, status, fit and report of 2,000 to 200,000 points.

    .venv/bin/python -m benchmarks.scale [--points 2000 20000 200000] [--folder F] [--plan-million]

Points have traces of 1,000 samples on the simulated Jetson TK1 (simulated times and energies; real
files, processes and sockets), with two local workers. Every verb is a separate process, timed from
start to end. Points are 20 kernels at 100 settings, repeated. Also: the driver's memory, files,
opening the store, and the energy of all traces recomputed with Dask. That is compared with reading
the files' packed bytes; with unpacking them by numcodecs in as many threads into existing memory,
without Zarr, Dask or this program's reader; and with reading the samples through the Dataset.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.shared import CAMPAIGN, argument_parser, cost_of

CAMPAIGN_FILE = """\
name = "scale"
repeats = {repeats}
[[sites]]
site = "jetson-tk1"
settings = {{ choose = "random", count = 100, seed = 1 }}
[protocol]
min_duration_s = 0.977
[[kernels]]
kernel = "sp_fma"
[kernels.params]
level = "dram"
ops_per_word = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384]
[[kernels]]
kernel = "load"
params = {{ level = ["l1", "l2", "dram"] }}
"""
A_REPEAT = 2000

OPEN = """
import json, sys, time
from pathlib import Path
began = time.perf_counter()
from campaign.store.dataset import open_dataset
from campaign.store.layout import open_store
imported = time.perf_counter()
dataset = open_dataset(open_store(Path(sys.argv[1])))
opened = time.perf_counter()
first = float(dataset["energy_j"][0])
print(json.dumps({"import_s": imported - began, "open_s": opened - imported,
    "first_s": time.perf_counter() - opened, "measurements": dataset.sizes["measurement"]}))
"""

READ = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from numcodecs import blosc
from benchmarks.trace_energy import trace_energies
from campaign.store.columns import SHARD_SAMPLES
from campaign.store.dataset import open_dataset
from campaign.store.layout import open_store

store = open_store(Path(sys.argv[1]))
dataset = open_dataset(store, SHARD_SAMPLES)
files = sorted(p for p in (store.root / "traces.zarr").rglob("*") if p.is_file())

def read_files():
    began = time.perf_counter()
    size = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(1 << 22):
                size += len(piece)
    return time.perf_counter() - began, size

threads = len(os.sched_getaffinity(0))
room = ThreadPoolExecutor(threads)
shards = [p for name in ("time_ns", "value") for p in (store.traces / name / "c").iterdir()]

def unpack_file(path, into):
    data = path.read_bytes()
    index = np.frombuffer(data[-4 - 16 * 16:-4], "<u8").reshape(16, 2)
    for i, (offset, size) in enumerate(index.tolist()):
        blosc.decompress(data[offset:offset + size - 4], into[i << 16:(i + 1) << 16])

def unpack_files():
    began = time.perf_counter()
    def work(thread):
        into = np.empty(SHARD_SAMPLES)
        for path in shards[thread::threads]:
            unpack_file(path, into)
    list(room.map(work, range(threads)))
    return time.perf_counter() - began

def read_samples():
    began = time.perf_counter()
    size = 0
    for name in ("time_ns", "value"):
        data = dataset[name].data
        for start in range(0, data.shape[0], 1 << 21):
            size += data[start:start + (1 << 21)].compute(scheduler="threads").nbytes
    return time.perf_counter() - began, size

def energies():
    began = time.perf_counter()
    found = trace_energies(dataset).values
    return time.perf_counter() - began, found

rounds = {"files_s": [], "unpack_s": [], "samples_s": [], "energies_s": []}
for _ in range(3):
    seconds, stored = read_files()
    rounds["files_s"].append(seconds)
    rounds["unpack_s"].append(unpack_files())
    seconds, unpacked = read_samples()
    rounds["samples_s"].append(seconds)
    seconds, found = energies()
    rounds["energies_s"].append(seconds)
rows = dataset["trace_measurement"].values
recorded_j = dataset["energy_j"].values[rows] * dataset["iterations"].values[rows]
worst = float(np.max(np.abs(found / recorded_j - 1.0)))
print(json.dumps({name: float(np.median(some)) for name, some in rounds.items()}
    | {"stored_bytes": stored, "unpacked_bytes": unpacked, "worst_relative_difference": worst}))
"""


def measure(folder: Path, points: int) -> dict[str, float]:
    """Return all figures of one size."""
    path = folder / f"scale-{points}.toml"
    path.write_text(CAMPAIGN_FILE.format(repeats=points // A_REPEAT))
    store = folder / f"scale-{points}.store"
    shutil.rmtree(store, ignore_errors=True)
    figures: dict[str, float] = {"points": points}
    figures["plan_s"] = cost_of([*CAMPAIGN, "plan", str(path), "--limit", "0"]).wall_s
    cost = cost_of([*CAMPAIGN, "run", str(path), "--store", str(store), "--quiet"])
    figures["run_s"], figures["driver_mb"] = cost.wall_s, cost.memory_mb
    assert f"{points} of {points} points measured" in cost.output, cost.output
    status = [*CAMPAIGN, "status", str(store)]
    figures["status_s"] = statistics.median(cost_of(status).wall_s for _ in range(5))
    opening = [sys.executable, "-c", OPEN, str(store)]
    opened = [json.loads(cost_of(opening).output) for _ in range(5)]
    assert opened[0]["measurements"] == points
    for name in ("import_s", "open_s", "first_s"):
        figures[name] = statistics.median(times[name] for times in opened)
    figures["fit_s"] = cost_of([*CAMPAIGN, "fit", str(store), "--site", "jetson-tk1"]).wall_s
    report = [*CAMPAIGN, "report", str(store), "-o", str(folder / "report.html")]
    figures["report_s"] = cost_of(report).wall_s
    figures["files"] = sum(len(names) for _, _, names in os.walk(store))
    figures["stored_mb"] = sum(p.stat().st_size for p in store.rglob("*") if p.is_file()) / 1e6
    figures |= json.loads(cost_of([sys.executable, "-c", READ, str(store)]).output)
    return figures


def main() -> None:
    """Measure every size, and print the figures as a table and as JSON."""
    parser = argument_parser(__doc__)
    parser.add_argument("--points", type=int, nargs="+", default=[2000, 20_000, 200_000])
    parser.add_argument("--folder", type=Path, help="keep the stores here")
    parser.add_argument("--plan-million", action="store_true", help="also plan a million points")
    arguments = parser.parse_args()
    if any(points < A_REPEAT or points % A_REPEAT for points in arguments.points):
        parser.error(f"--points: multiples of {A_REPEAT:,} are needed")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        sizes = []
        for points in arguments.points:
            sizes.append(measure(folder, points))
            print(json.dumps(sizes[-1]), flush=True)
        print(f"\n{'':>28}" + "".join(f"{size['points']:>12,.0f}" for size in sizes))
        for name in sizes[0]:
            if name != "points":
                print(f"{name:>28}" + "".join(f"{size[name]:>12.4g}" for size in sizes))
        for name in ("plan_s", "run_s", "fit_s", "report_s"):
            per_point_ms = [size[name] / size["points"] * 1e3 for size in sizes]
            print(f"{name + ', ms a point':>28}" + "".join(f"{ms:>12.4g}" for ms in per_point_ms))
        whole = [
            sum(size[name] for name in ("plan_s", "run_s", "status_s", "fit_s", "report_s"))
            / size["points"]
            for size in sizes
        ]
        print(f"{'all of it, ms a point':>28}" + "".join(f"{s * 1e3:>12.4g}" for s in whole))
        for name in ("unpack_s", "samples_s"):
            ratio = sizes[-1]["energies_s"] / sizes[-1][name]
            print(f"energies of all traces, last size, over {name}: {ratio:.2f}")
        if len(sizes) > 1:
            print(f"cost a point, last size over the one before: {whole[-1] / whole[-2]:.3f}")
        if arguments.plan_million:
            path = folder / "million.toml"
            path.write_text(CAMPAIGN_FILE.format(repeats=1_000_000 // A_REPEAT))
            cost = cost_of([*CAMPAIGN, "plan", str(path), "--limit", "0"])
            print(f"a million points planned in {cost.wall_s:.1f} s, {cost.memory_mb:.0f} MB")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
