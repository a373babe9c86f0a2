"""The launchers of MPI ranks, for the measuring program and for a user's program.

The measuring program uses the MPI library that mpi4py loads: the one that MPI4PY_LIBMPI names, else
one in this interpreter's environment (the wheel mpich if the extra mpi is installed), else the
site's. A user's program uses the MPI with which it was linked; if the site has a launcher, the
measuring program's never starts it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from campaign.measure.point_server import STEP_NAME
from campaign.plan.point import Point
from dvfs.extras import MissingExtraError
from kernels.host.programs import Launcher, site_launcher, wheel_programs
from kernels.registry import find_kernel
from sites.clocks.slurm import step_flags
from sites.site_file import Site
from sites.slurm_environment import step_environment

OTHER_LIBRARY = ("MPI4PY_LIBMPI", "MPI4PY_MPIABI")
"""If one of these variables is set, mpi4py does not search this interpreter's environment."""

MPI_TYPE = "SLURM_MPI_TYPE"
"""The variable of srun's --mpi; an environment module of the site may set it."""


def measuring_ranks(point: Point, site: Site) -> int:
    """The number of processes that measure a point: its ranks, or one on each node if the ranks are
    a program's."""
    starts_ranks = find_kernel(point.kernel).starts_ranks
    return site.nodes_per_point * (1 if starts_ranks else point.ranks)


def program_ranks(point: Point, site: Site) -> int:
    """The number of ranks of a user's program, which the kernel starts; 1 for other kernels."""
    starts_ranks = find_kernel(point.kernel).starts_ranks
    return site.nodes_per_point * point.ranks if starts_ranks else 1


def step_size(site: Site, ranks: int, cores: int) -> list[str]:
    """srun's options for the ranks on a point's nodes. ``cores``: allocated on each node."""
    nodes = site.nodes_per_point
    words = [f"--nodes={nodes}", f"--ntasks={ranks}"]
    if nodes > 1:
        words.append(f"--ntasks-per-node={ranks // nodes}")
    return [*words, f"--cpus-per-task={max(1, cores * nodes // ranks)}"]


def ranks_mpi(site: Site, partition: str) -> str | None:
    """srun's --mpi for the measuring program's ranks; None for Slurm's default."""
    if "mpiexec" in wheel_programs() and not _other_library():
        return "pmi2"
    return program_mpi(site, partition)


def program_mpi(site: Site, partition: str) -> str | None:
    """srun's --mpi for a user's program; None for Slurm's default."""
    entry = site.partitions.get(partition)
    return None if entry is None else entry.environment.mpi


def measuring_mpiexec() -> str:
    """The ``mpiexec`` of the library that mpi4py loads.

    Raises:
        MissingExtraError: there is none.
    """
    in_environment = wheel_programs().get("mpiexec") or Path(sys.executable).with_name("mpiexec")
    if in_environment.exists() and not _other_library():
        return str(in_environment)
    return _required(site_launcher())


def program_launcher(point: Point, site: Site) -> Launcher | None:
    """The launcher of a user's program; None if the program has one rank, and for other kernels.

    In a Slurm job this is srun; otherwise the site's mpiexec or, without one, the wheel's.

    Raises:
        MissingExtraError: there is no mpiexec.
    """
    ranks = program_ranks(point, site)
    if ranks == 1:
        return None
    if "SLURM_JOB_ID" not in os.environ:
        wheel = wheel_programs().get("mpiexec")
        mpiexec = _required(site_launcher() or (None if wheel is None else str(wheel)))
        return Launcher((mpiexec, "-n", str(ranks)), ranks, os.environ, True)
    environment = step_environment()
    if MPI_TYPE in os.environ:
        environment[MPI_TYPE] = os.environ[MPI_TYPE]
    cores = int(os.environ.get("SLURM_CPUS_ON_NODE", "1"))
    words = program_step_words(point, site, cores)
    return Launcher(tuple(words), ranks, environment, False)


def program_step_words(point: Point, site: Site, cores: int) -> list[str]:
    """srun and its options for a program's ranks. ``cores``: allocated on each node.

    This step runs inside the measuring step. It requests the same core clocks, so that Slurm does
    not set its default. It requests no clocks of a GPU: at its end Slurm would reset those that the
    outer step has set.
    """
    mpi = program_mpi(site, point.partition)
    words = [
        "srun",
        *step_size(site, program_ranks(point, site), cores),
        f"--job-name={STEP_NAME}",
        "--overlap",
        "--kill-on-bad-exit=1",
        "--quiet",
        "--export=ALL",
    ]
    if mpi is not None:
        words.append(f"--mpi={mpi}")
    if site.clocks.in_steps and site.clocks.device == "cpu":
        words += step_flags(point.setting, "cpu")
    return words


def _other_library() -> bool:
    return any(name in os.environ for name in OTHER_LIBRARY)


def _required(mpiexec: str | None) -> str:
    if mpiexec is None:
        raise MissingExtraError("mpich")
    return mpiexec
