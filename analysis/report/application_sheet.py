"""The table of an application's variants: measured and predicted energy, and the error."""

from __future__ import annotations

from analysis.energy.applications import ApplicationEnergy
from analysis.figures.labels import file_stem
from analysis.measurements.kernels import short_labels
from analysis.report.tables import (
    CORE_MHZ,
    ERROR_PCT,
    MEASURED_J,
    MEM_MHZ,
    PREDICTED_J,
    Field,
    Row,
    Sheet,
)


def application_sheet(shown: ApplicationEnergy) -> Sheet:
    """One row a variant and setting, largest error first; without a prediction last."""
    names = short_labels(variant.kernel for variant in shown.variants)
    ordered = sorted(
        shown.variants, key=lambda v: -abs(v.error_pct) if v.error_pct == v.error_pct else 1.0
    )
    rows: list[Row] = [
        {
            Field("variant", "variant"): names[v.kernel.label],
            CORE_MHZ: v.core_mhz,
            MEM_MHZ: v.mem_mhz,
            Field("n", "measurements", "", 0): v.n,
            MEASURED_J: v.measured_j,
            PREDICTED_J: v.predicted_j,
            ERROR_PCT: v.error_pct,
            Field("error_without_integers_pct", "without integers", "%", 2): (
                v.error_without_integers_pct
            ),
        }
        for v in ordered
    ]
    caption = f"Energy of the variants of {shown.name} by the microbenchmarks' fit"
    return Sheet.of(f"variants_{file_stem(shown.name)}", caption, shown.simulated, rows)
