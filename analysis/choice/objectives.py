"""What a choice of settings minimises: energy, time, or a combination of both.

A new objective is one entry in :data:`OBJECTIVES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dvfs.errors import unknown_name

if TYPE_CHECKING:
    import numpy as np

STEP = 1e-4
"""The relative step of numerical derivatives, ..."""
DIGITS = 6
"""... and their digits after the point: those of products of powers are exact."""


@dataclass(frozen=True)
class Objective:
    """A quantity to minimise.

    ``name``: on the command line. ``title``: in reports. ``unit``: of the score.
    ``score``: (energy_j, time_s) -> float64 of their shape; settings lie along the first axis.
    """

    name: str
    title: str
    unit: str
    score: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def exponents(self, energy_j: np.ndarray, time_s: np.ndarray) -> np.ndarray:
        """Return by how much each log score rises with its log energy and with its log time,
        float64 (2, settings), of energies and times (settings,)."""
        import numpy as np  # noqa: PLC0415

        def log_scores(energy_factor: float, time_factor: float) -> np.ndarray:
            # A score may be relative to the least of all: these stay what they are.
            energies = np.concatenate([energy_j * energy_factor, energy_j])
            times = np.concatenate([time_s * time_factor, time_s])
            scores: np.ndarray = np.log(self.score(energies, times)[: len(energy_j)])
            return scores

        now, more = log_scores(1.0, 1.0), 1.0 + STEP
        rises = np.stack([log_scores(more, 1.0) - now, log_scores(1.0, more) - now])
        return np.asarray(np.round(rises / np.log(more), DIGITS))


def _weighted(name: str, alpha: float) -> Objective:
    """Return alpha t + (1 - alpha) e, each relative to its least (Anzt et al. 2015, eq. 2)."""

    def score(energy_j: np.ndarray, time_s: np.ndarray) -> np.ndarray:
        relative_s, relative_j = time_s / time_s.min(axis=0), energy_j / energy_j.min(axis=0)
        weighted: np.ndarray = alpha * relative_s + (1.0 - alpha) * relative_j
        return weighted

    return Objective(name, f"weighted time and energy (alpha {alpha:g})", "1", score)


ENERGY = Objective("energy", "energy", "J", lambda energy_j, time_s: energy_j)
TIME = Objective("time", "time", "s", lambda energy_j, time_s: time_s)
OBJECTIVES = {
    objective.name: objective
    for objective in (
        ENERGY,
        TIME,
        Objective("edp", "energy-delay product", "J s", lambda e, t: e * t),
        Objective("ed2p", "energy-delay-squared product", "J s^2", lambda e, t: e * t**2),
    )
}
WEIGHTED = "weighted"
OBJECTIVE_HELP = (
    f"{', '.join(OBJECTIVES)}, or {WEIGHTED}:ALPHA (alpha t + (1 - alpha) e, time and energy each "
    f"relative to the least of the kernel)"
)


def objective(text: str) -> Objective:
    """Return the objective with a name: a key of :data:`OBJECTIVES`, or ``weighted:0.3``.

    Raises:
        FitError: no objective has the name.
    """
    from analysis.measurements.observations import FitError  # noqa: PLC0415

    if text in OBJECTIVES:
        return OBJECTIVES[text]
    kind, _, number = text.partition(":")
    try:
        alpha = float(number)
    except ValueError:
        alpha = -1.0
    if kind != WEIGHTED or not 0.0 <= alpha <= 1.0:
        raise FitError(
            f"--objective: {unknown_name('objective', text, OBJECTIVES)}, or "
            f"{WEIGHTED}:ALPHA with ALPHA from 0 to 1, such as {WEIGHTED}:0.3"
        )
    return _weighted(text, alpha)
