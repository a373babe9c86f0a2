"""Points that run on two nodes at once: their energy, clocks, counts, and what fails on one."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from campaign.launch.preview import job_scripts
from campaign.launch.scheduler import job_name
from campaign.measure.point_life import PartitionSetup
from campaign.measure.subprocesses import SubprocessRunner
from campaign.next.offered import offered
from campaign.plan.campaign_file import Protocol
from campaign.plan.estimate import estimates
from campaign.plan.plan import make_plan
from campaign.plan.point import canonical_json
from campaign.store.dataset import current_tables
from campaign.store.hours import spent_by_partition
from campaign.store.journal import decode
from campaign.store.layout import open_store
from campaign.store.measurement import Measurement
from campaign.verbs.command_line import main
from dvfs.dataset import (
    CLOCK_NOT_ACHIEVED,
    KERNEL_FAILED,
    METER_UNREADABLE,
    NODE_LOST,
    OK,
    READ_BACK,
)
from dvfs.input_files import FileError
from dvfs.setting import Setting
from kernels.registry import find_kernel
from sites.clocks import CONTROLS
from sites.meters import METERS
from sites.site_file import Site
from sites.site_reading import read_site
from tests.campaign import node_devices
from tests.commands import prints
from tests.points import a_point
from tests.slurm_cluster import SlurmCluster
from tests.slurm_fixtures import PARTITION

MPI_PROGRAM = str(Path(sys.executable).with_name("mpivars"))
"""A small program of the wheel mpich, linked with its library."""
ROOT = Path(__file__).parents[2]
PROTOCOL = {"min_duration_s": 0.5, "warm_up_s": 0.0, "idle_s": 0.3, "timeout_s": 60.0}
AT_MHZ = 1400.0


class TwoNodes:
    """A job on n3 and n4, in which this process measures as the worker on n3 does."""

    def __init__(self, cluster: SlurmCluster, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        (folder / "sitecustomize.py").write_text(node_devices.SITECUSTOMIZE)
        options = ("-o/dev/null", "-pcpu-b", "-N2", "-n2", "-c4")
        self.job = cluster.submit("#!/bin/bash\nsleep 600\n", *options)
        while cluster.job_state(self.job) != "RUNNING":
            time.sleep(0.1)
        variables = {
            **cluster.environment,
            "SLURM_JOB_ID": self.job,
            "SLURM_CPUS_ON_NODE": "4",
            "SLURMD_NODENAME": "n3",
            "PYTHONPATH": f"{folder}:{ROOT}",
            node_devices.FOLDER: str(folder),
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        for registry in (METERS, CONTROLS):
            patch.setitem(registry, node_devices.NAME, node_devices.__name__)
        node_devices.record("n3", 10.0)
        node_devices.record("n4", 30.0)

    def site(self) -> Site:
        return Site.model_validate(
            {
                "name": "pair",
                "nodes_per_point": 2,
                "domains": {"core": {"frequencies_mhz": [AT_MHZ]}},
                "clocks": {"control": node_devices.NAME, "device": "gpu"},
                "meters": [{"kind": node_devices.NAME}],
                "partitions": {
                    "cpu-b": {"scheduler": "slurm", "nodes": 2, "environment": {"mpi": "pmi2"}}
                },
            }
        )

    def measured(self, kernel: str, ranks: int = 1, **params: object) -> Measurement:
        checked = find_kernel(kernel).params.model_validate(params)
        point = a_point(
            kernel,
            site="pair",
            partition="cpu-b",
            params=canonical_json(checked.model_dump(mode="json")),
            ranks=ranks,
            setting=Setting(AT_MHZ),
        )
        protocol = Protocol.model_validate(PROTOCOL)
        runner = SubprocessRunner(PartitionSetup(self.site(), protocol, (kernel,)))
        try:
            done = decode(runner.measure(point, 0))
            if "mpi/pmi2: " in done.text:  # seen in 4 of about 400 starts: a run tries again
                assert done.status == NODE_LOST
                done = decode(runner.measure(point, 1))
        finally:
            runner.close()
        return done


@pytest.fixture
def two_nodes(
    slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TwoNodes]:
    pair = TwoNodes(slurm_cluster, tmp_path, monkeypatch)
    yield pair
    slurm_cluster.scancel(pair.job)
    while slurm_cluster.jobs():
        time.sleep(0.1)


def measuring(folder: str) -> list[psutil.Process]:
    """The processes that measure a point of this test now, on whatever node."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["cmdline"] or [])[1:3] == ["-m", "campaign.measure"]
        and (process.info["environ"] or {}).get(node_devices.FOLDER) == folder
    ]


@pytest.mark.slurm
def test_a_program_on_two_nodes_costs_the_energy_of_both(two_nodes: TwoNodes) -> None:
    """10 W on one and 30 W on the other, running and idle; both are at their clock."""
    where = 'echo "rank $PMI_RANK of $PMI_SIZE on $SLURMD_NODENAME"; sleep 0.6'
    seen = "rank 3 of 4 on n4"
    done = two_nodes.measured("command", 2, argv=["sh", "-c", where], expect=seen)
    assert done.status == OK, done.text
    assert done.energy_j == pytest.approx(40.0 * done.time_s, rel=1e-6)
    assert done.provenance["protocol"]["idle_w"] == pytest.approx(40.0, rel=1e-6)
    assert sorted(done.meters) == [f"{n}/recorded:recorded/power" for n in ("n3", "n4")]
    assert done.node == "n3+n4"
    assert done.clock_proof == READ_BACK
    for node in ("n3", "n4"):
        assert node_devices.orders(node) == ["set 1400", "restore"]
    library = two_nodes.measured("command", 2, argv=[MPI_PROGRAM])
    assert library.status == OK, library.text
    assert not [flag for flag in library.provenance["flags"] if "world" in flag]


@pytest.mark.slurm
def test_a_kernel_on_two_nodes_counts_what_both_do(two_nodes: TwoNodes) -> None:
    kernel = find_kernel("dp_fma")
    alone = kernel.counts(kernel.params(threads=1))
    done = two_nodes.measured("dp_fma", threads=1)
    assert done.status == OK, done.text
    assert done.counts == {name: pytest.approx(2.0 * n) for name, n in alone.items()}
    assert done.energy_j == pytest.approx(40.0 * done.time_s, rel=1e-6)


@pytest.mark.slurm
def test_who_waits_for_the_program_takes_no_processor(two_nodes: TwoNodes) -> None:
    """Of the two processes that measure, the one on the other node waits in MPI."""
    used_s: list[float] = []

    def watch() -> None:
        for runs in (1, 2):  # the warm-up and the window
            while len(list(folder.glob("n3*.runs"))) < runs:
                time.sleep(0.05)
            before = {one.pid: sum(one.cpu_times()[:2]) for one in measuring(str(folder))}
            time.sleep(2.0)
            after = {one.pid: sum(one.cpu_times()[:2]) for one in measuring(str(folder))}
            used_s.extend(after[pid] - before[pid] for pid in before)

    folder = node_devices.file_of("n3", "runs").parent
    watching = threading.Thread(target=watch)
    watching.start()
    run = f"touch {folder}/$SLURMD_NODENAME-$$.runs; sleep 2.5"
    done = two_nodes.measured("command", argv=["sh", "-c", run], expect="")
    watching.join()
    assert done.status == OK, done.text
    assert len(used_s) == 4
    assert max(used_s) < 0.7, used_s


@pytest.mark.slurm
def test_what_fails_on_one_node_fails_the_point_by_its_name(two_nodes: TwoNodes) -> None:
    """Its meter, its clock, the program; the clocks of both are restored each time."""
    two_nodes_csv = node_devices.file_of("n4", "csv")
    recording = two_nodes_csv.read_text()
    two_nodes_csv.unlink()
    unread = two_nodes.measured("idle", sleep_s=0.1)
    assert unread.status == METER_UNREADABLE, unread.text
    assert unread.text.startswith("rank 1 on n4: ")
    two_nodes_csv.write_text(recording)
    node_devices.file_of("n4", "mhz").write_text("2000")
    fast = two_nodes.measured("idle", sleep_s=0.1)
    assert fast.status == CLOCK_NOT_ACHIEVED, fast.text
    assert fast.text == "rank 1 on n4: core clock: asked for 1400 MHz, ran at 2000 MHz"
    node_devices.file_of("n4", "mhz").unlink()
    broken = two_nodes.measured("command", argv=["sh", "-c", "echo no case; exit 3"])
    assert broken.status == KERNEL_FAILED, broken.text
    assert "exit code 3" in broken.text and "no case" in broken.text
    for node in ("n3", "n4"):
        assert node_devices.orders(node) == 3 * ["set 1400", "restore"]


@pytest.mark.slurm
def test_a_node_that_is_lost_is_no_fault_of_the_program(two_nodes: TwoNodes) -> None:
    timer = threading.Timer(4.0, lambda: two_nodes.cluster.set_node("n4", "down"))
    timer.start()
    lost = two_nodes.measured("idle", sleep_s=50.0)
    timer.join()
    two_nodes.cluster.set_node("n4", "resume")
    assert lost.status == NODE_LOST, lost.text
    assert "n4" in lost.text


@pytest.mark.parametrize(
    ("old", "new", "key", "found"),
    [
        ("nodes = 2\n", "nodes = 3\n", "partitions.cpu-a.nodes", "found 3"),
        ('"slurm"\n', '"local"\n', "nodes_per_point", "of this machine alone"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(
    tmp_path: Path, old: str, new: str, key: str, found: str
) -> None:
    (tmp_path / "pair.toml").write_text(site_text("slurm.conf").replace(old, new))
    with pytest.raises(FileError) as refused:
        read_site(tmp_path / "pair.toml")
    assert key in str(refused.value)
    assert found in str(refused.value)


def test_the_nodes_of_a_point_are_those_of_the_estimate(tmp_path: Path) -> None:
    """Six nodes in pairs are three workers, which take the node-hours of six."""
    text = site_text("slurm.conf").replace("nodes = 2\n", "nodes = 6\n")
    (tmp_path / "pair.toml").write_text(text)
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(CAMPAIGN.replace("threads = 1", "threads = [1, 2, 3, 4, 5, 6]"))
    plan = make_plan(campaign)
    (own,) = estimates(plan.points.parts, plan.campaign.protocol, plan.sites, {})
    assert own.nodes == 6
    assert own.node_hours == pytest.approx(6 * own.wall_s / 3600.0)
    (part,) = plan.points.parts
    cells = offered(plan, part, {}, None).cells
    each = [cells.cost(k, np.full(1, np.nan)) for k in range(len(part.inputs))]
    assert np.mean(each) == pytest.approx(2 * own.point_s / 3600.0)
    assert job_scripts(plan, tmp_path / "S")["pair/cpu-a"]["jobs"] == 3


CAMPAIGN = """\
name = "pairs"
[[sites]]
site = "pair.toml"
[protocol]
min_duration_s = 0.05
warm_up_s = 0.0
[[kernels]]
kernel = "dp_fma"
params = { threads = 1 }
[[kernels]]
kernel = "command"
ranks = 2
params = { argv = ["sh", "-c", "echo $PMI_SIZE on $SLURMD_NODENAME"], expect = "4 on n2" }
"""
SITE = """\
name = "pair"
nodes_per_point = 2
[slurm]
conf = "{conf}"
{partition}
[partitions.cpu-a.environment]
mpi = "pmi2"
"""


def site_text(conf: Path | str) -> str:
    return SITE.format(conf=conf, partition=PARTITION.format(name="cpu-a"))


@pytest.mark.slurm
@pytest.mark.timeout(280)
def test_a_campaign_on_pairs_of_nodes(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    """One job has both nodes, and the node-hours are those of both."""
    (tmp_path / "pair.toml").write_text(site_text(slurm_cluster.conf))
    campaign = tmp_path / "campaign.toml"
    campaign.write_text(CAMPAIGN)
    planned = prints("plan", campaign, "--scripts")
    assert "srun --export=ALL --nodes=2 --ntasks=2 --ntasks-per-node=1" in planned
    assert "srun --nodes=2 --ntasks=4 --ntasks-per-node=2" in planned
    assert main(["run", str(campaign), "--store", str(tmp_path / "S")]) == 0
    store = open_store(tmp_path / "S")
    rows = current_tables(store)[0].measurements.set_index("kernel")
    assert set(rows["status"]) == {OK}, rows["text"].to_list()
    alone = find_kernel("dp_fma").counts(find_kernel("dp_fma").params(threads=1))
    assert rows.loc["dp_fma", "n_dp"] == 2.0 * alone["dp"]
    name = job_name(store.root, "pair", "cpu-a")
    lines = slurm_cluster.run("scontrol", "-o", "show", "job").splitlines()
    (job,) = [line.split() for line in lines if f"JobName={name}" in line.split()]
    assert {"NumNodes=2", "NodeList=n[1-2]"} <= set(job)
    ((begin, end),) = slurm_cluster.job_spans(name)
    (spent,) = spent_by_partition(store)[0].values()
    assert spent.node_hours == pytest.approx(2.0 * (end - begin) / 3600.0, abs=6.0 / 3600.0)
