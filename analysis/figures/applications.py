"""Applications' energies by the microbenchmarks' fit, by variant."""

from __future__ import annotations

import numpy as np

from analysis.energy.applications import ApplicationEnergy
from analysis.figures.figure import Axis, Figure, Panel, Points, Rule
from analysis.figures.labels import file_stem, setting_label


def application_figure(shown: ApplicationEnergy) -> Figure:
    """Predicted over measured energy of every variant, with and without integer operations."""
    measured_j = np.array([variant.measured_j for variant in shown.variants])
    series: list[Points | Rule] = [Rule(1.0, "even", "measured", vertical=False)]
    for style, words, values in (
        (
            "dot faint",
            "flops, bytes and time alone",
            [v.without_integers_j for v in shown.variants],
        ),
        ("dot", "all counts", [v.predicted_j for v in shown.variants]),
    ):
        ratio = np.array(values) / measured_j
        texts = [
            f"{variant.kernel.label} at {setting_label(variant.setting)}: "
            f"{value:.3g} of {variant.measured_j:.4g} J, {words}"
            for variant, value in zip(shown.variants, ratio, strict=True)
        ]
        series.append(Points(measured_j, ratio, style, words, texts))
    where = f"{shown.name} on {shown.site}{', simulated' if shown.simulated else ''}"
    errors = np.abs(shown.errors_pct)
    summary = (
        f" Mean error {errors.mean():.3g} %, at most {errors.max():.3g} %." if len(errors) else ""
    )
    return Figure(
        f"variants_{file_stem(shown.name)}",
        f"Energy of the variants of {shown.name} by the fit of the microbenchmarks "
        f"({shown.fitted.n} measurements), over the measured energy.{summary}",
        [
            Panel(
                "Predicted over measured energy",
                Axis("measured energy, J", log=True),
                Axis(include=[1.0]),
                series,
                f"Predicted over measured energy of {len(shown.variants)} variants: {where}",
            )
        ],
    )
