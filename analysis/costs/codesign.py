"""The best chip for a workload of stencils (Prajapati 2019, appendix C: C.8 to C.19).

The search is exhaustive: every design with every tile and every number of tiles at a time. The time
of a stencil on a design depends on no other stencil (C.19): the table of least times is computed
once, and a workload is a weighted sum over its columns.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal, get_args

import numpy as np

from analysis.costs.gpu_area import MAXWELL_28NM, AreaModel, gpu_area_mm2
from analysis.costs.stencil_time import Constants, Form, tile_bytes

KB = 1024
Objective = Literal["time", "energy", "edp"]


@dataclass(frozen=True, kw_only=True)
class Energies:
    """The energies of a design: constant power of the chip and of each mm2, W, and J of a word to
    or from memory. The energy of a point is part of the stencil's work."""

    constant_w: float = 0.0
    constant_w_per_mm2: float = 0.0
    word_j: float = 0.0


@dataclass(frozen=True, kw_only=True)
class StencilWork:
    """A stencil of the workload: seconds of a point on a vector unit (C_iter), flops and J of a
    point, its ``weight``, and its problems: points along each of ``axes`` axes, steps, and
    frequency (fr), each (problems,)."""

    name: str
    axes: int
    iteration_s: float
    flops: float
    weight: float
    sizes: np.ndarray
    steps: np.ndarray
    often: np.ndarray
    iteration_j: float = 0.0

    @property
    def points(self) -> np.ndarray:
        """Points times steps of each problem, float64 (problems,)."""
        return np.asarray(self.sizes.astype(float) ** self.axes * self.steps)


@dataclass(frozen=True, kw_only=True, eq=False)
class Designs:
    """Chips: processors, vector units of each, and kB of on-chip memory of each, int64 or float64
    (designs,); ``area_mm2``, float64."""

    processors: np.ndarray
    lanes: np.ndarray
    on_chip_kb: np.ndarray
    area_mm2: np.ndarray

    def __len__(self) -> int:
        return len(self.processors)

    def take(self, rows: np.ndarray) -> Designs:
        """A subset of the designs."""
        return Designs(**{name: column[rows] for name, column in vars(self).items()})


def designs_of(
    processors: np.ndarray,
    lanes: np.ndarray,
    on_chip_kb: np.ndarray,
    *,
    caches: bool = True,
    model: AreaModel = MAXWELL_28NM,
) -> Designs:
    """Designs with their areas."""
    return Designs(
        processors=np.asarray(processors, np.int64),
        lanes=np.asarray(lanes, np.int64),
        on_chip_kb=np.asarray(on_chip_kb, float),
        area_mm2=gpu_area_mm2(processors, lanes, on_chip_kb, caches, model),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class BestTiles:
    """The best tile of one stencil on every design: float64 ``time_s``, ``energy_j`` and int64
    ``tile`` (index of the tile; -1 if none fits) and ``k`` (tiles at a time), each
    (designs, problems)."""

    time_s: np.ndarray
    energy_j: np.ndarray
    tile: np.ndarray
    k: np.ndarray


def best_tiles(
    designs: Designs,
    work: StencilWork,
    tiles: Mapping[str, np.ndarray],
    constants: Constants,
    *,
    form: Form = "corrected",
    objective: Objective = "time",
    energies: Energies | None = None,
) -> BestTiles:
    """The best tile and k on every design, over all tiles and k to ``constants.blocks`` that fit.

    ``tiles``: ``tile_t`` (even), ``tile_1``, ... of each, int64 (tiles,).
    """
    from analysis.costs.codesign_search import search  # noqa: PLC0415  (it needs Numba)

    high = np.asarray(tiles["tile_t"], np.int64)
    lengths = np.ones((len(high), 3), np.int64)
    for axis in range(work.axes):
        lengths[:, axis] = tiles[f"tile_{axis + 1}"]
    needed = tile_bytes(lengths[:, : work.axes], high)
    shape = (len(designs), len(work.sizes))
    time_s, energy_j = np.empty(shape), np.empty(shape)
    tile, k = np.empty(shape, np.int64), np.empty(shape, np.int64)
    energy = energies or Energies()
    for rows in _groups(designs):
        part = designs.take(rows)
        with _interrupts_wait():
            results = search(
                (part.processors, part.lanes, part.on_chip_kb * KB),
                energy.constant_w + energy.constant_w_per_mm2 * part.area_mm2,
                (lengths, high, needed),
                (work.sizes.astype(np.int64), work.steps.astype(np.int64)),
                (work.axes, work.iteration_s, work.iteration_j, energy.word_j),
                (constants.seconds_per_word, constants.barrier_s, constants.launch_s),
                (constants.block_bytes, constants.blocks),
                form == "corrected",
                get_args(Objective).index(objective),
            )
        time_s[rows], energy_j[rows], tile[rows], k[rows] = results
    return BestTiles(time_s=time_s, energy_j=energy_j, tile=tile, k=k)


def _groups(designs: Designs) -> list[np.ndarray]:
    """The indices of designs with equal processors and vector units, by rising on-chip memory."""
    order = np.lexsort((designs.on_chip_kb, designs.lanes, designs.processors))
    group_keys = np.stack([designs.processors[order], designs.lanes[order]])
    return np.split(order, np.flatnonzero((np.diff(group_keys) != 0).any(axis=0)) + 1)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Delay SIGINT until a short compiled call has ended: an exception in its results is fatal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def totals(best: BestTiles, work: StencilWork) -> tuple[np.ndarray, np.ndarray]:
    """Time and energy (designs,) of a stencil's problems together, without its weight (C.18)."""
    return best.time_s @ work.often, best.energy_j @ work.often


def scores(time_s: np.ndarray, energy_j: np.ndarray, objective: Objective) -> np.ndarray:
    """The values that the objective minimises."""
    scored: dict[Objective, np.ndarray]
    scored = {"time": time_s, "energy": energy_j, "edp": time_s * energy_j}
    return scored[objective]


def weighted(values: np.ndarray, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """The weighted sums (designs,) of values (designs, stencils). A stencil without weight does not
    count, even if its value is infinite because no tile fits. Equal designs have equal sums, which
    a matrix product does not guarantee."""
    weight = np.asarray(weights, float)
    used = weight > 0
    return np.asarray((values[:, used] * weight[used]).sum(axis=1))


@dataclass(frozen=True)
class BestAtShare:
    """The ``design`` (index) that is best while the weight of ``stencil`` (index) is a share of all
    weights from ``low`` to ``high``."""

    stencil: int
    design: int
    low: float
    high: float


def by_weight(costs: np.ndarray, weights: Sequence[float], steps: int = 100) -> list[BestAtShare]:
    """The best designs for other weights, from the costs (designs, stencils).

    The weight of each stencil in turn goes from 0 to 1 of the total, and the others keep their
    proportions. If the others have no weight, it is 1.
    """
    weight = np.asarray(weights, float)
    rows: list[BestAtShare] = []
    for stencil in range(len(weight)):
        rest = np.delete(weight, stencil)
        shares = np.linspace(0.0, 1.0, steps + 1)
        rest_cost = costs[:, stencil]
        if rest.any():
            rest_cost = weighted(np.delete(costs, stencil, axis=1), rest / rest.sum())
        else:
            shares = shares[-1:]
        pair = np.stack([costs[:, stencil], rest_cost], axis=1)
        best = [int(np.argmin(weighted(pair, [share, 1.0 - share]))) for share in shares]
        for design, run in groupby(zip(best, shares.tolist(), strict=True), key=itemgetter(0)):
            at = [share for _, share in run]
            rows.append(BestAtShare(stencil, design, low=at[0], high=at[-1]))
    return rows
