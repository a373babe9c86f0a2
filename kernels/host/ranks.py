"""The ranks that run a kernel together: MPI processes, or a single process without MPI.

A kernel and the measurement use MPI only through a :class:`Team`. A serial run is a team of one
and does not import MPI.

A rank that waits for others sleeps between polls: an MPI library polls without a pause, which takes
processor time and power from the measured kernel. So a waiting rank also receives the message that
another rank has failed.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from typing import Any

from kernels.host.programs import Launcher


class MpiError(Exception):
    """No MPI library can be loaded; the text says why."""


class TeamSizeError(Exception):
    """MPI started more or fewer ranks than requested."""


class RankError(Exception):
    """Another rank has failed; ``status`` and ``text``: of the failed rank."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


WAIT_S = 1e-3
"""The time that a waiting rank sleeps between two polls."""
END_S = 2.0
"""The time in which the ranks of a failed team restore clocks and end programs."""
FAILED = 1
"""The tag of the message that a rank has failed."""


def node_name() -> str:
    """The node's name in Slurm, otherwise its host name."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


class Team:
    """The ranks that run one kernel; a team of one without a communicator.

    ``launcher``: starts the ranks of a kernel's program
    (:attr:`kernels.kernel.Kernel.starts_ranks`). ``nodes``: the name of each rank's node.
    """

    def __init__(self, comm: Any = None, launcher: Launcher | None = None) -> None:
        self.comm = comm
        self.launcher = launcher
        self.rank: int = comm.Get_rank() if comm else 0
        self.size: int = comm.Get_size() if comm else 1
        self.nodes: list[str] = self.gather(node_name())

    @classmethod
    def of_world(cls, ranks: int, launcher: Launcher | None = None) -> Team:
        """The team of COMM_WORLD, which must have exactly ``ranks`` ranks.

        A launcher with another start-up protocol than the library's silently starts N worlds of one
        rank each; here that is an error.

        Raises:
            MpiError: no MPI library can be loaded.
            TeamSizeError: COMM_WORLD has another size.
        """
        if ranks == 1:
            return cls(launcher=launcher)
        try:
            from mpi4py import MPI  # noqa: PLC0415  (MPI starts at import)
        except (ImportError, RuntimeError) as error:
            raise MpiError(str(error).replace("\n", "; ")) from None

        size = MPI.COMM_WORLD.Get_size()
        if size != ranks:
            raise TeamSizeError(
                f"COMM_WORLD has {size} rank(s), but {ranks} were requested: the launcher and the "
                f"MPI library ({MPI.Get_library_version().splitlines()[0]}) use different start-up "
                f"protocols; set mpi in the environment of the partition in the site file"
            )
        return cls(MPI.COMM_WORLD, launcher)

    def barrier(self) -> None:
        """Wait until every rank has called this, then continue together.

        Raises:
            RankError: another rank has failed. All other collective methods raise it too.
        """
        if self.comm:
            self._wait()
            self.comm.Barrier()

    def _wait(self) -> None:
        """Sleep until every rank has called this."""
        all_here = self.comm.Ibarrier()
        while not all_here.Test():
            if self.comm.iprobe(tag=FAILED):
                raise RankError(*self.comm.recv(tag=FAILED))
            time.sleep(WAIT_S)

    def tell_failed(self, status: str, text: str) -> None:
        """Send the message to all other ranks that this one has failed: their waits raise it."""
        for rank in range(self.size):
            if rank != self.rank:
                self.comm.isend((status, text), rank, tag=FAILED)

    def maximum(self, value: float) -> float:
        """The largest of the ranks' values, on every rank."""
        return float(max(self.gather(value)))

    def sums(self, counts: Mapping[str, float] | None) -> dict[str, float] | None:
        """Class -> sum of the ranks' counts, on every rank; None if any rank has no counts."""
        total: dict[str, float] = {}
        for of_rank in self.gather(None if counts is None else dict(counts)):
            if of_rank is None:
                return None
            for name, value in of_rank.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank, in rank order."""
        if not self.comm:
            return [value]
        self._wait()
        return list(self.comm.allgather(value))

    def decide(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if not self.comm:
            return value
        self._wait()
        return self.comm.bcast(value, root=0)

    def end_failed(self) -> None:
        """End all ranks after one has failed, including ranks that wait inside a kernel."""
        if self.comm:
            time.sleep(END_S)
            self.comm.Abort(1)

    @property
    def node(self) -> str:
        """The name of this rank's node."""
        return self.nodes[self.rank]

    def first_on_node(self) -> bool:
        """Whether this rank is its node's first, which reads the meters and sets the clocks."""
        return self.nodes.index(self.node) == self.rank
