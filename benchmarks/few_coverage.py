"""Whether intervals and P(best) hold where few settings were measured, on public data.

    .venv/bin/python benchmarks/few_coverage.py --data DIR [--only NAME]
        [--settings 3,4,6,8,12] [--draws 24] [--new 1,2,3] [--new-draws 3] [--auto]

``DIR``: as for ``real_data.py``. ``m``: all kernels measured at so many random settings alone.
``q``: all settings measured, but a tenth of the kernels at a time at so many alone; the energy
model then has the form that ``fit`` chooses on all of the data, and ``--auto`` chooses it in each
fold (slow). What was not looked at is the truth; how picks are judged: ``judged_picks.py``.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).parent))

from few_measurements import chosen_form  # noqa: E402
from judged_picks import HEADER, Picks, true_energies  # noqa: E402
from real_data import gtx_980, titan_x  # noqa: E402

from analysis.choice.candidates import all_candidates, measured_volts  # noqa: E402
from analysis.choice.few_crossval import FewTruth, few_folds  # noqa: E402
from analysis.choice.objectives import ENERGY  # noqa: E402
from analysis.energy.fit import fit  # noqa: E402


def judged(data, settings, new, draws, form) -> Picks:
    """The picks of ``draws`` draws: of all kernels at so many ``settings`` (all where None), or of
    ``new`` ones at so few, by fits of this ``form``."""
    labels = list(FewTruth.of(data, ENERGY).row)
    true_j, volts = true_energies(data), measured_volts(data)
    made = Picks()
    settings = settings or len(np.unique(data.setting))
    for fold in few_folds(data, labels, settings, new, draws):
        training = data.take(fold.seen)
        among = all_candidates(fit(training, **form), training, fold.judged, volts)
        for label, candidates in among.items():
            made.add(candidates, true_j[label], fold.draw, as_measured=True)
    return made


def numbers(text: str) -> list[int]:
    """``3,4`` as [3, 4]."""
    return [int(part) for part in text.split(",") if part]


def main() -> int:
    """Print the tables; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="", help="data sets whose name contains this")
    parser.add_argument("--settings", type=numbers, default=[3, 4, 6, 8, 12])
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--new", type=numbers, default=[1, 2, 3])
    parser.add_argument("--new-draws", type=int, default=3)
    parser.add_argument("--auto", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.data
    sets = {
        "GTX 980, lumped": lambda: gtx_980(folder, False),
        "GTX 980, counts": lambda: gtx_980(folder, True),
        "Titan X, voltage table": lambda: titan_x(folder, True),
        "Titan X, voltage unknown": lambda: titan_x(folder, False),
    }
    sets = {name: read for name, read in sets.items() if arguments.only.lower() in name.lower()}
    if not sets:
        parser.error(f"--only: no data set has {arguments.only!r} in its name")
    print(HEADER)
    for name, read in sets.items():
        data = read()
        for m in arguments.settings:
            judged(data, m, None, arguments.draws, {}).show(f"{name}: m = {m}")
        form = {} if arguments.auto or not arguments.new else chosen_form(data)
        for q in arguments.new:
            judged(data, None, q, arguments.new_draws, form).show(f"{name}: q = {q}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
