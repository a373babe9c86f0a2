"""Laying a report out as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import jinja2
import numpy as np
from markupsafe import Markup

from analysis.choice.crossval import CrossValidation
from analysis.choice.pick import Candidates, Pick
from analysis.energy.fit import Fit
from analysis.energy.models import ESTIMATED
from analysis.figures.axes import Figure
from analysis.figures.families import family_order, natural
from analysis.figures.rooflines import place_text
from analysis.measurements.observations import Observations, kernel_names
from analysis.report.content import MeasurementCounts, ReportContent, SiteReport
from analysis.report.site_figures import site_families, site_figures
from analysis.report.tables import (
    MISSING,
    Column,
    Group,
    Table,
    as_table,
    autotuning_sheet,
    clock,
    costs_sheet,
    decimals,
    fixed,
    phases_sheet,
    validation_sheet,
)
from analysis.rooflines.roofline import PairPoints, Roofline

PREFIXES = {-5: "f", -4: "p", -3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
CHOOSERS = {"model": "model", "race_to_halt": "race to halt", "random": "random"}
SCHEME_TEXT = {
    "leave-one-setting-out": "each setting is predicted by a fit on all the others",
    "holdout": "fitted on one part of the settings, judged on the rest",
    "leave-one-kernel-out": "each kernel is predicted by a fit on all the others",
}


@dataclass(frozen=True)
class Cell:
    """One setting in a kernel's energy grid: its text, style classes and words for a pointer."""

    text: str
    style: str
    title: str


@dataclass(frozen=True)
class Grid:
    """Energy over the (core, memory) settings of one kernel: a row a memory clock."""

    kernel: str
    least: str
    core: list[str]
    rows: list[tuple[str, list[Cell | None]]]
    pick: str


@dataclass(frozen=True)
class SiteView:
    """What the template shows of one site."""

    anchor: str
    name: str
    simulated: bool
    no_energy: bool
    facts: list[tuple[str, str]]
    why_no_fit: str
    notes: list[str]
    fit_facts: list[tuple[str, str]]
    clock_terms: bool
    dropped: list[tuple[str, str]]
    coefficients: Table | None
    lumped: Table | None
    costs: Table | None
    errors: Table | None
    decisions: Table | None
    schemes: list[tuple[str, str]]
    autotuning: Table | None
    predictions: list[Figure]
    breakdowns: list[Figure]
    phase_figures: list[Figure]
    phases: Table | None
    trade_offs: list[Figure]
    pick_summary: str
    family_picks: Table | None
    picks: Table | None
    balances: Table | None
    rooflines: list[Figure]
    roofline_setting: str
    times: Table | None
    grids: list[tuple[str, list[Grid]]]


def render(content: ReportContent) -> str:
    """The whole page: HTML with its style and its figures inside, nothing loaded from elsewhere."""
    here = files("analysis.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((here / "page.html").read_text(encoding="utf-8"))
    sheets = (here / "page.css", files("analysis.figures") / "marks.css")
    style = Markup("".join(s.read_text(encoding="utf-8") for s in sheets))  # noqa: S704  (our own)
    return template.render(
        content=content,
        style=style,
        simulated=[each.site for each in content.sites if each.simulated],
        overview=_overview(content.sites),
        sites=[site_view(each, i) for i, each in enumerate(content.sites)],
    )


def site_view(site: SiteReport, number: int) -> SiteView:
    """Everything that is shown of a site, formatted."""
    found, data = site.fit, site.data
    families = site_families(site)
    figures = site_figures(site)
    return SiteView(
        anchor=f"site-{number + 1}",
        name=site.site,
        simulated=site.simulated,
        no_energy=data is None and site.timing is not None,
        facts=_facts(site.measured),
        why_no_fit=site.why_no_fit,
        notes=site.notes,
        fit_facts=_fit_facts(found) if found else [],
        clock_terms=found is not None and any(term.kind == "clock" for term in found.terms),
        dropped=[(entry["name"], entry["why"]) for entry in found.dropped] if found else [],
        coefficients=_coefficients(found, lumped=False) if found else None,
        lumped=_coefficients(found, lumped=True) if found else None,
        costs=(
            as_table(costs_sheet(found, data, site.crossvals), tall=True)
            if found and data
            else None
        ),
        errors=as_table(validation_sheet(site.crossvals)) if site.crossvals else None,
        decisions=_decisions(site.crossvals),
        schemes=[(c.scheme, SCHEME_TEXT.get(c.scheme, "")) for c in site.crossvals],
        autotuning=(
            as_table(autotuning_sheet(site.crossvals[0], families))
            if site.crossvals and data
            else None
        ),
        predictions=figures.predictions,
        breakdowns=figures.breakdowns,
        phase_figures=figures.phases,
        phases=_phases(site),
        trade_offs=figures.trade_offs,
        pick_summary=_pick_summary(site.picks),
        family_picks=_family_picks(site.picks, families),
        picks=_picks(site, families),
        balances=_balances(figures.lines, found is not None),
        rooflines=figures.rooflines,
        roofline_setting=figures.setting,
        times=_times(site.timing, families) if site.timing is not None else None,
        grids=_grids(site, families),
    )


def scaled(values: Iterable[float], unit: str) -> tuple[str, list[str]]:
    """A column's numbers under one SI prefix: the unit with it, and the texts.

    All have the same decimals where they lie within three decades of each other, else each has
    four significant digits.
    """
    numbers = np.array(list(values), float)
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    if not len(sizes):
        return unit, [fixed(v) for v in numbers]
    power = int(np.clip(math.floor(math.log10(float(np.median(sizes))) / 3 + 1e-9), -5, 4))
    numbers, sizes = numbers / 1000.0**power, sizes / 1000.0**power
    unit = PREFIXES[power] + unit
    if sizes.max() / sizes.min() > 1e3:
        return unit, [fixed(v) for v in numbers]
    places = max(2 - math.floor(math.log10(float(sizes.min()))), 0)
    return unit, [decimals(v, min(places, 4)) for v in numbers]


def _grouped(families: dict[str, str], rows: Sequence[tuple[str, list[str]]]) -> list[Group]:
    """(kernel, cells) rows by family, families by name, the others last."""
    groups: dict[str, list[list[str]]] = {}
    for kernel, cells in sorted(rows, key=lambda row: natural(row[0])):
        groups.setdefault(families[kernel], []).append(cells)
    return [Group(name, groups[name]) for name in family_order(groups)]


def _facts(measured: MeasurementCounts) -> list[tuple[str, str]]:
    failed = sum(measured.failed.values())
    classes = ", ".join(f"{n} {name}" for name, n in measured.failed.items())
    facts = [
        ("points measured", f"{measured.ok:,}"),
        ("failed", f"{failed:,} ({classes})" if failed else "none"),
        ("left", f"{measured.left:,}" if measured.left else "none"),
        ("kernels", f"{measured.kernels:,}"),
        ("settings", f"{measured.settings:,}"),
        ("nodes", ", ".join(measured.nodes) or "not recorded"),
        ("meters", "; ".join(measured.meters) or "not recorded"),
    ]
    if measured.without_energy:
        facts.insert(1, ("of these without energy", f"{measured.without_energy:,}"))
    return facts


def _overview(sites: Sequence[SiteReport]) -> Table:
    columns = [
        Column("site", number=False),
        Column("points"),
        Column("kernels"),
        Column("settings"),
        Column("error out of fold", "%"),
        Column("lost by the model's picks", "%"),
        Column("lost by race to halt", "%"),
        Column("energy saved, median", "%"),
        Column("time paid, median", "%"),
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
    return Table("Summary", columns, [Group("", rows)])


def _fit_facts(found: Fit) -> list[tuple[str, str]]:
    voltage = {
        "unit": "none is known: V = 1 is assumed at every setting",
        "table": "the site's table",
        "measured": "measured",
    } | dict.fromkeys(
        ESTIMATED, "estimated from the energies, relative to those at the highest clocks"
    )
    return [
        ("model", found.model),
        ("measurements", f"{found.n:,} at {found.n_settings} settings"),
        ("voltages", voltage.get(found.voltage, found.voltage)),
        ("condition number", fixed(found.condition_number, 3)),
        *([("why this form", found.why)] if found.tried else []),
    ]


def _coefficients(found: Fit, lumped: bool) -> Table | None:
    """The coefficients with their intervals: the shared ones, or the kernels' own."""
    rows = []
    for i, term in enumerate(found.terms):
        if (term.kind == "lumped") != lumped:
            continue
        value, low, high = (float(v[i]) for v in (found.value, found.low, found.high))
        size = max(abs(value), abs(high) if math.isfinite(high) else 0.0)
        places = max(3 - math.floor(math.log10(size)), 0) if size else 0
        texts = [
            "0" if v == 0.0 else decimals(v, places) if places < 8 else fixed(v)
            for v in (value, low, high)
        ]
        half = (high - value) / value * 100.0 if value > 0 else math.nan
        unit = term.unit.replace("^2", "²")
        rows.append([term.name, texts[0], texts[1], texts[2], decimals(half), unit])
    if not rows:
        return None
    columns = [
        Column("coefficient", number=False),
        Column("value"),
        Column("95 % from"),
        Column("to"),
        Column("±", "%"),
        Column("unit", number=False),
    ]
    caption = "Coefficients of the kernels without counts" if lumped else "Coefficients"
    return Table(caption, columns, [Group("", rows)], tall=lumped)


def _decisions(crossvals: Sequence[CrossValidation]) -> Table | None:
    groups = []
    for each in crossvals:
        rows = []
        for name, chooser in each.choosers.items():
            exact = decimals(chooser.exact, 1) if chooser.exact % 1 else f"{chooser.exact:.0f}"
            rows.append(
                [
                    CHOOSERS.get(name, name),
                    decimals(chooser.mean_lost_pct, 2),
                    decimals(chooser.max_lost_pct, 2),
                    f"{exact} of {len(each.cases)}",
                ]
            )
        if rows:
            groups.append(Group(each.scheme, rows))
    columns = [
        Column("who chooses", number=False),
        Column("lost, mean", "%"),
        Column("lost, most", "%"),
        Column("the best chosen", "kernels"),
    ]
    caption = "Energy lost by the choice of a setting"
    return Table(caption, columns, groups) if groups else None


def _pick_summary(picks: Sequence[Pick]) -> str:
    if not picks:
        return ""
    saving = np.array([p.saving_pct for p in picks])
    slower = np.array([p.slowdown_pct for p in picks])
    return (
        f"Against each kernel's fastest setting, the picks are predicted to save "
        f"{decimals(float(np.median(saving)))} % of the energy in the median "
        f"({decimals(float(saving.min()))} to {decimals(float(saving.max()))} %), and take "
        f"{decimals(float(np.median(slower)))} % longer in the median "
        f"({decimals(float(slower.min()))} to {decimals(float(slower.max()))} %)."
    )


def _family_picks(picks: Sequence[Pick], families: dict[str, str]) -> Table | None:
    mine: dict[str, list[Pick]] = {}
    for each in picks:
        mine.setdefault(families[each.label], []).append(each)
    if len(mine) < 2:
        return None
    rows = []
    for name in family_order(mine):
        chosen = [place_text((p.core_mhz, p.mem_mhz)) for p in mine[name]]
        most = max(sorted(set(chosen)), key=chosen.count)
        saving, slower = (
            np.array([getattr(p, which) for p in mine[name]])
            for which in ("saving_pct", "slowdown_pct")
        )
        rows.append(
            [
                name,
                f"{len(chosen)}",
                most,
                f"{chosen.count(most)}",
                *(
                    decimals(float(f(values)))
                    for values in (saving, slower)
                    for f in (np.median, np.max)
                ),
            ]
        )
    columns = [
        Column("family", number=False),
        Column("kernels"),
        Column("picked most often", "core/memory", number=False),
        Column("for", "kernels"),
        Column("saves, median", "%"),
        Column("saves, most", "%"),
        Column("slower, median", "%"),
        Column("slower, most", "%"),
    ]
    return Table("Picks by family of kernels", columns, [Group("", rows)])


def _phases(site: SiteReport) -> Table | None:
    """Measured energy by phase, a group a kernel and setting: its heading says which."""
    groups = []
    columns: list[Column] = []
    for each in site.phases:
        whole = as_table(phases_sheet([each], site.simulated))
        first = [column.name for column in whole.columns].index("phase")
        columns = whole.columns[first:]
        at = f"{each.label}: {each.at}, {place_text((each.core_mhz, each.mem_mhz))}"
        groups.append(Group(at, [row[first:] for row in whole.groups[0].rows]))
    if not groups:
        return None
    caption = "Measured energy by phase"
    # A single group is shown without its heading.
    caption += f", {groups[0].name}" if len(groups) == 1 else ""
    return Table(caption, columns, groups, tall=True)


RACE_TEXT = {"right": "right", "worse": "costs more", "open": "can't be told"}


def _picks(site: SiteReport, families: dict[str, str]) -> Table | None:
    if not site.picks:
        return None
    energy_unit, energy = scaled((p.energy_j for p in site.picks), "J")
    time_unit, times = scaled((p.time_s for p in site.picks), "s")
    rows = [
        (
            p.label,
            [
                p.label,
                clock(p.core_mhz),
                clock(p.mem_mhz),
                energy[i],
                times[i],
                decimals(p.saving_pct),
                decimals(p.slowdown_pct),
                decimals(p.best_probability * 100.0, 0),
                RACE_TEXT.get(p.race_to_halt, MISSING),
                site.slurm.get(p.label) or MISSING,
            ],
        )
        for i, p in enumerate(site.picks)
    ]
    columns = [
        Column("kernel", number=False),
        Column("core", "MHz"),
        Column("memory", "MHz"),
        Column("energy, predicted", energy_unit),
        Column("time", time_unit),
        Column("saves", "%"),
        Column("slower", "%"),
        Column("is the best", "%"),
        Column("race to halt", number=False),
        Column("srun options", number=False),
    ]
    caption = f"The pick of each of {len(rows)} kernels"
    return Table(caption, columns, _grouped(families, rows), tall=True)


def _balances(lines: Sequence[tuple[PairPoints, Roofline]], with_energy: bool) -> Table | None:
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
        Column("operations / bytes", number=False),
        Column("kernels"),
        Column("best rate", "Gop/s"),
        Column("best rate", "GB/s"),
        Column("Bτ", "op/B"),
    ]
    if with_energy:
        columns += [
            Column("ε of an operation", "pJ"),
            Column("ε of a byte", "pJ"),
            Column("π₀", "W"),
            Column("η"),
            Column("Bε", "op/B"),
            Column("B\u0302ε", "op/B"),
            Column("most power", "W"),
        ]
    return Table("Balance points", columns, [Group("", rows)])


def _times(data: Observations, families: dict[str, str]) -> Table:
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
                place_text(data.settings[settings[np.argmin(means)]]),
                texts[2 * i],
                place_text(data.settings[settings[np.argmax(means)]]),
                texts[2 * i + 1],
                decimals(float(means.max() / means.min()), 2),
            ],
        )
        for i, (kernel, settings, means) in enumerate(rows)
    ]
    columns = [
        Column("kernel", number=False),
        Column("settings"),
        Column("fastest at", number=False),
        Column("time", unit),
        Column("slowest at", number=False),
        Column("time", unit),
        Column("ratio"),
    ]
    caption = f"Times of {len(rows)} kernels; energy is missing"
    return Table(caption, columns, _grouped(families, cells), tall=True)


LEVELS = (0.5, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)


def percent_over(values: np.ndarray) -> np.ndarray:
    """How far each value lies above the least, in percent: float64, same shape."""
    return np.asarray((values / np.nanmin(values) - 1.0) * 100.0)


def level(percent: float) -> int:
    """Which of the nine shades a cell of an energy grid has."""
    return sum(percent >= limit for limit in LEVELS)


def _grids(site: SiteReport, families: dict[str, str]) -> list[tuple[str, list[Grid]]]:
    picked = {p.label: p for p in site.picks}
    groups: dict[str, list[Grid]] = {}
    for kernel in sorted(site.candidates, key=natural):
        grid = _grid(site.candidates[kernel], picked.get(kernel))
        groups.setdefault(families[kernel], []).append(grid)
    return [(name, groups[name]) for name in family_order(groups)]


def _grid(among: Candidates, picked: Pick | None) -> Grid:
    """A kernel's energies over the settings: measured where they were, else predicted."""
    shown_j = np.where(among.measured, among.measured_j, among.energy_j)
    over = percent_over(shown_j)
    core = sorted({clock(c) for c, _ in among.settings}, key=natural)
    mem = sorted({clock(m) for _, m in among.settings}, key=natural, reverse=True)
    eligible = among.measured if among.measured.any() else np.ones(len(shown_j), bool)
    fastest = int(np.argmin(np.where(eligible, among.time_s, np.inf)))
    fastest_at = tuple(map(clock, among.settings[fastest]))
    pick_at = (clock(picked.core_mhz), clock(picked.mem_mhz)) if picked else None
    cells: dict[tuple[str, ...], Cell] = {}
    # Measured settings come last, so that they stand where a setting is listed twice.
    for i in sorted(range(len(shown_j)), key=lambda i: bool(among.measured[i])):
        at = tuple(map(clock, among.settings[i]))
        styles = [f"l{level(float(over[i]))}"]
        words = "measured" if among.measured[i] else "predicted"
        if not among.measured[i]:
            styles.append("guess")
        if at == pick_at:
            styles.append("pick")
            words += ", the pick"
        if at == fastest_at:
            styles.append("fast")
            words += ", the fastest"
        text = decimals(float(over[i]), 1 if over[i] < 9.95 else 0)
        title = "" if words == "predicted" else f"{fixed(float(shown_j[i]))} J, {words}"
        cells[at] = Cell(text, " ".join(styles), title)
    unit, texts = scaled([float(np.nanmin(shown_j))], "J")
    pick_text = place_text((picked.core_mhz, picked.mem_mhz)) if picked else ""
    return Grid(
        among.label,
        f"{texts[0]} {unit}",
        core,
        [(m, [cells.get((c, m)) for c in core]) for m in mem],
        pick_text,
    )
