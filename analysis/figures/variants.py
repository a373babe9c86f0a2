"""Figures of a kernel's variants (Anzt et al. 2015, figures 5 to 9)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.fronts import pareto_steps
from analysis.choice.variants import Correlation, MetricStudy, VariantCosts, VariantStudy
from analysis.figures.figure import Axis, Figure, Line, Panel, Points, Rule, Series, log_scale
from analysis.figures.labels import file_stem, setting_label, shortened, told_apart

SHOWN = 6
"""Variants that a figure has, as many as there are colours of lines."""
FEWEST_SIZES = 3
MOST_LINES = 6
FEWEST_VALUES = 3
CORRELATED_SHOWN = 24
METRICS_SHOWN = 6
LONGEST_STEM = 100
"""Characters of a file's name; most file systems take 255."""
MOST_TEXTS = 200
"""Variants that show their numbers when they are pointed at; of more, only those that stand out do.
With all of them a page of a thousand variants takes megabytes."""
ROOM = 0.04
"""Beyond the smallest and the largest value of an axis, as a fraction of it."""


@dataclass(frozen=True)
class Scaling:
    """The variants of ``kernel`` that were measured at every size, in rising order; ``size``: the
    name of the parameter. ``variants``: name -> its costs at each size, the best first: those that
    are the fastest or the most efficient at the largest size, at the one below, and so on."""

    kernel: str
    size: str
    simulated: bool
    work_unit: str
    sizes: Sequence[float]
    variants: Mapping[str, Sequence[VariantCosts]]


def scalings(studies: Sequence[VariantStudy]) -> list[Scaling]:
    """One for each kernel whose problems differ in one number alone and have at least
    :data:`FEWEST_SIZES` of it. ``studies``: of one site."""
    found = []
    for kernel in dict.fromkeys(shown.of.kernel for shown in studies):
        of_kernel = [shown for shown in studies if shown.of.kernel == kernel]
        problems = [shown.of.problem for shown in of_kernel]
        names = dict.fromkeys(name for problem in problems for name in problem)
        differing = [name for name in names if len({str(p.get(name)) for p in problems}) > 1]
        if len(of_kernel) < FEWEST_SIZES or len(differing) != 1:
            continue
        size = differing[0]
        values = [problem.get(size) for problem in problems]
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            continue
        ordered = sorted(of_kernel, key=lambda shown: float(shown.of.problem[size]))
        at_each = [{variant.name: variant for variant in shown.variants} for shown in ordered]
        best: dict[str, None] = {}
        for shown in reversed(ordered):
            best |= dict.fromkeys((shown.fastest.name, shown.least_energy.name))
        everywhere = [n for n in [*best, *at_each[-1]] if all(n in at_size for at_size in at_each)]
        if everywhere:
            found.append(
                Scaling(
                    kernel,
                    size,
                    of_kernel[0].of.simulated,
                    of_kernel[0].of.work_unit,
                    [float(shown.of.problem[size]) for shown in ordered],
                    {n: [at_size[n] for at_size in at_each] for n in dict.fromkeys(everywhere)},
                )
            )
    return found


def scaling_figure(shown: Scaling) -> Figure:
    """Rate and efficiency over the size, of the first :data:`SHOWN` variants."""
    unit, scale = ("Gflop", 1e9) if shown.work_unit == "flop" else ("runs", 1.0)
    xs = np.array(shown.sizes)
    panels = []
    for title, per, name in (
        ("Rate", "s", "rate_per_s"),
        ("Efficiency", "J", "efficiency_per_j"),
    ):
        series: list[Series] = []
        for number, (variant, costs) in enumerate(list(shown.variants.items())[:SHOWN]):
            ys = np.array([getattr(cost, name) for cost in costs]) / scale
            texts = [f"{variant}, {x:g}: {y:.4g} {unit}/{per}" for x, y in zip(xs, ys, strict=True)]
            series += [
                Line(xs, ys, f"by{number}", variant),
                Points(xs, ys, f"dot by{number}", texts=texts),
            ]
        panels.append(
            Panel(
                f"{title}, {unit}/{per}",
                Axis(shown.size, log=min(shown.sizes) > 0),
                Axis(),
                series,
                f"{title} of {shown.kernel} over {shown.size}"
                + (", simulated" if shown.simulated else ""),
            )
        )
    some = min(len(shown.variants), SHOWN)
    return Figure(
        f"scaling_{file_stem(shown.kernel)}",
        f"Rate and efficiency of {shown.kernel} over {shown.size}: {some} of "
        f"{len(shown.variants)} variants, the best at the largest {shown.size} first.",
        panels,
    )


def predicted_panels(shown: VariantStudy, title: str, what: str) -> list[Panel]:
    """Predicted over measured time and energy of variants that are predicted (Prajapati 2019,
    figure A.4)."""
    panels = []
    for name, unit in (("time", "s"), ("energy", "J")):
        suffix = unit.lower()
        known = [v for v in shown.variants if math.isfinite(getattr(v, f"predicted_{suffix}"))]
        if not known:
            continue
        measured, predicted = (
            np.array([getattr(variant, attribute) for variant in known])
            for attribute in (f"{name}_{suffix}", f"predicted_{suffix}")
        )
        positive = predicted > 0
        scale = log_scale([*measured, *predicted[positive]], 0.04)
        ends = np.array([scale.low, scale.high])
        panels.append(
            Panel(
                f"Predicted {name}, {unit}: {shortened(title, 20)}",
                Axis(f"measured {name}, {unit}", log=True, low=scale.low, high=scale.high),
                Axis(log=True, low=scale.low, high=scale.high),
                [
                    Line(ends, ends, "model", "predicted = measured"),
                    Points(
                        measured[positive],
                        predicted[positive],
                        "dot faint",
                        "variant",
                        _predicted_texts(
                            [v for v, use in zip(known, positive, strict=True) if use], unit
                        ),
                    ),
                ],
                f"Predicted over measured {name} of {what}",
            )
        )
    return panels


def _predicted_texts(variants: Sequence[VariantCosts], unit: str) -> list[str]:
    measured = "time_s" if unit == "s" else "energy_j"
    return [
        f"{v.name}: {getattr(v, measured):.4g} {unit} measured, "
        f"{getattr(v, f'predicted_{unit.lower()}'):.4g} {unit} predicted"
        for v in variants
    ]


def two_parameters(shown: VariantStudy) -> tuple[str, str] | None:
    """The two parameters that change the least time most, the one of more values first; None where
    there are no two with three values or more."""
    effect: dict[str, float] = {}
    numbers: dict[str, int] = {}
    for name in shown.variants[0].instance.params:
        least = _least_by(shown, [name])
        if len(least) >= FEWEST_VALUES:
            effect[name] = max(least.values()) / min(least.values())
            numbers[name] = len(least)
    strongest = sorted(effect, key=lambda name: -effect[name])[:2]
    if len(strongest) < 2:
        return None
    first, second = sorted(strongest, key=lambda name: -numbers[name])
    return first, second


def _least_by(shown: VariantStudy, names: Sequence[str]) -> dict[tuple[float, ...], float]:
    """Values of parameters that are numbers -> the least time with them."""
    least: dict[tuple[float, ...], float] = {}
    for variant in shown.variants:
        values = [variant.instance.params.get(name) for name in names]
        if all(isinstance(value, int | float) for value in values):
            key = tuple(float(value) for value in values if isinstance(value, int | float))
            least[key] = min(variant.time_s, least.get(key, math.inf))
    return least


def parameters_panel(shown: VariantStudy, title: str, what: str) -> Panel | None:
    """The least time over two parameters, one along x and one a line (Prajapati 2019, figure A.5,
    has the height and the inner width of tiles); None where there are no two."""
    names = two_parameters(shown)
    if names is None:
        return None
    along, by = names
    least = _least_by(shown, names)
    values = sorted({second for _, second in least})
    places = np.unique(np.linspace(0, len(values) - 1, MOST_LINES).round().astype(int))
    series: list[Line | Points] = []
    for number, place in enumerate(places.tolist()):
        points = sorted(
            (x, time_s) for (x, second), time_s in least.items() if second == values[place]
        )
        x, time_s = np.array(points).T
        label = f"{by} = {values[place]:g}"
        texts = [f"{along} = {at:g}, {label}: {time_s:.4g} s" for at, time_s in points]
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
        f"Least time over {along}, a line for each {by}, {what}",
    )


def time_figure(shown: VariantStudy, title: str, stem: str, what: str) -> Figure | None:
    """Both; None of variants that are not predicted."""
    panels = predicted_panels(shown, title, what)
    if not panels:
        return None
    over = parameters_panel(shown, title, what)
    about = "predicted from the other variants beside measured"
    names = two_parameters(shown)
    if over is not None and names is not None:
        panels.append(over)
        about += f", and the least time over {names[0]} for values of {names[1]}"
    return Figure(
        f"{stem}_predicted",
        f"{what}: {about} (Prajapati 2019, figures A.4 and A.5, are of the same kind).",
        panels,
    )


def study_titles(studies: Sequence[VariantStudy]) -> list[str]:
    """How figures and tables name studies: by the kernel; of several of one kernel also by the
    parameters in which their problems differ."""
    titles = []
    for shown in studies:
        same = [other.of.problem for other in studies if other.of.kernel == shown.of.kernel]
        params = [
            f"{name}={value}"
            for name, value in shown.of.problem.items()
            if any(problem.get(name) != value for problem in same)
        ]
        titles.append(" ".join([shown.of.kernel, *params]))
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
        for side, on_side in (("above", values > entry.mean), ("below", values <= entry.mean)):
            at = np.flatnonzero(on_side)
            label = "above the mean" if side == "above" else "not above the mean"
            dot_texts = [f"{texts[i]}, {entry.metric.name} {values[i]:.4g}" for i in at if texts]
            series.append(Points(rate[at], efficiency[at], f"dot {side}", label, dot_texts))
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
