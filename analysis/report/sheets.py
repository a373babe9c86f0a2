"""The tables of a site as values: shown in the report, and written as files for a paper.

Their layouts are those of Choi & Vuduc 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.choice.crossval import CrossValidation
from analysis.choice.losses import CaseLoss
from analysis.choice.pick import Pick
from analysis.energy.breakdown import by_class
from analysis.energy.fitted import Fit, costs_at
from analysis.energy.models import ESTIMATED
from analysis.figures.labels import family_order, unit_name
from analysis.figures.predictions import Cases
from analysis.measurements.observations import Observations
from analysis.measurements.phase_energy import PhaseSplit
from analysis.report.tables import Field, Sheet

MODEL, ORACLE = "model", "time oracle"
HOLDOUT = "holdout"


def costs_sheet(model: Fit, data: Observations, crossvals: Sequence[CrossValidation] = ()) -> Sheet:
    """What operations and waiting cost at every measured setting (Choi & Vuduc 2016, Table I).

    Where there is a holdout, ``type`` is T for the settings that it fitted on and V for those
    that it predicted, as in the paper. Voltages are relative to that of the highest clock
    where the fit estimated them, and missing where it took V = 1.
    """
    classes = [term.of for term in model.terms if term.kind == "class"]
    estimated = model.voltage in ESTIMATED
    key, unit, places = ("relative_v", "V/V at top", 3) if estimated else ("mv", "mV", 0)
    holdout = next((c for c in crossvals if c.scheme == HOLDOUT), None)
    rows: list[list[str | float]] = []
    for s in np.unique(data.setting):
        mine = data.setting == s
        known_v = (float(data.core_v[mine].mean()), float(data.mem_v[mine].mean()))
        core_mhz, mem_mhz = data.settings[s]
        costs = costs_at(model, core_mhz, mem_mhz, known_v[0], known_v[1])
        volts = [costs.core_v, costs.mem_v] if estimated else [v * 1e3 for v in known_v]
        if model.voltage == "unit":
            volts = [math.nan, math.nan]
        row: list[str | float] = [
            costs.core_mhz,
            volts[0],
            costs.mem_mhz,
            volts[1],
            *(costs.operation_pj[name][0] for name in classes),
            *costs.constant_w,
        ]
        if holdout is not None:
            row.insert(0, "V" if np.isfinite(holdout.predicted_j[mine]).any() else "T")
        rows.append(row)
    fields = [
        Field("core_mhz", "core", "MHz", 0),
        Field(f"core_{key}", "core", unit, places),
        Field("mem_mhz", "memory", "MHz", 0),
        Field(f"mem_{key}", "memory", unit, places),
        *(Field(f"eps_{name}_pj", name, f"pJ/{unit_name(name)}", -1) for name in classes),
        Field("const_power_w", "constant power", "W", 2),
        Field("const_power_low_w", "95 % from", "W", 2),
        Field("const_power_high_w", "to", "W", 2),
    ]
    if holdout is not None:
        fields.insert(0, Field("type", "type"))
    caption = "Costs at each measured setting"
    return Sheet("costs_by_setting", caption, model.simulated, fields, rows)


def autotuning_sheet(crossval: CrossValidation, families: Mapping[str, str]) -> Sheet:
    """Energy lost by family, the model against race to halt (the paper's time oracle;
    Choi & Vuduc 2016, Table II).

    Mean, least and most are over the mispredicted cases alone; 0 where there are none.
    """
    cases: dict[str, list[CaseLoss]] = {}
    for case in crossval.cases:
        cases.setdefault(families[case.label], []).append(case)
    rows: list[list[str | float]] = []
    for family in family_order(cases):
        mine = cases[family]
        for chooser, lost in (
            (MODEL, [c.model_pct for c in mine]),
            (ORACLE, [c.race_to_halt_pct for c in mine]),
        ):
            wrong = [pct for pct in lost if pct > 0] or [0.0]
            missed = sum(pct > 0 for pct in lost)
            rows.append(
                [
                    family,
                    chooser,
                    float(missed),
                    float(len(mine)),
                    float(np.mean(wrong)),
                    min(wrong),
                    max(wrong),
                ]
            )
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


def validation_sheet(crossvals: Sequence[CrossValidation]) -> Sheet:
    """The error of predicted energy out of fold, a row a scheme (section II-D)."""
    rows: list[list[str | float]] = []
    for crossval in crossvals:
        shown = crossval.as_dict()
        rows.append(
            [
                crossval.scheme,
                _chosen(crossval),
                float(crossval.n_folds),
                float(crossval.n),
                *(float(shown[f"{name}_pct"]) for name in ("mape", "std", "min", "max")),
            ]
        )
    fields = [
        Field("scheme", "scheme"),
        Field("model", "model"),
        Field("folds", "folds", "", 0),
        Field("samples", "predictions", "", 0),
        Field("mean_pct", "mean", "%", 2),
        Field("std_pct", "std", "%", 2),
        Field("min_pct", "smallest", "%", 2),
        Field("max_pct", "largest", "%", 2),
    ]
    simulated = any(crossval.simulated for crossval in crossvals)
    return Sheet("validation", "Error of predicted energy, out of fold", simulated, fields, rows)


def _chosen(crossval: CrossValidation) -> str:
    """The form that the folds chose; where they chose several, how many chose each."""
    if len(crossval.chosen) < 2:
        return crossval.model
    return "; ".join(f"{form['model']} in {form['folds']}" for form in crossval.chosen)


def coefficients_sheet(model: Fit) -> Sheet:
    """Every coefficient of a fit with its interval and unit (Choi & Vuduc 2016, eq. 9)."""
    rows: list[list[str | float]] = [
        [term.name, float(value), float(low), float(high), term.unit]
        for term, value, low, high in zip(
            model.terms, model.value, model.low, model.high, strict=True
        )
    ]
    fields = [
        Field("coefficient", "coefficient"),
        Field("value", "value", "", -1),
        Field("low", "95 % from", "", -1),
        Field("high", "to", "", -1),
        Field("unit", "unit"),
    ]
    return Sheet("coefficients", "Coefficients", model.simulated, fields, rows)


def cases_sheet(shown: Cases) -> Sheet:
    """The kernels and settings that figures 5 and 7 number, with both energies (Table IV)."""
    rows: list[list[str | float]] = [
        [
            f"F{i + 1}",
            kernel,
            f"S{j + 1}",
            *setting,
            float(shown.measured_j[i, j]),
            float(shown.predicted_j[i, j]),
            float(shown.error_pct[i, j]),
        ]
        for i, kernel in enumerate(shown.inputs)
        for j, setting in enumerate(shown.settings)
    ]
    fields = [
        Field("input", "input"),
        Field("kernel", "kernel"),
        Field("setting", "setting"),
        Field("core_mhz", "core", "MHz", 0),
        Field("mem_mhz", "memory", "MHz", 0),
        Field("measured_j", "measured", "J", -1),
        Field("predicted_j", "predicted", "J", -1),
        Field("error_pct", "error", "%", 2),
    ]
    caption = "Measured and predicted energy of the numbered kernels and settings"
    return Sheet("measured_predicted", caption, shown.simulated, fields, rows)


def shares_sheet(model: Fit, data: Observations) -> Sheet:
    """The share of each class in every row's predicted energy (figures 4 and 6)."""
    split = by_class(model, data)
    share_pct = split["share"].values * 100.0
    predicted_j = split["energy_j"].values.sum(axis=1)
    rows: list[list[str | float]] = [
        [
            str(data.kernel[i]),
            float(data.core_mhz[i]),
            float(data.mem_mhz[i]),
            float(data.energy_j[i]),
            float(predicted_j[i]),
            *map(float, share_pct[i]),
        ]
        for i in range(len(data))
    ]
    fields = [
        Field("kernel", "kernel"),
        Field("core_mhz", "core", "MHz", 0),
        Field("mem_mhz", "memory", "MHz", 0),
        Field("measured_j", "measured", "J", -1),
        Field("predicted_j", "predicted", "J", -1),
        *(Field(f"{name}_pct", str(name), "%", 1) for name in split["part"].values),
    ]
    return Sheet("energy_shares", "Predicted energy by its use", model.simulated, fields, rows)


def picks_sheet(picks: Sequence[Pick], simulated: bool) -> Sheet:
    """The pick of each kernel, and what it saves and costs against the fastest setting."""
    rows: list[list[str | float]] = [
        [
            p.label,
            p.core_mhz,
            p.mem_mhz,
            p.energy_j,
            p.time_s,
            p.saving_pct,
            p.saving_low_pct,
            p.saving_high_pct,
            p.saving_vs_highest_clocks_pct,
            p.slowdown_pct,
            p.best_probability * 100.0,
        ]
        for p in picks
    ]
    fields = [
        Field("kernel", "kernel"),
        Field("core_mhz", "core", "MHz", 0),
        Field("mem_mhz", "memory", "MHz", 0),
        Field("energy_j", "energy, predicted", "J", -1),
        Field("time_s", "time", "s", -1),
        Field("saving_pct", "saves", "%", 1),
        Field("saving_low_pct", "from", "%", 1),
        Field("saving_high_pct", "to", "%", 1),
        Field("saving_vs_highest_clocks_pct", "vs highest", "%", 1),
        Field("slowdown_pct", "slower", "%", 1),
        Field("best_probability_pct", "is the best", "%", 0),
    ]
    return Sheet("picks", "The pick of each kernel", simulated, fields, rows)


def phases_sheet(splits: Sequence[PhaseSplit], simulated: bool) -> Sheet:
    """Measured energy of an iteration by phase, a row a kernel, setting and phase.

    Phases shorter than ``meter_period_s`` are blurred with their neighbours.
    """
    rows: list[list[str | float]] = [
        [
            split.label,
            split.at,
            split.core_mhz,
            split.mem_mhz,
            phase,
            float(split.energy_j[i]),
            float(split.share[i]) * 100.0,
            float(split.time_s[i]),
            float(split.energy_j[i] / split.time_s[i]) if split.time_s[i] > 0 else math.nan,
            split.period_s,
            float(split.repeats),
        ]
        for split in splits
        for i, phase in enumerate(split.phases)
    ]
    fields = [
        Field("kernel", "kernel"),
        Field("at", "setting is"),
        Field("core_mhz", "core", "MHz", 0),
        Field("mem_mhz", "memory", "MHz", 0),
        Field("phase", "phase"),
        Field("energy_j", "energy", "J", -1),
        Field("share_pct", "share", "%", 1),
        Field("time_s", "time", "s", -1),
        Field("power_w", "power", "W", 2),
        Field("meter_period_s", "meter's period", "s", -1),
        Field("repeats", "repeats", "", 0),
    ]
    return Sheet("phase_energy", "Measured energy by phase", simulated, fields, rows)
