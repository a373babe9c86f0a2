"""What a node's warming does to the coefficients: the plan's order against an ordered sweep.

    .venv/bin/python benchmarks/drift.py [--seeds 200]

Every seed is a simulated campaign of an hour on two nodes that warm up, measured once in the
order of ``campaign plan`` and once as a sweep from low settings to high ones, and fitted as
``campaign fit`` does (see tests/analysis/test_drift.py). A row a coefficient, and a row for the
constant power at each setting: in how many campaigns its 95 % interval holds the truth and in how
many it does not, and the mean error in %. All that is printed is simulated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def show(verdicts: Mapping[str, Mapping[str, list]], bias_pct: Callable[[list], float]) -> None:
    """The table: a row a name, for each order inside, outside and the mean error."""
    print(f"{'':<26}" + "".join(f"{order:^30}" for order in verdicts))
    print(f"{'coefficient':<26}" + f"{'inside':>9}{'outside':>9}{'bias %':>10}  " * len(verdicts))
    for name in dict.fromkeys(name for each in verdicts.values() for name in each):
        cells = []
        for each in verdicts.values():
            mine = each.get(name)
            if mine is None:
                cells.append(f"{'never in the model':>28}  ")
                continue
            inside = sum(verdict.holds for verdict in mine)
            bias = f"{bias_pct(mine):10.2f}" if mine[0].truth else f"{'(is 0)':>10}"
            cells.append(f"{inside:>9}{len(mine) - inside:>9}{bias}  ")
        print(f"{name:<26}{''.join(cells)}".rstrip())


def main() -> int:
    from tests.analysis.test_drift import (
        NODES,
        bias_pct,
        is_constant_power,
        judge,
        share_held,
    )

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="campaigns in each order")
    arguments = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        verdicts = judge(Path(folder), range(arguments.seeds))
    courses = "; ".join(
        f"{node}: {warming.rise_k:g} K with {warming.time_constant_s:g} s, "
        f"{warming.leakage_per_k:.1%} of leakage a K"
        for node, warming in NODES.items()
    )
    print(
        f"simulated Jetson TK1: {arguments.seeds} campaigns of an hour in each order "
        f"({time.monotonic() - start:.0f} s); {courses}\n"
    )
    show(verdicts, bias_pct)
    print()
    for what, wanted in (("coefficients", False), ("constant power", True)):
        held = []
        for order, each in verdicts.items():
            names = [name for name in each if is_constant_power(name) is wanted]
            held.append(f"{order} {share_held(each, names):.1%}")
        print(f"{what} inside their 95 % intervals (simulated): {', '.join(held)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
