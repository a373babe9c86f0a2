"""The whole FMM on a GPU: parameters and counts by phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from kernels.cuda.fmm.direct import DirectVariant
from kernels.cuda.fmm.hadamard import Cells
from kernels.cuda.fmm.plan import Plan, count_step, make_plan
from kernels.fmm.accuracy import DIGITS, SINGLE_ASKED
from kernels.fmm.distributions import Distribution
from kernels.fmm_u.variants import Precision
from kernels.kernel import Counts, ParameterError, Params

UNROLL: Literal[4] = 4


class GpuFmmParams(Params):
    """What is evaluated, how accurately, and how direct sums and M2L are cut."""

    n: int = Field(ge=1, le=1 << 26)
    """points, which are both sources and targets"""
    q: int = Field(default=640, ge=1)
    """most points in a leaf of the octree"""
    digits: int = Field(default=6, ge=DIGITS[0], le=DIGITS[1])
    """relative L2 error at most 10^-digits; in single precision 3 to 5 digits"""
    precision: Precision = "double"
    """of all numbers; in single precision the points are rounded, so that their differences are
    exact"""
    distribution: Distribution = "uniform"
    """where the points lie"""
    tile: Literal[1, 2, 4, 8] = 2
    """targets of a thread in direct sums"""
    threads: Literal[32, 64, 128, 256, 512] = 64
    """threads of a block in direct sums"""
    cells: Cells = 4
    """target cells of a block in M2L: they share the loads of an operator's spectrum"""

    @model_validator(mode="after")
    def _has_the_digits(self) -> GpuFmmParams:
        low, high = SINGLE_ASKED
        if self.precision == "single" and self.digits > high:
            raise ParameterError(
                "digits",
                f"found {self.digits}, which single precision does not have",
                f"use {low} to {high} digits, or double precision",
            )
        return self

    @property
    def direct(self) -> DirectVariant:
        """How direct sums are computed: 1 / r to all bits of the precision."""
        return DirectVariant(
            precision=self.precision,
            root="newton1" if self.precision == "single" else "cubic",
            tile=self.tile,
            threads=self.threads,
            unroll=UNROLL,
        )


def plan_of(params: GpuFmmParams) -> Plan:
    """The steps of one evaluation, the same on every GPU."""
    return make_plan(
        params.n, params.q, params.digits, params.distribution, params.direct, params.cells
    )


def count_phases(params: GpuFmmParams) -> Mapping[str, Counts]:
    """Phase -> operations of one evaluation, of the phases that have any, in order."""
    plan = plan_of(params)
    phases: dict[str, dict[str, float]] = {}
    for step in plan.steps:
        total = phases.setdefault(step.phase, {})
        for name, count in count_step(step, plan).items():
            total[name] = total.get(name, 0.0) + count
    return phases


def count_evaluation(params: GpuFmmParams) -> Counts:
    """Operations of one evaluation by one rank, which has a GPU of its own."""
    total: dict[str, float] = {}
    for counts in count_phases(params).values():
        for name, count in counts.items():
            total[name] = total.get(name, 0.0) + count
    return total


def fmm_metrics(params: GpuFmmParams) -> dict[str, float]:
    """``launches`` of one evaluation, and the tree's ``nodes``."""
    plan = plan_of(params)
    return {"launches": float(len(plan.steps)), "nodes": float(len(plan.tree))}
