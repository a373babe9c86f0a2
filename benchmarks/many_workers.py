"""The driver's cost of a point with 10 to 1,000 workers: ``campaign run`` on a simulated Slurm.

    .venv/bin/python -m benchmarks.many_workers [--workers 10 100 1000] [--points 20000 60000]

The workers are Dask workers in a few processes of this machine, over TLS on loopback. Simulated:
the queue; the jobs; the measuring subprocess (a worker returns the record of a simulated Jetson TK1
with a trace of 1,000 samples, which its journal stores durably); and the second that a point takes
(the worker's clock is put forward, unless ``--wait`` makes it wait). All else is the product's
code: plan, driver, Dask's scheduler, tasks, journals, compaction, status files.

A figure for a point is the difference of two runs with different numbers of points, so that the
start, the workers' connections and the end cancel. Processor time is that of the driver's process
alone: its main thread runs this project's code, the other Dask's (scheduler, client and TLS).
``--calls`` counts the system calls on the store's files by strace. ``--profile`` prints where both
threads spend their time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import json
import os
import pstats
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
from distributed import Scheduler as DaskScheduler
from distributed import SpecCluster, Worker
from distributed.deploy.spec import ProcessInterface
from distributed.security import Security

from benchmarks.shared import ROOT, argument_parser
from campaign.launch.certificates import make_security
from campaign.launch.scheduler import LaunchError, Phase, QueuedJob, Scheduler
from campaign.plan.point import Point
from campaign.store.hours import JobTime
from sites.site_file import SCHEDULERS

SCHEDULERS["many"] = f"{__name__}:ManyWorkers"

PROGRAM = [sys.executable, "-m", "benchmarks.many_workers"]
PROCESSES = 4
"""Processes that run workers."""
POINT_S = 1.0
CAMPAIGN = """\
name = "many-workers"
repeats = {repeats}
[[sites]]
site = "{site}"
settings = {{ choose = "random", count = 100, seed = 1 }}
[protocol]
min_duration_s = 0.977
[[kernels]]
kernel = "sp_fma"
params = {{ level = "l2", ops_per_word = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64] }}
"""
A_REPEAT = 1000
CALLS = (
    "openat,rename,mkdir,unlink,unlinkat,fsync,fdatasync,newfstatat,statx,flock,write,getdents64"
)


class Job(ProcessInterface):
    """A worker's simulated job, which runs in one of the worker processes."""

    def __init__(self, scheduler: str, name: str, cluster: ManyWorkers) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.name, self.address_of_scheduler, self.simulated = str(name), scheduler, cluster
        self.job_id = f"9{name}"

    async def start(self) -> None:
        """Start the worker."""
        self.simulated.say(self.name, self.address_of_scheduler, "start")
        self.simulated.began_s[self.job_id] = time.monotonic()
        await super().start()

    async def close(self) -> None:
        """End the worker."""
        self.simulated.say(self.name, self.address_of_scheduler, "close")
        self.simulated.began_s.pop(self.job_id, None)
        await super().close()


class ManyWorkers(Scheduler):
    """The simulated Slurm."""

    title = "a simulated Slurm"
    has_jobs = True

    def start(
        self, partition: str, job_name: str, store: Path, dashboard: str, errors: list[LaunchError]
    ) -> SpecCluster:
        """Return a cluster like dask-jobqueue's."""
        self.job_name = job_name
        self.began_s: dict[str, float] = {}
        self.security = make_security()
        self.processes = [
            subprocess.Popen([*PROGRAM, "--host"], stdin=subprocess.PIPE, stdout=sys.stderr)
            for _ in range(PROCESSES)
        ]
        options = {"host": "127.0.0.1", "protocol": "tls://", "dashboard_address": dashboard}
        return SpecCluster(
            scheduler={"cls": DaskScheduler, "options": options | {"security": self.security}},
            worker={"cls": Job, "options": {"cluster": self}},
            security=self.security,
            silence_logs="critical",
        )

    def say(self, name: str, scheduler: str, word: str) -> None:
        """Have the process of a worker start or close it."""
        fields = {"name": name, "scheduler": scheduler, "word": word}
        names = [field for field in Security.__slots__ if field.startswith(("tls_", "require_"))]
        fields |= {"security": {field: getattr(self.security, field) for field in names}}
        pipe = self.processes[int(name) % PROCESSES].stdin
        assert pipe is not None
        pipe.write(json.dumps(fields).encode() + b"\n")
        pipe.flush()

    def queued_jobs(self, names: Any) -> tuple[QueuedJob, ...]:
        """Return all jobs as running."""
        now_s = time.monotonic()
        return tuple(
            QueuedJob(
                id=job_id,
                name=self.job_name,
                phase=Phase.RUNNING,
                state="RUNNING",
                reason="None",
                time=JobTime(elapsed_s=now_s - began_s),
            )
            for job_id, began_s in dict(getattr(self, "began_s", {})).items()
        )

    def cancel_jobs(self, names: Any, only_id: str | None = None) -> tuple[QueuedJob, ...]:
        """End the processes of workers."""
        for process in getattr(self, "processes", ()):
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in getattr(self, "processes", ()):
            process.wait()
        return ()


class SimulatedRunner:
    """Replaces the measuring subprocess: returns the first record measured in this process for each
    point, with the point and the time replaced."""

    def __init__(self, setup: Any, scratch: Path) -> None:
        self.setup = setup

    def measure(self, point: Point, attempt: int) -> bytes:
        """The record of a point."""
        from campaign.measure import point_life
        from campaign.store.journal import encode

        measured = first_of_process(point_life.measure, self.setup, point, 0)
        if WAIT:
            time.sleep(POINT_S)
        else:
            CLOCK.ahead_s = getattr(CLOCK, "ahead_s", 0.0) + POINT_S
        return encode(replace(measured, point=point, attempt=attempt, start_unix_s=time.time()))

    def close(self) -> None:
        """Nothing is open."""


LOCK = threading.Lock()
KNOWN: dict[Any, Any] = {}


def first_of_process(make: Any, *arguments: Any) -> Any:
    """Return the result of a function's first call in this process, whichever worker made it."""
    with LOCK:
        if make not in KNOWN:
            KNOWN[make] = make(*arguments)
        return KNOWN[make]


CLOCK = threading.local()
"""``ahead_s``: how far the clock of a worker's thread is put forward."""
WAIT = bool(os.environ.get("MANY_WORKERS_WAIT"))


def monotonic() -> float:
    """Return the clock of a worker, s."""
    return time.monotonic() + getattr(CLOCK, "ahead_s", 0.0)


async def host() -> None:
    """Run workers as standard input requests."""
    from campaign.launch import timers, worker  # noqa: F401
    from campaign.launch.dask_settings import configure_dask

    configure_dask()
    # What a worker does now and then without a word to the scheduler: hundreds share a process.
    dask.config.set(
        {
            "distributed.admin.tick.interval": "1h",
            "distributed.admin.system-monitor.interval": "1h",
        }
    )
    worker.node_record = partial(first_of_process, worker.node_record)
    worker.SubprocessRunner = SimulatedRunner
    worker.time = SimpleNamespace(monotonic=monotonic, sleep=time.sleep)
    # It ends the process, which has more workers than one.
    worker._exit_after_closing = lambda worker: None
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    running: dict[str, Worker] = {}
    tasks = set()
    with tempfile.TemporaryDirectory(prefix="many-workers-") as scratch:
        while line := await lines.readline():
            request = json.loads(line)
            if request["word"] == "close":
                pending = running.pop(request["name"]).close(nanny=False)
            else:
                pending = running[request["name"]] = Worker(
                    request["scheduler"],
                    name=request["name"],
                    nthreads=1,
                    host="tls://127.0.0.1",
                    security=Security(**request["security"]),
                    memory_limit=0,
                    local_directory=scratch,
                    dashboard=False,
                )
            task = asyncio.ensure_future(_awaited(pending))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*(started.close(nanny=False) for started in running.values()), *tasks)
    os._exit(0)  # without waiting for the workers' threads


async def _awaited(awaitable: Any) -> None:
    await awaitable


def drive(campaign: Path, store: Path, profile: bool) -> dict[str, Any]:
    """Run ``campaign run`` in this process; return its costs."""
    from campaign.launch.partition_run import PartitionRun
    from campaign.verbs.command_line import main as command_line

    figures: dict[str, Any] = {"tasks": 0, "loop_s": 0.0, "files": 0}
    finished, ended = PartitionRun.task_finished, threading.Event()
    profiles = {"main": cProfile.Profile(time.thread_time), "Dask": None}

    def task_finished(self: PartitionRun, seconds: float, points: int) -> None:
        figures["tasks"] += 1
        if figures["tasks"] == 1:
            figures["began"] = time.monotonic()
            if profile:
                profiles["main"].enable()
                self.cluster.loop.add_callback(profile_loop)
        figures["ended"] = time.monotonic()
        finished(self, seconds, points)

    def profile_loop() -> None:
        profiles["Dask"] = cProfile.Profile(time.thread_time)
        profiles["Dask"].enable()

    def look() -> None:
        while not ended.wait(0.5):
            figures["files"] = max(
                figures["files"], sum(1 for _ in Path("/proc/self/fd").iterdir())
            )
            for thread in threading.enumerate():
                if thread.name.startswith("IO loop") and thread.ident is not None:
                    clock = time.pthread_getcpuclockid(thread.ident)
                    figures["loop_s"] = max(figures["loop_s"], time.clock_gettime(clock))

    PartitionRun.task_finished = task_finished
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    code = command_line(["run", str(campaign), "--store", str(store), "--quiet"])
    ended.set()
    looking.join()
    if code != 0:
        sys.exit(f"campaign run ended with {code}")
    used = resource.getrusage(resource.RUSAGE_SELF)
    for name, profiler in profiles.items():
        if profile and profiler is not None:
            profiler.disable()
            print(f"{name} thread:", file=sys.stderr)
            pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "main_s": time.thread_time(),
        "dask_s": figures["loop_s"],
        "wall_s": figures["ended"] - figures["began"],
        "memory_mb": used.ru_maxrss / 1024,
        "tasks": figures["tasks"],
        "files": figures["files"],
    }


def run_once(
    folder: Path, workers: int, points: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return all figures of one run."""
    site = (ROOT / "sites/builtin/jetson-tk1.toml").read_text()
    resources = f'scheduler = "many"\nnodes = {workers}\nmemory = "1GB"\n'
    site = site.replace('scheduler = "local"\nnodes = 2\n', resources)
    (folder / "site.toml").write_text(site.replace('"jetson-tk1"', '"many"'))
    campaign, store = folder / "campaign.toml", folder / f"{workers}-{points}.store"
    repeats = points // A_REPEAT
    campaign.write_text(CAMPAIGN.format(repeats=repeats, site=folder / "site.toml"))
    figures_file = folder / "figures.json"
    argv = [*PROGRAM, "--drive", str(campaign), str(store), str(figures_file)]
    trace = folder / "calls"
    if arguments.calls:
        trace.mkdir()
        argv = ["strace", "-ff", "-y", "--seccomp-bpf", "-e", CALLS, "-o", f"{trace}/of", *argv]
    environment = os.environ | ({"MANY_WORKERS_WAIT": "1"} if arguments.wait else {})
    if arguments.profile:
        argv.append("--profile")
    subprocess.run(argv, check=True, env=environment)
    figures = {"workers": workers, "points": points} | json.loads(figures_file.read_text())
    figures["stored_files"] = sum(len(names) for _, _, names in os.walk(store))
    figures["stored_mb"] = sum(p.stat().st_size for p in store.rglob("*") if p.is_file()) / 1e6
    if arguments.calls:
        figures |= calls_on(store, trace)
        shutil.rmtree(trace)
    shutil.rmtree(store)
    return figures


def calls_on(store: Path, trace: Path) -> dict[str, int]:
    """Return how often each system call was made on files of the store, and bytes written to
    journals."""
    count: Counter[str] = Counter()
    for path in trace.iterdir():  # one a thread, so that no call is split
        for line in path.read_text(errors="replace").splitlines():
            call = re.match(r"(\w+)\(", line)
            if call is None or str(store) not in line:
                continue
            place = "journals" if "/journals/" in line else "rest"
            count[f"{call[1]} {place}"] += 1
            if call[1] == "write" and (size := re.search(r"= (\d+)$", line)):
                count[f"bytes {place}"] += int(size[1])
    return dict(count)


def show(small: dict[str, Any], large: dict[str, Any]) -> None:
    """Print the cost of a point, by the difference of two runs."""
    points = large["points"] - small["points"]

    def slope(name: str) -> float:
        return float(large.get(name, 0) - small.get(name, 0)) / points

    print(
        f"{large['workers']:,} workers (simulated), {small['points']:,} and {large['points']:,} "
        f"points: {slope('cpu_s') * 1e3:.2f} ms of processor time a point "
        f"(main thread {slope('main_s') * 1e3:.2f}, Dask {slope('dask_s') * 1e3:.2f}), "
        f"{slope('memory_mb') * 1024:.2f} kB of memory a point, {1 / slope('tasks'):.1f} points a "
        f"task, {large['points'] / large['wall_s']:.0f} points/s, {large['files']} files open, "
        f"{slope('stored_mb') * 1e6:.0f} bytes stored a point"
    )
    calls = {name for name in small | large if " " in name}
    for name in sorted(calls):
        print(f"    {name}: {slope(name):.3f} a point")


def main() -> None:
    """Run each number of workers with each number of points, and print the cost of a point."""
    parser = argument_parser(__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--points", type=int, nargs="+", default=[20_000, 60_000])
    parser.add_argument("--wait", action="store_true", help="a point takes its second")
    parser.add_argument("--calls", action="store_true", help="count system calls by strace")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--host", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--drive", type=Path, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host:
        asyncio.run(host())
        return
    if arguments.drive:
        campaign, store, figures = arguments.drive
        figures.write_text(json.dumps(drive(campaign, store, arguments.profile)))
        return
    runs = []
    with tempfile.TemporaryDirectory(prefix="many-workers-") as folder:
        for workers in arguments.workers:
            for points in arguments.points:
                runs.append(run_once(Path(folder), workers, points, arguments))
                print(json.dumps(runs[-1]), flush=True)
            if len(arguments.points) > 1:
                show(runs[-len(arguments.points)], runs[-1])


if __name__ == "__main__":
    main()
