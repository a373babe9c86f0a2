"""The GPUs that a control sets: which, who may set them, and what a killed process left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from sites.clocks.shared.control import ClocksError, ControlDescription, Right
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable
from sites.clocks.shared.journal import Entry, Journal, PutBack, signals_wait
from sites.gpu_error import GpuError, closed_on_error
from sites.nvml_library import Gpu, NvmlLibrary, find_gpus, open_library

DEVICES = {
    "devices": "indices or UUIDs (default: CUDA_VISIBLE_DEVICES, or all)",
}
"""The option that selects them, for a control's description."""
AnyGpu = TypeVar("AnyGpu")
Found = TypeVar("Found")
Reopen = Callable[[str], AbstractContextManager[tuple[Any, Any]]]
"""Of a GPU's name in a journal: its library, opened, and the GPU, which has a ``label``."""


def parse_devices(about: ControlDescription, options: Mapping[str, Any]) -> list[int | str] | None:
    """The option ``devices``; None where it is not given.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    about.check_options(options)
    names = options.get("devices")
    if names is None:
        return None
    if not isinstance(names, list) or not names or not all(type(e) in (int, str) for e in names):
        raise ValueError(f"devices = {names!r}; give a list of indices or UUIDs, such as [0]")
    return names


def open_gpus(root: Path, names: list[int | str] | None) -> tuple[NvmlLibrary, tuple[Gpu, ...]]:
    """NVML, to be closed, and the selected GPUs.

    Raises:
        ClocksError: there is no NVML, or not the selected GPU.
    """
    with as_clocks_unavailable():
        library = open_library(root)
        with closed_on_error(library):
            return library, find_gpus(library, names)


@contextmanager
def reopened(root: Path, uuid: str) -> Iterator[tuple[NvmlLibrary, Gpu]]:
    """NVML, as long as the context lasts, and the GPU with this UUID.

    Raises:
        NvmlError: there is no NVML, or no such GPU.
    """
    with closing(open_library(root)) as library:
        yield library, find_gpus(library, [uuid])[0]


NVIDIA = ("dev/nvidia[0-9]*", "dev/nvidia0", "NVML")
AMD = ("dev/kfd", "dev/kfd", "amdgpu")
"""A vendor's device files, one of them, and who decides what others than root may do."""


def right_of_root(
    control: str, root: Path, what: str, remedy: str, vendor: tuple[str, str, str] = NVIDIA
) -> Right:
    """Whether this user may do ``what`` (a phrase), which the driver lets only root do."""
    devices, one, driver = vendor
    if not any(root.glob(devices)):
        name = "NVIDIA" if vendor is NVIDIA else "AMD"
        return Right(control, False, f"{root / one} does not exist: no {name} GPU")
    if os.geteuid() != 0:
        return Right(control, False, f"{driver} lets only root {what}", remedy)
    return Right(control, True, f"root may {what}")


@dataclass
class SetGpu(Generic[AnyGpu, Found]):
    """A GPU that a control sets. ``found``: what it had before; None while this process set
    nothing. ``put_back`` restores that, and returns the failures."""

    gpu: AnyGpu
    journal: Journal
    put_back: Callable[[Found], list[GpuError]]
    found: Found | None = None

    def record(self, read: Callable[[], Found], entry: Callable[[Found], Entry]) -> Found:
        """Hold the journal, and record what is found before the first change.

        Raises:
            ClocksError: it cannot be read or recorded, or another process has set the GPU.
        """
        with signals_wait():
            self.journal.hold()
            if self.found is None:
                try:
                    with as_clocks_unavailable():
                        found = read()
                    self.journal.write([entry(found)])
                except BaseException:
                    self.journal.forget()
                    raise
                self.found = found
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
    """Restore the GPUs; every one is tried.

    Raises:
        ClocksError: some could not be restored; ``by_hand``: how a user can.
    """
    with signals_wait():
        failed = [error.what for gpu in gpus for error in gpu.restore()]
    if failed:
        raise ClocksError("not restored: " + "; ".join(failed), by_hand)


def give_up(gpus: Sequence[SetGpu[Any, Any]], close: Callable[[], None]) -> None:
    """Restore the GPUs, leave what fails to the next start, and close the library."""
    with signals_wait():
        for gpu in gpus:
            if gpu.restore():
                gpu.journal.let_go()
    close()


def put_back_gpus(
    reopen: Reopen, found: Iterable[tuple[str, Callable[[Any, Any], list[GpuError]], str]]
) -> PutBack:
    """Restore GPUs: of each its name, what restores it and returns the failures, and what is said
    once it is done."""
    done: list[str] = []
    gone: list[str] = []
    failed: list[str] = []
    for name, restore, said in found:
        try:
            with reopen(name) as (library, gpu):
                errors = restore(library, gpu)
                if not errors:
                    done.append(f"{gpu.label}: {said}")
                for failure in errors:
                    (gone if failure.is_gone else failed).append(failure.what)
        except GpuError as error:
            (gone if error.is_gone else failed).append(f"{name}: {error}")
    return PutBack(tuple(done), tuple(gone), tuple(failed))
