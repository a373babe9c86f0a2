"""Datasets of made-up measurements."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from campaign.store.columns import column
from campaign.store.dataset import scalars_of
from dvfs.dataset import Columns


def as_dataset(frame: pd.DataFrame) -> xr.Dataset:
    """A table of measurements as a Dataset, with units; missing numbers are NaN."""
    columns: dict[str, np.ndarray] = {}
    for name in map(str, frame.columns):
        values = frame[name]
        is_text = column(name, []).dtype == object
        columns[name] = column(name, (values.astype(str) if is_text else values).to_numpy())
    return scalars_of(Columns(columns, {}))
