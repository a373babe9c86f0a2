"""The loss of choosing tiles by a model on this processor, and after how many measurements.

    .venv/bin/python -m benchmarks.tile_choice [--save FILE | --data FILE] [--draws 30]
        [--passes 2] [--only STENCIL] [--quick]

j2d, h2d, g2d (32 steps) and h3d (16 steps) at three sizes each, single precision, one thread, in
144 or 192 hexagonal tiles, are all measured in CPU time (a quarter of an hour). ``--save`` stores
the times, ``--data`` reads them; ``--quick``: the smallest size of each; ``--passes``: more on a
machine with other users. Then the constants are fitted on random draws of 12 of a size's tiles:

- first %: the time of the tile with the least predicted time, above the fastest of all;
- near %: the same for the best tile within 10 % of the least predicted time, of at most 20 (tiles:
  how many), and for the best of as many random tiles;
- error %: root mean square relative error of the prediction over the tiles within 20 % of the
  fastest;
- passes differ %: root mean square relative difference between two passes over the same tiles,
  which separates the machine's noise from the model's error.

The models are the sum of counts and loops that the kernel states, as ``campaign tune`` uses it, and
the four terms of Prajapati 2019, appendix A, alone, printed and corrected. At the end come the
losses of the strategies of ``campaign tune`` after a number of measurements, and how many they need
to lose at most 5, 2 and 1 %.

Exits 0 if the first pick loses at most 10 % on average over the sizes, those near at most 3 % and
less than random ones, and the error is at most 10 % for every size; else 1.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from analysis.choice.objectives import objective
from analysis.costs.linear_cost import fit_linear_cost
from analysis.costs.stencil_time import Machine, near_least, stencil_time
from analysis.search.candidates import Candidates
from analysis.search.model import START
from analysis.search.play import play
from benchmarks.shared import argument_parser
from campaign.variants.stated_terms import stated_terms
from kernels.host.ranks import Team
from kernels.stencils.kernel import stencil as kernel
from kernels.stencils.params import StencilParams

PROBLEMS = [
    *(("j2d", size) for size in (1024, 2048, 4096)),
    *(("h2d", size) for size in (1024, 2048, 4096)),
    *(("g2d", size) for size in (1024, 2048, 4096)),
    *(("h3d", size) for size in (96, 160, 256)),
]
MOST_NEAR = 20
CLOSE = 1.2
RUNS = 2
"""Runs of each variant in a pass."""
LANES = 16
"""Single-precision numbers in a vector of 512 bits."""
STRATEGIES = ("model", "auto", "neighbours", "random")
BUDGET, BATCH = 96, 5
SHOWN = (12, 16, 20, 25, 32, 48, 96)
LOSSES = (5.0, 2.0, 1.0)
Variants = list[dict[str, Any]]


def variants(name: str, size: int) -> Variants:
    """Return the tiles of a stencil at a size."""
    problem = {"stencil": name, "size_1": size, "size_2": size, "tiling": "hexagonal"}
    if name == "h3d":
        problem |= {"size_3": size, "steps": 16}
        names = ("tile_t", "tile_1", "tile_2", "tile_3")
        axes = ([2, 4, 8, 16], [2, 4, 8, 16], [4, 8, 16, 32], [0, 64, 128])
    else:
        problem |= {"steps": 32}
        names = ("tile_t", "tile_1", "tile_2")  # type: ignore[assignment]
        axes = ([4, 8, 16, 32], [2, 4, 8, 16, 32, 64], [64, 128, 256, 512, 1024, 2048])  # type: ignore[assignment]
    tiles: Any = product(*axes)
    return [problem | dict(zip(names, tile, strict=True)) for tile in tiles]


def measured_s(all_variants: Variants, passes: int) -> list[list[float]]:
    """Return CPU times of each variant, in several passes in random order: (variants, passes *
    RUNS)."""
    times: list[list[float]] = [[] for _ in all_variants]
    for number in range(passes):
        order = random.Random(number).sample(range(len(all_variants)), len(all_variants))
        for place in order:
            assert kernel.prepare is not None
            prepared = kernel.prepare(StencilParams(**all_variants[place]), Team())
            for _ in range(RUNS):
                begin = time.thread_time()
                prepared.run(1)
                times[place].append(time.thread_time() - begin)
            prepared.close()
    return times


def passes_differ_pct(times_s: np.ndarray) -> float:
    """Return how much the first and last pass over the same tiles differ, % (NaN after one
    pass)."""
    if times_s.shape[1] < 2 * RUNS:
        return float("nan")
    first, last = (
        np.median(times_s[:, rows], axis=1) for rows in (slice(RUNS), slice(-RUNS, None))
    )
    return float(100.0 * np.sqrt(np.mean(np.log(first / last) ** 2)))


def thesis_terms(all_variants: Variants, form: str) -> dict[str, np.ndarray]:
    """Return the terms of appendix A, each the predicted time with one constant 1 and all others
    0."""
    axes = [name for name in ("size_1", "size_2", "size_3") if name in all_variants[0]]
    names = [f"tile_{number + 1}" for number in range(len(axes))]
    sizes = np.array([[variant[name] for name in axes] for variant in all_variants], float)
    tiles = np.array(
        [[variant[name] or sizes[0, 0] for name in names] for variant in all_variants], float
    )
    terms = {}
    for term in ("iteration", "word", "barrier", "launch"):
        machine = Machine(
            processors=1,
            lanes=LANES,
            on_chip_bytes=0.0,
            block_bytes=0.0,
            blocks=1,
            seconds_per_word=float(term == "word"),
            barrier_s=float(term == "barrier"),
            launch_s=float(term == "launch"),
        )
        steps = all_variants[0]["steps"]
        high = np.array([variant["tile_t"] for variant in all_variants])
        iteration_s = float(term == "iteration")
        terms[term] = stencil_time(machine, iteration_s, sizes, steps, tiles, high, 1, form).time_s
    return terms


def judged(terms: Mapping[str, np.ndarray], time_s: np.ndarray, draws: int) -> np.ndarray:
    """Return means over the draws, in %: first, near, number of near ones, random, error."""
    close, least = time_s <= CLOSE * time_s.min(), time_s.min()
    rows_by_draw = []
    for seed in range(draws):
        generator = np.random.default_rng(seed)
        rows = generator.choice(len(time_s), START, replace=False)
        columns = {name: column[rows] for name, column in terms.items()}
        predicted = fit_linear_cost(columns, time_s[rows], intervals=False).of(terms)
        candidates = near_least(predicted)[:MOST_NEAR]
        at_random = generator.choice(len(time_s), len(candidates), replace=False)
        error = np.sqrt(np.mean((predicted[close] / time_s[close] - 1.0) ** 2))
        rows_by_draw.append(
            (
                (time_s[np.argmin(predicted)] / least - 1.0) * 100.0,
                (time_s[candidates].min() / least - 1.0) * 100.0,
                len(candidates),
                (time_s[at_random].min() / least - 1.0) * 100.0,
                error * 100.0,
            )
        )
    return np.mean(rows_by_draw, axis=0)


def played(all_variants: Variants, time_s: np.ndarray, draws: int) -> dict[str, np.ndarray]:
    """Return strategy -> its loss after each measurement, in %: (draws, BUDGET)."""
    texts = [json.dumps(variant) for variant in all_variants]
    columns = {
        name: np.array([variant[name] for variant in all_variants])
        for name in all_variants[0]
        if len({variant[name] for variant in all_variants}) > 1
    }
    candidates = Candidates(columns, stated_terms("stencil", texts))
    costs = np.stack([np.full(len(time_s), np.nan), time_s], axis=1)
    return {
        name: 100.0
        * np.stack(
            [
                play(
                    candidates,
                    costs,
                    objective("time"),
                    name,
                    budget=BUDGET,
                    batch=BATCH,
                    seed=seed,
                )
                for seed in range(draws)
            ]
        )
        for name in STRATEGIES
    }


def main() -> int:
    """Measure or read the times, judge the models, and print the tables."""
    parser = argument_parser(__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--only", choices=sorted({problem[0] for problem in PROBLEMS}))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    problems = [problem for problem in PROBLEMS if arguments.only in (None, problem[0])]
    if arguments.quick:
        problems = [problem for problem in problems if problem[1] in (96, 1024)]
    recorded = json.loads(arguments.data.read_text()) if arguments.data else {}
    print(
        f"{'':10} {'tiles':>5} {'worst/best':>10}  {'model':18}  {'first %':>7}  {'near %':>6}  "
        f"{'tiles':>5}  {'random %':>8}  {'error %':>7}  passes differ %"
    )
    stated, lost = [], []
    for name, size in problems:
        label, all_variants = f"{name}-{size}", variants(name, size)
        texts = [json.dumps(variant) for variant in all_variants]
        if label not in recorded:
            recorded[label] = measured_s(all_variants, arguments.passes)
            if arguments.save:
                arguments.save.write_text(json.dumps(recorded))
        times_s = np.array(recorded[label])
        time_s = np.median(times_s, axis=1)
        models = {
            "counts and loops": stated_terms("stencil", texts),
            "thesis, corrected": thesis_terms(all_variants, "corrected"),
            "thesis, printed": thesis_terms(all_variants, "printed"),
        }
        for title, terms in models.items():
            row = judged(terms, time_s, arguments.draws)
            first, near_loss, number, at_random, error = row
            print(
                f"{label:10} {len(all_variants):5} {time_s.max() / time_s.min():10.2f}  "
                f"{title:18}  {first:7.2f}  {near_loss:6.2f}  {number:5.1f}  {at_random:8.2f}  "
                f"{error:7.2f}  {passes_differ_pct(times_s):15.1f}",
                flush=True,
            )
            if title == "counts and loops":
                stated.append(row)
        lost.append(played(all_variants, time_s, arguments.draws))
    first, near_loss, _, at_random, _ = np.mean(stated, axis=0)
    worst = max(row[-1] for row in stated)
    print(
        f"\nmean over {len(stated)} sizes: first {first:.2f} %, near {near_loss:.2f} %, random "
        f"{at_random:.2f} %; largest error {worst:.2f} %"
    )
    print("\nmean loss in % after so many measurements, and how many until at most so much is lost")
    print(
        f"{'strategy':10} "
        + " ".join(f"{count:>7}" for count in SHOWN)
        + "  "
        + " ".join(f"{f'<= {loss:g} %':>8}" for loss in LOSSES)
    )
    for name in STRATEGIES:
        trials = np.concatenate([by_strategy[name] for by_strategy in lost])
        after = " ".join(f"{trials[:, count - 1].mean():7.2f}" for count in SHOWN)
        mean = np.mean(trials, axis=0)
        until = [
            str(int(np.argmax(mean <= loss)) + 1) if (mean <= loss).any() else f"> {BUDGET}"
            for loss in LOSSES
        ]
        print(f"{name:10} {after}  " + " ".join(f"{text:>8}" for text in until))
    passed = first <= 10.0 and near_loss <= 3.0 and near_loss < at_random and worst <= 10.0
    print("passed" if passed else "failed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
