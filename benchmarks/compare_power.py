"""How often `campaign compare` finds a change of 2 %, and how often it reports a change wrongly.

    .venv/bin/python -m benchmarks.compare_power [--pairs 400]

Pairs of campaigns of 20 kernels at 8 settings are simulated, with noise, drift between repeats and
nodes that differ (tests/analysis/compared_data.py), and compared. A row for each condition:

- false alarms: equal pairs with any significant change, of site, kernels or points, in %
- one kernel: pairs where time and energy of one kernel rise by 2 % and the change is found, in %
- all kernels: pairs where all rise by 2 % and the site's change is found, in %; and the mean share
  of the points that are found
- false: of the significant changes in pairs where one kernel changed, the wrong ones, in %

All results are simulated.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.shared import argument_parser
from tests.analysis.compared_data import Campaigns, changes_of

CONDITIONS = {
    "1 node, 3 repeats": Campaigns(nodes=((0,), (0,))),
    "1 node, 5 repeats": Campaigns(nodes=((0,), (0,)), repeats=5),
    "1 node, 3 repeats, no drift": Campaigns(nodes=((0,), (0,)), drift=(0.0, 0.0)),
    "1 node, 3 repeats, drift 0.5 %": Campaigns(nodes=((0,), (0,)), drift=(0.005, 0.005)),
    "1 node, 3 repeats, noise 2.5 %": Campaigns(nodes=((0,), (0,)), noise=(0.003, 0.025)),
    "4 nodes, the same": Campaigns(nodes=(range(4), range(4))),
    "4 nodes, two the same": Campaigns(nodes=(range(4), range(2, 6))),
    "4 nodes, all others": Campaigns(nodes=(range(4), range(4, 8))),
}
CHANGE = 1.02


def row(campaigns: Campaigns, pairs: int) -> list[float]:
    """Return the figures of one condition, in %."""
    ratios = np.ones(campaigns.kernels)
    ratios[0] = CHANGE
    alarms = sum(any(c.significant for c in changes_of(campaigns, seed)) for seed in range(pairs))
    kernel_alarms = dict.fromkeys(("time", "energy"), 0)
    site_alarms = dict.fromkeys(("time", "energy"), 0)
    reported = false = 0
    points = []
    for seed in range(pairs):
        for change in changes_of(campaigns, 10_000 + seed, ratios):
            if change.significant:
                true = change.kernel == "k0" or change.level == "site"
                reported, false = reported + 1, false + (not true)
                if change.level == "kernel" and true and change.ratio > 1.0:
                    kernel_alarms[change.quantity] += 1
        changes = changes_of(campaigns, 20_000 + seed, CHANGE)
        for change in changes:
            if change.level == "site" and change.significant and change.ratio > 1.0:
                site_alarms[change.quantity] += 1
        points.append(np.mean([c.significant for c in changes if c.level == "point"]))
    shares = [alarms, *kernel_alarms.values(), *site_alarms.values()]
    return [
        *(100.0 * share / pairs for share in shares),
        100.0 * float(np.mean(points)),
        100.0 * false / max(reported, 1),
    ]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=400)
    pairs = parser.parse_args().pairs
    print("simulated; noise of time 0.3 % and energy 1 %, drift 0.1 % and 0.2 % where not named")
    print(
        f"{'':32}{'false':>8}{'one kernel':>16}{'all kernels':>24}{'false of':>10}\n"
        f"{'condition':32}{'alarms':>8}{'time':>8}{'energy':>8}{'time':>8}{'energy':>8}"
        f"{'points':>8}{'found':>10}"
    )
    for name, campaigns in CONDITIONS.items():
        began = time.perf_counter()
        figures = row(campaigns, pairs)
        numbers = "".join(f"{figure:8.1f}" for figure in figures[:-1])
        print(f"{name:32}{numbers}{figures[-1]:10.1f}", flush=True)
        print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
