"""The tables of a kernel's variants."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.choice.variants import VariantCosts, VariantStudy
from analysis.figures.labels import file_stem, setting_label
from analysis.figures.variants import Scaling, scalings, study_stem, study_titles
from analysis.report.tables import Field, Row, Sheet

VARIANT = Field("variant", "variant")


def variant_sheets(studies: Sequence[VariantStudy]) -> list[Sheet]:
    """Of every study: all variants, the hull, the weights of eq. 2, and the metrics if any; and
    the variants of each kernel over the size of its problem."""
    return [
        *map(scaling_sheet, scalings(studies)),
        *(
            sheet
            for shown, title in zip(studies, study_titles(studies), strict=True)
            for sheet in (
                costs_sheet(shown, title),
                hull_sheet(shown, title),
                weights_sheet(shown, title),
                *([metrics_sheet(shown, title)] if shown.metrics else []),
            )
        ),
    ]


def scaling_sheet(shown: Scaling) -> Sheet:
    """Every variant's costs at each size."""
    size = Field(shown.size, shown.size, "", 0)
    rows: list[Row] = [
        {VARIANT: name, size: at, **_costs(cost, shown.work_unit)}
        for name, costs in shown.variants.items()
        for at, cost in zip(shown.sizes, costs, strict=True)
    ]
    caption = f"Variants of {shown.kernel} over {shown.size}"
    return Sheet.of(f"scaling_{file_stem(shown.kernel)}", caption, shown.simulated, rows)


def summary(shown: VariantStudy, title: str) -> str:
    """What a person should know of a study first, in sentences."""
    fastest, least = shown.fastest, shown.least_energy
    more_pct = 100.0 * (fastest.energy_j / least.energy_j - 1.0)
    slower_pct = 100.0 * (least.time_s / fastest.time_s - 1.0)
    left_out = ", ".join(f"{n} {reason}" for reason, n in shown.of.left_out.items())
    where = f"{len(shown.variants)} variants at {setting_label(shown.of.setting)}"
    return (
        f"{title}: {where}. The fastest ({fastest.name}) takes {more_pct:.1f} % more energy than "
        f"the one of least energy ({least.name}), which is {slower_pct:.1f} % slower. On the hull, "
        f"a variant that takes as much energy as the fastest is up to "
        f"{shown.same_energy_slower_pct:.1f} % slower, and one that is as fast as that of least "
        f"energy takes up to {shown.same_time_more_energy_factor:.3f} times the energy."
        + (f" Measurements left out: {left_out}." if left_out else "")
    )


def _costs(variant: VariantCosts, unit: str) -> Row:
    return {
        VARIANT: variant.name,
        Field("time_s", "time", "s", -1): variant.time_s,
        Field("energy_j", "energy", "J", -1): variant.energy_j,
        Field("rate_per_s", "rate", f"{unit}/s", -1): variant.rate_per_s,
        Field("efficiency_per_j", "efficiency", f"{unit}/J", -1): variant.efficiency_per_j,
    }


def _predicted(variant: VariantCosts) -> Row:
    """The predicted costs, where there are any."""
    fields = {
        Field("predicted_s", "time, predicted", "s", -1): variant.predicted_s,
        Field("predicted_j", "energy, predicted", "J", -1): variant.predicted_j,
    }
    return {field: value for field, value in fields.items() if math.isfinite(value)}


def costs_sheet(shown: VariantStudy, title: str) -> Sheet:
    """Every variant's costs, the fastest first."""
    ordered = sorted(shown.variants, key=lambda variant: variant.time_s)
    unit, repeats = shown.of.work_unit, Field("repeats", "repeats", "", 0)
    rows: list[Row] = [
        {**_costs(variant, unit), **_predicted(variant), repeats: float(variant.repeats)}
        for variant in ordered
    ]
    caption = f"Variants of {title}, by time"
    return Sheet.of(f"{study_stem(title)}_costs", caption, shown.of.simulated, rows)


def hull_sheet(shown: VariantStudy, title: str) -> Sheet:
    """The hull of rate and efficiency, counter-clockwise from the fastest (Anzt et al. 2015,
    Table II)."""
    arc, unit = Field("arc", "arc"), shown.of.work_unit
    rows = [{arc: weight, **_costs(corner, unit)} for weight, corner in shown.hull]
    caption = f"Variants of {title} on the hull of rate and efficiency"
    return Sheet.of(f"{study_stem(title)}_hull", caption, shown.of.simulated, rows)


def weights_sheet(shown: VariantStudy, title: str) -> Sheet:
    """For which alpha of alpha t + (1 - alpha) e which variant is best (Anzt et al. 2015)."""
    rows: list[Row] = [
        {
            VARIANT: relative.variant.name,
            Field("relative_from", "alpha, relative, from", "", 3): relative.low,
            Field("relative_to", "to", "", 3): relative.high,
            Field("s_j_from", "alpha, s and J, from", "", 3): s_j.low,
            Field("s_j_to", "to", "", 3): s_j.high,
        }
        for relative, s_j in zip(shown.relative, shown.s_j, strict=True)
    ]
    caption = f"Variants of {title} of least alpha t + (1 - alpha) e"
    return Sheet.of(f"{study_stem(title)}_alpha", caption, shown.of.simulated, rows)


def metrics_sheet(shown: VariantStudy, title: str) -> Sheet:
    """Each metric's correlations, and the means above and not above its mean."""
    rows: list[Row] = []
    per_s, per_j = (f"{shown.of.work_unit}/{unit}" for unit in ("s", "J"))
    for entry in shown.metrics:
        row: dict[Field, str | float] = {
            Field("metric", "metric"): entry.metric.name,
            Field("unit", "unit"): entry.metric.unit,
            Field("n", "variants", "", 0): float(entry.n),
            Field("mean", "mean", "", -1): entry.mean,
        }
        for name in ("rate", "efficiency", "product"):
            one = getattr(entry, name)
            row |= {
                Field(f"r_{name}", f"r with {name}", "", 3): one.r,
                Field(f"r_{name}_low", "95 % from", "", 2): one.low,
                Field(f"r_{name}_high", "to", "", 2): one.high,
            }
        for name, side in (("above", entry.above), ("below", entry.below)):
            words = "above" if name == "above" else "not above"
            row |= {
                Field(f"n_{name}", words, "variants", 0): float(side.n),
                Field(f"rate_{name}_per_s", "mean rate", per_s, -1): side.rate_per_s,
                Field(f"efficiency_{name}_per_j", "efficiency", per_j, -1): side.efficiency_per_j,
            }
        rows.append(row)
    caption = f"Metrics of the variants of {title}"
    return Sheet.of(f"{study_stem(title)}_metrics", caption, shown.of.simulated, rows)
