"""The columns and types of a store's tables, and of its arrays of samples.

The columns of measurements and traces are named in :mod:`dvfs.dataset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dvfs.dataset import (
    BOOLEAN_COLUMNS,
    COLUMN_UNITS,
    COUNT_PREFIX,
    FAILURE_TEXT_COLUMNS,
    INTEGER_COLUMNS,
    LONG_NAMES,
    MEASUREMENT_COLUMNS,
    TRACE_COLUMNS,
    TRACE_INTEGER_COLUMNS,
    TRACE_TEXT_COLUMNS,
    class_unit,
    is_float_column,
)
from dvfs.setting import NUMBERS

SAMPLES = {"time_ns": "int64", "value": "float64"}
"""The arrays of all samples, and their types."""
PADDING: dict[str, Any] = {"time_ns": np.iinfo(np.int64).min, "value": np.nan}
"""The value of samples that belong to no trace, such as those that fill a shard."""
SAMPLE_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "time_ns": {
        "long_name": "time of a sample since the start of its measurement's first window",
        "units": "ns",
        "_FillValue": PADDING["time_ns"],
    },
    "value": {"long_name": "reading of a trace's channel", "units": "that of the trace"},
}
"""The attributes of the arrays of samples. The unit of a value is its trace's, W or J mostly."""
SHARD_SAMPLES = 1 << 20
"""Samples in a file."""
CHUNK_SAMPLES = 1 << 16
"""Samples in a chunk, which are compressed, checked and read together."""

FAILURE_COLUMNS = (*FAILURE_TEXT_COLUMNS, *NUMBERS, "attempt", "start_unix_s")
TABLES = {
    "measurements": ("measurement", MEASUREMENT_COLUMNS),
    "traces": ("trace", TRACE_COLUMNS),
    "failures": ("failure", FAILURE_COLUMNS),
}
"""Table -> its dimension, and the columns that it always has."""
TRACE_NAMES = {name: f"trace_{name}" for name in (*TRACE_TEXT_COLUMNS, "measurement")}
"""Column of the table of traces -> its name in the Dataset, if that differs."""


def column(name: str, values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Values in the column's type: float64, int64, bool or text (object)."""
    if is_float_column(name):
        return np.array(values, np.float64)  # None becomes NaN
    if name in INTEGER_COLUMNS or name in TRACE_INTEGER_COLUMNS:
        return np.array(values, np.int64)
    if name in BOOLEAN_COLUMNS:
        return np.array(values, bool)
    return np.array(values, object)


def columns_of(
    rows: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None
) -> dict[str, np.ndarray]:
    """Rows as columns. A column that a row lacks is None there, which becomes NaN."""
    if names is None:
        names = dict.fromkeys(name for row in rows for name in row)
    return {name: column(name, [row.get(name) for row in rows]) for name in names} if rows else {}


def missing_column(name: str, rows: int) -> np.ndarray:
    """A column of missing values: NaN, empty text, 0 or False."""
    kind = column(name, []).dtype
    return np.full(rows, np.nan if kind.kind == "f" else "" if kind.kind == "O" else 0, kind)


def attributes(name: str) -> dict[str, Any]:
    """The attributes of a column's array: ``long_name``, and ``units`` for numbers."""
    if name.startswith(COUNT_PREFIX):
        kind = name.removeprefix(COUNT_PREFIX)
        return {"long_name": f"{kind} in an iteration", "units": class_unit(kind)}
    labels = {"long_name": LONG_NAMES[name]} if name in LONG_NAMES else {}
    if name in COLUMN_UNITS:
        labels["units"] = COLUMN_UNITS[name]
    elif name in INTEGER_COLUMNS or name in TRACE_INTEGER_COLUMNS:
        labels["units"] = "1"
    return labels
