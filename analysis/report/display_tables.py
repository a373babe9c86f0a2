"""The tables that only the report shows: numbers as texts, under headings that explain them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from analysis.choice.crossval import CrossValidation
from analysis.choice.losses import CHOOSERS
from analysis.choice.pick import Pick
from analysis.energy.fitted import Fit
from analysis.energy.models import ESTIMATED
from analysis.figures.labels import family_order, natural, setting_label
from analysis.measurements.kernels import KernelInstance, short_labels
from analysis.measurements.observations import Observations, kernel_names
from analysis.report.content import MeasurementCounts, SiteReport
from analysis.report.sheets import phases_sheet
from analysis.report.tables import (
    MISSING,
    RowGroup,
    Table,
    TableColumn,
    as_table,
    clock,
    decimals,
    fixed,
    scaled,
)
from analysis.rooflines.roofline import PairPoints, Roofline

SEVERITY_TEXT = {
    "refused": ("reason against any fit", "reasons against any fit"),
    "warning": ("warning", "warnings"),
    "note": ("note", "notes"),
}
"""Severity of a remark -> one and several of it."""
RACE_TEXT = {"right": "right", "worse": "costs more", "open": "open"}


def _grouped(families: Mapping[str, str], rows: Sequence[tuple[str, list[str]]]) -> list[RowGroup]:
    """(kernel, cells) rows by family, families by name, the others last."""
    groups: dict[str, list[list[str]]] = {}
    for kernel, cells in sorted(rows, key=lambda row: natural(row[0])):
        groups.setdefault(families[kernel], []).append(cells)
    return [RowGroup(name, groups[name]) for name in family_order(groups)]


def facts(measured: MeasurementCounts) -> list[tuple[str, str]]:
    """How much was measured: names and texts."""
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
    if measured.clock_unproven:
        shown.insert(1, ("of these with unproven clocks", f"{measured.clock_unproven:,}"))
    if measured.without_energy:
        shown.insert(1, ("of these without energy", f"{measured.without_energy:,}"))
    return shown


def overview(sites: Sequence[SiteReport]) -> Table:
    """A row a site: how much was measured, how good the model is, what its picks save."""
    columns = [
        TableColumn("site", number=False),
        TableColumn("points"),
        TableColumn("kernels"),
        TableColumn("settings"),
        TableColumn("error out of fold", "%"),
        TableColumn("lost by the model's picks", "%"),
        TableColumn("lost by race to halt", "%"),
        TableColumn("energy saved, median", "%"),
        TableColumn("additional time, median", "%"),
    ]
    rows = []
    for site in sites:
        first = site.crossvals[0] if site.crossvals else None
        lost = [
            first.choosers[name].mean_lost_pct if first and name in first.choosers else math.nan
            for name in ("model", "race_to_halt")
        ]
        error = float(first.error_pct.mean()) if first else math.nan
        medians = [
            float(np.median([getattr(p, name) for p in site.picks])) if site.picks else math.nan
            for name in ("saving_pct", "slowdown_pct")
        ]
        rows.append(
            [
                site.site + (" (simulated)" if site.simulated else ""),
                f"{site.measured.ok:,}",
                f"{site.measured.kernels:,}",
                f"{site.measured.settings:,}",
                *(decimals(v) for v in (error, *lost, *medians)),
            ]
        )
    return Table("Summary", columns, [RowGroup("", rows)])


def trust_summary(site: SiteReport) -> str:
    """Which fit the results are from, how good it is, and how much there is to know; empty where
    nothing was measured."""
    if not site.measured.ok and not site.remarks:
        return ""
    parts = []
    if site.fit_origin:
        parts.append(f"Fit: {site.fit_origin}.")
    if site.crossvals:
        first = site.crossvals[0]
        parts.append(
            f"Its error on energy out of fold ({first.scheme}) is "
            f"{decimals(float(first.error_pct.mean()), 2)} % in the mean."
        )
    counts = [
        (sum(remark.severity == severity for remark in site.remarks), words)
        for severity, words in SEVERITY_TEXT.items()
    ]
    counted = [f"{n} {words[n > 1]}" for n, words in counts if n]
    more = f"{', '.join(counted)}:" if counted else "The checks have found nothing to warn of."
    return " ".join([*parts, more])


def fit_facts(model: Fit, origin: str) -> list[tuple[str, str]]:
    """What a fit is: which one, its form, its data, where its voltages are from."""
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
    """The coefficients with their intervals: the shared ones, or the kernels' own."""
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
        rows.append([term.name, *texts, decimals(half), unit, term.title])
    if not rows:
        return None
    columns = [
        TableColumn("coefficient", number=False),
        TableColumn("value"),
        TableColumn("95 % from"),
        TableColumn("to"),
        TableColumn("±", "%"),
        TableColumn("unit", number=False),
        TableColumn("meaning", number=False),
    ]
    caption = "Coefficients of the kernels without counts" if lumped else "Coefficients"
    return Table(caption, columns, [RowGroup("", rows)], tall=lumped)


def decisions(crossvals: Sequence[CrossValidation]) -> Table | None:
    """The energy that each method of choosing a setting loses, a group a scheme."""
    groups = []
    for crossval in crossvals:
        rows = []
        for name, chooser in crossval.choosers.items():
            exact = decimals(chooser.exact, 1) if chooser.exact % 1 else f"{chooser.exact:.0f}"
            rows.append(
                [
                    CHOOSERS.get(name, name),
                    decimals(chooser.mean_lost_pct, 2),
                    decimals(chooser.max_lost_pct, 2),
                    f"{exact} of {len(crossval.cases)}",
                ]
            )
        if rows:
            groups.append(RowGroup(crossval.scheme, rows))
    columns = [
        TableColumn("method", number=False),
        TableColumn("lost, mean", "%"),
        TableColumn("lost, largest", "%"),
        TableColumn("best setting chosen", "kernels"),
    ]
    caption = "Energy lost by the choice of a setting"
    return Table(caption, columns, groups) if groups else None


def pick_summary(picks: Sequence[Pick]) -> str:
    """What the picks save and cost, in a sentence; empty without picks."""
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


def family_picks(site: SiteReport, families: Mapping[str, str]) -> Table | None:
    """The setting that is picked most often in each family, with its srun options."""
    if not site.picks:
        return None
    groups: dict[str, list[Pick]] = {}
    for pick in site.picks:
        groups.setdefault(families[pick.label], []).append(pick)
    rows = []
    for name in family_order(groups):
        group = groups[name]
        settings = [setting_label((p.core_mhz, p.mem_mhz)) for p in group]
        most = max(sorted(set(settings)), key=settings.count)
        saving, slower = (
            np.array([getattr(p, which) for p in group]) for which in ("saving_pct", "slowdown_pct")
        )
        rows.append(
            [
                name,
                most,
                f"{settings.count(most)} of {len(settings)}",
                *(
                    decimals(float(f(values)))
                    for values in (saving, slower)
                    for f in (np.median, np.max)
                ),
                site.slurm.get(group[settings.index(most)].label) or MISSING,
            ]
        )
    columns = [
        TableColumn("family", number=False),
        TableColumn("most frequent pick", "core/memory", number=False),
        TableColumn("for", "kernels"),
        TableColumn("saves, median", "%"),
        TableColumn("saves, largest", "%"),
        TableColumn("slower, median", "%"),
        TableColumn("slower, largest", "%"),
        TableColumn("srun options", number=False),
    ]
    return Table("Picks by family of kernels", columns, [RowGroup("", rows)])


def phases(site: SiteReport) -> Table | None:
    """Measured energy by phase, a group a kernel and setting: its heading says which."""
    groups = []
    columns: list[TableColumn] = []
    for split in site.phases:
        whole = as_table(phases_sheet([split], site.simulated))
        first = [column.name for column in whole.columns].index("phase")
        columns = whole.columns[first:]
        at = f"{split.label}: {split.at}, {setting_label((split.core_mhz, split.mem_mhz))}"
        groups.append(RowGroup(at, [row[first:] for row in whole.groups[0].rows]))
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
    rows = [
        (
            p.label,
            [
                names[p.label],
                clock(p.core_mhz),
                clock(p.mem_mhz),
                energy[i],
                times[i],
                decimals(p.saving_pct),
                decimals(p.saving_low_pct),
                decimals(p.saving_high_pct),
                decimals(p.saving_vs_highest_clocks_pct),
                decimals(p.slowdown_pct),
                decimals(p.best_probability * 100.0, 0),
                RACE_TEXT.get(p.race_to_halt, MISSING),
                site.slurm.get(p.label) or MISSING,
            ],
        )
        for i, p in enumerate(site.picks)
    ]
    columns = [
        TableColumn("kernel", number=False),
        TableColumn("core", "MHz"),
        TableColumn("memory", "MHz"),
        TableColumn("energy, predicted", energy_unit),
        TableColumn("time", time_unit),
        TableColumn("saves", "%"),
        TableColumn("95 % from", "%"),
        TableColumn("to", "%"),
        TableColumn("vs highest", "%"),
        TableColumn("slower", "%"),
        TableColumn("is the best", "%"),
        TableColumn("race to halt", number=False),
        TableColumn("srun options", number=False),
    ]
    caption = f"The pick of each of {len(rows)} kernels"
    return Table(caption, columns, _grouped(families, rows), tall=True)


def balances(lines: Sequence[tuple[PairPoints, Roofline]], with_energy: bool) -> Table | None:
    """The balance points of each pair of classes, a row a roofline."""
    if not lines:
        return None
    rows = []
    for points, line in lines:
        cells = [
            f"{points.operation} / {points.memory}",
            f"{len(points.kernels)}",
            fixed(1e-9 / line.tau_op_s, 3),
            fixed(1e-9 / line.tau_mem_s, 3),
            fixed(line.time_balance, 3),
        ]
        if with_energy:
            cells += [
                fixed(line.eps_op_j * 1e12, 3),
                fixed(line.eps_mem_j * 1e12, 3),
                decimals(line.constant_w, 2),
                decimals(line.op_efficiency, 2),
                fixed(line.energy_balance, 3),
                fixed(line.half_efficiency_intensity, 3),
                fixed(line.power_limits_w[1], 3),
            ]
        rows.append(cells)
    columns = [
        TableColumn("operations / bytes", number=False),
        TableColumn("kernels"),
        TableColumn("best rate", "Gop/s"),
        TableColumn("best rate", "GB/s"),
        TableColumn("Bτ", "op/B"),
    ]
    if with_energy:
        columns += [
            TableColumn("ε of an operation", "pJ"),
            TableColumn("ε of a byte", "pJ"),
            TableColumn("π₀", "W"),
            TableColumn("η"),
            TableColumn("Bε", "op/B"),
            TableColumn("B\u0302ε", "op/B"),
            TableColumn("largest power", "W"),
        ]
    return Table("Balance points", columns, [RowGroup("", rows)])


def times(data: Observations, families: Mapping[str, str]) -> Table:
    """Times of a site without energies: where each kernel is fastest, and slowest."""
    rows = []
    for kernel in kernel_names(data):
        mine = data.take(data.kernel == kernel)
        settings = np.unique(mine.setting)
        means = np.array([mine.time_s[mine.setting == s].mean() for s in settings])
        rows.append((kernel, settings, means))
    unit, texts = scaled([v for _, _, means in rows for v in (means.min(), means.max())], "s")
    cells = [
        (
            kernel,
            [
                kernel,
                f"{len(settings)}",
                setting_label(data.settings[settings[np.argmin(means)]]),
                texts[2 * i],
                setting_label(data.settings[settings[np.argmax(means)]]),
                texts[2 * i + 1],
                decimals(float(means.max() / means.min()), 2),
            ],
        )
        for i, (kernel, settings, means) in enumerate(rows)
    ]
    columns = [
        TableColumn("kernel", number=False),
        TableColumn("settings"),
        TableColumn("fastest at", number=False),
        TableColumn("time", unit),
        TableColumn("slowest at", number=False),
        TableColumn("time", unit),
        TableColumn("ratio"),
    ]
    caption = f"Times of {len(rows)} kernels; energy is missing"
    return Table(caption, columns, _grouped(families, cells), tall=True)
