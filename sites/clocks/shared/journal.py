"""The clock values before a control changed them, recorded so that they can be restored even if the
process is killed.

A control that writes holds a lock and a journal while its clocks are set. Both are files in a
folder that belongs to this user alone: ``run/campaign-clocks`` below the root if it is writable (as
root), otherwise ``tmp/campaign-clocks-UID``. Both are per node, and the file names contain the
node's name, in case the folder is on a shared disk.

- The journal (JSON) is written completely and synced, file and folder, before the first write to
  the hardware, and removed after the last value is restored. If a journal exists and its lock is
  free, a killed process left it, and :func:`restore_left_over` replays it. A replay can be
  repeated, because the journal is removed last.
- The lock is a flock(2): the kernel releases it when the process ends, however it ends. It excludes
  other controls of the same name and user. A control of another user uses another folder and is not
  noticed.
- Whoever can place a file there could have it replayed by root. So a folder or file that is a link,
  has another owner, or is writable by others is refused, and a journal may name only files that its
  control could have written (each control's ``put_back`` checks this).
- A reboot resets the hardware, so the journal of an earlier boot
  (``/proc/sys/kernel/random/boot_id``, proc_sys_kernel(5)) is deleted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import re
import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sites.clocks import CONTROLS
from sites.clocks.shared.control import ClocksError
from sites.clocks.shared.private_files import (
    ClocksInUseError,
    OwnershipError,
    open_folder,
    read_owned,
    take_lock,
)

VERSION = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_LAST: list[weakref.finalize[Any, Any]] = []

Entry = Mapping[str, Any]
"""One value before the change, in the format of the control that wrote it."""


class DamagedJournalError(Exception):
    """A journal that no control of this program wrote, or that is incomplete."""


@dataclass(frozen=True)
class PutBack:
    """The result of restoring clocks, one line per value."""

    done: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """The device no longer exists."""
    failed: tuple[str, ...] = ()


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Delay SIGTERM, SIGINT and SIGHUP until the end of the block. In the main thread only.

    The handlers are replaced instead of blocking the signals, because the kernel would deliver a
    blocked signal to another thread, and Python would still run its handler in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {}
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler is not None:  # None: not set by Python, so it could not be restored
                handlers[number] = handler
                signal.signal(number, lambda number, frame: received.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for signal_number in received:
        signal.raise_signal(signal_number)


class Journal:
    """The journal and lock of one control on this node.

    Args:
        root: ``/``, or a recorded tree.
        control: its name in :data:`sites.clocks.CONTROLS`.
        device: which of several devices with separate clocks (a GPU's UUID).
        also: other controls to lock out, because this control writes their files.
    """

    def __init__(
        self, root: Path, control: str, device: str = "", also: Sequence[str] = ()
    ) -> None:
        self.root = root
        self.control = control
        self._stem = _stem(control, device)
        self._stems = sorted({self._stem, *(_stem(also_locked, "") for also_locked in also)})
        self._folder: tuple[int, Path] | None = None
        self._locks: list[int] = []
        self._pid: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it; a forked child inherits the object, but not the lock."""
        return self._pid == os.getpid()

    def hold(self) -> None:
        """Take the lock, restore what a killed process left, and log what was restored.

        Raises:
            ClocksInUseError: another process holds it.
            ClocksError: there is no safe folder, or what was left cannot be restored.
        """
        if self.held:
            return
        with signals_wait():
            folder, path = _open_for_writing(self.root)
            locks: list[int] = []
            try:
                for stem in self._stems:
                    locks.append(take_lock(folder, path, stem))
                for stem in self._stems:
                    lines, blocked = _replay(self.root, folder, path, stem)
                    if blocked:
                        raise ClocksError(
                            "clocks that a killed process changed could not be restored: "
                            + "; ".join(lines),
                            f"restore them by hand, then remove {path / stem}.json",
                        )
                    _log(lines)
            except BaseException:
                for descriptor in (*locks, folder):
                    os.close(descriptor)
                raise
            self._folder, self._locks, self._pid = (folder, path), locks, os.getpid()

    def write(self, entries: Sequence[Entry]) -> None:
        """Record ``entries`` before any value is changed; replaces the journal's content.

        Raises:
            ClocksError: it cannot be written.
        """
        if not self.held or self._folder is None:
            raise RuntimeError(f"the journal of {self.control} is written without its lock")
        folder, path = self._folder
        text = json.dumps(
            {
                "version": VERSION,
                "control": self.control,
                "pid": os.getpid(),
                "boot": _boot(self.root),
                "found": list(entries),
            }
        )
        new, name = f"{self._stem}.new", f"{self._stem}.json"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            raise ClocksError(
                f"{path / name}: {error.strerror}, so no clock was changed",
                f"check free space and write access of this user: `df {path}`",
            ) from None

    def forget(self) -> None:
        """Remove the journal and release the lock, once all values are restored."""
        if not self.held or self._folder is None:
            return
        folder, _ = self._folder
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._stem}.json", dir_fd=folder)
            os.fsync(folder)
        self.let_go()

    def let_go(self) -> None:
        """Release the lock and leave the journal to the next start."""
        if not self.held or self._folder is None:
            return
        self._pid = None
        for lock in self._locks:
            os.ftruncate(lock, 0)
            os.close(lock)
        os.close(self._folder[0])
        self._locks, self._folder = [], None


def restore_left_over(root: Path = Path("/")) -> list[str]:
    """Restore clocks that killed processes of this user left changed on this node.

    Call it when a worker starts; every control that writes calls it too when it is opened. Clocks
    that a running process has set are left alone.

    Returns:
        A line for each restored value and for each failure; empty if no journal was left.
    """
    lines: list[str] = []
    for path in _folders(root):
        try:
            folder = open_folder(path)
        except FileNotFoundError:
            continue
        except OwnershipError as error:
            if path.parent.name != "run" or os.geteuid() == 0:
                lines.append(f"{error}: nothing in it was restored; remove it")
            continue
        except OSError as error:
            lines.append(f"{path}: {error.strerror}: nothing in it was restored")
            continue
        try:
            # List the folder that was checked, even if its path now leads elsewhere.
            for name in sorted(os.listdir(folder)):  # noqa: PTH208
                if _is_journal(name):
                    lines += _restore_one(root, folder, path, name.removesuffix(".json"))
        finally:
            os.close(folder)
    return lines


def at_last(owner: object, put_back: Callable[..., None], *arguments: Any) -> None:
    """Call ``put_back(*arguments)`` when ``owner`` is deleted or the interpreter ends.

    This is a last resort: a signal can arrive between a caller's ``finally`` and ``restore``.
    """
    _LAST[:] = [finalizer for finalizer in _LAST if finalizer.alive]
    _LAST.append(weakref.finalize(owner, put_back, *arguments))


def put_back_held() -> None:
    """Restore all values that this process has set; signals wait until all are.

    Call it before ``os._exit``, which skips the interpreter's cleanup.
    """
    with signals_wait():
        for finalizer in _LAST:
            finalizer()


def log_left_over(root: Path) -> None:
    """Run :func:`restore_left_over` and log its lines as warnings."""
    _log(restore_left_over(root))


def _log(lines: Sequence[str]) -> None:
    for line in lines:
        logging.getLogger(__name__).warning("%s", line)


def _restore_one(root: Path, folder: int, path: Path, stem: str) -> list[str]:
    with signals_wait():
        try:
            lock = take_lock(folder, path, stem)
        except ClocksInUseError:
            return []
        except ClocksError as error:
            return [str(error)]
        try:
            return _replay(root, folder, path, stem)[0]
        finally:
            os.ftruncate(lock, 0)
            os.close(lock)


def _replay(root: Path, folder: int, path: Path, stem: str) -> tuple[list[str], bool]:
    """Replay a journal whose lock is held: (lines for the user, whether the journal must stay)."""
    name = f"{stem}.json"
    try:
        text = read_owned(folder, path, name)
    except FileNotFoundError:
        return [], False
    except (OwnershipError, OSError) as error:
        return [f"{path / name}: {error}: not replayed; remove it"], True
    try:
        control, boot, entries = _parse(text)
        if control != _control_of(stem):
            raise DamagedJournalError(f"is of control {control!r}, unlike its name")
        if boot != _boot(root):
            os.unlink(name, dir_fd=folder)
            return [f"{path / name}: dropped, because a reboot has reset the clocks since"], False
        back = _put_back(root, control, entries)
    except DamagedJournalError as error:
        os.rename(name, f"{stem}.damaged", src_dir_fd=folder, dst_dir_fd=folder)
        return [
            f"{path / name} {error}: nothing in it was restored, and it was renamed to "
            f"{stem}.damaged; check this node's clocks, or reboot it"
        ], False
    lines = [f"left over, restored: {line}" for line in back.done]
    lines += [f"left over, but its device is gone: {line}" for line in back.gone]
    lines += [f"left over, cannot be restored: {line}" for line in back.failed]
    if back.failed:
        return lines, True
    os.unlink(name, dir_fd=folder)
    os.fsync(folder)
    return lines, False


def _put_back(root: Path, control: str, entries: list[Entry]) -> PutBack:
    module = CONTROLS.load(control) if control in CONTROLS else None
    if not hasattr(module, "put_back"):
        raise DamagedJournalError(f"names a control {control!r} that writes nothing")
    try:
        back: PutBack = module.put_back(root, entries)  # type: ignore[union-attr]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedJournalError(f"holds what {control} does not write ({error})") from None
    return back


def _parse(text: str) -> tuple[str, str | None, list[Entry]]:
    try:
        fields = json.loads(text)
        version, control, boot, entries = (
            fields[key] for key in ("version", "control", "boot", "found")
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedJournalError("is damaged") from None
    if version != VERSION:
        raise DamagedJournalError(f"has version {version!r} and not {VERSION}")
    shape = isinstance(control, str) and isinstance(entries, list)
    if not shape or not all(isinstance(entry, dict) for entry in entries):
        raise DamagedJournalError("is damaged")
    return control, boot, entries


def _node() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", platform.node() or "node")


def _stem(control: str, device: str) -> str:
    device = re.sub(r"[^A-Za-z0-9.-]", "_", device)
    return f"{control}-{device}@{_node()}" if device else f"{control}@{_node()}"


def _control_of(stem: str) -> str:
    """The control in a journal's name, in which a device may follow it."""
    named = stem.partition("@")[0]
    return max(
        (name for name in CONTROLS if f"{named}-".startswith(f"{name}-")), key=len, default=""
    )


def _is_journal(name: str) -> bool:
    return name.endswith(f"@{_node()}.json") and not name.startswith(".")


def _boot(root: Path) -> str | None:
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        return None


def _folders(root: Path) -> tuple[Path, Path]:
    return root / "run/campaign-clocks", root / f"tmp/campaign-clocks-{os.geteuid()}"


def _open_for_writing(root: Path) -> tuple[int, Path]:
    """The folder for this user's journals, created if needed: (descriptor, path)."""
    problems = []
    for path in _folders(root):
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(0o700)
            return open_folder(path), path
        except OwnershipError as error:
            # A foreign folder in /run is root's and harmless; elsewhere it is suspicious.
            if path.parent.name != "run" or os.geteuid() == 0:
                raise ClocksError(
                    f"{error}, so clock values cannot be recorded safely, and no clock was changed",
                    f"remove it: `sudo rm -r {path}`",
                ) from None
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    raise ClocksError(
        "no folder to record clock values in, so no clock was changed: " + "; ".join(problems),
        f"make {root / 'tmp'} writable for this user",
    )
