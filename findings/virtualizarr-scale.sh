#!/usr/bin/env bash
# FINDING: power traces that are packed as 16-bit integers, and joined by VirtualiZarr 2.5.1, have the watts of the
# first file's scale. A file of netCDF has a scale_factor of its own, which fits the largest power of its run.
# open_virtual_mfdataset joins the files' chunks as they are, and keeps the attributes of the first, of which the scale
# is one. One would think that it is told apart: data types, codecs and shapes of chunks that differ raise an error, and
# times that count from another start in each file are decoded for themselves. Here the power of the second run is below
# that of the first, in place of 15 times above. xarray's open_mfdataset decodes each file for itself and gives the
# right watts; with combine_attrs="no_conflicts", open_virtual_mfdataset raises an error.
#
# Seen with virtualizarr 2.5.1, xarray 2026.9.0, kerchunk 0.2.10 and h5netcdf 1.8.2:
#   open_mfdataset: 100 133 167 200 1000 1667 2333 3000 W
#   open_virtual_mfdataset: 100 133 167 200 67 111 156 200 W
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'virtualizarr[hdf]==2.5.1' xarray==2026.9.0 kerchunk==0.2.10 \
    h5netcdf==1.8.2 h5py==3.16.0 zarr==3.1.6 dask==2026.8.0

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_mfdataset
from virtualizarr.parsers import HDFParser

RUNS_W = (np.linspace(100, 200, 4), np.linspace(1000, 3000, 4))


def write(path: Path, start: pd.Timestamp, watts: np.ndarray) -> None:
    times = start + pd.to_timedelta(np.arange(watts.size), "s")
    trace = xr.Dataset({"power": ("time", watts, {"units": "W"})}, {"time": times})
    packed = {"dtype": "int16", "scale_factor": watts.max() / 30_000}
    encoding = {"power": packed, "time": {"units": f"seconds since {start}", "dtype": "int64"}}
    trace.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def open_virtual(paths: list[Path], combine_attrs: str) -> xr.Dataset:
    virtual = open_virtual_mfdataset(
        [path.as_uri() for path in paths],
        registry=ObjectStoreRegistry({"file://": LocalStore()}),
        parser=HDFParser(),
        combine="nested",
        concat_dim="time",
        combine_attrs=combine_attrs,
    )
    return xr.open_dataset(virtual.vz.to_kerchunk(format="dict"), engine="kerchunk")


def main() -> int:
    start = pd.Timestamp("2026-01-01")
    paths = []
    for run, watts in enumerate(RUNS_W):
        paths.append(Path(sys.argv[1]) / f"run{run}.nc")
        write(paths[-1], start + pd.Timedelta(4 * run, "s"), watts)
    virtual = open_virtual(paths, "override")
    with xr.open_mfdataset(paths, engine="h5netcdf") as decoded:
        for name, opened in (("open_mfdataset", decoded), ("open_virtual_mfdataset", virtual)):
            print(f"{name}: {' '.join(f'{watts:.0f}' for watts in opened['power'].values)} W")
        right = np.allclose(decoded["power"], np.concatenate(RUNS_W), rtol=1e-3)
        right = right and np.array_equal(decoded["time"], virtual["time"])
    scaled = RUNS_W[1] * RUNS_W[0].max() / RUNS_W[1].max()
    still = np.allclose(virtual["power"], np.concatenate([RUNS_W[0], scaled]), rtol=1e-3)
    try:
        open_virtual(paths, "no_conflicts")
        refused = False
    except xr.MergeError:
        refused = True
    return 0 if right and still and refused else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
