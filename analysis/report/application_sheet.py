"""The table of an application's variants: measured and predicted energy, and the error."""

from __future__ import annotations

from analysis.energy.applications import ApplicationEnergy
from analysis.figures.labels import file_stem
from analysis.measurements.kernels import short_labels
from analysis.report.tables import Field, Sheet


def application_sheet(shown: ApplicationEnergy) -> Sheet:
    """One row a variant and setting, largest error first; without a prediction last."""
    names = short_labels(variant.kernel for variant in shown.variants)
    ordered = sorted(
        shown.variants, key=lambda v: -abs(v.error_pct) if v.error_pct == v.error_pct else 1.0
    )
    rows: list[list[str | float]] = [
        [
            names[v.kernel.label],
            v.core_mhz,
            v.mem_mhz,
            float(v.n),
            v.measured_j,
            v.predicted_j,
            v.error_pct,
            v.error_without_integers_pct,
        ]
        for v in ordered
    ]
    fields = [
        Field("variant", "variant"),
        Field("core_mhz", "core", "MHz", 0),
        Field("mem_mhz", "memory", "MHz", 0),
        Field("n", "measurements", "", 0),
        Field("measured_j", "measured", "J", -1),
        Field("predicted_j", "predicted", "J", -1),
        Field("error_pct", "error", "%", 2),
        Field("error_without_integers_pct", "without integers", "%", 2),
    ]
    caption = f"Energy of the variants of {shown.name} by the microbenchmarks' fit"
    return Sheet(f"variants_{file_stem(shown.name)}", caption, shown.simulated, fields, rows)
