"""Files from elsewhere, damaged at random: each must be read, or refused with a clear message.

``python -m tests.faults.fuzz [--inputs 20000] [--seed S] [--json FILE]``

A target is a tree of right files and what reads it: the program's own reader, or the command line.
An input is a change to that tree. It may be accepted, or refused with one of the errors that a
user can fix. Anything else is a failure: another exception, an empty message, in each of three
tries 2 s of processor time more than the right files take, 10 s of it at all, or more than 500 MB
of memory, which is a limit of the process. The inputs of a target run in a process of their own,
which is started again where one of them ends it. Each input follows from the seed, the target and
its number alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.faults.fuzz.trial import Failure, TargetResult, run


def print_result(result: TargetResult) -> None:
    """A target's line, and its failures, of each place the first."""
    refused = ", ".join(f"{name} {n}" for name, n in result.refused.most_common()) or "none"
    print(
        f"{result.target}: {result.inputs} inputs, {result.accepted} accepted, refused: {refused}; "
        f"slowest {result.slowest_s:.2f} s, highest memory growth {result.highest_mb:.0f} MB, "
        f"{len(result.failures)} failures",
        flush=True,
    )
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in result.failures:
        groups.setdefault((failure.what.partition(":")[0], failure.where), []).append(failure)
    for group in groups.values():
        first = group[0]
        print(f"  FAILED {first.input} (and {len(group) - 1} more): {first.what}")
        print(f"    at {first.where}")
        for name, change in first.changes.items():
            print(f"    {name}: {change}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 when every input was read or refused as it should be, else 1."""
    parser = argparse.ArgumentParser(description="Damaged files, and what the program says of them")
    parser.add_argument("--inputs", type=int, default=20_000, help="at random, over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", default=[], help="only this one (repeat)")
    parser.add_argument(
        "--short", action="store_true", help="known cases in one way each, and not all of a store"
    )
    parser.add_argument("--json", metavar="FILE", help="also write what was found")
    arguments = parser.parse_args(argv)
    start_s = time.monotonic()
    results = run(arguments.inputs, arguments.seed, arguments.target, arguments.short, print_result)
    total, failed = sum(f.inputs for f in results), sum(len(f.failures) for f in results)
    if arguments.json:
        report = {"seed": arguments.seed, "seconds": time.monotonic() - start_s}
        report |= {
            "targets": [
                vars(target)
                | {
                    "refused": dict(target.refused),
                    "failures": [asdict(failure) for failure in target.failures],
                }
                for target in results
            ]
        }
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    print(f"{total} inputs, {failed} failures, {time.monotonic() - start_s:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
