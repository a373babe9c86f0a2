"""The Slurm with accounting, energies and clocks: does it do what other tests count on?"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.accounting_cluster import AccountingCluster
from tests.accounting_fixtures import need_accounting
from tests.clocked_node import clock_khz, write_clocks
from tests.slurm_cluster import SlurmError
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.root]

HIGHEST_KHZ = 2_400_000
COMMENT = """\
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
    options["comment"] = "by the filter"
    return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
"""
SYNTAX_ERROR = "function slurm_cli_pre_submit("


def timed(command: str) -> str:
    """A job's command that writes when it began and ended, in Unix seconds."""
    return f"date +%s.%N\n{command}\ndate +%s.%N\n"


def ended(
    cluster: AccountingCluster, out: Path, commands: str, *options: str
) -> tuple[dict[str, dict[str, str]], list[float]]:
    """Run a job on n1 to its end: what sacct has of it, and the times that it wrote."""
    job = cluster.submit(f"#!/bin/bash\n{commands}", f"--output={out}", "-wn1", *options)
    rows = cluster.account(job, "State", "ConsumedEnergyRaw", "Comment", "ReqCPUFreqMax")
    assert {row["State"] for row in rows.values()} == {"COMPLETED"}, rows
    return rows, [float(line) for line in out.read_text().splitlines()]


def clock_files(cluster: AccountingCluster) -> set[tuple[str, str]]:
    """The governors and set clocks of the first node's CPUs."""
    folders = [cluster.cpufreq("n1", cpu) for cpu in range(cluster.cpus_per_node)]
    names = ("scaling_governor", "scaling_setspeed")
    governor, khz = ([(folder / name).read_text().strip() for folder in folders] for name in names)
    return set(zip(governor, khz, strict=True))


def test_the_energy_is_what_the_node_drew(
    accounting_cluster: AccountingCluster, tmp_path: Path
) -> None:
    work = timed(f"srun {accounting_cluster.work(7.2)}")
    rows, (start_s, end_s) = ended(accounting_cluster, tmp_path / "out", work)
    drawn_j = accounting_cluster.drawn_j("n1", start_s, end_s)
    busy_w = accounting_cluster.power.watts([HIGHEST_KHZ] * accounting_cluster.cpus_per_node)
    assert drawn_j > 0.95 * busy_w * 7.2e6 / HIGHEST_KHZ
    for name in ("", "extern", "batch", "0"):
        assert float(rows[name]["ConsumedEnergyRaw"]) == pytest.approx(drawn_j, rel=0.05)


def test_a_step_sets_its_clock_and_the_power_follows(
    accounting_cluster: AccountingCluster, tmp_path: Path
) -> None:
    cluster = accounting_cluster
    before = clock_files(cluster)
    assert before == {("performance", str(HIGHEST_KHZ))}
    job = cluster.submit(
        f"#!/bin/bash\nsrun --cpu-freq=1800000 {cluster.work(5.4)}\nsleep 1\n",
        "-o/dev/null",
        "-wn1",
    )
    slow_w = cluster.power.watts([1_800_000] * cluster.cpus_per_node)
    power = cluster.counters("n1") / "power"
    wait_until(lambda: power.read_text().startswith(f"{slow_w:.0f} W "))
    assert clock_files(cluster) == {("userspace", "1800000")}
    wait_until(lambda: power.read_text().startswith(f"{cluster.power.idle_w:.0f} W "))
    wait_until(lambda: clock_files(cluster) == before)
    step = cluster.account(job, "ConsumedEnergyRaw", "ReqCPUFreqMax")["0"]
    assert step["ReqCPUFreqMax"] == "1.80G"
    assert float(step["ConsumedEnergyRaw"]) == pytest.approx(slow_w * 3.0, rel=0.1)


def test_work_takes_longer_at_a_lower_clock(
    accounting_cluster: AccountingCluster, tmp_path: Path
) -> None:
    steps = [
        timed(f"srun --cpu-freq={khz} {accounting_cluster.work(3.6, 0.5)}")
        for khz in (1_200_000, HIGHEST_KHZ)
    ]
    _, times_s = ended(accounting_cluster, tmp_path / "out", "".join(steps))
    slow_s, fast_s = times_s[1] - times_s[0], times_s[3] - times_s[2]
    assert slow_s > 3.5
    assert 2.0 < fast_s < slow_s


def test_a_comment_is_in_sacct(accounting_cluster: AccountingCluster, tmp_path: Path) -> None:
    rows, _ = ended(accounting_cluster, tmp_path / "out", "true", "--comment=a b dvfs=7/control")
    assert rows[""]["Comment"] == "a b dvfs=7/control"


def test_a_filter_is_used_by_the_next_submission(
    accounting_cluster: AccountingCluster, tmp_path: Path
) -> None:
    without = accounting_cluster.filter.read_text()
    accounting_cluster.set_filter(COMMENT)
    rows, _ = ended(accounting_cluster, tmp_path / "out", "true")
    assert rows[""]["Comment"] == "by the filter"
    accounting_cluster.set_filter(SYNTAX_ERROR)
    with pytest.raises(SlurmError, match="cli_filter"):
        accounting_cluster.submit("#!/bin/bash\ntrue\n")
    accounting_cluster.set_filter(without)
    rows, _ = ended(accounting_cluster, tmp_path / "out", "true")
    assert rows[""]["Comment"] == ""


def test_a_second_one_beside_it_leaves_nothing(
    accounting_cluster: AccountingCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need_accounting()
    base = tmp_path_factory.mktemp("stop")  # Slurm needs a short path
    with AccountingCluster(base / "s", "acct_stop", nodes=1, contain=False) as cluster:
        pids = processes(cluster.conf)
        listeners = {c.laddr for c in psutil.net_connections() if c.pid in pids and is_open(c)}
        assert listeners and {address.ip for address in listeners} == {"127.0.0.1"}
        assert stat.S_IMODE((cluster.base / "slurmdbd.conf").stat().st_mode) == 0o600
        rows, _ = ended(cluster, base / "out", f"srun {cluster.work(0.1)}")
        assert rows.keys() == {"", "batch", "0"}
        stubborn = f"#!/bin/bash\ntrap '' TERM\ntouch {base}/up\n{cluster.work(1000)}\n"
        cluster.submit(stubborn, "-o/dev/null")
        wait_until((base / "up").exists)
        assert has_mounts(base)
    wait_until(lambda: processes(cluster.conf) == [], timeout_s=1)
    assert not has_mounts(base)
    assert not {c.laddr for c in psutil.net_connections() if is_open(c)} & listeners
    assert not any(base.rglob("sys/*"))
    assert set(accounting_cluster.node_states().values()) == {"idle"}


def processes(conf: Path) -> list[int]:
    """The daemons and the jobs' processes of a cluster."""
    mark = f"SLURM_CONF={conf}\0".encode()
    return [pid for pid in psutil.pids() if mark in facts(pid, "environ")]


def is_open(connection: object) -> bool:
    return getattr(connection, "status", None) == psutil.CONN_LISTEN


def has_mounts(base: Path) -> bool:
    """Whether any process has a mount from or in this folder."""
    return any(str(base).encode() in facts(pid, "mountinfo") for pid in psutil.pids())


def facts(pid: int, name: str) -> bytes:
    """A file of /proc about a process; empty where it has just ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


@pytest.mark.parametrize(
    ("governor", "highest_khz", "expected_khz"),
    [
        ("performance", 2_400_000, 2_400_000),
        ("ondemand", 1_500_000, 1_500_000),
        ("powersave", 2_400_000, 1_200_000),
        ("userspace", 2_400_000, 1_800_000),
        ("userspace", 1_500_000, 1_500_000),
    ],
)
def test_a_clock_is_by_governor_and_limits(
    tmp_path: Path, governor: str, highest_khz: int, expected_khz: int
) -> None:
    write_clocks(tmp_path, (1_200_000, 1_800_000, 2_400_000))
    for name, value in {
        "governor": governor,
        "setspeed": 1_800_000,
        "max_freq": highest_khz,
    }.items():
        (tmp_path / "cpufreq" / f"scaling_{name}").write_text(f"{value}\n")
    assert clock_khz(tmp_path) == expected_khz


def test_without_accounting_a_test_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.accounting_cluster.PROGRAMS", ("no-such-program",))
    with pytest.raises(pytest.fail.Exception, match=r"no-such-program.*-m 'not slurm'"):
        need_accounting()
