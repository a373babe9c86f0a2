"""The scripts that install Slurm and a browser: they wait for locks, and fail where they must."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.requirement import need_browser

CI = Path(__file__).parents[1] / ".ci"
TOOLS = ("bash", "basename", "dirname", "grep", "sleep")
SLURM = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "squeue",
    "srun",
    "slurmdbd",
    "sacct",
    "sacctmgr",
    "mariadbd",
    "lua5.1",
    "luac5.1",
)
PROGRAMS = {"install_slurm": SLURM, "install_chromium": ("chromium",)}
REQUIRE = {
    "install_slurm": "CAMPAIGN_REQUIRE_SLURM",
    "install_chromium": "CAMPAIGN_REQUIRE_BROWSER",
}
GET = "E: Could not get lock {file}. It is held by process 1 (apt-get)"
DPKG = "E: Unable to acquire the dpkg frontend lock ({file}), is another process using it?"
UPDATE = {"lists": GET.format(file="/var/lib/apt/lists/lock")}
INSTALL = {
    "lock-frontend": DPKG.format(file="/var/lib/dpkg/lock-frontend"),
    "lock": "E: Unable to lock the administration directory (/var/lib/dpkg/), is another process "
    "using it?",
    "archives": GET.format(file="/var/cache/apt/archives/lock"),
}
"""What apt 2.6.1 says when another process holds each of its locks."""
APT_GET = f"""\
import fcntl, sys
from pathlib import Path

here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
held = {UPDATE!r} if "update" in sys.argv else {INSTALL!r}
for name, said in held.items():
    with (here / name).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            (here / "refused").touch()
            print(said, file=sys.stderr)
            sys.exit(100)
if (here / "broken").exists():
    print("E: Unable to locate package", file=sys.stderr)
    sys.exit(100)
if "update" in sys.argv:
    (here / "updated").touch()
else:
    for name in ("chromium",) if "chromium" in sys.argv else {SLURM!r}:
        (here / "bin" / name).write_text("#!/bin/sh\\n")
        (here / "bin" / name).chmod(0o755)
"""
HOLD = """
import fcntl, sys, time
from pathlib import Path
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
"""
"""Holds a lock until apt-get was refused it, however late that is."""


@pytest.fixture(params=PROGRAMS)
def script(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A script's name, for a machine with apt-get that has neither Slurm nor a browser."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(str(shutil.which(tool)))
    (tmp_path / "apt_get.py").write_text(APT_GET)
    apt_get = f'exec "{sys.executable}" "{tmp_path}/apt_get.py" "$@"'
    for name, line in {
        "apt-get": apt_get,
        "apt-cache": f'[ -e "{tmp_path}/updated" ]',
        "id": "echo 0",
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    return str(request.param)


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # Not even the system's folders: programs of a Slurm that is installed may be there.
    return subprocess.run(
        [shutil.which("bash") or "bash", "-p", str(CI / script)],
        env={"PATH": str(folder / "bin"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def calls(folder: Path) -> list[str]:
    """The first word of each call of apt-get that is no option."""
    lines = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return [next(word for word in line.split() if word[0] != "-") for line in lines]


def test_packages_are_installed_once(script, tmp_path):
    first = run(script, tmp_path)
    assert first.returncode == 0, first.stderr
    assert calls(tmp_path) == ["update", "install"]
    assert all((tmp_path / "bin" / name).exists() for name in PROGRAMS[script])
    assert run(script, tmp_path).returncode == 0
    assert calls(tmp_path) == ["update", "install"]


@pytest.mark.parametrize("script", ["install_chromium"], indirect=True)
@pytest.mark.parametrize("lock", [*UPDATE, *INSTALL])
def test_a_lock_that_another_process_holds_is_waited_for(script, tmp_path, lock):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / lock), str(tmp_path / "refused")],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    done = run(script, tmp_path)
    holder.kill()
    holder.communicate()
    assert done.returncode == 0, done.stderr
    assert len(calls(tmp_path)) > 2
    assert all((tmp_path / "bin" / name).exists() for name in PROGRAMS[script])


def test_a_lock_that_stays_held_is_an_error(script, tmp_path):
    with (tmp_path / "lock-frontend").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        began = time.monotonic()
        done = run(script, tmp_path, CAMPAIGN_APT_LOCK_S="1")
    assert time.monotonic() - began < 20
    assert done.returncode == 1
    assert "lock-frontend" in done.stderr


def test_an_installation_that_fails_is_an_error_at_once(script, tmp_path):
    (tmp_path / "updated").touch()
    (tmp_path / "broken").touch()
    done = run(script, tmp_path)
    assert done.returncode == 1
    assert calls(tmp_path) == ["install", "update"]


@pytest.mark.parametrize("lacking", ["apt-get", "root"])
def test_where_nothing_can_be_installed_the_tests_go_on_unless_it_is_required(
    script, tmp_path, lacking
):
    if lacking == "root":
        (tmp_path / "bin" / "id").write_text("#!/bin/sh\necho 1000\n")
    else:
        (tmp_path / "bin" / "apt-get").unlink()
    done = run(script, tmp_path)
    assert done.returncode == 0
    assert lacking in done.stderr
    assert run(script, tmp_path, **{REQUIRE[script]: "1"}).returncode == 1
    assert calls(tmp_path) == []


def test_without_a_browser_a_test_fails_with_the_reason(monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(pytest.fail.Exception, match=r"install_chromium.*-m 'not browser'"):
        need_browser()
