"""The FMM's error against direct summation in double precision, for every accuracy it offers.

    .venv/bin/python benchmarks/fmm_accuracy.py [--points 30000] [--targets 1000] [--seeds 3]

Five distributions, charges of both signs; 3 to 10 digits in double precision and 3 to 5 in single.
The table has the largest relative L2 error over the seeds. Where all points are equal the potential
is 0 everywhere (r = 0 is left out), and the table has the largest absolute potential.

Exits 0 when no error is above 10^-digits, 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

DIGITS = {"double": range(3, 11), "single": range(3, 6)}


def relative(computed: np.ndarray, exact: np.ndarray) -> float:
    """The relative L2 error; the largest absolute value where all exact potentials are 0."""
    size = np.linalg.norm(exact)
    return float(np.linalg.norm(computed - exact) / size if size else np.abs(computed).max())


def errors(
    distribution: str, seed: int, arguments: argparse.Namespace
) -> dict[tuple[str, int], float]:
    """Errors by (precision, digits) of one set of points."""
    from kernels.fmm import evaluate
    from kernels.fmm.distributions import points
    from kernels.fmm.kernel import direct_sums

    places, charges = points(distribution, arguments.points, seed)
    random = np.random.default_rng(seed)
    targets = random.choice(
        arguments.points, min(arguments.targets, arguments.points), replace=False
    )
    exact = direct_sums(places, charges, places[targets])
    return {
        (precision, digits): relative(
            evaluate(places, charges, digits=digits, precision=precision)[targets], exact
        )
        for precision, range_ in DIGITS.items()
        for digits in range_
    }


def main() -> int:
    """Print the table; 0 when all errors are as small as requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--points", type=int, default=30_000, help="points of each distribution")
    parser.add_argument("--targets", type=int, default=1000, help="targets that are checked")
    parser.add_argument("--seeds", type=int, default=3, help="sets of points of each distribution")
    arguments = parser.parse_args()
    from kernels.fmm.distributions import DISTRIBUTIONS

    print(
        f"{arguments.points:,} points, {arguments.targets:,} targets, "
        f"largest error of {arguments.seeds} seeds"
    )
    worst = {
        name: [errors(name, seed, arguments) for seed in range(arguments.seeds)]
        for name in DISTRIBUTIONS
    }
    print("precision digits " + " ".join(f"{name:>9}" for name in DISTRIBUTIONS))
    missed = 0
    for precision, range_ in DIGITS.items():
        for digits in range_:
            row = [max(run[precision, digits] for run in worst[name]) for name in DISTRIBUTIONS]
            missed += sum(error > 10.0**-digits for error in row)
            print(f"{precision:9} {digits:6} " + " ".join(f"{error:9.1e}" for error in row))
    print(f"{missed} error(s) above the accuracy requested")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
