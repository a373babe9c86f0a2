"""A real Slurm on one machine, for tests: a controller, a slurmd for each node, and a munged.

Nothing is installed, no system service is touched and no fixed port is used, so several clusters
can run at once. Every file of a cluster is under its base folder, which is closed to other users:
without the munged in it, nobody can give the daemons, which are root's, an order. They listen on
loopback alone.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
GOVERNORS = "Conservative,OnDemand,Performance,PowerSave,SchedUtil,UserSpace"

# A unix socket's path may have 107 characters, and slurmd's have "/spool/n12/n12_<job>.<step>".
LONGEST_BASE = 70

# Character devices that any Linux has: null, zero, full, random, urandom. They stand for GPUs.
FAKE_GPU_MINORS = (3, 5, 7, 8, 9)

LOOPBACK = "127.0.0.1"
CLONE_NEWUTS = 0x04000000  # linux/sched.h

# MPICH names its shared memory after job and step, and takes what a killed step of the same name
# has left for its own: clusters on one host must not number alike, also not one after another.
MOST_JOB_ID = 60_000_000

CONF = """\
ClusterName={name}
SlurmctldHost=localhost({address})
SlurmctldPort={port}
FirstJobId={first_job}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
TmpFS={base}/tmp/%n
SlurmctldPidFile={base}/run/slurmctld.pid
SlurmdPidFile={base}/run/slurmd-%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
MailProg=/bin/true
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdTimeout=10
KillWait=2
CpuFreqGovernors={governors}
JobCompType=jobcomp/filetxt
JobCompLoc={base}/log/jobcomp.txt
"""

# ReturnToService=1, not 2: with 2 a node that is set down comes back by its next answer.

# The prolog's view of a step's request, handed on to the task: a machine without cpufreq can so
# have a clock control whose read-back comes from Slurm itself. MPI's ranks, all on this host, need
# no socket, on which they would take what anybody sends.
TASK_PROLOG = """\
#!/bin/sh
echo "export UCX_TLS=sm,self"
for name in SLURM_CPU_FREQ_REQ SLURM_GPU_FREQ SLURMD_TRES_FREQ; do
    eval "value=\\${$name:-}"
    [ -z "$value" ] || echo "export PROLOG_${name#*_}=$value"
done
"""


class SlurmError(RuntimeError):
    """A Slurm command failed or didn't answer, or a daemon didn't start."""


class _DaemonEndedError(SlurmError):
    """A daemon ended by itself: often its port was taken meanwhile."""


@dataclass(frozen=True)
class Job:
    """One line of squeue: a job that is not over."""

    id: str
    state: str
    partition: str
    nodes: str
    reason: str
    name: str


def find_program(name: str) -> str | None:
    """A Slurm program's path, the daemons' folder included though a user's PATH lacks it."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=folders)


def why_no_slurm() -> str | None:
    """Say why a real Slurm can't be run here, or None where it can."""
    if sys.platform != "linux":
        return f"a real Slurm runs on Linux only, this is {sys.platform}"
    missing = [name for name in (*DAEMONS, *CLIENTS) if find_program(name) is None]
    if missing:
        return f"Slurm's programs are missing: {', '.join(missing)} (see .ci/install_slurm)"
    if os.geteuid() != 0:
        return "a real Slurm of our own needs root here, and this user is not root"
    if not host_address():
        return f"this host's name, {socket.gethostname()}, has no IPv4 address"
    with suppress(OSError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            [str(find_program("slurmctld")), "-V"], capture_output=True, timeout=10, check=False
        )
        if asked.returncode == 0:
            return None
    return "slurmctld is installed, but `slurmctld -V` fails"


def host_address() -> str:
    """The address of this host's name, on which all of Slurm listens; empty where it has none."""
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return ""


def use_loopback() -> None:
    """Give this process, and those that it starts, a host name of its own, localhost, where the
    host's name has another address than that of loopback. Where the process may not (a container
    without CAP_SYS_ADMIN), the name stays."""
    if host_address() != LOOPBACK and ctypes.CDLL(None).unshare(CLONE_NEWUTS) == 0:
        socket.sethostname("localhost")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, from below the range that the kernel gives to clients."""
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.sample(range(20000, 32000), 2000):
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with suppress(OSError):
                probe.bind(("0.0.0.0", port))
                ports.append(port)
    if len(ports) < count:
        raise SlurmError(f"found {len(ports)} free ports, needed {count}")
    return ports


class SlurmCluster:
    """A real Slurm on one machine, as a context manager.

    base: an empty or new folder for all of the cluster's files, with a short path.
    partitions: each partition's number of nodes; the nodes are n1, n2, ... in their order.
    prolog_env: a TaskProlog hands the step's clock request on as PROLOG_CPU_FREQ_REQ,
    PROLOG_GPU_FREQ and PROLOG_TRES_FREQ.
    gpus: fake GPUs on each node (`--gres=gpu:1`), so that `--gpu-freq` is taken.
    """

    def __init__(
        self,
        base: Path,
        name: str,
        partitions: Mapping[str, int] | None = None,
        cpus_per_node: int = 4,
        prolog_env: bool = True,
        gpus: int = 0,
        start_timeout: float = 30.0,
    ) -> None:
        if len(str(base)) > LONGEST_BASE or any(c.isspace() for c in str(base)):
            raise ValueError(f"{base}: Slurm needs a path without spaces, {LONGEST_BASE} at most")
        if gpus > len(FAKE_GPU_MINORS):
            raise ValueError(f"{len(FAKE_GPU_MINORS)} fake GPUs at most, not {gpus}")
        self.base = base
        self.name = name
        self.cpus_per_node = cpus_per_node
        self.prolog_env = prolog_env
        self.gpus = gpus
        self.start_timeout = start_timeout
        self.conf = base / "slurm.conf"
        self.partitions: dict[str, list[str]] = {}
        first = 1
        for partition, count in (partitions or {"cpu-a": 2, "cpu-b": 2}).items():
            self.partitions[partition] = [f"n{i}" for i in range(first, first + count)]
            first += count
        self.nodes = [node for nodes in self.partitions.values() for node in nodes]
        self._munged: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None
        self._slurmds: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment for Slurm's clients: ours, of any other Slurm's variables freed."""
        theirs = ("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SINFO_", "SCANCEL_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
        return {**kept, "SLURM_CONF": str(self.conf)}

    def __enter__(self) -> SlurmCluster:
        use_loopback()
        for attempt in range(3):
            try:
                self._write_files()
                self._start_all()
            except _DaemonEndedError:
                self.stop()
                if attempt == 2:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # Asking and telling

    def run(self, *command: str, timeout: float = 20.0, stdin: str | None = None) -> str:
        """Run a Slurm client; return its stdout, or raise SlurmError with its stderr."""
        shown = " ".join(command)
        try:
            done = subprocess.run(
                command,
                cwd=self.base,  # where a job without --output leaves its file
                env=self.environment,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmError(f"`{shown}` gave no answer in {timeout} s") from error
        if done.returncode != 0:
            raise SlurmError(f"`{shown}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def jobs(self) -> list[Job]:
        """The jobs that are pending, running or ending."""
        lines = self.run("squeue", "-h", "-o", "%i|%T|%P|%N|%r|%j").splitlines()
        return [Job(*line.split("|", 5)) for line in lines]

    def assert_no_jobs(self) -> None:
        """No job is pending or running, and one that ends does so soon: a program that cancelled
        its jobs need not wait for what Slurm does after that."""
        end = time.monotonic() + self.start_timeout
        while jobs := self.jobs():
            if time.monotonic() > end or any(job.state != "COMPLETING" for job in jobs):
                raise AssertionError(f"jobs are left: {jobs}")
            time.sleep(0.1)

    def job_state(self, jobid: str | int) -> str:
        """A job's state, though it may be over (Slurm forgets it some minutes after)."""
        shown = self.run("scontrol", "-o", "show", "job", str(jobid))
        return next(w.partition("=")[2] for w in shown.split() if w.startswith("JobState="))

    def job_spans(self, name: str) -> list[tuple[float, float]]:
        """When the jobs of this name began and ended, in Unix seconds (whole ones)."""
        lines = self.run("scontrol", "-o", "show", "job").splitlines()
        jobs = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
        return [
            (
                datetime.fromisoformat(job["StartTime"]).timestamp(),
                datetime.fromisoformat(job["EndTime"]).timestamp(),
            )
            for job in jobs
            if job.get("JobName") == name
        ]

    def node_states(self) -> dict[str, str]:
        """Each node's state: idle, mixed, allocated, down, ...

        Where the scheduler still has a plan for an idle node, sinfo says planned, also after the
        job of that plan has started elsewhere: such a node is idle.
        """
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        states = dict(line.split() for line in lines)
        return {node: "idle" if state == "planned" else state for node, state in states.items()}

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script's text with sbatch's options; return the job's id."""
        return self.run("sbatch", "--parsable", *options, stdin=script).strip().partition(";")[0]

    def scancel(self, jobid: str | int) -> None:
        """Cancel a job."""
        self.run("scancel", str(jobid))

    def set_node(self, name: str, state: str, reason: str = "test") -> None:
        """Set a node's state: down, drain (both kept with the reason) or resume."""
        why = [] if state == "resume" else [f"reason={reason}"]
        self.run("scontrol", "update", f"nodename={name}", f"state={state}", *why)

    def release(self, jobid: str | int) -> None:
        """Let a requeued job start now, rather than after Slurm's hold of two minutes."""
        self.run("scontrol", "update", f"jobid={jobid}", "StartTime=now")

    # Faults

    def kill_controller(self) -> None:
        """Kill the controller at once, as a crash of its machine would."""
        if self._controller is not None:
            self._controller.kill()
            self._controller.wait()
            self._controller = None

    def restart_controller(self) -> None:
        """Start the controller again on its saved state, and wait until it answers."""
        self.kill_controller()
        self._controller = self._popen("slurmctld", "-D")
        self._wait(lambda: "UP" in self.run("scontrol", "ping", timeout=5), "the controller")

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd at once; its steps go on without it."""
        daemon = self._slurmds.pop(node)
        daemon.kill()
        daemon.wait()

    def start_slurmd(self, node: str) -> None:
        """Start a node's slurmd, and wait until the controller has the node back."""
        self._slurmds[node] = self._popen("slurmd", "-D", "-N", node)
        usable = ("idle", "mixed", "allocated", "completing")
        self._wait(lambda: self.node_states()[node] in usable, f"node {node}")

    # Start and stop

    def _write_files(self) -> None:
        folders = ["state", "log", "run", "munge"]
        folders += [f"{kind}/{node}" for kind in ("spool", "tmp") for node in self.nodes]
        for folder in folders:
            (self.base / folder).mkdir(parents=True, exist_ok=True)
        self.base.chmod(0o700)
        (self.base / "munge" / "key").write_bytes(os.urandom(128))
        (self.base / "munge" / "key").chmod(0o400)
        port, *node_ports = free_ports(1 + len(self.nodes))
        user = pwd.getpwuid(os.geteuid()).pw_name
        address = host_address()
        text = CONF.format(
            name=self.name,
            address=address,
            port=port,
            first_job=random.randrange(1, MOST_JOB_ID),
            user=user,
            base=self.base,
            governors=GOVERNORS,
        )
        gres = ""
        if self.prolog_env:
            prolog = self.base / "task_prolog"
            prolog.write_text(TASK_PROLOG)
            prolog.chmod(0o755)
            text += f"TaskProlog={prolog}\n"
        if self.gpus:
            text += "GresTypes=gpu\n"
            gres = f" Gres=gpu:fake:{self.gpus}"
            self._write_gpus()
        for node, node_port in zip(self.nodes, node_ports, strict=True):
            text += (
                f"NodeName={node} NodeHostname=localhost NodeAddr={address} Port={node_port}"
                f" CPUs={self.cpus_per_node} RealMemory=4000{gres}\n"
            )
        for i, (partition, nodes) in enumerate(self.partitions.items()):
            default = " Default=YES" if i == 0 else ""
            text += f"PartitionName={partition} Nodes={','.join(nodes)} DefaultTime=10{default}\n"
        self.conf.write_text(text)

    def _write_gpus(self) -> None:
        files = [self.base / f"fakegpu{i}" for i in range(self.gpus)]
        for file, minor in zip(files, FAKE_GPU_MINORS, strict=False):
            if not file.exists():
                os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        lines = [
            f"NodeName={node} Name=gpu Type=fake File={file}"
            for node in self.nodes
            for file in files
        ]
        (self.base / "gres.conf").write_text("\n".join(["AutoDetect=off", *lines]) + "\n")

    def _start_munged(self) -> None:
        files = ("key-file", "socket", "pid-file", "seed-file")
        options = [f"--{file}={self.base}/munge/{file.partition('-')[0]}" for file in files]
        # --force: it would insist that every user can reach its socket, and here only root may.
        self._munged = self._popen("munged", "--foreground", "--force", *options)
        self._wait((self.base / "munge" / "socket").exists, "munged")

    def _start_all(self) -> None:
        self._start_munged()
        self._controller = self._popen("slurmctld", "-D", "-c")
        for node in self.nodes:
            self._slurmds[node] = self._popen("slurmd", "-D", "-N", node)
        idle = dict.fromkeys(self.nodes, "idle")
        self._wait(lambda: self.node_states() == idle, "all nodes")

    def _popen(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        # A session of its own: an interrupt from the terminal must not stop the daemons before us.
        with (self.base / "log" / f"{program}.stderr").open("ab") as log:
            return subprocess.Popen(
                [find_program(program) or program, *options],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, is_ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self.start_timeout
        last = "no answer yet"
        while time.monotonic() < end:
            daemons = [self._munged, self._controller, *self._slurmds.values()]
            if any(daemon is not None and daemon.poll() is not None for daemon in daemons):
                raise _DaemonEndedError(f"a daemon ended before {what} came up\n{self._logs()}")
            try:
                if is_ready():
                    return
            except SlurmError as error:
                last = str(error)
            time.sleep(0.05)
        raise SlurmError(f"{what} not up in {self.start_timeout} s: {last}\n{self._logs()}")

    def _logs(self) -> str:
        files = sorted((self.base / "log").glob("*"))
        tails = [(f.name, f.read_text(errors="replace").splitlines()[-5:]) for f in files]
        return "\n".join(f"{name}: {line}" for name, lines in tails for line in lines)

    def stop(self) -> None:
        """Cancel the jobs, end the daemons, then kill whatever of this cluster remains."""
        if self._controller is not None and self._controller.poll() is None:
            with suppress(SlurmError):
                self._end_jobs()
        _end(list(self._slurmds.values()))
        _end([daemon for daemon in (self._controller, self._munged) if daemon is not None])
        self._controller = self._munged = None
        self._slurmds = {}
        self.kill_orphans()

    def _end_jobs(self) -> None:
        # Jobs first: a slurmd that gets SIGTERM while it reports a job's end waits for seconds.
        ids = [job.id for job in self.jobs()]
        if ids:
            self.run("scancel", *ids, timeout=5)
        for attempt in range(30):
            if not self.run("squeue", "-h", timeout=5):
                return
            if attempt == 10:
                self.kill_orphans()
            time.sleep(0.05)

    def kill_orphans(self) -> list[int]:
        """Kill this cluster's step daemons and job processes; return their process ids."""
        killed: list[int] = []
        for _ in range(20):
            orphans = self._processes()
            if not orphans:
                break
            for pid in orphans:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.02)
        return sorted(set(killed))

    def _processes(self) -> set[int]:
        """Step daemons (they hold this cluster's log open), their descendants, job processes."""
        parents = _parents()
        mark = f"SLURM_CONF={self.conf}".encode()
        logs = f"{self.base.resolve()}/log/slurmd-"
        daemons = {d.pid for d in [self._controller, *self._slurmds.values()] if d is not None}
        pids = set()
        for pid in parents:
            words = _environ(pid)
            is_job = mark in words and any(w.startswith(b"SLURM_JOB_ID=") for w in words)
            if is_job or any(target.startswith(logs) for target in _open_files(pid)):
                pids.add(pid)
        ours = _ancestors(os.getpid(), parents)
        pids -= daemons
        pids |= {pid for pid in parents if not pids.isdisjoint(_ancestors(pid, parents))}
        return pids - daemons - ours


def _end(daemons: list[subprocess.Popen[bytes]], patience: float = 1.0) -> None:
    """Ask daemons to end, and make those that don't."""
    for daemon in daemons:
        daemon.terminate()
    end = time.monotonic() + patience
    for daemon in daemons:
        try:
            daemon.wait(timeout=max(0.01, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _parents() -> dict[int, int]:
    """Each live process's parent; those that ended and wait for their parent are left out."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(folder.name)] = int(parent)
    return parents


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        pid = parents.get(pid, 0)
    return seen


def _environ(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def _open_files(pid: int) -> list[str]:
    targets = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                targets.append(str(link.readlink()))
    return targets
