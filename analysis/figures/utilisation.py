"""How close kernels come to the roof, by family, and their instructions per cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.figures.figure import Axis, Figure, Line, Panel, Points
from analysis.figures.labels import family_order, shortened
from analysis.measurements.hardware_counters import KernelCounters
from analysis.time.roof_fractions import RoofFraction


def utilisation_figure(
    roofs: Sequence[RoofFraction],
    counters: Sequence[KernelCounters],
    families: Mapping[str, str],
    site: str,
    simulated: bool,
) -> Figure:
    """The fraction of the roof in %, and where counters were read, instructions per cycle: the
    median over the kernels of a family, and the range."""
    what = site + (", simulated" if simulated else "")
    shares = {roof.label: 100.0 * roof.fraction for roof in roofs}
    panels = [_panel("Fraction of the roof, %", "fraction of the roof, %", shares, families, what)]
    per_cycle = {
        entry.label: entry.instructions_per_cycle
        for entry in counters
        if np.isfinite(entry.instructions_per_cycle)
    }
    if per_cycle:
        title = "Instructions per cycle"
        panels.append(_panel(title, title.lower(), per_cycle, families, what))
    return Figure(
        "utilisation",
        "How close kernels come to the best rate of any kernel at the same setting, by family: "
        "the median over the kernels of a family, and the range.",
        panels,
    )


def _panel(
    title: str, axis: str, values: Mapping[str, float], families: Mapping[str, str], what: str
) -> Panel:
    names = family_order({families[label] for label in values})
    groups = [np.array([v for k, v in values.items() if families[k] == name]) for name in names]
    low, median, high = (np.array([f(v) for v in groups]) for f in (np.min, np.median, np.max))
    rows, gap = np.arange(len(names), dtype=float), np.full(len(names), np.nan)
    texts = [
        f"{name}: {m:.3g} in the median, {a:.3g} to {b:.3g}, {len(group)} kernels"
        for name, a, m, b, group in zip(names, low, median, high, groups, strict=True)
    ]
    return Panel(
        title,
        Axis(axis, low=0.0, include=[0.1]),
        Axis(names=[(i, shortened(name, 20)) for i, name in enumerate(names)]),
        [
            Line(
                np.column_stack([low, high, gap]).ravel(),
                np.column_stack([rows, rows, gap]).ravel(),
                "span",
                "smallest to largest",
            ),
            Points(median, rows, "dot", "median", texts),
        ],
        f"{title} by family of kernels, {what}",
    )
