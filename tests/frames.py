"""Made-up measurements."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from campaign.store.columns import column, missing_column
from dvfs.dataset import MEASUREMENT_COLUMNS, Columns


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
