"""``gpu_dgemm`` on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.cuda.device import Gpu, Launch
from kernels.cuda.products.dgemm_counts import (
    FUNCTION,
    GpuDgemmParams,
    count_product,
    dgemm_source,
)
from kernels.cuda.products.launchable import lacking, refusal
from kernels.cuda.program import compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, KernelError
from kernels.products.kernel import Matrices
from kernels.products.probes import Probes

BATCH = 16
"""Products that one launch of the longer graph runs."""


class DgemmRun:
    """The kernel with its matrices on the GPU."""

    def __init__(self, params: GpuDgemmParams, team: Team) -> None:
        """Adds A B to C once, so that nothing is loaded while the kernel is measured."""
        self._params, self._gpu = params, Gpu(team)
        try:
            architecture = self._gpu.architecture
            if why := lacking(params, architecture):
                raise KernelError(f"this variant is not run: {why}")
            program = compile_program(dgemm_source(params), architecture)
            self._use = program.functions[FUNCTION]
            if why := refusal(params, self._use, self._gpu.block_shared_bytes):
                raise KernelError(f"this variant is not run on {architecture}: {why}")
            threads, shared_bytes = params.threads(), params.shared_bytes()
            function = self._gpu.function(program, FUNCTION, shared_bytes)
            self._at_a_time = self._gpu.resident_blocks(function, threads, shared_bytes)
            if not self._at_a_time:
                raise KernelError(
                    f"no processor of this GPU has room for a block of {threads} threads with "
                    f"{self._use.registers} registers each and {shared_bytes} bytes of shared "
                    f"memory; make blk_m, blk_n or blk_k smaller"
                )
            matrices = Matrices.random(params.n, team.rank)
            rows, columns, depth = params.padded()
            a, b, c = matrices.square()
            self._probes = Probes(a, b, c, team.rank)
            # As the kernel has them, by columns: the transposed of an array by rows.
            self._like_c = np.zeros((columns, rows))
            self._c = self._gpu.array(padded(c, rows, columns))
            arguments = (
                self._c,
                self._gpu.array(padded(a, rows, depth)),
                self._gpu.array(padded(b, depth, columns)),
                np.int64(rows),
                np.int64(depth),
            )
            launch = Launch(
                function=function,
                blocks=params.blocks(),
                threads=threads,
                arguments=arguments,
                shared_bytes=shared_bytes,
            )
            self._one = self._gpu.recorded([launch])
            self._batch = self._gpu.recorded([launch] * BATCH)
            self._runs = 0
            self.run(1)
        except BaseException:
            self._gpu.close()
            raise

    def run(self, iterations: int) -> None:
        """Add A B to C ``iterations`` times, in graphs of BATCH products and of one."""
        batches, single = divmod(iterations, BATCH)
        self._gpu.replay(self._batch, batches)
        self._gpu.replay(self._one, single)
        self._runs += iterations

    def counts(self) -> Counts:
        """Operations of one product on this GPU."""
        return count_product(self._params, self._at_a_time, self._gpu.l2_bytes)

    def metrics(self) -> Mapping[str, float]:
        """What the variant needs, and how many blocks each processor runs at a time."""
        return {
            "registers": self._use.registers,
            "spilled_bytes": self._use.spilled_bytes,
            "resident_blocks": self._at_a_time // self._gpu.processors,
        }

    def check(self) -> None:
        """Compare C with C + runs A B: see :mod:`kernels.products.probes`."""
        n = self._params.n
        c = self._gpu.copied(self._c, self._like_c).T[:n, :n]
        self._probes.check(c, self._runs)

    def close(self) -> None:
        """Release the GPU's memory."""
        self._gpu.close()


def padded(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """A matrix by columns, with zeros after its own rows and columns: float64 (columns, rows)."""
    result = np.zeros((columns, rows))
    result[: matrix.shape[1], : matrix.shape[0]] = matrix.T
    return result
