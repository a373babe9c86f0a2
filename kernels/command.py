"""Any program, started without a shell; the campaign file or the program gives its counts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field, StringConstraints

from kernels.host.output import beginning_and_end
from kernels.host.programs import Launcher, hidden_programs, mpi_library, world_sizes
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Params, ResultError

COUNTS_VARIABLE = "CAMPAIGN_COUNTS_FILE"
LAUNCHER_END_S = 1.5
"""Less than the time in which a process must end (GRACE_S in campaign.measure.point_server)."""

CLASS = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
"""The pattern of a class's name, which is also part of the names of a column and a file."""
Word = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
ClassName = Annotated[str, StringConstraints(pattern=f"^{CLASS}$")]
Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CommandParams(Params):
    """A program, its operation counts, and how to recognise a correct run."""

    argv: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)]
    """the program and its arguments; no shell reads them"""
    cwd: str | None = None
    """directory to run in; default: that of the measuring process"""
    counts: dict[ClassName, Count] | None = None
    """operations of one run, by class"""
    reports_counts: bool = False
    """the program writes its counts, a JSON object of class to number, to the file named by the
    variable CAMPAIGN_COUNTS_FILE"""
    exit_code: int = 0
    """exit code of a correct run"""
    expect: str | None = None
    """text that the output of a correct run contains"""


class _Command:
    def __init__(self, params: CommandParams, team: Team) -> None:
        self.params = params
        self.reported: dict[str, float] | None = None
        self.output = ""
        self.unchecked: list[str] = []
        inherited = os.environ if team.launcher is None else team.launcher.environment
        self.launcher = () if team.launcher is None else team.launcher.words
        self._files = tempfile.TemporaryDirectory(prefix="campaign-command-")
        self.folder = Path(self._files.name)
        self.counts_file = self.folder / "counts.json"
        self.environment = {**inherited, COUNTS_VARIABLE: str(self.counts_file)}
        try:
            self._unhide_programs()
            if team.launcher is not None:
                self._check_ranks(team.launcher)
        except BaseException:
            self.close()
            raise

    def _unhide_programs(self) -> None:
        """Put the site's MPI programs that the wheel hides first on PATH, in a separate folder.

        The environment's other programs, such as python, are still found where they were.
        """
        search = self.environment.get("PATH", os.defpath)
        if hidden := hidden_programs(search):
            programs = self.folder / "programs"
            programs.mkdir()
            for name, path in hidden.items():
                (programs / name).symlink_to(path)
            self.environment["PATH"] = f"{programs}{os.pathsep}{search}"

    def _check_ranks(self, launcher: Launcher) -> None:
        """Refuse ranks that would each form a separate COMM_WORLD: no other error shows it."""
        program = self.params.argv[0]
        library = mpi_library(program, self.environment, self.params.cwd)
        sizes = world_sizes(launcher, library, self.environment) if library else ()
        wrong = [size for size in sizes if size != launcher.ranks]
        if wrong:
            raise KernelError(
                f"{program!r} would run as worlds of {wrong[0]} rank(s) in place of one of "
                f"{launcher.ranks}: {shlex.join(launcher.words)} and its MPI library, {library}, "
                f"use different start-up protocols; set mpi in the environment of the partition in "
                f"the site file, or put the mpiexec of this library first on PATH"
            )
        if not sizes and self.params.expect is None:
            self.unchecked = [
                f"nothing shows that the program ran as one world of {launcher.ranks} ranks: let "
                f"it print its number of ranks, and give that text as expect"
            ]

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            self._once()

    def _once(self) -> None:
        program, right = self.params.argv[0], self.params.exit_code
        self.counts_file.unlink(missing_ok=True)
        with (self.folder / "output").open("w+b") as output:
            code = self._exit_code(output)
            output.seek(0)
            self.output = output.read().decode("utf-8", "replace")
        if code != right:
            raise KernelError(
                f"{program!r} ended with exit code {code}, not {right}; its output:\n"
                f"{beginning_and_end(self.output)}"
            )
        if self.params.reports_counts:
            self.reported = read_counts(self.counts_file)

    def _exit_code(self, output: BinaryIO) -> int:
        argv = [*self.launcher, *self.params.argv]
        try:
            process = subprocess.Popen(
                argv,
                cwd=self.params.cwd,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            where = f" in {self.params.cwd!r}" if self.params.cwd else ""
            raise KernelError(f"cannot start {argv[0]!r}{where}: {error.strerror}") from None
        try:
            return process.wait()
        finally:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End a process; a launcher first by SIGTERM: if it is killed, its ranks may run on."""
        if process.poll() is None and self.launcher:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LAUNCHER_END_S)
        if process.poll() is None:
            process.kill()
            process.wait()

    def counts(self) -> Counts | None:
        return self.reported if self.params.reports_counts else self.params.counts

    def flags(self) -> Sequence[str]:
        return self.unchecked

    def check(self) -> None:
        expect = self.params.expect
        if expect is not None and expect not in self.output:
            raise ResultError(
                f"the output of {self.params.argv[0]!r} does not contain {expect!r}; its "
                f"output:\n{beginning_and_end(self.output)}"
            )

    def close(self) -> None:
        self._files.cleanup()


def read_counts(path: Path) -> dict[str, float]:
    """The counts that a program reported: a JSON object of class to a number >= 0.

    Raises:
        KernelError: there is no such file, or its content is not such an object.
    """
    try:
        reported = json.loads(path.read_text())
    except FileNotFoundError:
        raise KernelError(
            f"the program wrote no file at the path that {COUNTS_VARIABLE} contains"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise KernelError(f"cannot read the reported counts: {error}") from None
    if not isinstance(reported, dict):
        raise KernelError("the reported counts are not a JSON object of class to number")
    counts = {}
    for name, value in reported.items():
        if re.fullmatch(CLASS, name) is None:
            raise KernelError(
                f"a class of the reported counts is named {name[:80]!r}; a name has at most 64 "
                "letters, digits, _, . and -, and begins with a letter or digit"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # A larger integer may exceed the range of a float.
        if not number or not 0 <= value < 2**1023:
            raise KernelError(
                f"the reported count of {name!r} is {str(value)[:40]!r}, not a number >= 0"
            )
        counts[name] = float(value)
    return counts


class _OnOtherNode:
    """The kernel on a program's other nodes, whose meters are read meanwhile: it does nothing."""

    def run(self, iterations: int) -> None:
        pass

    def counts(self) -> Counts:
        return {}

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


def _prepare(params: CommandParams, team: Team) -> _Command | _OnOtherNode:
    """Rank 0 starts the program, on all nodes."""
    return _Command(params, team) if team.rank == 0 else _OnOtherNode()


command = Kernel(
    name="command",
    summary="any program, started without a shell",
    counted="what the campaign file states, or the program writes",
    classes=(),
    params=CommandParams,
    counts=lambda params: None if params.reports_counts else params.counts,
    prepare=_prepare,
    starts_ranks=True,
)
