"""The check for energies that were estimated, not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.measurements.estimated_energies import estimated_energies
from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns

CHECK = "energy origin"


def estimated(dataset: xr.Dataset | Columns, rows: Rows) -> list[Finding]:
    """Rows whose energy was estimated: a model of it would be one of that estimate."""
    why = estimated_energies(dataset, rows.index)
    found = np.flatnonzero(why != "")
    if not len(found):
        return []
    reasons = first_named(sorted(set(why[found].tolist())))
    return [
        Finding(
            CHECK,
            "refused",
            rows.index[found],
            f"the energies of {len(found)} of {len(rows.index)} rows are estimated, not measured "
            f"({reasons}); measure them with a meter, or accept them with --accept-unproven "
            "(results will say so)",
        )
    ]
