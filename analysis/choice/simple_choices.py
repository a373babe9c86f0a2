"""What a pick is compared with: the best single setting for all kernels, and the kernel's best
measured one. Both need no model; a pick that is not surely better than them should not be made for
the model's sake."""

from __future__ import annotations

import numpy as np

from analysis.choice.losses import rank_single_settings
from analysis.choice.objectives import Objective
from analysis.measurements.observations import Observations
from dvfs.setting import Setting


def best_single_setting(data: Observations, objective: Objective) -> Setting:
    """The measured setting that is best on average over all kernels
    (:func:`~analysis.choice.losses.rank_single_settings`)."""
    rank = rank_single_settings(data, objective)
    return data.settings[int(np.argmin(rank))]


def better_than(scores: np.ndarray, chosen: int, other: int) -> tuple[float, float]:
    """How much more the other setting is expected to cost than the chosen one, in %, and the
    probability that it costs more; of draws (settings, draws) of the score.

    A setting is not better than itself: 0 and 0.
    """
    if chosen == other:
        return 0.0, 0.0
    more = scores[other] / scores[chosen] - 1.0
    return float(more.mean() * 100.0), float(np.mean(more > 0.0))
