"""The interface of kernels: parameters, operation counts, and functions to prepare and run."""

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
    """The error to raise where Numba is missing, or finds no directory for its machine code."""
    return KernelError(
        f"cannot compile the kernel: {error} (set NUMBA_CACHE_DIR to a writable directory for the "
        f"machine code)"
    )


class ResultError(Exception):
    """The kernel ran, and its result is wrong."""


class ParameterError(ValueError):
    """An error in a combination of parameters. ``parameter``: the wrong one; ``what``: the error;
    ``remedy``: its remedy."""

    def __init__(self, parameter: str, what: str, remedy: str) -> None:
        super().__init__(f"{parameter}: {what}; {remedy}")
        self.parameter, self.what, self.remedy = parameter, what, remedy


class Params(BaseModel):
    """A kernel's parameters. An unknown name or a wrong type is an error of the campaign file.

    The text below each field is shown in the documentation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Prepared(Protocol):
    """A compiled kernel with its data in memory, ready to be run and measured."""

    def run(self, iterations: int) -> None:
        """Run ``iterations`` times, without the GIL, so that a sampler thread keeps its period."""

    def counts(self) -> Counts | None:
        """Operations of one iteration on this rank; None where they are unknown."""

    def check(self) -> None:
        """Raise :class:`ResultError` if the last run's result is wrong."""

    def close(self) -> None:
        """Release memory, files and threads."""


@dataclass(frozen=True)
class Mark:
    """The time of a phase of a kernel: from ``begin_ns`` to ``end_ns``, CLOCK_MONOTONIC."""

    phase: str
    begin_ns: int
    end_ns: int


@runtime_checkable
class Marked(Protocol):
    """A prepared kernel that records the time of each of its phases."""

    def marks(self) -> Sequence[Mark]:
        """The phases of the last run on this rank, or of its first iterations, in time order."""


@runtime_checkable
class WithMetrics(Protocol):
    """A prepared kernel with metrics of its variant that do not follow from the parameters."""

    def metrics(self) -> Mapping[str, float]:
        """Name -> number that a measurement records in addition to :attr:`Kernel.metrics`: the
        registers that this node's compiler uses, for example."""


@runtime_checkable
class Flagged(Protocol):
    """A prepared kernel with warnings about its measurement."""

    def flags(self) -> Sequence[str]:
        """The warnings that a measurement records, as sentences."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel in the registry.

    ``summary``, ``counted``: what it runs and what it counts, in words, for help and documentation.
    ``classes``: every class of operations that it may count, of
    :data:`kernels.classes.CLASSES`. ``counts``: the operations of one iteration on one rank, a pure
    function of the parameters, so that a plan and a simulated machine can use it; it returns None
    where only a run can count. ``prepare`` runs on the node, on every rank; None where the kernel
    has counts but no program, so that only a simulated machine can run it.
    """

    name: str
    summary: str
    counted: str
    classes: tuple[str, ...]
    params: type[Params]
    counts: Callable[[Any], Counts | None]
    prepare: Callable[[Any, Team], Prepared] | None
    needs: tuple[str, ...] = ()
    """The hardware and software that it needs in addition to a host's processor, in words."""
    imports: tuple[str, ...] = ()
    """The modules that ``prepare`` imports slowly. A process that starts many measurements imports
    them once."""
    phases: Callable[[Any], Mapping[str, Counts]] | None = None
    """For a kernel with successive phases: phase -> counts, in order."""
    metrics: Callable[[Any], Mapping[str, float]] | None = None
    """Name -> number about a variant that a measurement records: the registers that it needs, for
    example."""
    refused_on: Callable[[Any, str], str] | None = None
    """For a GPU's kernel: the reason why GPUs of an architecture, such as ``sm_90``, cannot run a
    variant, from the compiler; empty where they can. No GPU is needed."""
    timed: tuple[str, ...] = ()
    """The metrics that, like the counts, are numbers of operations that take time: a variant's time
    is then modelled as a sum over both. Empty where it is not such a sum."""
    starts_ranks: bool = False
    """Whether it starts the MPI ranks of its program itself, by :attr:`Team.launcher`: it is then
    prepared once, in a team of one."""
