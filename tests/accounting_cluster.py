"""A real Slurm with accounting, energy counters and clocks, on one machine, for tests.

A ``SlurmCluster`` with a slurmdbd and a MariaDB beside it, which only its folder's owner reaches:
the database has no port and no passwords. Each slurmd has a mount namespace of its own, in which
/sys has the counters of a Cray node and the cpufreq files of its CPUs: plain files, which jobs
see there and tests see under ``folder(node)``. See tests/clocked_node.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests import clocked_node
from tests.clocked_node import CPUS, POWER, Power
from tests.slurm_cluster import (
    SlurmCluster,
    SlurmError,
    _DaemonEndedError,
    _end,
    find_program,
    free_ports,
    host_address,
    why_no_slurm,
)

PROGRAMS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "unshare")
SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
CLOCKS_KHZ = (1_200_000, 1_500_000, 1_800_000, 2_100_000, 2_400_000)
PERIOD_S = 0.05
PYTHON = (sys.executable, "-IS", clocked_node.__file__)

# Whole nodes: jobs that share one get its energy each.
CONF = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={address}
AccountingStoragePort={port}
AccountingStoragePass={base}/munge/socket
AccountingStoreFlags=job_comment
JobAcctGatherType=jobacct_gather/linux
AcctGatherEnergyType=acct_gather_energy/pm_counters
AcctGatherNodeFreq=1
CliFilterPlugins=cli_filter/lua
PartitionName=DEFAULT OverSubscribe=EXCLUSIVE
"""

DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr={address}
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
PidFile={base}/run/slurmdbd.pid
LogFile={base}/log/slurmdbd.log
"""

# Slurm refuses every salloc, sbatch and srun where one of these functions is missing.
FILTER = """\
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset) return slurm.SUCCESS end
function slurm_cli_post_submit(offset, job, step) return slurm.SUCCESS end
"""

# sysfs takes no new folder: a copy of /sys is made of mounts, with ours in it, and put over it.
IN_NAMESPACE = """\
set -eu
cd "$1"
mount -t tmpfs tmpfs sys
for entry in /sys/*; do
    mkdir "sys/${entry##*/}"
    mount --rbind "$entry" "sys/${entry##*/}"
done
mkdir -p sys/cray/pm_counters
mount --bind counters sys/cray/pm_counters
mount --bind cpu sys/devices/system/cpu
mount --rbind sys /sys
cd /
shift
exec "$@"
"""


def why_no_accounting() -> str | None:
    """Say why this Slurm can't be run here, or None where it can."""
    missing = [name for name in PROGRAMS if find_program(name) is None]
    missing += [] if SYSTEM_TABLES.exists() else [str(SYSTEM_TABLES)]
    if missing:
        return f"these are missing: {', '.join(missing)} (see .ci/install_slurm)"
    reason = why_no_slurm()
    if reason is None and subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        reason = "this process may have no mount namespace of its own (CAP_SYS_ADMIN)"
    return reason


class AccountingCluster(SlurmCluster):
    """A Slurm whose sacct has energies and whose ``--cpu-freq`` sets clocks, as a context manager.

    base: an empty or new folder for all of the cluster's files, with a short path.
    nodes: the number of nodes of its one partition, each with this machine's CPUs. A job has whole
    nodes.
    contain: PrologFlags=Contain, by which each job has a step .extern.
    power: what a node draws. clocks_khz: the clocks that its CPUs have.
    """

    def __init__(
        self,
        base: Path,
        name: str,
        nodes: int = 8,
        contain: bool = True,
        power: Power = POWER,
        clocks_khz: Sequence[int] = CLOCKS_KHZ,
        start_timeout: float = 60.0,
    ) -> None:
        cpus = os.cpu_count() or 1
        super().__init__(base, name, {"cpu": nodes}, cpus, start_timeout=start_timeout)
        self.contain = contain
        self.power = power
        self.clocks_khz = tuple(clocks_khz)
        self.filter = base / "cli_filter.lua"
        self._helpers: dict[str, subprocess.Popen[bytes]] = {}  # in the order of their start

    @property
    def environment(self) -> dict[str, str]:
        """As SlurmCluster's; slurmdbd finds its database by it."""
        return {**super().environment, "MYSQL_UNIX_PORT": str(self.base / "mariadb.socket")}

    # The nodes' files

    def folder(self, node: str) -> Path:
        """A node's files: cpu/cpuN/cpufreq/, counters/ and energy.log."""
        return self.base / "nodes" / node

    def cpufreq(self, node: str, cpu: int) -> Path:
        """The cpufreq folder of a node's CPU."""
        return self.folder(node) / "cpu" / f"cpu{cpu}" / "cpufreq"

    def counters(self, node: str) -> Path:
        """A node's pm_counters folder."""
        return self.folder(node) / "counters"

    def drawn_j(self, node: str, start_s: float, end_s: float) -> float:
        """The energy in J that a node drew between two times in Unix seconds, by its log."""
        self._wait_for("writer", lambda: self.log(node)[-1, 0] >= end_s)
        times_s, energies_j, _ = self.log(node).T
        start_j, end_j = np.interp([start_s, end_s], times_s, energies_j)
        return float(end_j - start_j)

    def log(self, node: str) -> NDArray[np.float64]:
        """A node's log, a row every 0.05 s: Unix time in s, energy in J, power in W."""
        text = (self.folder(node) / "energy.log").read_text()
        whole = text[: text.rindex("\n")]  # of a row that is being written, a part may be there
        return np.array([row.split() for row in whole.splitlines()], dtype=float)

    def work(self, gigacycles: float, stall_s: float = 0.0) -> str:
        """A shell command for a job, which takes longer at a lower clock: so many cycles on all of
        its CPUs, at their clock when it starts, and so many seconds that no clock changes."""
        return shlex.join([*PYTHON, "work", str(gigacycles), str(stall_s)])

    # Submission and accounting

    def set_filter(self, lua: str) -> None:
        """Replace cli_filter.lua: the next submission has the new one."""
        new = self.filter.with_suffix(".new")
        new.write_text(lua)
        new.rename(self.filter)

    def account(self, jobid: str | int, *fields: str) -> dict[str, dict[str, str]]:
        """What sacct has of a job that is over: fields of its rows. The rows' names are "" (the
        allocation), "batch", "extern", "0", ...; raise SlurmError where the job isn't over in time.
        """
        names = ("JobID", "End", "TRESUsageInTot", *fields)
        asked = ["sacct", "-nP", "--delimiter=\x1f", "-j", str(jobid), "-o", ",".join(names)]
        rows: list[dict[str, str]] = []

        def is_over() -> bool:
            lines = self.run(*asked).splitlines()
            rows[:] = [dict(zip(names, line.split("\x1f"), strict=True)) for line in lines]
            # sacct gives a step the job's end and state before it has the step's energy.
            return bool(rows) and all(
                row["End"] != "Unknown" and (row["TRESUsageInTot"] or "." not in row["JobID"])
                for row in rows
            )

        self._wait(is_over, f"the end of job {jobid}")
        return {row["JobID"].partition(".")[2]: row for row in rows}

    # Start and stop

    def _write_files(self) -> None:
        super()._write_files()
        (port,) = free_ports(1)
        values = {"base": self.base, "address": host_address(), "port": port}
        theirs = self.conf.read_text()
        text = theirs.replace("TaskPlugin=task/none\n", "TaskPlugin=task/affinity\n")
        assert text != theirs
        contain = "PrologFlags=Contain\n" if self.contain else ""
        self.conf.write_text(CONF.format(**values) + contain + text)
        dbd_conf = self.base / "slurmdbd.conf"
        dbd_conf.touch(0o600)
        dbd_conf.write_text(DBD_CONF.format(**values))
        self.set_filter(FILTER)
        for folder in ("nodes", "mariadb"):
            shutil.rmtree(self.base / folder, ignore_errors=True)
        (self.base / "mariadb").mkdir()
        tables = SYSTEM_TABLES.read_text()
        (self.base / "mariadb.sql").write_text(f"create database mysql;\nuse mysql;\n{tables}")
        for node in self.nodes:
            self._write_node(self.folder(node))

    def _write_node(self, folder: Path) -> None:
        for name in ("counters", "sys"):
            (folder / name).mkdir(parents=True)
        # Its links go round, and some of its files can't be read.
        subprocess.run(["cp", "-r", CPUS, folder / "cpu"], stderr=subprocess.DEVNULL, check=False)
        for cpu in (folder / "cpu").glob("cpu[0-9]*"):
            link = cpu / "cpufreq"
            link.unlink() if link.is_symlink() else shutil.rmtree(link, ignore_errors=True)
            clocked_node.write_clocks(cpu, self.clocks_khz)

    def _start_munged(self) -> None:
        # With all else that the controller, which comes next, needs.
        database = self.base / "mariadb"
        self._helpers["mariadbd"] = self._popen(
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={database}",
            f"--socket={database}.socket",
            f"--pid-file={database}.pid",
            f"--init-file={database}.sql",
            "--skip-networking",
            "--skip-grant-tables",
            # Small and fast: nothing is to outlast a crash.
            "--innodb-log-file-size=4M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
        )
        folders = [str(self.folder(node)) for node in self.nodes]
        words = ["write", str(PERIOD_S), *self.power.words(), *folders]
        self._helpers["writer"] = self._popen("env", *PYTHON, *words)  # its log is env.stderr
        super()._start_munged()
        self._wait_for("writer", (self.counters(self.nodes[-1]) / "energy").exists)
        self._wait_for("mariadbd", database.with_suffix(".socket").exists)
        self._helpers["slurmdbd"] = self._popen("slurmdbd", "-D")
        self._wait_for("slurmdbd", self._add_cluster)

    def _add_cluster(self) -> bool:
        # The controller ends where the database doesn't know its cluster.
        with suppress(SlurmError):
            self.run("sacctmgr", "-i", "add", "cluster", self.name, timeout=5)
        shown = self.run("sacctmgr", "-nP", "show", "cluster", "format=cluster", timeout=5)
        return self.name in shown.split()

    def _wait_for(self, helper: str, is_ready: Callable[[], bool]) -> None:
        daemon = self._helpers[helper]
        self._wait(lambda: daemon.poll() is not None or is_ready(), helper)
        if daemon.poll() is not None:
            raise _DaemonEndedError(f"{helper} ended by itself\n{self._logs()}")

    def _popen(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        if program != "slurmd":
            return super()._popen(program, *options)
        # The shell becomes slurmd, and the mounts end with the last of its processes.
        words = ["--mount", "sh", "-c", IN_NAMESPACE, "sh", str(self.folder(options[-1]))]
        return super()._popen("unshare", *words, find_program(program) or program, *options)

    def stop(self) -> None:
        """End the jobs and all daemons: the controller, before the accounting that it writes to."""
        try:
            super().stop()
        finally:
            while self._helpers:
                _end([self._helpers.popitem()[1]])
