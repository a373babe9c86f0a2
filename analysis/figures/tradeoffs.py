"""Trade-offs: time against energy over settings, and speedup against greenup (seed 000, fig. 8)."""

from __future__ import annotations

import math

import numpy as np

from analysis.choice.pick import Candidates, Pick
from analysis.figures.axes import (
    FRAME,
    Figure,
    Panel,
    dots,
    legend,
    log_scale,
    panel,
    px,
    short_names,
    shortened,
)
from analysis.figures.rooflines import place_text, unit_name
from analysis.rooflines.greenup import (
    BECOMES_COMPUTE_BOUND,
    BOTH_COMPUTE_BOUND,
    BOTH_MEMORY_BOUND,
    bounds,
    case,
    greenup,
    speedup,
)
from analysis.rooflines.roofline import Roofline

CASE_TEXT = {
    BOTH_MEMORY_BOUND: "both memory-bound",
    BECOMES_COMPUTE_BOUND: "becomes compute-bound",
    BOTH_COMPUTE_BOUND: "both compute-bound",
}
WORK = np.geomspace(1.0, 4.0, 7)
"""The f of figure 8: how many times the operations are done."""
SAVED = np.geomspace(1.0, 16.0, 7)
"""The m of figure 8: by how much the bytes are divided."""
INTENSITIES = 5
PARETO_SHOWN = 6


def trade_off_points(line: Roofline) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intensity, f and m of figure 8's points, float64, of one length.

    Intensities from a quarter of the lesser balance to the greater of the two, as in the paper,
    and at least to twice the time balance, so that every case has points.
    """
    balance = line.time_balance
    above = line.energy_balance if math.isfinite(line.energy_balance) else balance
    intensity = np.geomspace(balance / 4.0, max(above, 2.0 * balance), INTENSITIES)
    i, f, m = np.meshgrid(intensity, WORK, SAVED, indexing="ij")
    some = (f > 1.0) | (m > 1.0)
    return i[some], f[some], m[some]


def greenup_figure(line: Roofline, setting: tuple[float, float], simulated: bool) -> Figure:
    """Greenup against speedup by case, with the least and the most bounds (seed 000, figure 8).

    The line's energies must be known.
    """
    i, f, m = trade_off_points(line)
    which = case(line, i, f, m)
    fast, green = speedup(line, i, f, m), greenup(line, i, f, m)
    limits = bounds(line, i, f, m)
    x, y = log_scale([*fast, 1.0], *FRAME.x, 0.05), log_scale([*green, 1.0], *FRAME.y, 0.05)
    where = f"{line.operation} on {line.memory} at {place_text(setting)}"
    where += ", simulated" if simulated else ""
    (left, right), (bottom, top) = FRAME.x, FRAME.y
    panels: list[Panel] = []
    for number, words in CASE_TEXT.items():
        mine = which == number
        if not mine.any():
            continue
        names = [
            f"I = {a:.3g}, f = {b:.3g}, m = {c:.3g}: speedup {d:.3g}, greenup {e:.3g}"
            for a, b, c, d, e in zip(
                i[mine], f[mine], m[mine], fast[mine], green[mine], strict=True
            )
        ]
        marks = [
            f'<path class="line even" d="M{px(x.at(1.0))} {px(bottom)}V{px(top)}"/>',
            f'<path class="line even" d="M{px(left)} {px(y.at(1.0))}H{px(right)}"/>',
        ]
        for value in (limits.speedup_low[mine].min(), limits.speedup_high[mine].max()):
            if x.low <= value <= x.high:
                at = px(x.at(float(value)))
                marks.append(f'<path class="line bound" d="M{at} {px(bottom)}V{px(top)}"/>')
        for value in (limits.greenup_low[mine].min(), limits.greenup_high[mine].max()):
            if y.low <= value <= y.high:
                up = px(y.at(float(value)))
                marks.append(f'<path class="line bound" d="M{px(left)} {up}H{px(right)}"/>')
        marks.append(dots(x, y, fast[mine], green[mine], names, "dot", 2.4))
        key, _ = legend(
            [("bound", "bounds of the case"), ("even", "1: as before")], FRAME, kind="line"
        )
        panels.append(
            panel(
                f"Greenup; {words}",
                "speedup",
                x,
                y,
                [key, *marks],
                f"Greenup against speedup, {words}: {int(mine.sum())} trade-offs, {where}",
            )
        )
    unit = unit_name(line.operation)
    return Figure(
        f"speedup_greenup_{line.operation}_{line.memory}",
        f"What f times the {line.operation} operations on a fraction 1/m of the {line.memory} "
        f"bytes would do to time and energy at {place_text(setting)}: f from 1 to {WORK[-1]:g}, "
        f"m from 1 to {SAVED[-1]:g}, intensities from {i.min():.3g} to {i.max():.3g} {unit}/B. "
        f"Modelled, after eqs. 15 and 16 of Choi & Vuduc's roofline of energy.",
        panels,
    )


def pareto_front(time_s: np.ndarray, energy_j: np.ndarray) -> np.ndarray:
    """The settings that no other beats in both time and energy: int64, by rising time.

    Of settings that are equal in both, the first is kept. NaN is never on the front.
    """
    order = np.lexsort((energy_j, time_s))
    front: list[int] = []
    least = math.inf
    for k in order:
        if math.isfinite(time_s[k]) and energy_j[k] < least:
            front.append(int(k))
            least = float(energy_j[k])
    return np.array(front, np.int64)


def shown_energy_j(among: Candidates) -> np.ndarray:
    """A kernel's energy at each setting: measured where it was, else predicted; float64, J."""
    return np.where(among.measured, among.measured_j, among.energy_j)


def pareto_panel(among: Candidates, picked: Pick | None, simulated: bool, name: str = "") -> Panel:
    """Energy against time of one kernel, with the Pareto front.

    Measured settings only, where there are any: what a person could have had. ``name``: how the
    kernel is called in the title.
    """
    eligible = among.measured if among.measured.any() else np.ones(len(among.time_s), bool)
    at = np.flatnonzero(eligible & np.isfinite(among.time_s))
    time_s, energy_j = among.time_s[at], shown_energy_j(among)[at]
    settings = [among.settings[k] for k in at]
    front = pareto_front(time_s, energy_j)
    x, y = log_scale([*time_s], *FRAME.x, 0.06), log_scale([*energy_j], *FRAME.y, 0.06)
    names = [
        f"{place_text(s)}: {t:.4g} s, {e:.4g} J"
        for s, t, e in zip(settings, time_s, energy_j, strict=True)
    ]
    marks = [
        _steps([(x.at(float(time_s[k])), y.at(float(energy_j[k]))) for k in front]),
        dots(x, y, time_s, energy_j, names, "dot faint"),
        dots(x, y, time_s[front], energy_j[front], [names[k] for k in front], "dot"),
    ]
    entries = [("dot", "on the front"), ("dot faint", "not")]
    if picked is not None and (picked.core_mhz, picked.mem_mhz) in settings:
        k = settings.index((picked.core_mhz, picked.mem_mhz))
        marks.append(
            f'<circle class="ring" cx="{px(x.at(float(time_s[k])))}" '
            f'cy="{px(y.at(float(energy_j[k])))}" r="6"/>'
        )
        entries.append(("ring", "the pick"))
    key, _ = legend(entries, FRAME, kind="dot")
    where = f"{among.label}{', simulated' if simulated else ''}"
    return panel(
        shortened(f"Energy, J: {name or among.label}", FRAME.width * 0.85),
        "time, s",
        x,
        y,
        [key, *marks],
        f"Energy against time over {len(at)} settings, {len(front)} on the Pareto front: {where}",
    )


def pareto_figure(among: dict[str, Candidates], picked: dict[str, Pick], simulated: bool) -> Figure:
    """Time and energy over the settings, a panel a kernel."""
    short = short_names(list(among))
    return Figure(
        "pareto",
        "Energy against time over the measured settings. The line joins the settings that no "
        "other one beats in both; the ring is the pick.",
        [pareto_panel(among[k], picked.get(k), simulated, short[k]) for k in among],
    )


def _steps(points: list[tuple[float, float]]) -> str:
    """The front as a staircase: between two of its points nothing is better than the first."""
    if not points:
        return ""
    path = f"M{px(points[0][0])} {px(points[0][1])}"
    for a, b in points[1:]:
        path += f"H{px(a)}V{px(b)}"
    return f'<path class="line front" d="{path}"/>'
