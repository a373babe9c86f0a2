"""The energy of every trace of a store, recomputed from its samples, out of core.

A check of what the measurements say (their energies were integrated on the node, with the
uncertainty that the meter leaves), and a start for questions that they do not answer.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

BLOCK_SAMPLES = 1 << 22
"""Samples in memory at a time: 64 MB."""


def trace_energies(dataset: xr.Dataset) -> xr.DataArray:
    """The energy of each trace over all its samples, J, float64 along ``trace``.

    ``dataset``: of :func:`campaign.store.dataset.open_dataset`, best with a shard a chunk.
    Watts are integrated by the trapezoidal rule; of joules it is the last reading less the
    first. NaN for other units (clocks, phases), and for a trace of one sample.

    Samples are read block by block (with Dask's threads, where they are Dask's arrays): memory
    does not grow with the store.
    """
    sizes = dataset.sizes.get("trace", 0)
    found = np.full(sizes, np.nan)
    if sizes:
        start, size = dataset["row_start"].values, dataset["row_size"].values
        order = np.argsort(start, kind="stable")
        unit = dataset["trace_unit"].values
        samples = dataset[["time_ns", "value"]]
        for rows in np.split(order, _cuts(start[order], size[order])):
            a, b = int(start[rows[0]]), int(start[rows[-1]] + size[rows[-1]])
            block = samples.isel(sample=slice(a, b)).load()
            power_j, gain_j = _energies_j(
                block["time_ns"].values, block["value"].values, start[rows] - a, size[rows]
            )
            energy_j = np.where(unit[rows] == "W", power_j, gain_j)
            known = (size[rows] > 1) & np.isin(unit[rows], ["W", "J"])
            found[rows[known]] = energy_j[known]
    return xr.DataArray(found, dims=("trace",), name="trace_energy_j", attrs={"units": "J"})


def _cuts(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Where to split traces, sorted by their begin, so that those of a block lie one directly
    behind the other, and it holds no more than :data:`BLOCK_SAMPLES`, or a single trace. Between
    others lie samples of none: what pads a shard, or was measured again."""
    cuts = []
    begin = 0
    for i in range(1, start.size):
        apart = start[i] != start[i - 1] + size[i - 1]
        if apart or start[i] + size[i] - start[begin] > BLOCK_SAMPLES:
            cuts.append(i)
            begin = i
    return np.array(cuts, np.int64)


def _energies_j(
    time_ns: np.ndarray, value: np.ndarray, begin: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of each trace (samples ``begin`` to ``begin + size``) its integral in W s, and its last
    value less its first."""
    last = begin + size - 1
    area = np.zeros(value.size)
    np.multiply(value[1:] + value[:-1], np.diff(time_ns), out=area[:-1])
    area[last] = 0.0  # from one trace's end to the next one's begin
    return np.add.reduceat(area, begin) * 0.5e-9, value[last] - value[begin]
