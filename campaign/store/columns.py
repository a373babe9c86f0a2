"""The columns of the index's three tables, and of all samples: names, types and units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

FAILURE_TEXT = (
    "point_id",
    "site",
    "partition",
    "kernel",
    "params",
    "node",
    "status",
    "text",
)
TEXT = (*FAILURE_TEXT, "voltage_origin", "meters", "provenance")
INTEGERS = ("repeat", "ranks", "iterations", "attempt")
FLAGS = ("simulated", "imported")
UNITS = {
    "core_mhz": "MHz",
    "mem_mhz": "MHz",
    "time_s": "s",
    "energy_j": "J",
    "energy_std_j": "J",
    "core_mhz_achieved": "MHz",
    "mem_mhz_achieved": "MHz",
    "core_v": "V",
    "mem_v": "V",
    "start_unix_s": "s",
}
FLOATS = tuple(UNITS)
COUNT = "n_"
TRACE_TEXT = ("channel", "domain", "unit")
TRACE_INTEGERS = ("measurement", "row_start", "row_size")

SAMPLES = {"time_ns": "int64", "value": "float64"}
"""The arrays of all samples, and their types."""
SHARD_SAMPLES = 1 << 20
"""Samples in a file."""
CHUNK_SAMPLES = 1 << 16
"""Samples that are compressed, checked and read together."""

MEASUREMENT_COLUMNS = (*TEXT, *FLOATS, *INTEGERS, *FLAGS)
TRACE_COLUMNS = (*TRACE_TEXT, *TRACE_INTEGERS)
FAILURE_COLUMNS = (*FAILURE_TEXT, "core_mhz", "mem_mhz", "attempt", "start_unix_s")
TABLES = {
    "measurements": ("measurement", MEASUREMENT_COLUMNS),
    "traces": ("trace", TRACE_COLUMNS),
    "failures": ("failure", FAILURE_COLUMNS),
}
"""Table -> its dimension, and the columns that it always has."""


def is_float(name: str) -> bool:
    """Whether a column holds numbers of which some may be missing (NaN)."""
    return name in FLOATS or name.startswith(COUNT)


def column(name: str, values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Values of a column as its array holds them: float64, int64, bool or text (object)."""
    if is_float(name):
        return np.array(values, np.float64)  # of None it makes NaN
    if name in INTEGERS or name in TRACE_INTEGERS:
        return np.array(values, np.int64)
    if name in FLAGS:
        return np.array(values, bool)
    return np.array(values, object)
