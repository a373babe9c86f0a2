"""A panel of ranges: a row a group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.figures.figure import Axis, Line, Panel, Points
from analysis.figures.labels import told_apart

Range = tuple[float, float, float]
"""The smallest value, the one in the middle, and the largest."""


def range_panel(
    title: str,
    axis: str,
    ranges: Sequence[tuple[str, Range]],
    *,
    middle: str,
    texts: Sequence[str],
    description: str,
) -> Panel:
    """A row a group: a line from its smallest to its largest value, and a dot in the middle.

    ``axis``: the label of the values; ``middle``: what the dot is; ``texts``: of each dot.
    """
    low, between, high = np.array([values for _, values in ranges], float).T
    rows, gap = np.arange(len(ranges), dtype=float), np.full(len(ranges), np.nan)
    return Panel(
        title,
        Axis(axis, low=0.0, include=[0.1]),
        Axis(names=list(enumerate(told_apart([name for name, _ in ranges], 20)))),
        [
            Line(
                np.column_stack([low, high, gap]).ravel(),
                np.column_stack([rows, rows, gap]).ravel(),
                "span",
                "smallest to largest",
            ),
            Points(between, rows, "dot", middle, texts),
        ],
        description,
    )
