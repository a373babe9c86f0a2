"""Figures of a kernel's variants (Anzt et al. 2015, figures 5 to 9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.fronts import pareto_steps
from analysis.choice.variants import Correlation, MetricStudy, VariantCosts, VariantStudy
from analysis.figures.figure import (
    Axis,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    Series,
    predicted_panel,
    row_axis,
    spans,
)
from analysis.figures.labels import file_stem, marked, setting_label, shortened
from dvfs.setting import Setting

SHOWN = 6
"""The most variants of a figure, one for each colour of lines."""
FEWEST_SIZES = 3
MOST_LINES = 6
FEWEST_VALUES = 3
CORRELATED_SHOWN = 24
METRICS_SHOWN = 6
LONGEST_STEM = 100
"""The most characters of a title in a file's name; most file systems allow 255."""
MOST_TEXTS = 200
"""The most variants that all show their numbers under the pointer; of more, only highlighted ones
do. With all texts, a page of a thousand variants takes megabytes."""
ROOM = 0.04
"""The margin of an axis beyond its values, as a fraction of their range."""


@dataclass(frozen=True)
class Scaling:
    """The variants of ``kernel`` that were measured at all ``sizes``, in rising order, of the
    parameter ``size``, at one ``setting``. ``variants``: name -> its costs at each size; first
    those that are the fastest or the most efficient at the largest size, then those at the next,
    and so on."""

    kernel: str
    size: str
    setting: Setting
    simulated: bool
    work_unit: str
    sizes: Sequence[float]
    variants: Mapping[str, Sequence[VariantCosts]]


def scalings(studies: Sequence[VariantStudy]) -> list[Scaling]:
    """The scaling of each kernel whose problems differ in one number alone, with at least
    :data:`FEWEST_SIZES` values. ``studies``: of one site; each is at the setting with most variants
    of its problem. Those at the setting of most problems count, of several at the last in order."""
    result = []
    for kernel in dict.fromkeys(study.of.kernel for study in studies):
        kernel_studies = [study for study in studies if study.of.kernel == kernel]
        problems_at = Counter(study.of.setting for study in kernel_studies)
        setting = max(problems_at, key=lambda setting: (problems_at[setting], setting))
        kernel_studies = [study for study in kernel_studies if study.of.setting == setting]
        problems = [study.of.problem for study in kernel_studies]
        names = dict.fromkeys(name for problem in problems for name in problem)
        differing = [name for name in names if len({str(p.get(name)) for p in problems}) > 1]
        if len(kernel_studies) < FEWEST_SIZES or len(differing) != 1:
            continue
        size = differing[0]
        values = [problem.get(size) for problem in problems]
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            continue
        ordered = sorted(kernel_studies, key=lambda study: float(study.of.problem[size]))
        by_size = [{variant.name: variant for variant in study.variants} for study in ordered]
        best: dict[str, None] = {}
        for study in reversed(ordered):
            best |= dict.fromkeys((study.fastest.name, study.least_energy.name))
        complete = [n for n in [*best, *by_size[-1]] if all(n in costs for costs in by_size)]
        if complete:
            result.append(
                Scaling(
                    kernel,
                    size,
                    setting,
                    kernel_studies[0].of.simulated,
                    kernel_studies[0].of.work_unit,
                    [float(study.of.problem[size]) for study in ordered],
                    {n: [costs[n] for costs in by_size] for n in dict.fromkeys(complete)},
                )
            )
    return result


def scaling_figure(scaling: Scaling) -> Figure:
    """Rate and efficiency over the size, for the first :data:`SHOWN` variants."""
    unit, scale = _units(scaling.work_unit)
    xs = np.array(scaling.sizes)
    panels = []
    for title, per, name in (
        ("Rate", "s", "rate_per_s"),
        ("Efficiency", "J", "efficiency_per_j"),
    ):
        series: list[Series] = []
        for number, (variant, costs) in enumerate(list(scaling.variants.items())[:SHOWN]):
            ys = np.array([getattr(cost, name) for cost in costs]) / scale
            texts = [f"{variant}, {x:g}: {y:.4g} {unit}/{per}" for x, y in zip(xs, ys, strict=True)]
            series += [
                Line(xs, ys, f"by{number}", variant),
                Points(xs, ys, f"dot by{number}", texts=texts),
            ]
        panels.append(
            Panel(
                f"{title}, {unit}/{per}",
                Axis(scaling.size, log=min(scaling.sizes) > 0),
                Axis(),
                series,
                marked(f"{title} of {scaling.kernel} over {scaling.size}", scaling.simulated),
            )
        )
    n_shown = min(len(scaling.variants), SHOWN)
    return Figure(
        f"scaling_{file_stem(scaling.kernel)}",
        f"Rate and efficiency of {scaling.kernel} over {scaling.size} at "
        f"{setting_label(scaling.setting)}: {n_shown} of {len(scaling.variants)} variants, the "
        f"best at the largest {scaling.size} first.",
        panels,
    )


def predicted_panels(study: VariantStudy, title: str, subject: str) -> list[Panel]:
    """Predicted over measured time and energy of the variants with predictions (Prajapati 2019,
    figure A.4). ``subject``: the studied variants, for descriptions."""
    panels = []
    for name, unit in (("time", "s"), ("energy", "J")):
        suffix = unit.lower()
        usable = [v for v in study.variants if math.isfinite(getattr(v, f"predicted_{suffix}"))]
        if not usable:
            continue
        measured, predicted = (
            np.array([getattr(variant, attribute) for variant in usable])
            for attribute in (f"{name}_{suffix}", f"predicted_{suffix}")
        )
        texts = [
            f"{variant.name}: {m:.4g} {unit} measured, {p:.4g} {unit} predicted"
            for variant, m, p in zip(usable, measured, predicted, strict=True)
        ]
        panels.append(
            predicted_panel(
                f"Predicted {name}, {unit}: {shortened(title, 20)}",
                f"measured {name}, {unit}",
                Points(measured, predicted, "dot faint", "variant", texts),
                f"Predicted over measured {name} of {subject}",
            )
        )
    return panels


def two_parameters(study: VariantStudy) -> tuple[str, str] | None:
    """The two parameters with the greatest effect on the least time, that with more values first;
    None without two parameters of three or more values."""
    ratio: dict[str, float] = {}
    n_values: dict[str, int] = {}
    for name in study.variants[0].instance.params:
        least = _least_by(study, [name])
        if len(least) >= FEWEST_VALUES:
            ratio[name] = max(least.values()) / min(least.values())
            n_values[name] = len(least)
    strongest = sorted(ratio, key=lambda name: -ratio[name])[:2]
    if len(strongest) < 2:
        return None
    first, second = sorted(strongest, key=lambda name: -n_values[name])
    return first, second


def _least_by(study: VariantStudy, names: Sequence[str]) -> dict[tuple[float, ...], float]:
    """The values of numeric parameters -> the least time of the variants with these values."""
    least: dict[tuple[float, ...], float] = {}
    for variant in study.variants:
        values = [variant.instance.params.get(name) for name in names]
        if all(isinstance(value, int | float) for value in values):
            key = tuple(float(value) for value in values if isinstance(value, int | float))
            least[key] = min(variant.time_s, least.get(key, math.inf))
    return least


def parameters_panel(
    study: VariantStudy, names: tuple[str, str], title: str, subject: str
) -> Panel:
    """The least time over two parameters, one along x and one with a line a value (in Prajapati
    2019, figure A.5, the height and inner width of tiles)."""
    along, across = names
    least = _least_by(study, names)
    values = sorted({second for _, second in least})
    indices = np.unique(np.linspace(0, len(values) - 1, MOST_LINES).round().astype(int))
    series: list[Line | Points] = []
    for number, index in enumerate(indices.tolist()):
        points = sorted(
            (x, time_s) for (x, second), time_s in least.items() if second == values[index]
        )
        x, time_s = np.array(points).T
        label = f"{across} = {values[index]:g}"
        texts = [f"{along} = {value:g}, {label}: {time_s:.4g} s" for value, time_s in points]
        series += [
            Line(x, time_s, f"by{number}"),
            Points(x, time_s, f"dot by{number}", label, texts),
        ]
    logarithmic = min(x for x, _ in least) > 0
    return Panel(
        f"Least time, s: {shortened(title, 24)}",
        Axis(along, log=logarithmic),
        Axis(),
        series,
        f"Least time over {along}, a line for each {across}, {subject}",
    )


def time_figure(study: VariantStudy, title: str) -> Figure | None:
    """The predicted and the parameter panels as a figure; None for variants without predictions."""
    subject = _subject(study, title)
    panels = predicted_panels(study, title, subject)
    if not panels:
        return None
    contents = "predicted from the other variants beside measured"
    names = two_parameters(study)
    if names is not None:
        panels.append(parameters_panel(study, names, title, subject))
        contents += f", and the least time over {names[0]} for values of {names[1]}"
    return Figure(
        f"{study_stem(title)}_predicted",
        f"{subject}: {contents} (Prajapati 2019, figures A.4 and A.5, are of the same kind).",
        panels,
    )


def study_titles(studies: Sequence[VariantStudy]) -> list[str]:
    """The titles of studies in figures and tables: the kernel, and for several studies of a kernel
    the parameters in which their problems differ."""
    titles = []
    for study in studies:
        problems = [s.of.problem for s in studies if s.of.kernel == study.of.kernel]
        params = [
            f"{name}={value}"
            for name, value in study.of.problem.items()
            if any(problem.get(name) != value for problem in problems)
        ]
        titles.append(" ".join([study.of.kernel, *params]))
    return titles


def study_stem(title: str) -> str:
    """The first part of the names of a study's files."""
    return f"variants_{file_stem(title)[:LONGEST_STEM]}"


def variant_figures(studies: Sequence[VariantStudy]) -> list[Figure]:
    """The figures of every study: hull and front, predicted over measured costs if there are
    predictions, and correlations and means if there are metrics.

    ``studies``: of one site.
    """
    figures = []
    for study, title in zip(studies, study_titles(studies), strict=True):
        figures.append(_hull_figure(study, title))
        predicted = time_figure(study, title)
        if predicted is not None:
            figures.append(predicted)
        if study.metrics:
            figures.append(_correlation_figure(study, title))
        if _beside_rate(study):
            figures.append(_metric_figure(study, title))
    return figures


def _units(work_unit: str) -> tuple[str, float]:
    return ("Gflop", 1e9) if work_unit == "flop" else ("runs", 1.0)


def _subject(shown: VariantStudy, title: str) -> str:
    where = f"{title} at {setting_label(shown.of.setting)}"
    return marked(f"{len(shown.variants)} variants of {where}", shown.of.simulated)


def _costs(shown: VariantStudy, variants: Sequence[VariantCosts]) -> tuple[np.ndarray, np.ndarray]:
    """Rate and efficiency in the units of the figure."""
    scale = _units(shown.of.work_unit)[1]
    rate = np.array([variant.rate_per_s for variant in variants]) / scale
    return rate, np.array([variant.efficiency_per_j for variant in variants]) / scale


def _texts(shown: VariantStudy, variants: Sequence[VariantCosts]) -> list[str]:
    unit = _units(shown.of.work_unit)[0]
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
    unit = _units(shown.of.work_unit)[0]
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
    subject = _subject(shown, title)
    return Figure(
        f"{study_stem(title)}_hull",
        f"{subject}: efficiency over rate with their convex hull (Anzt et al. 2015, figure 5), and "
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
                f"Efficiency over rate of {subject}, {len(corners)} on the hull",
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
                f"Energy over time of {subject}, {len(front)} on the Pareto front",
            ),
        ],
    )


def _strongest(metrics: Sequence[MetricStudy], most: int) -> list[MetricStudy]:
    """The ``most`` metrics with the strongest correlation with rate or efficiency, in the order of
    ``metrics``."""
    strength = [
        max([abs(c.r) for c in (entry.rate, entry.efficiency) if math.isfinite(c.r)] or [-1])
        for entry in metrics
    ]
    strongest = sorted(range(len(metrics)), key=lambda i: -strength[i])[:most]
    return [metrics[i] for i in sorted(strongest)]


def _beside_rate(shown: VariantStudy) -> list[MetricStudy]:
    """The metrics, without those that are the rate in other units."""
    return [entry for entry in shown.metrics if not entry.rate.r > 1.0 - 1e-9]


def _correlation_figure(shown: VariantStudy, title: str) -> Figure:
    metrics = _strongest(shown.metrics, CORRELATED_SHOWN)
    subject = _subject(shown, title)
    panels = []
    for name in ("rate", "efficiency", "product"):
        correlations: list[Correlation] = [getattr(entry, name) for entry in metrics]
        r, low, high = (
            np.array([getattr(c, end) for c in correlations]) for end in ("r", "low", "high")
        )
        quantity = "their product" if name == "product" else name
        panels.append(
            Panel(
                f"Correlation with {quantity}",
                Axis("r", low=-1.05, high=1.05),
                row_axis([entry.metric.name for entry in metrics]),
                [
                    spans(low, high, "span", "95 % interval"),
                    Points(
                        r,
                        np.arange(len(r), dtype=float),
                        "dot",
                        "correlation",
                        [
                            f"{entry.metric.name}: {c.r:.3f} ({c.low:.2f} to {c.high:.2f})"
                            for entry, c in zip(metrics, correlations, strict=True)
                        ],
                    ),
                    Rule(0.0, "axis"),
                ],
                f"Correlation of {len(metrics)} metrics with {quantity}, {subject}",
            )
        )
    return Figure(
        f"{study_stem(title)}_correlations",
        f"{subject}: correlation of metrics with rate, efficiency and their product (Anzt et al. "
        f"2015, figures 6 to 8), with 95 % intervals, each metric by itself.",
        panels,
    )


def _metric_figure(shown: VariantStudy, title: str) -> Figure:
    rate, efficiency = _costs(shown, shown.variants)
    unit = _units(shown.of.work_unit)[0]
    texts = _texts(shown, shown.variants) if len(rate) <= MOST_TEXTS else []
    subject = _subject(shown, title)
    panels = []
    for entry in _strongest(_beside_rate(shown), METRICS_SHOWN):
        values = entry.metric.values
        series = []
        for side, on_side in (("above", values > entry.mean), ("below", values <= entry.mean)):
            dots = np.flatnonzero(on_side)
            label = "above the mean" if side == "above" else "not above the mean"
            dot_texts = [f"{texts[i]}, {entry.metric.name} {values[i]:.4g}" for i in dots if texts]
            series.append(Points(rate[dots], efficiency[dots], f"dot {side}", label, dot_texts))
        panels.append(
            Panel(
                f"{unit}/J by {shortened(entry.metric.name, 24)}",
                _axis(f"rate, {unit}/s", rate),
                _axis("", efficiency),
                series,
                f"Efficiency over rate by {entry.metric.name}, {subject}",
            )
        )
    return Figure(
        f"{study_stem(title)}_metrics",
        f"{subject}: efficiency over rate by whether a metric is above its mean (Anzt et al. 2015, "
        f"figure 9), for the metrics of the strongest correlation.",
        panels,
    )
