"""How close kernels come to the roof, by family, and their instructions per cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.figures.figure import Figure, Panel
from analysis.figures.labels import family_order
from analysis.figures.range_panel import range_panel
from analysis.measurements.hardware_counters import KernelCounters
from analysis.rooflines.roof_fractions import RoofFraction


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
    ranges = [
        (name, (v.min(), np.median(v), v.max())) for name, v in zip(names, groups, strict=True)
    ]
    texts = [
        f"{name}: {m:.3g} in the median, {a:.3g} to {b:.3g}, {len(group)} kernels"
        for (name, (a, m, b)), group in zip(ranges, groups, strict=True)
    ]
    about = f"{title} by family of kernels, {what}"
    return range_panel(title, axis, ranges, middle="median", texts=texts, description=about)
