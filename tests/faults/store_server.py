"""A warm interpreter, the preloaded library in it, that forks a process for every thing to do.

``python -m tests.faults.store_server CAMPAIGN.toml``: reads a JSON object a line from standard
input and answers each with ``{"exit": status, "said": last line, "output": text}``. ``do`` is

- ``write``: as a driver and its worker would: open the store, repair and compact it, append
  ``points`` of the measurements that it lacks (null: all) to a journal, compact and settle. Each
  point's id is written to ``acks`` when its append has returned.
- ``check``: judge the store; with ``resumable`` and ``acks`` also whether it holds what was
  acknowledged.

``variables`` arm the library in the forked process (:mod:`tests.faults.shim`). The interpreter
itself only imports: what a first process has loaded by its end is imported before the others are
forked. None of the store's code has run in it, so that each begins as a fresh process would.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from campaign.plan.plan import Plan, make_plan
from campaign.store.compaction import compact, equalize_generations
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import create_store, driver_lock, open_store
from campaign.store.verify import repair_samples
from dvfs.dataset import OK
from tests.faults.checker import Expected, expected_of, judge
from tests.faults.shim import arm, environment
from tests.faults.small_campaign import measured_here

ROOT = Path(__file__).parents[2]


def write(records: dict[str, bytes], root: Path, points: int | None, acks: Path | None) -> None:
    """What a driver and its worker do to a store, without Dask and without measuring."""
    store = create_store(root, "faults")
    with driver_lock(store):
        repair_samples(store)
        compact(store)
        held = set(current_tables(store)[0].measurements["point_id"])
        todo = [point_id for point_id in records if point_id not in held]
        with JournalWriter(store.journals) as journal:
            for point_id in todo[:points]:
                journal.append(records[point_id])
                if acks is not None:
                    with acks.open("a") as file:
                        file.write(f"{point_id}\n")
        compact(store)
        equalize_generations(store)


def check(
    plan: Plan, expected: dict[str, Expected | None], root: Path, resumable: bool, acks: Path | None
) -> int:
    """Judge; the last line printed is the judgement."""
    judgement = judge(plan, root, resumable, expected=expected)
    findings = list(judgement.findings)
    if acks is not None and acks.exists() and judgement.word != "wrong":
        acknowledged = set(acks.read_text().split())
        held: set[str] = set()
        if acknowledged:
            rows = open_dataset(open_store(root))[["point_id", "status"]]
            held = set(map(str, rows["point_id"].values[rows["status"].values == OK]))
        findings += [
            f"point {point_id}: acknowledged and lost" for point_id in sorted(acknowledged - held)
        ]
    for line in findings:
        print(line)
    print(f"wrong: {findings[0]}" if findings else judgement)
    return 1 if findings else 0


def serve(campaign: Path) -> None:
    """Serve requests until standard input ends."""
    plan = make_plan(campaign)
    expected = expected_of(plan)
    records = {point.id: encode(measured_here(plan, point)) for point in plan.points}
    _import_what_is_used(plan, expected, records)
    for line in sys.stdin:
        asked = json.loads(line)
        output = Path(asked["output"])
        child = os.fork()
        if child == 0:
            _child(asked, output, plan, expected, records)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        text = output.read_text()
        said = text.strip().splitlines()[-1] if text.strip() else ""
        print(json.dumps({"exit": status, "said": said, "output": text}), flush=True)


def _import_what_is_used(
    plan: Plan, expected: dict[str, Expected | None], records: dict[str, bytes]
) -> None:
    """Let a process write and judge a store, and import here what it has imported."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        names = Path(folder) / "names"
        child = os.fork()
        if child == 0:
            store = Path(folder) / "store"
            write(records, store, 1, None)
            write(records, store, None, None)
            judge(plan, store, False, expected=expected)
            names.write_text("\n".join(sys.modules))
            os._exit(0)
        os.waitpid(child, 0)
        for name in names.read_text().split():
            with contextlib.suppress(ImportError):
                import_module(name)
        assert threading.active_count() == 1, threading.enumerate()


def _child(
    asked: dict[str, Any],
    output: Path,
    plan: Plan,
    expected: dict[str, Expected | None],
    records: dict[str, bytes],
) -> None:
    code = 1
    try:
        log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        acks = Path(asked["acks"]) if asked.get("acks") else None
        root = Path(asked["store"])
        arm(asked.get("variables", {}))
        if asked["do"] == "write":
            write(records, root, asked["points"], acks)
            code = 0
        else:
            code = check(plan, expected, root, asked["resumable"], acks)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class StoreServer:
    """The other end of it."""

    def __init__(self, campaign: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.store_server", str(campaign)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Have one thing done; ``exit``, ``said`` and ``output``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
