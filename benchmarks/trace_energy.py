"""The energy of every trace of a store, recomputed from its samples, out of core.

It checks the energies of the measurements, which the node integrated, with the meter's uncertainty.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import xarray as xr

BLOCK_SAMPLES = 1 << 21
"""The most samples in a thread's memory: 32 MB."""


def trace_energies(dataset: xr.Dataset) -> xr.DataArray:
    """The energy of each trace over all its samples, J, float64 along ``trace``.

    ``dataset``: from :func:`campaign.store.dataset.open_dataset`, best with a shard a chunk. The
    energy is the integral of watts by the trapezoidal rule, or the last reading of joules minus the
    first; NaN for other units (clocks, phases) and for a trace of one sample.

    A thread for each core loads and integrates one block after the other, so that the memory does
    not grow with the store.
    """
    sizes = dataset.sizes.get("trace", 0)
    energies_j = np.full(sizes, np.nan)
    if sizes:
        start, size = dataset["row_start"].values, dataset["row_size"].values
        unit = dataset["trace_unit"].values
        order = np.argsort(start, kind="stable")
        samples = dataset[["time_ns", "value"]]

        def integrate(rows: np.ndarray) -> None:
            a, b = int(start[rows[0]]), int(start[rows[-1]] + size[rows[-1]])
            # Dask's own threads would be as many again.
            block = samples.isel(sample=slice(a, b)).load(scheduler="synchronous")
            energies_j[rows] = _energies_j(
                block["time_ns"].values,
                block["value"].values,
                start[rows] - a,
                size[rows],
                unit[rows] == "W",
                unit[rows] == "J",
            )

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            list(threads.map(integrate, np.split(order, _cuts(start[order], size[order]))))
    return xr.DataArray(energies_j, dims=("trace",), name="trace_energy_j", attrs={"units": "J"})


def _cuts(start: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The indices at which to split traces, sorted by their begin, into blocks of contiguous traces
    with at most :data:`BLOCK_SAMPLES` samples, or of a single trace. Gaps between traces hold the
    padding of a shard, or samples of a point that was measured again."""
    cuts = []
    begin = 0
    for i in range(1, start.size):
        has_gap = start[i] != start[i - 1] + size[i - 1]
        if has_gap or start[i] + size[i] - start[begin] > BLOCK_SAMPLES:
            cuts.append(i)
            begin = i
    return np.array(cuts, np.int64)


@numba.njit(cache=True, nogil=True)
def _energies_j(time_ns, value, begin, size, is_power, is_energy):  # type: ignore[no-untyped-def]
    """The integral of each trace (samples ``begin`` to ``begin + size``) in W s, or its last value
    minus its first."""
    energy_j = np.full(begin.size, np.nan)
    for i in range(begin.size):
        first, last = begin[i], begin[i] + size[i] - 1
        if first == last:
            continue
        if is_power[i]:
            area = 0.0
            for j in range(first, last):
                area += (value[j] + value[j + 1]) * (time_ns[j + 1] - time_ns[j])
            energy_j[i] = 0.5e-9 * area
        elif is_energy[i]:
            energy_j[i] = value[last] - value[first]
    return energy_j
