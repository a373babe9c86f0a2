"""The ranks that run a kernel together: MPI processes, or a single process without MPI.

A kernel and the measurement use MPI only through a :class:`Team`. A serial run is a team of one
and does not import MPI.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kernels.host.programs import Launcher


class NoMpi(Exception):
    """No MPI library can be loaded; the text says why."""


class WrongTeamSize(Exception):
    """MPI started another number of ranks than was requested."""


class Team:
    """The ranks that run one kernel; a team of one unless a communicator is given.

    ``launcher``: what starts the ranks of a program that has its own
    (:attr:`kernels.kernel.Kernel.starts_ranks`).
    """

    def __init__(self, comm: Any = None, launcher: Launcher | None = None) -> None:
        self.comm = comm
        self.launcher = launcher
        self.rank: int = comm.Get_rank() if comm else 0
        self.size: int = comm.Get_size() if comm else 1

    @classmethod
    def of_world(cls, ranks: int) -> Team:
        """The team of COMM_WORLD, which must hold exactly ``ranks`` ranks.

        A launcher that does not know the library's start-up protocol silently starts N worlds of
        one rank each; that is an error here.

        Raises:
            NoMpi: there is no MPI library.
            WrongTeamSize: COMM_WORLD has another size.
        """
        if ranks == 1:
            return cls()
        try:
            from mpi4py import MPI  # noqa: PLC0415  (MPI starts at import)
        except (ImportError, RuntimeError) as error:
            raise NoMpi(str(error).replace("\n", "; ")) from None

        size = MPI.COMM_WORLD.Get_size()
        if size != ranks:
            raise WrongTeamSize(
                f"COMM_WORLD has {size} rank(s), but {ranks} were requested: the launcher and the "
                f"MPI library ({MPI.Get_library_version().splitlines()[0]}) use different start-up "
                f"protocols; set mpi in the environment of the partition in the site file"
            )
        return cls(MPI.COMM_WORLD)

    def barrier(self) -> None:
        """Wait until every rank has called this."""
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
        for of_rank in self.comm.allgather(None if counts is None else dict(counts)):
            if of_rank is None:
                return None
            for name, value in of_rank.items():
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
