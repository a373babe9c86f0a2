"""Where the energy goes, as stacked bars (seed 003, figures 4, 6 and 7)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import xarray as xr
from markupsafe import escape

from analysis.dataset import moves_data
from analysis.energy.breakdown import by_class, by_kind, by_phase
from analysis.energy.fit import Fit
from analysis.figures.axes import (
    Figure,
    Frame,
    Panel,
    Scale,
    box,
    legend,
    panel,
    px,
    short_names,
    shortened,
)
from analysis.figures.families import natural
from analysis.figures.predictions import CASES_A_PANEL, WIDEST_SLOT, foremost
from analysis.figures.rooflines import place_text
from analysis.measurements.observations import Observations

ROW = 17
SHOWN = 16
STYLES = {
    "sp": "k1",
    "dp": "k5",
    "int": "k3",
    "shared": "k6",
    "l1": "k6",
    "l2": "k2",
    "l3": "k2",
    "dram": "k4",
    "mem": "k4",
    "core": "k1",
    "memory": "k4",
    "computation": "k1",
    "data": "k4",
    "clock": "k7",
    "constant": "k8",
}
"""What a part is drawn in, so that one thing looks the same in every figure."""
SPARE = ("k6", "k2", "k7", "k0", "k3", "k1", "k4", "k5", "k8")
"""For parts that no figure has a fixed style for; first those that few figures have."""


def part_styles(parts: Sequence[str]) -> dict[str, str]:
    """Part -> its style; two parts of one drawing never share one while there are enough."""
    styles: dict[str, str] = {}
    for part in parts:
        wanted = STYLES.get(part)
        taken = set(styles.values())
        free = [s for s in SPARE if s not in taken]
        styles[part] = wanted if wanted and wanted not in taken else (free or list(SPARE))[0]
    return styles


def stacked_panel(
    title: str,
    x_label: str,
    rows: Sequence[str],
    parts: Mapping[str, np.ndarray],
    unit: str,
    description: str,
    width: float = 380,
    label_width: float = 180,
) -> Panel:
    """A horizontal bar a row, stacked of its parts in their order.

    ``parts``: part -> float64 (rows,), in ``unit``; NaN and 0 draw nothing.
    """
    styles = part_styles(list(parts))
    entries = [(styles[name], name) for name in parts]
    key, last = legend(entries, Frame(width=width))
    top = last + 12
    frame = Frame(width, top + ROW * len(rows) + 42, label_width, 18, top, 42)
    values = {name: np.nan_to_num(np.asarray(v, float)) for name, v in parts.items()}
    whole = np.sum(list(values.values()), axis=0)
    longest = 1.0 if not whole.max() > 0 else float(whole.max())
    exact = unit == "%" and abs(longest - 100.0) < 1e-6
    x = Scale(0.0, 100.0 if exact else longest * 1.04, *frame.x)
    drawn = [key]
    short = short_names(rows)
    for i, name in enumerate(rows):
        up = top + ROW * i
        drawn.append(
            f'<text class="end small" x="{px(frame.left - 6)}" y="{px(up + 12)}">'
            f"{escape(shortened(short[name], (label_width - 8) * 1.12))}</text>"
        )
        at = 0.0
        for part, each in values.items():
            if each[i] <= 0:
                continue
            share = each[i] / whole[i] * 100.0
            text = f"{name}: {part} {each[i]:.4g} {unit}"
            text += "" if unit == "%" else f", {share:.3g} %"
            drawn.append(
                box(styles[part], x.at(at), up + 2.5, x.at(at + each[i]), up + ROW - 2.5, text)
            )
            at += float(each[i])
    return panel(title, x_label, x, None, drawn, description, frame)


def mean_at(data: Observations, kernels: Sequence[str], setting: int) -> Observations:
    """One row a kernel: the first of its repeats at a setting, with their mean time and energy.

    ``setting``: index into ``data.settings``; kernels that were not measured there are left out.
    """
    rows, means = [], []
    for kernel in kernels:
        mine = np.flatnonzero((data.kernel == kernel) & (data.setting == setting))
        if len(mine):
            rows.append(mine[0])
            means.append((data.time_s[mine].mean(), data.energy_j[mine].mean()))
    time_s, energy_j = np.array(means, float).reshape(-1, 2).T
    return replace(data.take(np.array(rows, int)), time_s=time_s, energy_j=energy_j)


def shown_kernels(
    data: Observations, setting: int, families: Mapping[str, str], most: int = SHOWN
) -> list[str]:
    """Kernels measured at a setting: those with the most energy, one of each family first.

    In order of their names, so that a family stands together.
    """
    return sorted(foremost(data.take(data.setting == setting), families, most), key=natural)


def count_figure(data: Observations, kernels: Sequence[str], setting: int) -> Figure | None:
    """What kernels are made of: operations and bytes by class, in percent (seed 003, figure 4).

    None where every kernel does one class of operations and moves one of bytes at most: then the
    picture would say nothing.
    """
    there = mean_at(data, kernels, setting)
    there = there.take(there.has_counts)
    if not len(there):
        return None
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    panels = _share_panels(there, there.counts, ("Operations", "Bytes moved"), where)
    if not panels:
        return None
    caption = "What the kernels do: operations and bytes moved, by class."
    return Figure("count_shares", caption, panels)


def _share_panels(
    there: Observations, values: Mapping[str, np.ndarray], titles: tuple[str, str], where: str
) -> list[Panel]:
    """A panel for classes of operations and one for those of bytes, each in percent of its sum.

    None at all where no kernel has two classes of either.
    """
    panels, mixed = [], False
    for title, wanted in zip(titles, (True, False), strict=True):
        mine = {
            name: np.nan_to_num(each)
            for name, each in values.items()
            if moves_data(name) is not wanted and np.nan_to_num(each).any()
        }
        if not mine:
            continue
        whole = np.sum(list(mine.values()), axis=0)
        some = whole > 0
        shares = {name: each[some] / whole[some] * 100.0 for name, each in mine.items()}
        mixed = mixed or bool((np.max(list(shares.values()), axis=0) < 99.9).any())
        rows = there.kernel[some].tolist()
        panels.append(
            stacked_panel(
                f"{title} by class, %",
                f"share of {title[0].lower()}{title[1:]}, %",
                rows,
                shares,
                "%",
                f"{title} of kernels by class, {where}",
            )
        )
    return panels if mixed else []


def class_figure(found: Fit, data: Observations, kernels: Sequence[str], setting: int) -> Figure:
    """The energy of kernels by class of operation and constant power, in percent and in joules.

    Seed 003's figure 4 with energies in the place of counts, and its figure 7 for kernels: at
    one setting, an index into ``data.settings``.
    """
    there = mean_at(data, kernels, setting)
    split = by_class(found, there)
    where = f"{data.site} at {place_text(data.settings[setting])}"
    where += ", simulated" if data.simulated else ""
    rows = there.kernel.tolist()
    return Figure(
        "energy_by_class",
        f"Predicted energy by what it is spent on, at {place_text(data.settings[setting])}: the "
        f"{len(rows)} kernels with the most energy, one of each family first.",
        [
            stacked_panel(
                "Share of energy, %",
                "share of predicted energy, %",
                rows,
                _columns(split, "share", 100.0),
                "%",
                f"Energy shares by class, {where}",
            ),
            stacked_panel(
                "Power by class, W",
                "predicted energy over time, W",
                rows,
                {k: v / there.time_s for k, v in _columns(split, "energy_j", 1.0).items()},
                "W",
                f"Average power by class, {where}",
            ),
        ],
    )


def instruction_data_figure(
    found: Fit, data: Observations, kernels: Sequence[str], setting: int
) -> Figure | None:
    """Energy by type for operations and for data access (seed 003, figure 6); percent of each.

    None where no kernel mixes classes of either.
    """
    there = mean_at(data, kernels, setting)
    there = there.take(there.has_counts)
    if not len(there) or not any(term.kind == "class" for term in found.terms):
        return None
    columns = _columns(by_class(found, there), "energy_j", 1.0)
    spent = {term.of: columns[term.of] for term in found.terms if term.kind == "class"}
    where = f"{data.site} at {place_text(data.settings[setting])}"
    where += ", simulated" if data.simulated else ""
    panels = _share_panels(there, spent, ("Energy of operations", "Energy of data access"), where)
    if not panels:
        return None
    return Figure(
        "energy_operations_data",
        f"Predicted energy of operations and of data access by class, at "
        f"{place_text(data.settings[setting])}.",
        panels,
    )


def kind_figure(
    found: Fit, data: Observations, inputs: Sequence[str], settings: Sequence[tuple[float, float]]
) -> Figure:
    """Computation, data and constant power of kernels at settings, in percent (figure 7)."""
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    frame = Frame(width=780, height=230, bottom=50, top=46)
    (left, right), (bottom, _) = frame.x, frame.y
    y = Scale(0.0, 100.0, *frame.y)
    size = min(max(CASES_A_PANEL // max(len(settings), 1), 1), len(inputs))
    panels = []
    short = short_names(inputs)
    numbers = {data.settings[s]: int(s) for s in np.unique(data.setting)}
    for first in range(0, len(inputs), size):
        mine = list(inputs[first : first + size])
        slot = min((right - left) / (size * (len(settings) + 1)), WIDEST_SLOT)
        drawn: list[str] = []
        names: list[str] = []
        for place, kernel in enumerate(mine):
            start = left + (place * (len(settings) + 1) + 0.5) * slot
            for j, setting in enumerate(settings):
                at = start + j * slot
                there = mean_at(data, [kernel], numbers[setting])
                if len(there):
                    parts = _columns(by_kind(found, there), "share", 100.0)
                    names = [*names, *(n for n in parts if n not in names)]
                    under = 0.0
                    for name, values in parts.items():
                        share = float(values[0])
                        if not share > 0 or math.isnan(share):
                            continue
                        text = f"{kernel} at {place_text(setting)}: {name} {share:.3g} %"
                        drawn.append(
                            box(
                                part_styles(list(parts))[name],
                                at + 0.08 * slot,
                                y.at(min(under + share, 100.0)),
                                at + 0.92 * slot,
                                y.at(under),
                                text,
                            )
                        )
                        under += share
                drawn.append(
                    f'<text class="mid small" x="{px(at + slot / 2)}" y="{px(bottom + 14)}">'
                    f"S{j + 1}</text>"
                )
            name = shortened(
                f"F{first + place + 1} {short[kernel]}", (len(settings) + 1) * slot * 1.05
            )
            drawn.append(
                f'<text class="mid" x="{px(start + len(settings) * slot / 2)}" '
                f'y="{px(bottom + 31)}">{escape(name)}</text>'
            )
        styles = part_styles(names)
        key, _ = legend([(styles[n], n) for n in names], frame)
        ids = f"F{first + 1} to F{first + len(mine)}"
        panels.append(
            panel(
                "Share of predicted energy, %",
                "",
                None,
                y,
                [key, *drawn],
                f"Computation, data and constant power of {ids}, {where}",
                frame,
            )
        )
    f_ids = "; ".join(f"F{i + 1}: {name}" for i, name in enumerate(inputs))
    s_ids = "; ".join(f"S{j + 1}: {place_text(s)}" for j, s in enumerate(settings))
    return Figure(
        "energy_by_kind",
        f"Predicted energy by computation, data access and constant power, by kernel and "
        f"setting. {f_ids}. {s_ids}.",
        panels,
        wide=True,
    )


def phase_figure(found: Fit, data: Observations, phase: np.ndarray, title: str) -> Figure:
    """Energy of an application by phase, and by class within each (seed 003, section IV).

    ``phase``: (rows,), each row's label.
    """
    split = by_phase(found, data, phase)
    where = f"{data.site}{', simulated' if data.simulated else ''}"
    joules = {str(part): split["energy_j"].sel(part=part).values for part in split["part"].values}
    return Figure(
        f"energy_by_phase_{re.sub(r'[^A-Za-z0-9]+', '-', title).strip('-')}",
        f"Predicted energy of {title} by phase and by what it is spent on.",
        [
            stacked_panel(
                "Energy by phase, J",
                "predicted energy, J",
                split["phase"].values.tolist(),
                joules,
                "J",
                f"Energy of {title} by phase, {where}",
            )
        ],
    )


def _columns(split: xr.Dataset, variable: str, factor: float) -> dict[str, np.ndarray]:
    """Part -> its column, times a factor."""
    dim = next(str(d) for d in split[variable].dims if d != "row")
    return {
        str(name): split[variable].values[:, i] * factor for i, name in enumerate(split[dim].values)
    }
