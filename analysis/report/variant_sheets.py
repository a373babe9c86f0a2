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
    """The sheets of every study (variants, hull, weights of eq. 2, and metrics if any), and those
    of the variants of each kernel over the size of its problem."""
    return [
        *map(scaling_sheet, scalings(studies)),
        *(
            sheet
            for study, title in zip(studies, study_titles(studies), strict=True)
            for sheet in (
                costs_sheet(study, title),
                hull_sheet(study, title),
                weights_sheet(study, title),
                *([metrics_sheet(study, title)] if study.metrics else []),
            )
        ),
    ]


def scaling_sheet(scaling: Scaling) -> Sheet:
    """The costs of every variant at each size."""
    size = Field(scaling.size, scaling.size, "", 0)
    rows: list[Row] = [
        {VARIANT: name, size: value, **_costs(cost, scaling.work_unit)}
        for name, costs in scaling.variants.items()
        for value, cost in zip(scaling.sizes, costs, strict=True)
    ]
    at = setting_label(scaling.setting)
    caption = f"Variants of {scaling.kernel} over {scaling.size} at {at}"
    return Sheet.of(f"scaling_{file_stem(scaling.kernel)}", caption, scaling.simulated, rows)


def summary(study: VariantStudy, title: str) -> str:
    """The main results of a study, in sentences."""
    fastest, least = study.fastest, study.least_energy
    more_pct = 100.0 * (fastest.energy_j / least.energy_j - 1.0)
    slower_pct = 100.0 * (least.time_s / fastest.time_s - 1.0)
    omitted = ", ".join(f"{n} {reason}" for reason, n in study.of.left_out.items())
    where = f"{len(study.variants)} variants at {setting_label(study.of.setting)}"
    return (
        f"{title}: {where}. The fastest ({fastest.name}) takes {more_pct:.1f} % more energy than "
        f"the one of least energy ({least.name}), which is {slower_pct:.1f} % slower. On the hull, "
        f"a variant that takes as much energy as the fastest is up to "
        f"{study.same_energy_slower_pct:.1f} % slower, and one that is as fast as that of least "
        f"energy takes up to {study.same_time_more_energy_factor:.3f} times the energy."
        + (f" Measurements left out: {omitted}." if omitted else "")
    )


def _costs(variant: VariantCosts, unit: str) -> Row:
    return {
        VARIANT: variant.name,
        Field("time_s", "time", "s", -1): variant.time_s,
        Field("energy_j", "energy", "J", -1): variant.energy_j,
        Field("rate_per_s", "rate", f"{unit}/s", -1): variant.rate_per_s,
        Field("efficiency_per_j", "efficiency", f"{unit}/J", -1): variant.efficiency_per_j,
    }


def _predicted(shown: VariantStudy) -> dict[Field, str]:
    """The predicted costs that some variant has, by their attribute's name."""
    fields = {
        Field("predicted_s", "time, predicted", "s", -1): "predicted_s",
        Field("predicted_j", "energy, predicted", "J", -1): "predicted_j",
    }
    return {
        field: name
        for field, name in fields.items()
        if any(math.isfinite(getattr(variant, name)) for variant in shown.variants)
    }


def costs_sheet(shown: VariantStudy, title: str) -> Sheet:
    """The costs of every variant, the fastest first."""
    ordered = sorted(shown.variants, key=lambda variant: variant.time_s)
    unit, repeats = shown.of.work_unit, Field("repeats", "repeats", "", 0)
    predicted = _predicted(shown)
    rows: list[Row] = [
        {
            **_costs(variant, unit),
            **{field: getattr(variant, name) for field, name in predicted.items()},
            repeats: float(variant.repeats),
        }
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
    """The variants of least alpha t + (1 - alpha) e, with ranges of alpha (Anzt et al. 2015)."""
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
    """The correlations of each metric, and mean costs above and not above the metric's mean."""
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
            correlation = getattr(entry, name)
            row |= {
                Field(f"r_{name}", f"r with {name}", "", 3): correlation.r,
                Field(f"r_{name}_low", "95 % from", "", 2): correlation.low,
                Field(f"r_{name}_high", "to", "", 2): correlation.high,
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
