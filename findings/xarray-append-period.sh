#!/usr/bin/env bash
# FINDING: xarray 2026.9.0 stretches the times of a power trace that it appends to a Zarr store, where the
# trace before has whole seconds and this one has not. The store's times are integers, of the unit that the
# first trace needs. For the appended ones xarray warns that this unit does not do, says that it writes
# another, writes the integers in that one, and leaves the unit in the store as it was: 0.1 s become 100 s.
# The warning reads as if all were well. With an encoding of the first trace
# ({"time": {"units": "nanoseconds since ..."}}) the times are right.
#
# Seen with xarray 2026.9.0 and zarr 3.1.6, 200 W at 10 times 1 s apart, then at 100 times 0.1 s apart:
#   Times can't be serialized faithfully to int64 with requested units 'seconds since 2026-01-01'.
#   Serializing with units 'milliseconds since 2026-01-01' instead.
#   written: 19.9 s, 3980 J; read: 19900 s, 3980000 J
#   with an encoding: read: 19.9 s, 3980 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet xarray==2026.9.0 zarr==3.1.6 dask==2026.8.0

cat > "$folder/program.py" <<'PYTHON'
import sys
import warnings

import numpy as np
import xarray as xr

START = np.datetime64("2026-01-01", "ns")
EXACT = {"time": {"units": "nanoseconds since 2026-01-01", "dtype": "int64"}}


def trace(first_ms: int, count: int, period_ms: int) -> xr.Dataset:
    times = START + (first_ms + period_ms * np.arange(count)) * np.timedelta64(10**6, "ns")
    return xr.Dataset({"power_w": ("time", np.full(count, 200.0))}, {"time": times})


def seconds_and_energy(dataset: xr.Dataset) -> tuple[float, float]:
    seconds = (dataset.time.values - START) / np.timedelta64(1, "s")
    return seconds[-1] - seconds[0], np.trapezoid(dataset.power_w.values, seconds)


def appended(store: str, traces: list[xr.Dataset], encoding: dict | None) -> tuple[float, float]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        traces[0].to_zarr(store, encoding=encoding)
        traces[1].to_zarr(store, append_dim="time")
    for text in (str(warning.message) for warning in said):
        if "Times" in text:
            print(*(part.strip().rstrip(".") + "." for part in text.split(". ")[:2]), sep="\n")
    return seconds_and_energy(xr.open_zarr(store))


def main(folder: str) -> int:
    traces = [trace(0, 10, 1000), trace(10_000, 100, 100)]
    true = seconds_and_energy(xr.concat(traces, "time"))
    read = appended(f"{folder}/default.zarr", traces, None)
    exact = appended(f"{folder}/exact.zarr", traces, EXACT)
    written = f"written: {true[0]:.1f} s, {true[1]:.0f} J"
    print(f"{written}; read: {read[0]:.0f} s, {read[1]:.0f} J")
    print(f"with an encoding: read: {exact[0]:.1f} s, {exact[1]:.0f} J")
    stretched = read[1] > 100 * true[1]
    return 0 if stretched and np.allclose(exact, true) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
