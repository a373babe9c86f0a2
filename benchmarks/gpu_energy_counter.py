"""Does NVML's energy counter see all of the time, or only the part that the power reading sees?

    .venv/bin/python benchmarks/gpu_energy_counter.py [--json] [--phases 8] [--seconds 4]

A load goes on and off: `gpu_fma` in registers for half of each period, then nothing. Periods are 20
to 400 ms, each begun at several phases. For every period the program prints the counter's energy
over the integral of the power readings, wave by wave, and how much each differs between the
phases. A meter that sees a part of each 100 ms misreads a load of nearly that period, depending on
its phase; one that adds up everything does not. The last line says what `seen` of the meter's
channel should be (sites/meters/nvml.py). The analysis is in benchmarks/seen_share.py.

It takes about five minutes, sets no clocks, and needs a GPU that nobody else uses. Without a GPU it
says so in one line and exits with code 2.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu_here import ReadMeanwhile, need_gpu  # noqa: E402
from benchmarks.seen_share import Verdict, Wave, judge  # noqa: E402
from benchmarks.shared import argument_parser  # noqa: E402
from kernels.host.ranks import Team  # noqa: E402
from kernels.registry import find_kernel  # noqa: E402
from sites.meters import open_meter  # noqa: E402

PERIODS_S = (0.02, 0.03, 0.05, 0.08, 0.1, 0.13, 0.2, 0.25, 0.4)
PARAMS = {"number": "sp", "level": "register"}
LEAD_S = 0.7
"""The time that a wave runs before and after the counted periods, so that the meter sees it."""
READ_EVERY_S = 0.002


def run_wave(
    prepared: Any, meter: Any, one_s: float, period_s: float, phase_s: float, seconds: float
) -> Wave:
    """Run one wave, begun ``phase_s`` after a whole period of the system's clock."""
    count = math.ceil(seconds / period_s)
    lead = math.ceil(LEAD_S / period_s)
    iterations = max(1, round(period_s / 2.0 / one_s))
    busy_s = 0.0
    with ReadMeanwhile(meter.read, READ_EVERY_S) as watched:
        begin_s = (math.floor(time.monotonic() / period_s) + 2) * period_s + phase_s
        for i in range(count + 2 * lead):
            time.sleep(max(0.0, begin_s + i * period_s - time.monotonic()))
            start_s = time.monotonic()
            prepared.run(iterations)
            busy_s += time.monotonic() - start_s
    readings = [reading for _, reading in watched.readings]
    names = {channel.kind: i for i, channel in enumerate(meter.channels) if channel.domain == "gpu"}
    time_s = np.array([reading.time_ns for reading in readings]) / 1e9
    values = np.array([reading.values for reading in readings])
    return Wave(
        period_s=period_s,
        busy_s=busy_s / (count + 2 * lead),
        begin_s=begin_s + lead * period_s,
        end_s=begin_s + (lead + count) * period_s,
        counter_s=time_s,
        counter_j=values[:, names["energy"]],
        power_s=time_s,
        power_w=values[:, names["power"]],
    )


def measured_waves(phases: int, seconds: float) -> list[Wave]:
    """Run waves of all periods and phases in random order; return them by period and phase."""
    kernel = find_kernel("gpu_fma")
    assert kernel.prepare is not None
    prepared = kernel.prepare(kernel.params.model_validate(PARAMS), Team())
    meter = open_meter("nvml", {})
    kinds = {channel.kind for channel in meter.channels if channel.domain == "gpu"}
    if kinds != {"energy", "power"}:
        sys.exit("this GPU has no energy counter beside its power: there is nothing to compare")
    try:
        prepared.run(200)  # warm
        begin_s = time.monotonic()
        prepared.run(50)
        one_s = (time.monotonic() - begin_s) / 50
        # On a slow GPU one iteration may take longer than the shortest periods.
        periods_s = [period_s for period_s in PERIODS_S if one_s <= 0.6 * period_s]
        cases = [(period_s, phase) for period_s in periods_s for phase in range(phases)]
        waves: dict[int, Wave] = {}
        for i in np.random.default_rng(1).permutation(len(cases)).tolist():
            period_s, phase = cases[i]
            begun_s = phase / phases * period_s
            waves[i] = run_wave(prepared, meter, one_s, period_s, begun_s, seconds)
        return [waves[i] for i in sorted(waves)]
    finally:
        meter.close()
        prepared.close()


def show(verdict: Verdict) -> None:
    """Print the rows and the conclusion."""
    print("period ms  counter spread %  power spread %  counter / power by phase")
    for row in verdict.rows:
        ratios = " ".join(f"{ratio:.3f}" for ratio in row.ratio)
        print(
            f"{row.period_s * 1e3:9.0f}  {row.counter_spread * 100:16.2f}  "
            f"{row.power_spread * 100:14.2f}  {ratios}"
        )
    print(f"the load's power swings by {verdict.swing:.0%} of its mean")
    print(verdict.text)


def main() -> None:
    """Measure and print."""
    parser = argument_parser(__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--phases", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    gpu = need_gpu()
    verdict = judge(measured_waves(arguments.phases, arguments.seconds))
    if arguments.json:
        print(json.dumps({"gpu": gpu.gpus[0], "driver": gpu.driver, **asdict(verdict)}, indent=1))
        return
    print(f"{gpu.gpus[0]}, driver {gpu.driver}")
    show(verdict)


if __name__ == "__main__":
    main()
