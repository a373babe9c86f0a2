"""``gpu_fmm_u`` on a GPU."""

from __future__ import annotations

import numpy as np

from kernels.cuda.device import Gpu
from kernels.cuda.fmm.direct import FUNCTION, direct_source, tolerance
from kernels.cuda.fmm.u_phase import GpuFmmUParams, UWork, count_u_phase, laid_out, work_of
from kernels.cuda.program import compile_program
from kernels.host.ranks import Team
from kernels.kernel import Counts, KernelError, ResultError, not_compiled

CHECKED = 100
"""Targets whose sums are checked."""
MOST_ROWS = 65_535
"""Blocks that a grid may have along y."""


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
        """All iterations in one launch, a row of the grid each, as far as a grid has rows. The GPU
        starts blocks as others end: jobs that differ in length leave no processor waiting but at
        the end."""
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
    """Raises :class:`KernelError` where the tree cannot be built."""
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
    # Evenly along the Z curve, so that leaves from everywhere are included.
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
