#!/usr/bin/env bash
# FINDING: a copy of a DataArray of uncertainties' numbers has another uncertainty of its sum. A power meter's gain,
# with 2 %, is one number that all samples share, and the energy has 2 % whatever the number of samples. xarray copies
# an array of objects deeply, and uncertainties 3.2.3 makes each sample's gain a new one, independent of all others,
# when it is copied deeply. One would think that a copy has the values of the original. After power.copy() the samples
# average the gain out: the uncertainty falls with the square root of their number, to a hundredth here. numpy's copy
# and a pickle keep it; so does copy() of a Dataset, which is shallow, but not copy(deep=True). Single samples are as
# before, so that a look at the values shows nothing.
#
# Seen with xarray 2026.9.0, uncertainties 3.2.3 and numpy 2.4.6, 10000 samples of 200 W, one a second:
#   original: (2.00+/-0.04) MJ
#   numpy copy: (2.00+/-0.04) MJ
#   Dataset.copy(): (2.00+/-0.04) MJ
#   DataArray.copy(): (2.0000+/-0.0004) MJ
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet xarray==2026.9.0 uncertainties==3.2.3 numpy==2.4.6

cat > "$folder/program.py" <<'PYTHON'
import math
import sys

import numpy as np
import xarray as xr
from uncertainties import ufloat

SAMPLES, WATTS, RELATIVE = 10_000, 200.0, 0.02


def main() -> int:
    gain = ufloat(1, RELATIVE)
    power = xr.DataArray(np.full(SAMPLES, WATTS) * gain, dims="time")
    copies = {
        "original": power,
        "numpy copy": power.copy(data=power.to_numpy().copy()),
        "Dataset.copy()": power.to_dataset(name="power").copy()["power"],
        "DataArray.copy()": power.copy(),
    }
    found = {}
    for name, samples in copies.items():
        energy = samples.sum().item() * 1e-6
        print(f"{name}: ({energy:.1u}) MJ")
        found[name] = energy.std_dev / energy.nominal_value
    same_samples = power.copy()[0].item().std_dev == power[0].item().std_dev
    right = all(math.isclose(found[name], RELATIVE) for name in list(copies)[:3])
    still = math.isclose(found["DataArray.copy()"], RELATIVE / math.sqrt(SAMPLES))
    return 0 if same_samples and right and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
