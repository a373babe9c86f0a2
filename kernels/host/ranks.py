"""The ``mpi`` launch mode: a kernel run as ranks that start together.

A :class:`Team` is what a kernel and the measurement see of it. A serial run is a team of one
and imports nothing of MPI.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


class WrongTeamSize(Exception):
    """MPI started another number of ranks than was asked for."""


class Team:
    """The ranks that run one kernel; a team of one unless a communicator is given."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank() if comm else 0
        self.size: int = comm.Get_size() if comm else 1

    @classmethod
    def of_world(cls, ranks: int) -> Team:
        """The team of COMM_WORLD, which must hold exactly ``ranks`` ranks.

        A launcher that does not speak the library's start-up protocol starts N worlds of one
        rank each, silently; that is refused here.

        Raises:
            WrongTeamSize: COMM_WORLD has another size.
        """
        if ranks == 1:
            return cls()
        from mpi4py import MPI  # noqa: PLC0415  (MPI starts at import)

        size = MPI.COMM_WORLD.Get_size()
        if size != ranks:
            raise WrongTeamSize(
                f"COMM_WORLD has {size} rank(s) where {ranks} were asked for: the launcher and "
                f"the MPI library do not speak the same start-up protocol (with the PyPI wheel "
                f"mpich use `srun --mpi=pmi2` or its own mpiexec)"
            )
        return cls(MPI.COMM_WORLD)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.comm:
            self.comm.Barrier()

    def maximum(self, value: float) -> float:
        """The largest of the ranks' values, on every rank."""
        if not self.comm:
            return value
        from mpi4py import MPI  # noqa: PLC0415

        return float(self.comm.allreduce(value, op=MPI.MAX))

    def sums(self, counts: Mapping[str, float] | None) -> dict[str, float] | None:
        """Counts by class added over the ranks, on every rank; None if any rank has none."""
        if not self.comm:
            return None if counts is None else dict(counts)
        total: dict[str, float] = {}
        for each in self.comm.allgather(None if counts is None else dict(counts)):
            if each is None:
                return None
            for name, value in each.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank, in rank order."""
        return self.comm.allgather(value) if self.comm else [value]

    def decide(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        return self.comm.bcast(value, root=0) if self.comm else value

    def first_on_node(self) -> bool:
        """Whether this rank is the one that reads its node's meters."""
        nodes = self.gather(os.uname().nodename)
        return nodes.index(nodes[self.rank]) == self.rank
