"""`campaign exec`: the program runs as by itself, and the clocks are restored whatever happens."""

from __future__ import annotations

import json
import os
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
from tests.sites.clock_layouts import LAYOUTS, contents, copy, journals, settled_contents

ACPI = next(layout for layout in LAYOUTS if layout.name == "cpufreq-acpi")
SET = Setting(1800.0)
RUN = """\
import sys
from pathlib import Path
from campaign.measure.program_run import Wanted, run_program
from campaign.measure.program_run import default_records
from dvfs.setting import Setting
from tests.sites.clock_layouts import LAYOUTS
layout = next(layout for layout in LAYOUTS if layout.name == "cpufreq-acpi")
root = Path(sys.argv[1])
wanted = Wanted(site=layout.site(), setting=Setting(1800.0), facts={"arm": "policy"}, root=root)
sys.exit(run_program(sys.argv[2:], wanted, root / "records.jsonl"))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    copy(ACPI, tmp_path)
    with ACPI.running(tmp_path):
        yield tmp_path


def start(root: Path, *argv: str, **options: object) -> subprocess.Popen[str]:
    """A program under exec with a copied tree, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # What a test's shell ignores (nohup) a program could not trap.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
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
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
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


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


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
    wait_until(lambda: not Path(f"/proc/{program}").exists() or zombie(program))
    wait_until(lambda: settled_contents(machine) == before)
    wait_until(lambda: journals(machine) == [])


def zombie(process: int) -> bool:
    return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()


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
    wait_until(lambda: contents(machine) == before)


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
