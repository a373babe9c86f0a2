"""What every kernel is: parameters, exact operation counts, and a prepared run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from kernels.host.ranks import Team

Counts = Mapping[str, float]
"""Class -> operations of one iteration: flops of ``sp`` and ``dp``, operations of ``int``, bytes
of ``shared``, ``l1``, ``l2``, ``l3`` and ``dram`` (once, at the level that served them).
Operations of any other class, a user's own."""


class KernelFailed(Exception):
    """The kernel could not be prepared or run; the text says what happened."""


class WrongResult(Exception):
    """The kernel ran, and its result is not what it must be."""


class Params(BaseModel):
    """A kernel's parameters: an unknown or mistyped one is an error of the campaign file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Prepared(Protocol):
    """A kernel compiled, with its data in place, ready to be run inside a window."""

    def run(self, iterations: int) -> None:
        """Run so many iterations. Releases the GIL, so that a sampler thread keeps time."""

    def counts(self) -> Counts | None:
        """Operations of one iteration on this rank; None when they are not known."""

    def check(self) -> None:
        """Raise :class:`WrongResult` unless the last run computed what it had to."""

    def close(self) -> None:
        """Give back memory, files and threads."""


@dataclass(frozen=True)
class Mark:
    """When a phase of a kernel ran: from ``begin_ns`` to ``end_ns``, CLOCK_MONOTONIC."""

    phase: str
    begin_ns: int
    end_ns: int


@runtime_checkable
class Marked(Protocol):
    """A prepared kernel that tells its phases apart."""

    def marks(self) -> Sequence[Mark]:
        """The phases of the last run on this rank, or of its beginning, in order of time."""


@dataclass(frozen=True)
class Kernel:
    """A kernel as the registry knows it.

    ``counts`` is a pure function of the parameters (operations of one iteration, one rank;
    None where only a run can tell), so that a plan and a simulated machine can use it;
    ``prepare`` runs on the node, on every rank.
    """

    name: str
    summary: str
    params: type[Params]
    counts: Callable[[Any], Counts | None]
    prepare: Callable[[Any, Team], Prepared]
    imports: tuple[str, ...] = ()
    """Modules that ``prepare`` imports and that are slow to import: a warm parent imports them."""
    phases: Callable[[Any], Mapping[str, Counts]] | None = None
    """For a kernel whose phases follow one another: the counts of each, by name and in order."""
