"""Measured energy by phase, as stacked bars (seed 003, figures 6 and 7)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from analysis.figures.axes import Figure
from analysis.figures.energy_shares import SHOWN, stacked_panel
from analysis.figures.families import natural
from analysis.measurements.phase_energy import FASTEST, LEAST, PhaseSplit

WIDTH = 780
LABEL_WIDTH = 250


def measured_phase_figures(
    splits: Sequence[PhaseSplit], site: str, simulated: bool
) -> list[Figure]:
    """A figure for each program that marks phases: joules of an iteration and their shares.

    A bar a kernel and setting, where it is fastest and where it took the least energy. Of more
    than 16 kernels those with the most energy are drawn.
    """
    programs: dict[str, list[PhaseSplit]] = {}
    for split in splits:
        programs.setdefault(split.kernel, []).append(split)
    return [_figure(name, mine, site, simulated) for name, mine in sorted(programs.items())]


def _figure(program: str, splits: Sequence[PhaseSplit], site: str, simulated: bool) -> Figure:
    most = {each.label: 0.0 for each in splits}
    for each in splits:
        most[each.label] = max(most[each.label], float(each.energy_j.sum()))
    kept = set(sorted(most, key=lambda kernel: -most[kernel])[:SHOWN])
    shown = sorted((each for each in splits if each.label in kept), key=lambda s: natural(s.label))
    phases = list(dict.fromkeys(phase for each in shown for phase in each.phases))
    joules = {phase: np.full(len(shown), math.nan) for phase in phases}
    for i, each in enumerate(shown):
        for phase, energy_j in zip(each.phases, each.energy_j, strict=True):
            joules[phase][i] = energy_j
    whole_j = np.array([each.energy_j.sum() for each in shown])
    whole_j[~(whole_j > 0)] = math.nan
    # "at=" makes the setting a parameter, so that what all bars have in common is left out.
    rows = [f"{each.label} at={_clocks(each)}" for each in shown]
    where = f"{site}{', simulated' if simulated else ''}"
    left_out = "" if len(kept) == len(most) else f" The {len(kept)} kernels with the most energy."
    return Figure(
        f"phase_energy_{re.sub(r'[^A-Za-z0-9]+', '-', program).strip('-')}",
        f"Measured energy of an iteration of {program} by phase, where each kernel is {FASTEST} "
        f"and where it took the {LEAST}, core/memory MHz.{left_out}",
        [
            stacked_panel(
                "Measured energy by phase, J",
                "measured energy of an iteration, J",
                rows,
                joules,
                "J",
                f"Measured energy of {program} by phase, {where}",
                WIDTH,
                LABEL_WIDTH,
            ),
            stacked_panel(
                "Share of the measured energy, %",
                "share of the measured energy, %",
                rows,
                {phase: each / whole_j * 100.0 for phase, each in joules.items()},
                "%",
                f"Shares of the measured energy of {program} by phase, {where}",
                WIDTH,
                LABEL_WIDTH,
            ),
        ],
        wide=True,
    )


def _clocks(split: PhaseSplit) -> str:
    """A setting as one word: ``852/924``."""
    known = [f"{mhz:g}" for mhz in (split.core_mhz, split.mem_mhz) if not math.isnan(mhz)]
    return "/".join(known) or "as-found"
