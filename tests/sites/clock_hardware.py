"""Simulated hardware behind a tree of files: a process that updates what a machine would show.

Plain files keep what is written to them. On a machine the kernel and the hardware react: the
current clock follows its limits, ``scaling_setspeed`` shows the clock that the driver took and is
``<unsupported>`` under other governors, and the firmware chooses the memory's rate unless it is
locked. The process waits for writes (inotify(7)). It reacts under a lease (fcntl(2), F_SETLEASE):
no other process has the file open then, whoever opens it waits, and no write in between is lost, as
on a machine, where a write and its effect are one step.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import select
import shutil
import signal
import struct
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

IN_CLOSE_WRITE = 0x8
EVENT = struct.Struct("iIII")
ASKS = "tmp/hardware-asks"
"""The file with a growing number, through which a test asks whether its writes were seen."""
LOWEST = 3
"""The lowest descriptor after the standard ones."""
UNCORE_KHZ = 1_800_000
EMC_HZ = 665_600_000
TEGRA210_EMC_HZ = 204_000_000
POWER_UNIT_UW = 125_000


class Watch:
    """Which files of some folders are closed after a write, in order."""

    def __init__(self, folders: list[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.file = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        for folder in folders:
            if libc.inotify_add_watch(self.file, os.fsencode(folder), IN_CLOSE_WRITE) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))

    def names(self, timeout_s: float | None = 0.0) -> list[str]:
        """The names written since the last call, after waiting for one."""
        if not select.select([self.file], [], [], timeout_s)[0]:
            return []
        data, changed, at = os.read(self.file, 65536), [], 0
        while at < len(data):
            length = EVENT.unpack_from(data, at)[3]
            at += EVENT.size
            changed.append(data[at : at + length].rstrip(b"\0").decode())
            at += length
        return changed


def shown(root: Path, held: Mapping[Path, str] = MappingProxyType({})) -> dict[Path, str]:
    """What the hardware would show for the present content of the tree, file by file.

    ``held``: what some files hold, which are not opened for it.
    """
    files: dict[Path, str] = {}
    # CPUs may share a policy: one folder under several names.
    cpus = root.glob("sys/devices/system/cpu/cpu*/cpufreq")
    for folder in sorted({cpu.resolve() for cpu in cpus}):
        files.update(_cpufreq(folder, held))
    for folder in root.glob("sys/devices/system/cpu/intel_uncore_frequency/*"):
        low, high = _number(folder / "min_freq_khz"), _number(folder / "max_freq_khz")
        if low is not None and high is not None:
            files[folder / "current_freq_khz"] = str(min(max(UNCORE_KHZ, low), high))
    for folder in root.glob("sys/class/devfreq/*.gpu"):
        low = _number(folder / "min_freq")
        if low is not None:
            files[folder / "cur_freq"] = str(low)
    for folder in root.glob("sys/class/powercap/*"):
        for number in (0, 1):
            path = folder / f"constraint_{number}_power_limit_uw"
            limit_uw = _number(path, held)
            if limit_uw is not None:
                files[path] = str(limit_uw - limit_uw % POWER_UNIT_UW)
    emc = root / "sys/kernel/debug/bpmp/debug/clk/emc"
    # The rate is read before the lock, as it is written after it.
    rate, locked = _number(emc / "rate", held), _number(emc / "mrq_rate_locked")
    if locked == 0 and rate is not None:
        files[emc / "rate"] = str(EMC_HZ)
    emc = root / "sys/kernel/debug/clk/override.emc"
    rate, locked = _number(emc / "clk_update_rate"), _number(emc / "clk_state")
    if rate is not None and locked is not None:
        files[emc / "clk_rate"] = str(rate if locked else TEGRA210_EMC_HZ)
    return files


def _cpufreq(folder: Path, held: Mapping[Path, str]) -> dict[Path, str]:
    speed = _text(folder / "scaling_setspeed", held)
    governor = _text(folder / "scaling_governor")
    low, high = _number(folder / "scaling_min_freq"), _number(folder / "scaling_max_freq")
    if not governor or low is None or high is None:
        return {}
    if governor != "userspace":
        khz = high if governor == "performance" else low
        return {
            folder / "scaling_setspeed": "<unsupported>",
            folder / "scaling_cur_freq": str(khz),
        }
    if not speed.isdigit():
        return {}
    asked = min(max(int(speed), low), high)
    table = sorted(int(word) for word in _text(folder / "scaling_available_frequencies").split())
    taken = next((khz for khz in table if khz >= asked), table[-1]) if table else asked
    return {folder / "scaling_setspeed": str(taken), folder / "scaling_cur_freq": str(taken)}


def is_settled(root: Path) -> bool:
    """Whether the tree already shows what the hardware would show."""
    return all(_text(path) == text for path, text in shown(root).items())


def wait_until_settled(root: Path, bound_s: float = 5.0) -> None:
    """Wait until the program, if it runs, has seen all writes and reacted to them."""
    deadline_s = time.monotonic() + bound_s
    asked = time.monotonic_ns()
    if (root / ASKS).is_dir():
        (root / ASKS / "asked").write_text(str(asked))
        while (_number(root / ASKS / "answered") or 0) < asked:
            _sleep(root, deadline_s)
    while not is_settled(root):
        _sleep(root, deadline_s)


def _sleep(root: Path, deadline_s: float) -> None:
    if time.monotonic() > deadline_s:
        raise TimeoutError(f"{root} does not settle")
    time.sleep(0.0005)


@contextmanager
def running(root: Path) -> Iterator[None]:
    """Run the process for a tree. It is forked, because a new interpreter would take longer."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGIO, signal.SIG_IGN)  # another waits for a leased file
            # Nothing that the tests' process has open stays so by this one, such as a lock.
            os.dup2(write, LOWEST)
            os.closerange(LOWEST + 1, os.sysconf("SC_OPEN_MAX"))
            follow(root, LOWEST)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as ready:
            assert ready.read(1) == b"x", "the hardware ended before it was ready"
        yield
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        shutil.rmtree(root / ASKS, ignore_errors=True)


def _text(path: Path, held: Mapping[Path, str] = MappingProxyType({})) -> str:
    if path in held:
        return held[path]
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path, held: Mapping[Path, str] = MappingProxyType({})) -> int | None:
    text = _text(path, held)
    return int(text) if re.fullmatch(r"\d+", text) else None


def follow(root: Path, ready: int) -> None:
    """Update the tree forever; writes a byte to ``ready`` and closes it at the start."""
    patterns = (
        "sys/devices/system/cpu/cpu*/cpufreq",
        "sys/devices/system/cpu/intel_uncore_frequency/*",
        "sys/class/devfreq/*.gpu",
        "sys/class/powercap/*",
        "sys/kernel/debug/bpmp/debug/clk/emc",
        "sys/kernel/debug/clk/override.emc",
    )
    (root / ASKS).mkdir()
    folders = [folder for pattern in patterns for folder in root.glob(pattern)]
    watch = Watch([*folders, root / ASKS])
    os.write(ready, b"x")
    os.close(ready)
    fresh = root / "tmp/hardware"
    while True:
        watch.names(timeout_s=None)
        asked = _number(root / ASKS / "asked")
        while not _show(root):
            time.sleep(0.0002)
        if asked is not None:
            fresh.write_text(str(asked))
            fresh.rename(root / ASKS / "answered")


def _show(root: Path) -> bool:
    """Update every file; False if another process has one of them open."""
    is_done = True
    for path in shown(root):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # its device went away, or it may not be written
            continue
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            held = os.pread(file, 4096, 0).decode()
            # What is shown follows from what was written before: it is found while nothing can be
            # written here. What another file gets meanwhile wakes the process again.
            text = shown(root, {path: held.strip()}).get(path, held.strip())
            if text != held.strip():
                os.pwrite(file, f"{text}\n".encode(), 0)
                os.ftruncate(file, len(text) + 1)
        except BlockingIOError:
            is_done = False
        finally:
            os.close(file)  # and whoever waits to open it goes on
    return is_done
