"""Predicted against measured energy (Choi & Vuduc 2016, section II-D)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.crossval import CrossValidation
from analysis.energy.applications import ApplicationEnergy
from analysis.figures.figure import (
    Axis,
    Bars,
    Figure,
    Line,
    Panel,
    Points,
    Rule,
    Texts,
    log_scale,
    range_panel,
)
from analysis.figures.labels import family_order, file_stem, setting_label, some_of, told_apart
from analysis.measurements.observations import (
    Observations,
    kernel_names,
    kernel_numbers,
    rows_by_kernel,
)
from dvfs.kernel_instance import short_labels
from dvfs.setting import Setting

CASES_A_PANEL = 32
LINEAR_UP_TO = 20.0
INPUTS, SETTINGS = 8, 8
"""How many kernels and settings figure 5 shows: as many as the paper's."""


def prediction_figure(crossval: CrossValidation, data: Observations) -> Figure:
    """Predicted against measured energy of one cross-validation, and the spread of the error."""
    what = f"{crossval.site}, {crossval.scheme}" + (", simulated" if crossval.simulated else "")
    measured_j, predicted_j = data.energy_j, crossval.predicted_j
    known = np.isfinite(predicted_j) & np.isfinite(measured_j)
    measured_j, predicted_j = measured_j[known], predicted_j[known]
    positive = predicted_j > 0
    scale = log_scale(np.concatenate([measured_j, predicted_j[positive]]), 0.04)
    ends = np.array([scale.low, scale.high])
    scatter = Panel(
        "Predicted energy, J",
        Axis("measured energy, J", log=True, low=scale.low, high=scale.high),
        Axis(log=True, low=scale.low, high=scale.high),
        [
            Line(ends, ends, "model", "predicted = measured"),
            Points(measured_j[positive], predicted_j[positive]),
        ],
        f"Predicted against measured energy, {what}: {len(measured_j)} predictions out of fold",
    )
    return Figure(
        f"predictions_{crossval.scheme}".replace(":", "_"),
        f"Predicted against measured energy, {crossval.scheme}. Each point is a measurement, "
        f"predicted by a fit that did not use it.",
        [scatter, error_histogram((predicted_j / measured_j - 1.0) * 100.0, what)],
    )


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
    texts = [
        f"{low:.3g} to {low + width:.3g} %: {n}" for low, n in zip(edges[:-1], counts, strict=True)
    ]
    bars = Bars(
        at=edges[:-1] + width / 2,
        start=np.zeros(len(counts)),
        end=counts,
        style="bar",
        texts=texts,
        width=0.94 * width,
    )
    return Panel(
        f"Predictions by error, count in {width:g} %",
        Axis("predicted over measured energy − 1, %", low=float(edges[0]), high=float(edges[-1])),
        Axis(),
        [bars, Rule(0.0, "axis")],
        f"Histogram of the relative error of predicted energy, {what}",
    )


@dataclass(frozen=True, kw_only=True)
class Cases:
    """Kernels at settings, measured and predicted (Choi & Vuduc 2016, figure 5 and Table IV).

    ``inputs``: kernels, F1 ..., and ``short``: their short names; ``settings``:
    S1 ... ``measured_j``, ``predicted_j``: float64 (inputs, settings), J, repeats
    averaged, NaN where there is none.
    """

    site: str
    simulated: bool
    inputs: list[str]
    short: dict[str, str]
    settings: list[Setting]
    measured_j: np.ndarray
    predicted_j: np.ndarray
    there: tuple[int, int]
    """How many kernels and settings have predictions."""

    @property
    def error_pct(self) -> np.ndarray:
        """Signed relative error of the prediction in percent, float64 (inputs, settings)."""
        return np.asarray((self.predicted_j / self.measured_j - 1.0) * 100.0)


def cases(
    data: Observations,
    predicted_j: np.ndarray,
    families: Mapping[str, str],
    listed: tuple[Sequence[str], Sequence[Setting]] = ((), ()),
) -> Cases | None:
    """Up to eight kernels at up to eight settings, as many as the paper validates with.

    The kernels are those with the most energy, one of each family first; the settings are
    spread over those that have predictions. ``listed``: the kernels (labels) and settings in the
    order in which the campaign file has them; as many are shown in this order, if it lists no
    more than eight. ``predicted_j``: float64 (rows,), J, NaN where there is none. None without
    any prediction.
    """
    known = np.isfinite(predicted_j)
    if not known.any():
        return None
    data, predicted_j = data.take(known), predicted_j[known]
    there = set(kernel_names(data))
    inputs = [label for label in listed[0] if label in there]
    if not 0 < len(inputs) <= INPUTS or len(inputs) < len(there):
        inputs = foremost(data, families, INPUTS)
    present = np.unique(data.setting[kernel_numbers(data, inputs) >= 0])
    if len(present) > SETTINGS:
        present = present[np.linspace(0, len(present) - 1, SETTINGS).round().astype(int)]
    present = present[::-1]  # the fastest clocks first
    in_order = [data.settings.index(pair) for pair in listed[1] if pair in data.settings]
    if set(in_order) == set(present.tolist()):
        present = np.array(in_order)
    shape = (len(inputs), len(present))
    measured, predicted = np.full(shape, np.nan), np.full(shape, np.nan)
    for i, kernel in enumerate(inputs):
        for j, setting in enumerate(present):
            rows = data.of_kernel(kernel) & (data.setting == setting)
            if rows.any():
                measured[i, j] = data.energy_j[rows].mean()
                predicted[i, j] = predicted_j[rows].mean()
    settings = [data.settings[s] for s in present]
    return Cases(
        site=data.site,
        simulated=data.simulated,
        inputs=inputs,
        short=short_labels(map(data.instance, inputs)),
        settings=settings,
        measured_j=measured,
        predicted_j=predicted,
        there=(len(there), len(np.unique(data.setting))),
    )


def foremost(data: Observations, families: Mapping[str, str], most: int) -> list[str]:
    """The kernels with the most measured energy: the first of each family, then the rest."""
    mean_j = {label: float(data.energy_j[rows].mean()) for label, rows in rows_by_kernel(data)}
    ranked = sorted(mean_j, key=lambda kernel: (-mean_j[kernel], kernel))
    first: dict[str, str] = {}
    for kernel in ranked:
        first.setdefault(families[kernel], kernel)
    chosen = [*first.values(), *(k for k in ranked if k not in first.values())][:most]
    return sorted(chosen, key=ranked.index)


def which_cases(n_kernels: int, n_settings: int, there: tuple[int, int]) -> str:
    """How many of the kernels and settings a figure of cases shows, a sentence."""
    kernels = some_of(n_kernels, there[0], "kernels")
    return f"{kernels} at {some_of(n_settings, there[1], 'settings')}."


def numbered(names: Sequence[str], letter: str) -> str:
    """Names with their numbers, for a caption: ``F1: a; F2: b``."""
    return "; ".join(f"{letter}{i + 1}: {name}" for i, name in enumerate(names))


def case_axis(kernels: Sequence[str], first: int, settings: int, short: Mapping[str, str]) -> Axis:
    """The axis of cases: a place a kernel and setting, a gap between kernels.

    ``first``: the number of the first kernel of this panel, from 0. Case (i, j) stands at
    :func:`case_place`.
    """
    names = [
        (case_place(i, j, settings), f"S{j + 1}")
        for i in range(len(kernels))
        for j in range(settings)
    ]
    room = int(740 / len(kernels) / 6.6) - 1
    cut = told_apart([short[k] for k in kernels], room - len(f"F{first + len(kernels)} "))
    groups = [
        (case_place(i, (settings - 1) / 2, settings), f"F{first + i + 1} {name}")
        for i, name in enumerate(cut)
    ]
    return Axis(names=names, groups=groups)


def case_place(kernel: int, setting: float, settings: int) -> float:
    """Where a case stands along the axis of :func:`case_axis`."""
    return kernel * (settings + 1) + setting


def case_figure(shown: Cases) -> Figure:
    """Measured and predicted energy of each case side by side, the error above (figure 5)."""
    what = f"{shown.site}{', simulated' if shown.simulated else ''}"
    size = min(max(CASES_A_PANEL // len(shown.settings), 1), len(shown.inputs))
    places = [setting_label(setting) for setting in shown.settings]
    return Figure(
        "measured_predicted",
        f"Measured and predicted energy by kernel and setting, with the error of the prediction "
        f"in percent. {which_cases(len(shown.inputs), len(places), shown.there)} "
        f"{numbered(shown.inputs, 'F')}. {numbered(places, 'S')}.",
        [
            _case_panel(shown, range(first, min(first + size, len(shown.inputs))), what)
            for first in range(0, len(shown.inputs), size)
        ],
    )


def _case_panel(shown: Cases, inputs: range, what: str) -> Panel:
    n_settings = len(shown.settings)
    place = np.array(
        [case_place(i, j, n_settings) for i in range(len(inputs)) for j in range(n_settings)]
    )
    energies_j = {
        "measured": shown.measured_j[inputs].ravel(),
        "predicted": shown.predicted_j[inputs].ravel(),
    }
    known = [v for values in energies_j.values() for v in values if math.isfinite(v) and v > 0]
    # Bars that stand on zero are as long as what they show; the axis is logarithmic only where
    # some of them would be too short to be seen.
    log = max(known) > LINEAR_UP_TO * min(known)
    bars = [
        Bars(
            at=place + shift,
            start=np.full(len(place), min(known) / 2 if log else 0.0),
            end=np.where(values > 0, values, np.nan),
            style=style,
            label=word,
            texts=[
                f"{shown.inputs[i]} at {setting_label(setting)}: {values[n]:.4g} J {word}"
                for n, (i, setting) in enumerate((i, s) for i in inputs for s in shown.settings)
            ],
            width=0.4,
        )
        for (word, values), shift, style in zip(
            energies_j.items(), (-0.2, 0.2), ("k0", "k1"), strict=True
        )
    ]
    error = shown.error_pct[inputs].ravel()
    both = np.isfinite(error)
    texts = [f"{e:+.0f}".replace("-", "−") if abs(e) >= 0.5 else "0" for e in error[both].tolist()]
    tops = np.fmax(*energies_j.values())
    return Panel(
        "Energy, J; above: error of the prediction, %",
        case_axis([shown.inputs[i] for i in inputs], inputs[0], n_settings, shown.short),
        Axis(
            log=log,
            low=min(known) / 2 if log else 0.0,
            high=max(known) * (2.0 if log else 1.15),
        ),
        [*bars, Texts(place[both], tops[both], texts)],
        f"Measured and predicted energy of F{inputs[0] + 1} to F{inputs[-1] + 1} at "
        f"{n_settings} settings, {what}",
        wide=True,
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
        (setting_label(rows.settings[s]), error_pct[rows.setting == s])
        for s in np.unique(rows.setting)[::-1]
    ]
    family = np.array([families.get(label) for label in rows.kernels], object)[rows.kernel]
    by_family = [(name, error_pct[family == name]) for name in family_order(set(family.tolist()))]
    return Figure(
        f"errors_{crossval.scheme}".replace(":", "_"),
        f"Absolute error of predicted energy, {crossval.scheme}: the mean, and the range from "
        f"the smallest to the largest, by setting (core/memory) and by family of kernels.",
        [
            _error_panel("setting", by_setting, f"Error by setting, {what}"),
            _error_panel("family", by_family, f"Error by family of kernels, {what}"),
        ],
    )


def _error_panel(by: str, groups: Sequence[tuple[str, np.ndarray]], description: str) -> Panel:
    ranges = [(name, (v.min(), v.mean(), v.max())) for name, v in groups]
    texts = [
        f"{name}: mean {m:.3g} %, {a:.3g} to {b:.3g} %, {len(values)} predictions"
        for (name, values), (_, (a, m, b)) in zip(groups, ranges, strict=True)
    ]
    return range_panel(
        f"Error by {by}, %",
        "absolute error, %",
        ranges,
        middle="mean",
        texts=texts,
        description=description,
    )


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
