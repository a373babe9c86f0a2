"""The figures and tables of a site, for the report and for the files of a paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.figures.energy_shares import (
    case_shares,
    class_figure,
    count_figure,
    instruction_data_figure,
    kind_figure,
    mean_at,
    measured_phase_figures,
    phase_figure,
    shown_kernels,
)
from analysis.figures.figure import Figure
from analysis.figures.labels import kernel_families, natural, setting_label
from analysis.figures.predictions import (
    Cases,
    application_figure,
    case_figure,
    cases,
    error_figure,
    foremost,
    prediction_figure,
)
from analysis.figures.rooflines import roofline_figure, utilisation_figure
from analysis.figures.trace import trace_figure
from analysis.figures.tradeoffs import PARETO_SHOWN, greenup_figure, pareto_figure, savings_figure
from analysis.figures.variants import scaling_figure, scalings, variant_figures
from analysis.measurements.observations import FitError, Observations, kernel_names
from analysis.report.content import SiteReport
from analysis.report.sheets import (
    application_sheet,
    autotuning_sheet,
    cases_sheet,
    coefficients_sheet,
    costs_sheet,
    energy_sheet,
    in_sample_losses_pct,
    levels_sheet,
    phases_sheet,
    picks_sheet,
    shares_sheet,
    utilisation_sheet,
    validation_sheet,
)
from analysis.report.tables import Sheet
from analysis.report.variant_sheets import variant_sheets
from analysis.rooflines.power_cap import CapError
from analysis.rooflines.roofline import (
    PairPoints,
    Roofline,
    fastest_setting,
    pair_rooflines,
)
from dvfs.kernel_instance import KernelInstance

PHASE = "phase"
"""The parameter with which a kernel names its phase of an application."""


@dataclass(frozen=True, kw_only=True)
class SiteFigures:
    """The figures of a site, by subject; ``lines``: the rooflines as numbers."""

    setting: str
    savings: list[Figure]
    trace: list[Figure]
    lines: list[tuple[PairPoints, Roofline]]
    rooflines: list[Figure]
    utilisation: list[Figure]
    predictions: list[Figure]
    breakdowns: list[Figure]
    phases: list[Figure]
    """Measured energy by phase."""
    trade_offs: list[Figure]
    applications: list[Figure]
    """The energies of applications' variants by the microbenchmarks' fit."""
    variants: list[Figure]

    @property
    def all(self) -> list[Figure]:
        """All figures, in the order of the report."""
        return [
            *self.savings,
            *self.trace,
            *self.predictions,
            *self.applications,
            *self.breakdowns,
            *self.phases,
            *self.trade_offs,
            *self.variants,
            *self.rooflines,
            *self.utilisation,
        ]


def site_families(site: SiteReport) -> dict[str, str]:
    """Kernel -> family, for all kernels of the site's measurements, candidates and picks."""
    kernels = [
        *(KernelInstance(c.kernel, c.params, c.label) for c in site.candidates.values()),
        *(KernelInstance(p.kernel, p.params, p.label) for p in site.picks),
    ]
    if site.observed is not None:
        kernels += [site.observed.instance(label) for label in kernel_names(site.observed)]
    by_label = {kernel.label: kernel for kernel in kernels}
    return kernel_families([by_label[label] for label in sorted(by_label)])


def _cases(site: SiteReport, families: Mapping[str, str]) -> Cases | None:
    """The single cases in figures, by the first cross-validation or else the fit."""
    if site.data is None:
        return None
    if site.crossvals:
        predicted_j = site.crossvals[0].predicted_j
    elif site.fit is not None:
        predicted_j = site.fit.energy_j(site.data)
    else:
        return None
    return cases(site.data, predicted_j, families, site.listed)


def _setting(site: SiteReport, data: Observations) -> int:
    """The setting of the figures at one setting, an index into ``data.settings``."""
    return fastest_setting(data) if site.setting is None else data.settings.index(site.setting)


def site_figures(site: SiteReport, cap_w: float | None = None) -> SiteFigures:
    """All figures that a site's data allow. ``cap_w``: a cap on power in the rooflines.

    Raises:
        FitError: a cap at or below the constant power.
    """
    families = site_families(site)
    setting, lines = roofline_lines(site)
    try:
        rooflines = [roofline_figure(pp, line, site.simulated, cap_w) for pp, line in lines]
    except CapError as error:
        raise FitError(str(error)) from None
    shown, named = _cases(site, families), (site.site, site.simulated)
    roofs = site.roofs
    return SiteFigures(
        setting=setting,
        lines=lines,
        savings=[savings_figure(site.picks, families, *named)] if site.picks else [],
        trace=[trace_figure(site.trace, *named)] if site.trace else [],
        rooflines=rooflines,
        utilisation=[utilisation_figure(roofs, site.counters, families, *named)] if roofs else [],
        predictions=_prediction_figures(site, families, shown),
        breakdowns=_breakdown_figures(site, families, shown),
        phases=measured_phase_figures(site.phases, *named),
        trade_offs=_trade_off_figures(site, lines, families),
        applications=[application_figure(shown) for shown in site.applications],
        variants=[*variant_figures(site.variants), *map(scaling_figure, scalings(site.variants))],
    )


def site_sheets(site: SiteReport) -> list[Sheet]:
    """All tables that are written to files."""
    data, model = site.data, site.fit
    measured = [phases_sheet(site.phases, site.simulated)] if site.phases else []
    utilisation = utilisation_sheet(site)
    measured += [utilisation] if utilisation else []
    measured += variant_sheets(site.variants)
    measured += [sheet for sheet in (energy_sheet(site), levels_sheet(site)) if sheet]
    if data is None or model is None:
        return measured
    families = site_families(site)
    sheets = [
        costs_sheet(model, data, site.crossvals),
        coefficients_sheet(model),
        shares_sheet(model, mean_at(data, sorted(families, key=natural), _setting(site, data))),
    ]
    if site.crossvals:
        shown = _cases(site, families)
        sheets += [
            validation_sheet(site.crossvals),
            autotuning_sheet(site.crossvals[0], families, in_sample_losses_pct(model, data)),
        ]
        sheets += [cases_sheet(shown, case_shares(model, data, shown))] if shown else []
    if site.picks:
        sheets.append(picks_sheet(site.picks, site.simulated))
    sheets += [application_sheet(shown) for shown in site.applications]
    return sheets + measured


def roofline_lines(site: SiteReport) -> tuple[str, list[tuple[PairPoints, Roofline]]]:
    """The text of the setting of the roofline figures, and each pair of classes at it with its
    roofline."""
    data = site.observed
    if data is None or not data.counts:
        return "", []
    setting = _setting(site, data)
    lines = pair_rooflines(data, setting, site.fit, site.all_kernels)
    return setting_label(data.settings[setting]), lines


def site_lines(site: SiteReport) -> list[Roofline]:
    """The rooflines of a site that have energies, at the setting of its roofline figures."""
    _, lines = roofline_lines(site)
    return [line for _, line in _with_energies(lines)]


def _with_energies(
    lines: Sequence[tuple[PairPoints, Roofline]],
) -> list[tuple[PairPoints, Roofline]]:
    return [
        (points, line)
        for points, line in lines
        if math.isfinite(line.eps_op_j) and line.op_energy_j > 0 and line.eps_mem_j > 0
    ]


def _prediction_figures(
    site: SiteReport, families: Mapping[str, str], shown: Cases | None
) -> list[Figure]:
    """The predictions of each scheme; for the first also the errors by group, and single cases."""
    if site.data is None or not site.crossvals:
        return []
    figures = [prediction_figure(crossval, site.data) for crossval in site.crossvals]
    figures.insert(1, error_figure(site.crossvals[0], site.data, families))
    return [*figures, case_figure(shown)] if shown else figures


def _breakdown_figures(
    site: SiteReport, families: Mapping[str, str], shown: Cases | None
) -> list[Figure]:
    """The energy by its use: by class at one setting, by kind, and by phase if kernels name
    phases."""
    model, data = site.fit, site.data
    if model is None or data is None:
        return []
    setting = _setting(site, data)
    kernels = shown_kernels(data, setting, families)
    in_order = dict.fromkeys(data.take(data.setting == setting).labels.tolist())
    at_setting = mean_at(data, list(in_order), setting)
    figures: list[Figure | None] = [
        class_figure(model, data, kernels, setting),
        count_figure(data, kernels, setting),
        instruction_data_figure(model, data, kernels, setting),
        kind_figure(model, data, shown) if shown else None,
        *(
            phase_figure(model, at_setting.take(rows), labels, title)
            for title, rows, labels in phases(at_setting)
        ),
    ]
    return [figure for figure in figures if figure is not None]


def phases(data: Observations) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Applications whose kernels have a parameter ``phase``: (name, rows, phases of the rows)."""
    applications: dict[str, list[tuple[int, str]]] = {}
    instances = [data.instance(label) for label in data.kernels]
    for i, kernel_index in enumerate(data.kernel.tolist()):
        kernel = instances[kernel_index]
        if PHASE in kernel.params:
            other_params = {name: value for name, value in kernel.params.items() if name != PHASE}
            application = KernelInstance(kernel.name, other_params).label
            applications.setdefault(application, []).append((i, str(kernel.params[PHASE])))
    return [
        (title, np.array([i for i, _ in rows]), np.array([name for _, name in rows], object))
        for title, rows in applications.items()
    ]


def _trade_off_figures(
    site: SiteReport,
    lines: Sequence[tuple[PairPoints, Roofline]],
    families: Mapping[str, str],
) -> list[Figure]:
    """Energy against time for the kernels with the most energy, and speedup against greenup for the
    pair of classes with the most kernels."""
    figures = []
    if site.data is not None and len(site.picks) and site.candidates:
        shown = foremost(site.data, families, PARETO_SHOWN)
        candidates = {k: site.candidates[k] for k in shown if k in site.candidates}
        picked = {p.label: p for p in site.picks}
        if candidates:
            figures.append(pareto_figure(candidates, picked, site.simulated, len(site.candidates)))
    with_energies = _with_energies(lines)
    if with_energies:
        points, line = max(with_energies, key=lambda pair: len(pair[0].kernels))
        figures.append(greenup_figure(line, setting_label(points.setting), site.simulated))
    return figures
