"""Every variant of the U phase on one core, compared with the refined peak of its instruction mix.

    .venv/bin/python -m benchmarks.fmm_u_variants [--sample 20]

Builds each variant of ``kernels.fmm_u.variants``, checks its sums, and times it: the fastest of
several runs of one U phase, in processor time (with several threads, in wall-clock time).
Interactions are useful pairs (target, source) only, without those that fill vectors. The refined
peak (Choi & Vuduc 2012, section 5.4) is that of :mod:`kernels.fmm_u.peak` on the same core, one
thread: the variant's own mix of instructions in registers. The bound is that of the core's ports,
which no loop with these instructions and loads can pass. The shares are the fractions of both that
the variant reaches. Variants that compute a distance once for both points have their own peak.

The loops of the bounds and the variants take turns: each round runs every variant once. The last
lines say how near to its bound each mix's best variant comes, and which variants pass it.

The first run on a machine compiles, one or two seconds a variant; later ones read the machine
code from the cache. Exits 1 when a variant's result is wrong.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from benchmarks.shared import argument_parser
from kernels.fmm_u.kernel import FmmUParams, count_interactions, fmm_u
from kernels.fmm_u.peak import PeakMeter
from kernels.fmm_u.variants import Variant, flops, instructions, variants
from kernels.host.ranks import Team
from kernels.host.vectors import HOST
from kernels.kernel import ResultError

AT_A_TIME = 20
"""Variants that are prepared together and take turns."""
NOISE = 1.01
"""How far above its bound a variant may be measured: clocks change a little from run to run."""


class TimedVariant:
    """A variant that is ready to run, and its best seconds so far."""

    def __init__(self, variant: Variant, n: int, q: int) -> None:
        """Build the variant's loops and lay out its points."""
        self.variant, self.best_s = variant, float("inf")
        self._params = FmmUParams(n=n, q=q, **variant.model_dump())
        began = time.perf_counter()
        self._prepared = fmm_u.prepare(self._params, Team())
        self._prepared_s = time.perf_counter() - began

    def run(self) -> None:
        """Run and time one U phase."""
        # A single thread is the calling one, whose processor time excludes other work.
        clock = time.thread_time if self.variant.threads == 1 else time.perf_counter
        began = clock()
        self._prepared.run(1)
        self.best_s = min(self.best_s, clock() - began)

    def row(self) -> dict[str, Any]:
        """Return the variant, whether its result is right, and its rates; it cannot run
        afterwards."""
        error = None
        try:
            self._prepared.check()
        except ResultError as wrong:
            error = str(wrong)
        self._prepared.close()
        counts = self._prepared.counts() or {}
        executed = counts["sp" if self.variant.precision == "single" else "dp"]
        return {
            **self.variant.model_dump(),
            "name": self.variant.name(),
            "error": error,
            "prepared_s": self._prepared_s,
            "run_s": self.best_s,
            "interactions_per_s": count_interactions(self._params) / self.best_s,
            "flops_per_s": executed / self.best_s,
        }


def time_variants(
    chosen: list[Variant], meter: PeakMeter, n: int, q: int, rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each variant; the loops of the bounds run once in every round."""
    rows = []
    for start in range(0, len(chosen), AT_A_TIME):
        ready = [TimedVariant(variant, n, q) for variant in chosen[start : start + AT_A_TIME]]
        for _ in range(rounds):
            meter.measure(1)
            for timed in ready:
                timed.run()
        rows += [timed.row() for timed in ready]
        print(f"\r{len(rows)} done", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return rows


def line_of(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    return (
        f"{row['name']:46} {row['interactions_per_s'] / 1e9:8.3f} {row['flops_per_s'] / 1e9:8.1f} "
        f"{100 * row['share']:9.1f} {100 * row['share_of_bound']:7.1f} "
        f"{'right' if row['error'] is None else 'WRONG'}"
    )


def main() -> int:
    """Print the tables; 0 when all results are right."""
    parser = argument_parser(__doc__)
    parser.add_argument("--n", type=int, default=65_536, help="points")
    parser.add_argument("--q", type=int, default=256, help="most points in a leaf")
    parser.add_argument(
        "--vector-bits", type=int, choices=(256, 512), default=None, help="default: the host's"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of each variant")
    parser.add_argument(
        "--rounds", type=int, default=5, help="runs of a variant; the fastest counts"
    )
    parser.add_argument(
        "--sample", type=int, default=None, help="only this many variants, chosen at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample and of the order")
    options = parser.parse_args()
    bits = options.vector_bits or min(max(8 * HOST.bytes, 256), 512)
    chosen = variants(bits, options.threads)
    total = len(chosen)
    random.Random(options.seed).shuffle(chosen)
    chosen = chosen[: options.sample]
    mixes = sorted({(v.precision, v.root, v.ways) for v in chosen})
    meter = PeakMeter(mixes, bits)
    meter.measure()
    print(
        f"{len(chosen)} of {total} variants, {options.n} points, at most {options.q} in a leaf, "
        f"vectors of {bits} bits, {options.threads} thread(s)",
        flush=True,
    )
    rows = time_variants(chosen, meter, options.n, options.q, options.rounds)
    peaks = {mix: meter.peak(*mix) for mix in mixes}
    by_name = {variant.name(): variant for variant in chosen}
    for row in rows:
        peak = peaks[row["precision"], row["root"], row["ways"]]
        row["peak_per_s"] = options.threads * peak.mix_per_s
        row["share"] = row["interactions_per_s"] / row["peak_per_s"]
        row["bound_per_s"] = options.threads * peak.variant_bound_per_s(by_name[row["name"]])
        row["share_of_bound"] = row["interactions_per_s"] / row["bound_per_s"]
    rows.sort(key=lambda row: -row["interactions_per_s"])
    print(
        f"\nPeaks, 1e9 interactions/s, one thread; pressure: ns of each group of instructions for "
        f"one vector of pairs\n{'mix':24} {'flops':>6} {'refined':>8} {'bound':>8}  pressure"
    )
    for mix, peak in peaks.items():
        count = flops(instructions(*mix[1:])) / (1 if mix[2] == "one" else 2)
        pressure = ", ".join(f"{name} {1e9 * s:.2f}" for name, s in peak.pressure_s.items())
        print(
            f"{'-'.join(mix):24} {count:6.1f} {peak.mix_per_s / 1e9:8.3f} "
            f"{peak.bound_per_s / 1e9:8.3f}  {pressure}"
        )
    print(f"\n{'variant':46} {'1e9/s':>8} {'Gflop/s':>8} {'% refined':>9} {'% bound':>7} result")
    for row in rows:
        print(line_of(row))
        if row["error"]:
            print(f"    {row['error']}")
    wrong = sum(row["error"] is not None for row in rows)
    print(f"{len(rows) - wrong} right, {wrong} wrong")
    print(f"\n{'nearest to its bound, of its mix':46} % bound")
    for mix in mixes:
        of_mix = [row for row in rows if (row["precision"], row["root"], row["ways"]) == mix]
        nearest = max(of_mix, key=lambda row: row["share_of_bound"])
        print(f"{nearest['name']:46} {100 * nearest['share_of_bound']:7.1f}")
    passed = [row["name"] for row in rows if row["share_of_bound"] > NOISE]
    print(f"{len(passed)} of {len(rows)} pass their bound by more than {NOISE - 1:.0%}", *passed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
