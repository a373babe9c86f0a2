"""Tables: as the report shows them, and as CSV and LaTeX files in the layout of seed 003."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.choice.crossval import CaseLoss, CrossValidation
from analysis.choice.pick import Pick
from analysis.energy.breakdown import by_class
from analysis.energy.fit import Fit, costs_at
from analysis.energy.models import ESTIMATED
from analysis.figures.families import family_order
from analysis.figures.predictions import Cases
from analysis.figures.rooflines import unit_name
from analysis.measurements.observations import Observations
from analysis.measurements.phase_energy import PhaseSplit

MISSING = "–"
MODEL, ORACLE = "model", "time oracle"
HOLDOUT = "holdout"


@dataclass(frozen=True)
class Column:
    """A table's column: its name, its unit, and whether its cells are numbers."""

    name: str
    unit: str = ""
    number: bool = True


@dataclass(frozen=True)
class Group:
    """Rows of a table that belong together, under a heading where it has one."""

    name: str
    rows: list[list[str]]


@dataclass(frozen=True)
class Table:
    """A table as it is shown: every cell is text already."""

    caption: str
    columns: list[Column]
    groups: list[Group]
    tall: bool = False
    """Whether it scrolls inside its box once it is taller than that."""


def fixed(value: float, digits: int = 4) -> str:
    """A number to ``digits`` significant digits, written out; a dash for a missing one."""
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if not -5 <= exponent <= 7:
        head, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{head}e{int(power)}".replace("-", "−")
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}".replace("-", "−")


def decimals(value: float, places: int = 1) -> str:
    """A number to so many decimals; a dash for a missing one, and never a negative zero."""
    if not math.isfinite(value):
        return fixed(value)
    text = f"{value:,.{places}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text.replace("-", "−")


def clock(mhz: float) -> str:
    """A clock in MHz; ``as found`` where it can't be set."""
    return "as found" if math.isnan(mhz) else f"{mhz:g}"


@dataclass(frozen=True)
class Field:
    """A column of a sheet: its key in CSV, its heading and unit for people, and its decimals.

    ``places`` None: the column is text; -1: a number to three significant digits.
    """

    key: str
    heading: str
    unit: str = ""
    places: int | None = None


@dataclass(frozen=True)
class Sheet:
    """A table of values: shown in the report, and written as CSV and LaTeX.

    ``name``: the stem of its files. Each row has one text or number a field; NaN is missing.
    """

    name: str
    caption: str
    simulated: bool
    fields: list[Field]
    rows: list[list[str | float]]


def as_table(sheet: Sheet, tall: bool = False) -> Table:
    """The sheet as the report shows it."""
    columns = [Column(f.heading, f.unit, f.places is not None) for f in sheet.fields]
    rows = [[_shown(v, f) for v, f in zip(r, sheet.fields, strict=True)] for r in sheet.rows]
    return Table(sheet.caption, columns, [Group("", rows)], tall)


def as_csv(sheet: Sheet) -> str:
    """The sheet as CSV: keys with their units as headings, numbers as they are, "" for none.

    A column ``simulated`` is last.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([*(f.key for f in sheet.fields), "simulated"])
    for row in sheet.rows:
        cells = [v if isinstance(v, str) else "" if math.isnan(v) else f"{v:.10g}" for v in row]
        writer.writerow([*cells, str(sheet.simulated).lower()])
    return written.getvalue()


def as_tex(sheet: Sheet) -> str:
    """The sheet as a LaTeX tabular with booktabs' rules, to be input in a table with a caption."""
    columns = "".join("l" if f.places is None else "r" for f in sheet.fields)
    heading = " & ".join(
        _tex(f.heading) + (f" ({_tex(f.unit)})" if f.unit else "") for f in sheet.fields
    )
    simulated = " (simulated)" if sheet.simulated else ""
    lines = [
        f"% {sheet.caption}{simulated}. Needs the package booktabs.",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        f"{heading} \\\\",
        "\\midrule",
        *(
            " & ".join(_tex(_shown(v, f)) for v, f in zip(row, sheet.fields, strict=True)) + " \\\\"
            for row in sheet.rows
        ),
        "\\bottomrule",
    ]
    if sheet.simulated:
        lines.append(
            f"\\multicolumn{{{len(sheet.fields)}}}{{l}}{{\\footnotesize Simulated data.}} \\\\"
        )
    return "\n".join([*lines, "\\end{tabular}", ""])


TEX = {
    "\\": "\\textbackslash{}",
    "&": "\\&",
    "%": "\\%",
    "$": "\\$",
    "#": "\\#",
    "_": "\\_",
    "{": "\\{",
    "}": "\\}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "−": "$-$",
    MISSING: "--",
    "²": "$^2$",
    "µ": "\\textmu{}",
    "<": "$<$",
    ">": "$>$",
}


def _tex(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)


def _shown(value: str | float, field: Field) -> str:
    if isinstance(value, str):
        return value
    if field.places is None or field.places < 0:
        return fixed(value, 3)
    return decimals(value, field.places)


def costs_sheet(found: Fit, data: Observations, crossvals: Sequence[CrossValidation] = ()) -> Sheet:
    """What operations and waiting cost at every measured setting (seed 003, Table I).

    Where there is a holdout, ``type`` is T for the settings that it fitted on and V for those
    that it predicted, as the paper has it. Voltages are relative to that of the highest clock
    where the fit estimated them, and missing where it took V = 1.
    """
    classes = [term.of for term in found.terms if term.kind == "class"]
    estimated = found.voltage in ESTIMATED
    key, unit, places = ("relative_v", "V/V at top", 3) if estimated else ("mv", "mV", 0)
    holdout = next((c for c in crossvals if c.scheme == HOLDOUT), None)
    rows: list[list[str | float]] = []
    for s in np.unique(data.setting):
        mine = data.setting == s
        known_v = (float(data.core_v[mine].mean()), float(data.mem_v[mine].mean()))
        core_mhz, mem_mhz = data.settings[s]
        costs = costs_at(found, core_mhz, mem_mhz, known_v[0], known_v[1])
        volts = [costs.core_v, costs.mem_v] if estimated else [v * 1e3 for v in known_v]
        if found.voltage == "unit":
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
    return Sheet("costs_by_setting", caption, found.simulated, fields, rows)


def autotuning_sheet(crossval: CrossValidation, families: Mapping[str, str]) -> Sheet:
    """Energy lost by family, model against time oracle (seed 003, Table II).

    Mean, least and most are over the mispredicted cases alone; 0 where there are none.
    """
    cases: dict[str, list[CaseLoss]] = {}
    for each in crossval.cases:
        cases.setdefault(families[each.label], []).append(each)
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
        Field("chooser", "who chooses"),
        Field("mispredictions", "mispredicted", "", 0),
        Field("cases", "of", "kernels", 0),
        Field("mean_lost_pct", "lost, mean", "%", 2),
        Field("min_lost_pct", "least", "%", 2),
        Field("max_lost_pct", "most", "%", 2),
    ]
    caption = f"Energy lost over the mispredicted kernels by family, {crossval.scheme}"
    return Sheet("autotuning", caption, crossval.simulated, fields, rows)


def validation_sheet(crossvals: Sequence[CrossValidation]) -> Sheet:
    """The error of predicted energy out of fold, a row a scheme (seed 003, section II-D)."""
    rows: list[list[str | float]] = []
    for each in crossvals:
        shown = each.as_dict()
        rows.append(
            [
                each.scheme,
                _chosen(each),
                float(each.n_folds),
                float(each.n),
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
        Field("min_pct", "least", "%", 2),
        Field("max_pct", "most", "%", 2),
    ]
    simulated = any(each.simulated for each in crossvals)
    return Sheet("validation", "Error of predicted energy, out of fold", simulated, fields, rows)


def _chosen(crossval: CrossValidation) -> str:
    """The form that the folds chose, with how many did where they were not of one mind."""
    if len(crossval.chosen) < 2:
        return crossval.model
    return "; ".join(f"{each['model']} in {each['folds']}" for each in crossval.chosen)


def coefficients_sheet(found: Fit) -> Sheet:
    """Every coefficient of a fit with its interval and unit (seed 003, eq. 9)."""
    rows: list[list[str | float]] = [
        [term.name, float(value), float(low), float(high), term.unit]
        for term, value, low, high in zip(
            found.terms, found.value, found.low, found.high, strict=True
        )
    ]
    fields = [
        Field("coefficient", "coefficient"),
        Field("value", "value", "", -1),
        Field("low", "95 % from", "", -1),
        Field("high", "to", "", -1),
        Field("unit", "unit"),
    ]
    return Sheet("coefficients", "Coefficients", found.simulated, fields, rows)


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


def shares_sheet(found: Fit, data: Observations) -> Sheet:
    """The share of each class in every row's predicted energy (seed 003, figures 4 and 6)."""
    split = by_class(found, data)
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
    return Sheet(
        "energy_shares", "Predicted energy by what it is spent on", found.simulated, fields, rows
    )


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
        Field("slowdown_pct", "slower", "%", 1),
        Field("best_probability_pct", "is the best", "%", 0),
    ]
    return Sheet("picks", "The pick of each kernel", simulated, fields, rows)


def phases_sheet(splits: Sequence[PhaseSplit], simulated: bool) -> Sheet:
    """Measured energy of an iteration by phase, a row a kernel, setting and phase.

    ``meter_period_s`` tells which phases are blurred: those that are shorter.
    """
    rows: list[list[str | float]] = [
        [
            each.label,
            each.at,
            each.core_mhz,
            each.mem_mhz,
            phase,
            float(each.energy_j[i]),
            float(each.share[i]) * 100.0,
            float(each.time_s[i]),
            float(each.energy_j[i] / each.time_s[i]) if each.time_s[i] > 0 else math.nan,
            each.period_s,
            float(each.repeats),
        ]
        for each in splits
        for i, phase in enumerate(each.phases)
    ]
    fields = [
        Field("kernel", "kernel"),
        Field("at", "where it is"),
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
