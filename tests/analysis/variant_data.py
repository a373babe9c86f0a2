"""Measurements of variants as a store's columns."""

from __future__ import annotations

import json
import math

import numpy as np

from dvfs.dataset import Columns
from tests.frames import whole


def dataset(rows, **columns) -> Columns:
    """Measurements of dgemm at site s: (parameters, time, energy), or with keys in place of the
    defaults; ``columns``: further ones, a value a row."""
    defaults = {
        "site": "s",
        "kernel": "dgemm",
        "status": "ok",
        "clock_proof": "read back",
        "core_mhz": 1000.0,
        "mem_mhz": 500.0,
        "simulated": False,
        "imported": False,
        "provenance": "{}",
    }
    table = []
    for params, time_s, energy_j, *other in rows:
        more = other[0] if other else {}
        own = {"params": json.dumps(params), "time_s": time_s, "energy_j": energy_j}
        table.append({**defaults, **own, **more})
    names = dict.fromkeys(name for row in table for name in row)
    values = {name: [row.get(name, math.nan) for row in table] for name in names} | columns
    text = {"site", "kernel", "status", "clock_proof", "provenance", "params"}
    arrays = {name: np.array(own, object if name in text else None) for name, own in values.items()}
    return whole(arrays, len(table))
