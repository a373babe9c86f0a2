"""The fault run: ``python -m tests.faults [--commit N] [--local N] [--slurm N] [--changes N]
[--seed S]``.

A line a fault, a table by kind, and exit code 1 if any was not survived. Without numbers: 400 at
the store's system calls, 80 of runs on local workers, 20 on a real Slurm, 2,000 changes to the
files of a store.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from tests.faults.outcome import Outcome

COMMIT, LOCAL, SLURM, CHANGES = 400, 80, 20, 2000


def _commit(count: int, seed: int) -> Iterator[Outcome]:
    from tests.faults.commit_faults import run

    return run(count, seed)


def _local(count: int, seed: int) -> Iterator[Outcome]:
    from tests.faults.local_faults import run

    return run(count, seed)


def _slurm(count: int, seed: int) -> Iterator[Outcome]:
    from tests.faults.slurm_faults import run

    outcomes: Iterator[Outcome] = run(count, seed)
    return outcomes


def _changes(count: int, seed: int) -> Iterator[Outcome]:
    from tests.faults.changed_stores import run

    return run(count, seed)


def summary(outcomes: list[Outcome]) -> str:
    """A table: of each kind of fault, how many were tried and how many survived."""
    tried = Counter(outcome.kind for outcome in outcomes)
    survived = Counter(outcome.kind for outcome in outcomes if outcome.ok)
    width = max([4, *map(len, tried)])
    lines = [f"{'kind':{width}}  tried  survived"]
    lines += [f"{kind:{width}}  {tried[kind]:5}  {survived[kind]:8}" for kind in sorted(tried)]
    lines.append(f"{'all':{width}}  {len(outcomes):5}  {survived.total():8}")
    return "\n".join(lines)


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Harm campaigns and stores; check what is left."
    )
    asked: list[tuple[str, int, Callable[[int, int], Iterator[Outcome]]]] = [
        ("commit", COMMIT, _commit),
        ("local", LOCAL, _local),
        ("slurm", SLURM, _slurm),
        ("changes", CHANGES, _changes),
    ]
    for name, _, _ in asked:
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"so many {name} faults")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every outcome, as JSON")
    arguments = vars(parser.parse_args())
    # nohup ignores SIGHUP, and so would all that is started here.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    every = all(arguments[name] is None for name, _, _ in asked)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for name, usual, run in asked:
        count = usual if every else arguments[name] or 0
        for outcome in run(count, arguments["seed"]) if count else ():
            print(outcome.line(), flush=True)
            outcomes.append(outcome)
    if arguments["json"]:
        arguments["json"].write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=1)
        )
    print(summary(outcomes))
    failed = [outcome for outcome in outcomes if not outcome.ok]
    for outcome in failed:
        print(outcome.line())
    print(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} faults survived, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
