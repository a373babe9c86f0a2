"""Measured energy by phase, as stacked bars (Choi & Vuduc 2016, figures 6 and 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.figures.energy_shares import SHOWN, stacked_panel
from analysis.figures.figure import Figure
from analysis.figures.labels import file_stem, natural
from analysis.measurements.phase_energy import FASTEST, LEAST, PhaseSplit
from dvfs.kernel_instance import KernelInstance, short_labels


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
    most_j: dict[str, float] = {}
    for split in splits:
        most_j[split.label] = max(most_j.get(split.label, 0.0), float(split.energy_j.sum()))
    kept = set(sorted(most_j, key=lambda kernel: -most_j[kernel])[:SHOWN])
    shown = sorted((s for s in splits if s.label in kept), key=lambda s: natural(s.label))
    phases = list(dict.fromkeys(phase for split in shown for phase in split.phases))
    joules = {phase: np.full(len(shown), math.nan) for phase in phases}
    for i, split in enumerate(shown):
        for phase, energy_j in zip(split.phases, split.energy_j, strict=True):
            joules[phase][i] = energy_j
    whole_j = np.array([split.energy_j.sum() for split in shown])
    whole_j[~(whole_j > 0)] = math.nan
    bars = [KernelInstance(split.kernel, {**split.params, "at": _clocks(split)}) for split in shown]
    rows, names = [bar.label for bar in bars], short_labels(bars)
    where = f"{site}{', simulated' if simulated else ''}"
    left_out = "" if len(kept) == len(most_j) else f" The {len(kept)} kernels with the most energy."
    shares = {phase: values / whole_j * 100.0 for phase, values in joules.items()}
    return Figure(
        f"phase_energy_{file_stem(program)}",
        f"Measured energy of an iteration of {program} by phase, where each kernel is {FASTEST} "
        f"and where it took the {LEAST}, core/memory MHz.{left_out}",
        [
            stacked_panel(
                title,
                f"{what}, {unit}",
                rows,
                parts,
                unit=unit,
                description=f"{about}, {where}",
                names=names,
                wide=True,
            )
            for title, what, parts, unit, about in (
                (
                    "Measured energy by phase, J",
                    "measured energy of an iteration",
                    joules,
                    "J",
                    f"Measured energy of {program} by phase",
                ),
                (
                    "Share of the measured energy, %",
                    "share of the measured energy",
                    shares,
                    "%",
                    f"Shares of the measured energy of {program} by phase",
                ),
            )
        ],
    )


def _clocks(split: PhaseSplit) -> str:
    """A setting as one word: ``852/924``."""
    return split.setting.option_text.replace(",", "/")
