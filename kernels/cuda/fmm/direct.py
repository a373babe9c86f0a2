"""Sums of q / r on a GPU, pair by pair: variants, sources and counts.

That r = 0 adds nothing is decided for every pair, by a comparison and a selection.

How operations are counted, of padded targets and sources too:

``sp``, ``dp``: flops as executed; a multiply-add is two. ``sfu``: estimates of 1 / sqrt(x), one
for each pair. ``int``: two for each pair, the comparison of r^2 with the smallest normal number and
the selection. Where coordinates are relative to centres of nodes, three additions for each source
staged. What addresses and loops need is not counted.

``shared``: bytes that threads store, once for each source staged, and load: the sources that pass,
in each lane of a warp, though all lanes load the same ones.

Bytes of global memory, all of which is accessed beyond the first cache. ``dram``: every group of
points in a list, the lists, the jobs and the sums once, as from a cold cache. ``l2``: all other
loads, and where sums are added to, their stores. Numbers that all lanes of a warp load from one
address, those of jobs and lists, are loaded once a warp.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from kernels.cuda.fmm.direct_jobs import DirectJobs
from kernels.cuda.processor import WARP
from kernels.cuda.program import Source
from kernels.fmm_u.kernel import DTYPES
from kernels.fmm_u.variants import ITEM_BYTES, STEPS, Precision, flops, instructions, rounding
from kernels.kernel import ParameterError, Params

Root = Literal["estimate", "newton1", "newton2", "cubic"]
SOURCE = Path(__file__).with_name("direct.cu")
FUNCTION = "direct_sums"
ROOTS = ("estimate", "newton1", "newton2", "cubic")
"""In the order of the source's ``ROOT``."""
ESTIMATE_ERROR = {"single": 2.0**-22, "double": 2.0**-19}
"""Largest relative error of a GPU's estimate of 1 / sqrt(x), with some room. That of double
precision takes the high word of its argument, which has 20 bits of the fraction, and gives one."""
VECTOR_BYTES, JOB_BYTES, GROUP_BYTES = 16, 16, 4


class DirectVariant(Params):
    """One way to compute the sums."""

    precision: Precision = "single"
    """of coordinates, charges and sums"""
    root: Root = "newton1"
    """1 / r by the processor's estimate (22 bits; 20 in double precision) and 0, 1 or 2 Newton
    steps or a cubic step"""
    tile: Literal[1, 2, 4, 8] = 2
    """targets of a thread, in registers while all sources pass"""
    threads: Literal[32, 64, 128, 256, 512] = 64
    """threads of a block, and sources in shared memory at a time"""
    unroll: Literal[1, 2, 4, 8] = 4
    """sources in one pass of the inner loop"""

    @model_validator(mode="after")
    def _has_the_bits(self) -> DirectVariant:
        if self.precision == "double" and self.root == "estimate":
            raise ParameterError(
                "root",
                "found 'estimate', which has 20 of double precision's 53 bits",
                "use 'newton1', 'newton2' or 'cubic', or single precision",
            )
        if self.precision == "single" and self.root in ("newton2", "cubic"):
            raise ParameterError(
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


def direct_source(variant: DirectVariant, add: bool = False, shift: bool = False) -> Source:
    """The source with the variant's macros. ``add``: whether sums are added to; ``shift``: whether
    coordinates are relative to centres of nodes, which is possible in single precision."""
    return Source(
        path=SOURCE,
        macros={
            "DOUBLE": int(variant.precision == "double"),
            "ROOT": ROOTS.index(variant.root),
            "THREADS": variant.threads,
            "TILE": variant.tile,
            "UNROLL": variant.unroll,
            "ADD": int(add),
            "SHIFT": int(shift),
        },
    )


def in_planes(points: np.ndarray, variant: DirectVariant) -> np.ndarray:
    """Points (slots, 4), x, y, z and charge, as the source reads them: (planes, slots, numbers of a
    vector)."""
    return np.ascontiguousarray(points.reshape(len(points), variant.planes, -1).swapaxes(0, 1))


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


def executed_pairs(variant: DirectVariant, jobs: DirectJobs) -> int:
    """Pairs that are computed, those of padding too."""
    return jobs.warp_chunks(variant.tile) * WARP * variant.tile * variant.threads


def count_direct(variant: DirectVariant, jobs: DirectJobs, add: bool = False) -> dict[str, float]:
    """Operations and bytes of all jobs; ``add``: whether sums are added to."""
    pairs, warps, item = executed_pairs(variant, jobs), variant.warps, variant.dtype.itemsize
    point_bytes = 4 * item
    staged = jobs.chunks * variant.threads * point_bytes
    shift_bytes, shifted = 0, 0
    if jobs.shifts is not None:
        shift_bytes, shifted = VECTOR_BYTES, 3 * jobs.chunks * variant.threads
    # Of a target in double precision, the charge is not loaded.
    target_bytes = point_bytes if variant.precision == "single" else 3 * item
    loaded = (
        staged
        + jobs.chunks * warps * (GROUP_BYTES + shift_bytes)
        + len(jobs.jobs) * warps * (JOB_BYTES + variant.tile * WARP * target_bytes)
    )
    once = (
        len(np.unique(jobs.groups)) * WARP * point_bytes
        + len(jobs.groups) * (GROUP_BYTES + shift_bytes)
        + len(jobs.jobs) * JOB_BYTES
    )
    sums = int(jobs.jobs[:, 1].sum(dtype=np.int64)) * WARP
    return {
        "sp" if variant.precision == "single" else "dp": float(
            pairs * flops(arithmetic(variant.root)) + shifted + add * sums
        ),
        "sfu": float(pairs),
        "int": 2.0 * pairs,
        "shared": float(staged + pairs // variant.tile * point_bytes),
        "l2": float(loaded - once + add * sums * item),
        "dram": float(once + sums * item),
    }


def shared_bytes(variant: DirectVariant) -> int:
    """Bytes of shared memory that a block has."""
    return variant.threads * variant.planes * VECTOR_BYTES


def tolerance(variant: DirectVariant, terms: int) -> float:
    r"""The largest error allowed in a sum of ``terms`` q / r, relative to the sum of \|q\| / r."""
    error = ESTIMATE_ERROR[variant.precision]
    if variant.root == "cubic":
        error = 2.5 * error**3
    else:
        for _ in range(STEPS[variant.root]):
            error = 1.5 * error**2
    return error + rounding(variant.precision, terms)
