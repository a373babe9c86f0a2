"""Sums of q / r on a GPU, pair by pair: variants, sources and counts.

A pair with r = 0 adds nothing: every pair has a comparison and a selection for it.

Operation counts include padded targets and sources:

``sp``, ``dp``: executed flops; a multiply-add is two. Where coordinates are relative to centres of
nodes, three additions for each staged source. ``sfu``: estimates of 1 / sqrt(x), one for each pair.
``int``: two for each pair, the comparison of r^2 with the smallest normal number and the selection.
Instructions for addresses and loops are not counted.

``shared``: bytes that threads store, once for each staged source, and bytes that they load: each
source in each lane of a warp, although all lanes load the same one.

All accesses to global memory bypass L1. ``dram``: every group of points in a list, the lists, the
jobs and the sums once, as from a cold cache. ``l2``: all other loads, and the stores of sums that
are added to. Numbers of jobs and lists, which all lanes of a warp load from one address, count once
for each warp.
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
"""The choices in the order of the source's macro ``ROOT``."""
ESTIMATE_ERROR = {"single": 2.0**-22, "double": 2.0**-19}
"""The largest relative error of a GPU's estimate of 1 / sqrt(x), with a margin. The estimate in
double precision uses only the high word of its argument, which has 20 bits of the fraction, and
returns only a high word."""
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
        """The factor in the sums: 2 if the last Newton step omits its 1 / 2."""
        return 2.0 if STEPS.get(self.root) else 1.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of coordinates, charges and sums."""
        return np.dtype(DTYPES[self.precision])

    @property
    def planes(self) -> int:
        """The number of 16-byte vectors that hold a point."""
        return 4 * ITEM_BYTES[self.precision] // VECTOR_BYTES


def direct_source(variant: DirectVariant, add: bool = False, shift: bool = False) -> Source:
    """The source with the variant's macros. ``add``: whether to add to the existing sums;
    ``shift``: whether coordinates are relative to centres of nodes, in single precision only."""
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
    """The points (slots, 4), with x, y, z and charge, in the layout of the source: (planes, slots,
    numbers in a vector)."""
    return np.ascontiguousarray(points.reshape(len(points), variant.planes, -1).swapaxes(0, 1))


def arithmetic(root: Root) -> dict[str, int]:
    """The arithmetic instructions of one pair, by name: differences, the sum of their squares,
    1 / r from its estimate, and the sum of q / r.

    A cubic step is y + y h (1/2 + 3/8 h), h = 1 - x y^2: the series of 1 / sqrt(1 - h), truncated.
    """
    mix = instructions("estimate" if root == "cubic" else root, "one")
    del mix["estimate"]
    if root == "cubic":
        mix["mul"] += 2
        mix["fma"] += 3
    return mix


def executed_pairs(variant: DirectVariant, jobs: DirectJobs) -> int:
    """The number of computed pairs, including padding."""
    return jobs.warp_chunks(variant.tile) * WARP * variant.tile * variant.threads


def count_direct(variant: DirectVariant, jobs: DirectJobs, add: bool = False) -> dict[str, float]:
    """Operations and bytes of all jobs; ``add``: whether they add to the existing sums."""
    pairs, warps, item = executed_pairs(variant, jobs), variant.warps, variant.dtype.itemsize
    point_bytes = 4 * item
    staged = jobs.chunks * variant.threads * point_bytes
    shift_bytes, shifted = 0, 0
    if jobs.shifts is not None:
        shift_bytes, shifted = VECTOR_BYTES, 3 * jobs.chunks * variant.threads
    # In double precision the charge of a target is not loaded.
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
    """The bytes of shared memory of a block."""
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
