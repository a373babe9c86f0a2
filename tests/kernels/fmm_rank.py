"""One rank of a test: potentials and gradients by ranks, saved by rank 0."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

from kernels.fmm.distributed import RankedFmm
from kernels.fmm.evaluation import prepare


def main(given: str, result: str) -> None:
    comm = MPI.COMM_WORLD
    rank, ranks = comm.Get_rank(), comm.Get_size()
    cloud = np.load(given)
    points, charges, digits, q = cloud["points"], cloud["charges"], cloud["digits"], cloud["q"]
    # Rank 0 has no point of its own where there are others; the rest have them in no order.
    share = np.arange(len(points)) % max(ranks - 1, 1) + (ranks > 1)
    mine = np.flatnonzero(share == rank)
    setup = prepare(points[:2], digits=float(digits), q=int(q), threads=1).setup
    method = RankedFmm(comm, points[mine], setup)
    method.evaluate(np.ones(len(mine)))
    potential = method.evaluate(charges[mine])
    also, gradient = method.gradients(charges[mine])
    found = np.zeros((5, len(points)))
    found[0, mine], found[1, mine], found[2:, mine] = potential, also, gradient.T
    comm.Allreduce(MPI.IN_PLACE, found)
    if rank == 0:
        np.save(result, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
