"""One rank of a test: its potentials, gradients and counts; then the kernel on the same ranks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from mpi4py import MPI

from kernels.fmm.counts.by_phase import phase_counts
from kernels.fmm.counts.machine import MachineModel
from kernels.fmm.counts.work import work_of
from kernels.fmm.interface import setup_for
from kernels.fmm.kernel import fmm
from kernels.fmm.mpi_ranks import RankedFmm
from kernels.host.ranks import Team
from kernels.kernel import KernelError


def main(given: str, folder: str) -> None:
    comm = MPI.COMM_WORLD
    rank, ranks = comm.Get_rank(), comm.Get_size()
    cloud = np.load(given)
    points, charges, digits, q = cloud["points"], cloud["charges"], cloud["digits"], cloud["q"]
    # Rank 0 gives no points where there are other ranks; these give points in no order.
    share = np.arange(len(points)) % max(ranks - 1, 1) + (ranks > 1)
    mine = np.flatnonzero(share == rank)
    setup = setup_for(float(digits), q=int(q), threads=1)
    method = RankedFmm(comm, points[mine], setup)
    method.evaluate(np.ones(len(mine)))
    potential = method.evaluate(charges[mine])
    again, gradient = method.gradients(charges[mine])
    computed = np.zeros((5, len(points)))
    computed[0, mine], computed[1, mine], computed[2:, mine] = potential, again, gradient.T
    comm.Allreduce(MPI.IN_PLACE, computed)
    if rank == 0:
        np.save(Path(folder) / "computed.npy", computed)
    prepared = fmm.prepare(fmm.params(n=1500, q=60, digits=4), Team(comm))
    prepared.run(2)
    prepared.check()
    counted = {
        "own": np.flatnonzero(method.part.own).tolist(),
        "phases": phase_counts(
            work_of(method, method.messages),
            MachineModel(vector_bytes=method.dtype.itemsize, registers=16),
        ),
        "messages": asdict(method.messages),
        "kernel": prepared.counts(),
        "all_ranks": Team(comm).sums(prepared.counts()),
    }
    (Path(folder) / f"rank{rank}.json").write_text(json.dumps(counted))
    if ranks == 1:
        return
    try:
        fmm.prepare(fmm.params(n=50, q=60), Team(comm))
    except KernelError as error:
        if "50 points in 1 leaves cannot be divided" not in str(error):
            raise
    else:
        raise AssertionError("one leaf on several ranks was not refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
