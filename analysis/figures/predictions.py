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
    Panel,
    Points,
    Rule,
    Texts,
    predicted_panel,
    range_panel,
)
from analysis.figures.labels import (
    family_order,
    file_stem,
    marked,
    setting_label,
    some_of,
    told_apart,
)
from analysis.measurements.observations import (
    Observations,
    cell_means,
    kernel_names,
    kernel_numbers,
    rows_by_kernel,
)
from dvfs.kernel_instance import short_labels
from dvfs.setting import Setting

CASES_A_PANEL = 32
LINEAR_UP_TO = 20.0
INPUTS, SETTINGS = 8, 8
"""The numbers of kernels and settings in figure 5, as in the paper."""


def prediction_figure(crossval: CrossValidation, data: Observations) -> Figure:
    """Predicted against measured energy of a cross-validation, and a histogram of the error."""
    subject = marked(f"{crossval.site}, {crossval.scheme}", crossval.simulated)
    measured_j, predicted_j = data.energy_j, crossval.predicted_j
    predicted = np.isfinite(predicted_j) & np.isfinite(measured_j)
    measured_j, predicted_j = measured_j[predicted], predicted_j[predicted]
    scatter = predicted_panel(
        "Predicted energy, J",
        "measured energy, J",
        Points(measured_j, predicted_j),
        f"Predicted against measured energy, {subject}: {len(measured_j)} predictions out of fold",
    )
    return Figure(
        f"predictions_{crossval.scheme}".replace(":", "_"),
        f"Predicted against measured energy, {crossval.scheme}. Each point is a measurement, "
        f"predicted by a fit that did not use it.",
        [scatter, error_histogram((predicted_j / measured_j - 1.0) * 100.0, subject)],
    )


def error_histogram(error_pct: np.ndarray, subject: str) -> Panel:
    """A histogram of the signed relative errors in percent, float64 (rows,)."""
    max_error = max(float(np.max(np.abs(error_pct))), 0.1)
    width = next(
        step
        for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, max_error)
        if 2 * max_error / step <= 48
    )
    half_bins = math.ceil(max_error / width)
    edges = np.arange(-half_bins, half_bins + 1) * width
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
        f"Histogram of the relative error of predicted energy, {subject}",
    )


@dataclass(frozen=True, kw_only=True)
class Cases:
    """Kernels at settings, measured and predicted (Choi & Vuduc 2016, figure 5 and Table IV).

    ``inputs``: kernels, F1 ..., and ``short``: their short names; ``settings``: S1 ...
    ``measured_j``, ``predicted_j``: float64 (inputs, settings), J, means of repeats, or NaN.
    """

    site: str
    simulated: bool
    inputs: list[str]
    short: dict[str, str]
    settings: list[Setting]
    measured_j: np.ndarray
    predicted_j: np.ndarray
    n_predicted: tuple[int, int]
    """The numbers of kernels and settings with predictions."""

    @property
    def error_pct(self) -> np.ndarray:
        """The signed relative error of the prediction in percent, float64 (inputs, settings)."""
        return np.asarray((self.predicted_j / self.measured_j - 1.0) * 100.0)

    @property
    def panels(self) -> list[range]:
        """The inputs of each panel of a figure."""
        size = max(CASES_A_PANEL // len(self.settings), 1)
        return [
            range(first, min(first + size, len(self.inputs)))
            for first in range(0, len(self.inputs), size)
        ]

    def axis(self, inputs: range) -> Axis:
        """The axis of a panel: a position for each case, with a gap between kernels."""
        n = len(self.settings)
        width = int(740 / len(inputs) / 6.6) - 1
        short = [self.short[self.inputs[i]] for i in inputs]
        names = told_apart(short, width - len(f"F{inputs[-1] + 1} "))
        settings = [f"S{j + 1}" for _ in inputs for j in range(n)]
        return Axis(
            names=list(zip(self.places(inputs).tolist(), settings, strict=True)),
            groups=[
                (k * (n + 1) + (n - 1) / 2, f"F{inputs[k] + 1} {name}")
                for k, name in enumerate(names)
            ],
        )

    def places(self, inputs: range) -> np.ndarray:
        """The positions of a panel's cases along :meth:`axis`, by input, then setting."""
        n = len(self.settings)
        return np.array([k * (n + 1) + j for k in range(len(inputs)) for j in range(n)])

    def names(self, inputs: range) -> list[str]:
        """The texts of a panel's cases, in the order of :meth:`places`."""
        settings = [setting_label(setting) for setting in self.settings]
        return [f"{self.inputs[i]} at {setting}" for i in inputs for setting in settings]

    def caption(self, n_all: tuple[int, int]) -> str:
        """Which kernels and settings of ``n_all`` are shown, and their numbers."""
        kernels = some_of(len(self.inputs), n_all[0], "kernels")
        settings = some_of(len(self.settings), n_all[1], "settings")
        labels = [setting_label(setting) for setting in self.settings]
        return f"{kernels} at {settings}. {numbered(self.inputs, 'F')}. {numbered(labels, 'S')}."


def cases(
    data: Observations,
    predicted_j: np.ndarray,
    families: Mapping[str, str],
    listed: tuple[Sequence[str], Sequence[Setting]] = ((), ()),
) -> Cases | None:
    """Up to eight kernels at up to eight settings, as in the paper; None without predictions.

    The kernels are those with the most energy, one of each family first; the settings are spread
    over those with predictions. ``listed``: the kernels (labels) and settings in the order of the
    campaign file, which is kept if it lists all that are shown. ``predicted_j``: float64 (rows,),
    J, NaN if missing.
    """
    predicted = np.isfinite(predicted_j)
    if not predicted.any():
        return None
    data, predicted_j = data.take(predicted), predicted_j[predicted]
    all_labels = set(kernel_names(data))
    inputs = [label for label in listed[0] if label in all_labels]
    if not 0 < len(inputs) <= INPUTS or len(inputs) < len(all_labels):
        inputs = foremost(data, families, INPUTS)
    shown = np.unique(data.setting[kernel_numbers(data, inputs) >= 0])
    if len(shown) > SETTINGS:
        shown = shown[np.linspace(0, len(shown) - 1, SETTINGS).round().astype(int)]
    shown = shown[::-1]  # the fastest clocks first
    in_file_order = [data.settings.index(pair) for pair in listed[1] if pair in data.settings]
    if set(in_file_order) == set(shown.tolist()):
        shown = np.array(in_file_order)
    measured_j, mean_j = (
        cell_means(data, inputs, values)[:, shown] for values in (data.energy_j, predicted_j)
    )
    settings = [data.settings[s] for s in shown]
    return Cases(
        site=data.site,
        simulated=data.simulated,
        inputs=inputs,
        short=short_labels(map(data.instance, inputs)),
        settings=settings,
        measured_j=measured_j,
        predicted_j=mean_j,
        n_predicted=(len(all_labels), len(np.unique(data.setting))),
    )


def foremost(data: Observations, families: Mapping[str, str], most: int) -> list[str]:
    """The ``most`` kernels of the most measured energy, the first of each family before others."""
    mean_j = {label: float(data.energy_j[rows].mean()) for label, rows in rows_by_kernel(data)}
    ranked = sorted(mean_j, key=lambda kernel: (-mean_j[kernel], kernel))
    leaders: dict[str, str] = {}
    for kernel in ranked:
        leaders.setdefault(families[kernel], kernel)
    chosen = [*leaders.values(), *(k for k in ranked if k not in leaders.values())][:most]
    return sorted(chosen, key=ranked.index)


def numbered(names: Sequence[str], letter: str) -> str:
    """The names with numbers, for a caption: ``F1: a; F2: b``."""
    return "; ".join(f"{letter}{i + 1}: {name}" for i, name in enumerate(names))


def case_figure(shown: Cases) -> Figure:
    """Measured and predicted energy of each case side by side, the error above (figure 5)."""
    subject = marked(shown.site, shown.simulated)
    return Figure(
        "measured_predicted",
        f"Measured and predicted energy by kernel and setting, with the error of the prediction "
        f"in percent. {shown.caption(shown.n_predicted)}",
        [_case_panel(shown, inputs, subject) for inputs in shown.panels],
    )


def _case_panel(shown: Cases, inputs: range, subject: str) -> Panel:
    place = shown.places(inputs)
    energies_j = {
        "measured": shown.measured_j[inputs].ravel(),
        "predicted": shown.predicted_j[inputs].ravel(),
    }
    positive_j = [v for values in energies_j.values() for v in values if math.isfinite(v) and v > 0]
    # Bars from zero have lengths in proportion to the energies; the axis is logarithmic only if
    # some bars would be too short to see.
    log = max(positive_j) > LINEAR_UP_TO * min(positive_j)
    bars = [
        Bars(
            at=place + shift,
            start=np.full(len(place), min(positive_j) / 2 if log else 0.0),
            end=np.where(values > 0, values, np.nan),
            style=style,
            label=kind,
            texts=[
                f"{case}: {value:.4g} J {kind}"
                for case, value in zip(shown.names(inputs), values, strict=True)
            ],
            width=0.4,
        )
        for (kind, values), shift, style in zip(
            energies_j.items(), (-0.2, 0.2), ("k0", "k1"), strict=True
        )
    ]
    error = shown.error_pct[inputs].ravel()
    valid = np.isfinite(error)
    texts = [f"{e:+.0f}".replace("-", "−") if abs(e) >= 0.5 else "0" for e in error[valid].tolist()]
    tops = np.fmax(*energies_j.values())
    return Panel(
        "Energy, J; above: error of the prediction, %",
        shown.axis(inputs),
        Axis(
            log=log,
            low=min(positive_j) / 2 if log else 0.0,
            high=max(positive_j) * (2.0 if log else 1.15),
        ),
        [*bars, Texts(place[valid], tops[valid], texts)],
        f"Measured and predicted energy of F{inputs[0] + 1} to F{inputs[-1] + 1} at "
        f"{len(shown.settings)} settings, {subject}",
        wide=True,
    )


def error_figure(
    crossval: CrossValidation, data: Observations, families: Mapping[str, str]
) -> Figure:
    """The error of predicted energy by setting and by family: mean and range."""
    subject = marked(f"{crossval.site}, {crossval.scheme}", crossval.simulated)
    predicted = np.isfinite(crossval.predicted_j)
    rows = data.take(predicted)
    error_pct = np.abs(crossval.predicted_j[predicted] / rows.energy_j - 1.0) * 100.0
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
            _error_panel("setting", by_setting, f"Error by setting, {subject}"),
            _error_panel("family", by_family, f"Error by family of kernels, {subject}"),
        ],
    )


def _error_panel(kind: str, groups: Sequence[tuple[str, np.ndarray]], description: str) -> Panel:
    return range_panel(
        f"Error by {kind}, %",
        "absolute error, %",
        groups,
        middle="mean",
        text="{name}: mean {middle:.3g} %, {low:.3g} to {high:.3g} %, {n} predictions",
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
    where = marked(f"{shown.name} on {shown.site}", shown.simulated)
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
