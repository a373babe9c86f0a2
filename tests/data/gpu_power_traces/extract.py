"""Makes the files beside it from the data set that README.md names.

    .venv/bin/python tests/data/gpu_power_traces/extract.py FOLDER

FOLDER is the data set's ``plotting/data``, or a folder that holds ``plotting/data``.

The external meter's file has records of nine little-endian unsigned 16-bit numbers: a timer that
wraps, 2,933.5 steps a ms, and four pairs of voltage and current, each in the upper 12 bits; a
negative one is a zero. A step is 7.568 mV and 48.8 mA. Its first record was taken 50 ms before the
time in ``PMD_start_ts.txt`` (us since 1970). All of this is as the data's authors read it, in
convert_pmd_data of their plotting/figure_plotting.py. Where there is power.draw.instant it is taken
for the GPU's reading, else power.draw.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
TRACES = {
    "5050-3090": "5050/3090",
    "5050-A100": "5050/A100",
    "transient-3090": "Transient_Response/3090_TR",
    "transient-4090": "Transient_Response/4090_TR",
    "transient-A100": "Transient_Response/A100_TR",
    "transient-A5000": "Transient_Response/A5000_TR",
    "transient-K40m": "Transient_Response/K40m_TR",
}
"""The extract's name -> the data set's folder."""
GRID_S = 0.02
"""Between two values of the external meter's energy."""
STEPS_PER_S = 2933.5e3
STEP_V, STEP_A = 0.007568, 0.0488
EARLY_S = 0.05
HOUR_S = 3600.0


def read_external(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(s since 1970, W) of the external meter."""
    raw = np.frombuffer((folder / "PMD_data.bin").read_bytes(), dtype="<u2").reshape(-1, 9)
    steps = np.diff(raw[:, 0].astype(np.int64)) % 2**16
    since_s = np.concatenate([[0], np.cumsum(steps)]) / STEPS_PER_S
    signed = (raw[:, 1:] >> 4).astype(float)
    signed[signed >= 2**11] = 0.0
    power_w = (signed[:, 0::2] * STEP_V * signed[:, 1::2] * STEP_A).sum(axis=1)
    start_s = float((folder / "PMD_start_ts.txt").read_text()) / 1e6 - EARLY_S
    return start_s + since_s, power_w


def read_gpu(folder: Path, near_s: float) -> tuple[np.ndarray, np.ndarray]:
    """(s since 1970, W) of the GPU, moved by the whole hours of its time zone to ``near_s``."""
    table = pd.read_csv(folder / "gpudata.csv", skipinitialspace=True)
    local = pd.to_datetime(table["timestamp"], format="%Y/%m/%d %H:%M:%S.%f")
    time_s = local.to_numpy().astype("datetime64[ns]").astype(np.int64) / 1e9
    instant, plain = "power.draw.instant [W]", "power.draw [W]"
    power_w = table[instant if instant in table else plain].to_numpy(float)
    return time_s - HOUR_S * round((time_s[0] - near_s) / HOUR_S), power_w


def write(path: Path, names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A CSV with a header."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)


def extract(folder: Path, name: str) -> float:
    """Write a trace's two files; return the time between two readings of its GPU, in s."""
    external_s, external_w = read_external(folder)
    gpu_s, gpu_w = read_gpu(folder, external_s[0])
    begin_s, end_s = max(gpu_s[0], external_s[0]), min(gpu_s[-1], external_s[-1])
    inside = (gpu_s >= begin_s) & (gpu_s <= end_s)
    gpu_s, gpu_w = gpu_s[inside], gpu_w[inside]
    kept = np.append(True, gpu_w[1:] != gpu_w[:-1])
    kept[-1] = True
    write(
        HERE / f"{name}.gpu.csv",
        ("time_s", "power_w"),
        ((f"{t:.4f}", f"{w:.2f}") for t, w in zip(gpu_s[kept] - begin_s, gpu_w[kept], strict=True)),
    )
    between_j = (external_w[1:] + external_w[:-1]) / 2.0 * np.diff(external_s)
    energy_j = np.concatenate([[0.0], np.cumsum(between_j)])
    grid_s = np.arange(0.0, end_s - begin_s, GRID_S)
    grid_j = np.interp(begin_s + grid_s, external_s, energy_j)
    write(
        HERE / f"{name}.external.csv",
        ("time_s", "energy_j"),
        ((f"{t:.2f}", f"{e:.3f}") for t, e in zip(grid_s, grid_j - grid_j[0], strict=True)),
    )
    return float(np.median(np.diff(gpu_s)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    data = folder / "plotting/data"
    data = data if data.is_dir() else folder
    rows = [(name, f"{extract(data / source, name):.4f}") for name, source in TRACES.items()]
    write(HERE / "polls.csv", ("trace", "poll_s"), rows)


if __name__ == "__main__":
    main()
