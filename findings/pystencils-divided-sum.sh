#!/usr/bin/env bash
# FINDING: pystencils 2.0 multiplies each neighbour of a stencil where a sum of them is multiplied by a number. The
# number goes into the sum while the formula is read, before pystencils sees it, and neither its kernel nor its
# operation_count takes it out again: a 7-point Jacobi step, the mean of six neighbours, has 5 additions and 6
# multiplications a cell. One would count 5 and 1, as a kernel written by hand has, and as pystencils itself has
# where the factor is a parameter of the kernel. Gflop/s and arithmetic intensity of one stencil at one speed are 1.8
# times as high in one spelling as in the other, and so is what it seems to do per joule.
#
# Seen with pystencils 2.0 and sympy 1.14.0, the same step in three spellings:
#   sum / 6: 5 additions, 6 multiplications; the kernel multiplies 6 neighbours and 0 sums
#   (1 / 6) * sum: 5 additions, 6 multiplications; the kernel multiplies 6 neighbours and 0 sums
#   c * sum: 5 additions, 1 multiplications; the kernel multiplies 0 neighbours and 1 sums
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pystencils==2.0 sympy==1.14.0 numpy==2.3.5

cat > "$folder/program.py" <<'PYTHON'
import re
import sys

import pystencils
import sympy

source, target = pystencils.fields("source, target: double[3D]")
STEPS = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
NEIGHBOURS = sum(source[step] for step in STEPS)
SPELLINGS = {
    "sum / 6": NEIGHBOURS / 6,
    "(1 / 6) * sum": sympy.Rational(1, 6) * NEIGHBOURS,
    "c * sum": sympy.Symbol("c") * NEIGHBOURS,
}


def main() -> int:
    found = {}
    for name, value in SPELLINGS.items():
        step = pystencils.AssignmentCollection([pystencils.Assignment(target[0, 0, 0], value)])
        count = step.operation_count
        code = pystencils.create_kernel(step).get_c_code()
        line = next(line for line in code.splitlines() if re.match(r"\s*_data_target\[.*=", line))
        terms, sums = line.count("* _data_source"), line.count("* (_data_source")
        print(f"{name}: {count['adds']} additions, {count['muls']} multiplications; ", end="")
        print(f"the kernel multiplies {terms} neighbours and {sums} sums")
        found[name] = (count["adds"], count["muls"], terms, sums)
    expected = dict(zip(SPELLINGS, [(5, 6, 6, 0), (5, 6, 6, 0), (5, 1, 0, 1)]))
    return 0 if found == expected else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py"
