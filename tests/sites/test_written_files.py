"""Restoring files: the order, the time that it may take, and what is said of a failure."""

from __future__ import annotations

import errno
import os
import platform
import signal
import sys
import time
from pathlib import Path

import pytest

from sites.clocks.shared import written_files
from sites.clocks.shared.journal import Journal, at_last, put_back_held, signals_wait
from sites.clocks.shared.private_files import ClocksInUseError
from sites.clocks.shared.written_files import File, Limits, put_back_entries, put_back_values
from tests.sites.clock_layouts import fork


def test_all_files_together_have_one_time_to_settle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may have hundreds of files; /dev/null takes what is written and shows nothing."""
    monkeypatch.setattr(written_files, "SETTLE_S", 0.2)
    names = [f"sys/cpu{i}" for i in range(6)]
    (tmp_path / "sys").mkdir()
    for name in names:
        (tmp_path / name).symlink_to("/dev/null")
    began_s = time.monotonic()
    back = put_back_values(tmp_path, [File(name, "1200000\n") for name in names])
    assert 0.2 <= time.monotonic() - began_s < 0.8
    assert (back.done, back.gone) == ((), ())
    assert [line.split(" (")[0] for line in back.failed] == [
        str(tmp_path / name) for name in reversed(names)
    ]
    assert all("it holds '' now" in line and "1200000" in line for line in back.failed)


@pytest.mark.parametrize("bad", ["min_freq", "max_freq"])
@pytest.mark.parametrize("fault", ["folder", "gone"])
def test_the_limit_that_cannot_be_restored_is_named(tmp_path: Path, bad: str, fault: str) -> None:
    for name in ("min_freq", "max_freq", "governor"):
        (tmp_path / name).write_text("700\n")
    (tmp_path / bad).unlink()
    if fault == "folder":
        (tmp_path / bad).mkdir()
    limits = Limits("min_freq", "max_freq", "800\n", "2000\n")
    back = put_back_values(tmp_path, [File("governor", "ondemand\n"), limits])
    assert back.done == (f"{tmp_path / 'governor'}: ondemand",)
    assert (tmp_path / "governor").read_text() == "ondemand\n"
    (line,) = back.gone if fault == "gone" else back.failed
    reason = os.strerror(errno.ENOENT if fault == "gone" else errno.EISDIR)
    assert line == f"{tmp_path / bad} ({reason}), which held 800 to 2000"
    assert len(back.gone) + len(back.failed) == 1


def test_values_are_restored_from_the_last_written_to_the_first(tmp_path: Path) -> None:
    """A value that depends on another was written after it."""
    for name in "abc":
        (tmp_path / name).write_text("new\n")
    found = [File(name, f"{i}\n") for i, name in enumerate("abc")]
    back = put_back_values(tmp_path, found)
    assert back.done == tuple(
        f"{tmp_path / name}: {i}" for i, name in reversed([*enumerate("abc")])
    )
    assert put_back_values(tmp_path, found).done == ()  # they hold these values


@pytest.mark.parametrize(
    "wrong",
    [
        {"file": 5, "found": "700\n", "follows": False},
        {"file": "sys/governor", "found": 700, "follows": False},
        {"file": "sys/governor", "found": "700\n", "follows": "no"},
        {"limits": ["sys/min", "sys/max"], "found": ["700", 800]},
        {"limits": ["sys/min", 3], "found": ["700", "800"]},
    ],
)
def test_of_a_journal_with_a_wrong_entry_nothing_is_restored(tmp_path: Path, wrong: dict) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys/governor").write_text("userspace\n")
    right = {"file": "sys/governor", "found": "ondemand", "follows": False}
    with pytest.raises(TypeError, match="that is not text"):
        put_back_entries(tmp_path, [right, wrong], ["sys/.*"])
    assert (tmp_path / "sys/governor").read_text() == "userspace\n"
    assert put_back_entries(tmp_path, [right], ["sys/.*"]).failed == ()
    assert (tmp_path / "sys/governor").read_text() == "ondemand"


def test_a_file_that_cannot_be_read_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root may be refused a read of sysfs by a security module. Gone files are not written."""
    (tmp_path / "governor").write_text("userspace\n")

    def refused(path: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_text", refused)
    back = put_back_values(tmp_path, [File("governor", "ondemand\n", follows=True)])
    monkeypatch.undo()
    assert (back.failed, back.gone) == ((), ())
    assert back.done == (f"{tmp_path / 'governor'}: ondemand",)
    assert (tmp_path / "governor").read_text() == "ondemand\n"


class Owner:
    """What holds clocks."""


def test_clocks_are_put_back_once_by_whichever_comes_first() -> None:
    """The end of their owner, or that of the measuring process."""
    done: list[str] = []
    first, second = Owner(), Owner()
    at_last(first, done.append, "first")
    at_last(second, done.append, "second")
    del first
    assert done == ["first"]
    put_back_held()
    assert done == ["first", "second"]
    del second
    assert done == ["first", "second"]


def test_a_signal_while_clocks_are_put_back_skips_none_of_them() -> None:
    done: list[str] = []
    first, second = Owner(), Owner()
    at_last(first, os.kill, os.getpid(), signal.SIGTERM)
    at_last(second, done.append, "second")
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    try:
        with pytest.raises(SystemExit):
            put_back_held()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == ["second"]


def test_an_error_that_names_no_file_is_reported_with_the_value_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """close(2) may give the error of a write that came before it, as on a network's file system."""
    (tmp_path / "governor").write_text("userspace\n")
    close = os.close

    def failing(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "close", failing)
    back = put_back_values(tmp_path, [File("governor", "ondemand\n")])
    monkeypatch.undo()
    (line,) = back.failed
    assert line == f"{tmp_path / 'governor'} (Input/output error), which held ondemand"


def test_a_journal_is_written_and_removed_by_the_process_that_holds_it_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A forked child has the object, with the open folder, and not the lock."""
    (tmp_path / "run").mkdir()
    journal, entry = Journal(tmp_path, "cpufreq"), {"file": "a", "found": "1\n", "follows": False}
    file = tmp_path / f"run/campaign-clocks/cpufreq@{platform.node()}.json"
    with pytest.raises(RuntimeError, match="without its lock"):
        journal.write([entry])
    journal.forget()
    journal.let_go()
    journal.hold()
    journal.write([entry])
    written = file.read_text()

    def in_child() -> None:
        assert not journal.held
        with pytest.raises(RuntimeError, match="without its lock"):
            journal.write([])
        journal.forget()
        journal.let_go()

    assert os.waitpid(fork(in_child), 0)[1] == 0
    assert file.read_text() == written
    with pytest.raises(ClocksInUseError, match=str(os.getpid())):
        Journal(tmp_path, "cpufreq").hold()
    journal.forget()
    assert not file.exists()
    again = Journal(tmp_path, "cpufreq")
    again.hold()
    again.write([entry])
    again.let_go()
    assert file.read_text()
    assert not caplog.messages  # nothing was left over


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_waits_until_a_change_of_clocks_is_complete(
    number: signal.Signals,
) -> None:
    """The program's own handler gets it once, after the block, and is in place again."""
    order: list[str] = []

    def own(received: int, frame: object) -> None:
        order.append(signal.Signals(received).name)

    before = signal.signal(number, own)
    try:
        with signals_wait():
            os.kill(os.getpid(), number)
            time.sleep(0.01)  # Python runs handlers between two instructions of its own
            order.append("complete")
        assert order == ["complete", number.name]
        assert signal.getsignal(number) is own
    finally:
        signal.signal(number, before)


def test_a_journal_is_gone_from_the_disk_when_its_lock_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash of the node could bring it back, with clocks that were restored long ago."""
    (tmp_path / "run").mkdir()
    journal = Journal(tmp_path, "cpufreq")
    folder = tmp_path / "run/campaign-clocks"
    journal.hold()
    journal.write([{"file": "a", "found": "1\n", "follows": False}])
    seen, fsync = [], os.fsync

    def noting(descriptor: int) -> None:
        of_folder = os.fstat(descriptor).st_ino == folder.stat().st_ino
        seen.append((of_folder, journal.held, len(list(folder.glob("*.json")))))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    journal.forget()
    assert seen == [(True, True, 0)]
