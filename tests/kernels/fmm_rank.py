"""One rank of a test: potentials and gradients by ranks, saved by rank 0; then the kernel."""

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
    # Rank 0 has no point of its own where there are others; the rest have them in no order.
    share = np.arange(len(points)) % max(ranks - 1, 1) + (ranks > 1)
    mine = np.flatnonzero(share == rank)
    setup = setup_for(float(digits), q=int(q), threads=1)
    method = RankedFmm(comm, points[mine], setup)
    method.evaluate(np.ones(len(mine)))
    potential = method.evaluate(charges[mine])
    also, gradient = method.gradients(charges[mine])
    found = np.zeros((5, len(points)))
    found[0, mine], found[1, mine], found[2:, mine] = potential, also, gradient.T
    comm.Allreduce(MPI.IN_PLACE, found)
    if rank == 0:
        np.save(result, found)
    prepared = fmm.prepare(fmm.params(n=1500, q=60, digits=4), Team(comm))
    prepared.run(2)
    prepared.check()
    if (prepared.counts() is None) != (ranks > 1):
        raise AssertionError("one rank alone knows its counts")


if __name__ == "__main__":
    main(*sys.argv[1:])
