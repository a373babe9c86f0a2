r"""The U phase of the FMM on a GPU: parameters, jobs and counts.

What is computed is what the host's :mod:`kernels.fmm_u.kernel` computes: for every point t of every
leaf the sum of q / \|t - s\| over the points s of its U list, s = t left out (Ying, Biros & Zorin
2004, section 3.1). How operations are counted: :mod:`kernels.cuda.fmm.direct`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from pydantic import Field

from kernels.cuda.fmm.direct import (
    DirectVariant,
    count_direct,
    executed_pairs,
    in_planes,
    shared_bytes,
)
from kernels.cuda.fmm.direct_jobs import DirectJobs, Places, make_jobs
from kernels.cuda.processor import WARP
from kernels.fmm.distributions import Distribution
from kernels.fmm_u.kernel import UPhaseSchedule, make_schedule
from kernels.kernel import Counts


class GpuFmmUParams(DirectVariant):
    """The points, and the variant."""

    n: int = Field(default=262_144, ge=1, le=1 << 26)
    """points"""
    q: int = Field(default=640, ge=1)
    """most points in a leaf of the octree"""
    distribution: Distribution = "uniform"
    """where the points lie"""


@dataclass(frozen=True)
class UWork:
    """The points in slots, and the jobs."""

    schedule: UPhaseSchedule
    jobs: DirectJobs


@lru_cache(maxsize=4)
def _work(n: int, q: int, distribution: str, precision: str, warps: int, tile: int) -> UWork:
    schedule = make_schedule(n, q, precision, "one", WARP, 1, distribution)
    sizes = np.where(schedule.leaves.tree.first_child < 0, schedule.leaves.sizes, 0)
    # Behind the last leaf is one more group, without points.
    leaves = Places(schedule.first, sizes, schedule.slots // WARP - 1)
    return UWork(schedule, make_jobs(leaves, leaves, schedule.shares[0].pairs, warps, tile))


def work_of(params: GpuFmmUParams) -> UWork:
    """The work of one iteration, the same on every GPU."""
    return _work(
        params.n, params.q, params.distribution, params.precision, params.warps, params.tile
    )


def laid_out(work: UWork, params: GpuFmmUParams) -> np.ndarray:
    """The points as the source reads them: (planes, slots, numbers of a vector)."""
    from kernels.fmm.tree.layout import BEYOND  # noqa: PLC0415

    schedule = work.schedule
    points = np.full((schedule.slots, 4), BEYOND, params.dtype)
    points[:, 3] = 0
    points[schedule.slot, :3] = schedule.leaves.points
    points[schedule.slot, 3] = schedule.leaves.charges
    return in_planes(points, params)


def count_u_phase(params: GpuFmmUParams) -> Counts:
    """Operations and bytes of one iteration of one rank, which has a GPU of its own."""
    return count_direct(params, work_of(params).jobs)


def u_metrics(params: GpuFmmUParams) -> dict[str, float]:
    """``useful_pairs``: of the U lists, a point with itself left out; ``executed_pairs``; ``jobs``:
    blocks of threads; ``shared_bytes``: of a block; ``shared_once_bytes``: as the count ``shared``,
    with a source that all lanes of a warp load counted once."""
    work = work_of(params)
    pairs, point_bytes = executed_pairs(params, work.jobs), 4 * params.dtype.itemsize
    staged = work.jobs.chunks * params.threads * point_bytes
    return {
        "useful_pairs": float(work.schedule.leaves.interactions()),
        "executed_pairs": float(pairs),
        "jobs": float(len(work.jobs.jobs)),
        "shared_bytes": float(shared_bytes(params)),
        "shared_once_bytes": float(staged + pairs // (params.tile * WARP) * point_bytes),
    }
