"""One rank of a test: potentials and gradients on ranks, saved by rank 0; then the kernel."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

from kernels.fmm.interface import setup_for
from kernels.fmm.kernel import fmm
from kernels.fmm.mpi_ranks import RankedFmm
from kernels.host.ranks import Team


def main(given: str, result: str) -> None:
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
        np.save(result, computed)
    prepared = fmm.prepare(fmm.params(n=1500, q=60, digits=4), Team(comm))
    prepared.run(2)
    prepared.check()
    if (prepared.counts() is None) != (ranks > 1):
        raise AssertionError("the counts are known on one rank only")


if __name__ == "__main__":
    main(*sys.argv[1:])
