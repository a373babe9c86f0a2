"""Our FMM compared with exafmm-t, PVFMM and FMM3D: Laplace potentials of n charges at each other.

    .venv/bin/python -m benchmarks.fmm_peers --exafmm-t PROGRAM --pvfmm PROGRAM \
        --fmm3d PYTHON SCRIPT [--rows 1-4,7] [--threads 1 2] [--tuned F] [--json F] [--quick]

The other codes are not part of this repository. The programs are drivers, built as
benchmarks/peers/README.md describes; each may be left out. Their arguments: POINTS N ORDER Q
THREADS double|single REPEATS, those of FMM3D: POINTS N EPS THREADS REPEATS. POINTS holds x, y, z
and charge, float64. A driver prints one line of JSON: ``evaluation_s`` (a list), ``error``
(relative L2 at 1,000 evenly strided targets, against direct summation), ``first_answer_s`` (from
the process's start to the first potentials), ``resident_mb`` (peak). Our code runs in a new process
for each measurement, too, and prints the same.

First each code's order is chosen, the lowest that reaches a row's error, then its Q, the fastest
of a list; with two threads, the fastest of the best for one thread and its neighbours. FMM3D takes
a tolerance instead of both, the same for any number of threads; its evaluations take seconds, and
a process runs at most two. ``--tuned F`` keeps the choices for another run. Then the rounds are
interleaved, one process of each code and several evaluations in each; times are medians over
rounds of medians over evaluations. Ratios are our time over the faster of exafmm-t's and PVFMM's.
An evaluation of FMM3D includes building its tree; those of the others begin with tree and operators
ready, and ours returns potentials in the caller's order.

PVFMM's Q counts sources and targets together, twice exafmm-t's for the same tree, and its order
is even. exafmm-t's order 10 is less accurate than its order 9. Our ``resident_mb`` is the memory
above that of the process after its imports, theirs is the memory of the whole process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.rows import GOALS, PLACES, Row, make_rows, numbers_of

DIGITS = {3e-4: 3.5, 3e-6: 5.5, 1e-8: 8.0}
"""The digits that are requested of our code for an error, in addition to the order."""
EXAFMM_QS = (100, 150, 250, 350, 500, 700)
OUR_QS = (48, 64, 100, 150, 200, 256, 300, 350, 450, 600)
SAME_Q = 350
"""Most sources in a leaf while the codes' orders are chosen by their errors."""
EPSILONS = tuple(float(f"{m}e-{e}") for e in range(1, 11) for m in (3, 1))
"""FMM3D's tolerances, which take the place of an order."""
TRIED_EPSILONS = 3
"""Tolerances tried of those that reach an error: FMM3D chooses its own Q, and the largest tolerance
may not be the fastest."""
FMM3D_REPEATS = 2
FAST = ("exafmm-t", "pvfmm")
"""Our time is compared with the faster of these codes."""
TIME_LIMIT_S = 900
HEAD = f"{'row':>3} {'points, error, precision':32} {'threads':>7}"


@dataclass(frozen=True)
class Code:
    """A code to run, with the orders and Qs to choose from; no Qs: FMM3D's tolerances."""

    name: str
    program: tuple[str, ...]
    orders: tuple[float, ...]
    qs: tuple[int, ...]
    precisions: tuple[str, ...] = ("double", "single")

    def command(self, row: Row, order: float, q: int, threads: int, repeats: int) -> list[str]:
        """The command line of one process."""
        if self.name == "fmm3d":
            values: tuple[Any, ...] = (order, threads, min(repeats, FMM3D_REPEATS))
        elif self.name == "ours":
            values = (order, q, threads, row.precision, DIGITS[row.goal], repeats)
        else:
            values = (order, q, threads, row.precision, repeats)
        return [*self.program, row.file, str(row.n), *map(str, values)]


class PeerError(Exception):
    """A process that ended without a result."""


def run(code: Code, row: Row, order: float, q: int, threads: int, repeats: int) -> dict[str, Any]:
    """Return the result that one process of a code printed.

    Raises:
        PeerError: the process ended without a result.
    """
    command = code.command(row, order, q, threads, repeats)
    # The same for every code; without it, OpenBLAS in ours would compute operators on all cores.
    limits = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    try:
        process = subprocess.run(
            command,
            env={**os.environ, **limits},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{code.name}: {error}") from error
    lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        output = (process.stderr.strip() or process.stdout.strip())[-500:]
        raise PeerError(
            f"{code.name}: {' '.join(command)}: exit status {process.returncode}: {output}"
        )
    result: dict[str, Any] = json.loads(lines[-1])
    return result


class Tuner:
    """Chooses orders and Qs; ``kept``: choices made earlier, by row, threads and code."""

    def __init__(self, file: Path | None, repeats: int) -> None:
        self.file, self.repeats = file, repeats
        self.kept: dict[str, Any] = read(file)
        self.errors: dict[tuple[str, ...], float] = {}

    def choose(self, code: Code, row: Row, threads: int) -> tuple[float, int]:
        """Return (order, Q) of a code for a row.

        Raises:
            PeerError: no order reaches the error.
        """
        key = self.key(code, row, threads)
        if key not in self.kept:
            alone = self.kept.get(self.key(code, row, 1))
            order = alone[0] if alone else self.lowest_order(code, row)
            settings = [(order, q) for q in code.qs]
            if alone and settings:
                # The best Q depends little on the number of threads.
                best = code.qs.index(alone[1])
                settings = settings[max(0, best - 1) : best + 2]
            elif alone:
                settings = [(order, 0)]
            elif not settings:
                first = code.orders.index(order)
                settings = [
                    (tolerance, 0) for tolerance in code.orders[first : first + TRIED_EPSILONS]
                ]
            self.kept[key] = self.fastest(code, row, settings, threads)
            write(self.file, self.kept)
        order, q = self.kept[key]
        return order, q

    @staticmethod
    def key(code: Code, row: Row, threads: int) -> str:
        """The key of a choice in ``kept``."""
        return f"{row.name}, threads {threads}, {code.name}"

    def lowest_order(self, code: Code, row: Row) -> float:
        """Return the lowest order that reaches the row's error, with the same tree for every
        code."""
        q = (2 if code.name == "pvfmm" else 1) * SAME_Q if code.qs else 0
        for order in code.orders:
            # The error does not depend on the number of threads, and one process is enough for
            # all rows of these points with the same command.
            key = tuple(code.command(row, order, q, 1, 1))
            if key not in self.errors:
                self.errors[key] = run(code, row, order, q, 1, 1)["error"]
            if self.errors[key] <= row.goal:
                return order
        raise PeerError(
            f"{code.name}: no order reaches {row.goal:.0e} in {row.precision} precision"
        )

    def fastest(
        self, code: Code, row: Row, settings: list[tuple[float, int]], threads: int
    ) -> tuple[float, int]:
        """Return the setting with the fastest evaluation among those that reach the error."""
        seconds: dict[tuple[float, int], float] = {}
        for order, q in settings:
            try:
                result = run(code, row, order, q, threads, self.repeats)
            except PeerError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            if result["error"] <= row.goal:
                seconds[order, q] = min(result["evaluation_s"])
        if not seconds:
            raise PeerError(f"{code.name}: none of {settings} reaches {row.goal:.0e}")
        return min(seconds, key=seconds.__getitem__)


def measure(
    codes: list[Code], row: Row, threads: int, tuner: Tuner, rounds: int, repeats: int
) -> dict[str, Any]:
    """Return a row's results by code: order, Q, and the measurements of all rounds."""
    chosen: dict[str, tuple[float, int]] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    taking_part = []
    for code in codes:
        if row.precision not in code.precisions:
            continue
        try:
            chosen[code.name] = tuner.choose(code, row, threads)
            # Afterwards compiled code and operators are in the caches.
            run(code, row, *chosen[code.name], threads, 1)
        except PeerError as error:
            print(f"left out of row {row.number}: {error}", file=sys.stderr)
            continue
        taking_part.append(code)
        runs[code.name] = []
    for turn in range(rounds):
        first = turn % max(1, len(taking_part))
        for code in taking_part[first:] + taking_part[:first]:
            runs[code.name].append(run(code, row, *chosen[code.name], threads, repeats))
    results = {}
    for name, code_runs in runs.items():
        order, q = chosen[name]
        results[name] = {
            "order": order,
            "q": q,
            "error": max(figures["error"] for figures in code_runs),
            "evaluation_s": [figures["evaluation_s"] for figures in code_runs],
            "first_answer_s": [figures["first_answer_s"] for figures in code_runs],
            "resident_mb": [figures["resident_mb"] for figures in code_runs],
        }
    return {
        "row": row.number, "name": row.name, "goal": row.goal, "threads": threads,
        "codes": results,
    }  # fmt: skip


def seconds_of(result: dict[str, Any]) -> float:
    """Return the median over rounds of the medians over evaluations."""
    return statistics.median(statistics.median(seconds) for seconds in result["evaluation_s"])


def ratio_of(measured: dict[str, Any]) -> float | None:
    """Return our time over that of the faster C++ code; None if either is missing."""
    codes = measured["codes"]
    peers_s = [seconds_of(codes[name]) for name in FAST if name in codes]
    return seconds_of(codes["ours"]) / min(peers_s) if peers_s and "ours" in codes else None


def print_head() -> None:
    """Print the head of the first table."""
    print(f"{HEAD} {'code':9} {'order':>6} {'Q':>5} {'error':>8} {'seconds':>9} {'ratio':>6}")


def print_row(measured: dict[str, Any]) -> None:
    """Print a row of the first table, one line for each code; * where the error is too large."""
    ratio = ratio_of(measured)
    for i, (name, result) in enumerate(measured["codes"].items()):
        head = f"{measured['row']:3} {measured['name']:32} {measured['threads']:7}"
        missed = "*" if result["error"] > measured["goal"] else " "
        shown_ratio = f"{ratio:6.3f}" if name == "ours" and ratio else ""
        print(
            f"{head if not i else '':44} {name:9} {result['order']:>6g} {result['q'] or '':>5} "
            f"{result['error']:8.1e}{missed}{seconds_of(result):9.4f} {shown_ratio}",
            flush=True,
        )


def print_summary(all_measured: Iterable[dict[str, Any]]) -> None:
    """Print the means of the ratios, and the tables of first answers and memory."""
    rows = sorted(all_measured, key=lambda m: (m["row"], m["name"], m["threads"]))
    ratios = {(m["row"], m["name"], m["threads"]): r for m in rows if (r := ratio_of(m))}
    for threads in sorted({key[2] for key in ratios}):
        some = [r for key, r in ratios.items() if key[2] == threads]
        print(f"threads {threads}: geometric mean {mean(some):.3f}, largest {max(some):.3f} "
              f"of {len(some)} ratios")  # fmt: skip
    if ratios:
        print(f"all: geometric mean {mean(ratios.values()):.3f} of {len(ratios)} ratios")
    names = [name for name in ("ours", *FAST, "fmm3d") if any(name in m["codes"] for m in rows)]
    for title, field, digits in (
        ("first answer of a new process, seconds", "first_answer_s", 2),
        ("peak resident memory, MB; ours: above the imports", "resident_mb", 0),
    ):
        print(f"\n{title}\n{HEAD}{''.join(f'{name:>10}' for name in names)}")
        for m in rows:
            medians = {
                name: statistics.median(result[field]) for name, result in m["codes"].items()
            }
            columns = "".join(
                f"{medians[name]:10.{digits}f}" if name in medians else f"{'-':>10}"
                for name in names
            )
            print(f"{m['row']:3} {m['name']:32} {m['threads']:7}{columns}")


def mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(math.log(r) for r in ratios))


def read(file: Path | None) -> dict[str, Any]:
    """Return the content of a JSON file; empty if there is none."""
    if file is None or not file.exists():
        return {}
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def write(file: Path | None, content: dict[str, Any]) -> None:
    """Write a JSON file if a path is given."""
    if file is not None:
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def codes_of(arguments: argparse.Namespace) -> list[Code]:
    """Return our code and the codes whose programs were given."""
    us = (sys.executable, str(Path(__file__).resolve().parent / "peers" / "ours.py"))
    codes = [Code("ours", us, tuple(range(4, 11)), OUR_QS)]
    if arguments.exafmm_t:
        codes.append(Code("exafmm-t", (arguments.exafmm_t,), tuple(range(3, 10)), EXAFMM_QS))
    if arguments.pvfmm:
        twice = tuple(2 * q for q in EXAFMM_QS)
        codes.append(Code("pvfmm", (arguments.pvfmm,), tuple(range(4, 13, 2)), twice))
    if arguments.fmm3d:
        codes.append(Code("fmm3d", tuple(arguments.fmm3d), EPSILONS, (), ("double",)))
    return codes


def main() -> None:
    """Print the tables."""
    rows = ", ".join(
        f"{i * len(GOALS) + 1}-{(i + 1) * len(GOALS)} {kind} {n:,}"
        for i, (kind, n) in enumerate(PLACES)
    )
    goals = ", ".join(f"{goal:.0e} {precision}" for goal, precision in GOALS)
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n", 1)[0],
        epilog=f"Rows: {rows}; each four rows: {goals}.",
    )
    parser.add_argument("--exafmm-t", metavar="PROGRAM", help="driver of exafmm-t")
    parser.add_argument("--pvfmm", metavar="PROGRAM", help="driver of PVFMM")
    parser.add_argument("--fmm3d", nargs=2, metavar=("PYTHON", "SCRIPT"), help="driver of FMM3D")
    parser.add_argument(
        "--rows", type=numbers_of, default=f"1-{len(PLACES) * len(GOALS)}", help="such as 1-4,7"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each code")
    parser.add_argument("--repeats", type=int, default=5, help="evaluations of one process")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 3 evaluations")
    parser.add_argument(
        "--n", type=int, help="points in every row, instead of the rows' own numbers"
    )
    parser.add_argument(
        "--tuned", type=Path, metavar="F", help="file that keeps the chosen orders and Qs"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="file that the results are added to")
    arguments = parser.parse_args()
    rounds, repeats = (2, 3) if arguments.quick else (arguments.rounds, arguments.repeats)
    tuner = Tuner(arguments.tuned, 2 if arguments.quick else 3)
    results = read(arguments.json)
    codes = codes_of(arguments)
    print(f"{rounds} interleaved rounds, {repeats} evaluations in each; medians")
    print_head()
    with tempfile.TemporaryDirectory(prefix="fmm-peers-") as folder:
        for row in make_rows(Path(folder), arguments.rows, arguments.n):
            for threads in arguments.threads:
                try:
                    measured = measure(codes, row, threads, tuner, rounds, repeats)
                except PeerError as error:
                    print(f"row {row.number} left out: {error}", file=sys.stderr)
                    continue
                measured["rounds"] = rounds
                results[f"{row.number}, {row.name}, threads {threads}"] = measured
                write(arguments.json, results)
                print_row(measured)
    print_summary(results.values())


if __name__ == "__main__":
    main()
