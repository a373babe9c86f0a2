"""``gpu_fmm``: the whole FMM on a GPU, with marked phases."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.cuda.device import Gpu, Launch
from kernels.cuda.fmm import direct, hadamard, product
from kernels.cuda.fmm.arrays import arrays_of, matrices_of, rows_within
from kernels.cuda.fmm.direct import DirectVariant
from kernels.cuda.fmm.hadamard import Cells
from kernels.cuda.fmm.integers import integer_instructions
from kernels.cuda.fmm.plan import POINTS, DirectStep, Plan, SpectraStep, Step, count_step, make_plan
from kernels.cuda.program import NEEDS, Source, compile_program
from kernels.fmm.accuracy import DIGITS, SINGLE_ASKED
from kernels.fmm.distributions import Distribution
from kernels.fmm.kernel import CHECKED, MOST_MARKED, direct_sums
from kernels.fmm_u.variants import Precision
from kernels.host.ranks import Team
from kernels.kernel import (
    Counts,
    Kernel,
    KernelError,
    Mark,
    ParameterError,
    Params,
    ResultError,
    not_compiled,
)

UNROLL: Literal[4] = 4


class GpuFmmParams(Params):
    """The points, the accuracy, and the tiles of direct sums and M2L."""

    n: int = Field(ge=1, le=1 << 26)
    """points, which are both sources and targets"""
    q: int = Field(default=640, ge=1)
    """most points in a leaf of the octree"""
    digits: int = Field(default=6, ge=DIGITS[0], le=DIGITS[1])
    """relative L2 error at most 10^-digits; in single precision 3 to 5 digits"""
    precision: Precision = "double"
    """of all numbers; in single precision the points are rounded"""
    distribution: Distribution = "uniform"
    """where the points lie"""
    tile: Literal[1, 2, 4, 8] = 2
    """targets of a thread in direct sums"""
    threads: Literal[32, 64, 128, 256, 512] = 64
    """threads of a block in direct sums"""
    cells: Cells = 4
    """target cells of a block in M2L, which share loads"""
    integers: Literal["data", "all"] = "data"
    """what counts as int: a comparison and a selection a pair, or all integer instructions of the
    machine code of sm_80"""

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
        """The variant of direct sums: 1 / r to all bits of the precision."""
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
    """Phase -> operations of one evaluation, in order; without phases that have none.

    Raises:
        KernelError: ``integers`` is ``all``, and the compiler or ``nvdisasm`` is missing.
    """
    plan = plan_of(params)
    phases: dict[str, dict[str, float]] = {}
    for step in plan.steps:
        total = phases.setdefault(step.phase, {})
        counts = count_step(step, plan)
        if params.integers == "all":
            counts["int"] = integer_instructions(step, *source_of(step, params), plan)
        for name, count in counts.items():
            total[name] = total.get(name, 0.0) + count
    return phases


def count_evaluation(params: GpuFmmParams) -> Counts:
    """Operations of one evaluation by one rank, which does not share its GPU."""
    total: dict[str, float] = {}
    for counts in count_phases(params).values():
        for name, count in counts.items():
            total[name] = total.get(name, 0.0) + count
    return total


def fmm_metrics(params: GpuFmmParams) -> dict[str, float]:
    """``launches`` of one evaluation, and ``nodes`` of the tree."""
    plan = plan_of(params)
    return {"launches": float(len(plan.steps)), "nodes": float(len(plan.tree))}


class FmmRun:
    """The method with its points, operators and lists on the GPU, and graphs of its launches."""

    def __init__(self, params: GpuFmmParams, team: Team) -> None:
        self._params = params
        self._gpu = Gpu(team)
        try:
            self._plan, arrays, matrices = _built(params)
            self._sums = arrays["sums"]
            self._on_gpu = {name: self._gpu.array(a) for name, a in (arrays | matrices).items()}
            self._functions: dict[object, Any] = {}
            self._lists: dict[int, Any] = {}
            launches = [(step.phase, self._launch(step)) for step in self._plan.steps]
            self._whole = self._gpu.recorded([launch for _, launch in launches])
            self._phases = {
                name: self._gpu.recorded([launch for phase, launch in launches if phase == name])
                for name in dict.fromkeys(phase for phase, _ in launches)
            }
            self._marks: list[Mark] = []
            self.run(1)
        except BaseException:
            self._gpu.close()
            raise

    def _function(self, step: Step) -> Any:
        source, name = source_of(step, self._params)
        key = name, *source.macros.items()
        if key not in self._functions:
            program = compile_program(source, self._gpu.architecture)
            self._functions[key] = self._gpu.function(program, name)
        return self._functions[key]

    def _launch(self, step: Step) -> Launch:
        function = self._function(step)
        if isinstance(step, DirectStep):
            return Launch(
                function=function,
                blocks=len(step.jobs.jobs),
                threads=self._params.threads,
                arguments=(
                    self._on_gpu[step.out],
                    *self._points(step.targets),
                    *self._points(step.sources),
                    self._list(step.jobs.groups),
                    self._list(step.jobs.jobs),
                    *([] if step.jobs.shifts is None else [self._list(step.jobs.shifts)]),
                ),
            )
        if isinstance(step, SpectraStep):
            frequencies = self._plan.slabs.frequencies
            return Launch(
                function=function,
                blocks=(
                    len(step.tiles.rows_out),
                    frequencies // hadamard.slice_frequencies(self._params.direct.dtype.itemsize),
                ),
                threads=hadamard.THREADS,
                arguments=(
                    self._on_gpu[step.out],
                    self._on_gpu[step.source],
                    self._on_gpu[step.operators],
                    np.int32(step.first_operator),
                    np.int32(frequencies),
                    *map(self._list, step.tiles.lists),
                ),
            )
        width = self._plan.width(step.out)
        return Launch(
            function=function,
            blocks=(len(step.product.tiles.rows_out), width // product.SIDE),
            threads=product.THREADS,
            arguments=(
                *self._rows(step.out),
                *self._rows(step.source),
                self._on_gpu[step.matrices],
                np.int32(self._plan.width(step.source)),
                np.int32(width),
                *map(self._list, step.product.tiles.lists),
                self._list(step.product.scales),
            ),
        )

    def _points(self, name: str) -> tuple[Any, np.int64]:
        plan = self._plan
        slots = plan.slots if name == "leaves" else plan.rows * plan.columns
        assert name in POINTS  # noqa: S101
        return self._on_gpu[name], np.int64(slots)

    def _rows(self, name: str) -> tuple[Any, np.int64, np.int32]:
        first, stride = rows_within(name, self._plan)
        return self._on_gpu[name], np.int64(first), np.int32(stride)

    def _list(self, values: np.ndarray) -> Any:
        """The list on the GPU, one copy for all steps that share it. An empty list, which no step
        reads, becomes one zero."""
        if id(values) not in self._lists:
            given = values if values.size else np.zeros(1, values.dtype)
            self._lists[id(values)] = self._gpu.array(given)
        return self._lists[id(values)]

    def run(self, iterations: int) -> None:
        """Evaluate ``iterations`` times. The first evaluations run phase by phase, to mark the
        phases; each of the others is one graph."""
        self._marks = []
        for _ in range(min(iterations, MOST_MARKED)):
            edges = [time.monotonic_ns()]
            for graph in self._phases.values():
                self._gpu.replay(graph, 1)
                edges.append(time.monotonic_ns())
            self._marks += [
                Mark(phase, begin_ns, end_ns)
                for phase, (begin_ns, end_ns) in zip(self._phases, pairwise(edges), strict=True)
            ]
        if iterations > MOST_MARKED:
            self._gpu.replay(self._whole, iterations - MOST_MARKED)

    def marks(self) -> Sequence[Mark]:
        """The begin and end of each phase, in the first evaluations of the last run."""
        return self._marks

    def counts(self) -> Counts:
        """Operations and bytes of one evaluation."""
        return count_evaluation(self._params)

    def check(self) -> None:
        """Compare some targets with direct summation."""
        sums = self._gpu.copied(self._on_gpu["sums"], self._sums)
        check_potentials(self._plan, sums, self._params.digits)

    def close(self) -> None:
        """Release the GPU's memory."""
        self._gpu.close()


def source_of(step: Step, params: GpuFmmParams) -> tuple[Source, str]:
    """The source of a step, and the name of its function."""
    if isinstance(step, DirectStep):
        shift = step.jobs.shifts is not None
        return direct.direct_source(params.direct, step.add, shift), direct.FUNCTION
    item = params.direct.dtype.itemsize
    if isinstance(step, SpectraStep):
        return hadamard.hadamard_source(params.cells, item), hadamard.FUNCTION
    return product.product_source(step.add, item), product.FUNCTION


def _built(
    params: GpuFmmParams,
) -> tuple[Plan, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The plan, its arrays and its matrices; raises :class:`KernelError` if building them fails."""
    try:
        plan = plan_of(params)
        return plan, arrays_of(plan), matrices_of(plan)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    except MemoryError:
        raise KernelError(
            f"{params.n} points with q {params.q} and {params.digits} digits do not fit in memory: "
            f"choose a smaller n, a larger q or fewer digits"
        ) from None


def check_potentials(plan: Plan, sums: np.ndarray, digits: int) -> None:
    """Compare :data:`kernels.fmm.kernel.CHECKED` targets with direct summation.

    ``sums``: (slots,), as computed. Raises :class:`ResultError`.
    """
    some = np.random.default_rng(0).permutation(len(plan.places))[:CHECKED]
    right = direct_sums(plan.places, plan.charges, plan.places[some])
    error = float(np.linalg.norm(plan.potentials(sums)[some] - right))
    size = float(np.linalg.norm(right))
    if not error <= size * 10.0**-digits:
        relative = error / size if size else np.inf
        raise ResultError(
            f"the potentials at {len(some)} targets differ from direct summation by {relative:.2g} "
            f"in relative L2 norm; {digits} digits were requested"
        )


gpu_fmm = Kernel(
    name="gpu_fmm",
    summary="a fast multipole method on a GPU, its phases marked",
    counted="flops (sp or dp), reciprocal square roots (sfu), integers (int), as executed; bytes "
    "of shared memory by thread, of l2 and dram as from a cold cache",
    classes=("sp", "dp", "sfu", "int", "shared", "l2", "dram"),
    params=GpuFmmParams,
    counts=count_evaluation,
    phases=count_phases,
    metrics=fmm_metrics,
    prepare=FmmRun,
    needs=NEEDS,
    imports=("kernels.fmm.tree.lists", "kernels.fmm.phases.v_m2l"),
)
