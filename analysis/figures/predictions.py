"""Predicted against measured energy (seed 003, figure 5, and section II-D as pictures)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import escape

from analysis.choice.crossval import CrossValidation
from analysis.figures.axes import (
    FRAME,
    Figure,
    Frame,
    Panel,
    Scale,
    box,
    cloud,
    curve,
    legend,
    log_scale,
    panel,
    px,
    short_names,
    shortened,
)
from analysis.figures.families import family_order
from analysis.figures.rooflines import place_text
from analysis.measurements.observations import Observations, kernel_names

CASES_A_PANEL = 32
LINEAR_UP_TO = 20.0
WIDEST_SLOT = 36.0
"""How wide a case of a panel is at most, bars and the gap beside them."""
INPUTS, SETTINGS = 8, 8
"""How many kernels and settings figure 5 shows: as many as the paper's."""


def prediction_figure(crossval: CrossValidation, data: Observations) -> Figure:
    """Predicted against measured energy of one cross-validation, and how the errors spread."""
    what = f"{crossval.site}, {crossval.scheme}" + (", simulated" if crossval.simulated else "")
    return Figure(
        f"predictions_{crossval.scheme}".replace(":", "_"),
        f"Predicted against measured energy, {crossval.scheme}: each point is a measurement, "
        f"predicted by a fit that has not seen it. On the line, both are the same.",
        prediction_panels(data.energy_j, crossval.predicted_j, what),
    )


def prediction_panels(measured_j: np.ndarray, predicted_j: np.ndarray, what: str) -> list[Panel]:
    """Predicted against measured energy, and the histogram of the relative error.

    ``measured_j``, ``predicted_j``: float64 (rows,), J; rows without a prediction are left out.
    """
    known = np.isfinite(predicted_j) & np.isfinite(measured_j)
    measured_j, predicted_j = measured_j[known], predicted_j[known]
    positive = predicted_j > 0
    both = [*measured_j, *predicted_j[positive]]
    x, y = log_scale(both, *FRAME.x, 0.04), log_scale(both, *FRAME.y, 0.04)
    ends = np.array([x.low, x.high])
    scatter = panel(
        "Predicted energy, J",
        "measured energy, J",
        x,
        y,
        [
            curve(x, y, ends, ends, "model"),
            cloud(x, y, measured_j[positive], predicted_j[positive], "dot"),
        ],
        f"Predicted against measured energy, {what}: {len(measured_j)} predictions out of fold",
    )
    return [scatter, error_histogram((predicted_j / measured_j - 1.0) * 100.0, what)]


def error_histogram(error_pct: np.ndarray, what: str) -> Panel:
    """How often each signed relative error in percent occurs: float64 (rows,)."""
    reach = max(float(np.max(np.abs(error_pct))), 0.1)
    width = next(
        step
        for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, reach)
        if 2 * reach / step <= 48
    )
    half = math.ceil(reach / width)
    edges = np.arange(-half, half + 1) * width
    counts, _ = np.histogram(error_pct, edges)
    x = Scale(float(edges[0]), float(edges[-1]), *FRAME.x)
    y = Scale(0.0, float(counts.max()) * 1.08, *FRAME.y)
    bottom, top = FRAME.y
    bars = "".join(
        box(
            "bar",
            x.at(low) + 0.4,
            y.at(n),
            x.at(low + width) - 0.4,
            bottom,
            f"{low:.3g} to {low + width:.3g} %: {n}",
        )
        for low, n in zip(edges[:-1], counts, strict=True)
        if n
    )
    zero = f'<path class="axis" d="M{px(x.at(0.0))} {px(bottom)}V{px(top)}"/>'
    return panel(
        f"Predictions by error, count in {width:g} %",
        "predicted over measured energy − 1, %",
        x,
        y,
        [bars, zero],
        f"Histogram of the relative error of predicted energy, {what}",
    )


@dataclass(frozen=True)
class Cases:
    """Kernels at settings, measured and predicted (seed 003, figure 5 and Table IV).

    ``inputs``: kernels, F1 ...; ``settings``: (core MHz, memory MHz), S1 ... ``measured_j``,
    ``predicted_j``: float64 (inputs, settings), J, repeats averaged, NaN where there is none.
    """

    site: str
    simulated: bool
    inputs: list[str]
    settings: list[tuple[float, float]]
    measured_j: np.ndarray
    predicted_j: np.ndarray

    @property
    def error_pct(self) -> np.ndarray:
        """Signed relative error of the prediction in percent, float64 (inputs, settings)."""
        return np.asarray((self.predicted_j / self.measured_j - 1.0) * 100.0)


def cases(data: Observations, predicted_j: np.ndarray, families: Mapping[str, str]) -> Cases | None:
    """Up to eight kernels at up to eight settings, as many as the paper validates with.

    The kernels are those with the most energy, one of each family first; the settings are
    spread over those that have predictions. ``predicted_j``: float64 (rows,), J, NaN where
    there is none. None without any prediction.
    """
    known = np.isfinite(predicted_j)
    if not known.any():
        return None
    data, predicted_j = data.take(known), predicted_j[known]
    inputs = foremost(data, families, INPUTS)
    present = np.unique(data.setting[np.isin(data.kernel, inputs)])
    if len(present) > SETTINGS:
        present = present[np.linspace(0, len(present) - 1, SETTINGS).round().astype(int)]
    present = present[::-1]  # the fastest clocks first, as the paper lists them
    shape = (len(inputs), len(present))
    measured, predicted = np.full(shape, np.nan), np.full(shape, np.nan)
    for i, kernel in enumerate(inputs):
        for j, setting in enumerate(present):
            rows = (data.kernel == kernel) & (data.setting == setting)
            if rows.any():
                measured[i, j] = data.energy_j[rows].mean()
                predicted[i, j] = predicted_j[rows].mean()
    settings = [data.settings[s] for s in present]
    return Cases(data.site, data.simulated, inputs, settings, measured, predicted)


def foremost(data: Observations, families: Mapping[str, str], most: int) -> list[str]:
    """The kernels with the most measured energy: the first of each family, then the rest."""
    mean_j = {k: float(data.energy_j[data.kernel == k].mean()) for k in kernel_names(data)}
    ranked = sorted(mean_j, key=lambda kernel: (-mean_j[kernel], kernel))
    first: dict[str, str] = {}
    for kernel in ranked:
        first.setdefault(families[kernel], kernel)
    chosen = [*first.values(), *(k for k in ranked if k not in first.values())][:most]
    return sorted(chosen, key=ranked.index)


def case_figure(shown: Cases) -> Figure:
    """Measured and predicted energy of each case side by side, the error above (figure 5)."""
    what = f"{shown.site}{', simulated' if shown.simulated else ''}"
    size = min(max(CASES_A_PANEL // len(shown.settings), 1), len(shown.inputs))
    panels = [
        _case_panel(shown, range(start, min(start + size, len(shown.inputs))), size, what)
        for start in range(0, len(shown.inputs), size)
    ]
    f_ids = "; ".join(f"F{i + 1}: {name}" for i, name in enumerate(shown.inputs))
    s_ids = "; ".join(f"S{j + 1}: {place_text(s)}" for j, s in enumerate(shown.settings))
    return Figure(
        "measured_predicted",
        f"Measured and predicted energy by kernel and setting, with the error of the prediction "
        f"in percent. {f_ids}. {s_ids}.",
        panels,
        wide=True,
    )


def _case_panel(shown: Cases, inputs: range, groups: int, what: str) -> Panel:
    frame = Frame(width=780, height=250, bottom=50, top=56)
    (left, right), (bottom, _) = frame.x, frame.y
    both = [*shown.measured_j[inputs].ravel(), *shown.predicted_j[inputs].ravel()]
    known = [v for v in both if math.isfinite(v) and v > 0]
    # Bars that stand on zero are as long as what they show; only where that would leave some
    # too short to be seen is the axis logarithmic.
    if max(known) > LINEAR_UP_TO * min(known):
        y = log_scale(known, *frame.y, 0.1)
    else:
        y = Scale(0.0, max(known) * 1.15, *frame.y)
    slot = min((right - left) / (groups * (len(shown.settings) + 1)), WIDEST_SLOT)
    marks, _ = legend([("k0", "measured"), ("k1", "predicted")], frame)
    parts = [marks]
    group_width = (len(shown.settings) + 1) * slot * 1.05  # a name may reach into the gaps
    short = short_names(shown.inputs)
    for place, i in enumerate(inputs):
        start = left + (place * (len(shown.settings) + 1) + 0.5) * slot
        for j, setting in enumerate(shown.settings):
            at = start + j * slot
            pair = (
                (shown.measured_j[i, j], "k0", "measured"),
                (shown.predicted_j[i, j], "k1", "predicted"),
            )
            tops = [
                (n, float(v), style, word)
                for n, (v, style, word) in enumerate(pair)
                if math.isfinite(v) and v > 0
            ]
            for n, v, style, word in tops:
                parts.append(
                    box(
                        style,
                        at + (0.08 + 0.4 * n) * slot,
                        y.at(v),
                        at + (0.48 + 0.4 * n) * slot,
                        bottom,
                        f"{shown.inputs[i]} at {place_text(setting)}: {v:.4g} J {word}",
                    )
                )
            middle = at + 0.48 * slot
            if len(tops) == 2:
                error = float(shown.error_pct[i, j])
                up = y.at(max(v for _, v, _, _ in tops)) - 4
                shown_error = f"{error:+.0f}".replace("-", "−") if abs(error) >= 0.5 else "0"
                parts.append(
                    f'<text class="mid small" x="{px(middle)}" y="{px(up)}">{shown_error}</text>'
                )
            parts.append(
                f'<text class="mid small" x="{px(middle)}" y="{px(bottom + 14)}">S{j + 1}</text>'
            )
        name = shortened(f"F{i + 1} {short[shown.inputs[i]]}", group_width)
        centre = start + len(shown.settings) * slot / 2
        parts.append(
            f'<text class="mid" x="{px(centre)}" y="{px(bottom + 31)}">{escape(name)}</text>'
        )
    ids = f"F{inputs[0] + 1} to F{inputs[-1] + 1}"
    return panel(
        "Energy, J; above: error of the prediction, %",
        "",
        None,
        y,
        parts,
        f"Measured and predicted energy of {ids} at {len(shown.settings)} settings, {what}",
        frame,
    )


def error_figure(
    crossval: CrossValidation, data: Observations, families: Mapping[str, str]
) -> Figure:
    """The error of predicted energy by setting and by family: mean, least and most."""
    what = f"{crossval.site}, {crossval.scheme}" + (", simulated" if crossval.simulated else "")
    known = np.isfinite(crossval.predicted_j)
    rows = data.take(known)
    error_pct = np.abs(crossval.predicted_j[known] / rows.energy_j - 1.0) * 100.0
    by_setting = [
        (place_text(rows.settings[s]), error_pct[rows.setting == s])
        for s in np.unique(rows.setting)[::-1]
    ]
    family = np.array([families[kernel] for kernel in rows.kernel], object)
    by_family = [(name, error_pct[family == name]) for name in family_order(set(family.tolist()))]
    return Figure(
        f"errors_{crossval.scheme}".replace(":", "_"),
        f"Absolute error of predicted energy, {crossval.scheme}: mean, and from the least to the "
        f"most, by setting (core/memory) and by family of kernels.",
        [
            range_panel("Error by setting, %", by_setting, f"Error by setting, {what}"),
            range_panel("Error by family, %", by_family, f"Error by family of kernels, {what}"),
        ],
    )


def range_panel(title: str, groups: Sequence[tuple[str, np.ndarray]], description: str) -> Panel:
    """A row a group: a line from its least to its most value, and a dot at its mean."""
    frame = Frame(left=114, top=24, height=24 + 42 + 15 * len(groups))
    most = max(float(values.max()) for _, values in groups)
    x = Scale(0.0, max(most, 0.1) * 1.04, *frame.x)
    parts = []
    for i, (name, values) in enumerate(groups):
        at = frame.top + 15 * (i + 0.5)
        low, mean, high = (float(f(values)) for f in (np.min, np.mean, np.max))
        text = f"{name}: mean {mean:.3g} %, {low:.3g} to {high:.3g} %, {len(values)} predictions"
        parts.append(
            f'<text class="end small" x="{px(frame.left - 6)}" y="{px(at + 3.5)}">'
            f"{escape(shortened(name, 120))}</text>"
            f'<path class="line span" d="M{px(x.at(low))} {px(at)}H{px(x.at(high))}"/>'
            f'<circle class="dot" cx="{px(x.at(mean))}" cy="{px(at)}" r="3.2">'
            f"<title>{escape(text)}</title></circle>"
        )
    return panel(title, "absolute error, %", x, None, parts, description, frame)
