"""Simulated pairs of campaigns on the same points, with noise, drift and unlike nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.changes import Change, compare_site, with_adjusted
from dvfs.dataset import Columns
from tests.frames import as_columns

SITE = "s"
QUANTITIES = ("time_s", "energy_j")


@dataclass(frozen=True, kw_only=True)
class Campaigns:
    """How pairs of campaigns are simulated. Of (time, energy), as relative standard deviations:
    ``noise`` of one measurement of a typical kernel; ``drift`` of each repeat of the plan on each
    node; ``offset`` between nodes. Kernels' noise differs by ``spread`` (of its logarithm).
    ``nodes``: those of the first and of the second campaign; a worker takes the next point.
    """

    kernels: int = 20
    settings: int = 8
    repeats: int = 3
    nodes: tuple[Sequence[int], Sequence[int]] = ((0, 1), (0, 1))
    noise: tuple[float, float] = (0.003, 0.01)
    drift: tuple[float, float] = (0.001, 0.002)
    offset: tuple[float, float] = (0.01, 0.03)
    spread: float = 0.4


def pair(campaigns: Campaigns, seed: int, factor: np.ndarray | float = 1.0) -> list[Columns]:
    """Two campaigns; time and energy of the second are ``factor`` (kernels,) times the first's."""
    random = np.random.default_rng(seed)
    kernels, settings, most_nodes = campaigns.kernels, campaigns.settings, 16
    shape = (kernels, settings)
    truth = {name: random.normal(0.0, 1.0, shape) for name in QUANTITIES}
    offsets = {
        name: random.normal(0.0, size, most_nodes)
        for name, size in zip(QUANTITIES, campaigns.offset, strict=True)
    }
    unlike = np.exp(random.normal(0.0, campaigns.spread, kernels))
    index = np.array(list(product(range(campaigns.repeats), *map(range, shape))))
    repeat, kernel, setting = index.T
    datasets = []
    for names, change in zip(campaigns.nodes, (1.0, factor), strict=True):
        node = random.choice(names, len(index))
        columns: dict[str, Any] = {}
        for name, noise, drift in zip(QUANTITIES, campaigns.noise, campaigns.drift, strict=True):
            of_session = random.normal(0.0, drift, (campaigns.repeats, most_nodes))
            log_value = truth[name][kernel, setting] + offsets[name][node]
            log_value += of_session[repeat, node]
            log_value += random.normal(0.0, 1.0, len(index)) * noise * unlike[kernel]
            columns[name] = np.exp(log_value) * np.broadcast_to(change, kernels)[kernel]
        columns |= {
            "core_mhz": 1000.0 + setting,
            "repeat": repeat,
            "kernel": [f"k{i}" for i in kernel],
            "node": [f"n{i}" for i in node],
        }
        fixed = {"site": SITE, "partition": "p", "params": "{}", "status": "ok", "setup": ""}
        fixed |= {"mem_mhz": np.nan, "start_unix_s": 0.0, "ranks": 1, "simulated": False}
        datasets.append(as_columns(pd.DataFrame(fixed | columns)))
    return datasets


def changes_of(campaigns: Campaigns, seed: int, factor: np.ndarray | float = 1.0) -> list[Change]:
    """The changes that a comparison of a simulated pair finds."""
    before, after = pair(campaigns, seed, factor)
    return with_adjusted(compare_site(before, after, SITE)[1])
