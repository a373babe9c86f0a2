"""Plans of matrix chains, compared with every tree, the thesis's table, and opt_einsum.

    .venv/bin/python -m benchmarks.chain_plans [--chains 1000] [--opt-einsum PYTHON]

- 2,000 random chains of up to seven matrices, compared with every tree and every choice of fused
  pairs.
- Table D.1 of Prajapati 2019: the words that fusing saves, for chains of 2 to 20 matrices and two
  stores. Sizes are drawn from the multiples of 8 from 320 to 1,024, because the thesis does not
  give them. The table has the printed form with its standard error, the printed averages, and the
  corrected form.
- How many fewer words the objective ``words`` moves than ``ops``, and how many more operations.
- The time of plans of 20 and 50 matrices, and of the order of ``numpy.linalg.multi_dot``.

opt_einsum is not part of the project: ``python3 -m venv PEER && PEER/bin/pip install opt_einsum
numpy``, then ``--opt-einsum PEER/bin/python``. The operations of 500 chains of up to 20 matrices
are compared with its optimal path.

Exits 0 when all trees agree, the printed form is within four standard errors of every printed
average, plans of 20 matrices take at most 10 ms and plans of 50 at most 150 ms, and opt_einsum, if
given, needs the same operations; else 1.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from benchmarks.shared import ROOT, argument_parser, seconds_of
from kernels.products import plan_chain
from tests.kernels.test_chain_plans import plans

TABLE = ROOT / "tests" / "data" / "prajapati2019" / "tableD1_reduction.csv"
STORES = {"M64KB_average_percent": 65536, "M96KB_average_percent": 98304}
NUMPY_ORDER = getattr(np.linalg, "_linalg", np.linalg)._multi_dot_matrix_chain_order
OPT_EINSUM = """
import json, sys
import opt_einsum
for sizes in json.load(sys.stdin):
    letters = [opt_einsum.get_symbol(i) for i in range(len(sizes))]
    terms = ",".join(a + b for a, b in zip(letters, letters[1:]))
    shapes = list(zip(sizes, sizes[1:]))
    path = opt_einsum.contract_path(
        terms + "->" + letters[0] + letters[-1], *shapes, shapes=True, optimize="dp"
    )[0]
    parts = [(i, i + 1) for i in range(len(shapes))]
    ops = 0
    for pair in path:
        taken = [parts.pop(place) for place in sorted(pair, reverse=True)]
        if len(taken) == 2:
            (a, b), (c, d) = sorted(taken)
            ops += sizes[a] * sizes[b] * sizes[d]
            taken = [(a, d)]
        parts.append(taken[0])
    print(ops)
"""


def drawn(rng: np.random.Generator, matrices: int) -> list[int]:
    """Return the sizes of a random chain, as for Table D.1."""
    return [int(size) for size in 8 * rng.integers(40, 129, matrices + 1)]


def against_trees(chains: int) -> bool:
    """Compare with every tree, in both closed forms."""
    rng = np.random.default_rng(1)
    wrong = 0
    for number in range(chains):
        sizes = tuple(drawn(rng, int(rng.integers(1, 8))))
        on_chip, form = int(rng.integers(1000, 100000)), ("corrected", "printed")[number % 2]
        every = list(plans(sizes, 1, len(sizes) - 1, on_chip, form == "printed"))
        by_ops, by_words = (plan_chain(sizes, on_chip, goal, form) for goal in ("ops", "words"))
        fewest = min(ops for ops, _ in every)
        least = min(words for ops, words in every if ops == fewest)
        right = by_ops.ops == fewest and math.isclose(by_ops.words, least)
        wrong += not (right and math.isclose(by_words.words, min(words for _, words in every)))
    print(
        f"every tree and choice of fused pairs, {chains} chains of 1 to 7 matrices: {wrong} wrong"
    )
    return not wrong


def table_d1(chains: int) -> bool:
    """Print the averages of Table D.1 and of both forms; return whether they agree."""
    print("words saved by fusing, %; z: printed form less printed average, in standard errors")
    print("matrices      M  thesis  printed form      z  corrected  words for ops: saved  more ops")
    rng = np.random.default_rng(2)
    right = True
    with TABLE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["n_matrices"].isdigit()]
    for column, on_chip in STORES.items():
        for row in rows:
            sizes = [drawn(rng, int(row["n_matrices"])) for _ in range(chains)]
            printed = [plan_chain(chain, on_chip, form="printed").reduction_pct for chain in sizes]
            corrected = [plan_chain(chain, on_chip) for chain in sizes]
            least = [plan_chain(chain, on_chip, "words") for chain in sizes]
            saved = [1 - b.words / a.words for a, b in zip(corrected, least, strict=True)]
            more = [b.ops / a.ops - 1 for a, b in zip(corrected, least, strict=True)]
            error = statistics.stdev(printed) * math.sqrt(1 / chains + 1 / 1000)
            difference = statistics.mean(printed) - float(row[column])
            z = difference / error if error else 0.0
            right &= abs(z) <= 4
            print(
                f"{row['n_matrices']:>8} {on_chip:6} {float(row[column]):7.2f} "
                f"{statistics.mean(printed):13.2f} {z:6.1f} "
                f"{statistics.mean(plan.reduction_pct for plan in corrected):10.2f} "
                f"{100 * statistics.mean(saved):20.2f} {100 * statistics.mean(more):9.2f}"
            )
    return right


def median_ms(calls: list[Callable[[], Any]]) -> float:
    """Return the median time of the calls, ms."""
    return 1e3 * statistics.median(map(seconds_of, calls))


def times() -> bool:
    """Print the times of plans, warm, medians over ten chains; return whether they pass."""
    rng = np.random.default_rng(3)
    right = True
    for matrices, most_ms in ((20, 10.0), (50, 150.0)):
        chains = [drawn(rng, matrices) for _ in range(10)]
        for form, goal in product(("corrected", "tiles"), ("ops", "words")):
            plan_chain(chains[0], 65536, goal, form)
            ms = median_ms([partial(plan_chain, chain, 65536, goal, form) for chain in chains])
            right &= ms <= most_ms
            print(f"{matrices} matrices, {form}, {goal}: {ms:.2f} ms (at most {most_ms:g})")
        arrays = [[np.empty(pair) for pair in pairwise(chain)] for chain in chains]
        ms = median_ms([partial(NUMPY_ORDER, chain) for chain in arrays])
        print(f"{matrices} matrices, the order of numpy.linalg.multi_dot: {ms:.2f} ms")
    return right


def against_opt_einsum(python: str) -> bool:
    """Compare the operations of 500 chains; return whether all agree."""
    rng = np.random.default_rng(4)
    chains = [drawn(rng, int(rng.integers(2, 21))) for _ in range(500)]
    process = subprocess.run(
        [python, "-c", OPT_EINSUM],
        input=json.dumps(chains),
        check=True,
        capture_output=True,
        text=True,
    )
    peer_ops = [int(line) for line in process.stdout.split()]
    wrong = sum(
        plan_chain(chain, 65536).ops != ops for chain, ops in zip(chains, peer_ops, strict=True)
    )
    print(f"opt_einsum, 500 chains of 2 to 20 matrices: {wrong} with other operations")
    return not wrong


def main() -> None:
    """Run the comparisons and exit with the verdict."""
    parser = argument_parser(__doc__)
    parser.add_argument("--chains", type=int, default=1000, help="of each row of Table D.1")
    parser.add_argument("--opt-einsum", metavar="PYTHON")
    arguments = parser.parse_args()
    right = [against_trees(2 * arguments.chains), table_d1(arguments.chains), times()]
    if arguments.opt_einsum:
        right.append(against_opt_einsum(arguments.opt_einsum))
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
