"""The values that the microbenchmarks of a GPU compute with.

A processor's power depends on the values that it computes with (arXiv 2212.08805: up to 67 % on an
A100), so ``data`` is a parameter, and kernels with other data are other kernels.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Data = Literal["zeros", "ones", "random", "normal"]


def filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], data: Data, seed: int
) -> np.ndarray[Any, Any]:
    """An array of such values. Integers (uint32) are random in all bits, or a rounded normal
    distribution of standard deviation 10^6; other numbers are between -1 and 1, or of standard
    deviation 1."""
    rng = np.random.default_rng(seed)
    if data == "zeros":
        return np.zeros(shape, dtype)
    if data == "ones":
        return np.ones(shape, dtype)
    if dtype.kind == "u":
        if data == "normal":
            return np.round(rng.normal(scale=1e6, size=shape)).astype(np.int32).view(np.uint32)
        return rng.integers(0, 2**32, shape, np.uint32)
    values = rng.normal(size=shape) if data == "normal" else rng.uniform(-1.0, 1.0, shape)
    return values.astype(dtype)
