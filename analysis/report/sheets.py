"""The tables of a site as values, for the report and for files.

Their layouts follow Choi & Vuduc 2016.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.choice.crossval import CrossValidation
from analysis.choice.pick import Pick
from analysis.energy.applications import ApplicationEnergy
from analysis.energy.breakdown import class_parts
from analysis.energy.fitted import Fit, costs_run_at
from analysis.energy.models import ESTIMATED
from analysis.figures.labels import by_family, file_stem, natural, unit_name
from analysis.figures.predictions import Cases
from analysis.measurements.campaign_energy import J_PER_KWH, CampaignEnergy
from analysis.measurements.observations import Observations, cell_means, kernel_names
from analysis.measurements.phase_energy import PhaseSplit
from analysis.report.content import SiteReport
from analysis.report.tables import (
    CORE_MHZ,
    ERROR_PCT,
    KERNEL,
    MEASURED_J,
    MEM_MHZ,
    PREDICTED_J,
    Field,
    Row,
    Sheet,
    setting_fields,
)
from dvfs.kernel_instance import short_labels

ALL = "all kernels"
SAVED = (("", "picks save"), ("_low", "95 % from"), ("_high", "to"))
"""The key suffixes and the headings of a saving and of the ends of its interval."""
OUT_OF_FOLD, IN_SAMPLE, ORACLE = "model, out of fold", "model, in sample", "time oracle"
HOLDOUT = "holdout"
CONSTANT_W = (
    Field("const_power_w", "constant power", "W", 2),
    Field("const_power_low_w", "95 % from", "W", 2),
    Field("const_power_high_w", "to", "W", 2),
)


def utilisation_sheet(site: SiteReport) -> Sheet | None:
    """A row a kernel: its fraction of the roof, and if counters were read, instructions per cycle
    and counted over exact operations. None if neither is known."""
    roofs = {roof.label: roof for roof in site.roofs}
    counters = {entry.label: entry for entry in site.counters}
    labels = sorted({*roofs, *counters}, key=natural)
    if not labels:
        return None
    classes = sorted({name for entry in site.counters for name in entry.counted_over_exact})
    rows: list[Row] = []
    for label in labels:
        roof, entry = roofs.get(label), counters.get(label)
        row: dict[Field, str | float] = {
            KERNEL: label,
            Field("roof_fraction_pct", "of the roof", "%", 1): (
                100.0 * roof.fraction if roof else math.nan
            ),
            Field("limited_by", "limited by"): roof.limited_by if roof else "",
        }
        if counters:
            ratios = entry.counted_over_exact if entry else {}
            row |= {
                Field("instructions_per_cycle", "instructions per cycle", "", 2): (
                    entry.instructions_per_cycle if entry else math.nan
                ),
                **{
                    Field(f"counted_over_exact_{c}", f"counted over exact {c}", "", 3): (
                        ratios.get(c, math.nan)
                    )
                    for c in classes
                },
                Field("counted_share_pct", "counted for", "% of the time", 0): (
                    100.0 * entry.least_share if entry else math.nan
                ),
            }
        rows.append(row)
    caption = "Kernels against the roof: the best rate of any kernel at the same setting"
    return Sheet.of("utilisation", caption, site.simulated, rows)


def energy_sheet(site: SiteReport) -> Sheet | None:
    """A row a kernel, and one of all if there are several: energy and node-hours in the windows,
    the cost and emissions of the energy by the site's factors, and the saving of the pick over the
    same iterations at the kernel's fastest setting, with its 95 % interval. None if nothing was
    measured.

    Sums are over known values. Measurements without an energy, with an estimated one, without a
    start or duration if a factor depends on the hour, and without a node if others have one, are
    counted in columns if there are any.
    """
    energy = site.energy
    if energy is None:
        return None
    has_energy, has_nodes = np.isfinite(energy.energy_kwh), np.isfinite(energy.node_h)
    # The value of a kWh of each measurement, in each unit.
    per_kwh = {Field("energy_kwh", "energy", "kWh", -1): np.ones(len(has_energy))} | {
        Field(factor.key, factor.of, factor.unit, -1): factor.over(
            energy.start_unix_s, energy.duration_s
        )
        for factor in site.factors
    }
    priced = np.all([np.isfinite(values) for values in per_kwh.values()], axis=0)
    counted = {
        Field("without_energy", "without energy", "", 0): ~has_energy,
        Field("estimated", "energy estimated", "", 0): has_energy & energy.estimated,
        Field("without_start", "without start", "", 0): has_energy & ~priced,
        Field("without_node", "without node", "", 0): ~has_nodes & has_nodes.any(),
    }
    counted = {field: mask for field, mask in counted.items() if mask.any()}
    saved_kwh = _saved_kwh(site, energy)

    def row(name: str, places: np.ndarray, intervals: bool = True) -> Row:
        cells: dict[Field, str | float] = {KERNEL: name}
        cells |= {Field("measurements", "measurements", "", 0): float(len(places))}
        cells |= {field: float(mask[places].sum()) for field, mask in counted.items()}
        cells |= {Field("node_hours", "node-hours", "", -1): _total(energy.node_h[places])}
        for field, values in per_kwh.items():
            cells[field] = _total(energy.energy_kwh[places] * values[places])
        for field, values in per_kwh.items() if site.picks else ():
            for (part, heading), part_kwh in zip(SAVED, saved_kwh, strict=True):
                saved_field = Field(f"saved_{field.key}{part}", heading, field.unit, -1)
                total = _total(part_kwh[places] * values[places])
                cells[saved_field] = total if intervals or not part else math.nan
        return cells

    rows = [row(label, energy.rows[label]) for label in sorted(energy.rows, key=natural)]
    if len(rows) > 1:
        rows.append(row(ALL, np.arange(len(has_energy)), intervals=False))
    caption = "Energy of the measurements by kernel"
    return Sheet.of("campaign_energy", caption, site.simulated, rows)


def _saved_kwh(site: SiteReport, energy: CampaignEnergy) -> np.ndarray:
    """The saving of the picks over each measurement's iterations at the kernel's fastest setting,
    and the ends of its interval: float64 (3, measurements), kWh; NaN without energy or pick."""
    saved = np.full((len(SAVED), len(energy.energy_kwh)), np.nan)
    for pick in site.picks:
        places = energy.rows[pick.label]
        fastest_kwh = energy.iterations[places] * pick.fastest_j / J_PER_KWH
        pct = np.array([[pick.saving_pct], [pick.saving_low_pct], [pick.saving_high_pct]])
        saved[:, places] = fastest_kwh * pct / 100.0
    saved[:, np.isnan(energy.energy_kwh)] = np.nan
    return saved


def _total(values: np.ndarray) -> float:
    """The sum of the finite values; NaN if there are none."""
    values = values[np.isfinite(values)]
    return float(values.sum()) if len(values) else math.nan


def levels_sheet(site: SiteReport) -> Sheet | None:
    """A row for each aspect of the EE HPC WG (2015): its level, the known facts, and what the next
    level needs. None if nothing was measured or the machine is simulated."""
    rows: list[Row] = [
        {
            Field("aspect", "aspect"): entry.aspect,
            Field("level", "level"): f"{entry.level}" if entry.level else "none",
            Field("known", "what is known"): entry.known,
            Field("missing", "missing for the next level"): entry.missing,
        }
        for entry in site.levels
    ]
    if not rows:
        return None
    return Sheet.of("measurement_levels", "Levels of measurement (EE HPC WG 2015)", False, rows)


def costs_sheet(model: Fit, data: Observations, crossvals: Sequence[CrossValidation] = ()) -> Sheet:
    """The energies of operations and the constant power at every measured setting (Choi & Vuduc
    2016, Table I).

    With a holdout, ``type`` is T for the settings that it fitted on and V for those that it
    predicted, as in the paper. Voltages are relative to that of the highest clock if the fit
    estimated them, and missing where it assumed V = 1.
    """
    classes = [term.of for term in model.terms if term.kind == "class"]
    estimated = model.voltage in ESTIMATED
    key, unit, places = ("relative_v", "V/V at top", 3) if estimated else ("mv", "mV", 0)
    holdout = next((c for c in crossvals if c.scheme == HOLDOUT), None)
    rows: list[dict[Field, str | float]] = []
    measured = np.unique(data.setting)
    fields = setting_fields([data.settings[s] for s in measured])
    for s, clocks in zip(measured, fields, strict=True):
        at_setting = data.setting == s
        costs = costs_run_at(model, data, s)
        mean_v = (data.core_v[at_setting].mean(), data.mem_v[at_setting].mean())
        volts = [costs.core_v, costs.mem_v] if estimated else [float(v) * 1e3 for v in mean_v]
        if model.voltage == "unit":
            volts = [math.nan, math.nan]
        elif not estimated and not data.mem_volts_known:
            volts[1] = math.nan
        kind = {} if holdout is None else {Field("type", "type"): _fitted_on(holdout, at_setting)}
        rows.append(
            kind
            | {
                CORE_MHZ: clocks[CORE_MHZ],
                Field(f"core_{key}", "core", unit, places): volts[0],
                MEM_MHZ: clocks[MEM_MHZ],
                Field(f"mem_{key}", "memory", unit, places): volts[1],
            }
            | clocks
            | {
                Field(f"eps_{name}_pj", name, f"pJ/{unit_name(name)}", -1): (
                    costs.operation_pj[name][0]
                )
                for name in classes
            }
            | dict(zip(CONSTANT_W, costs.constant_w, strict=True))
        )
    caption = "Costs at each measured setting"
    if holdout is not None:
        caption += " (type T: the holdout was fitted on it; V: it was predicted)"
    return Sheet.of("costs_by_setting", caption, model.simulated, rows)


def _fitted_on(holdout: CrossValidation, rows: np.ndarray) -> str:
    """``T`` if a holdout fitted on these rows, ``V`` if it predicted them."""
    return "V" if np.isfinite(holdout.predicted_j[rows]).any() else "T"


def autotuning_sheet(
    crossval: CrossValidation,
    families: Mapping[str, str],
    in_sample_pct: Mapping[str, float] | None = None,
) -> Sheet:
    """The energy lost by family, by the model and by race to halt (the paper's time oracle; Choi &
    Vuduc 2016, Table II).

    The model's picks are out of fold. The paper's are in sample: ``in_sample_pct``
    (:func:`in_sample_losses_pct`) adds these. Mean, least and most are over the mispredicted cases
    alone, NaN if there are none.
    """
    rows: list[list[str | float]] = []
    cases = {case.label: case for case in crossval.cases}
    for family, of_family in by_family(cases, families).items():
        lost_by = {OUT_OF_FOLD: [case.mean_pct("physics") for case in of_family]}
        if in_sample_pct is not None:
            lost_by[IN_SAMPLE] = [in_sample_pct[case.label] for case in of_family]
        lost_by[ORACLE] = [case.mean_pct("race_to_halt") for case in of_family]
        for chooser, lost in lost_by.items():
            wrong = [pct for pct in lost if pct > 0]
            known = wrong or [math.nan]
            n_wrong, n_cases, mean_pct = float(len(wrong)), float(len(lost)), float(np.mean(known))
            rows.append([family, chooser, n_wrong, n_cases, mean_pct, min(known), max(known)])
    fields = [
        Field("family", "family"),
        Field("chooser", "method"),
        Field("mispredictions", "mispredicted", "", 0),
        Field("cases", "of", "kernels", 0),
        Field("mean_lost_pct", "lost, mean", "%", 2),
        Field("min_lost_pct", "smallest", "%", 2),
        Field("max_lost_pct", "largest", "%", 2),
    ]
    caption = f"Energy lost over the mispredicted kernels by family, {crossval.scheme}"
    return Sheet("autotuning", caption, crossval.simulated, fields, rows)


def in_sample_losses_pct(model: Fit, data: Observations) -> dict[str, float]:
    """Label -> the excess of the measured energy at the kernel's setting of least predicted energy
    over the least measured one, in %, by a fit of the same measurements; repeats are averaged."""
    labels = kernel_names(data)
    measured_j, predicted_j = (
        cell_means(data, labels, values) for values in (data.energy_j, model.energy_j(data))
    )
    chosen = np.where(np.isnan(measured_j), np.inf, predicted_j).argmin(axis=1)
    chosen_j = measured_j[np.arange(len(labels)), chosen]
    lost_pct = (chosen_j / np.nanmin(measured_j, axis=1) - 1.0) * 100.0
    return dict(zip(labels, lost_pct.tolist(), strict=True))


def validation_sheet(crossvals: Sequence[CrossValidation]) -> Sheet:
    """The error of predicted energy out of fold, a row a scheme (section II-D)."""
    rows: list[Row] = []
    for crossval in crossvals:
        shown = crossval.as_dict()
        rows.append(
            {
                Field("scheme", "scheme"): crossval.scheme,
                Field("model", "model"): _chosen(crossval),
                Field("folds", "folds", "", 0): crossval.n_folds,
                Field("samples", "predictions", "", 0): crossval.n,
                Field("mean_pct", "mean", "%", 2): shown["mape_pct"],
                Field("std_pct", "std", "%", 2): shown["std_pct"],
                Field("min_pct", "smallest", "%", 2): shown["min_pct"],
                Field("max_pct", "largest", "%", 2): shown["max_pct"],
            }
        )
    simulated = any(crossval.simulated for crossval in crossvals)
    return Sheet.of("validation", "Error of predicted energy, out of fold", simulated, rows)


def _chosen(crossval: CrossValidation) -> str:
    """The form that the folds chose; if they chose several, with the number of folds of each."""
    if len(crossval.chosen) < 2:
        return crossval.model
    folds: Counter[str] = Counter()
    for form in crossval.chosen:
        folds[form["model"]] += form["folds"]
    return "; ".join(f"{model} in {n}" for model, n in folds.most_common())


def coefficients_sheet(model: Fit) -> Sheet:
    """Every coefficient of a fit with its interval and unit (Choi & Vuduc 2016, eq. 9)."""
    rows: list[Row] = [
        {
            Field("coefficient", "coefficient"): term.name,
            Field("value", "value", "", -1): value,
            Field("low", "95 % from", "", -1): low,
            Field("high", "to", "", -1): high,
            Field("unit", "unit"): term.unit,
        }
        for term, value, low, high in zip(
            model.terms, model.value, model.low, model.high, strict=True
        )
    ]
    return Sheet.of("coefficients", "Coefficients", model.simulated, rows)


def cases_sheet(shown: Cases, shares: Mapping[str, np.ndarray]) -> Sheet:
    """The numbered kernels and settings of figures 5 and 7, with both energies (Table IV) and the
    ``shares`` of the predicted energy by its use (:func:`case_shares`)."""
    rows: list[Row] = [
        {
            Field("input", "input"): f"F{i + 1}",
            KERNEL: kernel,
            Field("setting", "setting"): f"S{j + 1}",
            **setting,
            MEASURED_J: shown.measured_j[i, j],
            PREDICTED_J: shown.predicted_j[i, j],
            ERROR_PCT: shown.error_pct[i, j],
        }
        | {Field(f"{kind}_pct", kind, "%", 1): pct[i, j] for kind, pct in shares.items()}
        for i, kernel in enumerate(shown.inputs)
        for j, setting in enumerate(setting_fields(shown.settings))
    ]
    caption = "Measured and predicted energy of the numbered kernels and settings"
    return Sheet.of("measured_predicted", caption, shown.simulated, rows)


def shares_sheet(model: Fit, data: Observations) -> Sheet:
    """The share of each class in every row's predicted energy (figures 4 and 6)."""
    parts = class_parts(model, data)
    predicted_j = parts.energy_j.sum(axis=1)
    shares = [Field(f"{name}_pct", name, "%", 1) for name in parts.names]
    share_pct, settings = parts.share * 100.0, setting_fields(data.settings)
    rows: list[Row] = [
        {
            KERNEL: data.kernels[data.kernel[i]],
            **settings[data.setting[i]],
            CORE_MHZ: data.core_mhz[i],
            MEASURED_J: data.energy_j[i],
            PREDICTED_J: predicted_j[i],
        }
        | dict(zip(shares, share_pct[i], strict=True))
        for i in range(len(data))
    ]
    return Sheet.of("energy_shares", "Predicted energy by its use", model.simulated, rows)


def picks_sheet(picks: Sequence[Pick], simulated: bool) -> Sheet:
    """The pick of each kernel, with its saving and slowdown against the fastest setting."""
    rows: list[Row] = [
        {
            KERNEL: p.label,
            **setting,
            Field("energy_j", "energy, predicted", "J", -1): p.energy_j,
            Field("time_s", "time", "s", -1): p.time_s,
            Field("saving_pct", "saves", "%", 1): p.saving_pct,
            Field("saving_low_pct", "from", "%", 1): p.saving_low_pct,
            Field("saving_high_pct", "to", "%", 1): p.saving_high_pct,
            Field("saving_vs_highest_clocks_pct", "vs highest", "%", 1): (
                p.saving_vs_highest_clocks_pct
            ),
            Field("slowdown_pct", "slower", "%", 1): p.slowdown_pct,
            Field("best_probability_pct", "is the best", "%", 0): p.best_probability * 100.0,
        }
        for p, setting in zip(picks, setting_fields([p.setting for p in picks]), strict=True)
    ]
    return Sheet.of("picks", "The pick of each kernel", simulated, rows)


def phases_sheet(splits: Sequence[PhaseSplit], simulated: bool) -> Sheet:
    """Measured energy of an iteration by phase, a row a kernel, setting and phase.

    Phases shorter than ``meter_period_s`` are blurred with their neighbours.
    """
    settings = setting_fields([split.setting for split in splits])
    rows: list[Row] = [
        {
            KERNEL: split.label,
            Field("at", "setting is"): split.at,
            **setting,
            Field("phase", "phase"): phase,
            Field("energy_j", "energy", "J", -1): energy_j,
            Field("share_pct", "share", "%", 1): share * 100.0,
            Field("time_s", "time", "s", -1): time_s,
            Field("power_w", "power", "W", 2): energy_j / time_s if time_s > 0 else math.nan,
            Field("meter_period_s", "meter's period", "s", -1): split.period_s,
            Field("repeats", "repeats", "", 0): split.repeats,
        }
        for split, setting in zip(splits, settings, strict=True)
        for phase, energy_j, share, time_s in zip(
            split.phases, split.energy_j, split.share, split.time_s, strict=True
        )
    ]
    return Sheet.of("phase_energy", "Measured energy by phase", simulated, rows)


def application_sheet(shown: ApplicationEnergy) -> Sheet:
    """One row a variant and setting, largest error first; without a prediction last."""
    names = short_labels(variant.kernel for variant in shown.variants)
    ordered = sorted(
        shown.variants, key=lambda v: -abs(v.error_pct) if v.error_pct == v.error_pct else 1.0
    )
    rows: list[Row] = [
        {
            Field("variant", "variant"): names[v.kernel.label],
            **setting,
            Field("n", "measurements", "", 0): v.n,
            MEASURED_J: v.measured_j,
            PREDICTED_J: v.predicted_j,
            ERROR_PCT: v.error_pct,
            Field("error_without_integers_pct", "without integers", "%", 2): (
                v.error_without_integers_pct
            ),
        }
        for v, setting in zip(ordered, setting_fields([v.setting for v in ordered]), strict=True)
    ]
    caption = f"Energy of the variants of {shown.name} by the microbenchmarks' fit"
    return Sheet.of(f"variants_{file_stem(shown.name)}", caption, shown.simulated, rows)
