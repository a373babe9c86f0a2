"""The preloaded library ``at_syscall.c``: built once a process, and the variables that steer it."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("at_syscall.c")
LIBRARY = "at_syscall.so"
VARIABLE = "AT_SYSCALL_"
_BUILDING = threading.Lock()


class BuildError(Exception):
    """There is no C compiler, or it refuses the library."""


@dataclass(frozen=True, kw_only=True)
class AtCall:
    """What is to go wrong at which system call; see the head of ``at_syscall.c``.

    ``act``: ``count``, ``kill-before``, ``kill-after``, ``torn``, ``errno`` or ``clock``.
    ``once``: only the first process that comes to its call acts; ``once_path`` shows the others.
    """

    prefix: Path
    act: str
    number: int = 1
    call: str = ""
    error: str = ""
    always: bool = False
    jump_s: int = 0
    word: str = ""
    once_path: Path | None = None
    log_path: Path | None = None

    def hits(self) -> list[tuple[int, str, str]]:
        """What the log says: (process, call, path), in order."""
        if self.log_path is None or not self.log_path.exists():
            return []
        lines = [line.split(" ", 2) for line in self.log_path.read_text().splitlines()]
        return [(int(pid), call, path) for pid, call, path in lines]

    def first_hit(self, folder: Path) -> str:
        """The first call that was acted on, its path seen from ``folder``; empty if none was."""
        for _, call, path in self.hits():
            return f"{call} {path.removeprefix(str(folder)).lstrip('/')}"
        return ""

    def variables(self) -> dict[str, str]:
        """The environment variables that say so."""
        settings = {"PREFIX": str(self.prefix), "ACT": self.act, "NUMBER": str(self.number)}
        if self.call:
            settings["CALL"] = self.call
        if self.error:
            settings["ERRNO"] = str(getattr(errno, self.error))
        if self.always:
            settings["ALWAYS"] = "1"
        if self.jump_s:
            settings["JUMP_S"] = str(self.jump_s)
        if self.word:
            settings["WORD"] = self.word
        if self.once_path is not None:
            settings["ONCE"] = str(self.once_path)
        if self.log_path is not None:
            settings["LOG"] = str(self.log_path)
        return {VARIABLE + name: value for name, value in settings.items()}

    def __str__(self) -> str:
        name = self.call or "call"
        match self.act:
            case "errno":
                what = f"{self.error} at {name} {self.number}" + (" and on" if self.always else "")
            case "clock":
                what = f"clock jumps {self.jump_s:+d} s at reading {self.number}"
            case "torn":
                what = f"half of write {self.number}, then SIGKILL"
            case _:
                what = f"{self.act.replace('kill', 'SIGKILL')} {name} {self.number}"
        return what + (f" in {self.word}" if self.word else "")


def library() -> Path:
    """The built library, in a temporary folder that goes with this process.

    Raises:
        BuildError: it can't be built.
    """
    with _BUILDING:
        return Path(_built().name) / LIBRARY


@functools.cache
def _built() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="at-syscall-")
    built = Path(folder.name) / LIBRARY
    words = ["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BuildError("there is no C compiler here: install one named cc") from None
    if done.returncode != 0:
        raise BuildError(done.stderr.strip())
    return folder


def environment(at_call: AtCall | None = None) -> dict[str, str]:
    """This process's environment, and in it the library and what it shall do."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(VARIABLE)}
    clean["LD_PRELOAD"] = str(library())
    return clean | (at_call.variables() if at_call is not None else {})


def arm(variables: Mapping[str, str]) -> None:
    """In a process that has the library loaded: forget what was asked, and do this from now on."""
    for name in [name for name in os.environ if name.startswith(VARIABLE)]:
        del os.environ[name]
    os.environ |= variables
    ctypes.CDLL(None).at_syscall_arm()
