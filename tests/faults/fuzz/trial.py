"""Inputs tried one by one in a process of their own, which has limits of time and memory."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.fuzz.damage import Change, Changes, Files, Link
from tests.faults.fuzz.reading import check_message, is_typed
from tests.faults.fuzz.right_files import ROOT
from tests.faults.fuzz.target import Target, make_changes
from tests.faults.fuzz.targets import TARGETS

LOADED_ONCE = (
    "analysis.quality.all_checks",
    "campaign.store.dataset",
    "campaign.table.importing",
    "dask",
    "pyarrow.parquet",
    "scipy.optimize",
    "scipy.stats",
    "xarray",
    "zarr",
)
"""What the readers import, before the first fork: else every target's process loads it again."""
LIMIT_CPU_S = 2.0
"""More processor time than the right files take."""
SLOW_TRIES = 3
"""An input is slow only where each of so many tries is. On a busy machine the same work takes up to
twice the processor time, so before another try the right files are timed again."""
LIMIT_ALL_CPU_S = 10
"""Then the process is ended; so it is after LIMIT_S, which a busy machine needs."""
LIMIT_S = 60
LIMIT_MB = 500


@dataclass(frozen=True)
class Failure:
    """An input that was not read and not refused as it should be."""

    target: str
    input: str
    """The name of a case, or the number of an input at random, and the way of reading."""
    what: str
    where: str
    """The innermost places in the program, the last one first."""
    changes: dict[str, str]


@dataclass
class TargetResult:
    """What came of the inputs of one target. ``refused``: by the type of the error."""

    target: str
    inputs: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest_s: float = 0.0
    """Processor time of one input."""
    highest_mb: float = 0.0
    """By so much one input let the memory grow."""


def inputs_of(target: Target, n_inputs: int, short: bool) -> list[tuple[str, int]]:
    """The inputs in order: a case's name or a number, and the way of reading."""
    listed: list[tuple[str, int]] = []
    turn = target.often or tuple(range(target.ways))
    for at, name in enumerate(list(target.cases)[:: target.short_step if short else 1]):
        ways = [turn[at % len(turn)]] if short else range(target.ways)
        listed += [(name, way) for way in ways]
    return listed + [(str(i), turn[i % len(turn)]) for i in range(max(n_inputs, 0))]


def tree(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their paths in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def put(folder: Path, name: str, content: Change) -> None:
    """Put a content in the place of a file; never through a link."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if isinstance(content, Link):
        path.symlink_to(content.to)
    elif content is not None:
        path.write_bytes(content)


def status_kb(name: str) -> int:
    """A line of what the system knows of this process, in KB."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)[1])  # type: ignore[index]


def try_input(
    target: Target, folder: Path, way: int, usual_s: float, files_missing: bool
) -> dict[str, Any]:
    """Read one input under the limits, and say what came of it."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory, from now on
    before_kb = status_kb("VmRSS")
    limit = status_kb("VmSize") * 1024 + LIMIT_MB * 10**6
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_ALL_CPU_S)
    start_s = time.process_time()
    said: dict[str, Any] = {}
    try:
        target.read(folder, way)
        said["accepted"] = True
    except BaseException as error:
        said["refused"] = type(error).__name__
        try:
            if not is_typed(error, files_missing):
                raise error
            check_message(str(error))
        except BaseException as wrong:
            said["failed"] = f"{type(wrong).__name__}: {str(wrong)[:300]}"
            said["where"] = places(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said["s"] = time.process_time() - start_s
    said["mb"] = (status_kb("VmHWM") - before_kb) / 1e3
    if said["s"] > LIMIT_CPU_S + usual_s and "failed" not in said:
        said["slow"] = True
        said["failed"] = f"took {said['s']:.1f} s, the right files {usual_s:.1f} s"
    if said["mb"] > LIMIT_MB:
        said.setdefault("failed", f"took {said['mb']:.0f} MB")
    return said


def time_of(target: Target, folder: Path, way: int) -> float:
    """The processor time of reading what is there."""
    start_s = time.process_time()
    target.read(folder, way)
    return time.process_time() - start_s


def places(error: BaseException) -> str:
    """Where in this project an error came from, the innermost place first."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno} {frame.name}"
        for frame in frames
        if Path(frame.filename).is_relative_to(ROOT) and ".venv" not in frame.filename
    ]
    return " < ".join(dict.fromkeys(reversed(mine[-4:])))


def changes_of(
    target: Target, files: Files, spare: Mapping[str, list[bytes]], seed: int, name: str
) -> Changes:
    """The changes of a case, or of an input at random."""
    if name in target.cases:
        return target.cases[name](files)
    return make_changes(target, files, spare, seed, int(name))


def work(
    target: Target,
    prepared: Path,
    folder: Path,
    seed: int,
    inputs: Sequence[tuple[str, int]],
    say: Callable[[dict[str, Any]], object],
) -> None:
    """Try inputs one after the other, and say before and after each what is done."""
    for signal_number in (signal.SIGALRM, signal.SIGPROF):  # they end the process, whatever it does
        signal.signal(signal_number, signal.SIG_DFL)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    (folder.parent / "outside.txt").write_text("nothing of yours\n")
    files = tree(folder)
    spare = target.spare(files)
    say({"begins": "the right files"})
    usual_s: dict[int, float] = {}
    for way in [*range(target.ways), *range(target.ways)]:
        # Twice: what is loaded at the first reading is not an input's doing.
        usual_s[way] = time_of(target, folder, way)
    for name, way in inputs:
        say({"begins": name})
        changes = changes_of(target, files, spare, seed, name)
        missing = any(not isinstance(content, bytes) for content in changes.values())
        for attempt in range(SLOW_TRIES):
            if attempt:
                usual_s[way] = time_of(target, folder, way)
            for path, content in changes.items():
                put(folder, path, content)
            try:
                said = try_input(target, folder, way, usual_s.get(way, 0.0), missing)
            finally:
                for path in changes:
                    put(folder, path, files.get(path))
            if "slow" not in said:
                break
        if "failed" in said:
            said["changes"] = {path: shown(content) for path, content in changes.items()}
        say(said | {"ends": name})


def shown(content: Change) -> str:
    """A change, as short as can be shown."""
    text = repr(content)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-60:]} ({len(text)} characters)"


def in_child(run: Callable[[Callable[[dict[str, Any]], object]], None]) -> tuple[list[Any], str]:
    """Run something in a forked process; what it said, and how it ended: empty when well."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        code = 1
        try:
            # Else what was printed before is printed once more.
            sys.stdout.flush()
            run(lambda said: os.write(writer, json.dumps(said).encode() + b"\n"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = [json.loads(line) for line in file if line.endswith(b"\n")]
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code == 0:
        return said, ""
    if code in (-signal.SIGALRM, -signal.SIGPROF):
        limit_s = LIMIT_S if code == -signal.SIGALRM else LIMIT_ALL_CPU_S
        return said, f"did not end within {limit_s} s"
    return said, f"the process ended with {code}"


def run_target(
    target: Target, prepared: Path, folder: Path, seed: int, inputs: list[tuple[str, int]]
) -> TargetResult:
    """Try all inputs of a target, in as many processes as it takes."""
    result = TargetResult(target.name)
    at = 0
    while at < len(inputs):
        left = inputs[at:]
        said, how = in_child(lambda say, left=left: work(target, prepared, folder, seed, left, say))
        ended = [line for line in said if "ends" in line]
        for (name, way), line in zip(left, ended, strict=False):
            take(result, f"{name}, way {way}", line)
        at += len(ended)
        if how:
            name, way = inputs[at] if len(said) > 2 * len(ended) + 1 else ("the right files", 0)
            take(result, f"{name}, way {way}", {"failed": how, "where": "", "changes": {}})
            at = at + 1 if name != "the right files" else len(inputs)
    return result


def take(result: TargetResult, name: str, said: Mapping[str, Any]) -> None:
    """Count one input."""
    result.inputs += 1
    result.slowest_s = max(result.slowest_s, said.get("s", 0.0))
    result.highest_mb = max(result.highest_mb, said.get("mb", 0.0))
    if "failed" in said:
        failure = Failure(
            result.target, name, said["failed"], said.get("where", ""), said.get("changes", {})
        )
        result.failures.append(failure)
    elif "accepted" in said:
        result.accepted += 1
    else:
        result.refused[said["refused"]] += 1


def run(
    n_inputs: int,
    seed: int,
    names: Sequence[str],
    short: bool,
    show: Callable[[TargetResult], None],
) -> list[TargetResult]:
    """Try ``n_inputs`` over the targets, by their shares."""
    for module in LOADED_ONCE:
        importlib.import_module(module)
    targets = [target for target in TARGETS if not names or target.name in names]
    shares = sum(target.share for target in targets)
    results = []
    with tempfile.TemporaryDirectory(prefix="campaign-fuzz-") as folder:
        prepared: dict[Callable[[Path], None], Path] = {}
        for target in targets:
            own = prepared.get(target.prepare)
            if own is None:
                own = prepared[target.prepare] = Path(folder) / f"right-{target.name}"
                own.mkdir()
                _, how = in_child(lambda say, t=target, o=own: t.prepare(o))
                if how:
                    raise SystemExit(f"{target.name}: its right files can't be made: {how}")
            n_mine = math.ceil(n_inputs * target.share / shares)
            inputs = inputs_of(target, n_mine, short)
            results.append(run_target(target, own, Path(folder) / "work" / "in", seed, inputs))
            show(results[-1])
    return results
