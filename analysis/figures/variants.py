"""Figures of a kernel's variants (Anzt et al. 2015, figures 5 to 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.choice.correlations import Correlation
from analysis.choice.fronts import pareto_steps
from analysis.choice.variants import MetricStudy, VariantCosts, VariantStudy
from analysis.figures.figure import Axis, Figure, Line, Panel, Points, Rule
from analysis.figures.labels import file_stem, setting_label, shortened, told_apart
from analysis.figures.variant_times import time_figure

CORRELATED_SHOWN = 24
METRICS_SHOWN = 6
LONGEST_STEM = 100
"""Characters of a file's name; most file systems take 255."""
MOST_TEXTS = 200
"""Variants that show their numbers when they are pointed at; of more, only those that stand out do.
With all of them a page of a thousand variants takes megabytes."""
ROOM = 0.04
"""Beyond the smallest and the largest value of an axis, as a fraction of it."""


def study_titles(studies: Sequence[VariantStudy]) -> list[str]:
    """How figures and tables name studies: by the kernel; of several of one kernel also by the
    parameters in which their problems differ."""
    titles = []
    for shown in studies:
        same = [other.of.problem for other in studies if other.of.kernel == shown.of.kernel]
        own = [
            f"{name}={value}"
            for name, value in shown.of.problem.items()
            if any(problem.get(name) != value for problem in same)
        ]
        titles.append(" ".join([shown.of.kernel, *own]))
    return titles


def study_stem(title: str) -> str:
    """The begin of the names of a study's files."""
    return f"variants_{file_stem(title)[:LONGEST_STEM]}"


def variant_figures(studies: Sequence[VariantStudy]) -> list[Figure]:
    """The figures of every study: hull and front; predicted beside measured, where they are
    predicted; correlations and means, where there are metrics.

    ``studies``: of one site.
    """
    figures = []
    for shown, title in zip(studies, study_titles(studies), strict=True):
        figures.append(_hull_figure(shown, title))
        predicted = time_figure(shown, title, study_stem(title), _what(shown, title))
        if predicted is not None:
            figures.append(predicted)
        if shown.metrics:
            figures.append(_correlation_figure(shown, title))
        if _beside_rate(shown):
            figures.append(_metric_figure(shown, title))
    return figures


def _units(shown: VariantStudy) -> tuple[str, float]:
    return ("Gflop", 1e9) if shown.of.work_unit == "flop" else ("runs", 1.0)


def _what(shown: VariantStudy, title: str) -> str:
    simulated = ", simulated" if shown.of.simulated else ""
    return (
        f"{len(shown.variants)} variants of {title} at {setting_label(shown.of.setting)}{simulated}"
    )


def _costs(shown: VariantStudy, variants: Sequence[VariantCosts]) -> tuple[np.ndarray, np.ndarray]:
    """Rate and efficiency in the figure's units."""
    scale = _units(shown)[1]
    rate = np.array([variant.rate_per_s for variant in variants]) / scale
    return rate, np.array([variant.efficiency_per_j for variant in variants]) / scale


def _texts(shown: VariantStudy, variants: Sequence[VariantCosts]) -> list[str]:
    unit = _units(shown)[0]
    return [
        f"{variant.name}: {rate:.4g} {unit}/s, {efficiency:.4g} {unit}/J, {variant.time_s:.4g} s, "
        f"{variant.energy_j:.4g} J"
        for variant, rate, efficiency in zip(variants, *_costs(shown, variants), strict=True)
    ]


def _axis(label: str, values: np.ndarray) -> Axis:
    low, high = float(values.min()), float(values.max())
    room = ROOM * ((high - low) or high)
    return Axis(label, low=max(low - room, 0.0), high=high + room)


def _hull_figure(shown: VariantStudy, title: str) -> Figure:
    unit = _units(shown)[0]
    rate, efficiency = _costs(shown, shown.variants)
    corners = [corner for _, corner in shown.hull]
    ring = _costs(shown, [*corners, corners[0]])
    best_rate, best_efficiency = _costs(shown, [shown.fastest, shown.least_energy])
    every_text = _texts(shown, shown.variants) if len(rate) <= MOST_TEXTS else ()
    front = shown.pareto
    time_s, energy_j = (
        np.array([getattr(variant, name) for variant in shown.variants])
        for name in ("time_s", "energy_j")
    )
    front_s, front_j = (
        np.array([getattr(variant, name) for variant in front]) for name in ("time_s", "energy_j")
    )
    weighted = [entry.variant for entry in shown.s_j]
    what = _what(shown, title)
    return Figure(
        f"{study_stem(title)}_hull",
        f"{what}: efficiency over rate with their convex hull (Anzt et al. 2015, figure 5), and "
        f"energy over time. The dashed lines are the rate of the variant of least energy and the "
        f"efficiency of the fastest one; rings mark the variants that are best for some weight of "
        f"time against energy (eq. 2).",
        [
            Panel(
                f"Efficiency, {unit}/J: {shortened(title, 20)}",
                _axis(f"rate, {unit}/s", rate),
                _axis("", efficiency),
                [
                    Line(*ring, "front", "hull"),
                    Points(rate, efficiency, "dot faint", "variant", every_text),
                    Points(*_costs(shown, corners), "dot", "corner", _texts(shown, corners)),
                    Rule(float(best_rate[1]), "even"),
                    Rule(float(best_efficiency[0]), "even", vertical=False),
                ],
                f"Efficiency over rate of {what}, {len(corners)} on the hull",
            ),
            Panel(
                f"Energy, J: {shortened(title, 24)}",
                _axis("time, s", time_s),
                _axis("", energy_j),
                [
                    Line(*pareto_steps(front_s, front_j), "front", "Pareto front"),
                    Points(time_s, energy_j, "dot faint", "variant", every_text),
                    Points(front_s, front_j, "dot", "on the front", _texts(shown, front)),
                    Points(
                        np.array([variant.time_s for variant in weighted]),
                        np.array([variant.energy_j for variant in weighted]),
                        "ring",
                        "best for some weight",
                        _texts(shown, weighted),
                    ),
                ],
                f"Energy over time of {what}, {len(front)} on the Pareto front",
            ),
        ],
    )


def _strongest(metrics: Sequence[MetricStudy], most: int) -> list[MetricStudy]:
    """Those of the strongest correlation with rate or efficiency, in the same order."""
    strength = [
        max([abs(one.r) for one in (entry.rate, entry.efficiency) if math.isfinite(one.r)] or [-1])
        for entry in metrics
    ]
    kept = sorted(range(len(metrics)), key=lambda i: -strength[i])[:most]
    return [metrics[i] for i in sorted(kept)]


def _beside_rate(shown: VariantStudy) -> list[MetricStudy]:
    """The metrics that are not the rate itself in other units."""
    return [entry for entry in shown.metrics if not entry.rate.r > 1.0 - 1e-9]


def _correlation_figure(shown: VariantStudy, title: str) -> Figure:
    entries = _strongest(shown.metrics, CORRELATED_SHOWN)
    what = _what(shown, title)
    panels = []
    for name in ("rate", "efficiency", "product"):
        ones: list[Correlation] = [getattr(entry, name) for entry in entries]
        rows, gap = np.arange(len(ones), dtype=float), np.full(len(ones), np.nan)
        r, low, high = (
            np.array([getattr(one, end) for one in ones]) for end in ("r", "low", "high")
        )
        about = "their product" if name == "product" else name
        panels.append(
            Panel(
                f"Correlation with {about}",
                Axis("r", low=-1.05, high=1.05),
                Axis(names=list(enumerate(told_apart([e.metric.name for e in entries], 20)))),
                [
                    Line(
                        np.column_stack([low, high, gap]).ravel(),
                        np.column_stack([rows, rows, gap]).ravel(),
                        "span",
                        "95 % interval",
                    ),
                    Points(
                        r,
                        rows,
                        "dot",
                        "correlation",
                        [
                            f"{entry.metric.name}: {one.r:.3f} ({one.low:.2f} to {one.high:.2f})"
                            for entry, one in zip(entries, ones, strict=True)
                        ],
                    ),
                    Rule(0.0, "axis"),
                ],
                f"Correlation of {len(entries)} metrics with {about}, {what}",
            )
        )
    return Figure(
        f"{study_stem(title)}_correlations",
        f"{what}: correlation of metrics with rate, efficiency and their product (Anzt et al. "
        f"2015, figures 6 to 8), with 95 % intervals, each metric by itself.",
        panels,
    )


def _metric_figure(shown: VariantStudy, title: str) -> Figure:
    rate, efficiency = _costs(shown, shown.variants)
    unit = _units(shown)[0]
    texts = _texts(shown, shown.variants) if len(rate) <= MOST_TEXTS else []
    what = _what(shown, title)
    panels = []
    for entry in _strongest(_beside_rate(shown), METRICS_SHOWN):
        values = entry.metric.values
        series = []
        for side, mine in (("above", values > entry.mean), ("below", values <= entry.mean)):
            at = np.flatnonzero(mine)
            label = "above the mean" if side == "above" else "not above the mean"
            own = [f"{texts[i]}, {entry.metric.name} {values[i]:.4g}" for i in at if texts]
            series.append(Points(rate[at], efficiency[at], f"dot {side}", label, own))
        panels.append(
            Panel(
                f"{unit}/J by {shortened(entry.metric.name, 24)}",
                _axis(f"rate, {unit}/s", rate),
                _axis("", efficiency),
                series,
                f"Efficiency over rate by {entry.metric.name}, {what}",
            )
        )
    return Figure(
        f"{study_stem(title)}_metrics",
        f"{what}: efficiency over rate by whether a metric is above its mean (Anzt et al. 2015, "
        f"figure 9), for the metrics of the strongest correlation.",
        panels,
    )
