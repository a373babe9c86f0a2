"""The small files below the clock controls: waiting, numbers, temperatures, whose they are."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sites.clocks import nvml, right_to_set
from sites.clocks.cpufreq import find_cpus
from sites.clocks.shared.control import ClocksError, Right
from sites.clocks.shared.kernel_files import (
    optional_number,
    settled,
    unavailable,
    whole_number,
    write_text,
)
from sites.clocks.shared.private_files import (
    ClocksInUseError,
    OwnershipError,
    open_folder,
    read_owned,
    take_lock,
)
from sites.clocks.shared.thermal_zone import find_zones, hottest_c
from sites.clocks.uncore import UncoreDomain, legal_mhz
from tests.sites.clock_layouts import answer_without_privileges

FILE = Path("/sys/x")


# --- Waiting until the hardware has taken a value ---------------------------------------------


@pytest.fixture
def waits_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, on a clock that they alone move."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setattr(time, "monotonic", lambda: 50.0 + sum(waited))
    return waited


def test_waits_double_from_one_to_twenty_milliseconds_within_a_second(waits_s: list[float]) -> None:
    assert settled(lambda: "900\n", "1200") == "900\n"
    assert waits_s[:7] == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016, 0.02, 0.02])
    assert max(waits_s) == 0.02
    assert 1.0 <= sum(waits_s) < 1.02


@pytest.mark.parametrize("reads", [1, 2, 5])
def test_no_wait_follows_the_value_that_was_wanted(waits_s: list[float], reads: int) -> None:
    texts: Iterator[str] = iter(["900\n"] * (reads - 1) + [" 1200\n"])
    assert settled(lambda: next(texts), "1200\n", 5.0) == " 1200\n"
    assert len(waits_s) == reads - 1


def test_without_time_left_it_is_read_once(waits_s: list[float]) -> None:
    texts = iter(["900\n"])
    assert settled(lambda: next(texts), "1200", -0.5) == "900\n"
    assert waits_s == []


# --- Numbers and errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "7\n", "999999999999999999 \n"])
def test_a_whole_number_has_up_to_eighteen_digits(text: str, tmp_path: Path) -> None:
    assert whole_number(text, FILE) == int(text)
    (tmp_path / "f").write_text(text)
    assert optional_number(tmp_path, "f") == int(text)


@pytest.mark.parametrize("text", ["", "\n", "1e3", "+5", "0x10", "1000000000000000000", "1 2"])
def test_another_text_is_no_clock_value(text: str) -> None:
    with pytest.raises(ClocksError) as error:
        whole_number(text, FILE)
    assert str(error.value).startswith(f"/sys/x holds {text!r}, which is not a clock value")


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(ClocksError) as error:
        whole_number("a" * 39 + "bc", FILE)
    assert repr("a" * 39 + "b") in str(error.value)


@pytest.mark.parametrize("access", ["r", "w"])
@pytest.mark.parametrize(
    ("number", "said", "remedy"),
    [
        (errno.ENOENT, "does not exist", "load it"),
        (errno.ENODEV, "does not exist", "load it"),
        (errno.ENXIO, "does not exist", "load it"),
        (errno.ENOTDIR, "does not exist", "load it"),
        (errno.EACCES, "cannot be", "chgrp GROUP /sys/x && chmod g+{access} /sys/x"),
        (errno.EPERM, "cannot be", "chgrp GROUP /sys/x && chmod g+{access} /sys/x"),
        (errno.EROFS, "cannot be", "remount,rw"),
        (errno.EIO, "cannot be", "dmesg"),
        (errno.EBUSY, "cannot be", "dmesg"),
    ],
)
def test_each_error_has_the_remedy_that_fits(number, said, remedy, access) -> None:
    reason = os.strerror(number)
    error = unavailable(FILE, OSError(number, reason), "load it", access)
    verb = "" if said == "does not exist" else f" {'read' if access == 'r' else 'written'}"
    assert error.what.startswith(f"/sys/x {said}{verb}")
    assert reason in error.what
    assert remedy.format(access=access) in error.remedy
    assert ("load it" in error.remedy) == (remedy == "load it")


def test_a_file_is_never_created_and_is_replaced_whole(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "f", "1\n")
    (tmp_path / "f").write_text("123456\n")
    write_text(tmp_path / "f", "12\n")
    assert (tmp_path / "f").read_text() == "12\n"


def right_without_privileges(ask: Callable[[], Right]) -> tuple[bool, str, str]:
    def as_list() -> list[object]:
        right = ask()
        return [right.can_set, right.why, right.remedy]

    as_list()  # Imports what the other user may not be able to read.
    can_set, why, remedy = answer_without_privileges(as_list)
    return can_set, why, remedy


@pytest.mark.parametrize(
    ("control", "files"),
    [
        ("cpufreq", ("devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
                     "devices/system/cpu/cpu1/cpufreq/scaling_max_freq")),
        ("jetson", ("class/devfreq/17000000.gpu/max_freq",)),
        ("uncore", ("devices/system/cpu/intel_uncore_frequency/uncore00/max_freq_khz",
                    "devices/system/cpu/intel_uncore_frequency/uncore01/max_freq_khz")),
    ],
)  # fmt: skip
def test_a_user_may_set_clocks_where_every_file_is_writable(
    control: str, files: tuple[str, ...]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        paths = [root / "sys" / file for file in files]
        for path in paths:
            path.parent.mkdir(parents=True)
            path.write_text("1\n")
            path.chmod(0o666)
        for folder in (root, *(p for p in root.rglob("*") if p.is_dir())):
            folder.chmod(0o755)
        can_set, why, remedy = right_without_privileges(lambda: right_to_set(control, root))
        assert (can_set, remedy) == (True, "")
        assert why.startswith(f"{len(files)} files are writable (as user ")
        paths[-1].chmod(0o444)
        can_set, why, remedy = right_without_privileges(lambda: right_to_set(control, root))
        assert (can_set, why) == (False, f"{paths[-1]} is not writable by this user")
        assert f"chgrp GROUP {paths[-1].parent}/*" in remedy


def test_only_root_may_lock_the_clocks_of_a_gpu() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        (root / "dev").mkdir(mode=0o755)
        (root / "dev/nvidia0").touch()
        can_set, why, remedy = right_without_privileges(lambda: nvml.rights(root))
        assert (can_set, why) == (False, "NVML lets only root lock clocks")
        assert "the control 'slurm' with --gpu-freq" in remedy
        if os.geteuid() == 0:
            assert nvml.rights(root).can_set is True


# --- Lists of CPUs, uncore ranges, temperatures ---------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("3-3", {3}),
        ("0-2,5", {0, 1, 2, 5}),
        ("7,2-4,3,16-17", {2, 3, 4, 7, 16, 17}),
        ("9-11", {9, 10, 11}),
    ],
)
def test_a_list_of_cpus_is_read_as_the_kernel_writes_it(tmp_path, text, cpus) -> None:
    assert find_cpus(tmp_path, text) == cpus


@pytest.mark.parametrize("text", ["3-2", "0,10-9"])
def test_a_range_that_ends_before_it_begins_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        find_cpus(tmp_path, text)


@pytest.mark.parametrize(
    "ranges_khz",
    [
        [(1_200_000, 2_400_000)],
        [(1_250_000, 2_399_999)],
        [(800_001, 2_200_000), (1_150_000, 1_999_000)],
        [(1_500_000, 1_500_000)],
        [(1_210_000, 1_290_000)],
        [(800_000, 1_000_000), (1_100_000, 1_200_000)],
    ],
)
def test_the_uncore_offers_every_hundred_mhz_that_all_domains_have(ranges_khz) -> None:
    domains = tuple(UncoreDomain(str(i), *ends) for i, ends in enumerate(ranges_khz))
    brute = [mhz for mhz in range(0, 5000, 100)
             if all(low <= 1000 * mhz <= high for low, high in ranges_khz)]  # fmt: skip
    assert legal_mhz(domains) == brute


def test_the_hottest_of_the_zones_of_the_wanted_kinds(tmp_path: Path) -> None:
    zones = [("X86_pkg_temp\n", "41250"), ("acpitz\n", "99000"), ("x86_PKG_temp", "43999\n"),
             ("x86_pkg_temp", "none"), (None, "98000")]  # fmt: skip
    for i, (kind, text) in enumerate(zones):
        folder = tmp_path / f"sys/class/thermal/thermal_zone{i}"
        folder.mkdir(parents=True)
        (folder / "temp").write_text(text)
        if kind is not None:
            (folder / "type").write_text(kind)
    found = find_zones(tmp_path, ("x86_pkg_temp", "soc_thermal"))
    assert found == tuple(f"sys/class/thermal/thermal_zone{i}/temp" for i in (0, 2, 3))
    assert hottest_c(tmp_path, found) == 43.999
    assert hottest_c(tmp_path, found[:1]) == 41.25
    assert hottest_c(tmp_path, found[2:]) is None
    assert hottest_c(tmp_path, ()) is None


# --- Folders and files of this user alone ---------------------------------------------------------

MODES = [0o700, 0o750, 0o755, 0o720, 0o702, 0o722, 0o777, 0o1777]


@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_only_this_user_may_write_in_the_folder_or_the_file(tmp_path: Path, mode: int) -> None:
    """By the bits of chmod(2): nobody but the owner may have w."""
    safe = not mode & (stat.S_IWGRP | stat.S_IWOTH)
    (tmp_path / "own").mkdir()
    (tmp_path / "own").chmod(mode)
    if safe:
        os.close(open_folder(tmp_path / "own"))
    else:
        with pytest.raises(OwnershipError, match="own can be written by others"):
            open_folder(tmp_path / "own")
    (tmp_path / "own").chmod(0o700)
    (tmp_path / "own/f").write_text("text")
    (tmp_path / "own/f").chmod(mode)
    folder = open_folder(tmp_path / "own")
    if safe:
        assert read_owned(folder, tmp_path / "own", "f") == "text"
        os.close(take_lock(folder, tmp_path / "own", "a"))
    else:
        with pytest.raises(OwnershipError, match="f can be written by others"):
            read_owned(folder, tmp_path / "own", "f")
    os.close(folder)


@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_nobody_else_may_rename_what_lies_beside_the_folder(tmp_path: Path, mode: int) -> None:
    """In a folder that everybody may write in, only its sticky bit prevents that."""
    (tmp_path / "tmp/own").mkdir(parents=True, mode=0o700)
    (tmp_path / "tmp").chmod(mode)
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        with pytest.raises(OwnershipError, match="everybody may rename"):
            open_folder(tmp_path / "tmp/own")
    else:
        os.close(open_folder(tmp_path / "tmp/own"))
    (tmp_path / "tmp").chmod(0o700)


def test_a_long_journal_is_read_whole(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    text = "x" * (8 << 20) + "end"
    (tmp_path / "f").write_text(text)
    assert read_owned(folder, tmp_path, "f") == text
    os.truncate(tmp_path / "f", 20 << 20)
    assert len(read_owned(folder, tmp_path, "f")) == 16 << 20
    os.close(folder)


HOLD = """
import sys, time
from pathlib import Path
from sites.clocks.shared.private_files import open_folder, take_lock
path = Path(sys.argv[1])
lock = take_lock(open_folder(path), path, "a")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_names_the_process_that_holds_it_and_goes_with_it(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ClocksInUseError) as held:
            take_lock(folder, tmp_path, "a")
        assert held.value.pid == holder.pid
        assert f"kill {holder.pid}" in held.value.remedy
        for text in ("", "no number\n"):
            (tmp_path / "a.lock").write_text(text)
            with pytest.raises(ClocksInUseError, match="by another process") as held:
                take_lock(folder, tmp_path, "a")
            assert held.value.pid is None
        opened = psutil.Process().num_fds()
        with pytest.raises(ClocksInUseError):
            take_lock(folder, tmp_path, "a")
        assert psutil.Process().num_fds() == opened
        other = take_lock(folder, tmp_path, "b")
        holder.stdin.close()
        holder.wait()
    (tmp_path / "a.lock").write_text("123456789012\n")
    own = take_lock(folder, tmp_path, "a")
    assert (tmp_path / "a.lock").read_text() == f"{os.getpid()}\n"
    with pytest.raises(ClocksInUseError):  # of this process, too: another control has it
        take_lock(folder, tmp_path, "a")
    for descriptor in (own, other, folder):
        os.close(descriptor)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "second link"])
def test_what_is_no_plain_file_of_one_name_is_neither_read_nor_locked(tmp_path, kind) -> None:
    folder = open_folder(tmp_path)
    for name in ("a.lock", "f"):
        path = tmp_path / name
        match kind:
            case "link":
                path.symlink_to(tmp_path / "elsewhere")
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "second link":
                (tmp_path / f"{name}.other").write_text("")
                path.hardlink_to(tmp_path / f"{name}.other")
    with pytest.raises(OwnershipError, match="f "):
        read_owned(folder, tmp_path, "f")
    with pytest.raises(ClocksError, match=r"a\.lock"):
        take_lock(folder, tmp_path, "a")
    assert not (tmp_path / "elsewhere").exists()
    os.close(folder)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_stays_open_after_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    folder = open_folder(tmp_path / "own")
    for name in ("f", "a.lock"):
        (tmp_path / "own" / name).write_text("")
        (tmp_path / "own" / name).chmod(0o666)
    before = open_files()
    for _ in range(3):
        with pytest.raises(OwnershipError):
            read_owned(folder, tmp_path / "own", "f")
        with pytest.raises(ClocksError):
            take_lock(folder, tmp_path / "own", "a")
    (tmp_path / "own").chmod(0o777)
    with pytest.raises(OwnershipError):
        open_folder(tmp_path / "own")
    assert open_files() == before
    os.close(folder)
