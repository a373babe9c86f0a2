"""`campaign exec`: the program runs as by itself, and the clocks are restored whatever happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from campaign.measure.program_run import default_records
from dvfs.setting import Setting
from tests.campaign.policy_data import a_policy, entry
from tests.sites.clock_layouts import (
    LAYOUTS,
    TREES,
    contents,
    copy,
    journals,
    settled_contents,
)
from tests.waiting import wait_until

ACPI = next(layout for layout in LAYOUTS if layout.name == "cpufreq-acpi")
SET = Setting(1800.0)
RUN = """\
import sys
from pathlib import Path
from campaign.measure.program_run import RunRequest, run_program
from campaign.measure.program_run import default_records
from dvfs.setting import Setting
from tests.sites.clock_layouts import LAYOUTS
layout = next(layout for layout in LAYOUTS if layout.name == "cpufreq-acpi")
root = Path(sys.argv[1])
setting = Setting(1800.0)
request = RunRequest(site=layout.site(), setting=setting, facts={"arm": "policy"}, root=root)
sys.exit(run_program(sys.argv[2:], request, root / "records.jsonl"))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    copy(ACPI, tmp_path)
    with ACPI.running(tmp_path):
        yield tmp_path


def hangup_ends_it() -> None:
    """What a test's shell ignores (nohup) a program could not trap."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(root: Path, *argv: str, **options: object) -> subprocess.Popen[str]:
    """A program under exec with a copied tree, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hangup_ends_it,  # noqa: PLW1509
        **options,
    )


def records(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (root / "records.jsonl").read_text().splitlines()]


SHOWS = 'cat "$0"/sys/devices/system/cpu/cpu0/cpufreq/scaling_setspeed; '


def test_the_program_runs_at_the_setting_and_the_clocks_are_restored(machine: Path) -> None:
    before = settled_contents(machine)
    process = start(machine, "sh", "-c", SHOWS + "echo twice >&2; exit 7", str(machine))
    out, err = process.communicate()
    assert (out, err, process.returncode) == ("1800000\n", "twice\n", 7)
    assert settled_contents(machine) == before
    assert journals(machine) == []
    (one,) = records(machine)
    assert (one["core_mhz"], one["set"], one["exit"], one["arm"]) == (1800.0, True, 7, "policy")
    assert one["energy_j"] is None, "there is no meter: missing is not 0"
    assert 0.0 < one["time_s"] < 10.0


METERED = """\
import sys
from pathlib import Path
from campaign.measure.program_run import RunRequest, run_program
from sites.site_file import Site
root = Path(sys.argv[1])
site = Site.model_validate(
    {"name": "here", "partitions": {"p": {}}, "meters": [{"kind": "powercap"}]}
)
sys.exit(run_program(sys.argv[2:], RunRequest(site=site, root=root), root / "records.jsonl"))
"""
ADD_JOULES = """\
for zone in "$0"/sys/class/powercap/intel-rapl:?; do
    echo $(($(cat $zone/energy_uj) + 3000000)) >$zone/new && mv $zone/new $zone/energy_uj
done
"""


@pytest.mark.parametrize("which", ["moves", "stands still"])
def test_a_counter_that_does_not_change_has_no_energy(tmp_path: Path, which: str) -> None:
    """3 J that the program adds; of a counter that stands still the record says so, and not 0 J."""
    shutil.copytree(TREES / "powercap-amd", tmp_path, symlinks=True, dirs_exist_ok=True)
    program = ADD_JOULES if which == "moves" else "sleep 0.1"
    argv = [sys.executable, "-c", METERED, str(tmp_path), "sh", "-c", program, str(tmp_path)]
    err = subprocess.run(argv, check=True, capture_output=True, text=True).stderr
    (one,) = records(tmp_path)
    if which == "stands still":
        assert one["energy_j"] is None
        assert "the counter did not change in 0." in one["problems"][0]
        assert one["problems"][0] in err
    else:
        # Between the readings before and after it, a part belongs to the time outside the program.
        assert 0.5 < one["energy_j"] <= 3.0
        assert one["problems"] == []


CLOCK_OF_WORK = """\
import sys
from pathlib import Path
from campaign.measure.program_run import RunRequest, run_program
from sites import perf_event
from sites.clocks.shared import core_clock
from sites.site_file import Site
root = Path(sys.argv[1])
perf_event.SOURCES = root  # with an event that every x86 has in place of aperf
core_clock.LEAST_NS = 20_000_000  # more than this process works between two readings
site = Site.model_validate({"name": "here", "partitions": {"p": {}}})
sys.exit(run_program(sys.argv[2:], RunRequest(site=site), root / "records.jsonl"))
"""


def test_the_clock_that_is_read_is_that_of_the_program(tmp_path: Path) -> None:
    """The program's process is there before the clocks are opened; a thread of exec reads them."""
    msr = Path("/sys/bus/event_source/devices/msr")
    if os.getuid() != 0 or not msr.is_dir():
        return
    assert (msr / "events/tsc").exists()  # on every x86
    shutil.copytree(msr, tmp_path / "msr", symlinks=True, ignore=shutil.ignore_patterns("power"))
    (tmp_path / "msr/events/aperf").write_text((msr / "events/tsc").read_text())
    spin = "import time\nuntil = time.time() + 1\nwhile time.time() < until: pass"
    argv = [sys.executable, "-c", CLOCK_OF_WORK, str(tmp_path), sys.executable, "-c", spin]
    subprocess.run(argv, check=True)
    (one,) = records(tmp_path)
    assert one["core_mhz_achieved"] is not None


PROGRAMS = {
    "ends by a signal": ("sh", "-c", "kill -SEGV $$"),
    "kills itself": ("sh", "-c", "kill -KILL $$"),
    "is stopped by a broken pipe": ("sh", "-c", "yes | head -n 1"),
    "shows its signal mask": ("grep", "Sig[BI]", "/proc/self/status"),
    "is not there": ("/nowhere/program",),
    "is not executable": ("/etc/passwd",),
    "reads its input": ("cat",),
    "shows its files": ("sh", "-c", "ls /proc/self/fd"),
}


@pytest.mark.parametrize("which", PROGRAMS)
def test_the_program_is_as_by_itself(machine: Path, which: str) -> None:
    argv = PROGRAMS[which]
    process = start(machine, *argv, stdin=subprocess.DEVNULL)
    out, err = process.communicate()
    if which.startswith("is not "):
        assert process.returncode == {"is not there": 127, "is not executable": 126}[which]
        assert len(err.splitlines()) == 1
        return
    own = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=hangup_ends_it,
    )
    assert (out, process.returncode) == (own.stdout, own.returncode)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM]
)
def test_signals_reach_the_program_once(machine: Path, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"n=0; trap 'n=$((n+1)); echo got $n' {name}; echo ready; "
    before = settled_contents(machine)
    process = start(machine, "sh", "-c", script + "while [ $n -lt 2 ]; do sleep 0.05; done; exit 5")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for count in (1, 2):
        os.kill(process.pid, number)
        assert process.stdout.readline() == f"got {count}\n"
    assert process.wait() == 5
    assert settled_contents(machine) == before


SENDERS = {
    "to exec": lambda process, number: os.kill(process.pid, number),
    "to the group": lambda process, number: os.killpg(process.pid, number),
    "by the program to its group": lambda process, number: process.stdin.write(f"{number:d}\n"),
}


@pytest.mark.parametrize("sent", SENDERS)
def test_signals_reach_the_program_once_however_they_are_sent(machine: Path, sent: str) -> None:
    """A program that counts its signals. Equal ones at once are one or several in each process, so
    they come one after the other."""
    counting = (
        "import os, signal, sys\n"
        "counts = {}\n"
        "def got(number, _): counts[number] = counts.get(number, 0) + 1; show()\n"
        "def show(): print(sorted(counts.items()), flush=True)\n"
        "for number in (1, 2, 10, 14, 15, 40): signal.signal(number, got)\n"
        "show()\n"
        "for line in sys.stdin: os.killpg(0, int(line))\n"
        "signal.pause() if not counts.get(15) else show()\n"
    )
    process = start(machine, sys.executable, "-c", counting, stdin=subprocess.PIPE, bufsize=1)
    assert process.stdout is not None
    assert process.stdin is not None
    counts: dict[int, int] = {}
    assert process.stdout.readline() == "[]\n"
    for number in [1, 2, 10, 14, 40, 15] * 3:
        counts[number] = counts.get(number, 0) + 1
        SENDERS[sent](process, number)
        assert process.stdout.readline() == f"{sorted(counts.items())}\n"
        wait_until(lambda: "\nShdPnd:\t0000000000000000" in status(process.pid), 20.0)
    process.stdin.close()
    assert process.stdout.read() == f"{sorted(counts.items())}\n"
    assert process.wait() == 0


def killed_exec(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)


def killed_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [killed_exec, killed_group])
def test_after_sigkill_the_program_is_dead_and_the_clocks_are_restored(
    machine: Path, kill: Callable[[subprocess.Popen[str]], None]
) -> None:
    before = settled_contents(machine)
    process = start(machine, "sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout is not None
    program = int(process.stdout.readline())
    assert settled_contents(machine) != before
    kill(process)
    process.wait()
    wait_until(lambda: not Path(f"/proc/{program}").exists() or zombie(program), 20.0)
    wait_until(lambda: settled_contents(machine) == before, 20.0)
    wait_until(lambda: journals(machine) == [], 20.0)


def zombie(process: int) -> bool:
    return "\nState:\tZ" in status(process)


def status(process: int) -> str:
    return Path(f"/proc/{process}/status").read_text()


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A group of processes that the kernel keeps below 64 MiB, by its OOM killer."""
    first = Path("/sys/fs/cgroup/memory")  # of the first version of cgroups
    top = first if first.is_dir() else Path("/sys/fs/cgroup")
    group = top / f"dvfs-campaign-test-{os.getpid()}"
    group.mkdir()
    try:
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        for name in names if top == first else ("memory.max",):
            if (group / name).exists():
                (group / name).write_text("64M")
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 20.0)
        group.rmdir()


def oom_kills(group: Path) -> int:
    files = [group / name for name in ("memory.oom_control", "memory.events")]
    text = "".join(file.read_text() for file in files if file.exists())
    return int(re.findall(r"^oom_kill (\d+)$", text, re.MULTILINE)[0])


@pytest.mark.root
@pytest.mark.parametrize("limited", ["$$", "$$ $PPID"], ids=["the program", "exec as well"])
def test_after_the_kernel_ran_out_of_memory_the_clocks_are_restored(
    machine: Path, memory_group: Path, limited: str
) -> None:
    takes = f"exec {sys.executable} -c 'bytearray(1 << 30)'"
    script = f"for i in {limited}; do echo $i > {memory_group}/cgroup.procs; done; echo in; {takes}"
    own = subprocess.run(
        ["sh", "-c", script.replace("$PPID", "")], capture_output=True, text=True, check=False
    )
    assert oom_kills(memory_group) == 1
    before = settled_contents(machine)
    process = start(machine, "sh", "-c", script)
    out, err = process.communicate(timeout=60)
    assert oom_kills(memory_group) == 2
    assert (out, err, process.returncode) == (own.stdout, own.stderr, own.returncode)
    assert own.returncode == -signal.SIGKILL
    assert settled_contents(machine) == before
    assert journals(machine) == []
    (one,) = records(machine)
    assert (one["set"], one["exit"]) == (True, -signal.SIGKILL)


def test_a_program_that_detaches_does_not_keep_the_clocks(machine: Path) -> None:
    before = settled_contents(machine)
    script = "setsid sleep 30 >/dev/null 2>&1 & echo $!"
    process = start(machine, "sh", "-c", script)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert settled_contents(machine) == before
    left = int(out)
    assert Path(f"/proc/{left}").exists(), "as without exec, it goes on"
    os.kill(left, signal.SIGKILL)


def test_who_reads_the_output_sees_its_end_with_the_program(machine: Path) -> None:
    process = start(machine, "sh", "-c", "echo x; exec 1>&-; sleep 2")
    assert process.stdout is not None
    assert process.stdout.readline() == "x\n"
    began_s = time.monotonic()
    assert process.stdout.read() == ""
    assert time.monotonic() - began_s < 1.5
    assert process.wait() == 0


def test_where_the_clocks_cannot_be_set_the_program_runs_all_the_same(machine: Path) -> None:
    before = settled_contents(machine)
    folder = machine / "sys/devices/system/cpu/cpu1/cpufreq"
    (folder / "scaling_setspeed").unlink()
    process = start(machine, "echo", "hi")
    out, err = process.communicate()
    assert (out, process.returncode) == ("hi\n", 0)
    assert len(err.splitlines()) == 1
    (one,) = records(machine)
    assert (one["set"], len(one["problems"])) == (False, 1)
    missing = "sys/devices/system/cpu/cpu1/cpufreq/scaling_setspeed"
    del before[missing]
    wait_until(lambda: contents(machine) == before, 20.0)


# --- The command line -----------------------------------------------------------------------------

SITE = """\
name = "s"
[clocks]
control = "cpufreq"
[domains.core]
frequencies_mhz = [2000.0]
[[meters]]
kind = "hwmon"
[partitions.a]
"""


def campaign(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "campaign", "exec", *argv],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    from campaign.policy.policy_file import write_policy

    (tmp_path / "s.toml").write_text(SITE)
    write_policy(
        tmp_path / "p.toml", a_policy(entry("app", job_name="app"), entry("b", executable="tru?"))
    )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ([], {"SLURM_JOB_NAME": "app", "SLURM_JOB_ID": "4"}, ("app", "policy")),
        ([], {}, ("b", "policy")),
        (["--kernel", "app"], {}, ("app", "policy")),
        ([], {"NO_DVFS": "1"}, (None, "opted out")),
        (["--kernel", "nosuch"], {}, (None, None)),
    ],
)
def test_the_entry_of_a_run(policy: Path, words, variables, expected) -> None:
    given = ["--policy", str(policy / "p.toml"), "--site", str(policy / "s.toml")]
    file = policy / "records.jsonl"
    done = campaign(*given, *words, "--records", str(file), "--", "true", **variables)
    assert (done.returncode, done.stdout) == (0, "")
    (one,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (one.get("entry"), one.get("arm")) == expected
    assert one["job_id"] == variables.get("SLURM_JOB_ID")
    assert one["energy_j"] is None
    assert (file.stat().st_mode & 0o777) == 0o600


@pytest.mark.parametrize(
    ("variables", "nodes"),
    [
        ({}, 1),
        ({"SLURM_JOB_NUM_NODES": "4"}, 4),
        ({"SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_NUM_NODES": "2"}, 2),
    ],
    ids=["no job", "a batch script", "a step"],
)
def test_the_record_says_on_how_many_nodes_the_program_may_run(policy, variables, nodes) -> None:
    file = policy / "records.jsonl"
    given = ["--site", str(policy / "s.toml"), "--records", str(file)]
    assert campaign(*given, "--", "true", **variables).returncode == 0
    assert json.loads(file.read_text())["nodes"] == nodes


def test_other_tasks_of_a_node_only_run_the_program(policy: Path) -> None:
    given = ["--site", str(policy / "s.toml"), "--records", str(policy / "r")]
    assert campaign(*given, "--", "echo", "x", SLURM_LOCALID="1").stdout == "x\n"
    assert not (policy / "r").exists()


@pytest.mark.parametrize("words", [[], ["--site", "s.toml"], ["--", "true"]])
def test_a_command_without_a_program_or_a_site_is_refused(words: list[str]) -> None:
    done = campaign(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("change", ["expired", "no TOML", "missing"])
def test_a_policy_that_cannot_be_read_does_not_keep_the_program_from_running(policy, change):
    path = policy / "p.toml"
    if change == "expired":
        path.write_text(path.read_text().replace("until = 2099", "until = 2019"))
    elif change == "no TOML":
        path.write_text("[")
    else:
        path.unlink()
    given = ["--policy", str(path), "--site", str(policy / "s.toml"), "--records"]
    done = campaign(*given, str(policy / "r"), "--", "sh", "-c", "echo x; exit 9")
    assert (done.stdout, done.returncode) == ("x\n", 9)
    assert done.stderr


# --- What was checked is kept ---------------------------------------------------------------------


def under(policy: Path, *words: str, **environment: str) -> tuple[dict[str, object], set[str]]:
    """The record of a run of true, and which of the modules that check files it imported."""
    file = policy / f"records{len(list(policy.glob('records*')))}"
    given = ["--site", str(policy / "s.toml"), "--records", str(file), *words, "--", "true"]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "campaign", "exec", *given],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"XDG_CACHE_HOME": str(policy / "cache")} | environment,
    )
    checking = {"pydantic", "sites.site_reading", "campaign.policy.policy_file", "email"}
    return json.loads(file.read_text()), checking & {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines()
    }


def test_what_was_checked_is_taken_until_a_file_changes(policy: Path) -> None:
    words = ("--policy", str(policy / "p.toml"))
    first, imported = under(policy, *words)
    assert "pydantic" in imported
    again, imported = under(policy, *words)
    assert imported == set()
    for key in ("start", "time_s"):
        del first[key], again[key]
    assert again == first
    assert again["core_mhz"] == 2000.0
    (kept,) = (policy / "cache/dvfs-campaign/exec").iterdir()
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    # Another job of the same files gets its own entry and arm.
    assert under(policy, *words, SLURM_JOB_NAME="app")[0]["entry"] == "app"
    assert under(policy, *words, "--kernel", "app")[0]["entry"] == "app"
    assert under(policy, *words, NO_DVFS="")[0]["arm"] == "opted out"
    # The check is one of this cluster, and of this day: these zones never have the same.
    assert "pydantic" in under(policy, *words, SLURM_CLUSTER_NAME="c")[1]
    under(policy, *words, TZ="AAA12")
    assert "pydantic" in under(policy, *words, TZ="BBB-14")[1]
    assert "pydantic" in under(policy, *words, TZ="AAA12")[1]


CHANGES = {
    "the site is wrong": ("s.toml", "[domains.core]", "tolerance_pct = -1\n[domains.core]", "-1"),
    "the setting is not legal": ("s.toml", "[2000.0]", "[1900.0]", "not a legal setting"),
    "the policy has expired": ("p.toml", "until = 2099", "until = 2019", "expired"),
}


@pytest.mark.parametrize("which", CHANGES)
def test_a_changed_file_is_checked_again(policy: Path, which: str) -> None:
    words = ("--policy", str(policy / "p.toml"))
    under(policy, *words)
    name, was, now, says = CHANGES[which]
    text = (policy / name).read_text()
    assert was in text
    (policy / name).write_text(text.replace(was, now))
    record, imported = under(policy, *words)
    assert "pydantic" in imported
    assert any(says in line for line in record["problems"])
    assert record["core_mhz"] is None


FORGED = {
    "no JSON": lambda file: file.write_text("{"),
    "no site": lambda file: file.write_text("{}"),
    "of another file": lambda file: file.write_text(
        file.read_text().replace('"s"', '"evil"').replace('"stamp": "', '"stamp": "0')
    ),
    "can be written by others": lambda file: (
        file.write_text(file.read_text().replace('"app"', '"evil"')),
        file.chmod(0o666),
    ),
    "another user's": lambda file: (
        file.write_text(file.read_text().replace('"app"', '"evil"')),
        os.chown(file, 65534, 65534),
    ),
    "in a folder of others": lambda file: (
        file.write_text(file.read_text().replace('"app"', '"evil"')),
        file.parent.chmod(0o777),
    ),
}


@pytest.mark.root
@pytest.mark.parametrize("which", FORGED)
def test_a_kept_check_that_is_not_this_users_or_of_these_files_is_not_taken(
    policy: Path, which: str
) -> None:
    words = ("--policy", str(policy / "p.toml"), "--kernel", "app")
    under(policy, *words)
    (kept,) = (policy / "cache/dvfs-campaign/exec").iterdir()
    FORGED[which](kept)
    record, imported = under(policy, *words)
    assert "pydantic" in imported
    assert (record["entry"], record["site"]) == ("app", "s")


def test_what_another_pair_of_files_was_checked_for_is_not_taken(policy: Path) -> None:
    """Whoever could rename files in the cache gets nothing applied that is another file's."""
    (policy / "t.toml").write_text(SITE.replace('"hwmon"', '"powercap"'))
    under(policy)
    (kept,) = (policy / "cache/dvfs-campaign/exec").iterdir()
    under(policy, "--site", str(policy / "t.toml"))
    (other,) = set(kept.parent.iterdir()) - {kept}
    other.replace(kept)
    assert "pydantic" in under(policy)[1]


def test_without_a_cache_the_program_runs(policy: Path) -> None:
    (policy / "cache").write_text("")
    assert under(policy)[0]["site"] == "s"


HANDED_ON = """\
import os, signal, sys
{before}
os.execv(sys.executable, [sys.executable, "-m", "campaign", "exec", *sys.argv[1:]])
"""
BEFORE = {
    "without standard input and output": "os.close(0); os.close(1)",
    "where SIGCHLD is ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "in the locale C": "os.environ.clear(); os.environ['PATH'] = '/usr/bin:/bin'",
}


@pytest.mark.parametrize("which", BEFORE)
def test_the_program_runs_as_by_itself_however_it_was_started(policy: Path, which: str) -> None:
    """Whatever runs exec: descriptors, handlings of signals and the environment are handed on."""
    shown = policy / "shown"
    script = f"(env | sort | grep -v ^_=; grep SigIgn /proc/self/status; ls /proc/$$/fd) > {shown}"
    code = HANDED_ON.format(before=BEFORE[which])
    argv = ["--site", "localhost", "--records", str(policy / "r"), "--", "sh", "-c", script]
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    under = shown.read_text()
    shown.unlink()
    alone = code.replace(
        '[sys.executable, "-m", "campaign", "exec", *sys.argv[1:]]', "sys.argv[-3:]"
    )
    alone = alone.replace("os.execv(sys.executable", "os.execvp('sh'")
    for name in ("PIPE", "XFSZ"):  # Python ignores these; what started it did not
        alone = f"import signal; signal.signal(signal.SIG{name}, signal.SIG_DFL)\n{alone}"
    subprocess.run(
        [sys.executable, "-c", alone, *argv], capture_output=True, check=True, timeout=60
    )
    assert under == shown.read_text()


def test_without_a_home_there_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert default_records() is None


def test_records_that_cannot_be_written_do_not_keep_the_program_waiting(policy: Path) -> None:
    os.mkfifo(policy / "fifo")
    given = ["--site", "localhost", "--records"]
    for path in (policy / "fifo", Path("/dev/full"), policy):
        done = campaign(*given, str(path), "--", "sh", "-c", "echo x; exit 3")
        assert (done.stdout, done.returncode) == ("x\n", 3)
        assert len(done.stderr.splitlines()) == 1
    file = policy / "records"
    file.write_bytes(b"1\n" * 1000)
    limited = ["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", sys.executable, "-m", "campaign", "exec"]
    subprocess.run([*limited, *given, str(file), "--", "true"], capture_output=True, check=True)
    subprocess.run([*limited, *given, str(file), "--", "true"], capture_output=True, check=True)
    subprocess.run([*limited, *given, str(file), "--", "true"], capture_output=True, check=True)
    assert file.read_bytes().endswith(b"\n"), "a line is whole or not there"
