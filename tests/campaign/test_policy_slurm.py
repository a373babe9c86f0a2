"""A policy on a real Slurm with accounting, energies and clocks: applied, and verified."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from campaign.policy.accounting import Job, read_jobs
from campaign.policy.checks import Cluster, obstacles
from campaign.policy.forms import install
from campaign.policy.orders import CONTROL, POLICY
from campaign.policy.policy_file import Entry, Policy, read_policy, write_policy
from campaign.policy.verification import BROKEN, KEPT
from campaign.store.layout import create_store
from campaign.verbs.command_line import main
from sites.slurm_clocks import read_configuration
from tests.accounting_cluster import FILTER, AccountingCluster
from tests.campaign.policy_data import TODAY, a_policy, entry, promise

pytestmark = [pytest.mark.slurm, pytest.mark.root]

ROOT = Path(__file__).parents[2]
KHZ = "1800000"
ASKED = "printenv SLURM_CPU_FREQ_REQ || echo none"


@pytest.fixture
def filtered(accounting_cluster: AccountingCluster) -> Iterator[Callable[[Policy], Path]]:
    """Installs a policy's filter; afterwards the cluster has none."""
    cluster = accounting_cluster

    def make(policy: Policy) -> Path:
        folder = cluster.filter.parent / "policy"
        install(policy, "slurm-cli-filter", folder, TODAY)
        (folder / "dvfs_policy.lua").rename(cluster.filter.parent / "dvfs_policy.lua")
        cluster.set_filter((folder / "cli_filter.lua").read_text())
        return cluster.filter.parent / "dvfs_policy.lua"

    yield make
    cluster.set_filter(FILTER)


def app(**changes: object) -> Entry:
    return entry("app", 1800.0, job_name="app*").model_copy(update=changes)


def batch(cluster: AccountingCluster, folder: Path, *options: str, steps: int = 2) -> str:
    """A job whose steps, and whose batch script, write what clock they were asked for."""
    out = folder / "%A.%a"
    step = f"srun sh -c '{ASKED}'\n"
    script = f"#!/bin/bash\n{step * steps}"
    return cluster.submit(script, f"--output={out}", "--error=/dev/null", "--time=5", *options)


def wait_for_all(cluster: AccountingCluster) -> None:
    cluster._wait(lambda: not cluster.jobs(), "the end of all jobs")


def sacct(cluster: AccountingCluster) -> str:
    columns = "JobID,User,JobName,Partition,State,Start,End,ElapsedRaw,ConsumedEnergyRaw,"
    columns += "ReqCPUFreqMax,NNodes,NodeList,Comment,SubmitLine"
    return cluster.run("sacct", "--allusers", "--parsable2", f"--format={columns}", "-Snow-1days")


def two_hundred_jobs(
    cluster: AccountingCluster, folder: Path
) -> tuple[list[Job], dict[str, list[str]]]:
    """200 jobs by srun, sbatch, salloc and arrays: 20 of no entry's name, 10 that opt out and 10
    with a clock of their own. They are the rows of the accounting; and job -> what its steps, and
    its script, were asked for."""
    asked: dict[str, list[str]] = {}
    submitted: list[str] = []

    def one(number: int) -> None:
        name = f"--job-name=app{number}"
        if number < 60:  # srun alone: SLURM_JOB_ID is the step's
            said = cluster.run(
                "srun", name, "sh", "-c", f"echo $SLURM_JOB_ID; {ASKED}", timeout=120
            )
            job, *rest = said.split()
            asked[job] = rest
        elif number < 66:
            words = ("salloc", name, "sh", "-c", f"echo $SLURM_JOB_ID; srun sh -c '{ASKED}'")
            job, *rest = cluster.run(*words, timeout=120).split()
            asked[job] = rest
        elif number < 120:
            submitted.append(batch(cluster, folder, name))
        elif number < 130:
            submitted.append(batch(cluster, folder, name, "--array=0-4", steps=1))
        elif number < 140:
            submitted.append(batch(cluster, folder, f"--job-name=other{number}", steps=1))
        else:
            words = ["--comment=mine no-dvfs"] if number % 2 else ["--cpu-freq=1200000"]
            submitted.append(batch(cluster, folder, name, *words, steps=1))

    with ThreadPoolExecutor(4) as pool:  # what a submission raises is raised here
        list(pool.map(one, range(160)))
    wait_for_all(cluster)
    ids = {*submitted, *asked}
    rows: list[Job] = []

    def all_are_there() -> bool:
        found = [job for job in read_jobs(sacct(cluster)) if job.why_not in ("", "no time")]
        rows[:] = [job for job in found if job.id.partition("_")[0] in ids]
        return len(rows) == 200

    cluster._wait(all_are_there, "200 jobs in the accounting")
    for path in folder.glob("*.*"):
        job, _, task = path.name.partition(".")
        asked[f"{job}_{task}" if f"{job}_{task}" in {row.id for row in rows} else job] = (
            path.read_text().split()
        )
    assert asked.keys() == {row.id for row in rows}
    return rows, asked


@pytest.mark.timeout(600)
def test_200_jobs_by_srun_sbatch_salloc_and_arrays(
    accounting_cluster: AccountingCluster, filtered: Callable[[Policy], Path], tmp_path: Path
) -> None:
    filtered(a_policy(app(), control_pct=20.0, cluster=accounting_cluster.name))
    rows, asked = two_hundred_jobs(accounting_cluster, tmp_path)
    by_arm: dict[str, list[str]] = {POLICY: [], CONTROL: [], "": []}
    for row in rows:
        steps = asked[row.id]
        by_arm[row.arm].append(row.id)
        expected = KHZ if row.arm == POLICY else "none"
        if row.arm:
            assert row.mark == "app:1800/-"
            assert set(steps) == {expected}
        if row.arm == POLICY:
            assert set(row.asked_mhz) == {1800.0}
            assert len(row.asked_mhz) == len(steps)
        elif row.arm == CONTROL:
            assert row.asked_mhz == ()
    untouched = Counter(tuple(asked[job]) for job in by_arm[""])
    assert untouched == {("none",): 20, ("1200000",): 10}
    # An array is one draw.
    draws = (
        {job.partition("_")[0] for job in by_arm[POLICY]},
        {job.partition("_")[0] for job in by_arm[CONTROL]},
    )
    assert not draws[0] & draws[1]
    n = len(draws[0]) + len(draws[1])
    assert n == 130
    low, high = stats.binom.interval(0.99, n, 0.2)
    assert low <= len(draws[1]) <= high


DAMAGED = {"calls a global": "os.exit(1)", "is missing": None}


@pytest.mark.parametrize("damage", DAMAGED)
def test_with_a_policy_that_fails_jobs_run_at_the_defaults(
    accounting_cluster: AccountingCluster,
    filtered: Callable[[Policy], Path],
    tmp_path: Path,
    damage: str,
) -> None:
    table = filtered(a_policy(app(), cluster=accounting_cluster.name))
    table.unlink()
    if DAMAGED[damage] is not None:
        table.write_text(DAMAGED[damage])
    jobs = [batch(accounting_cluster, tmp_path, "--job-name=app", steps=1) for _ in range(6)]
    said = accounting_cluster.run("srun", "--job-name=app", "sh", "-c", ASKED)
    wait_for_all(accounting_cluster)
    assert said == "none\n"
    assert {path.read_text() for path in tmp_path.iterdir()} == {"none\n"}
    assert len(list(tmp_path.iterdir())) == len(jobs)


@pytest.mark.timeout(600)
def test_with_a_damaged_policy_200_jobs_run_at_the_defaults(
    accounting_cluster: AccountingCluster, filtered: Callable[[Policy], Path], tmp_path: Path
) -> None:
    table = filtered(a_policy(app(), cluster=accounting_cluster.name))
    table.write_text(table.read_text()[:-9])
    rows, asked = two_hundred_jobs(accounting_cluster, tmp_path)
    assert Counter(word for job in asked.values() for word in set(job)) == {
        "none": 190,
        "1200000": 10,
    }
    assert all(row.mark == "" for row in rows)


def test_the_check_knows_this_cluster(accounting_cluster: AccountingCluster) -> None:
    configuration = read_configuration(accounting_cluster.run("scontrol", "show", "config"))
    assert configuration["ClusterName"] == accounting_cluster.name
    assert obstacles(a_policy(app()), Cluster(configuration, ())) == []


@pytest.mark.timeout(600)
def test_the_saving_that_was_delivered_is_found(
    accounting_cluster: AccountingCluster,
    filtered: Callable[[Policy], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Jobs of two inputs, whose power follows the clock. What they drew is known from the log of
    the nodes' counters; verify has what sacct says."""
    cluster = accounting_cluster
    filtered(a_policy(app(), control_pct=40.0))
    ids = []
    for number in range(48):
        work = cluster.work(5.0 + number % 2, 0.5)
        script = f"#!/bin/bash\ndate +%s.%N\nsrun {work}\ndate +%s.%N\necho $SLURMD_NODENAME\n"
        words = (f"--job-name=app{number % 2}", f"--output={tmp_path}/%j", "--time=5")
        ids.append(cluster.submit(script, *words))
    wait_for_all(cluster)
    for number in ids:
        cluster.account(number)
    shown = sacct(cluster).splitlines()
    mine = [line for line in shown if line.partition("|")[0].partition(".")[0] in ids]
    table = tmp_path / "jobs.txt"
    table.write_text("\n".join([shown[0], *mine, ""]))
    jobs = read_jobs(table.read_text())
    logs: dict[tuple[int, str], list[float]] = defaultdict(list)  # by input and arm
    for job in jobs:
        start, end, node = (tmp_path / job.id).read_text().split()
        drawn_j = cluster.drawn_j(node, float(start), float(end))
        assert job.energy_j == pytest.approx(drawn_j, rel=0.1)
        logs[ids.index(job.id) % 2, job.arm].append(np.log(drawn_j))
    assert len(logs) == 4
    assert min(map(len, logs.values())) >= 3
    store = str(create_store(tmp_path / "store", "c").root)
    verdicts = {}
    for promised in (30.0, 60.0):
        made = app(promise=promise(promised, 10.0).model_copy(update={"slowdown_pct_95": (0, 90)}))
        write_policy(tmp_path / "p.toml", a_policy(made))
        code = main(
            ["verify", store, "--policy", f"{tmp_path}/p.toml", "--jobs", str(table), "--json"]
        )
        (shown,) = json.loads(capsys.readouterr().out)["entries"]
        verdicts[promised] = (shown["verdict"], code)
    low, high = shown["saving_pct_95"]
    ratios = [np.mean(logs[i, POLICY]) - np.mean(logs[i, CONTROL]) for i in (0, 1)]
    true_pct = -100 * np.expm1(np.mean(ratios))
    assert low <= true_pct <= high
    assert high - low < 15.0
    assert verdicts == {30.0: (KEPT, 0), 60.0: (BROKEN, 1)}


def test_the_file_for_job_scripts_on_a_real_slurm(
    accounting_cluster: AccountingCluster, tmp_path: Path
) -> None:
    cluster = accounting_cluster
    policy = a_policy(app(), control_pct=40.0, cluster=cluster.name)
    install(policy, "env", tmp_path, TODAY)
    script = f"#!/bin/sh\nset -eu\n. {tmp_path}/dvfs_policy.sh\nsrun sh -c '{ASKED}'\n"
    words = ("--job-name=app", f"--output={tmp_path}/%j.out", "--comment=mine")
    ids = [cluster.submit(script, *words) for _ in range(10)]
    wait_for_all(cluster)
    for job in ids:
        arm = policy.orders(TODAY).arm(job)
        assert (tmp_path / f"{job}.out").read_text() == f"{KHZ if arm == POLICY else 'none'}\n"
        comment = cluster.account(job, "Comment")[""]["Comment"]
        assert comment == f"mine dvfs=app:1800/-:{arm}"


SITE = """\
name = "s"
[clocks]
control = "cpufreq"
options = { cpus = "all" }
[domains.core]
frequencies_mhz = [1200.0, 1800.0]
[partitions.cpu]
"""


@pytest.fixture
def prologs(accounting_cluster: AccountingCluster, tmp_path: Path) -> Iterator[Path]:
    """The form's prolog and epilog on the nodes, for comments of the word slow; the records."""
    cluster, folder = accounting_cluster, tmp_path / "form"
    write_policy(folder.with_name("p.toml"), a_policy(entry("slow", 1800.0, comment="slow*")))
    (tmp_path / "s.toml").write_text(SITE)
    install(read_policy(tmp_path / "p.toml")[0], "slurm-prolog", folder, TODAY)
    program = tmp_path / "campaign"
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT} XDG_CACHE_HOME={tmp_path} exec {sys.executable} "
        '-m campaign "$@"\n'
    )
    for name in ("prolog.sh", "epilog.sh"):
        text = (folder / name).read_text()
        for theirs, here in {
            "/usr/local/bin/campaign": program,
            "/etc/slurm/policy.toml": tmp_path / "p.toml",
            "/etc/slurm/s.toml": tmp_path / "s.toml",
            "/run/dvfs-policy": tmp_path / "state",
        }.items():
            text = text.replace(theirs, str(here))
        (folder / name).write_text(text)
    for file in (program, *folder.iterdir()):
        file.chmod(0o755)
    before = cluster.conf.read_text()
    cluster.conf.write_text(f"{before}Prolog={folder}/prolog.sh\nEpilog={folder}/epilog.sh\n")
    cluster.run("scontrol", "reconfigure")
    yield tmp_path / "state/records.jsonl"
    cluster.conf.write_text(before)
    cluster.run("scontrol", "reconfigure")


def test_the_prologs_set_and_restore_the_clocks_of_a_job(
    accounting_cluster: AccountingCluster, prologs: Path, tmp_path: Path
) -> None:
    """On one node: those of a test are one machine, with one journal."""
    cluster = accounting_cluster
    node = cluster.nodes[0]
    files = ("scaling_governor", "scaling_setspeed", "scaling_min_freq", "scaling_max_freq")

    def clocks() -> list[str]:
        return [(cluster.cpufreq(node, 0) / file).read_text().strip() for file in files]

    before = clocks()
    shown = "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_setspeed"
    for comment, khz in (("slow one", "1800000"), ("other", before[1])):
        words = (f"--nodelist={node}", f"--comment={comment}")
        assert cluster.run("srun", *words, "sh", "-c", shown, timeout=60).split() == [khz]
        cluster._wait(lambda: clocks() == before, "the clocks as before")
    # A job that is cancelled.
    out = tmp_path / "out"
    script = f"#!/bin/sh\n{shown}\nsleep 100\n"
    job = cluster.submit(script, f"--nodelist={node}", "--comment=slow", f"--output={out}")
    cluster._wait(lambda: out.exists() and out.read_text() == "1800000\n", "the job")
    assert clocks() != before
    cluster.run("scancel", job)
    cluster._wait(lambda: clocks() == before, "the clocks as before")
    cluster._wait(lambda: prologs.read_text().count("\n") == 3, "three records")
    found = [json.loads(line) for line in prologs.read_text().splitlines()]
    assert [(one["arm"], one["set"]) for one in found] == [
        ("policy", True),
        ("no entry", False),
        ("policy", True),
    ]
    assert found[2]["job_id"] == job


def test_sacct_is_asked_by_verify(
    accounting_cluster: AccountingCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in accounting_cluster.environment.items():
        monkeypatch.setenv(name, value)
    accounting_cluster.run("srun", "--job-name=x", "--comment=a|b", "true")
    store = str(create_store(tmp_path / "store", "c").root)
    write_policy(tmp_path / "p.toml", a_policy(entry("other", 1800.0, job_name="x")))
    words = ["verify", store, "--policy", f"{tmp_path}/p.toml", "--since", "2026-01-01", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] > 0
