"""Whether energies of real GPUs hold their stated uncertainty, beside an external meter.

    .venv/bin/python benchmarks/real_traces.py [--windows 1000] [--seed 0]

Random windows of 0.5 to 6 s of the traces in tests/data/gpu_power_traces, as in
tests/campaign/test_real_traces.py. Of each board, and of both loads of a board with two: the
windows, how many of them lie within two stated standard uncertainties, the mean error, its root
mean square (the spread) and the stated standard uncertainty's, in % of the energy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def main() -> int:
    import numpy as np

    from tests.campaign.test_real_traces import judge, read_traces, root_mean_square

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    judged = judge(arguments.windows, arguments.seed)
    print(
        f"{'trace':<16}{'windows':>8}{'inside %':>10}{'mean %':>9}{'spread %':>10}{'stated %':>10}"
    )
    for name in [*(real.name for real in read_traces()), "all"]:
        mine = [each for each in judged if name in ("all", each.name)]
        if not mine:
            continue
        errors = [each.error for each in mine]
        stated = root_mean_square([each.std_j / each.true_j for each in mine])
        print(
            f"{name:<16}{len(mine):>8}{100 * np.mean([each.is_inside for each in mine]):>10.1f}"
            f"{100 * np.mean(errors):>9.2f}{100 * root_mean_square(errors):>10.2f}"
            f"{100 * stated:>10.2f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
