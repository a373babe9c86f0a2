"""The check of measurements that nothing showed the clocks of."""

from __future__ import annotations

import numpy as np

from analysis.measurements.clock_proof import UNPROVEN
from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows

CHECK = "clock proof"


def unproven_clocks(rows: Rows) -> list[Finding]:
    """Rows whose clocks are unproven, where the site was measured at several settings.

    They may all have run at one clock: what differs between them is then no effect of it.
    """
    unproven = np.flatnonzero(rows.clock_proof == UNPROVEN)
    if not len(unproven) or len(rows.mhz) < 2:
        return []
    settings = [rows.setting_text(s) for s in np.unique(rows.setting[unproven])]
    n_kernels = len(np.unique(rows.kernel[unproven]))
    return [
        Finding(
            CHECK,
            "refused",
            rows.index[unproven],
            f"nothing showed at which clocks {len(unproven)} of {len(rows.index)} rows ran "
            f"({n_kernels} kernels; {first_named(settings)}), so these settings may be one and the "
            f"same; see `campaign doctor` for what can read or set the clocks, or accept them as "
            f"they were asked for with --accept-unproven (results will say so)",
        )
    ]
