#!/usr/bin/env bash
# FINDING: nsight-python 1.1.0 gives settings the times of other settings' kernels, where not all launch as many. It
# cuts the list of all measured kernels into pieces of one length, the mean number of kernels a run, and adds up each
# piece by combine_kernel_metrics; which kernel was launched by which setting is not looked at. Only if the mean is no
# whole number does it say "Expect same number of kernels per run". One would think that a number that differs is
# refused, or that each run gets the kernels that it launched. A solver with a kernel for each level, measured with 1, 2
# and 3 levels, has a mean of 2: the settings have times that none of them has, and another one is the fastest.
#
# Seen with nsight-python 1.1.0, kernels of 100 us (1 level), of 40 us (2 levels) and of 30 us (3 levels):
#   1 level: 140 us, its kernel 100 us
#   2 levels: 70 us, its kernels 80 us
#   3 levels: 60 us, its kernels 90 us
#   2 runs of each: {1: 140.0, 2: 70.0, 3: 60.0}
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nsight-python==1.1.0 numpy==2.4.6 pandas==3.1.1

cat > "$folder/program.py" <<'PYTHON'
import sys

import numpy as np
from nsight import VerbosityLevel, extraction, utils

METRIC = "gpu__time_duration.sum"
KERNEL_US = {1: 100.0, 2: 40.0, 3: 30.0}


def solve(levels: int) -> None:
    """Launches a kernel for each level."""


def measured(runs: int) -> list:
    one_kernel = {"compute_clock": 1_980_000, "memory_clock": 2_619_000, "gpu": "GPU", "units": ["us"]}
    return [
        utils.ActionData(name=f"level_{level}", values=np.array([KERNEL_US[levels]]), **one_kernel)
        for levels in KERNEL_US
        for _ in range(runs)
        for level in range(levels)
    ]


def main() -> int:
    found = {}
    for runs in (1, 2):
        table = extraction.extract_df_from_data(
            {"solve": measured(runs)},
            metrics=[METRIC],
            configs=[(levels,) for levels in KERNEL_US],
            iterations=runs,
            func=solve,
            derive_metric=None,
            verbosity=VerbosityLevel.SILENT,
            combine_kernel_metrics=lambda first, second: first + second,
        )
        found[runs] = table.groupby("levels")["Value"].mean().to_dict()
    for levels, time_us in found[1].items():
        name, kernels = (f"{levels} level", "kernel") if levels == 1 else (f"{levels} levels", "kernels")
        print(f"{name}: {time_us:.0f} us, its {kernels} {levels * KERNEL_US[levels]:.0f} us")
    print(f"2 runs of each: {found[2]}")
    return 0 if found[1] == {1: 140.0, 2: 70.0, 3: 60.0} else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
