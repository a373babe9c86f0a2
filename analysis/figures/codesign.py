"""Figures of a study of chips: area and time, and areas by part (Prajapati 2019, C.3 and C.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.figures.figure import Axis, Bars, Figure, Line, Panel, Points


def front_figure(
    areas_mm2: np.ndarray,
    time_s: np.ndarray,
    front: np.ndarray,
    names: Sequence[str],
    existing: Mapping[str, tuple[float, float]],
    title: str,
) -> Figure:
    """Time over area: designs (n,), ``front`` (indices) and ``existing``: name -> (area, time)."""
    order = front[np.argsort(areas_mm2[front])]
    series: list[Line | Points] = [
        Points(areas_mm2, time_s, "dot faint", "design", list(names)),
        Line(areas_mm2[order], time_s[order], "model", "no design beats these in both"),
    ]
    if existing:
        chips = np.array(list(existing.values()))
        series.append(Points(chips[:, 0], chips[:, 1], "dot by1", "existing", list(existing)))
    panel = Panel(
        f"Time, s: {title}",
        Axis("area, mm2"),
        Axis(log=True),
        series,
        "Predicted time of the workload over the area of each design",
    )
    return Figure(
        "codesign_front",
        f"{title}: predicted time of the workload over area, of every design and of existing chips "
        "(Prajapati 2019, figure C.3, is of the same kind).",
        [panel],
    )


def area_figure(parts: Mapping[str, Mapping[str, float]], title: str) -> Figure:
    """The shares of parts in the areas of designs. ``parts``: design -> part -> mm2."""
    kinds = list(next(iter(parts.values())))
    names = tuple((float(row), name) for row, name in enumerate(parts))
    rows = np.arange(len(parts), dtype=float)
    panels = []
    for kind in kinds:
        shares = np.array([100 * areas[kind] / sum(areas.values()) for areas in parts.values()])
        if not shares.any():
            continue
        texts = [f"{name}: {share:.1f} %" for name, share in zip(parts, shares, strict=True)]
        panels.append(
            Panel(
                f"{kind[0].upper()}{kind[1:]}, %",
                Axis("share of the area, %", low=0.0),
                Axis(names=names),
                [
                    Bars(
                        at=rows,
                        start=np.zeros(len(rows)),
                        end=shares,
                        style="bar",
                        texts=texts,
                        across=True,
                    )
                ],
                f"Share of {kind} in the area of the best designs",
            )
        )
    return Figure(
        "codesign_area",
        f"{title}: what the best designs are built of (Prajapati 2019, figure C.4, is of the same "
        "kind).",
        panels,
    )
