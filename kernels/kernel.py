"""What every kernel has: parameters, operation counts, and a way to prepare and run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from kernels.host.ranks import Team

Counts = Mapping[str, float]
"""Class -> operations of one iteration: flops of ``sp`` and ``dp``, operations of ``int``, bytes
of ``shared``, ``l1``, ``l2``, ``l3`` and ``dram`` (each byte once, at the level that served it),
cycles of ``stall``, operations of any other class."""


class KernelError(Exception):
    """The kernel could not be prepared or run; the text says why."""


def not_compiled(error: Exception) -> KernelError:
    """What to raise where Numba is missing, or finds no directory for its machine code."""
    return KernelError(
        f"cannot compile the kernel: {error} (set NUMBA_CACHE_DIR to a writable directory for the "
        f"machine code)"
    )


class ResultError(Exception):
    """The kernel ran, and its result is wrong."""


class ParameterError(ValueError):
    """What a check of several parameters raises: the ``parameter`` that is wrong beside the
    others, ``what`` was found, and the ``remedy``."""

    def __init__(self, parameter: str, what: str, remedy: str) -> None:
        super().__init__(f"{parameter}: {what}; {remedy}")
        self.parameter, self.what, self.remedy = parameter, what, remedy


class Params(BaseModel):
    """A kernel's parameters. An unknown or mistyped one is an error of the campaign file.

    The text below each field is shown in the documentation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Prepared(Protocol):
    """A kernel that is compiled, has its data in memory, and can be run and measured."""

    def run(self, iterations: int) -> None:
        """Run ``iterations`` times. Releases the GIL, so that a sampler thread keeps time."""

    def counts(self) -> Counts | None:
        """Operations of one iteration on this rank; None where they are unknown."""

    def check(self) -> None:
        """Raise :class:`ResultError` if the last run's result is wrong."""

    def close(self) -> None:
        """Release memory, files and threads."""


@dataclass(frozen=True)
class Mark:
    """When a phase of a kernel ran: from ``begin_ns`` to ``end_ns``, CLOCK_MONOTONIC."""

    phase: str
    begin_ns: int
    end_ns: int


@runtime_checkable
class Marked(Protocol):
    """A prepared kernel that records when each of its phases ran."""

    def marks(self) -> Sequence[Mark]:
        """The phases of the last run on this rank, or of its first iterations, in time order."""


@runtime_checkable
class WithMetrics(Protocol):
    """A prepared kernel that knows more about its variant than the parameters say."""

    def metrics(self) -> Mapping[str, float]:
        """Further numbers that a measurement records, by name, beside those of
        :attr:`Kernel.metrics`: registers by the compiler of this node, for example."""


@runtime_checkable
class Flagged(Protocol):
    """A prepared kernel that knows what may be wrong with its measurement."""

    def flags(self) -> Sequence[str]:
        """Sentences that a measurement records."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel in the registry.

    ``summary`` and ``counted`` say in words what it runs and what it counts, for help and
    documentation; ``classes``: every class of operations that it may count, of
    :data:`kernels.classes.CLASSES`. ``counts`` gives the operations of one iteration on one rank
    as a pure function of the parameters, so that a plan and a simulated machine can use it; None
    where only a run can know. ``prepare`` runs on the node, on every rank; None where the kernel is
    counted but has no program, so that only a simulated machine can run it.
    """

    name: str
    summary: str
    counted: str
    classes: tuple[str, ...]
    params: type[Params]
    counts: Callable[[Any], Counts | None]
    prepare: Callable[[Any, Team], Prepared] | None
    needs: tuple[str, ...] = ()
    """What a node must have to run it, beyond a host's processor, in words."""
    imports: tuple[str, ...] = ()
    """Modules that ``prepare`` imports and that take long to import. A process that starts many
    measurements imports them once."""
    phases: Callable[[Any], Mapping[str, Counts]] | None = None
    """For a kernel whose phases follow one another: the counts of each, by name and in order."""
    metrics: Callable[[Any], Mapping[str, float]] | None = None
    """Further numbers about a variant, by name, that a measurement records: how many registers it
    needs, for example."""
    refused_on: Callable[[Any, str], str] | None = None
    """Of a GPU's kernel: why GPUs of an architecture, such as ``sm_90``, cannot run a variant, as
    far as the compiler tells; empty where they can. No GPU is needed."""
    timed: tuple[str, ...] = ()
    """The metrics that are numbers of things that take time, as the counts are: the time of a
    variant is then modelled as a sum over both. Empty where it is not such a sum."""
    starts_ranks: bool = False
    """Whether it runs a program whose MPI ranks it starts itself, by :attr:`Team.launcher`: it is
    then prepared once, in a team of one."""
