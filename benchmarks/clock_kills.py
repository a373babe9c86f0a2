"""Are clocks restored if the process that set them is killed at a random moment?

    .venv/bin/python -m benchmarks.clock_kills [--kills 200] [--seed 1]

A process opens a clock control on a copied tree of files, then sets and restores settings
repeatedly, as a worker does. SIGINT, SIGTERM or SIGKILL ends it at a random moment. After SIGKILL,
``restore_left_over`` is called, as when the next worker starts. Then every file is compared with
the original, byte for byte. The controls are tested in turn. Exits with 1 unless all were restored.

The process is forked, like the processes that measure, so a kill takes only hundredths of a second.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.shared import argument_parser

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LONGEST_S = 0.04
"""The longest time before the signal; opening, setting and restoring takes a few milliseconds."""
REPEAT_S = 2.0
MOST_SIGNALS = 5


@dataclass
class Kills:
    """The results of the kills."""

    restored: int = 0
    by_signal: Counter[str] = field(default_factory=Counter)
    found_set: int = 0
    """Kills by SIGKILL after which files differed, so that there was something to restore."""
    sent_again: int = 0
    """How often Python dropped a signal, so that it was sent again."""
    problems: list[str] = field(default_factory=list)


def kill_and_compare(kills: int, seed: int, folder: Path, layouts: list[Any]) -> Kills:
    """Kill ``kills`` processes, for each layout in turn, with copies of its tree in ``folder``."""
    from tests.sites.clock_layouts import copy

    rng = random.Random(seed)
    result = Kills()
    shares = [kills // len(layouts) + (i < kills % len(layouts)) for i in range(len(layouts))]
    for layout, share in zip(layouts, shares, strict=True):
        root = folder / layout.name
        root.mkdir()
        original = copy(layout, root)
        with ExitStack() as stack:
            stack.enter_context(layout.running(root))
            layout.open(root)  # imports everything, so that the children need not
            for _ in range(share):
                _kill_one(layout, root, original, rng, result)
    return result


def _kill_one(
    layout: Any, root: Path, original: dict[str, bytes], rng: random.Random, result: Kills
) -> None:
    from sites.clocks.shared.journal import restore_left_over
    from tests.sites.clock_layouts import (
        contents,
        fork,
        journals,
        measure_for_ever,
        settled_contents,
    )

    number = rng.choice(SIGNALS)
    seed, wait_s = rng.randrange(2**32), rng.uniform(0.0, LONGEST_S)
    read_end, write_end = os.pipe()
    child = fork(lambda: measure_for_ever(layout, root, seed, write_end))
    os.close(write_end)
    os.read(read_end, 1)
    os.close(read_end)
    time.sleep(wait_s)
    result.sent_again += _end(child, number)
    if number == signal.SIGKILL:
        result.found_set += contents(root) != original
        restore_left_over(root)
    try:
        files = settled_contents(root)
    except TimeoutError as error:
        files = {}
        result.problems.append(f"{layout.name}, {number.name}: {error}")
    journals_left = journals(root)
    if files == original and not journals_left:
        result.restored += 1
        result.by_signal[number.name] += 1
        return
    changed = sorted(name for name in {*original, *files} if original.get(name) != files.get(name))
    result.problems.append(
        f"{layout.name}, {number.name}: {changed} differ, journals {journals_left}"
    )
    for name, held in original.items():
        (root / name).write_bytes(held)
    for journal_folder in root.glob("*/campaign-clocks*"):
        shutil.rmtree(journal_folder)


def _end(child: int, number: signal.Signals) -> int:
    """Send the signal until the process has ended; return how often it was sent again.

    Python drops an exception that a signal handler raises in a finalizer, so one may not be enough.
    """
    for again in range(MOST_SIGNALS):
        os.kill(child, number)
        until_s = time.monotonic() + REPEAT_S
        while time.monotonic() < until_s:
            if os.waitpid(child, os.WNOHANG)[0]:
                return again
            time.sleep(0.0005)
    raise TimeoutError(
        f"{number.name} was sent {MOST_SIGNALS} times, and process {child} still runs"
    )


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    from tests.sites.clock_layouts import LAYOUTS

    begin_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = kill_and_compare(arguments.kills, arguments.seed, Path(folder), LAYOUTS)
    for line in result.problems:
        print(line)
    by_signal = ", ".join(f"{name} {count}" for name, count in sorted(result.by_signal.items()))
    print(f"{len(LAYOUTS)} controls and machines; restored by signal: {by_signal}")
    print(f"clocks were still set after SIGKILL: {result.found_set} times")
    print(f"signals sent again, because a finalizer dropped them: {result.sent_again}")
    print(f"{(time.monotonic() - begin_s) / max(arguments.kills, 1):.3f} s per kill")
    print(f"restored in {result.restored} of {arguments.kills}")
    return 0 if result.restored == arguments.kills else 1


if __name__ == "__main__":
    sys.exit(main())
