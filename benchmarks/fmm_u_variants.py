"""Every variant of the U phase on one core, compared with the refined peak of its instruction mix.

    .venv/bin/python benchmarks/fmm_u_variants.py [--sample 20] [--json variants.json]

Builds each variant of ``kernels.fmm_u.variants``, checks its sums, and times it: the fastest of
several runs of one U phase, in processor time (with several threads, in wall-clock time).
Interactions are useful pairs (target, source) only, without those that fill vectors. The refined
peak (Choi & Vuduc 2012, section 5.4) is that of ``benchmarks.fmm_u_peak`` on the same core, one
thread: the variant's own mix of instructions in registers. The share is the fraction of it that the
variant reaches. Variants that compute a distance once for both points have their own peak.

The first run on a machine compiles, one or two seconds a variant; later ones read the machine
code from the cache. Exits 1 when a variant's result is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fmm_u_peak import PeakMeter
from kernels.fmm_u.kernel import FmmUParams, count_interactions, fmm_u
from kernels.fmm_u.variants import Variant, flops, instructions, variants
from kernels.host.ranks import Team
from kernels.host.vectors import HOST
from kernels.kernel import WrongResult

REMEASURED_EVERY = 10
"""The peaks' loops run again after this many variants."""


def time_variant(variant: Variant, n: int, q: int, rounds: int) -> dict[str, Any]:
    """One row: the variant, whether its result is right, and its best seconds."""
    params = FmmUParams(n=n, q=q, **variant.model_dump())
    began = time.perf_counter()
    prepared = fmm_u.prepare(params, Team())
    prepared_s = time.perf_counter() - began
    # A single thread is the calling one, whose processor time excludes other work on the machine.
    clock = time.thread_time if variant.threads == 1 else time.perf_counter
    best_s = float("inf")
    for _ in range(rounds):
        began = clock()
        prepared.run(1)
        best_s = min(best_s, clock() - began)
    error = None
    try:
        prepared.check()
    except WrongResult as wrong:
        error = str(wrong)
    prepared.close()
    counts = prepared.counts() or {}
    executed = counts["sp" if variant.precision == "single" else "dp"]
    return {
        **variant.model_dump(),
        "name": variant.name(),
        "error": error,
        "prepared_s": prepared_s,
        "run_s": best_s,
        "interactions_per_s": count_interactions(params) / best_s,
        "flops_per_s": executed / best_s,
    }


def line_of(row: dict[str, Any]) -> str:
    """A row of the table."""
    return (
        f"{row['name']:46} {row['interactions_per_s'] / 1e9:8.3f} {row['flops_per_s'] / 1e9:8.1f} "
        f"{row['peak_per_s'] / 1e9:8.3f} {100 * row['share']:6.1f} "
        f"{'right' if row['error'] is None else 'WRONG'}"
    )


def main() -> int:
    """Print the tables; 0 when all results are right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
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
    parser.add_argument("--json", type=Path, default=None, help="write all results to a file")
    given = parser.parse_args()
    bits = given.vector_bits or min(max(8 * HOST.bytes, 256), 512)
    chosen = variants(bits, given.threads)
    total = len(chosen)
    random.Random(given.seed).shuffle(chosen)
    chosen = chosen[: given.sample]
    mixes = sorted({(v.precision, v.root, v.ways) for v in chosen})
    meter = PeakMeter(mixes, bits)
    meter.measure()
    print(
        f"{len(chosen)} of {total} variants, {given.n} points, at most {given.q} in a leaf, "
        f"vectors of {bits} bits, {given.threads} thread(s)",
        flush=True,
    )
    rows = []
    for i, variant in enumerate(chosen):
        rows.append(time_variant(variant, given.n, given.q, given.rounds))
        if i % REMEASURED_EVERY == 0:
            meter.measure(1)
            print(f"\r{i + 1} done", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    meter.measure()
    peaks = {mix: meter.peak(*mix) for mix in mixes}
    for row in rows:
        peak = peaks[row["precision"], row["root"], row["ways"]]
        row["peak_per_s"] = given.threads * peak.mix_per_s
        row["share"] = row["interactions_per_s"] / row["peak_per_s"]
    rows.sort(key=lambda row: -row["interactions_per_s"])
    print(
        f"\nPeaks, 1e9 interactions/s, one thread\n{'mix':24} {'flops':>6} {'refined':>8} "
        f"{'serial':>8} {'overlap':>8}  instructions, 1e9/s"
    )
    for mix, peak in peaks.items():
        count = flops(instructions(*mix[1:])) / (1 if mix[2] == "one" else 2)
        rates = ", ".join(f"{name} {rate / 1e9:.2f}" for name, rate in peak.rates_per_s.items())
        print(
            f"{'-'.join(mix):24} {count:6.1f} {peak.mix_per_s / 1e9:8.3f} "
            f"{peak.serial_per_s / 1e9:8.3f} {peak.overlap_per_s / 1e9:8.3f}  {rates}"
        )
    print(f"\n{'variant':46} {'1e9/s':>8} {'Gflop/s':>8} {'refined':>8} {'share %':>6} result")
    for row in rows:
        print(line_of(row))
        if row["error"]:
            print(f"    {row['error']}")
    wrong = sum(row["error"] is not None for row in rows)
    print(f"{len(rows) - wrong} right, {wrong} wrong")
    if given.json:
        peaks_out = [
            {"precision": p, "root": r, "ways": w, **asdict(peak)}
            for (p, r, w), peak in peaks.items()
        ]
        report = {
            "n": given.n, "q": given.q, "vector_bits": bits, "threads": given.threads,
            "variants_in_space": total, "peaks": peaks_out, "variants": rows,
        }  # fmt: skip
        given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
