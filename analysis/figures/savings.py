"""What the picks save, by family of kernels: the picture at the top of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.choice.pick import Pick
from analysis.figures.figure import Axis, Bars, Figure, Line, Panel
from analysis.figures.labels import family_order, told_apart


def savings_figure(
    picks: Sequence[Pick], families: Mapping[str, str], site: str, simulated: bool
) -> Figure:
    """Energy saved and time paid by the picks of each family, against the fastest setting.

    A bar is the median over the kernels of a family, the line its range.
    """
    names = family_order({families[pick.label] for pick in picks})
    groups = [[pick for pick in picks if families[pick.label] == name] for name in names]
    rows = np.arange(len(names), dtype=float)
    gap = np.full(len(names), np.nan)
    panels = []
    for title, label, attribute, style in (
        ("Energy saved by the picks, %", "energy saved", "saving_pct", "k2"),
        ("Additional run time, %", "additional run time", "slowdown_pct", "k1"),
    ):
        key = f"{label}, median"
        values = [np.array([getattr(pick, attribute) for pick in group]) for group in groups]
        low, median, high = (np.array([f(v) for v in values]) for f in (np.min, np.median, np.max))
        texts = [
            f"{name}: {m:.1f} % in the median, {a:.1f} to {b:.1f} %, {len(v)} kernels"
            for name, a, m, b, v in zip(names, low, median, high, values, strict=True)
        ]
        panels.append(
            Panel(
                title,
                Axis(f"{label}, %", include=[0.0, 5.0]),
                Axis(names=list(enumerate(told_apart(names, 20)))),
                [
                    Bars(
                        at=rows,
                        start=np.zeros(len(names)),
                        end=median,
                        style=style,
                        label=key,
                        texts=texts,
                        across=True,
                    ),
                    Line(
                        np.column_stack([low, high, gap]).ravel(),
                        np.column_stack([rows, rows, gap]).ravel(),
                        "range",
                        "smallest to largest",
                    ),
                ],
                f"{title[: -len(', %')]} by family of kernels, {site}"
                + (", simulated" if simulated else ""),
            )
        )
    return Figure(
        "savings",
        "Predicted savings of the picks against each kernel's fastest setting, by family of "
        "kernels: the median over the kernels of a family, and the range.",
        panels,
    )
