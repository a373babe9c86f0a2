"""Heat maps of energy over the (core, memory) settings, one a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.choice.candidates import SettingCandidates
from analysis.choice.pick import Pick
from analysis.figures.labels import by_family, natural, setting_label
from analysis.report.content import SiteReport
from analysis.report.tables import clock, decimals, fixed, scaled
from analysis.ties import highest
from dvfs.setting import Setting

LEVELS = (0.5, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""The bounds between shades, percent above the lowest energy."""
MOST_CELLS = 10_000
"""The most cells in all heat maps of a site: a page with more takes seconds to open."""


@dataclass(frozen=True)
class HeatMapCell:
    """One setting: its text, its style classes, and the text under the pointer."""

    text: str
    style: str
    title: str


@dataclass(frozen=True)
class HeatMap:
    """The energy of a kernel over the settings: a row a memory clock, a column a core clock."""

    kernel: str
    least: str
    core: list[str]
    rows: list[tuple[str, list[HeatMapCell | None]]]
    pick: str


def heat_maps(site: SiteReport, families: Mapping[str, str]) -> list[tuple[str, list[HeatMap]]]:
    """The heat maps of a site's kernels, by family; only of those with the most energy if all
    together have more cells than :data:`MOST_CELLS`."""
    picked = {pick.label: pick for pick in site.picks}
    rank = {
        label: -np.nanmean(candidates.energy_j) for label, candidates in site.candidates.items()
    }
    shown: list[str] = []
    cells = 0
    for kernel in sorted(rank, key=lambda label: (rank[label], label)):
        cells += len(site.candidates[kernel].settings)
        if shown and cells > MOST_CELLS:
            break
        shown.append(kernel)
    maps = {kernel: _heat_map(site.candidates[kernel], picked.get(kernel)) for kernel in shown}
    return list(by_family(maps, families).items())


def level(percent: float) -> int:
    """The index of a cell's shade, 0 to 8."""
    return sum(percent >= limit for limit in LEVELS)


def _place(setting: Setting) -> tuple[str, str]:
    """The column and the row of a setting: its core clock, and its other parts."""
    return clock(setting.core_mhz), ", ".join([clock(setting.mem_mhz), *setting.further_texts])


def _heat_map(among: SettingCandidates, picked: Pick | None) -> HeatMap:
    """The heat map of a kernel: its measured energies, else the predicted ones."""
    shown_j = among.shown_j
    over_pct = (shown_j / np.nanmin(shown_j) - 1.0) * 100.0
    places = [_place(setting) for setting in among.settings]
    core = sorted({c for c, _ in places}, key=natural)
    mem = sorted({m for _, m in places}, key=natural, reverse=True)
    fastest = among.settings[highest(among.settings, among.equally_fast, among.time_s)]
    fastest_place = _place(fastest)
    pick_place = _place(picked.setting) if picked else None
    cells: dict[tuple[str, ...], HeatMapCell] = {}
    # Measured settings come last: they replace predicted ones of the same clocks.
    for i in sorted(range(len(shown_j)), key=lambda i: bool(among.measured[i])):
        place = places[i]
        styles = [f"l{level(float(over_pct[i]))}"]
        origin = "measured" if among.measured[i] else "predicted"
        if not among.measured[i]:
            styles.append("guess")
        if place == pick_place:
            styles.append("pick")
            origin += ", the pick"
        if place == fastest_place:
            styles.append("fast")
            origin += ", the fastest"
        text = decimals(float(over_pct[i]), 1 if over_pct[i] < 9.95 else 0)
        title = "" if origin == "predicted" else f"{fixed(float(shown_j[i]))} J, {origin}"
        cells[place] = HeatMapCell(text, " ".join(styles), title)
    unit, texts = scaled([float(np.nanmin(shown_j))], "J")
    pick_text = setting_label(picked.setting) if picked else ""
    return HeatMap(
        among.label,
        f"{texts[0]} {unit}",
        core,
        [(m, [cells.get((c, m)) for c in core]) for m in mem],
        pick_text,
    )
