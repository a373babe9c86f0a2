"""Are clocks taken as proven when a control does nothing, or when the machine keeps its clock?

    .venv/bin/python -m benchmarks.unproven_clocks [--points 500] [--ratios]

1. **A control that sets nothing** and reports nothing: points at clocks that the machine does not
   have, each measured as in a campaign (kernel idle, windows of 10 ms). None may be ok.
2. **The same of a GPU**, where no loop is timed; and with a reader that shows the true clock.
3. **The machine's present clock, requested**: how many points are taken as shown, how many stay
   unproven, and how many would fail, at a tolerance of 5 %. The last are false alarms.
4. ``--ratios``: the comparison over settings, on the clocks that were timed in 1, and on rates that
   follow the clocks.

This machine's clock cannot be set, and turbo changes it in steps; its load is printed.
"""

from __future__ import annotations

import collections
import os
import random
import statistics
import time

import numpy as np

from analysis.measurements.provenance import shown_by_timing
from benchmarks.shared import argument_parser
from campaign.store.measurement import Measurement
from dvfs.setting import Setting
from kernels.host.timed_clock import compile_chain, timed_core_mhz
from sites.clocks import CONTROLS
from tests.campaign import pretended_clocks
from tests.campaign.pretended_clocks import measured, pretending_site

TOLERANCE_PCT = 5.0


def measured_at(device: str, mhz: float, shows: float | None = None) -> Measurement:
    """Return a point at a clock that nothing sets, of a CPU, or of a GPU, whose clock no loop can
    time."""
    site = pretending_site([mhz], None, TOLERANCE_PCT, device, reports_mhz=shows)
    return measured(site, Setting(mhz))


def counted(title: str, points: list[Measurement]) -> None:
    """Print how many points have each status and proof."""
    statuses = collections.Counter(
        f"{point.status}{f' ({point.clock_proof})' if point.clock_proof else ''}"
        for point in points
    )
    print(f"{title}: {dict(statuses)}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argument_parser(__doc__)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--ratios", action="store_true")
    arguments = parser.parse_args()
    compile_chain()
    timed_mhz = [mhz for _ in range(20) for mhz in timed_core_mhz()]
    own_mhz = statistics.median(timed_mhz)
    print(
        f"the machine's clock: {min(timed_mhz):.0f} to {max(timed_mhz):.0f} MHz; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    rng = random.Random(1)
    # Differ from the machine's clock by more than the tolerance.
    away = [
        rng.choice([rng.uniform(0.25, 0.87), rng.uniform(1.13, 2.0)]) * own_mhz
        for _ in range(arguments.points)
    ]
    CONTROLS["pretends"] = pretended_clocks.__name__
    fake = [measured_at("cpu", mhz) for mhz in away]
    counted("nothing is set, nothing is reported, a loop is timed", fake)
    counted("the same of a GPU", [measured_at("gpu", mhz) for mhz in away])
    true = [measured_at("gpu", mhz, shows=own_mhz) for mhz in away]
    counted("nothing is set, and the true clock is read back", true)
    began = time.monotonic()
    true_points = [measured_at("cpu", own_mhz) for _ in range(arguments.points)]
    seconds = (time.monotonic() - began) / arguments.points
    counted(f"the machine's own clock, {TOLERANCE_PCT:g} %, {seconds:.3f} s a point", true_points)
    print(f"load {os.getloadavg()[0]:.1f}")
    if arguments.ratios:
        ratios(fake, rng)


def ratios(fake: list[Measurement], rng: random.Random) -> None:
    """Print the comparison over settings, for rates as timed and for rates that follow the
    clocks."""
    mhz = np.array([point.point.setting.core_mhz for point in fake])
    timed = np.array([point.core_mhz_timed for point in fake])
    timed = np.where(np.isfinite(timed), timed, statistics.median(timed_core_mhz()))
    node = np.zeros(len(mhz))
    print(f"by ratios, nothing set: {shown_by_timing(node, mhz, timed, TOLERANCE_PCT).sum()} shown")
    follow = 0.5 * mhz * np.exp([rng.gauss(0.0, 0.005) for _ in mhz])
    print(f"by ratios, all set: {shown_by_timing(node, mhz, follow, TOLERANCE_PCT).sum()} shown")


if __name__ == "__main__":
    main()
