#!/usr/bin/env bash
# FINDING: Devito 4.8.23 counts the flops and bytes of every time step for an equation that runs in each tenth only.
# With a ConditionalDimension of factor=10, as for snapshots, imaging conditions and averages, the generated code has an
# "if" around the loops, and Devito measures the time of the steps that run them, but counts the operations and the
# traffic of all steps. One would think that Gflop/s are the operations that were done divided by the time that they
# took. The performance is ten times what it is, often above the processor's peak, and the flop per joule too; the
# number of flops of a whole propagator is too high by what the equation did not do. The arithmetic intensity is right,
# since flops and bytes are wrong by the same factor.
#
# Seen with devito 4.8.23 and sympy 1.14.0, f = f + u * u * u on 200 x 200 points, 50 steps:
#   each step: 50 times done, 150 flop a point counted, 150 done
#   each tenth step: 5 times done, 150 flop a point counted, 15 done
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet devito==4.8.23 sympy==1.14.0 numpy==2.4.3

cat > "$folder/program.py" <<'PYTHON'
import sys

from devito import ConditionalDimension, Eq, Function, Grid, Operator, TimeFunction, configuration

POINTS, STEPS, FACTOR, FLOP = 200, 50, 10, 3

configuration["log-level"] = "ERROR"
configuration["profiling"] = "advanced"
configuration["compiler"] = "gcc"


def main() -> int:
    grid = Grid((POINTS, POINTS))
    every_tenth = ConditionalDimension(name="tenth", parent=grid.time_dim, factor=FACTOR)
    found = []
    for text, dimensions in (("each step", None), ("each tenth step", every_tenth)):
        u = TimeFunction(name="u", grid=grid)
        f = Function(name="f", grid=grid)
        u.data[:] = 1.0
        summary = Operator(Eq(f, f + u * u * u, implicit_dims=dimensions)).apply(time_M=STEPS - 1)
        counted = sum(section.ops for section in summary.input.values()) / POINTS**2
        times = round(float(f.data[0, 0]))
        found.append((times, round(counted)))
        print(f"{text}: {times} times done, {counted:.0f} flop a point counted, {times * FLOP} done")
    return 0 if found == [(STEPS, FLOP * STEPS), (STEPS // FACTOR, FLOP * STEPS)] else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
TMPDIR="$folder" "$folder/venv/bin/python" -W ignore "$folder/program.py"
