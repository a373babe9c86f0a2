"""Every clock control, on trees of files: it sets, refuses, and always restores the clocks.

What plain files lack of a machine's behaviour comes from a program beside the tree
(``clock_hardware.py``), and NVML from a library that reads a tree (``fake_nvml.c``).
"""

from __future__ import annotations

import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.clock_kills import kill_and_compare
from dvfs.setting import AS_FOUND, AXES, Setting
from sites.clocks import ClocksError, IllegalClockError, nvml, open_control, right_to_set
from sites.clocks.shared.journal import put_back_held, restore_left_over
from sites.clocks.shared.kernel_files import cpu_list
from sites.clocks.shared.private_files import ClocksInUseError
from sites.clocks.uncore import UncoreDomain, current_mhz
from sites.site_file import Site
from tests.sites.clock_hardware import Watch, wait_until_settled
from tests.sites.clock_layouts import (
    CPU0,
    CPU1,
    LAYOUTS,
    NANO_EMC,
    ORIN_EMC,
    ORIN_GPU,
    TPMI_COMPUTE,
    TREES,
    UNCORE,
    ClockLayout,
    answer_without_privileges,
    contents,
    copy,
    fork,
    hold,
    journals,
    settled_contents,
)

REPOSITORY = Path(__file__).parents[2]
BY_NAME = {layout.name: layout for layout in LAYOUTS}
ACPI = BY_NAME["cpufreq-acpi"]
NAMES = [layout.name for layout in LAYOUTS]
GPUS = ("amdsmi", "amdsmi-power-cap", "nvml", "nvml-power-limit")
"""Those whose control calls a library, which reads a tree."""
COMMANDS = ("command", "command-power-limit", "command-profile")
FILES = [layout.name for layout in LAYOUTS if layout.control not in (*GPUS, *COMMANDS)]
"""Those whose control writes the kernel's files."""


@dataclass(frozen=True)
class Machine:
    """A copied tree with its simulated hardware, and the original content of its files."""

    layout: ClockLayout
    root: Path
    original: dict[str, bytes]

    def is_original(self) -> bool:
        return settled_contents(self.root) == self.original

    def held(self, setting: Setting) -> int:
        """A process that has set the clocks."""
        read, write = os.pipe()
        child = fork(lambda: hold(self.layout, self.root, setting, write))
        os.close(write)
        with os.fdopen(read, "rb") as ready:
            assert ready.read(1) == b"x", "the process ended before it had set the clocks"
        return child

    def killed(self, setting: Setting) -> None:
        """Leave the clocks set by a process that SIGKILL ended."""
        child = self.held(setting)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert settled_contents(self.root) != self.original

    def folder(self) -> Path:
        return self.root / "run/campaign-clocks"

    def journal(self) -> Path:
        (name,) = journals(self.root)
        return self.folder() / name


@pytest.fixture(params=NAMES)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    yield from start(BY_NAME[request.param], tmp_path)


@pytest.fixture
def acpi(tmp_path: Path) -> Iterator[Machine]:
    yield from start(ACPI, tmp_path)


def start(layout: ClockLayout, root: Path) -> Iterator[Machine]:
    original = copy(layout, root)
    with layout.running(root):
        yield Machine(layout, root, original)


def middle(layout: ClockLayout) -> Setting:
    return layout.legal[len(layout.legal) // 2]


# --- Setting, refusing, restoring -----------------------------------------------------------------


def test_every_legal_setting_is_set_and_read_back(machine: Machine) -> None:
    clocks = machine.layout.open(machine.root)
    assert clocks.legal() == list(machine.layout.legal)
    assert contents(machine.root) == machine.original
    rng = random.Random(3)
    settings = list(machine.layout.legal)
    if len(settings) > 40:
        settings = [settings[0], settings[-1], *rng.sample(settings, 38)]
    rng.shuffle(settings)
    for setting in settings:
        clocks.set(setting)
        assert machine.layout.shown(machine.root) == setting
    clocks.restore()
    assert machine.is_original()
    assert journals(machine.root) == []
    clocks.restore()
    assert machine.is_original()


def test_an_illegal_setting_is_refused_and_changes_nothing(machine: Machine) -> None:
    clocks = machine.layout.open(machine.root)
    for setting in machine.layout.illegal:
        with pytest.raises(IllegalClockError):
            clocks.set(setting)
        assert contents(machine.root) == machine.original
    clocks.set(middle(machine.layout))
    before = settled_contents(machine.root)
    for setting in machine.layout.illegal:
        with pytest.raises(IllegalClockError):
            clocks.set(setting)
        assert settled_contents(machine.root) == before
    clocks.restore()
    assert machine.is_original()


def test_none_restores_a_clock_that_was_set_before(machine: Machine) -> None:
    clocks = machine.layout.open(machine.root)
    clocks.set(AS_FOUND)
    assert journals(machine.root) == []
    clocks.set(machine.layout.legal[0])
    clocks.set(AS_FOUND)
    assert machine.is_original()
    clocks.restore()


def test_the_state_is_what_the_hardware_shows(machine: Machine) -> None:
    clocks = machine.layout.open(machine.root)
    setting = machine.layout.legal[0]
    clocks.set(setting)
    settled_contents(machine.root)
    state = clocks.state()
    for name in AXES:
        achieved, requested = getattr(state.setting, name), getattr(setting, name)
        if requested is not None:
            assert achieved == pytest.approx(requested), name
    assert state.throttled == ()
    clocks.restore()


def test_it_restores_after_an_exception(machine: Machine) -> None:
    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        clocks = machine.layout.open(machine.root)
        stack.callback(clocks.restore)
        clocks.set(middle(machine.layout))
        raise ZeroDivisionError
    assert machine.is_original()
    assert journals(machine.root) == []


def test_a_deleted_control_restores(machine: Machine) -> None:
    clocks = machine.layout.open(machine.root)
    clocks.set(machine.layout.legal[0])
    del clocks
    assert machine.is_original()


# --- Signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_restores(machine: Machine, number: signal.Signals) -> None:
    child = machine.held(middle(machine.layout))
    assert contents(machine.root) != machine.original
    os.kill(child, number)
    os.waitpid(child, 0)
    assert machine.is_original()
    assert journals(machine.root) == []


def test_the_next_start_restores_after_sigkill(machine: Machine) -> None:
    machine.killed(middle(machine.layout))
    clocks = machine.layout.open(machine.root)
    assert machine.is_original()
    assert journals(machine.root) == []
    assert restore_left_over(machine.root) == []
    clocks.set(machine.layout.legal[0])
    clocks.restore()
    assert machine.is_original()


def test_a_control_that_is_open_when_another_process_is_killed_restores_its_clocks(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """It finds the journal only as it sets clocks: what it restores later is the original."""
    clocks = machine.layout.open(machine.root)
    machine.killed(middle(machine.layout))
    caplog.clear()
    clocks.set(machine.layout.legal[0])
    assert caplog.messages
    assert all(line.startswith("left over, restored: ") for line in caplog.messages)
    assert machine.layout.shown(machine.root) == machine.layout.legal[0]
    clocks.restore()
    assert machine.is_original()
    assert journals(machine.root) == []


@pytest.mark.parametrize("journal_is", ["damaged", "of an earlier boot"])
def test_an_open_control_sets_clocks_where_a_journal_cannot_be_replayed(
    acpi: Machine, caplog: pytest.LogCaptureFixture, journal_is: str
) -> None:
    clocks = acpi.layout.open(acpi.root)
    acpi.killed(Setting(1800.0))
    left = settled_contents(acpi.root)
    journal = acpi.journal()
    if journal_is == "damaged":
        journal.write_text(journal.read_text()[:-5])
    else:
        fields = json.loads(journal.read_text())
        journal.write_text(json.dumps(fields | {"boot": "1bf2a3d4-0000-4000-8000-000000000001"}))
    caplog.clear()
    clocks.set(Setting(2600.0))
    (line,) = caplog.messages
    assert ("renamed" if journal_is == "damaged" else "dropped") in line
    assert acpi.layout.shown(acpi.root) == Setting(2600.0)
    clocks.restore()
    assert settled_contents(acpi.root) == left
    assert journals(acpi.root) == []


@pytest.mark.parametrize("folder_instead_of", ["a file", "the journal"])
def test_an_open_control_sets_nothing_while_clocks_cannot_be_restored(
    acpi: Machine, folder_instead_of: str
) -> None:
    clocks = acpi.layout.open(acpi.root)
    acpi.killed(Setting(1800.0))
    journal = acpi.journal()
    path = journal if folder_instead_of == "the journal" else acpi.root / CPU0 / "scaling_governor"
    path.unlink()
    path.mkdir()
    other = acpi.root / CPU1 / "scaling_setspeed"
    left = other.read_text()
    with pytest.raises(ClocksError, match="a killed process changed could not be restored"):
        clocks.set(Setting(2600.0))
    assert journal.exists()
    assert other.read_text() != "2600000\n"
    assert folder_instead_of == "a file" or other.read_text() == left


def test_restoring_what_a_killed_run_left_reports_what_it_did(machine: Machine) -> None:
    machine.killed(middle(machine.layout))
    lines = restore_left_over(machine.root)
    assert lines
    assert all(line.startswith("left over, restored: ") for line in lines)
    assert machine.is_original()


def test_clocks_that_a_thread_sets_are_restored(machine: Machine) -> None:
    """Only the main thread may delay signals; the others set and restore clocks without that."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            clocks = machine.layout.open(machine.root)
            clocks.set(middle(machine.layout))
            assert machine.layout.shown(machine.root) == middle(machine.layout)
            clocks.restore()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []
    assert machine.is_original()
    assert journals(machine.root) == []


SCRIPT = """
import signal, sys, time
from contextlib import ExitStack
from pathlib import Path
from tests.sites.clock_layouts import LAYOUTS, end
signal.signal(signal.SIGTERM, end)
layout = next(one for one in LAYOUTS if one.name == sys.argv[1])
with ExitStack() as stack:
    clocks = layout.open(Path(sys.argv[2]))
    stack.callback(clocks.restore)
    clocks.set(layout.legal[0])
    print("set", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interpreter_as_measurements_run_it(acpi: Machine, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, acpi.layout.name, str(acpi.root)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"set\n"
    process.send_signal(number)
    process.communicate()
    assert bool(journals(acpi.root)) == (number == signal.SIGKILL)
    restore_left_over(acpi.root)
    assert acpi.is_original()


def test_a_second_signal_waits_until_everything_is_restored(acpi: Machine) -> None:
    for _ in range(10):
        child = acpi.held(middle(acpi.layout))
        os.kill(child, signal.SIGTERM)
        time.sleep(0.0005)
        os.kill(child, signal.SIGINT)
        os.waitpid(child, 0)
        restore_left_over(acpi.root)
        assert acpi.is_original()


def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    result = kill_and_compare(20, 5, tmp_path, [BY_NAME[name] for name in NAMES])
    assert result.problems == []
    assert result.restored == 20


# --- Files and devices that are missing, forbidden or wrong --------------------------------------


def set_in(machine: Machine) -> None:
    with ExitStack() as stack:
        clocks = machine.layout.open(machine.root)
        stack.callback(clocks.restore)
        clocks.set(machine.layout.legal[-1])


@pytest.mark.parametrize("fault", ["missing", "a folder"])
def test_a_file_that_is_missing_or_a_folder(machine: Machine, fault: str) -> None:
    for name in machine.layout.written:
        path = machine.root / name
        held = path.read_bytes()
        path.unlink()
        if fault == "a folder":
            path.mkdir()
        before = contents(machine.root)
        with pytest.raises(ClocksError) as caught:
            set_in(machine)
        if machine.layout.control not in GPUS:
            assert str(path) in caught.value.what
        assert caught.value.remedy
        assert contents(machine.root) == before
        assert journals(machine.root) == []
        if fault == "a folder":
            path.rmdir()
        fresh = machine.root / "tmp/fresh"
        fresh.write_bytes(held)
        fresh.rename(path)
    set_in(machine)
    assert machine.is_original()


@pytest.mark.parametrize(
    ("machine", "text"),
    [(layout.name, text) for layout in LAYOUTS for text in layout.no_numbers],
    indirect=["machine"],
)
def test_a_file_without_a_number(machine: Machine, text: str) -> None:
    for name in machine.layout.numbers:
        path = machine.root / name
        held = path.read_bytes()
        path.write_text(text)
        with pytest.raises((ClocksError, IllegalClockError)):
            set_in(machine)
        assert path.read_text() == text
        assert journals(machine.root) == []
        path.write_bytes(held)
    assert machine.is_original()


def test_a_device_that_disappears_between_set_and_restore(machine: Machine) -> None:
    clocks = machine.layout.open(machine.root)
    clocks.set(middle(machine.layout))
    device = machine.root / machine.layout.device
    away = machine.root / "tmp/away"
    device.rename(away)
    with pytest.raises(ClocksError, match="not restored"):
        clocks.restore()
    # All the others are back.
    there = settled_contents(machine.root)
    assert {name: machine.original[name] for name in there} == there
    # It came back: so can its clocks.
    away.rename(device)
    clocks.restore()
    assert machine.is_original()
    assert journals(machine.root) == []


@pytest.mark.parametrize("name", FILES)
def test_a_device_that_is_gone_at_the_next_start(name: str, tmp_path: Path) -> None:
    for machine in start(BY_NAME[name], tmp_path):
        machine.killed(middle(machine.layout))
        shutil.rmtree(machine.root / machine.layout.device)
        lines = restore_left_over(machine.root)
        assert any(line.startswith("left over, but its device is gone: ") for line in lines)
        there = settled_contents(machine.root)
        assert {name: machine.original[name] for name in there} == there
        assert restore_left_over(machine.root) == []


def named(root: Path, layout: ClockLayout) -> str:
    """What the layout's GPU is called in journals."""
    name = "uuid" if layout.tree.startswith("nvml") else "address"
    return (root / layout.device / name).read_text().strip()


@pytest.mark.parametrize("name", GPUS)
def test_a_hidden_gpu_is_restored_by_a_start_that_sees_it(name: str, tmp_path: Path) -> None:
    """Slurm and containers hide GPUs: a hidden GPU may still be locked."""
    for machine in start(BY_NAME[name], tmp_path):
        machine.killed(middle(machine.layout))
        gpu = named(tmp_path, machine.layout)
        gpus = [(tmp_path / machine.layout.device).with_name(f"gpu{i}") for i in (0, 1)]
        hidden = [gpu.rename(tmp_path / "tmp" / gpu.name) for gpu in gpus]
        for _ in range(2):
            (line,) = restore_left_over(tmp_path)
            assert line.startswith(f"left over, cannot be restored: {gpu}")
        for away, there in zip(hidden, gpus, strict=True):
            away.rename(there)
        assert len(restore_left_over(tmp_path)) == 1
        assert machine.is_original()


def test_a_gpu_that_refuses_the_last_reset_is_left_to_the_next_start(tmp_path: Path) -> None:
    """The process that gave up goes on, and does not hold the journal."""
    for machine in start(BY_NAME["nvml"], tmp_path):
        clocks = machine.layout.open(tmp_path)
        clocks.set(middle(machine.layout))
        refusal = tmp_path / "nvml/gpu0/reset_gpu_locked_clocks"
        refusal.write_text("!4\n")
        del clocks
        refusal.unlink()
        assert len(journals(tmp_path)) == 1
        assert len(restore_left_over(tmp_path)) == 1
        assert machine.is_original()


def test_restore_tries_every_file_and_lists_failures(acpi: Machine) -> None:
    clocks = acpi.layout.open(acpi.root)
    clocks.set(Setting(2600.0))
    bad = acpi.root / CPU0 / "scaling_governor"
    bad.unlink()
    bad.mkdir()
    with pytest.raises(ClocksError) as caught:
        clocks.restore()
    assert str(bad) in caught.value.what
    assert "ondemand" in caught.value.what
    assert CPU1 not in caught.value.what
    cpu1 = {name: held for name, held in acpi.original.items() if name.startswith(CPU1)}
    there = settled_contents(acpi.root)
    assert {name: there[name] for name in cpu1} == cpu1
    # The journal stays, and no other control sets clocks over it.
    del clocks, caught  # whose trace holds the control too
    assert journals(acpi.root)
    again = acpi.layout.open(acpi.root)
    with pytest.raises(ClocksError, match="could not be restored"):
        again.set(Setting(1200.0))
    bad.rmdir()
    bad.write_text("userspace\n")
    assert restore_left_over(acpi.root)
    assert acpi.is_original()


def blocked_journal(machine: Machine, name: str) -> Path:
    """A folder where the journal's new text would be written."""
    machine.folder().mkdir(mode=0o700, exist_ok=True)
    blocked = machine.folder() / f"{name}@{platform.node()}.new"
    blocked.mkdir()
    return blocked


@pytest.mark.parametrize("name", ["cpufreq-acpi", "jetson-orin", "uncore-2s", "powercap", *GPUS])
def test_clocks_that_cannot_be_recorded_are_not_set(name: str, tmp_path: Path) -> None:
    layout = BY_NAME[name]
    for machine in start(layout, tmp_path):
        kept = layout.control
        if name in GPUS:
            kept += "-" + named(tmp_path, layout).replace(":", "_")
        blocked = blocked_journal(machine, kept)
        clocks = layout.open(tmp_path)
        with pytest.raises(ClocksError, match="Is a directory, so no clock was") as caught:
            clocks.set(middle(layout))
        assert f"df {machine.folder()}" in caught.value.remedy
        assert machine.is_original()
        assert journals(tmp_path) == []
        blocked.rmdir()  # and no lock is held, nor is a clock taken for set
        again = layout.open(tmp_path)
        again.set(middle(layout))
        again.restore()
        assert machine.is_original()


def test_a_further_clock_that_cannot_be_recorded_is_not_set_and_the_first_is_restored(
    tmp_path: Path,
) -> None:
    layout = BY_NAME["cpufreq-uncore-2s"]
    for machine in start(layout, tmp_path):
        clocks = layout.open(tmp_path)
        clocks.set(Setting(1700.0))
        before, journal = settled_contents(tmp_path), machine.journal().read_text()
        blocked_journal(machine, "cpufreq")
        with pytest.raises(ClocksError, match="so no clock was changed"):
            clocks.set(Setting(1700.0, 1200.0))
        assert settled_contents(tmp_path) == before
        assert machine.journal().read_text() == journal
        clocks.restore()
        assert machine.is_original()
        assert journals(tmp_path) == []


def test_of_two_gpus_both_are_locked_at_what_both_offer_and_both_unlocked(tmp_path: Path) -> None:
    layout = replace(BY_NAME["nvml"], options={"devices": [0, 1]})
    gpus = [tmp_path / "nvml/gpu0", tmp_path / "nvml/gpu1"]
    for machine in start(layout, tmp_path):
        (gpus[1] / "supported_memory_clocks_mhz").write_text("2619\n")
        (gpus[1] / "supported_graphics_clocks_mhz_2619").write_text("1980 1200 1001\n")
        original = contents(tmp_path)
        clocks = layout.open(tmp_path)
        assert clocks.legal() == [Setting(1200.0, 2619.0), Setting(1980.0, 2619.0)]
        for setting in (Setting(1001.0, 2619.0), Setting(1200.0, 1593.0)):
            with pytest.raises(IllegalClockError):
                clocks.set(setting)
        clocks.set(Setting(1200.0, 2619.0))
        for gpu in gpus:
            assert (gpu / "gpu_locked_clocks_mhz").read_text() == "1200 1200\n"
            assert (gpu / "memory_locked_clocks_mhz").read_text() == "2619 2619\n"
        assert len(journals(tmp_path)) == 2
        clocks.restore()
        assert contents(tmp_path) == original
        assert journals(tmp_path) == []
        # What a killed process left on both is restored, too.
        replace(machine, original=original).killed(Setting(1980.0, 2619.0))
        assert len(restore_left_over(tmp_path)) == 2
        assert contents(tmp_path) == original


def test_where_a_gpu_refuses_the_core_clock_only_its_memory_is_unlocked(tmp_path: Path) -> None:
    """A reset of a clock that was never locked may be refused."""
    for machine in start(BY_NAME["nvml"], tmp_path):
        gpu = tmp_path / "nvml/gpu0"
        (gpu / "gpu_locked_clocks_mhz").write_text("!2\n")
        (gpu / "reset_gpu_locked_clocks").write_text("!4\n")
        before = contents(tmp_path)
        clocks = machine.layout.open(tmp_path)
        with pytest.raises(IllegalClockError, match=r"^GPU 0 .*locking core 1200 MHz: Invalid"):
            clocks.set(Setting(1200.0, 1593.0))
        assert (gpu / "memory_locked_clocks_mhz").read_text() == "1593 1593\n"
        clocks.restore()
        assert contents(tmp_path) == before
        assert journals(tmp_path) == []


@pytest.mark.parametrize("name", GPUS)
def test_what_was_set_went_with_the_driver_that_was_unloaded(name: str, tmp_path: Path) -> None:
    """Nothing is left to restore, so later starts need not try again."""
    for machine in start(BY_NAME[name], tmp_path):
        machine.killed(middle(machine.layout))
        gpu = named(tmp_path, machine.layout)
        not_loaded = 9 if machine.layout.tree.startswith("nvml") else 34
        (tmp_path / machine.layout.device).with_name("init").write_text(f"!{not_loaded}\n")
        (line,) = restore_left_over(tmp_path)
        assert line.startswith(f"left over, but its device is gone: {gpu}")
        assert journals(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "wrong", "said"),
    [("gpu", 0, "not text"), ("core", 1, "not text"), ("mem", None, "not text"), ("gpu", "", "")],
)
def test_a_journal_of_gpus_with_a_wrong_entry_is_not_replayed(
    tmp_path: Path, key: str, wrong: object, said: str
) -> None:
    for machine in start(BY_NAME["nvml"], tmp_path):
        machine.killed(middle(machine.layout))
        left = contents(tmp_path)
        journal = machine.journal()
        kept = json.loads(journal.read_text())
        entry = dict(kept["found"][0])
        kept["found"].append({k: v for k, v in entry.items() if k != key})
        if said:
            kept["found"][-1][key] = wrong
        journal.write_text(json.dumps(kept))
        (line,) = restore_left_over(tmp_path)
        assert "holds what nvml does not write" in line
        assert said in line
        assert contents(tmp_path) == left


def test_a_gpu_that_lists_no_clocks_is_named_with_how_to_ask_it(tmp_path: Path) -> None:
    for machine in start(BY_NAME["nvml"], tmp_path):
        for mhz in (2619, 1593):
            (tmp_path / f"nvml/gpu0/supported_graphics_clocks_mhz_{mhz}").write_text("\n")
        with pytest.raises(ClocksError, match=r"^GPU 0 .* lists no clocks") as caught:
            machine.layout.open(tmp_path).legal()
        assert "nvidia-smi -q -d SUPPORTED_CLOCKS" in caught.value.remedy


def refused(layout: ClockLayout, root: Path) -> tuple[str, str]:
    """What is wrong where clocks cannot be set, and the remedy."""
    clocks = layout.open(root)
    with pytest.raises(ClocksError) as refusal:
        clocks.set(layout.legal[-1])
    clocks.restore()
    return refusal.value.what, refusal.value.remedy


@pytest.mark.parametrize("name", FILES)
def test_permission_denied_says_how_to_fix_it(name: str) -> None:
    """Root may write any file, so another user sets the clocks, in another process."""
    layout = BY_NAME[name]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        root = Path(directory) / "root"
        original = copy(layout, root)
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o444)
        (root / "tmp").chmod(0o1777)
        layout.open(root)  # Imports what the other user may not be able to read.
        what, remedy = answer_without_privileges(lambda: refused(layout, root))
        assert contents(root) == original
        assert journals(root) == []
        (folder,) = (root / "tmp").iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    path = next(word for word in what.split() if word.startswith(str(root)))
    assert "Permission denied" in what
    for part in ("sudo", f"chgrp GROUP {path}", f"chmod g+w {path}", "udev"):
        assert part in remedy


def test_nvml_without_permission(tmp_path: Path) -> None:
    for machine in start(BY_NAME["nvml"], tmp_path):
        locks = tmp_path / "nvml/gpu0/memory_locked_clocks_mhz"
        locks.write_text("!4\n")
        before = contents(tmp_path)
        with pytest.raises(ClocksError) as caught:
            set_in(machine)
        assert "root" in caught.value.remedy
        assert contents(tmp_path) == before
        assert journals(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        # A bit mask of the kernel's: it keeps nine bits of a number, and shows them its own way.
        ("coredump_filter", r"rate: 2133000000 was requested, and the hardware took 0000"),
        # It refuses numbers above 1000 (proc_pid_oom_score_adj(5)).
        ("oom_score_adj", r"rate: the kernel refused 2133000000"),
    ],
)
def test_a_value_that_the_kernel_refused_or_changed(file: str, said: str, tmp_path: Path) -> None:
    """Real files of the kernel (those of a process) replace a file that accepts any text."""
    layout = BY_NAME["jetson-orin"]
    original = copy(layout, tmp_path)
    (tmp_path / ORIN_EMC / "rate").unlink()
    (tmp_path / ORIN_EMC / "rate").symlink_to(f"/proc/self/{file}")

    def work() -> None:
        with ExitStack() as stack:
            clocks = layout.open(tmp_path)
            stack.callback(clocks.restore)
            with pytest.raises(IllegalClockError, match=said):
                clocks.set(Setting(306.0, 2133.0))

    assert os.waitpid(fork(work), 0)[1] == 0
    for name in (f"{ORIN_GPU}/min_freq", f"{ORIN_GPU}/device/railgate_enable"):
        assert (tmp_path / name).read_bytes() == original[name]
    assert journals(tmp_path) == []


def test_nvml_runs_slower_only_for_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock of the tree never comes, however long it is waited for.
    monkeypatch.setattr(nvml, "SETTLE_S", 0.2)
    for machine in start(BY_NAME["nvml"], tmp_path):
        clocks = machine.layout.open(tmp_path)
        (tmp_path / "nvml/gpu0/held_to_mhz").write_text("1200\n")
        (tmp_path / "nvml/gpu0/event_reasons").write_text("2\n")
        with pytest.raises(IllegalClockError, match="runs at 1200 MHz"):
            clocks.set(Setting(1800.0, 2619.0))
        (tmp_path / "nvml/gpu0/event_reasons").write_text(f"{0x4 | 0x40 | 0x2 | 0x8000}\n")
        clocks.set(Setting(1800.0, 2619.0))
        state = clocks.state()
        assert state.setting == Setting(1200.0, 2619.0)
        assert state.throttled == (
            "hardware thermal slowdown",
            "reason 0x8000",
            "software power cap",
        )
        assert state.temperature_c is not None
        clocks.restore()


def test_nvml_waits_two_seconds_for_a_clock_and_no_longer(tmp_path: Path) -> None:
    for machine in start(BY_NAME["nvml"], tmp_path):
        clocks = machine.layout.open(tmp_path)
        held = tmp_path / "nvml/gpu0/held_to_mhz"
        held.write_text("1200\n")
        (tmp_path / "nvml/gpu0/event_reasons").write_text("0\n")
        comes = threading.Timer(0.4, held.unlink)
        began_s = time.monotonic()
        comes.start()
        clocks.set(Setting(1800.0, 2619.0))  # a GPU that leaves its idle state
        assert 0.4 <= time.monotonic() - began_s < 1.9
        comes.join()
        held.write_text("1200\n")
        began_s = time.monotonic()
        with pytest.raises(
            IllegalClockError, match="1800 MHz was requested, and it runs at 1200 MHz"
        ):
            clocks.set(Setting(1800.0, 2619.0))
        assert 2.0 <= time.monotonic() - began_s < 5.0
        clocks.restore()


def test_nvml_lists_the_core_clocks_of_a_memory_clock(tmp_path: Path) -> None:
    for machine in start(BY_NAME["nvml"], tmp_path):
        clocks = machine.layout.open(tmp_path)
        with pytest.raises(
            IllegalClockError, match="at memory 1593 MHz; the nearest: 1185 and 1200"
        ):
            clocks.set(Setting(1980.0, 1593.0))
        clocks.set(Setting(1980.0, 2619.0))
        clocks.restore()


@pytest.mark.parametrize("mhz", [3501.0, 799.999])
def test_cpufreq_says_what_a_policy_offers(tmp_path: Path, mhz: float) -> None:
    for machine in start(BY_NAME["cpufreq-intel-pstate"], tmp_path):
        with pytest.raises(IllegalClockError) as refusal:
            machine.layout.open(tmp_path).set(Setting(mhz, None))
        assert str(refusal.value) == f"core {mhz:g} MHz: {CPU0} offers 800 to 3500 MHz"


def test_where_one_policy_lists_clocks_and_another_has_a_range_those_in_both_are_legal(
    tmp_path: Path,
) -> None:
    copy(ACPI, tmp_path)
    (tmp_path / CPU1 / "scaling_available_frequencies").unlink()
    (tmp_path / CPU1 / "cpuinfo_min_freq").write_text("1800000\n")
    (tmp_path / CPU1 / "cpuinfo_max_freq").write_text("2200000\n")
    assert ACPI.open(tmp_path).legal() == [Setting(1800.0), Setting(2200.0)]


@pytest.mark.parametrize("boost", ["1", "0", None])
def test_boost_clocks_are_legal_while_boost_is_on(tmp_path: Path, boost: str | None) -> None:
    """Format: Documentation/admin-guide/pm/cpufreq.rst, The boost file in sysfs."""
    copy(ACPI, tmp_path)
    listed = [setting.core_mhz for setting in ACPI.legal]
    for cpu in (CPU0, CPU1):
        (tmp_path / cpu / "scaling_boost_frequencies").write_text("3100000 2900000 \n")
    switch = tmp_path / "sys/devices/system/cpu/cpufreq/boost"
    switch.parent.mkdir(exist_ok=True)
    if boost is not None:
        switch.write_text(f"{boost}\n")
    found = [setting.core_mhz for setting in ACPI.open(tmp_path).legal() or ()]
    assert found == ([*listed, 2900.0, 3100.0] if boost == "1" else listed)
    (tmp_path / CPU1 / "scaling_boost_frequencies").unlink()  # those that all CPUs have
    assert [setting.core_mhz for setting in ACPI.open(tmp_path).legal() or ()] == listed


def test_the_uncore_clock_is_the_mean_of_what_all_domains_report(tmp_path: Path) -> None:
    domains = tuple(UncoreDomain(name, 800_000, 2_400_000) for name in ("a", "b"))
    assert current_mhz(tmp_path, ()) is None
    for name, khz in (("a", "1800000"), ("b", "2100000")):
        assert current_mhz(tmp_path, domains) is None
        (tmp_path / name).mkdir()
        (tmp_path / name / "current_freq_khz").write_text(f"{khz}\n")
    assert current_mhz(tmp_path, domains) == 1950.0


# --- Two at once ----------------------------------------------------------------------------------


def test_two_processes_at_once(machine: Machine) -> None:
    child = machine.held(middle(machine.layout))
    try:
        before = settled_contents(machine.root)
        clocks = machine.layout.open(machine.root)
        assert restore_left_over(machine.root) == []
        with pytest.raises(ClocksInUseError, match=f"process {child}") as caught:
            clocks.set(machine.layout.legal[0])
        assert caught.value.pid == child
        assert f"kill {child}" in caught.value.remedy
        clocks.restore()
        assert settled_contents(machine.root) == before
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
    assert machine.is_original()
    clocks.set(machine.layout.legal[0])
    clocks.restore()
    assert machine.is_original()


def test_cpufreq_with_uncore_locks_out_the_control_uncore(tmp_path: Path) -> None:
    for machine in start(BY_NAME["cpufreq-uncore-2s"], tmp_path):
        child = machine.held(machine.layout.legal[0])
        try:
            with pytest.raises(ClocksInUseError):
                BY_NAME["uncore-2s"].open(tmp_path).set(Setting(None, 1800.0))
        finally:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)


def test_a_forked_child_neither_holds_nor_restores(acpi: Machine) -> None:
    clocks = acpi.layout.open(acpi.root)
    clocks.set(Setting(1800.0))
    before = settled_contents(acpi.root)

    def child() -> None:
        clocks.restore()
        put_back_held()  # what its end calls

    assert os.waitpid(fork(child), 0)[1] == 0
    assert settled_contents(acpi.root) == before
    clocks.restore()
    assert acpi.is_original()


# --- Journals -------------------------------------------------------------------------------------


def test_the_journal_is_private_and_exists_before_the_first_write(acpi: Machine) -> None:
    child = acpi.held(Setting(1800.0))
    assert acpi.folder().stat().st_mode & 0o777 == 0o700
    assert acpi.journal().stat().st_mode & 0o777 == 0o600
    kept = json.loads(acpi.journal().read_text())
    assert kept["control"] == "cpufreq"
    assert kept["pid"] == child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # The process was killed between the journal and its writes: nothing is to be put back.
    for name, held in acpi.original.items():
        (acpi.root / name).write_bytes(held)
    settled_contents(acpi.root)
    assert restore_left_over(acpi.root) == []
    assert journals(acpi.root) == []
    assert acpi.is_original()


def test_an_incomplete_journal_is_renamed_and_reported(acpi: Machine) -> None:
    acpi.killed(Setting(1800.0))
    journal = acpi.journal()
    whole = journal.read_text()
    left = contents(acpi.root)
    for text in (whole[: len(whole) // 2], "", "[]", "{}", "[" * 100_000):
        journal.write_text(text)
        (line,) = restore_left_over(acpi.root)
        assert "damaged" in line
        assert contents(acpi.root) == left
        assert not journal.exists()
        assert journal.with_suffix(".damaged").read_text() == text
        assert restore_left_over(acpi.root) == []
    journal.write_text(whole)
    assert restore_left_over(acpi.root)
    assert acpi.is_original()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"version": 2}, "has version 2 and not 1"),
        ({"found": {}}, "is damaged"),
        ({"found": ["sys"]}, "is damaged"),
        ({"control": ["cpufreq"]}, "is damaged"),
    ],
)
def test_a_journal_of_another_version_or_shape_is_kept_and_not_replayed(
    acpi: Machine, wrong: dict[str, object], said: str
) -> None:
    acpi.killed(Setting(1800.0))
    journal, left = acpi.journal(), contents(acpi.root)
    whole = json.loads(journal.read_text())
    journal.write_text(json.dumps(whole | wrong))
    (line,) = restore_left_over(acpi.root)
    assert f"{journal} {said}: nothing in it was restored" in line
    assert "check this node's clocks, or reboot it" in line
    assert contents(acpi.root) == left
    assert json.loads(journal.with_suffix(".damaged").read_text()) == whole | wrong


def test_limits_that_are_no_numbers_are_not_restored(tmp_path: Path) -> None:
    for machine in start(BY_NAME["cpufreq-intel-pstate"], tmp_path):
        machine.killed(middle(machine.layout))
        journal, left = machine.journal(), contents(tmp_path)
        kept = json.loads(journal.read_text())
        kept["found"][-1]["found"][0] = "low\n"
        journal.write_text(json.dumps(kept))
        (line,) = restore_left_over(tmp_path)
        assert "holds what cpufreq does not write" in line
        assert contents(tmp_path) == left


def test_a_lock_that_is_a_link_is_reported_and_nothing_is_restored(acpi: Machine) -> None:
    acpi.killed(Setting(1800.0))
    left = contents(acpi.root)
    lock = acpi.journal().with_suffix(".lock")
    lock.unlink()
    lock.symlink_to(acpi.root / "tmp/elsewhere")
    (line,) = restore_left_over(acpi.root)
    assert f"{lock} is a link" in line
    assert f"sudo rm -r {lock}" in line
    assert contents(acpi.root) == left
    assert not (acpi.root / "tmp/elsewhere").exists()
    lock.unlink()
    assert restore_left_over(acpi.root)
    assert acpi.is_original()


def test_a_folder_that_cannot_be_looked_into_is_named_and_the_other_is_used(
    acpi: Machine,
) -> None:
    """Here /run is a link to itself."""
    (acpi.root / "run").rmdir()
    acpi.killed(Setting(1800.0))
    (acpi.root / "run").symlink_to("run")
    first, *others = restore_left_over(acpi.root)
    assert first.startswith(f"{acpi.root}/run/campaign-clocks: Too many levels of symbolic links")
    assert first.endswith("nothing in it was restored")
    assert all(line.startswith("left over, restored: ") for line in others)
    (acpi.root / "run").unlink()
    assert acpi.is_original()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("etc/passwd", "root::0:0\n"),
        ("../outside", "1\n"),
        (f"{CPU0}/../../../../../../outside", "1\n"),
        (f"{CPU0}/scaling_governor/../../../cpu1/online", "0\n"),
        (f"{CPU0}/energy_performance_preference", "power\n"),
        (f"{CPU0}/scaling_governor", "two words\n"),
        (f"{CPU0}/scaling_governor", 7),
        (f"{ORIN_GPU}/min_freq", "1\n"),
        ("sys/devices/system/cpu/cpu77/cpufreq/scaling_governor", "leads-out\n"),
    ],
)
def test_a_journal_with_files_that_no_control_writes_is_not_replayed(
    acpi: Machine, path: str, text: object
) -> None:
    """Not even its valid entries are replayed, because this program did not write it."""
    acpi.killed(Setting(1800.0))
    outside = acpi.root / "tmp/elsewhere"
    outside.mkdir()
    (outside / "scaling_governor").write_text("x\n")
    (acpi.root / "sys/devices/system/cpu/cpu77").mkdir()
    (acpi.root / "sys/devices/system/cpu/cpu77/cpufreq").symlink_to(outside)
    left = contents(acpi.root)
    journal = acpi.journal()
    kept = json.loads(journal.read_text())
    kept["found"].append({"file": path, "found": text, "follows": False})
    journal.write_text(json.dumps(kept))
    (line,) = restore_left_over(acpi.root)
    assert "what cpufreq does not write" in line
    assert contents(acpi.root) == left
    assert (outside / "scaling_governor").read_text() == "x\n"


@pytest.mark.parametrize("control", ["fixed", "simulated", "os", "../../evil", "jetson"])
def test_a_journal_of_another_control_is_not_replayed(acpi: Machine, control: str) -> None:
    acpi.killed(Setting(1800.0))
    left = contents(acpi.root)
    journal = acpi.journal()
    kept = json.loads(journal.read_text())
    journal.write_text(json.dumps(kept | {"control": control}))
    assert len(restore_left_over(acpi.root)) == 1
    assert contents(acpi.root) == left
    # Not under a name of its own either.
    named = journal.with_name(journal.name.replace("cpufreq", control.replace("/", "_")))
    named.write_text(json.dumps(kept | {"control": control}))
    assert len(restore_left_over(acpi.root)) == (not control.startswith("."))
    assert contents(acpi.root) == left


def test_a_journal_or_folder_of_another_user_is_refused(acpi: Machine) -> None:
    acpi.killed(Setting(1800.0))
    left = contents(acpi.root)
    journal, folder = acpi.journal(), acpi.folder()
    text = journal.read_bytes()

    def refused(where: Path) -> None:
        assert any(str(where) in line for line in restore_left_over(acpi.root))
        assert contents(acpi.root) == left
        with pytest.raises(ClocksError, match=str(where)):
            acpi.layout.open(acpi.root).set(Setting(1200.0))
        assert contents(acpi.root) == left

    journal.chmod(0o622)
    refused(journal)
    journal.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(journal, 65534, 65534)
        refused(journal)
        os.chown(journal, 0, 0)
        os.chown(folder, 65534, 65534)
        refused(folder)
        os.chown(folder, 0, 0)
    elsewhere = acpi.root / "tmp/journal"
    journal.rename(elsewhere)
    journal.symlink_to(elsewhere)
    refused(journal)
    journal.unlink()
    os.link(elsewhere, journal)
    refused(journal)
    journal.unlink()
    os.mkfifo(journal)
    refused(journal)
    journal.unlink()
    elsewhere.unlink()
    journal.write_bytes(text)
    journal.chmod(0o600)
    folder.chmod(0o777)
    refused(folder)
    folder.chmod(0o700)
    folder.rename(acpi.root / "tmp/folder")
    folder.symlink_to(acpi.root / "tmp/folder")
    refused(folder)
    folder.unlink()
    (acpi.root / "tmp/folder").rename(folder)
    (acpi.root / "run").chmod(0o777)
    refused(folder.parent)
    (acpi.root / "run").chmod(0o755)
    assert restore_left_over(acpi.root)
    assert acpi.is_original()


def test_without_run_the_journal_is_in_a_private_folder_of_tmp(acpi: Machine) -> None:
    (acpi.root / "run").rmdir()
    acpi.killed(Setting(1800.0))
    folder = acpi.root / f"tmp/campaign-clocks-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert restore_left_over(acpi.root)
    assert acpi.is_original()
    folder.rename(acpi.root / "tmp/other")
    (acpi.root / f"tmp/campaign-clocks-{os.geteuid()}").symlink_to(acpi.root / "tmp/other")
    with pytest.raises(ClocksError, match="link"):
        acpi.layout.open(acpi.root).set(Setting(1800.0))
    assert acpi.is_original()


def test_without_any_folder_no_clock_is_changed(acpi: Machine) -> None:
    (acpi.root / "run").rmdir()
    shutil.rmtree(acpi.root / "tmp")
    with pytest.raises(ClocksError, match="no folder to record clock values") as refusal:
        acpi.layout.open(acpi.root).set(Setting(1800.0))
    for folder in (acpi.root / "run", acpi.root / "tmp"):
        assert re.search(rf"{folder}/campaign-clocks\S*: No such file", refusal.value.what)
    assert contents(acpi.root) == acpi.original


def test_a_journal_of_another_node_on_a_shared_disk_is_left_alone(acpi: Machine) -> None:
    acpi.killed(Setting(1800.0))
    journal = acpi.journal()
    assert journal.name == f"cpufreq@{platform.node()}.json"
    other = journal.rename(journal.with_name("cpufreq@some-other-node.json"))
    left = contents(acpi.root)
    assert restore_left_over(acpi.root) == []
    clocks = acpi.layout.open(acpi.root)
    clocks.set(Setting(2600.0))
    clocks.restore()
    assert settled_contents(acpi.root) == left
    other.rename(journal)
    assert restore_left_over(acpi.root)
    assert acpi.is_original()


def test_a_journal_of_an_earlier_boot_is_dropped(acpi: Machine) -> None:
    boot = acpi.root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("1bf2a3d4-0000-4000-8000-000000000001\n")
    acpi.killed(Setting(1800.0))
    boot.write_text("1bf2a3d4-0000-4000-8000-000000000002\n")
    left = contents(acpi.root)
    (line,) = restore_left_over(acpi.root)
    assert "dropped, because a reboot" in line
    assert contents(acpi.root) == left
    assert journals(acpi.root) == []


def test_a_killed_restore_is_completed_by_the_next_start(acpi: Machine) -> None:
    acpi.killed(Setting(2600.0))
    text = acpi.journal().read_bytes()
    # As if it was killed after some files, and while it wrote one, and before the journal went.
    (acpi.root / CPU0 / "scaling_governor").write_text("ondemand\n")
    (acpi.root / CPU1 / "scaling_max_freq").write_text("")
    assert restore_left_over(acpi.root)
    assert acpi.is_original()
    acpi.folder().joinpath("x").write_bytes(b"")
    (acpi.folder() / f"cpufreq@{os.uname().nodename}.json").write_bytes(text)
    assert restore_left_over(acpi.root) == []
    assert acpi.is_original()


# --- One control's own ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "low"),
    [
        ("cpufreq-intel-pstate", f"{CPU0}/scaling_min_freq"),
        ("uncore-2s", f"{UNCORE}/package_00_die_00/min_freq_khz"),
        ("jetson-orin", f"{ORIN_GPU}/min_freq"),
    ],
)
def test_the_lower_limit_is_never_above_the_upper(name: str, low: str, tmp_path: Path) -> None:
    """Checked by the order of the writes, as the kernel reports them."""
    layout = BY_NAME[name]
    copy(layout, tmp_path)
    low_path = tmp_path / low
    high_path = low_path.with_name(low_path.name.replace("min", "max"))
    watch = Watch([low_path.parent])
    clocks = layout.open(tmp_path)
    lowest, highest = layout.legal[0], layout.legal[-1]

    def order() -> list[str]:
        return [name for name in watch.names() if name in (low_path.name, high_path.name)]

    clocks.set(highest)
    assert order() == [high_path.name, low_path.name]
    clocks.set(lowest)
    assert order() == [low_path.name, high_path.name]
    clocks.set(highest)
    assert order() == [high_path.name, low_path.name]
    clocks.set(lowest)
    order()
    clocks.restore()
    assert order() == [high_path.name, low_path.name]


def test_cpus_that_share_a_policy_are_set_once(tmp_path: Path) -> None:
    """On a machine ``cpuN/cpufreq`` is a link to the folder of its policy."""
    copy(ACPI, tmp_path)
    cpus = tmp_path / "sys/devices/system/cpu"
    shutil.rmtree(cpus / "cpu1/cpufreq")
    (cpus / "cpu0/cpufreq").rename(cpus / "cpufreq/policy0")
    for cpu in ("cpu0", "cpu1"):
        (cpus / cpu / "cpufreq").symlink_to("../cpufreq/policy0")
    original = contents(tmp_path)
    with ACPI.running(tmp_path):
        clocks = ACPI.open(tmp_path)
        clocks.set(Setting(1800.0))
        kept = json.loads(next(tmp_path.glob("run/*/*.json")).read_text())
        assert len(kept["found"]) == 3
        settled_contents(tmp_path)
        assert clocks.state().setting == Setting(1800.0)
        clocks.restore()
        assert settled_contents(tmp_path) == original


def test_the_speed_of_a_userspace_governor_is_restored(acpi: Machine) -> None:
    for cpu in (CPU0, CPU1):
        (acpi.root / cpu / "scaling_governor").write_text("userspace\n")
        (acpi.root / cpu / "scaling_setspeed").write_text("1800000\n")
    before = settled_contents(acpi.root)
    assert before[f"{CPU1}/scaling_setspeed"] == b"1800000\n"
    clocks = acpi.layout.open(acpi.root)
    clocks.set(Setting(2600.0))
    clocks.restore()
    assert settled_contents(acpi.root) == before
    acpi.killed(Setting(1200.0))
    restore_left_over(acpi.root)
    assert settled_contents(acpi.root) == before


def test_throttling_since_the_clocks_were_set_is_reported(acpi: Machine) -> None:
    clocks = acpi.layout.open(acpi.root)
    clocks.set(Setting(1800.0))
    assert clocks.state().throttled == ()
    assert clocks.state().temperature_c == 51.0
    count = acpi.root / "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count"
    count.write_text("4\n")
    assert clocks.state().throttled == ("thermal",)
    clocks.restore()


def test_unreadable_uncore_limits_are_restored_to_the_initial_limits(tmp_path: Path) -> None:
    for machine in start(BY_NAME["uncore-2s"], tmp_path):
        path = tmp_path / UNCORE / "package_01_die_00/min_freq_khz"
        path.write_text("")
        clocks = machine.layout.open(tmp_path)
        clocks.set(Setting(None, 1800.0))
        clocks.restore()
        assert path.read_text() == "1200000\n"


def test_a_jetson_without_debugfs_sets_only_the_gpu(tmp_path: Path) -> None:
    layout = BY_NAME["jetson-nano"]
    copy(layout, tmp_path)
    shutil.rmtree(tmp_path / NANO_EMC)
    clocks = layout.open(tmp_path)
    assert clocks.legal() == [Setting(76.8), Setting(460.8), Setting(921.6)]
    with pytest.raises(ClocksError, match=r"override\.emc") as caught:
        clocks.set(Setting(76.8, 204.0))
    assert "mount -t debugfs" in caught.value.remedy
    clocks.set(Setting(76.8))
    clocks.restore()


def offered_and_refused(layout: ClockLayout, root: Path) -> list[object]:
    """The settings and the memory clock that a control shows, and how it refuses one."""
    clocks = layout.open(root)
    with pytest.raises(ClocksError) as refusal:
        clocks.set(Setting(306.0, 204.0))
    offered = [[setting.core_mhz, setting.mem_mhz] for setting in clocks.legal() or ()]
    return [offered, clocks.state().setting.mem_mhz, refusal.value.what, refusal.value.remedy]


def test_who_may_not_look_into_debugfs_is_offered_only_the_gpu_clocks() -> None:
    layout = BY_NAME["jetson-orin"]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        root = Path(directory) / "root"
        copy(layout, root)
        (root / "sys/kernel/debug").chmod(0o700 if os.geteuid() == 0 else 0o000)
        layout.open(root)  # Imports what the other user may not be able to read.
        offered, mem_mhz, what, remedy = answer_without_privileges(
            lambda: offered_and_refused(layout, root)
        )
        (root / "sys/kernel/debug").chmod(0o755)
    assert offered == [[306.0, None], [612.0, None], [918.0, None], [1300.5, None]]
    assert mem_mhz is None
    assert "memory 204 MHz cannot be set" in what
    assert "run as root" in remedy


def test_without_a_list_of_rates_a_jetson_tries_the_sites_memory_clocks(tmp_path: Path) -> None:
    layout = replace(BY_NAME["jetson-orin"], mem_mhz=(100.0, 204.0, 2133.0, 5000.0))
    for machine in start(layout, tmp_path):
        (tmp_path / "sys/kernel/debug/bpmp/debug/emc/possible_rates").unlink()
        original = contents(tmp_path)
        clocks = layout.open(tmp_path)
        assert {setting.mem_mhz for setting in clocks.legal() or ()} == {204.0, 2133.0}
        clocks.set(Setting(306.0, 2133.0))
        assert layout.shown(tmp_path) == Setting(306.0, 2133.0)
        with pytest.raises(IllegalClockError, match=r"^memory 5000 MHz is not .* 204 and 3199$"):
            clocks.set(Setting(306.0, 5000.0))
        clocks.restore()
        assert settled_contents(tmp_path) == original
        # With no clock of the site in the range, the memory's is left alone.
        other = replace(machine.layout, mem_mhz=(100.0,)).open(tmp_path).legal()
        assert other == [Setting(306.0), Setting(612.0), Setting(918.0), Setting(1300.5)]


def test_a_jetson_gpu_that_is_never_switched_off_has_its_limits_set_alone(tmp_path: Path) -> None:
    layout = BY_NAME["jetson-orin"]
    original = copy(layout, tmp_path)
    (tmp_path / ORIN_GPU / "device/railgate_enable").unlink()
    clocks = layout.open(tmp_path)
    clocks.set(Setting(612.0))
    kept = json.loads(next(tmp_path.glob("run/*/*.json")).read_text())
    assert [entry.get("limits") for entry in kept["found"]] == [
        [f"{ORIN_GPU}/min_freq", f"{ORIN_GPU}/max_freq"]
    ]
    assert (tmp_path / ORIN_GPU / "max_freq").read_text() == "612000000\n"
    clocks.restore()
    assert contents(tmp_path).items() <= original.items()


def test_jetson_clocks_that_cannot_be_read_are_unknown_and_not_zero(tmp_path: Path) -> None:
    layout = BY_NAME["jetson-orin"]
    copy(layout, tmp_path)
    clocks = layout.open(tmp_path)
    (tmp_path / ORIN_GPU / "cur_freq").write_text("\n")
    assert clocks.state().setting == Setting(None, clocks.state().setting.mem_mhz)
    assert clocks.state().setting.mem_mhz is not None
    (tmp_path / ORIN_EMC / "rate").unlink()
    assert clocks.state().setting == AS_FOUND


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("16000000.gpu", "has no 16000000.gpu, among: 15340000.vic, 15480000.nvdec, 17000000.gpu"),
        (None, "has 2 GPUs with a known name, among: 15340000.vic, 15480000.nvdec, 17000000.gpu"),
    ],
)
def test_a_jetson_gpu_that_is_not_found_is_said_with_those_that_are_there(
    tmp_path: Path, name: str | None, said: str
) -> None:
    layout = replace(BY_NAME["jetson-orin"], options={"gpu": name} if name else {})
    copy(layout, tmp_path)
    if name is None:
        shutil.copytree(tmp_path / ORIN_GPU, tmp_path / "sys/class/devfreq/gpu-gpc-0")
    with pytest.raises(ClocksError) as refusal:
        layout.open(tmp_path)
    assert said in refusal.value.what
    assert "option `gpu`" in refusal.value.remedy


def test_without_a_list_only_the_cpus_are_set_that_the_process_may_run_on(tmp_path: Path) -> None:
    """Another job may run on the others."""
    own = min(os.sched_getaffinity(0))
    copy(ACPI, tmp_path)
    cpus = tmp_path / "sys/devices/system/cpu"
    (cpus / "cpu0").rename(cpus / "own")
    (cpus / "cpu1").rename(cpus / f"cpu{own + 1}")
    (cpus / "own").rename(cpus / f"cpu{own}")
    original = contents(tmp_path)
    layout = replace(ACPI, options={})

    def work() -> None:
        os.sched_setaffinity(0, {own})
        clocks = layout.open(tmp_path)
        clocks.set(Setting(1800.0))
        changed = {name for name, held in contents(tmp_path).items() if held != original[name]}
        folder = f"sys/devices/system/cpu/cpu{own}/cpufreq"
        assert f"{folder}/scaling_setspeed" in changed
        assert all(name.startswith(f"{folder}/") for name in changed)
        clocks.restore()

    with ACPI.running(tmp_path):
        assert os.waitpid(fork(work), 0)[1] == 0
        assert settled_contents(tmp_path) == original


def test_the_domains_of_cpufreq_with_uncore_are_those_of_the_option(tmp_path: Path) -> None:
    """Compute and I/O domains may have no clock in common."""
    shutil.copytree(TREES / "uncore-tpmi", tmp_path, dirs_exist_ok=True)
    layout = replace(
        BY_NAME["cpufreq-intel-pstate"],
        options={"cpus": "all", "uncore": True, "domain_ids": [0, 1]},
    )
    for machine in start(layout, tmp_path):
        clocks = layout.open(tmp_path)
        assert {setting.mem_mhz for setting in clocks.legal() or ()} == set(TPMI_COMPUTE)
        clocks.set(Setting(1700.0, 800.0))
        for folder, text in (("uncore00", b"800000\n"), ("uncore01", b"800000\n")):
            assert settled_contents(tmp_path)[f"{UNCORE}/{folder}/max_freq_khz"] == text
        other = f"{UNCORE}/uncore02/max_freq_khz"
        assert settled_contents(tmp_path)[other] == machine.original[other]
        clocks.restore()
        assert machine.is_original()


def test_uncore_domains_without_a_clock_in_common_offer_none(tmp_path: Path) -> None:
    layout = BY_NAME["uncore-2s"]
    for machine in start(layout, tmp_path):
        first, second = (tmp_path / UNCORE / f"package_0{i}_die_00" for i in (0, 1))
        (first / "initial_max_freq_khz").write_text("1500000\n")
        (second / "initial_min_freq_khz").write_text("1600000\n")
        before = contents(tmp_path)
        clocks = machine.layout.open(tmp_path)
        assert clocks.legal() == []
        with pytest.raises(
            IllegalClockError, match="memory 1500 MHz: the uncore offers none in comm"
        ):
            clocks.set(Setting(None, 1500.0))
        assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("tree", "ids", "what", "remedy"),
    [
        ("cpufreq-uncore-2s", [0], "has no domain ids", "leave the option domain_ids out"),
        ("uncore-tpmi", [7], "has no uncore domain to set", "modprobe intel_uncore_frequency"),
    ],
)
def test_uncore_domains_that_are_not_there(
    tmp_path: Path, tree: str, ids: list[int], what: str, remedy: str
) -> None:
    layout = replace(BY_NAME["uncore-tpmi"], tree=tree, options={"domain_ids": ids})
    copy(layout, tmp_path)
    with pytest.raises(ClocksError) as refusal:
        layout.open(tmp_path)
    assert what in refusal.value.what
    assert remedy in refusal.value.remedy


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("cpufreq-acpi", Setting(1800.0, 1800.0), "`uncore = true` sets the uncore clock"),
        ("uncore-2s", Setting(1700.0, 1200.0), "use cpufreq with uncore = true"),
    ],
)
def test_a_clock_of_another_kind_is_refused_with_the_control_that_sets_it(
    tmp_path: Path, name: str, setting: Setting, said: str
) -> None:
    copy(BY_NAME[name], tmp_path)
    with pytest.raises(IllegalClockError, match=said):
        BY_NAME[name].open(tmp_path).set(setting)


def test_all_cpus_of_a_machine_without_cpufreq(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    layout = replace(ACPI, options={"cpus": "all"})
    with pytest.raises(ClocksError, match="sys/devices/system/cpu: no CPU has") as refusal:
        layout.open(tmp_path)
    assert "cpupower frequency-info" in refusal.value.remedy


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cpufreq-acpi", f"{CPU1}/scaling_available_frequencies"),
        ("jetson-orin", f"{ORIN_GPU}/available_frequencies"),
    ],
)
def test_a_list_without_a_clock_or_without_text_is_named(
    tmp_path: Path, name: str, file: str
) -> None:
    copy(BY_NAME[name], tmp_path)
    for held, said in ((b" \n", "lists no clock"), (b"\xff\xfe\n", "does not hold text")):
        (tmp_path / file).write_bytes(held)
        with pytest.raises(ClocksError) as refusal:
            BY_NAME[name].open(tmp_path)
        assert refusal.value.what == f"{tmp_path / file} {said}"
        assert "dmesg" in refusal.value.remedy


def test_legal_clocks_are_unknown_without_a_list_and_site_clocks(tmp_path: Path) -> None:
    layout = BY_NAME["cpufreq-intel-pstate"]
    copy(layout, tmp_path)
    site = Site.model_validate(
        {
            "name": "none",
            "partitions": {"all": {}},
            "clocks": {"control": "cpufreq", "options": {"cpus": "0"}},
        }
    )
    assert open_control(site, tmp_path).legal() is None


@pytest.mark.parametrize(
    ("control", "options", "said"),
    [
        ("cpufreq", {"cpu": "0"}, "known: cpus, uncore, domain_ids"),
        ("cpufreq", {"cpus": [0]}, "'0-7,16'"),
        ("cpufreq", {"cpus": "3-1"}, "ends before it begins"),
        ("cpufreq", {"uncore": 1}, "true or false"),
        ("cpufreq", {"domain_ids": [0]}, "uncore = true"),
        ("uncore", {"domain_ids": 0}, "list of numbers"),
        ("uncore", {"cpus": "0"}, "known: domain_ids"),
        ("jetson", {"gpu": "../x"}, "name in /sys/class/devfreq"),
        ("jetson", {"emc": True}, "known: gpu"),
        ("nvml", {"devices": 0}, r"devices is a list such as \[0, 1\]"),
        ("nvml", {"devices": [0, 0]}, "twice"),
        ("nvml", {"devices": [-1]}, "neither an index nor a UUID"),
        ("nvml", {"gpu": 0}, "known: devices"),
    ],
)
def test_a_wrong_option_says_what_is_valid(
    control: str, options: dict[str, object], said: str, tmp_path: Path
) -> None:
    site = Site.model_validate(
        {
            "name": "wrong",
            "partitions": {"all": {}},
            "clocks": {"control": control, "options": options},
        }
    )
    with pytest.raises(ValueError, match=said):
        open_control(site, tmp_path)


@pytest.mark.parametrize("control", ["cpufreq", "uncore", "jetson", "nvml"])
def test_a_machine_without_these_clocks(control: str, tmp_path: Path) -> None:
    site = Site.model_validate(
        {"name": "bare", "partitions": {"all": {}}, "clocks": {"control": control}}
    )
    with pytest.raises(ClocksError) as caught:
        open_control(site, tmp_path)
    assert str(tmp_path) in caught.value.what
    assert caught.value.remedy


def test_the_trees_are_those_in_the_documentation() -> None:
    text = (TREES / "clocks.md").read_text()
    for layout in LAYOUTS:
        if layout.control not in GPUS:
            assert f"`{layout.tree}`" in text


def boost(root: Path, on: bool, vendor: str) -> None:
    """A switch for boost, and a processor of a vendor."""
    switch = root / "sys/devices/system/cpu/cpufreq/boost"
    switch.parent.mkdir(exist_ok=True)
    switch.write_text(f"{on:d}\n")
    cpuinfo = root / "proc/cpuinfo"
    cpuinfo.write_text(cpuinfo.read_text().replace("GenuineIntel", vendor))


@pytest.mark.parametrize(
    ("driver", "listed", "vendor", "boosts", "turbo"),
    [
        ("acpi-cpufreq", (2801, 2800, 2400), "GenuineIntel", True, 2801),
        ("acpi-cpufreq", (2400, 2800, 2801), "GenuineIntel", False, 2801),
        ("acpi-cpufreq", (2800, 2400, 2399), "GenuineIntel", True, None),
        ("acpi-cpufreq", (2802, 2800, 2400), "GenuineIntel", True, None),
        ("cpufreq-dt", (2801, 2800, 2400), "", True, None),
        ("acpi-cpufreq", (2450, 2000, 1500), "AuthenticAMD", True, 2450),
        ("acpi-cpufreq", (2450, 2000, 1500), "AuthenticAMD", False, None),
        ("acpi-cpufreq", (2450, 2000, 1500), "GenuineIntel", True, None),
    ],
)
def test_a_listed_clock_that_stands_for_turbo_is_not_legal(
    tmp_path: Path, driver: str, listed: tuple[int, ...], vendor: str, boosts: bool, turbo: int
) -> None:
    """The kernel's drivers/cpufreq/acpi-cpufreq.c; there the CPU runs above the nominal clock."""
    copy(ACPI, tmp_path)
    boost(tmp_path, boosts, vendor)
    for cpu in (CPU0, CPU1):
        folder = tmp_path / cpu
        (folder / "scaling_driver").write_text(f"{driver}\n")
        (folder / "scaling_available_frequencies").write_text(
            " ".join(f"{mhz}000" for mhz in listed) + " \n"
        )
        (folder / "cpuinfo_max_freq").write_text(f"{max(listed)}000\n")
    clocks = ACPI.open(tmp_path)
    legal = sorted(float(mhz) for mhz in listed if mhz != turbo)
    assert [setting.core_mhz for setting in clocks.legal() or ()] == legal
    if turbo is None:
        return
    before = contents(tmp_path)
    with pytest.raises(IllegalClockError, match=f"{turbo} MHz .* turbo"):
        clocks.set(Setting(float(turbo)))
    with pytest.raises(ClocksError, match=f"{turbo} MHz .* turbo") as refusal:
        replace(ACPI, core_mhz=(legal[0], float(turbo))).open(tmp_path)
    assert "frequencies_mhz" in refusal.value.remedy
    assert contents(tmp_path) == before


def offline(root: Path, cpu: int) -> None:
    """Set a CPU offline: its files stay, and give errors, here because they are folders."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
    for file in sorted(folder.iterdir()):
        file.unlink()
        file.mkdir()
    online = {int(path.name[3:]) for path in folder.parents[1].glob("cpu[0-9]*")} - {cpu}
    (folder.parents[1] / "online").write_text(",".join(map(str, sorted(online))) + "\n")


def test_all_cpus_are_those_that_are_online(tmp_path: Path) -> None:
    copy(ACPI, tmp_path)
    offline(tmp_path, 1)
    layout = replace(ACPI, options={"cpus": "all"})
    with layout.running(tmp_path):
        clocks = layout.open(tmp_path)
        assert tuple(clocks.legal() or ()) == ACPI.legal
        clocks.set(Setting(1800.0))
        wait_until_settled(tmp_path)
        assert (tmp_path / CPU0 / "scaling_setspeed").read_text() == "1800000\n"
        assert clocks.state().setting == Setting(1800.0)
        clocks.restore()
    assert right_to_set("cpufreq", tmp_path).can_set
    (tmp_path / "sys/devices/system/cpu/online").unlink()  # then each CPU's file says it
    (tmp_path / "sys/devices/system/cpu/cpu1/online").write_text("0\n")
    assert tuple(layout.open(tmp_path).legal() or ()) == ACPI.legal


def test_a_listed_cpu_that_is_offline_is_named(tmp_path: Path) -> None:
    copy(ACPI, tmp_path)
    offline(tmp_path, 1)
    with pytest.raises(ClocksError, match="CPU 1: offline") as refusal:
        ACPI.open(tmp_path)
    assert "cpu1/online" in refusal.value.remedy
    (tmp_path / "sys/devices/system/cpu/online").write_text("\n")
    with pytest.raises(ClocksError):
        replace(ACPI, options={"cpus": "all"}).open(tmp_path)


def test_a_cpu_that_goes_offline_while_it_is_measured_is_named(tmp_path: Path) -> None:
    copy(ACPI, tmp_path)
    clocks = replace(ACPI, options={"cpus": "all"}).open(tmp_path)
    offline(tmp_path, 1)
    for use in (clocks.state, lambda: clocks.set(Setting(1800.0))):
        with pytest.raises(ClocksError, match="CPU 1: offline"):
            use()
    assert not journals(tmp_path)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8,10-11\n", {0, 1, 2, 3, 8, 10, 11}), ("5", {5}), ("0-0", {0})]
)
def test_a_list_of_cpus(text: str, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["", "3-1", "1,,2", "a", "1-2-3", "-1"])
def test_what_is_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPU|ends"):
        cpu_list(text)
