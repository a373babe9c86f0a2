"""Shared by the benchmarks: their arguments, costs of processes and calls, contenders in turn.

It needs nothing but Python, because some benchmarks also run with the Python of other projects.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
CAMPAIGN = [sys.executable, "-m", "campaign"]
"""The command line of this project, to which a verb and its arguments are added."""
Result = TypeVar("Result")


def argument_parser(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help begins with a benchmark's docstring, unchanged."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a process from start to end. ``cpu_s``: user and system time, with that of its
    children; ``memory_mb``: the largest resident set, of the process or of a child."""

    wall_s: float
    cpu_s: float
    memory_mb: float
    output: str


def cost_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command in the root of the repository, and return its cost.

    Raises:
        SystemExit: it failed; with what it printed.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (output, errors):
            file.seek(0)
        printed = output.read()
        if process.returncode:
            raise SystemExit(
                f"{' '.join(command)[:200]}: exit code {process.returncode}\n{printed}"
                f"{errors.read()}"
            )
    return Cost(
        wall_s=wall_s,
        cpu_s=used.ru_utime + used.ru_stime,
        memory_mb=used.ru_maxrss / 1024,
        output=printed,
    )


def seconds_of(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a call by a clock of :mod:`time`."""
    began_s = clock()
    call()
    return clock() - began_s


def interleaved(
    contenders: Mapping[str, Callable[[], Result]], rounds: int
) -> dict[str, list[Result]]:
    """Call each contender once a round, every second round in the opposite order; return name ->
    results by round."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            results[name].append(contenders[name]())
    return results
