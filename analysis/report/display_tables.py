"""The tables of the report alone: numbers as texts, under explanatory headings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.choice.crossval import CrossValidation
from analysis.choice.losses import CHOOSERS
from analysis.choice.pick import Pick
from analysis.energy.fitted import Fit
from analysis.energy.models import ESTIMATED
from analysis.figures.labels import by_family, setting_label
from analysis.measurements.campaign_energy import J_PER_KWH, EnergyFactor
from analysis.measurements.observations import Observations, rows_by_kernel
from analysis.report.content import MeasurementCounts, SiteReport
from analysis.report.sheets import phases_sheet
from analysis.report.tables import (
    MISSING,
    Cells,
    RowGroup,
    Table,
    TableColumn,
    TextColumn,
    as_table,
    clock,
    decimals,
    fixed,
    scaled,
    setting_fields,
)
from analysis.rooflines.roofline import PairPoints, Roofline
from dvfs.kernel_instance import KernelInstance, short_labels
from dvfs.setting import Setting

SEVERITY_TEXT = {
    "refused": ("reason against any fit", "reasons against any fit"),
    "warning": ("warning", "warnings"),
    "note": ("note", "notes"),
}
"""Severity of a remark -> its singular and plural."""
HOURS = 1000
"""The hours of savings in kWh: their number then equals the mean power saved, in W."""
RACE_TEXT = {"right": "right", "worse": "costs more", "open": "open"}


def kwh_text(kwh: float, factors: Sequence[EnergyFactor]) -> str:
    """The text of an energy, with its cost and emissions if they do not depend on the hour."""
    texts = [
        f"{fixed(kwh * factor.per_kwh[0], 3)} {factor.unit}"
        for factor in factors
        if not factor.by_hour
    ]
    return f"{fixed(kwh, 3)} kWh" + (f" ({', '.join(texts)})" if texts else "")


def facts(
    measured: MeasurementCounts, factors: Sequence[EnergyFactor] = ()
) -> list[tuple[str, str]]:
    """The numbers of measurements, as names and texts."""
    failed = sum(measured.failed.values())
    classes = ", ".join(f"{n} {name}" for name, n in measured.failed.items())
    shown = [
        ("points measured", f"{measured.ok:,}"),
        ("failed", f"{failed:,} ({classes})" if failed else "none"),
        ("left", f"{measured.left:,}" if measured.left else "none"),
        ("kernels", f"{measured.kernels:,}"),
        ("settings", f"{measured.settings:,}"),
        ("nodes", ", ".join(measured.nodes) or "not recorded"),
        ("meters", "; ".join(measured.meters) or "not recorded"),
    ]
    if measured.energy_j > 0:
        kwh = kwh_text(measured.energy_j / J_PER_KWH, factors)
        shown.append(("energy measured", f"{kwh}, without warm-up and waiting"))
    if measured.node_hours:
        shown.append(("node-hours spent", measured.node_hours))
    if measured.clock_unproven:
        shown.insert(1, ("of these with unproven clocks", f"{measured.clock_unproven:,}"))
    if measured.without_energy:
        shown.insert(1, ("of these without energy", f"{measured.without_energy:,}"))
    return shown


def overview(sites: Sequence[SiteReport]) -> Table | None:
    """A row a site: the measurements, the error of the model and the savings of its picks."""
    rows = []
    for site in sites:
        first = site.crossvals[0] if site.crossvals else None
        lost = [
            first.choosers[name].mean_lost_pct if first and name in first.choosers else math.nan
            for name in ("picks", "race_to_halt")
        ]
        error = float(first.error_pct.mean()) if first else math.nan
        medians = [
            float(np.median([getattr(p, name) for p in site.picks])) if site.picks else math.nan
            for name in ("saving_pct", "slowdown_pct")
        ]
        rows.append(
            {
                TextColumn("site"): site.site + (" (simulated)" if site.simulated else ""),
                TableColumn("points"): f"{site.measured.ok:,}",
                TableColumn("kernels"): f"{site.measured.kernels:,}",
                TableColumn("settings"): f"{site.measured.settings:,}",
                TableColumn("error out of fold", "%"): decimals(error),
                TableColumn("lost by the picks", "%"): decimals(lost[0]),
                TableColumn("lost by race to halt", "%"): decimals(lost[1]),
                TableColumn("energy saved, median", "%"): decimals(medians[0]),
                TableColumn("additional time, median", "%"): decimals(medians[1]),
            }
        )
    return Table.of("Summary", {"": rows}) if rows else None


def trust_summary(site: SiteReport) -> str:
    """The fit behind the results, its error and the number of remarks, as text; empty if nothing
    was measured."""
    if not site.measured.ok and not site.remarks:
        return ""
    parts = []
    if site.fit_origin:
        parts.append(f"Fit: {site.fit_origin}.")
    if site.crossvals:
        first = site.crossvals[0]
        parts.append(
            f"Its error on energy out of fold ({first.scheme}) is "
            f"{decimals(float(first.error_pct.mean()), 2)} % on average."
        )
    counts = [
        (sum(remark.severity == severity for remark in site.remarks), words)
        for severity, words in SEVERITY_TEXT.items()
    ]
    counted = [f"{n} {words[n > 1]}" for n, words in counts if n]
    more = f"{', '.join(counted)}:" if counted else "The checks have found nothing to warn of."
    return " ".join([*parts, more])


def fit_facts(model: Fit, origin: str) -> list[tuple[str, str]]:
    """The description of a fit: its origin, form, data and voltages, as names and texts."""
    voltage = {
        "unit": "none is known: V = 1 is assumed at every setting",
        "table": "the site's table",
        "measured": "measured",
    } | dict.fromkeys(
        ESTIMATED, "estimated from the energies, relative to those at the highest clocks"
    )
    return [
        *([("fit", origin)] if origin else []),
        ("model", model.model),
        ("measurements", f"{model.n:,} at {model.n_settings} settings"),
        ("voltages", voltage.get(model.voltage, model.voltage)),
        ("condition number", fixed(model.condition_number, 3)),
        *([("why this form", model.why)] if model.tried else []),
    ]


def coefficients(model: Fit, lumped: bool) -> Table | None:
    """The coefficients with their intervals: the shared ones, or the lumped ones of kernels."""
    rows = []
    for i, term in enumerate(model.terms):
        if (term.kind == "lumped") != lumped:
            continue
        value, low, high = (float(v[i]) for v in (model.value, model.low, model.high))
        size = max(abs(value), abs(high) if math.isfinite(high) else 0.0)
        places = max(3 - math.floor(math.log10(size)), 0) if size else 0
        texts = [
            "0" if v == 0.0 else decimals(v, places) if places < 8 else fixed(v)
            for v in (value, low, high)
        ]
        half = (high - value) / value * 100.0 if value > 0 else math.nan
        unit = term.unit.replace("^2", "²")
        rows.append(
            {
                TextColumn("coefficient"): term.name,
                TableColumn("value"): texts[0],
                TableColumn("95 % from"): texts[1],
                TableColumn("to"): texts[2],
                TableColumn("±", "%"): decimals(half),
                TextColumn("unit"): unit,
                TextColumn("meaning"): term.title,
            }
        )
    caption = "Coefficients of the kernels without counts" if lumped else "Coefficients"
    return Table.of(caption, {"": rows}, tall=lumped) if rows else None


def decisions(crossvals: Sequence[CrossValidation]) -> Table | None:
    """The energy that each method of choice loses, a group a scheme."""
    groups: dict[str, list[Cells]] = {}
    for crossval in crossvals:
        for name, chooser in crossval.choosers.items():
            exact = decimals(chooser.exact, 1) if chooser.exact % 1 else f"{chooser.exact:.0f}"
            groups.setdefault(crossval.scheme, []).append(
                {
                    TextColumn("method"): CHOOSERS.get(name, name),
                    TableColumn("lost, mean", "%"): decimals(chooser.mean_lost_pct, 2),
                    TableColumn("lost, largest", "%"): decimals(chooser.max_lost_pct, 2),
                    TableColumn("best setting chosen", "kernels"): (
                        f"{exact} of {len(crossval.cases)}"
                    ),
                }
            )
    return Table.of("Energy lost by the choice of a setting", groups) if groups else None


def pick_summary(picks: Sequence[Pick]) -> str:
    """The savings and slowdowns of the picks in a sentence; empty without picks."""
    if not picks:
        return ""
    saving = np.array([p.saving_pct for p in picks])
    slower = np.array([p.slowdown_pct for p in picks])
    against_highest = np.array([p.saving_vs_highest_clocks_pct for p in picks])
    highest = ""
    if np.isfinite(against_highest).all():
        highest = (
            f" Against the highest clocks, at which most sites run by default, they save "
            f"{decimals(float(np.median(against_highest)))} % in the median."
        )
    return (
        f"Against each kernel's fastest setting, the picks are predicted to save "
        f"{decimals(float(np.median(saving)))} % of the energy in the median "
        f"({decimals(float(saving.min()))} to {decimals(float(saving.max()))} %), and take "
        f"{decimals(float(np.median(slower)))} % longer in the median "
        f"({decimals(float(slower.min()))} to {decimals(float(slower.max()))} %).{highest}"
    )


def saved_energy(site: SiteReport) -> str:
    """The saving of the picks in kWh over :data:`HOURS`, as text; empty without picks."""
    if not site.picks:
        return ""
    fastest_w, saved_w = (
        float(np.mean([getattr(p, name) for p in site.picks])) for name in ("fastest_w", "saved_w")
    )
    parts = f", in equal parts for the {len(site.picks)} kernels," if len(site.picks) > 1 else ""
    used, saved = (kwh_text(watts, site.factors) for watts in (fastest_w, saved_w))
    return (
        f"{HOURS:,} hours at the fastest settings{parts} are predicted to take {used}: {HOURS:,} h "
        f"× {fixed(fastest_w, 3)} W, the mean power there. The picks do the same work with {saved} "
        f"less: {HOURS:,} h × {fixed(saved_w, 3)} W, the mean of power × saving."
    )


def family_picks(site: SiteReport, families: Mapping[str, str]) -> Table | None:
    """The most frequent pick of each family, with its srun options."""
    if not site.picks:
        return None
    rows = []
    for name, group in by_family({pick.label: pick for pick in site.picks}, families).items():
        settings = [setting_label(p.setting) for p in group]
        usual = max(sorted(set(settings)), key=settings.count)
        saving, slower = (
            np.array([getattr(p, key) for p in group]) for key in ("saving_pct", "slowdown_pct")
        )
        rows.append(
            {
                TextColumn("family"): name,
                TextColumn("most frequent pick", "core/memory"): usual,
                TableColumn("for", "kernels"): f"{settings.count(usual)} of {len(settings)}",
                TableColumn("saves, median", "%"): decimals(float(np.median(saving))),
                TableColumn("saves, largest", "%"): decimals(float(saving.max())),
                TableColumn("slower, median", "%"): decimals(float(np.median(slower))),
                TableColumn("slower, largest", "%"): decimals(float(slower.max())),
                TextColumn("srun options"): (
                    site.slurm.get(group[settings.index(usual)].label) or MISSING
                ),
            }
        )
    return Table.of("Picks by family of kernels", {"": rows})


def phases(site: SiteReport) -> Table | None:
    """The measured energy by phase, a group a kernel and setting, with these as its heading."""
    groups = []
    columns: list[TableColumn] = []
    for split in site.phases:
        table = as_table(phases_sheet([split], site.simulated))
        first = [column.name for column in table.columns].index("phase")
        columns = table.columns[first:]
        heading = f"{split.label}: {split.at}, {setting_label(split.setting)}"
        groups.append(RowGroup(heading, [row[first:] for row in table.groups[0].rows]))
    if not groups:
        return None
    caption = "Measured energy by phase"
    # A single group is shown without its heading.
    caption += f", {groups[0].name}" if len(groups) == 1 else ""
    return Table(caption, columns, groups, tall=True)


def pick_table(site: SiteReport, families: Mapping[str, str]) -> Table | None:
    """The pick of every kernel, by family."""
    if not site.picks:
        return None
    energy_unit, energy = scaled((p.energy_j for p in site.picks), "J")
    time_unit, times = scaled((p.time_s for p in site.picks), "s")
    names = short_labels(KernelInstance(p.kernel, p.params, p.label) for p in site.picks)
    settings = _setting_columns([p.setting for p in site.picks])
    rows = {
        p.label: {
            TextColumn("kernel"): names[p.label],
            **settings[i],
            TableColumn("energy, predicted", energy_unit): energy[i],
            TableColumn("time", time_unit): times[i],
            TableColumn("saves", "%"): decimals(p.saving_pct),
            TableColumn("95 % from", "%"): decimals(p.saving_low_pct),
            TableColumn("to", "%"): decimals(p.saving_high_pct),
            TableColumn(f"saves in {HOURS:,} h", "kWh"): fixed(p.saved_w, 3),
            TableColumn("vs highest", "%"): decimals(p.saving_vs_highest_clocks_pct),
            TableColumn("slower", "%"): decimals(p.slowdown_pct),
            TableColumn("is the best", "%"): decimals(p.best_probability * 100.0, 0),
            TextColumn("race to halt"): RACE_TEXT.get(p.race_to_halt, MISSING),
            TextColumn("srun options"): site.slurm.get(p.label) or MISSING,
        }
        for i, p in enumerate(site.picks)
    }
    caption = f"The pick of each of {len(rows)} kernels"
    return Table.of(caption, by_family(rows, families), tall=True)


def _setting_columns(settings: Sequence[Setting]) -> list[dict[TableColumn, str]]:
    """:func:`setting_fields` as texts."""
    return [
        {
            TableColumn(field.heading, field.unit, number=field.places is not None): value
            or "as found"
            if isinstance(value, str)
            else clock(None if math.isnan(value) else value)
            for field, value in row.items()
        }
        for row in setting_fields(settings)
    ]


def balances(lines: Sequence[tuple[PairPoints, Roofline]], with_energy: bool) -> Table | None:
    """The balance points of each pair of classes, a row a roofline."""
    if not lines:
        return None
    rows = []
    for points, line in lines:
        cells = {
            TextColumn("operations / bytes"): f"{points.operation} / {points.memory}",
            TableColumn("kernels"): f"{len(points.kernels)}",
            TableColumn("best rate", "Gop/s"): fixed(1e-9 / line.tau_op_s, 3),
            TableColumn("best rate", "GB/s"): fixed(1e-9 / line.tau_mem_s, 3),
            TableColumn("Bτ", "op/B"): fixed(line.time_balance, 3),
        }
        if with_energy:
            cells |= {
                TableColumn("ε of an operation", "pJ"): fixed(line.eps_op_j * 1e12, 3),
                TableColumn("ε of a byte", "pJ"): fixed(line.eps_mem_j * 1e12, 3),
                TableColumn("π₀", "W"): decimals(line.constant_w, 2),
                TableColumn("η"): decimals(line.op_efficiency, 2),
                TableColumn("Bε", "op/B"): fixed(line.energy_balance, 3),
                TableColumn("B\u0302ε", "op/B"): fixed(line.half_efficiency_intensity, 3),
                TableColumn("largest power", "W"): fixed(line.power_limits_w[1], 3),
            }
        rows.append(cells)
    return Table.of("Balance points", {"": rows})


def times(data: Observations, families: Mapping[str, str]) -> Table:
    """The times of a site without energies: the fastest and slowest setting of each kernel."""
    rows = []
    for kernel, kernel_rows in rows_by_kernel(data):
        measured = data.take(kernel_rows)
        settings = np.unique(measured.setting)
        means = np.array([measured.time_s[measured.setting == s].mean() for s in settings])
        rows.append((kernel, settings, means))
    unit, texts = scaled([v for _, _, means in rows for v in (means.min(), means.max())], "s")
    cells = {
        kernel: [
            kernel,
            f"{len(settings)}",
            setting_label(data.settings[settings[np.argmin(means)]]),
            texts[2 * i],
            setting_label(data.settings[settings[np.argmax(means)]]),
            texts[2 * i + 1],
            decimals(float(means.max() / means.min()), 2),
        ]
        for i, (kernel, settings, means) in enumerate(rows)
    }
    columns = [
        TextColumn("kernel"),
        TableColumn("settings"),
        TextColumn("fastest at"),
        TableColumn("time", unit),
        TextColumn("slowest at"),
        TableColumn("time", unit),
        TableColumn("ratio"),
    ]
    groups = [RowGroup(name, group) for name, group in by_family(cells, families).items()]
    return Table(f"Times of {len(rows)} kernels; energy is missing", columns, groups, tall=True)
