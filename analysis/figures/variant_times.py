"""Figures of times of variants: predicted beside measured, and over two parameters of tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.choice.variants import VariantCosts, VariantStudy
from analysis.figures.figure import Axis, Figure, Line, Panel, Points, log_scale
from analysis.figures.labels import shortened

MOST_LINES = 6
FEWEST_VALUES = 3


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
                        _texts([v for v, use in zip(known, positive, strict=True) if use], unit),
                    ),
                ],
                f"Predicted over measured {name} of {what}",
            )
        )
    return panels


def _texts(variants: Sequence[VariantCosts], unit: str) -> list[str]:
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
    values = sorted({own for _, own in least})
    places = np.unique(np.linspace(0, len(values) - 1, MOST_LINES).round().astype(int))
    series: list[Line | Points] = []
    for number, place in enumerate(places.tolist()):
        points = sorted((x, time_s) for (x, own), time_s in least.items() if own == values[place])
        x, time_s = np.array(points).T
        label = f"{by} = {values[place]:g}"
        texts = [f"{along} = {at:g}, {label}: {own:.4g} s" for at, own in points]
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
