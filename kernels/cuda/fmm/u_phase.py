r"""The U phase of the FMM on a GPU: parameters, jobs and counts.

The result is the same as in the host's :mod:`kernels.fmm_u.kernel`: for every point t of every leaf
the sum of q / \|t - s\| over the points s of its U list, without s = t (Ying, Biros & Zorin 2004,
section 3.1). :mod:`kernels.cuda.fmm.direct` describes the operation counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from pydantic import Field

from kernels.cuda.device import Gpu
from kernels.cuda.fmm.direct import (
    FUNCTION,
    DirectVariant,
    count_direct,
    direct_source,
    executed_pairs,
    in_planes,
    shared_bytes,
    tolerance,
)
from kernels.cuda.fmm.direct_jobs import DirectJobs, Places, make_jobs
from kernels.cuda.processor import WARP
from kernels.cuda.program import NEEDS, compile_program
from kernels.fmm.distributions import Distribution
from kernels.fmm_u.kernel import UPhaseSchedule, make_schedule
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, ResultError, not_compiled

CHECKED = 100
"""The number of targets whose sums are checked."""
MOST_ROWS = 65_535
"""The most blocks of a grid along y."""


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
    # After the last leaf follows one group without points.
    leaves = Places(schedule.first, sizes, schedule.slots // WARP - 1)
    return UWork(schedule, make_jobs(leaves, leaves, schedule.shares[0].pairs, warps, tile))


def work_of(params: GpuFmmUParams) -> UWork:
    """The work of one iteration, the same on every GPU."""
    return _work(
        params.n, params.q, params.distribution, params.precision, params.warps, params.tile
    )


def laid_out(work: UWork, params: GpuFmmUParams) -> np.ndarray:
    """The points in the layout of the source: (planes, slots, numbers in a vector)."""
    from kernels.fmm.tree.layout import BEYOND  # noqa: PLC0415

    schedule = work.schedule
    points = np.full((schedule.slots, 4), BEYOND, params.dtype)
    points[:, 3] = 0
    points[schedule.slot, :3] = schedule.leaves.points
    points[schedule.slot, 3] = schedule.leaves.charges
    return in_planes(points, params)


def count_u_phase(params: GpuFmmUParams) -> Counts:
    """Operations and bytes of one iteration of one rank, which does not share its GPU."""
    return count_direct(params, work_of(params).jobs)


def u_metrics(params: GpuFmmUParams) -> dict[str, float]:
    """``useful_pairs``: of the U lists, without pairs of a point with itself; ``executed_pairs``;
    ``jobs``: blocks of threads; ``shared_bytes``: of a block; ``shared_once_bytes``: as the count
    ``shared``, but a source that all lanes of a warp load counts once."""
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


class UPhaseRun:
    """The kernel with its points and lists on the GPU."""

    def __init__(self, params: GpuFmmUParams, team: Team) -> None:
        self._params = params
        self._gpu = Gpu(team)
        try:
            self._work = _built(params)
            program = compile_program(direct_source(params), self._gpu.architecture)
            self._function = self._gpu.function(program, FUNCTION)
            self._sums = np.zeros(self._work.schedule.slots, params.dtype)
            jobs = self._work.jobs
            self._sums_on_gpu = self._gpu.array(self._sums)
            points = self._gpu.array(laid_out(self._work, params))
            slots = np.int64(len(self._sums))
            self._arguments = [self._sums_on_gpu, points, slots, points, slots]
            self._arguments += map(self._gpu.array, (jobs.groups, jobs.jobs))
            self.run(1)
        except BaseException:
            self._gpu.close()
            raise

    def run(self, iterations: int) -> None:
        """Run all iterations in as few launches as possible, one row of the grid per iteration. The
        GPU starts blocks as others end, so that processors wait only at the end of a launch,
        although jobs differ in length."""
        for done in range(0, iterations, MOST_ROWS):
            rows = min(iterations - done, MOST_ROWS)
            self._gpu.run(
                self._function,
                (len(self._work.jobs.jobs), rows),
                self._params.threads,
                *self._arguments,
            )

    def counts(self) -> Counts:
        """Operations and bytes of one iteration."""
        return count_u_phase(self._params)

    def check(self) -> None:
        """Compare some targets' sums with sums by NumPy."""
        check_sums(self._params, self._work, self._gpu.copied(self._sums_on_gpu, self._sums))

    def close(self) -> None:
        """Release the GPU's memory."""
        self._gpu.close()


def _built(params: GpuFmmUParams) -> UWork:
    """The work of the parameters; raises :class:`KernelError` if building the tree fails."""
    try:
        return work_of(params)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    except MemoryError:
        raise KernelError(
            f"{params.n} points with q {params.q} do not fit in memory: choose a smaller n"
        ) from None


def check_sums(params: GpuFmmUParams, work: UWork, sums: np.ndarray) -> None:
    r"""Compare :data:`CHECKED` targets' sums with sums over their U lists by NumPy in double
    precision. Errors are relative to the sum of \|q\| / r.

    ``sums``: (slots,). Raises :class:`ResultError`.
    """
    schedule = work.schedule
    leaves, tree = schedule.leaves, schedule.leaves.tree
    in_order = tree.leaves[np.argsort(tree.begin[tree.leaves], kind="stable")]
    # Evenly spaced along the Z curve, to include leaves from the whole domain.
    count = min(CHECKED, params.n)
    for number in np.linspace(0, params.n - 1, count).astype(np.int64):
        leaf = in_order[np.searchsorted(tree.end[in_order], number, side="right")]
        target = tree.order[number]
        right, scale, terms = leaves.sum_at(leaf, target)
        computed = float(sums[schedule.slot[target]]) / params.unit
        allowed = tolerance(params, terms) * scale
        if not abs(computed - right) <= allowed:
            raise ResultError(
                f"the sum at point {target} is {computed:.17g}, not {right:.17g} (difference "
                f"{abs(computed - right):.3g}, allowed {allowed:.3g})"
            )


gpu_fmm_u = Kernel(
    name="gpu_fmm_u",
    summary="the U phase (P2P) of a fast multipole method on a GPU, in variants",
    counted="as gpu_fmm",
    classes=("sp", "dp", "sfu", "int", "shared", "l2", "dram"),
    params=GpuFmmUParams,
    counts=count_u_phase,
    metrics=u_metrics,
    prepare=UPhaseRun,
    needs=NEEDS,
    imports=("kernels.fmm.tree.lists", "kernels.fmm.phases.u_schedule"),
)
