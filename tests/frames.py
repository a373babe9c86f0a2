"""Made-up measurements."""

from __future__ import annotations

import numpy as np
import pandas as pd

from campaign.store.columns import column
from dvfs.dataset import Columns


def as_columns(frame: pd.DataFrame) -> Columns:
    """A table of measurements as a store's columns; missing numbers are NaN."""
    columns: dict[str, np.ndarray] = {}
    for name in map(str, frame.columns):
        values = frame[name]
        is_text = column(name, []).dtype == object
        columns[name] = column(name, (values.astype(str) if is_text else values).to_numpy())
    return Columns(columns)
