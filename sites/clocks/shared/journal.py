"""What clock controls found before they wrote, kept so that a killed process's clocks come back.

A control that writes holds a lock and a journal while its clocks are set. Both are files in a
folder of this user alone: ``run/campaign-clocks`` below the root where that can be written (as
root), else ``tmp/campaign-clocks-UID``. Both are per node, and the names of the files say which
node, in case the folder is on a shared disk.

- The journal (JSON) is written whole and synced, file and folder, before the first write to the
  hardware, and removed after the last value is back. A journal that nobody holds is therefore one
  that a killed process left, and :func:`restore_left_over` replays it. It does so any number of
  times: the journal goes last.
- The lock is flock(2)'s: the kernel frees it when its process ends, however that ends. It keeps
  out other controls of the same name and the same user; a control of another user, with a folder
  of its own, is not seen.
- Whoever can put a file there could have it replayed by root. So a folder or file that is a link,
  has another owner, or can be written by others is refused, and a journal may only name what its
  control could itself have written (each control's ``put_back`` checks that).
- After a reboot the hardware has values of its own, so the journal of an earlier boot
  (``/proc/sys/kernel/random/boot_id``, proc_sys_kernel(5)) is dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import re
import signal
import stat
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sites.clocks import CONTROLS
from sites.clocks.shared.control import ClocksUnavailable

VERSION = 1
LARGEST_BYTES = 16 * 2**20
"""Far above the journal of a node with a thousand CPUs."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_LAST: list[weakref.finalize[Any, Any]] = []

Entry = Mapping[str, Any]
"""One thing that was found, in the form of the control that wrote it."""


class ClocksInUse(ClocksUnavailable):
    """Another process has clocks set with the same control; ``pid`` is None where unknown."""

    def __init__(self, what: str, remedy: str, pid: int | None) -> None:
        super().__init__(what, remedy)
        self.pid = pid


class NotOurs(Exception):
    """A folder or file that this user does not own alone."""


class Damaged(Exception):
    """A journal that no control of this program wrote, or that was torn."""


@dataclass(frozen=True)
class PutBack:
    """What came of putting back what was found, a line each."""

    done: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    """The device is no longer there."""
    failed: tuple[str, ...] = ()


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP wait until the block is done. In the main thread only.

    Their handlers are exchanged instead of blocking the signals, since the kernel would give a
    blocked signal to any other thread, and Python runs the handler in the main one all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {}
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler is not None:  # else it is not Python's, and could not be put back
                before[number] = handler
                signal.signal(number, lambda number, frame: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for each in came:
        signal.raise_signal(each)


class Journal:
    """The journal and lock of one control on this node.

    Args:
        root: ``/``, or a recorded tree.
        control: its name in :data:`sites.clocks.CONTROLS`.
        device: which of several devices, where each has clocks of its own (a GPU's UUID).
        also: other controls that are kept out too, since this one writes their files.
    """

    def __init__(
        self, root: Path, control: str, device: str = "", also: Sequence[str] = ()
    ) -> None:
        self.root = root
        self.control = control
        self._stem = _stem(control, device)
        self._stems = sorted({self._stem, *(_stem(each, "") for each in also)})
        self._folder: tuple[int, Path] | None = None
        self._locks: list[int] = []
        self._pid: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it: a child that was forked inherits it, and does not."""
        return self._pid == os.getpid()

    def hold(self) -> list[str]:
        """Take the lock, and put back first what a killed process left; what was done, in lines.

        Raises:
            ClocksInUse: another process holds it.
            ClocksUnavailable: there is no safe folder, or what was left cannot be put back.
        """
        if self.held:
            return []
        lines: list[str] = []
        with signals_wait():
            folder, path = _open_for_writing(self.root)
            locks: list[int] = []
            try:
                for stem in self._stems:
                    locks.append(_take_lock(folder, path, stem))
                for stem in self._stems:
                    more, blocked = _replay(self.root, folder, path, stem)
                    lines += more
                    if blocked:
                        raise ClocksUnavailable(
                            "the clocks that a killed process left set are not back: "
                            + "; ".join(more),
                            f"mend that, or remove {path / stem}.json once they are",
                        )
            except BaseException:
                for each in (*locks, folder):
                    os.close(each)
                raise
            self._folder, self._locks, self._pid = (folder, path), locks, os.getpid()
        return lines

    def write(self, found: Sequence[Entry]) -> None:
        """Put what was found in the journal, in place of what it holds, before any is changed.

        Raises:
            ClocksUnavailable: it cannot be written.
        """
        if not self.held or self._folder is None:
            raise RuntimeError(f"the journal of {self.control} is written before it is held")
        folder, path = self._folder
        text = json.dumps(
            {
                "version": VERSION,
                "control": self.control,
                "pid": os.getpid(),
                "boot": _boot(self.root),
                "found": list(found),
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
            raise ClocksUnavailable(
                f"{path / name}: {error.strerror}, so no clock was changed",
                f"make room and write access for this user: `df {path}`",
            ) from None

    def forget(self) -> None:
        """All is back: remove the journal and let the lock go. Again does nothing."""
        if not self.held or self._folder is None:
            return
        folder, _ = self._folder
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._stem}.json", dir_fd=folder)
            os.fsync(folder)
        self.let_go()

    def let_go(self) -> None:
        """Let the lock go and leave the journal to the next start."""
        if not self.held or self._folder is None:
            return
        self._pid = None
        for each in self._locks:
            os.ftruncate(each, 0)
            os.close(each)
        os.close(self._folder[0])
        self._locks, self._folder = [], None


def restore_left_over(root: Path = Path("/")) -> list[str]:
    """Put back what killed processes of this user left set on this node.

    To be called when a worker starts; :func:`sites.clocks.open_control` of every control that
    writes calls it too. What a running process has set is left alone.

    Returns:
        What was done, and what could not be, a line each; empty where nothing was left.
    """
    lines: list[str] = []
    for path in _folders(root):
        try:
            folder = _open_folder(path)
        except FileNotFoundError:
            continue
        except NotOurs as error:
            if path.parent.name != "run" or os.geteuid() == 0:
                lines.append(f"{error}: nothing in it was put back; remove it")
            continue
        except OSError as error:
            lines.append(f"{path}: {error.strerror}: nothing in it was put back")
            continue
        try:
            # Of the folder that was checked, whatever has come to its path since.
            for name in sorted(os.listdir(folder)):  # noqa: PTH208
                if _is_journal(name):
                    lines += _restore_one(root, folder, path, name.removesuffix(".json"))
        finally:
            os.close(folder)
    return lines


def at_last(owner: object, put_back: Callable[..., None], *arguments: Any) -> None:
    """Have ``put_back(*arguments)`` called when ``owner`` is gone or the interpreter ends.

    A last resort: a signal can come between the ``finally`` of a caller and ``restore``.
    """
    _LAST[:] = [each for each in _LAST if each.alive]
    _LAST.append(weakref.finalize(owner, put_back, *arguments))


def put_back_held() -> None:
    """Put back all that this process still has set.

    To be called before ``os._exit``, which skips what an interpreter does at its end.
    """
    for each in _LAST:
        each()


def log_left_over(root: Path) -> None:
    """:func:`restore_left_over`, its lines as warnings of this module's logger."""
    for line in restore_left_over(root):
        logging.getLogger(__name__).warning("%s", line)


def _restore_one(root: Path, folder: int, path: Path, stem: str) -> list[str]:
    with signals_wait():
        try:
            lock = _take_lock(folder, path, stem)
        except ClocksInUse:
            return []
        except ClocksUnavailable as error:
            return [str(error)]
        try:
            return _replay(root, folder, path, stem)[0]
        finally:
            os.ftruncate(lock, 0)
            os.close(lock)


def _replay(root: Path, folder: int, path: Path, stem: str) -> tuple[list[str], bool]:
    """Replay a journal whose lock is held: (what was done, whether it has to stay)."""
    name = f"{stem}.json"
    try:
        text = _read_own(folder, path, name)
    except FileNotFoundError:
        return [], False
    except (NotOurs, OSError) as error:
        return [f"{path / name}: {error}: not replayed; remove it"], True
    try:
        control, boot, found = _parse(text)
        if control != stem.partition("@")[0].partition("-")[0]:
            raise Damaged(f"is of control {control!r}, which its name is not")
        if boot != _boot(root):
            os.unlink(name, dir_fd=folder)
            return [f"{path / name}: from before the last boot, which reset the clocks"], False
        back = _put_back(root, control, found)
    except Damaged as error:
        os.rename(name, f"{stem}.damaged", src_dir_fd=folder, dst_dir_fd=folder)
        return [
            f"{path / name} {error}: nothing of it was put back, and it is now {stem}.damaged; "
            "check this node's clocks, or boot it again"
        ], False
    lines = [f"left over, put back: {each}" for each in back.done]
    lines += [f"left over, and its device is gone: {each}" for each in back.gone]
    lines += [f"left over, and cannot be put back: {each}" for each in back.failed]
    if back.failed:
        return lines, True
    os.unlink(name, dir_fd=folder)
    os.fsync(folder)
    return lines, False


def _put_back(root: Path, control: str, found: list[Entry]) -> PutBack:
    module = import_module(CONTROLS[control]) if control in CONTROLS else None
    if not hasattr(module, "put_back"):
        raise Damaged(f"names a control {control!r} that writes nothing")
    try:
        back: PutBack = module.put_back(root, found)  # type: ignore[union-attr]
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"holds what {control} does not write ({error})") from None
    return back


def _parse(text: str) -> tuple[str, str | None, list[Entry]]:
    try:
        fields = json.loads(text)
        version, control, boot, found = (
            fields[key] for key in ("version", "control", "boot", "found")
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged("is damaged") from None
    if version != VERSION:
        raise Damaged(f"has version {version!r} and not {VERSION}")
    shape = isinstance(control, str) and isinstance(found, list)
    if not shape or not all(isinstance(each, dict) for each in found):
        raise Damaged("is damaged")
    return control, boot, found


def _node() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", platform.node() or "node")


def _stem(control: str, device: str) -> str:
    device = re.sub(r"[^A-Za-z0-9.-]", "_", device)
    return f"{control}-{device}@{_node()}" if device else f"{control}@{_node()}"


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
    """The folder for this user's journals, made where it has to be: (descriptor, path)."""
    problems = []
    for path in _folders(root):
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(0o700)
            return _open_folder(path), path
        except NotOurs as error:
            # Another user's folder in /run is root's, and no harm; else somebody plants one.
            if path.parent.name != "run" or os.geteuid() == 0:
                raise ClocksUnavailable(
                    f"{error}, and what was found cannot be kept safely, so no clock was changed",
                    f"remove it: `sudo rm -r {path}`",
                ) from None
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    raise ClocksUnavailable(
        "no folder to keep what was found, so no clock was changed: " + "; ".join(problems),
        f"make {root / 'tmp'} writable for this user",
    )


def _open_folder(path: Path) -> int:
    parent = path.parent.stat()
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        raise NotOurs(f"{path.parent} lets everybody rename what is in it")
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (NotADirectoryError, PermissionError) as error:
        raise NotOurs(f"{path} is a link, no folder, or another user's ({error})") from None
    except OSError:
        if path.is_symlink():
            raise NotOurs(f"{path} is a link") from None
        raise
    try:
        _check_own(os.fstat(folder), path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _check_own(found: os.stat_result, path: Path) -> None:
    if found.st_uid != os.geteuid():
        raise NotOurs(f"{path} belongs to user {found.st_uid}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotOurs(f"{path} can be written by others")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        raise NotOurs(f"{path} has another name too")


def _open_own(folder: int, path: Path, name: str, flags: int) -> int:
    try:
        # O_NONBLOCK: a planted pipe must not make the opening wait.
        opened = os.open(
            name,
            flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK,
            0o600,
            dir_fd=folder,
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotOurs(f"{path / name} is a link or cannot be opened ({error.strerror})") from None
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise NotOurs(f"{path / name} is no file")
        _check_own(found, path / name)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _read_own(folder: int, path: Path, name: str) -> str:
    with os.fdopen(_open_own(folder, path, name, os.O_RDONLY), "rb") as file:
        return file.read(LARGEST_BYTES).decode(errors="replace")


def _take_lock(folder: int, path: Path, stem: str) -> int:
    name = f"{stem}.lock"
    try:
        lock = _open_own(folder, path, name, os.O_RDWR | os.O_CREAT)
    except NotOurs as error:
        raise ClocksUnavailable(str(error), f"remove it: `sudo rm -r {path / name}`") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        text = os.pread(lock, 32, 0).strip()
        os.close(lock)
        pid = int(text) if text.isdigit() else None
        if pid is None:
            raise ClocksInUse(
                f"{path / name} is held by another process",
                f"wait for it; `fuser {path / name}` tells which it is",
                None,
            ) from None
        raise ClocksInUse(
            f"{path / name} is held by process {pid}, which has these clocks set",
            f"wait until it ends, or end it: `kill {pid}`",
            pid,
        ) from None
    except BaseException:
        os.close(lock)
        raise
    return lock
