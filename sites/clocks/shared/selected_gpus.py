"""The GPUs that a control sets: which, who may set them, and what a killed process left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sites.clocks.shared.control import ControlDescription, Right
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable
from sites.clocks.shared.journal import PutBack
from sites.gpu_error import GpuError
from sites.nvml_library import Gpu, NvmlLibrary, find_gpus, open_library

DEVICES = {
    "devices": "indices or UUIDs (default: CUDA_VISIBLE_DEVICES, or all)",
}
"""The option that selects them, for a control's description."""
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
        try:
            return library, find_gpus(library, names)
        except BaseException:
            library.close()
            raise


@contextmanager
def reopened(root: Path, uuid: str) -> Iterator[tuple[NvmlLibrary, Gpu]]:
    """NVML, as long as the context lasts, and the GPU with this UUID.

    Raises:
        NvmlError: there is no NVML, or no such GPU.
    """
    library = open_library(root)
    try:
        yield library, find_gpus(library, [uuid])[0]
    finally:
        library.close()


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
