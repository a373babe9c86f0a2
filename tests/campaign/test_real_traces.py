"""Energies of real GPUs hold their stated uncertainty, beside an external meter.

The traces are those of tests/data/gpu_power_traces. The calibration that sites/meters/nvml.py
states was found from these same boards, so what is tested here is that it and the rest of the
uncertainty add up to what was measured; not how other boards are calibrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from campaign.store.channel_energy import channel_energy
from campaign.store.measurement import Trace
from sites.meters import Channel
from sites.meters.nvml import (
    GAIN_PCT,
    OFFSET_W,
    PARTLY_SEEN,
    PARTLY_SEEN_AVERAGING_S,
    PARTLY_SEEN_SHARE,
    PERIOD_S,
)

DATA = Path(__file__).parents[1] / "data/gpu_power_traces"
AVERAGING_S = {"K40m": 0.015}
"""What a reading is the mean of, where it is not the period (arXiv 2312.02741)."""
SHORTEST_S, LONGEST_S = 0.5, 6.0
MARGIN_S = 0.2
"""Of a trace, what no window reaches into at each end."""
SPREAD = 3.0
"""The stated interval of two standard uncertainties is at most this many true deviations."""


@dataclass(frozen=True)
class RealTrace:
    """A GPU's readings and the external meter's energy, from a common zero of time."""

    name: str
    channel: Channel
    trace: Trace
    external_s: np.ndarray
    external_j: np.ndarray

    @property
    def board(self) -> str:
        return self.name.partition("-")[2]


@dataclass(frozen=True)
class Judged:
    """A window: J of the external meter, and of the GPU's readings with its uncertainty."""

    name: str
    true_j: float
    energy_j: float
    std_j: float

    @property
    def is_inside(self) -> bool:
        return abs(self.energy_j - self.true_j) <= 2.0 * self.std_j

    @property
    def error(self) -> float:
        """Relative to the energy."""
        return self.energy_j / self.true_j - 1.0


def channel_of(board: str) -> Channel:
    """A GPU's power as sites/meters/nvml.py states it, with the averaging that is known of it."""
    is_partly_seen = PARTLY_SEEN.search(board) is not None
    averaging_s = PARTLY_SEEN_AVERAGING_S if is_partly_seen else AVERAGING_S.get(board, PERIOD_S)
    return Channel(
        name="gpu-0/power",
        domain="gpu",
        kind="power",
        resolution=0.01,
        period_s=min(PERIOD_S, AVERAGING_S.get(board, PERIOD_S)),
        averaging_s=averaging_s,
        seen=PARTLY_SEEN_SHARE if is_partly_seen else 1.0,
        gain_pct=GAIN_PCT,
        offset_w=OFFSET_W,
    )


def read_traces() -> Iterator[RealTrace]:
    """Each trace, with the readings that were left out because they were not new."""
    for name, poll_s in pd.read_csv(DATA / "polls.csv").itertuples(index=False):
        gpu = pd.read_csv(DATA / f"{name}.gpu.csv").to_numpy()
        external = pd.read_csv(DATA / f"{name}.external.csv").to_numpy()
        held_s = np.diff(gpu[:, 0])
        polls = np.append(np.maximum(np.round(held_s / poll_s), 1).astype(int), 1)
        nth = np.arange(polls.sum()) - np.repeat(np.cumsum(polls) - polls, polls)
        time_s = np.repeat(gpu[:, 0], polls) + nth * poll_s
        power_w = np.repeat(gpu[:, 1], polls)
        channel = channel_of(name.partition("-")[2])
        time_ns = np.round(time_s * 1e9).astype(np.int64)
        trace = Trace(channel.name, channel.domain, "W", time_ns, power_w)
        yield RealTrace(name, channel, trace, external[:, 0], external[:, 1])


def judge(windows: int, seed: int) -> list[Judged]:
    """Random windows of random traces; their edges are at values of the external meter."""
    rng = np.random.default_rng(seed)
    traces = list(read_traces())
    judged = []
    for _ in range(windows):
        real = traces[rng.integers(len(traces))]
        first, last = np.searchsorted(
            real.external_s, [MARGIN_S, real.external_s[-1] - MARGIN_S]
        ).tolist()
        grid_s = float(real.external_s[1] - real.external_s[0])
        length = round(rng.uniform(SHORTEST_S, LONGEST_S) / grid_s)
        begin = int(rng.integers(first, last - length + 1))
        edges = [begin, begin + length]
        begin_ns, end_ns = (round(t * 1e9) for t in real.external_s[edges].tolist())
        true_j = float(np.diff(real.external_j[edges])[0])
        energy = channel_energy(real.trace, real.channel, begin_ns, end_ns)
        judged.append(Judged(real.name, true_j, energy.energy_j, energy.std_j))
    return judged


def root_mean_square(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def test_energies_of_real_gpus_hold_their_stated_uncertainty() -> None:
    judged = judge(windows=1000, seed=0)
    assert np.mean([window.is_inside for window in judged]) >= 0.95
    stated = root_mean_square([window.std_j / window.true_j for window in judged])
    spread = root_mean_square([window.error for window in judged])
    assert 2.0 * stated <= SPREAD * spread
