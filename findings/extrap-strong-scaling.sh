#!/usr/bin/env bash
# FINDING: Extra-P 4.2.5 models a time that falls as 1/p with a negative time. Unless the modeler's option
# allow_negative_exponents is set, its models have only terms that rise with the parameter, and it takes
# the best of these without a warning: a logarithm with a negative factor, which falls below zero at the
# last of the measured points, or a constant. The same goes for the energy of a node, and for anything else
# that falls. With the option both laws are found exactly.
#
# Seen with extrap 4.2.5, exact times at 2, 4, 8, 16 and 32 processes:
#   100/p: at 32 processes -3.1 s, at 128 -25.6 s; with the option 3.1 s and 0.8 s
#   10+100/p: at 32 processes 29.4 s, at 128 29.4 s; with the option 13.1 s and 10.8 s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet extrap==4.2.5

cat > "$folder/program.py" <<'PYTHON'
import sys
from collections.abc import Callable

from extrap.entities.coordinate import Coordinate
from extrap.entities.measurement import Measurement
from extrap.modelers.single_parameter.basic import SingleParameterModeler

PROCESSES = (2, 4, 8, 16, 32)


def predicted(law: Callable[[int], float], negative_exponents: bool) -> list[float]:
    modeler = SingleParameterModeler()
    modeler.allow_negative_exponents = negative_exponents
    times = [Measurement(Coordinate(p), None, None, [law(p)]) for p in PROCESSES]
    function = modeler.create_model(times).hypothesis.function
    return [float(function.evaluate(p)) for p in (32, 128)]


def seen(name: str, law: Callable[[int], float]) -> list[float]:
    at_32, at_128 = predicted(law, False)
    right_32, right_128 = predicted(law, True)
    print(
        f"{name}: at 32 processes {at_32:.1f} s, at 128 {at_128:.1f} s; "
        f"with the option {right_32:.1f} s and {right_128:.1f} s"
    )
    assert abs(right_32 - law(32)) < 1e-6 and abs(right_128 - law(128)) < 1e-6
    return [at_32, at_128]


def main() -> int:
    falls = seen("100/p", lambda p: 100 / p)
    levels = seen("10+100/p", lambda p: 10 + 100 / p)
    return 0 if max(falls) < 0 and min(levels) > 2 * 13.125 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
