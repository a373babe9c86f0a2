"""The losses of a search, simulated on candidates that have all been measured."""

from __future__ import annotations

import numpy as np

from analysis.choice.objectives import Objective
from analysis.search.candidates import Candidates, Measured
from analysis.search.strategies import next_batch


def score(objective: Objective, costs: np.ndarray) -> np.ndarray:
    """Return the objective (n,) of energies (J) and times (s) ``costs`` (n, 2); NaN where one that
    it needs is missing."""
    scores = np.full(len(costs), np.nan)
    energy_j, time_s = np.where(np.isfinite(costs), costs, np.nan).T
    needed = np.isfinite(time_s) & (np.isfinite(energy_j) | (objective.unit == "s"))
    if needed.any():
        scores[needed] = objective.score(energy_j[needed], time_s[needed])
    return scores


def play(
    candidates: Candidates,
    costs: np.ndarray,
    objective: Objective,
    strategy: str,
    *,
    budget: int,
    batch: int,
    seed: int,
) -> np.ndarray:
    """Return the score of the best measured candidate above the least of all, a fraction, after
    each measurement: (budget,), infinite before the first that did not fail. After the end of the
    search the loss stays the same.

    ``costs``: (N, 2), energy (J) and time (s) of all candidates; NaN for those that failed.
    ``budget``: at most N. The strategy sees only the costs of candidates that it has chosen.
    """
    all_scores = score(objective, costs)
    least = np.nanmin(all_scores)
    rows = np.empty(0, np.int64)
    lost = np.full(budget, np.inf)
    while len(rows) < budget:
        measured_rows = np.sort(rows)
        measured = Measured(measured_rows, score(objective, costs[measured_rows]))
        chosen = next_batch(strategy, candidates, measured, min(batch, budget - len(rows)), seed)
        if not len(chosen):  # the strategy has ended its search
            break
        rows = np.concatenate([rows, chosen])
    for count in range(1, budget + 1):
        scores = score(objective, costs[rows[:count]])
        if np.isfinite(scores).any():
            lost[count - 1] = all_scores[rows[np.nanargmin(scores)]] / least - 1.0
    return lost
