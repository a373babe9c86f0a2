"""Means of what was measured, by kernel and setting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.measurements.observations import Observations, kernel_names


def kernel_numbers(data: Observations, kernels: Sequence[str] | None = None) -> np.ndarray:
    """Each row's kernel by its number among ``kernels``, by default all, sorted: int64 (rows,), -1
    for one that is not among them."""
    names = kernel_names(data) if kernels is None else kernels
    numbers = {label: i for i, label in enumerate(names)}
    of_kernel = np.array([numbers.get(label, -1) for label in data.kernels], np.int64)
    return np.asarray(of_kernel[data.kernel])


def cell_means(data: Observations, kernels: Sequence[str], values: np.ndarray) -> np.ndarray:
    """The mean of ``values`` (rows,) over the repeats of each kernel at each setting.

    Float64 (kernels, settings of ``data``), NaN where a kernel was not measured.
    """
    number = kernel_numbers(data, kernels)
    mine = number >= 0
    shape = (len(kernels), len(data.settings))
    cell = number[mine] * shape[1] + data.setting[mine]
    n = np.bincount(cell, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore"):
        return np.asarray((np.bincount(cell, values[mine], len(n)) / n).reshape(shape))


def first_rows(data: Observations, kernels: Sequence[str]) -> np.ndarray:
    """The first row of each kernel at each setting of ``data``: int64 (kernels, settings), -1
    where it was not measured."""
    number = kernel_numbers(data, kernels)
    first = np.full((len(kernels), len(data.settings)), -1)
    mine = np.flatnonzero(number >= 0)[::-1]
    first[number[mine], data.setting[mine]] = mine
    return first
