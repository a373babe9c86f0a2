"""The times of fitting, cross-validation, resampling and the quality checks.

    .venv/bin/python -m benchmarks.analysis_speed [--repeats 5] [--data DIR]

Each time is the median of the repeats after one warm-up run, which compiles. The simulated rows
come from the simulated Jetson TK1. With ``--data``, as for ``public_data.py``, the measurements of
a GTX Titan X come in addition.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.public_data import titan_x
from benchmarks.shared import argument_parser, seconds_of

WANTED_KERNELS = 116
PER_FAMILY = 40
"""Some are equal, so this is more than needed."""
RESAMPLES = 1000
QUALITY_ROWS = 200_000
SEED = 7


def simulated():
    """1,856 noisy rows of the simulated board: 116 kernels at 16 settings."""
    from analysis.measurements.observations import kernel_names, observations
    from tests.analysis.simulated_tk1 import simulated_columns

    data = observations(simulated_columns("default", per_family=PER_FAMILY), "tk1")
    names = np.array(kernel_names(data), object)
    every = np.linspace(0, len(names) - 1, WANTED_KERNELS).round().astype(int)
    return data.take(np.isin(data.labels, names[every]))


def resample(data, model: str) -> None:
    """Refit settings drawn at random with replacement, which leaves some settings out."""
    from analysis.energy.fit import prepare, solve_form
    from analysis.energy.fitted import Form

    training = prepare(data, Form(model, "known"))
    whole = solve_form(training)
    n = len(training.mhz)
    for drawn in np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n)):
        solve_form(training, np.bincount(drawn, minlength=n).astype(float), whole)


def quality_columns():
    """200,000 rows of a clean simulated sweep, as a store's columns."""
    from benchmarks.import_speed import sweep
    from tests.frames import as_columns

    table = sweep(QUALITY_ROWS)
    table["point_id"] = [f"p{i}" for i in range(len(table))]
    table["start_unix_s"] = 1e9 + 10.0 * np.random.default_rng(SEED).permutation(len(table))
    table = table.assign(params="{}", status="ok", provenance="{}", simulated=True)
    return as_columns(table), "bench"


def main() -> int:
    from analysis.choice.crossval import cross_validate
    from analysis.energy.fit import fit
    from analysis.quality import check

    parser = argument_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="the folder of data sets, for a GTX Titan X")
    parser.add_argument("--no-quality", action="store_true", help="leave the 200,000 rows out")
    arguments = parser.parse_args()

    def loso(data, model: str, voltage: str = "auto") -> Callable[[], object]:
        return lambda: cross_validate(data, "leave-one-setting-out", model, voltage=voltage)

    board = simulated()
    shown = f"simulated board, {len(board):,} rows"
    works: list[tuple[str, Callable[[], object]]] = [
        (f"fit, choi: {shown}", lambda: fit(board, "choi")),
        (f"fit, auto: {shown}", lambda: fit(board)),
        (f"leave-one-setting-out, choi: {shown}", loso(board, "choi")),
        (f"leave-one-setting-out, auto: {shown}", loso(board, "auto")),
        (f"{RESAMPLES:,} resamples, choi: {shown}", lambda: resample(board, "choi")),
        (f"{RESAMPLES:,} resamples, choi+clock: {shown}", lambda: resample(board, "choi+clock")),
    ]
    if arguments.data:
        titan = titan_x(arguments.data, with_voltage=True)
        shown = f"GTX Titan X, {len(titan):,} rows"
        works += [
            (f"leave-one-setting-out, auto: {shown}", loso(titan, "auto")),
            (f"leave-one-setting-out, choi: {shown}", loso(titan, "choi")),
            (f"leave-one-setting-out, auto, V estimated: {shown}", loso(titan, "auto", "floor")),
        ]
    if not arguments.no_quality:
        columns, site = quality_columns()
        works.append((f"quality checks: {QUALITY_ROWS:,} rows", lambda: check(columns, site)))
    print(f"{platform.platform()}, {platform.machine()}; seconds, of {arguments.repeats} runs")
    print(f"{'':<66}{'median':>8}{'least':>8}{'most':>8}")
    for name, work in works:
        work()
        took_s = [seconds_of(work) for _ in range(arguments.repeats)]
        print(
            f"{name:<66}{statistics.median(took_s):>8.3f}{min(took_s):>8.3f}{max(took_s):>8.3f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
