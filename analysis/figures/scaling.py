"""Rate and efficiency of a kernel's variants over the size of its problem (Anzt et al. 2015,
figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.variants import VariantCosts, VariantStudy
from analysis.figures.figure import Axis, Figure, Line, Panel, Points, Series
from analysis.figures.labels import file_stem

SHOWN = 6
"""Variants that a figure has, as many as there are colours of lines."""
FEWEST_SIZES = 3


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
        mine = [shown for shown in studies if shown.of.kernel == kernel]
        problems = [shown.of.problem for shown in mine]
        names = dict.fromkeys(name for problem in problems for name in problem)
        differing = [name for name in names if len({str(p.get(name)) for p in problems}) > 1]
        if len(mine) < FEWEST_SIZES or len(differing) != 1:
            continue
        size = differing[0]
        values = [problem.get(size) for problem in problems]
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            continue
        ordered = sorted(mine, key=lambda shown: float(shown.of.problem[size]))
        at_each = [{variant.name: variant for variant in shown.variants} for shown in ordered]
        best: dict[str, None] = {}
        for shown in reversed(ordered):
            best |= dict.fromkeys((shown.fastest.name, shown.least_energy.name))
        everywhere = [n for n in [*best, *at_each[-1]] if all(n in own for own in at_each)]
        if everywhere:
            found.append(
                Scaling(
                    kernel,
                    size,
                    mine[0].of.simulated,
                    mine[0].of.work_unit,
                    [float(shown.of.problem[size]) for shown in ordered],
                    {n: [own[n] for own in at_each] for n in dict.fromkeys(everywhere)},
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
                Axis(shown.size, log=True),
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
