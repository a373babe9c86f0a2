"""``gpu_chase`` on a GPU."""

from __future__ import annotations

import numpy as np

from kernels.cuda.microbench.chase import (
    CHASE,
    HOPS,
    HOPS_PER_TRIP,
    L1_CHAINS,
    LINE_BYTES,
    LINK,
    NEAR_LINES,
    PLACE,
    THREADS,
    GpuChaseParams,
    chain_lines,
    chase_source,
    count_hops,
    expected,
    random_orders,
)
from kernels.cuda.microbench.run import FILLED_BYTES, GpuRun
from kernels.cuda.program import compile_program
from kernels.host.ranks import Team
from kernels.kernel import KernelError, ResultError

LINK_THREADS = 256


class ChaseRun(GpuRun):
    """The chains on the GPU, and how far they were followed."""

    def __init__(self, params: GpuChaseParams, team: Team) -> None:
        self._params, self._hops = params, 0
        super().__init__(team, count_hops(params))

    def prepare(self, seed: int) -> None:
        """Lay out the chains; raises :class:`KernelError` where they are too many."""
        level, chains = self._params.level, self._params.chains
        program = compile_program(chase_source(self._params), self.gpu.architecture)
        self._chase = self.gpu.function(program, CHASE)
        most = self.gpu.resident_blocks(self._chase, THREADS)
        if level == "l1":
            most = min(most, L1_CHAINS * self.gpu.processors)
        self._lines = chain_lines(self._params, self.gpu.l2_bytes)
        if self._lines < NEAR_LINES:
            most = min(most, chains * max(self._lines, 1) // NEAR_LINES)
        if chains > most:
            raise KernelError(
                f"chains: found {chains}, and this GPU follows at most {most} at a time at level "
                f"{level!r}; choose fewer"
            )
        self._orders = random_orders(chains, self._lines, seed)
        places = expected(self._orders, 0)
        self._places = self.gpu.array(places)
        size_bytes = chains * self._lines * LINE_BYTES
        zeros = np.zeros(min(size_bytes, FILLED_BYTES) // PLACE.itemsize, PLACE)
        self._links = self.gpu.array(zeros, size_bytes)
        self.gpu.run(
            self.gpu.function(program, LINK),
            min(-(-self._orders.size // LINK_THREADS), 1 << 16),
            LINK_THREADS,
            self._links,
            self.gpu.array(self._orders),
            np.int32(self._lines),
            np.int32(chains),
        )

    def run(self, iterations: int) -> None:
        """Follow the chains from where the last run ended, in one launch."""
        hops = HOPS[self._params.level] * iterations
        self.gpu.run(
            self._chase,
            self._params.chains,
            THREADS,
            self._places,
            self._links,
            np.int32(self._lines),
            np.int64(hops // HOPS_PER_TRIP),
        )
        self._hops += hops

    def check(self) -> None:
        """Check that every chain is where so many hops lead."""
        right = expected(self._orders, self._hops)
        reached = self.gpu.copied(self._places, right)
        wrong = np.flatnonzero(reached != right)
        if wrong.size:
            chain = int(wrong[0])
            raise ResultError(
                f"{wrong.size} of {right.size} chains end at a wrong line: chain {chain} at line "
                f"{reached[chain] // LINE_BYTES}, not {right[chain] // LINE_BYTES}"
            )
