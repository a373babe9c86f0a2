"""The start of a user's program: its launcher, its PATH, and its number of ranks."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SIZE_PROGRAM = Path(__file__).with_name("mpi_size.py")
SIZE_LINE = re.compile(r"^mpi size ([0-9]+)$", re.MULTILINE)
PROGRAM_TIMEOUT_S = 60.0
MPI_LIBRARY = re.compile(r"=> (/\S*/libmpi(?:ch|fort|_\w+)?\.so\S*) \(")


@dataclass(frozen=True)
class Launcher:
    """A command that starts the MPI ranks of a program.

    ``words``: the command line before the program's. ``environment``: the launcher's environment.
    ``children``: whether the ranks are descendants of the process that starts the launcher, so that
    the hardware counters of this process count them.
    """

    words: tuple[str, ...]
    ranks: int
    environment: Mapping[str, str]
    children: bool


@cache
def wheel_programs() -> dict[str, Path]:
    """Name -> path of the programs of the wheel mpich in this environment; empty without it."""
    try:
        files = importlib.metadata.files("mpich") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    paths = [Path(os.path.normpath(str(file.locate()))) for file in files]
    return {path.name: path for path in paths if path.parent.name == "bin"}


def without_wheel(search: str) -> str:
    """A PATH without the folder of the wheel mpich's programs."""
    folders = {path.parent.resolve() for path in wheel_programs().values()}
    entries = search.split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).resolve() not in folders)


def hidden_programs(search: str) -> dict[str, str]:
    """The programs that the wheel mpich hides on a PATH: name -> file in a later folder.

    An active virtual environment comes first on PATH, and the wheel's ``mpirun`` cannot start the
    ranks of another MPI.
    """
    others = without_wheel(search)
    hidden = {}
    for name in wheel_programs():
        first, of_site = shutil.which(name, path=search), shutil.which(name, path=others)
        if of_site is not None and first != of_site:
            hidden[name] = of_site
    return hidden


def site_launcher() -> str | None:
    """The first ``mpiexec``, else ``mpirun``, on PATH outside the wheel; None if there is none."""
    search = without_wheel(os.environ.get("PATH", os.defpath))
    return shutil.which("mpiexec", path=search) or shutil.which("mpirun", path=search)


def mpi_library(
    program: str, environment: Mapping[str, str], folder: str | None = None
) -> str | None:
    """The MPI library that a program loads at its start, by ``ldd``; None where ``ldd`` shows none:
    for a script, a static program, or a program that loads it later."""
    path = program if "/" in program else shutil.which(program, path=environment.get("PATH"))
    if path is None:
        return None
    found = MPI_LIBRARY.search(_printed(["ldd", path], environment, folder))
    return None if found is None else found[1]


def world_sizes(launcher: Launcher, library: str, environment: Mapping[str, str]) -> Sequence[int]:
    """The size of COMM_WORLD that each rank of a launcher sees through an MPI library; empty where
    not all ranks print one."""
    printed = _printed(
        [*launcher.words, sys.executable, "-I", str(SIZE_PROGRAM), library], environment
    )
    sizes = [int(size) for size in SIZE_LINE.findall(printed)]
    return sizes if len(sizes) == launcher.ranks else ()


def _printed(argv: Sequence[str], environment: Mapping[str, str], folder: str | None = None) -> str:
    """A program's standard output; empty where it does not start, fails or does not end."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=PROGRAM_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
