"""Measurements of variants as a store's columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dvfs.dataset import Columns
from tests.frames import measured_columns


def variant_columns(rows: Sequence[tuple[Any, ...]]) -> Columns:
    """Measurements of dgemm: (parameters, time, energy), and what else the row has."""
    table = [
        {"kernel": "dgemm", "params": json.dumps(params), "time_s": time_s, "energy_j": energy_j}
        | dict(*more)
        for params, time_s, energy_j, *more in rows
    ]
    return measured_columns(table)
