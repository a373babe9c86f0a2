"""What points have cost, as far as they are measured: read without traces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from campaign.store.records import StoreContents
from dvfs.dataset import COMPLETE

COLUMNS = ("point_id", "status", "energy_j", "time_s")


class Cost(NamedTuple):
    """The energy (J) and time (s) of one iteration; NaN where they are missing."""

    energy_j: float
    time_s: float


def measured_costs(contents: StoreContents) -> dict[str, Cost]:
    """Point id -> its cost, of every point that is measured. Failed ones are not in it."""
    costs = {}
    if contents.generation is not None:
        from campaign.store.tables import open_tables, read_column  # noqa: PLC0415

        tables = open_tables(contents.generation)
        columns = [read_column(tables, f"measurements/{name}") for name in COLUMNS]
        done = np.isin(columns[1].astype(str), COMPLETE)
        rows = zip(*(column[done].tolist() for column in columns), strict=True)
        costs = {point_id: Cost(energy_j, time_s) for point_id, _, energy_j, time_s in rows}
    for entry in contents.accepted:
        scalars = entry.scalars
        if scalars["status"] in COMPLETE:
            costs[entry.point_id] = Cost(
                *(np.nan if scalars[n] is None else float(scalars[n]) for n in COLUMNS[2:])
            )
    return costs
