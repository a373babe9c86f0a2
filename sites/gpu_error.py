"""Errors that the libraries of GPUs' vendors report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Protocol


class GpuError(Exception):
    """A vendor's library, a GPU, or one of its functions cannot be used.

    Args:
        what: the library or device and what happened.
        remedy: how to fix it, with a command where there is one.
        code: the library's error; None if it is not one.
    """

    UNSUPPORTED: ClassVar[tuple[int, ...]] = ()
    ILLEGAL: ClassVar[tuple[int, ...]] = ()
    GONE: ClassVar[tuple[int, ...]] = ()

    def __init__(self, what: str, remedy: str, code: int | None = None) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy
        self.code = code

    @property
    def is_unsupported(self) -> bool:
        """Whether the GPU or its driver does not offer the requested function or field."""
        return self.code in self.UNSUPPORTED

    @property
    def is_illegal(self) -> bool:
        """Whether the GPU does not offer the requested value."""
        return self.code in self.ILLEGAL

    @property
    def is_gone(self) -> bool:
        """Whether the driver or the GPU is gone, and its settings with it. A GPU that is not listed
        may be hidden from this process (by Slurm or a container) and still be set."""
        return self.code in self.GONE


class Closable(Protocol):
    """A vendor's library, or other resources, that were opened."""

    def close(self) -> None: ...


@contextmanager
def closed_on_error(library: Closable) -> Iterator[None]:
    """Close a library if the body fails, for example while it searches for GPUs."""
    try:
        yield
    except BaseException:
        library.close()
        raise
