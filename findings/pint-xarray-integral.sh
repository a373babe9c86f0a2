#!/usr/bin/env bash
# FINDING: the integral of a power over dates is a power with pint-xarray 0.6.1, and its derivative too. A trace whose
# times are seconds since its begin has its energy in W s, as it should. With times as dates, which power traces have in
# files, xarray takes the differences of the dates as plain numbers in the unit that datetime_unit names, and the result
# keeps the unit of the powers. One would think that units that go with the values catch just this. 3 kWh are "3 W", in
# hours, or "10800000 W", in seconds; nothing is said, a sum of such energies and powers goes through, and the
# derivative of an energy, which is a power, is in J, and cannot be converted to W.
#
# Seen with pint-xarray 0.6.1, xarray 2026.9.0 and pint 0.25.3, 200 W for a minute:
#   times in seconds: integral 12000 second * watt, 12000 J
#   times as dates: integral 12000 watt; in hours 3.333 watt; derivative 0 watt
#   (integral over dates + 5 kW).to("W"): 17000 watt
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pint-xarray==0.6.1 xarray==2026.9.0 pint==0.25.3 numpy==2.4.6 pandas==3.1.1

cat > "$folder/program.py" <<'PYTHON'
import sys

import numpy as np
import pandas as pd
import pint_xarray  # noqa: F401
import xarray as xr

SECONDS, WATTS = 60, 200.0


def trace(times: xr.Variable) -> xr.DataArray:
    powers = ("time", np.full(SECONDS + 1, WATTS), {"units": "W"})
    return xr.Dataset({"power": powers}, coords={"time": times}).pint.quantify()["power"]


def main() -> int:
    seconds = trace(xr.Variable("time", np.arange(SECONDS + 1.0), {"units": "s"}))
    dates = trace(xr.Variable("time", pd.date_range("2026-01-01", periods=SECONDS + 1, freq="s")))
    right = seconds.integrate("time")
    energy_j = right.pint.to("J").pint.magnitude.item()
    print(f"times in seconds: integral {right.data:.0f}, {energy_j:.0f} J")
    over_dates = dates.integrate("time", datetime_unit="s")
    in_hours = dates.integrate("time", datetime_unit="h")
    derivative = dates.differentiate("time", datetime_unit="s")[0]
    print(f"times as dates: integral {over_dates.data:.0f}; in hours {in_hours.data:.3f}; ", end="")
    print(f"derivative {derivative.data:.0f}")
    total = (over_dates + 5 * pint_xarray.unit_registry("kW")).pint.to("W")
    print(f'(integral over dates + 5 kW).to("W"): {total.data:.0f}')
    units = {str(array.pint.units) for array in (over_dates, in_hours, derivative)}
    return 0 if energy_j == 12_000 and units == {"watt"} else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
