"""Measuring one point, in the subprocess that a worker would start."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from campaign.measure import forkserver
from campaign.measure.__main__ import request_environment
from campaign.measure.point_life import PartitionSetup, measure
from campaign.measure.subprocesses import SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import canonical_json
from campaign.store.journal import decode
from campaign.store.layout import UnwritableStoreError
from campaign.store.measurement import Measurement
from dvfs.setting import AS_FOUND, Setting
from kernels.registry import find_kernel
from sites.site_file import Site
from sites.site_reading import built_in_sites, read_site
from tests.points import a_point
from tests.sites.clock_layouts import fork

QUICK = Protocol(min_duration_s=0.05, warm_up_s=0.02, sampling_hz=200.0, timeout_s=60.0)


def localhost(**changes: object) -> Site:
    return read_site(built_in_sites()["localhost"]).model_copy(update=changes)


def run(
    kernel: str,
    params: dict,
    site: Site | None = None,
    setting: Setting = AS_FOUND,
    ranks: int = 1,
    protocol: Protocol = QUICK,
) -> Measurement:
    site = site or localhost()
    checked = find_kernel(kernel).params.model_validate(params).model_dump(mode="json")
    partition = next(iter(site.partitions))
    point = a_point(
        kernel,
        site=site.name,
        partition=partition,
        params=canonical_json(checked),
        ranks=ranks,
        setting=setting,
    )
    runner = SubprocessRunner(PartitionSetup(site, protocol, (kernel,)))
    try:
        return decode(runner.measure(point, 0))
    finally:
        runner.close()
        assert not runner.folder.exists()


def python(code: str, **params: object) -> Measurement:
    return run("command", {"argv": [sys.executable, "-c", code], **params})


def test_a_real_kernel_without_a_meter_has_time_and_counts_and_no_energy():
    measured = run("dp_fma", {})
    assert measured.status == "ok", measured.text
    assert measured.time_s * measured.iterations >= QUICK.min_duration_s
    rate = measured.counts["dp"] / measured.time_s
    assert 1e8 < rate < 1e12
    assert math.isnan(measured.energy_j)
    assert measured.traces == ()


def test_other_counts_of_other_runs_are_flagged(tmp_path):
    """A solver that takes another number of steps each time: its energy is a mean over all runs,
    and its counts are those of the last."""
    steps = tmp_path / "steps"
    write = 'echo "{\\"dp\\": $(wc -c <"$0"), \\"dram\\": 7}" >"$CAMPAIGN_COUNTS_FILE"'
    argv = ["sh", "-c", f'printf x >>"$0"; {write}', str(steps)]
    measured = run("command", {"argv": argv, "reports_counts": True})
    assert measured.status == "ok", measured.text
    runs = steps.stat().st_size
    assert measured.counts == {"dp": runs, "dram": 7}
    (flag,) = [f for f in measured.provenance["flags"] if "other counts" in f]
    assert flag.endswith(f" to {runs}); its last ones are kept")
    assert "dram" not in flag
    argv[2] = write.replace('$(wc -c <"$0")', "3")
    measured = run("command", {"argv": argv, "reports_counts": True})
    assert measured.counts == {"dp": 3, "dram": 7}
    assert "flags" not in measured.provenance


def test_processes_that_go_on_after_their_program_are_flagged():
    """A script that does not wait for what it starts takes no time; nor is a process that waits, or
    that has ended, one that goes on."""

    def flags(script: str) -> list[str]:
        measured = run("command", {"argv": ["sh", "-c", script], "counts": {"dp": 1.0}})
        assert measured.status == "ok", measured.text
        return [f for f in measured.provenance.get("flags", []) if "ran on after it had ended" in f]

    (flag,) = flags("sleep 1 & exit 0")
    assert int(flag.split()[0]) > 1
    assert len(flags("setsid sleep 1 & exit 0")) == 1
    assert flags("sleep 0.02 & wait") == []
    assert flags("(exec true) & exit 0") == []


@pytest.mark.parametrize(
    ("domain", "exclusive", "cpus", "flagged"),
    [
        ("node", False, 1, True),
        ("package", False, 1, True),
        ("gpu", False, 1, False),  # those of the job alone
        ("node", True, 1, False),
        ("node", False, 4, False),  # the whole node all the same
    ],
)
def test_energy_that_other_jobs_may_add_to_is_flagged(
    tmp_path, monkeypatch, domain, exclusive, cpus, flagged
):
    rows = "".join(f"{i / 100},100\n" for i in range(6000))
    (tmp_path / "p.csv").write_text(f"time_s,p\n{rows}")
    channels = {"p": {"domain": domain, "kind": "power", "unit": "W"}}
    options = {"path": str(tmp_path / "p.csv"), "channels": channels}
    site = Site.model_validate(
        {
            "name": "s",
            "partitions": {"p": {"scheduler": "slurm", "exclusive": exclusive}},
            "meters": [{"kind": "recorded", "options": options}],
        }
    )
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", str(cpus))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    protocol = Protocol(idle_s=0.0, warm_up_s=0.0, steady_pct=0.0, min_duration_s=0.01)
    point = a_point("idle", site="s", partition="p", params='{"sleep_s":0.01}')
    measured = measure(PartitionSetup(site, protocol, ("idle",), partition="p"), point, 0)
    assert measured.status == "ok", measured.text
    flags = [flag for flag in measured.provenance["flags"] if "other jobs may run" in flag]
    assert len(flags) == flagged
    assert all(flag.endswith(f"and their energy counts, too: {domain}") for flag in flags)


def test_a_meter_gives_energy_and_a_trace(tmp_path):
    """Through powercap on a recorded tree that a thread replays at 40 W."""
    import threading

    from sites import meters
    from sites.meters import powercap

    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")

    def write(stop: threading.Event) -> None:
        # One file all the time, as sysfs has, and one write of one length.
        with (zone / "energy_uj").open("wb", buffering=0) as file:
            while not stop.is_set():
                # Near its range, so that it wraps while it is read.
                now_uj = (262143000000 + time.monotonic_ns() * 40 // 1000) % 262143328850
                os.pwrite(file.fileno(), b"%012d\n" % now_uj, 0)
                time.sleep(0.001)

    assert meters.METERS["powercap"] == powercap.__name__
    from campaign.measure.sampler import UsedMeter
    from campaign.measure.window import run_window
    from kernels.host.ranks import Team
    from sites.clocks.fixed import Fixed

    class Wait:
        def run(self, iterations: int) -> None:
            time.sleep(0.5 * iterations)

    stop = threading.Event()
    writer = threading.Thread(target=write, args=(stop,))
    writer.start()
    try:
        while not (zone / "energy_uj").exists() or not (zone / "energy_uj").read_text():
            time.sleep(0.001)
        meter = powercap.open_meter(tmp_path, {})
        window = run_window(Wait(), Team(), 2, [UsedMeter(meter)], Fixed(tmp_path), 0.01)
        meter.close()
    finally:
        stop.set()
        writer.join()
    from campaign.measure.energy import node_energy
    from campaign.measure.point_life import _meters
    from campaign.measure.protocol import energy_of

    energy = node_energy(window.traces, 0, window.end_ns).total
    assert window.end_ns == pytest.approx(1e9, rel=0.05)
    assert energy.energy_j == pytest.approx(40.0 * window.end_ns / 1e9, rel=0.1)
    of_one, by_window = energy_of([window], 0.0)
    assert of_one.energy_j == pytest.approx(energy.energy_j / 2)
    (of_channel,) = _meters([window], by_window).values()
    said = (of_channel["energy_j"], of_channel["energy_std_j"])
    assert said == pytest.approx((of_one.energy_j, of_one.std_j))
    assert window.traces[0].trace.time_ns.size > 50
    assert (np.diff(window.traces[0].trace.value) >= 0).all()


def test_a_meter_that_is_not_there_is_a_failure_with_a_remedy():
    if Path("/sys/class/powercap/intel-rapl:0/energy_uj").exists():
        kind, options = "powercap", {"zones": ["no-such-zone"]}
    else:
        kind, options = "powercap", {}
    from sites.site_file import MeterEntry

    measured = run("idle", {}, localhost(meters=[MeterEntry(kind=kind, options=options)]))
    assert measured.status == "meter unreadable"
    assert "powercap" in measured.text
    assert math.isnan(measured.energy_j)


def test_a_setting_that_the_node_refuses():
    measured = run("idle", {}, setting=Setting(1000.0, None))
    assert measured.status == "clock not legal"


def test_a_command_with_its_arguments_untouched_by_any_shell():
    words = ["a b", "$(touch x)", ";", "'", '"', "-n", "\n", "*", "é"]
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    measured = run(
        "command",
        {
            "argv": [sys.executable, "-c", code, *words],
            "expect": json.dumps(words),
            "counts": {"dp": 12.0},
        },
    )
    assert measured.status == "ok", measured.text
    assert measured.counts == {"dp": 12.0}


def test_a_command_reports_its_own_counts():
    code = (
        "import json, os; json.dump({'dp': 5, 'dram': 7.5},"
        "open(os.environ['CAMPAIGN_COUNTS_FILE'], 'w'))"
    )
    assert python(code, reports_counts=True).counts == {"dp": 5.0, "dram": 7.5}


@pytest.mark.parametrize(
    ("code", "params", "status", "word"),
    [
        ("raise SystemExit(3)", {}, "kernel failed", "ended with exit code 3"),
        ("print('no')", {"expect": "yes"}, "wrong result", "'yes'"),
        ("", {"reports_counts": True}, "kernel failed", "no file"),
        (
            "import os; open(os.environ['CAMPAIGN_COUNTS_FILE'], 'w').write('{\"dp\": -1}')",
            {"reports_counts": True},
            "kernel failed",
            "-1",
        ),
        (
            "import os; open(os.environ['CAMPAIGN_COUNTS_FILE'], 'w').write('[NaN')",
            {"reports_counts": True},
            "kernel failed",
            "cannot read the reported counts",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", {}, "kernel failed", "-11"),
    ],
)
def test_a_command_that_fails_is_a_record_with_its_class(code, params, status, word):
    measured = python(code, **params)
    assert measured.status == status
    assert word in measured.text


def test_a_program_that_is_not_there():
    measured = run("command", {"argv": ["no-such-program-here"]})
    assert measured.status == "kernel failed"
    assert "no-such-program-here" in measured.text


def test_the_measuring_subprocess_itself_can_die():
    """The kernel's program kills its parent: the worker still gets a record."""
    measured = python("import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
    assert measured.status == "node lost"
    assert "SIGKILL" in measured.text


def test_a_hanging_kernel_is_killed_with_all_its_children(tmp_path):
    marker = f"hang-{os.getpid()}"
    code = (
        "import subprocess, sys, time;"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)', '{marker}'],"
        " start_new_session=True); time.sleep(99)"
    )
    began = time.monotonic()
    measured = run(
        "command",
        {"argv": [sys.executable, "-c", code, marker]},
        protocol=Protocol(min_duration_s=0.0, warm_up_s=0.0, timeout_s=1.5),
    )
    assert measured.status == "timed out"
    assert "1.5 s" in measured.text
    assert time.monotonic() - began < 10
    left = [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]
    assert left == []


def test_measuring_goes_on_after_its_fork_server_was_killed():
    site = localhost()
    runner = SubprocessRunner(PartitionSetup(site, QUICK, ("idle",)))
    point = a_point(site=site.name, partition="local", params='{"sleep_s":0.0}')
    try:
        assert decode(runner.measure(point, 0)).status == "ok"
        runner._server.process.kill()
        assert decode(runner.measure(point, 0)).status == "ok"
    finally:
        runner.close()


def test_the_channel_of_a_point_without_ranks_names_no_node(tmp_path):
    rows = "".join(f"{i * 0.01:.2f},{i * 1.0:.1f}\n" for i in range(2000))
    (tmp_path / "energy.csv").write_text("time_s,board\n" + rows)
    (tmp_path / "site.toml").write_text(
        'name = "lab"\n[clocks]\ncontrol = "fixed"\n[partitions.local]\nscheduler = "local"\n'
        f'[[meters]]\nkind = "recorded"\n[meters.options]\npath = "{tmp_path / "energy.csv"}"\n'
        'channels = { board = { domain = "node", kind = "energy", unit = "J" } }\n'
    )
    measured = run("idle", {"sleep_s": 0.2}, site=read_site(tmp_path / "site.toml"))
    assert measured.status == "ok", measured.text
    assert [trace.channel for trace in measured.traces] == ["recorded:recorded/board"]


def test_a_fork_server_that_is_ended_ends_by_itself():
    """It need not be killed, so that a step of it has no signal in Slurm's accounting."""
    site = localhost()
    runner = SubprocessRunner(PartitionSetup(site, QUICK, ("idle",)))
    point = a_point(site=site.name, partition="local", params='{"sleep_s":0.0}')
    assert decode(runner.measure(point, 0)).status == "ok"
    server = runner._server.process
    runner.close()
    assert server.returncode == 0


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_start_together_and_their_counts_are_added(ranks):
    one = run("dp_fma", {})
    many = run("dp_fma", {}, ranks=ranks)
    assert many.status == "ok", many.text
    assert many.counts["dp"] == ranks * one.counts["dp"]


def test_clocks_are_opened_for_the_cpus_of_all_ranks_of_a_node(tmp_path, monkeypatch):
    """Where a launcher has bound each rank to a CPU of its own, as srun does: the first rank sets
    the clocks of all."""
    (tmp_path / "sitecustomize.py").write_text(
        "import dataclasses, os\n"
        "from pathlib import Path\n"
        "rank = os.environ.get('PMI_RANK', '')\n"
        "cpus = sorted(os.sched_getaffinity(0))\n"
        "if rank:\n"
        "    os.sched_setaffinity(0, {cpus[int(rank) % len(cpus)]})\n"
        "    from kernels import idle\n"
        "    from sites.clocks.shared import reading\n"
        "    opened, prepared = reading.open_core_clock, idle.idle.prepare\n"
        "    def note(name, cpus):\n"
        f"        Path({str(tmp_path)!r}, name + rank).write_text(str(sorted(cpus)))\n"
        "    def open_core_clock(root, cpus):\n"
        "        note('opened', cpus)\n"
        "        return opened(root, cpus)\n"
        "    def prepare(params, team):\n"
        "        note('ran', os.sched_getaffinity(0))\n"
        "        return prepared(params, team)\n"
        "    reading.open_core_clock = open_core_clock\n"
        "    idle.idle = dataclasses.replace(idle.idle, prepare=prepare)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run("idle", {}, ranks=2)
    assert done.status == "ok", done.text
    cpus = sorted(os.sched_getaffinity(0))
    own = [[cpus[rank % len(cpus)]] for rank in range(2)]
    together = sorted({cpu for some in own for cpu in some})
    assert [(tmp_path / f"opened{rank}").read_text() for rank in "01"] == [str(together)] * 2
    assert [(tmp_path / f"ran{rank}").read_text() for rank in "01"] == [str(cpu) for cpu in own]


def test_a_rank_that_fails_ends_the_others_and_says_why(tmp_path, monkeypatch):
    """The other one would take a minute. Python imports sitecustomize as it starts."""
    (tmp_path / "sitecustomize.py").write_text(
        "import dataclasses\n"
        "from kernels import idle\n"
        "from kernels.kernel import KernelError\n"
        "whole = idle.idle.prepare\n"
        "def prepare(params, team):\n"
        "    if team.rank == 1:\n"
        "        raise KernelError('no room on this rank')\n"
        "    return whole(params, team)\n"
        "idle.idle = dataclasses.replace(idle.idle, prepare=prepare)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began_s = time.monotonic()
    failed = run("idle", {"sleep_s": 60.0}, ranks=2)
    assert time.monotonic() - began_s < 40
    assert failed.status == "kernel failed"
    assert failed.text == f"rank 1 on {failed.node}: no room on this rank"


def test_the_first_rank_alone_writes_a_record(tmp_path):
    """Each rank is given a file of its own."""
    setup = PartitionSetup(localhost(), QUICK, ("dp_fma",))
    params = find_kernel("dp_fma").params().model_dump(mode="json")
    point = a_point("dp_fma", site="localhost", params=canonical_json(params), ranks=2)
    program = f"exec {sys.executable} -m campaign.measure record-$PMI_RANK"
    argv = [Path(sys.executable).with_name("mpiexec"), "-n", "2", "sh", "-c", program]
    asked = os.environ | request_environment(setup, point, 0)
    subprocess.run(argv, cwd=tmp_path, env=asked, check=True, timeout=120)
    assert [path.name for path in tmp_path.glob("record-*")] == ["record-0"]
    assert decode((tmp_path / "record-0").read_bytes()).status == "ok"


def test_worlds_of_another_size_are_refused():
    """Without an MPI launcher every process is a world of one."""
    from kernels.host.ranks import Team, TeamSizeError

    with pytest.raises(TeamSizeError, match="1 rank"):
        Team.of_world(2)


def test_the_simulated_machine_is_the_same_measurement_twice():
    site = read_site(built_in_sites()["jetson-tk1"])
    setting = Setting(852.0, 924.0)
    first, second = (
        run("sp_fma", {"level": "dram", "ops_per_word": 2}, site, setting) for _ in range(2)
    )
    assert first.energy_j == second.energy_j
    assert first.traces[0].value.tobytes() == second.traces[0].value.tobytes()
    assert first.provenance["simulated"] is True


@pytest.mark.parametrize(
    ("name", "ranks", "files"),
    [
        # A fork, ranks of their own, and the fork server itself.
        ("localhost", 1, ("log", "result.new")),
        ("localhost", 2, ("log", "result.new")),
        ("jetson-tk1", 1, ("log", "result.new")),
    ],
)
def test_a_scratch_that_takes_no_record_ends_the_run_and_is_no_fault_of_the_point(
    tmp_path, name, ranks, files
):
    """The files in the order in which they are written: that a later one is refused shows that
    those before it were written again."""
    site = read_site(built_in_sites()[name])
    point = a_point(
        site=site.name,
        partition=next(iter(site.partitions)),
        ranks=ranks,
        setting=site.settings[0],
        params='{"sleep_s":0.01}',  # ranks would meet thousands of times if it took no time
    )
    runner = SubprocessRunner(PartitionSetup(site, QUICK, ("idle",)), tmp_path)
    try:
        for file in files:
            (runner.folder / file).mkdir()  # what nothing can be written to
            with pytest.raises(UnwritableStoreError, match=rf"{file}: Is a directory"):
                runner.measure(point, 0)
            (runner.folder / file).rmdir()
        assert decode(runner.measure(point, 0)).status == "ok"
    finally:
        runner.close()


def test_an_unexpected_error_in_a_simulated_measurement_is_no_time_out(tmp_path):
    """The server measures simulated points itself; a request without a point is such an error."""
    site = read_site(built_in_sites()["jetson-tk1"])
    point = a_point(site=site.name, partition=next(iter(site.partitions)), setting=site.settings[0])
    runner = SubprocessRunner(PartitionSetup(site, QUICK, ("idle",)), tmp_path)
    log = tmp_path / "log-of-error"
    try:
        assert decode(runner.measure(point, 0)).status == "ok"
        elsewhere = {"result": str(tmp_path / "result-of-error"), "log": str(log)}
        request = runner._request(point, 0) | elsewhere
        assert runner._server.ask({**request, "point": {}}, 60.0) == (1, False)
        assert "Traceback" in log.read_text()
        assert decode(runner.measure(point, 0)).status == "ok"
    finally:
        runner.close()


def test_a_subprocess_that_has_measured_exits_with_0_and_says_nothing(tmp_path):
    site = localhost(meters=[])
    point = a_point(
        site=site.name, partition=next(iter(site.partitions)), ranks=1, setting=AS_FOUND
    )
    runner = SubprocessRunner(PartitionSetup(site, QUICK, ("idle",)), tmp_path)
    log = tmp_path / "log-of-point"
    try:
        assert decode(runner.measure(point, 0)).status == "ok"
        elsewhere = {"result": str(tmp_path / "result-of-point"), "log": str(log)}
        request = runner._request(point, 0) | elsewhere
        assert runner._server.ask(request, 60.0) == (0, False)
        assert log.read_text() == ""
    finally:
        runner.close()


def test_a_child_of_the_fork_server_ends_even_if_a_signal_comes_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on as a second fork server."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(forkserver, "put_back_held", interrupted)
    outlived, write = os.pipe()

    def outlive() -> None:
        try:
            forkserver._child(None, {"log": str(tmp_path / "log")})
        finally:
            os.write(write, b"x")

    os.waitpid(fork(outlive), 0)
    os.close(write)
    with os.fdopen(outlived, "rb") as file:
        assert file.read() == b""


def test_a_fork_server_whose_worker_has_ended_meanwhile_says_nothing(tmp_path):
    """An interrupt may end the worker, which removes its folder, while the server starts."""
    words = [sys.executable, "-m", "campaign.measure.forkserver", tmp_path / "gone" / "setup.json"]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, input=b"", capture_output=True, cwd=root, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_what_only_the_node_knows_of_a_variant_is_recorded(monkeypatch):
    """They are added to the kernel's metrics, and replace those of the same name."""
    from campaign.measure.point_life import measure
    from dvfs.dataset import METRICS
    from kernels.registry import KERNELS

    monkeypatch.setitem(KERNELS, "waiting", "tests.campaign.kernel_with_metrics:waiting")
    site = localhost(meters=[])
    point = a_point(
        "waiting", site=site.name, partition=next(iter(site.partitions)), params="{}", ranks=1,
        setting=AS_FOUND,
    )  # fmt: skip
    measured = measure(PartitionSetup(site, QUICK, ("waiting",)), point, 0)
    assert measured is not None
    assert measured.status == "ok", measured.text
    assert measured.provenance[METRICS] == {"shared_bytes": 512, "registers": 40, "blocks": 3}
