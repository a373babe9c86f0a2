"""The fast multipole method as a kernel of a campaign (seed 003, sections III and IV)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.fmm.accuracy import DIGITS, BadInput, accuracy
from kernels.fmm.constants import PHASES
from kernels.fmm.counts.by_phase import evaluation_counts, total_counts
from kernels.fmm.counts.machine import DEFAULT_MACHINE, MachineModel, host_machine
from kernels.fmm.distributions import Distribution, points
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelFailed, Mark, Params, WrongResult

if TYPE_CHECKING:
    from kernels.fmm.method import Fmm

SEED = 0
CHECKED = 100
"""Targets that are compared with direct summation."""
MOST_MARKED = 1000
"""Evaluations of a run whose phases are marked: of more, single phases are too short to meter."""


class FmmParams(Params):
    """What is evaluated, how accurately, and by how many threads.

    Attributes:
        n: points, which are sources and targets.
        q: at most this number of points in a leaf; none: the best that is known.
        digits: relative L2 error at most 10^-digits, 3 to 10, in single precision 3 to 5.
        precision: single or double, of the result; few digits are computed in single precision.
        distribution: of the points, see :func:`kernels.fmm.distributions.points`.
        threads: threads of one rank.
    """

    n: int = Field(ge=1)
    q: int | None = Field(default=None, ge=1)
    digits: int = Field(default=6, ge=DIGITS[0], le=DIGITS[1])
    precision: Literal["single", "double"] = "double"
    distribution: Distribution = "uniform"
    threads: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _within_reach(self) -> FmmParams:
        accuracy(self.digits, self.precision)
        return self


def count_phases(params: FmmParams) -> Mapping[str, Counts]:
    """Phase -> operations of one evaluation, on the machine that counts assume: AVX-512.

    Raises:
        KernelFailed: the tree can't be built.
    """
    return _count(params, DEFAULT_MACHINE)


def count_evaluation(params: FmmParams) -> Counts:
    """Operations of one evaluation, on the machine that counts assume.

    Raises:
        KernelFailed: the tree can't be built.
    """
    return total_counts(count_phases(params))


def _count(params: FmmParams, machine: MachineModel) -> Mapping[str, Counts]:
    try:
        return evaluation_counts(**params.model_dump(), machine=machine)
    except (ImportError, RuntimeError) as error:
        raise _not_compiled(error) from error
    except MemoryError:
        raise KernelFailed(f"{params.n} points do not fit into the memory") from None


def _not_compiled(error: Exception) -> KernelFailed:
    return KernelFailed(
        f"cannot compile the method: {error} (NUMBA_CACHE_DIR names a writable directory for the "
        f"machine code)"
    )


@dataclass
class PreparedFmm:
    """A method that is ready, its charges, and what came of its last run.

    ``places``: float64 (n, 3); ``charges``: float64 (n,), of all ranks; ``mine``: this rank's
    among them; ``found``: float64, the potentials at these. ``ranks``: how many there are.
    """

    params: FmmParams
    method: Fmm
    places: np.ndarray
    charges: np.ndarray
    mine: slice
    ranks: int
    found: np.ndarray
    marked: list[tuple[int, tuple[float, ...], int]]
    """Of each marked evaluation: its begin, ns, its phases' seconds, and its end, ns."""

    def run(self, iterations: int) -> None:
        """Evaluate so many times."""
        self.marked = []
        for i in range(iterations):
            begin_ns = time.monotonic_ns()
            self.found = self.method.evaluate(self.charges[self.mine])
            if i < MOST_MARKED:
                seconds = self.method.seconds
                lengths = tuple(seconds[phase] for phase in PHASES)
                self.marked.append((begin_ns, lengths, time.monotonic_ns()))

    def marks(self) -> Sequence[Mark]:
        """Where each phase of the last run's first evaluations began and ended."""
        marks = []
        for begin_ns, lengths, end_ns in self.marked:
            edges = [begin_ns + round(s * 1e9) for s in accumulate(lengths, initial=0.0)]
            # The charges come before the first phase, the order of the results after the last.
            edges[-1] = end_ns
            marks += [
                Mark(phase, a, b) for phase, a, b in zip(PHASES, edges[:-1], edges[1:], strict=True)
            ]
        return marks

    def counts(self) -> Counts | None:
        """Operations of one evaluation with this host's vectors and caches; of one rank alone."""
        if self.ranks > 1:
            return None
        return total_counts(_count(self.params, host_machine()))

    def check(self) -> None:
        """Compare :data:`CHECKED` targets with direct summation."""
        mine = self.places[self.mine]
        some = np.random.default_rng(SEED).permutation(len(mine))[:CHECKED]
        right = direct_sums(self.places, self.charges, mine[some])
        error = float(np.linalg.norm(self.found[some] - right))
        size = float(np.linalg.norm(right))
        if not error <= size * 10.0**-self.params.digits:
            relative = error / size if size else np.inf
            raise WrongResult(
                f"the potentials at {len(some)} targets differ from direct summation by "
                f"{relative:.2g} in relative L2 norm; {self.params.digits} digits were asked for"
            )

    def close(self) -> None:
        """Let go of the data."""
        self.places = self.charges = self.found = np.empty(0)
        self.marked = []


def direct_sums(sources: np.ndarray, charges: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Potentials under 1 / (4 pi r), r = 0 left out, pair by pair: float64 (targets,)."""
    sums = np.empty(len(targets))
    for i, place in enumerate(targets):
        r = np.linalg.norm(sources - place, axis=1)
        there = r > 0
        sums[i] = (charges[there] / r[there]).sum()
    return sums / (4 * np.pi)


def _prepare(params: FmmParams, team: Team) -> PreparedFmm:
    """Raises :class:`KernelFailed` where the method can't be compiled or the memory is short."""
    try:
        # A plan must not import Numba.
        from kernels.fmm.interface import setup_for  # noqa: PLC0415
        from kernels.fmm.method import make_ready  # noqa: PLC0415

        places, charges = points(params.distribution, params.n, SEED)
        setup = setup_for(
            params.digits, precision=params.precision, q=params.q, threads=params.threads
        )
        mine = slice(team.rank, None, team.size)
        method: Fmm
        if team.size > 1:
            from kernels.fmm.mpi_ranks import RankedFmm  # noqa: PLC0415

            method = RankedFmm(team.comm, np.ascontiguousarray(places[mine]), setup)
        else:
            method = make_ready(places, None, setup)
        prepared = PreparedFmm(params, method, places, charges, mine, team.size, np.empty(0), [])
        # Compiles: no compilation is left for the window.
        prepared.run(1)
    except BadInput as error:
        raise KernelFailed(str(error)) from None
    except (ImportError, RuntimeError) as error:
        raise _not_compiled(error) from error
    except MemoryError:
        raise KernelFailed(f"{params.n} points do not fit into the memory") from None
    return prepared


fmm = Kernel(
    name="fmm",
    summary="a fast multipole method: potentials of n charges on each other, to so many digits",
    params=FmmParams,
    counts=count_evaluation,
    prepare=_prepare,
    imports=("kernels.fmm.interface",),
    phases=count_phases,
)
