"""The U phase of the FMM on a GPU: parameters, jobs and counts.

What is computed is what the host's :mod:`kernels.fmm_u.kernel` computes: for every point t of every
leaf the sum of q / \\|t - s\\| over the points s of its U list, s = t left out (Ying, Biros & Zorin
2004, section 3.1). That r = 0 adds nothing is decided for every pair, by a comparison and a
selection.

How operations are counted, all for one iteration, of padded targets and sources too:

``sp``, ``dp``: flops as executed; a multiply-add is two. ``sfu``: estimates of 1 / sqrt(x), one
for each pair. ``int``: two for each pair, the comparison of r^2 with the smallest normal number and
the selection. What addresses and loops need is not counted, nor what is executed once a chunk.

``shared``: bytes that threads store, once for each source staged, and load: the sources that pass,
in each lane of a warp, though all lanes load the same ones.

Bytes of global memory, all of which is accessed beyond the first cache. ``dram``: every group of
points in a list, the lists, the jobs and the sums once, as from a cold cache. ``l2``: all other
loads. Numbers that all lanes of a warp load from one address, those of jobs and lists, are loaded
once a warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.cuda.fmm.u_jobs import UJobs, make_jobs
from kernels.cuda.processor import WARP
from kernels.cuda.program import Source
from kernels.fmm.distributions import Distribution
from kernels.fmm_u.kernel import DTYPES, UPhaseSchedule, make_schedule
from kernels.fmm_u.variants import ITEM_BYTES, STEPS, Precision, flops, instructions, rounding
from kernels.kernel import Counts, Params, WrongParameter

Root = Literal["estimate", "newton1", "newton2", "cubic"]
SOURCE = Path(__file__).with_name("u_phase.cu")
FUNCTION = "u_phase"
ROOTS = ("estimate", "newton1", "newton2", "cubic")
"""In the order of the source's ``ROOT``."""
ESTIMATE_ERROR = {"single": 2.0**-22, "double": 2.0**-19}
"""Largest relative error of a GPU's estimate of 1 / sqrt(x), with some room. That of double
precision takes the high word of its argument, which has 20 bits of the fraction, and gives one."""
VECTOR_BYTES, JOB_BYTES, GROUP_BYTES = 16, 16, 4


class GpuFmmUParams(Params):
    """The points, and the variant."""

    n: int = Field(default=262_144, ge=1, le=1 << 26)
    """points"""
    q: int = Field(default=640, ge=1)
    """most points in a leaf of the octree"""
    distribution: Distribution = "uniform"
    """where the points lie"""
    precision: Precision = "single"
    """of coordinates, charges and sums"""
    root: Root = "newton1"
    """how 1 / r is computed: by the processor's estimate, which has 22 bits (in double precision
    20), and 0, 1 or 2 Newton steps, or a cubic step"""
    tile: Literal[1, 2, 4, 8] = 2
    """targets of a thread: they stay in registers, with their sums, while all sources pass"""
    threads: Literal[32, 64, 128, 256, 512] = 64
    """threads of a block, and sources that it stages in shared memory at a time"""
    unroll: Literal[1, 2, 4, 8] = 4
    """sources that one pass of the inner loop takes"""

    @model_validator(mode="after")
    def _has_the_bits(self) -> GpuFmmUParams:
        if self.precision == "double" and self.root == "estimate":
            raise WrongParameter(
                "root",
                "found 'estimate', which has 20 of double precision's 53 bits",
                "use 'newton1', 'newton2' or 'cubic', or single precision",
            )
        if self.precision == "single" and self.root in ("newton2", "cubic"):
            raise WrongParameter(
                "root",
                f"found {self.root!r}, which computes more bits than single precision's 24",
                "use 'estimate' or 'newton1'",
            )
        return self

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.threads // WARP

    @property
    def unit(self) -> float:
        """The factor of the sums: 2 where the last Newton step's 1 / 2 is left out."""
        return 2.0 if STEPS.get(self.root) else 1.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return np.dtype(DTYPES[self.precision])

    @property
    def planes(self) -> int:
        """Vectors of 16 bytes that hold a point."""
        return 4 * ITEM_BYTES[self.precision] // VECTOR_BYTES


@dataclass(frozen=True)
class UWork:
    """The points in slots, and the jobs."""

    schedule: UPhaseSchedule
    jobs: UJobs


@lru_cache(maxsize=4)
def _work(n: int, q: int, distribution: str, precision: str, warps: int, tile: int) -> UWork:
    schedule = make_schedule(n, q, precision, "one", WARP, 1, distribution)
    sizes = np.where(schedule.leaves.tree.first_child < 0, schedule.leaves.sizes, 0)
    pairs = schedule.shares[0].pairs
    # Behind the last leaf is one more group, without points.
    empty = schedule.slots // WARP - 1
    return UWork(schedule, make_jobs(schedule.first, sizes, pairs, empty, warps, tile))


def work_of(params: GpuFmmUParams) -> UWork:
    """The work of one iteration, the same on every GPU."""
    return _work(
        params.n, params.q, params.distribution, params.precision, params.warps, params.tile
    )


def u_source(params: GpuFmmUParams) -> Source:
    """The source with the parameters' macros."""
    return Source(
        path=SOURCE,
        macros={
            "DOUBLE": int(params.precision == "double"),
            "ROOT": ROOTS.index(params.root),
            "THREADS": params.threads,
            "TILE": params.tile,
            "UNROLL": params.unroll,
        },
    )


def laid_out(work: UWork, params: GpuFmmUParams) -> np.ndarray:
    """The points as the source reads them: (planes, slots, numbers of a vector)."""
    from kernels.fmm.tree.layout import BEYOND  # noqa: PLC0415

    schedule = work.schedule
    points = np.full((schedule.slots, 4), BEYOND, params.dtype)
    points[:, 3] = 0
    points[schedule.slot, :3] = schedule.leaves.points
    points[schedule.slot, 3] = schedule.leaves.charges
    return np.ascontiguousarray(points.reshape(schedule.slots, params.planes, -1).swapaxes(0, 1))


def arithmetic(root: Root) -> dict[str, int]:
    """Arithmetic instructions of one pair, by name: differences, the sum of their squares, 1 / r
    from its estimate, and the sum of q / r.

    A cubic step is y + y h (1/2 + 3/8 h), h = 1 - x y^2: the series of 1 / sqrt(1 - h) without its
    later terms.
    """
    mix = instructions("estimate" if root == "cubic" else root, "one")
    del mix["estimate"]
    if root == "cubic":
        mix["mul"] += 2
        mix["fma"] += 3
    return mix


def executed_pairs(params: GpuFmmUParams) -> int:
    """Pairs that are computed in one iteration, those of padding too."""
    warp_pairs = WARP * params.tile * params.threads
    return work_of(params).jobs.warp_chunks(params.tile) * warp_pairs


def useful_pairs(params: GpuFmmUParams) -> int:
    """Pairs of the U lists, a point with itself left out."""
    return work_of(params).schedule.leaves.interactions()


def count_u_phase(params: GpuFmmUParams) -> Counts:
    """Operations and bytes of one iteration of one rank, which has a GPU of its own; the module
    says how they are counted."""
    work, pairs = work_of(params), executed_pairs(params)
    jobs, warps = work.jobs, params.warps
    item = params.dtype.itemsize
    point_bytes = 4 * item
    staged = jobs.chunks * params.threads * point_bytes
    # Of a target in double precision, the charge is not loaded.
    target_bytes = point_bytes if params.precision == "single" else 3 * item
    loaded = (
        staged
        + jobs.chunks * warps * GROUP_BYTES
        + len(jobs.jobs) * warps * (JOB_BYTES + params.tile * WARP * target_bytes)
    )
    once = (
        len(np.unique(jobs.groups)) * WARP * point_bytes
        + len(jobs.groups) * GROUP_BYTES
        + len(jobs.jobs) * JOB_BYTES
    )
    stored = int(jobs.jobs[:, 1].sum(dtype=np.int64)) * WARP * item
    return {
        "sp" if params.precision == "single" else "dp": float(
            pairs * flops(arithmetic(params.root))
        ),
        "sfu": float(pairs),
        "int": 2.0 * pairs,
        "shared": float(staged + pairs // params.tile * point_bytes),
        "l2": float(loaded - once),
        "dram": float(once + stored),
    }


def u_metrics(params: GpuFmmUParams) -> dict[str, float]:
    """``useful_pairs`` and ``executed_pairs``; ``jobs``: blocks of threads; ``shared_bytes``: of a
    block; ``shared_once_bytes``: as the count ``shared``, with a source that all lanes of a warp
    load counted once."""
    work, pairs = work_of(params), executed_pairs(params)
    point_bytes = 4 * params.dtype.itemsize
    staged = work.jobs.chunks * params.threads * point_bytes
    return {
        "useful_pairs": float(useful_pairs(params)),
        "executed_pairs": float(pairs),
        "jobs": float(len(work.jobs.jobs)),
        "shared_bytes": float(shared_bytes(params)),
        "shared_once_bytes": float(staged + pairs // (params.tile * WARP) * point_bytes),
    }


def shared_bytes(params: GpuFmmUParams) -> int:
    """Bytes of shared memory that a block has."""
    return params.threads * params.planes * VECTOR_BYTES


def tolerance(params: GpuFmmUParams, terms: int) -> float:
    """The largest error allowed in a sum of ``terms`` q / r, relative to the sum of \\|q\\| / r."""
    error = ESTIMATE_ERROR[params.precision]
    if params.root == "cubic":
        error = 2.5 * error**3
    else:
        for _ in range(STEPS[params.root]):
            error = 1.5 * error**2
    return error + rounding(params.precision, terms)
