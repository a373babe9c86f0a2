"""The effect of a warming node on the coefficients: random order against an ordered sweep.

    .venv/bin/python -m benchmarks.drift [--seeds 200]

Every seed is a simulated campaign of one hour on two nodes that warm up. It is measured once in the
random order of ``campaign plan`` and once as a sweep from low to high settings, and fitted like
``campaign fit`` does (see tests/analysis/test_drift.py). The table has a row for each coefficient
and for the constant power at each setting: in how many campaigns its 95 % interval contains the
true value, in how many it does not, and the mean error in %. All results are simulated.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.shared import argument_parser


def show(verdicts: Mapping[str, Mapping[str, list]], bias_pct: Callable[[list], float]) -> None:
    """Print a row for each name: inside, outside and the mean error, for each order."""
    print(f"{'':<26}" + "".join(f"{order:^30}" for order in verdicts))
    print(f"{'coefficient':<26}" + f"{'inside':>9}{'outside':>9}{'bias %':>10}  " * len(verdicts))
    for name in dict.fromkeys(name for by_name in verdicts.values() for name in by_name):
        cells = []
        for by_name in verdicts.values():
            results = by_name.get(name)
            if results is None:
                cells.append(f"{'never in the model':>28}  ")
                continue
            inside = sum(verdict.holds for verdict in results)
            bias = f"{bias_pct(results):10.2f}" if results[0].truth else f"{'(is 0)':>10}"
            cells.append(f"{inside:>9}{len(results) - inside:>9}{bias}  ")
        print(f"{name:<26}{''.join(cells)}".rstrip())


def main() -> int:
    from tests.analysis.test_drift import (
        NODES,
        bias_pct,
        is_constant_power,
        judge,
        share_held,
    )

    parser = argument_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="campaigns in each order")
    arguments = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        verdicts = judge(Path(folder), range(arguments.seeds))
    courses = "; ".join(
        f"{node}: {warming.rise_k:g} K with {warming.time_constant_s:g} s, "
        f"{warming.leakage_per_k:.1%} of leakage per K"
        for node, warming in NODES.items()
    )
    print(
        f"simulated Jetson TK1: {arguments.seeds} campaigns of one hour in each order "
        f"({time.monotonic() - start:.0f} s); {courses}\n"
    )
    show(verdicts, bias_pct)
    print()
    for title, is_constant in (("coefficients", False), ("constant power", True)):
        shares = []
        for order, by_name in verdicts.items():
            names = [name for name in by_name if is_constant_power(name) is is_constant]
            shares.append(f"{order} {share_held(by_name, names):.1%}")
        print(f"{title} whose 95 % interval contains the truth (simulated): {', '.join(shares)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
