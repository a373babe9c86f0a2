"""The cost of launching points without work on a real Slurm: ``campaign run`` and ``Client.map``.

    .venv/bin/python -m benchmarks.launch_overhead [--points 2000] [--rounds 3] [--steps]

The baseline runs the same measuring subprocess by ``Client.map`` through dask-jobqueue alone. Each
side is a process, timed from start to end (interpreter, jobs, workers, points, shutdown). They
take turns several times; the ratio is that of the medians. Points are ``idle`` for nanoseconds.
With ``--steps`` they have two settings, which Slurm sets with a job step each, and both sides have
the same batches of points in a step. The baseline keeps its records in memory; the campaign writes
each to disk, durably, and compacts them.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.shared import CAMPAIGN, argument_parser, cost_of

WORKERS = 2
KERNELS = 50
"""The kernel's parameter sets; a block has all of them at every setting."""

BASELINE = """
import json, sys, time
from itertools import groupby
from pathlib import Path
from distributed import Client, get_worker
from distributed.security import Security
from dask_jobqueue import SLURMCluster
from campaign.launch.dask_settings import configure_dask
from campaign.launch.slurm import SlurmScheduler
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import SubprocessRunner
from campaign.plan.plan import make_plan
from campaign.plan.point import Point
from campaign.store.journal import decode

def measure(batch):
    worker = get_worker()
    if not hasattr(worker, "runner"):
        worker.runner = SubprocessRunner(JOB)
    return [decode(worker.runner.measure(Point.from_dict(fields), 0)).status for fields in batch]

def batch_of(point):
    return point.setting if site.clocks.control == "slurm" else point.id

folder = Path(sys.argv[1])
plan = make_plan(folder / "c.toml")
site = plan.sites["bench"]
JOB = PartitionSetup(site, plan.campaign.protocol, ("idle",))
configure_dask()
keys = folder / "keys"
keys.mkdir(mode=0o700, exist_ok=True)
(folder / "logs").mkdir(exist_ok=True)
keywords = SlurmScheduler(site).job_keywords("cpu-a", "baseline", str(folder / "logs"))
with SLURMCluster(job_cls=SlurmScheduler(site).job_class(), security=Security.temporary(), protocol="tls://",
        shared_temp_directory=str(keys), silence_logs="critical",
        scheduler_options={"dashboard_address": "127.0.0.1:0"}, **keywords) as cluster:
    with Client(cluster) as client:
        cluster.scale(2)
        client.wait_for_workers(2)
        began = time.monotonic()
        batches = [[p.as_dict() for p in same] for _, same in groupby(plan.points, batch_of)]
        statuses = sum(client.gather(client.map(measure, batches, pure=False)), [])
        points_s = time.monotonic() - began
        assert statuses == ["ok"] * len(plan.points), set(statuses)
        client.run(lambda dask_worker: dask_worker.runner.close())
print(json.dumps({"points_s": points_s}))
"""


def write_files(folder: Path, conf: Path, points: int, steps: bool) -> None:
    """Write the site and campaign files of both sides."""
    clocks = (
        '[domains.core]\nfrequencies_mhz = [1400, 2000]\n[clocks]\ncontrol = "slurm"\n'
        "tolerance_pct = 1000\n"  # this machine's clock cannot be set
        if steps
        else '[clocks]\ncontrol = "fixed"\n'
    )
    (folder / "site.toml").write_text(
        f'name = "bench"\n{clocks}[slurm]\nconf = "{conf}"\n[partitions.cpu-a]\n'
        'scheduler = "slurm"\nnodes = 2\ncores = 2\nmemory = "1GB"\ninterface = "lo"\n'
    )
    settings = 2 if steps else 1
    sleeps = [i * 1e-9 for i in range(min(points // settings, KERNELS))]
    repeats = points // settings // len(sleeps)
    (folder / "c.toml").write_text(
        f'name = "bench"\nrepeats = {repeats}\n[[sites]]\nsite = "site.toml"\n'
        "[protocol]\nmin_duration_s = 0.0\nwarm_up_s = 0.0\n"
        f'[[kernels]]\nkernel = "idle"\nparams = {{ sleep_s = {sleeps} }}\n'
    )


def main() -> None:
    """Run both sides in turn and print their medians and the ratio."""
    from tests.slurm_cluster import SlurmCluster

    parser = argument_parser(__doc__)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="launch-"))
    ours, peer_s, peer_points_s = [], [], []
    try:
        with SlurmCluster(base / "slurm", "bench", {"cpu-a": 2}) as cluster:
            write_files(base, cluster.conf, options.points, options.steps)
            for repetition in range(options.rounds):
                peer = cost_of([sys.executable, "-c", BASELINE, str(base)])
                peer_s.append(peer.wall_s)
                peer_points_s.append(json.loads(peer.output.splitlines()[-1])["points_s"])
                store = str(base / f"store{repetition}")
                run = [*CAMPAIGN, "run", str(base / "c.toml"), "--store", store]
                ours.append(cost_of(run).wall_s)
                print(
                    f"round {repetition + 1}: campaign run {ours[-1]:.1f} s, Client.map "
                    f"{peer_s[-1]:.1f} s (points alone {peer_points_s[-1]:.1f} s)",
                    flush=True,
                )
    finally:
        shutil.rmtree(base, ignore_errors=True)
    ratio = statistics.median(ours) / statistics.median(peer_s)
    point_s = statistics.median(ours) * WORKERS / options.points
    print(
        f"{options.points} points, {'job steps' if options.steps else 'forks'}, 2 workers: "
        f"campaign run {statistics.median(ours):.1f} s, Client.map "
        f"{statistics.median(peer_s):.1f} s, ratio {ratio:.2f}; {point_s:.3f} s a point and worker"
    )
    sys.exit(ratio > 1.5)


if __name__ == "__main__":
    main()
