"""Any program, started without a shell, with given or reported operation counts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelFailed, Params, WrongResult

COUNTS_VARIABLE = "CAMPAIGN_COUNTS_FILE"
LAST_LINES_CHARS = 2000

CLASS = "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
"""The name of a class, which is also part of the name of a column and a file."""
Word = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
ClassName = Annotated[str, StringConstraints(pattern=f"^{CLASS}$")]
Count = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CommandParams(Params):
    """A program, its operation counts, and how to recognise a correct run."""

    argv: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)]
    """the program and its arguments, passed on unchanged: no shell reads them"""
    cwd: str | None = None
    """directory to run in; default: that of the measuring process"""
    counts: dict[ClassName, Count] | None = None
    """operations of one run, by class"""
    reports_counts: bool = False
    """the program itself writes its counts, a JSON object of class to number, to the file that the
    environment variable CAMPAIGN_COUNTS_FILE names"""
    exit_code: int = 0
    """exit code of a correct run"""
    expect: str | None = None
    """text that the output of a correct run contains"""


class _Command:
    def __init__(self, params: CommandParams, team: Team) -> None:
        self.params = params
        self.team = team
        self.reported: dict[str, float] | None = None
        self.output = ""

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            self._once()

    def _once(self) -> None:
        argv = list(self.params.argv)
        with tempfile.TemporaryDirectory(prefix="campaign-command-") as folder:
            counts_file = Path(folder) / "counts.json"
            environment = {**os.environ, COUNTS_VARIABLE: str(counts_file)}
            with (Path(folder) / "output").open("w+b") as output:
                try:
                    done = subprocess.run(
                        argv,
                        cwd=self.params.cwd,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        check=False,
                    )
                except OSError as error:
                    where = f" in {self.params.cwd!r}" if self.params.cwd else ""
                    raise KernelFailed(
                        f"cannot start {argv[0]!r}{where}: {error.strerror}"
                    ) from None
                output.seek(0)
                self.output = output.read().decode("utf-8", "replace")
            if done.returncode != self.params.exit_code:
                end = self.output[-LAST_LINES_CHARS:].strip()
                raise KernelFailed(
                    f"{argv[0]!r} ended with exit code {done.returncode}, not "
                    f"{self.params.exit_code}; its last output: {end or 'none'}"
                )
            if self.params.reports_counts:
                self.reported = read_counts(counts_file)

    def counts(self) -> Counts | None:
        return self.reported if self.params.reports_counts else self.params.counts

    def check(self) -> None:
        expect = self.params.expect
        if expect is not None and expect not in self.output:
            raise WrongResult(
                f"the output of {self.params.argv[0]!r} does not contain {expect!r}; "
                f"its last output: {self.output[-LAST_LINES_CHARS:].strip() or 'none'}"
            )

    def close(self) -> None:
        """Nothing is left: every run has ended."""


def read_counts(path: Path) -> dict[str, float]:
    """The counts that a program reported: a JSON object of class to a number >= 0.

    Raises:
        KernelFailed: there is no such file, or it contains something else.
    """
    try:
        reported = json.loads(path.read_text())
    except FileNotFoundError:
        raise KernelFailed(
            f"the program wrote no file at the path that {COUNTS_VARIABLE} contains"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise KernelFailed(f"cannot read the reported counts: {error}") from None
    if not isinstance(reported, dict):
        raise KernelFailed("the reported counts are not a JSON object of class to number")
    counts = {}
    for name, value in reported.items():
        if re.fullmatch(CLASS, name) is None:
            raise KernelFailed(
                f"a class of the reported counts is named {name[:80]!r}; a name has at most 64 "
                "letters, digits, _, . and -, and begins with a letter or digit"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Larger whole numbers cannot become a float.
        if not number or not 0 <= value < 2**1023:
            raise KernelFailed(
                f"the reported count of {name!r} is {str(value)[:40]!r}, not a number >= 0"
            )
        counts[name] = float(value)
    return counts


def _prepare(params: CommandParams, team: Team) -> _Command:
    return _Command(params, team)


command = Kernel(
    name="command",
    summary="any program, started without a shell",
    counted="what the campaign file states, or what the program writes to the file that the "
    "environment variable CAMPAIGN_COUNTS_FILE names",
    classes=(),
    params=CommandParams,
    counts=lambda params: None if params.reports_counts else params.counts,
    prepare=_prepare,
)
