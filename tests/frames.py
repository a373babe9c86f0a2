"""Made-up measurements as a store's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from campaign.store.columns import column, columns_of, missing_column
from dvfs.dataset import INTEGER_COLUMNS, MEASUREMENT_COLUMNS, Columns

USUAL = {
    "site": "s",
    "kernel": "k",
    "params": "{}",
    "status": "ok",
    "clock_proof": "read back",
    "provenance": "{}",
    "simulated": False,
    "imported": False,
    "node": "n1",
    "core_mhz": 1000.0,
    "mem_mhz": 500.0,
    "time_s": 1.0,
    "energy_j": 1.0,
    **dict.fromkeys(INTEGER_COLUMNS, 0),
}


def whole(columns: Mapping[str, np.ndarray], rows: int) -> Columns:
    """A store's columns; of those that are not given, the values are missing."""
    missing = {name: missing_column(name, rows) for name in MEASUREMENT_COLUMNS}
    return Columns({**missing, **columns})


def as_columns(frame: pd.DataFrame) -> Columns:
    """A table of measurements as a store's columns; missing numbers are NaN."""
    columns: dict[str, np.ndarray] = {}
    for name in map(str, frame.columns):
        values = frame[name]
        is_text = column(name, []).dtype == object
        columns[name] = column(name, (values.astype(str) if is_text else values).to_numpy())
    return whole(columns, len(frame))


def measured_columns(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """One measurement a row; what a row leaves out is as in ``USUAL``, or else missing."""
    table = [USUAL | row for row in rows]
    return whole(columns_of(table), len(table))


def trace_columns(
    traces: Iterable[tuple[int, str, str, Sequence[float], Sequence[float]]],
) -> Columns:
    """Traces in their order: (measurement, channel, unit, times in ns, values)."""
    measurement, channel, unit, time_ns, value = zip(*traces, strict=True)
    sizes = np.array([len(one) for one in value])
    return Columns(
        {
            "trace_measurement": np.array(measurement),
            "trace_channel": np.array(channel, object),
            "trace_unit": np.array(unit, object),
            "row_start": np.cumsum(sizes) - sizes,
            "row_size": sizes,
            "time_ns": np.concatenate([np.asarray(one, np.int64) for one in time_ns]),
            "value": np.concatenate([np.asarray(one, np.float64) for one in value]),
        }
    )
