"""The GPUs that a control sets: selection, rights, and restoring, also after a killed process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from sites.clocks.shared.control import ClocksError, Right
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable
from sites.clocks.shared.journal import Entry, Journal, PutBack, signals_wait
from sites.gpu_error import GpuError, closed_on_error
from sites.nvml_library import Gpu, NvmlLibrary, find_gpus, open_library

AnyGpu = TypeVar("AnyGpu")
Found = TypeVar("Found")
Reopen = Callable[[str], AbstractContextManager[tuple[Any, Any]]]
"""A GPU's name in a journal -> its open library, and the GPU, which has a ``label``."""


def open_gpus(root: Path, names: list[int | str] | None) -> tuple[NvmlLibrary, tuple[Gpu, ...]]:
    """NVML, which the caller closes, and the selected GPUs.

    Raises:
        ClocksError: there is no NVML, or not the selected GPU.
    """
    with as_clocks_unavailable():
        library = open_library(root)
        with closed_on_error(library):
            return library, find_gpus(library, names)


@contextmanager
def reopened(root: Path, uuid: str) -> Iterator[tuple[NvmlLibrary, Gpu]]:
    """NVML, closed after the body, and the GPU with this UUID.

    Raises:
        NvmlError: there is no NVML, or no such GPU.
    """
    with closing(open_library(root)) as library:
        yield library, find_gpus(library, [uuid])[0]


NVIDIA = ("NVIDIA", "dev/nvidia[0-9]*", "dev/nvidia0", "NVML")
AMD = ("AMD", "dev/kfd", "dev/kfd", "amdgpu")
"""A vendor, its device files (a glob pattern), one of them, and the driver that checks for root."""


def right_of_root(
    vendor: tuple[str, str, str, str], control: str, action: str, remedy: str, root: Path
) -> Right:
    """Whether this user may do ``action`` (a phrase), which the driver allows only to root."""
    name, devices, device_file, driver = vendor
    if not any(root.glob(devices)):
        return Right(control, False, f"{root / device_file} does not exist: no {name} GPU")
    if os.geteuid() != 0:
        return Right(control, False, f"{driver} lets only root {action}", remedy)
    return Right(control, True, f"root may {action}")


@dataclass
class SetGpu(Generic[AnyGpu, Found]):
    """A GPU that a control sets. ``found``: its values before; None while this process has set
    none. ``put_back`` restores them, and returns the failures."""

    gpu: AnyGpu
    journal: Journal
    put_back: Callable[[Found], list[GpuError]]
    found: Found | None = None

    def record(self, read_value: Callable[[], Found], entry: Callable[[Found], Entry]) -> Found:
        """Hold the journal, record the GPU's value before the first change, and return it.

        Raises:
            ClocksError: it cannot be read or recorded, or another process has set the GPU.
        """
        with signals_wait():
            self.journal.hold()
            if self.found is None:
                try:
                    with as_clocks_unavailable():
                        value = read_value()
                    self.journal.write([entry(value)])
                except BaseException:
                    self.journal.forget()
                    raise
                self.found = value
            return self.found

    def restore(self) -> list[GpuError]:
        """Restore what this process changed, and remove the journal; returns the failures."""
        if not self.journal.held or self.found is None:
            return []
        errors = self.put_back(self.found)
        if not errors:
            self.found = None
            self.journal.forget()
        return errors


def restore_gpus(gpus: Iterable[SetGpu[Any, Any]], by_hand: str) -> None:
    """Restore the GPUs; a failure does not stop the others.

    Raises:
        ClocksError: some could not be restored; ``by_hand``: how the user restores them.
    """
    with signals_wait():
        failed = [error.what for gpu in gpus for error in gpu.restore()]
    if failed:
        raise ClocksError("not restored: " + "; ".join(failed), by_hand)


def give_up(gpus: Sequence[SetGpu[Any, Any]], close: Callable[[], None]) -> None:
    """Restore the GPUs, leave those that fail to the next start, and close the library."""
    with signals_wait():
        for gpu in gpus:
            if gpu.restore():
                gpu.journal.let_go()
    close()


def put_back_gpus(
    reopen: Reopen, entries: Iterable[tuple[str, Callable[[Any, Any], list[GpuError]], str]]
) -> PutBack:
    """Restore GPUs. ``entries``: for each its name, a function that restores it and returns the
    failures, and the message on success."""
    done: list[str] = []
    gone: list[str] = []
    failed: list[str] = []
    for name, restore, result in entries:
        try:
            with reopen(name) as (library, gpu):
                errors = restore(library, gpu)
                if not errors:
                    done.append(f"{gpu.label}: {result}")
                for failure in errors:
                    (gone if failure.is_gone else failed).append(failure.what)
        except GpuError as error:
            (gone if error.is_gone else failed).append(f"{name}: {error}")
    return PutBack(tuple(done), tuple(gone), tuple(failed))
