"""The fast multipole method as a kernel of a campaign (Choi & Vuduc 2016, sections III and IV)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.fmm.accuracy import DIGITS, FmmInputError, accuracy
from kernels.fmm.constants import PHASES
from kernels.fmm.counts.by_phase import evaluation_counts, phase_counts, total_counts
from kernels.fmm.counts.machine import DEFAULT_MACHINE, MachineModel, host_machine
from kernels.fmm.counts.work import Work, work_of
from kernels.fmm.distributions import Distribution, points
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Mark, Params, ResultError, not_compiled

if TYPE_CHECKING:
    from kernels.fmm.method import Fmm

SEED = 0
CHECKED = 100
"""The number of targets whose potentials are compared with direct summation."""
MOST_MARKED = 1000
"""The most evaluations of a run whose phases are marked: of more, they are too short to meter."""


class FmmParams(Params):
    """The points, the accuracy, and the number of threads."""

    n: int = Field(ge=1)
    """points, which are both sources and targets"""
    q: int | None = Field(default=None, ge=1)
    """most points in a leaf; default: the fastest that is known"""
    digits: int = Field(default=6, ge=DIGITS[0], le=DIGITS[1])
    """relative L2 error at most 10^-digits; in single precision 3 to 5 digits"""
    precision: Literal["single", "double"] = "double"
    """of the result; up to 5 digits are computed in single"""
    distribution: Distribution = "uniform"
    """where the points lie"""
    threads: int = Field(default=1, ge=1)
    """threads of one rank"""

    @model_validator(mode="after")
    def _within_reach(self) -> FmmParams:
        accuracy(self.digits, self.precision)
        return self


def count_phases(params: FmmParams) -> Mapping[str, Counts]:
    """Phase -> operations of one evaluation on the machine that a plan assumes, with AVX-512.

    Raises:
        KernelError: the tree cannot be built.
    """
    return _count(params, DEFAULT_MACHINE)


def count_evaluation(params: FmmParams) -> Counts:
    """Operations of one evaluation on the machine that a plan assumes.

    Raises:
        KernelError: the tree cannot be built.
    """
    return total_counts(count_phases(params))


def _count(params: FmmParams, machine: MachineModel) -> Mapping[str, Counts]:
    try:
        return evaluation_counts(**params.model_dump(), machine=machine)
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    except MemoryError:
        raise KernelError(f"{params.n} points do not fit in memory") from None


@dataclass(kw_only=True)
class PreparedFmm:
    """A prepared method, its charges, and the result of its last run.

    ``places``: float64 (n, 3) and ``charges``: float64 (n,), of all ranks; ``mine``: the slice of
    this rank's points; ``potentials``: float64, at these points. ``share``: this rank's part of the
    work, None with one rank. ``marked``: for each marked evaluation its begin in ns, its phases'
    times in s, and its end in ns.
    """

    params: FmmParams
    method: Fmm
    places: np.ndarray
    charges: np.ndarray
    mine: slice
    share: Work | None
    potentials: np.ndarray
    marked: list[tuple[int, tuple[float, ...], int]]

    def run(self, iterations: int) -> None:
        """Evaluate ``iterations`` times."""
        self.marked = []
        for i in range(iterations):
            begin_ns = time.monotonic_ns()
            self.potentials = self.method.evaluate(self.charges[self.mine])
            if i < MOST_MARKED:
                seconds = self.method.seconds
                lengths = tuple(seconds[phase] for phase in PHASES)
                self.marked.append((begin_ns, lengths, time.monotonic_ns()))

    def marks(self) -> Sequence[Mark]:
        """The begin and end of each phase of the last run's first evaluations."""
        marks = []
        for begin_ns, lengths, end_ns in self.marked:
            edges = [begin_ns + round(s * 1e9) for s in accumulate(lengths, initial=0.0)]
            # The first phase includes sorting the charges, the last one sorting the results.
            edges[-1] = end_ns
            marks += [
                Mark(phase, a, b) for phase, a, b in zip(PHASES, edges[:-1], edges[1:], strict=True)
            ]
        return marks

    def counts(self) -> Counts:
        """This rank's operations in one evaluation, on this host."""
        machine = host_machine()
        if self.share is not None:
            return total_counts(phase_counts(self.share, machine))
        return total_counts(_count(self.params, machine))

    def check(self) -> None:
        """Compare the potentials at :data:`CHECKED` targets with direct summation."""
        mine = self.places[self.mine]
        some = np.random.default_rng(SEED).permutation(len(mine))[:CHECKED]
        right = direct_sums(self.places, self.charges, mine[some])
        error = float(np.linalg.norm(self.potentials[some] - right))
        size = float(np.linalg.norm(right))
        if not error <= size * 10.0**-self.params.digits:
            relative = error / size if size else np.inf
            raise ResultError(
                f"the potentials at {len(some)} targets differ from direct summation by "
                f"{relative:.2g} in relative L2 norm; {self.params.digits} digits were requested"
            )

    def close(self) -> None:
        """Release the data."""
        self.places = self.charges = self.potentials = np.empty(0)
        self.marked = []


def direct_sums(sources: np.ndarray, charges: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The sums of q / (4 pi r) over all pairs with r > 0: float64 (targets,)."""
    sums = np.empty(len(targets))
    for i, place in enumerate(targets):
        r = np.linalg.norm(sources - place, axis=1)
        there = r > 0
        sums[i] = (charges[there] / r[there]).sum()
    return sums / (4 * np.pi)


def _prepare(params: FmmParams, team: Team) -> PreparedFmm:
    """Prepare the method; :class:`KernelError`: the node or the request does not allow it."""
    try:
        # A plan must not import Numba.
        from kernels.fmm.interface import setup_for  # noqa: PLC0415
        from kernels.fmm.method import prepare_method  # noqa: PLC0415

        places, charges = points(params.distribution, params.n, SEED)
        setup = setup_for(
            params.digits, precision=params.precision, q=params.q, threads=params.threads
        )
        mine = slice(team.rank, None, team.size)
        method: Fmm
        share = None
        if team.size > 1:
            from kernels.fmm.mpi_ranks import RankedFmm  # noqa: PLC0415

            method = RankedFmm(team.comm, np.ascontiguousarray(places[mine]), setup)
            share = work_of(method, method.messages)
        else:
            method = prepare_method(places, None, setup)
        prepared = PreparedFmm(
            params=params,
            method=method,
            places=places,
            charges=charges,
            mine=mine,
            share=share,
            potentials=np.empty(0),
            marked=[],
        )
        # Compile now, so that nothing is compiled while the kernel is measured.
        prepared.run(1)
    except FmmInputError as error:
        raise KernelError(str(error)) from None
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    except MemoryError:
        raise KernelError(f"{params.n} points do not fit in memory") from None
    return prepared


fmm = Kernel(
    name="fmm",
    summary="a fast multipole method, to given digits",
    counted="flops (sp, dp), exact; integer operations and bytes at each level, by a model",
    classes=("sp", "dp", "int", "l1", "l2", "l3", "dram"),
    params=FmmParams,
    counts=count_evaluation,
    prepare=_prepare,
    imports=("kernels.fmm.interface",),
    phases=count_phases,
)
