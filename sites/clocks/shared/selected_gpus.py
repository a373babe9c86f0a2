"""The NVIDIA GPUs that a control sets: which, who may set them, and what a killed process left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sites.clocks.shared.description import ControlDescription, Right
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable
from sites.clocks.shared.journal import PutBack
from sites.nvml_library import Gpu, NvmlError, NvmlLibrary, find_gpus, open_library

DEVICES = {
    "devices": "indices or UUIDs of GPUs (default: those in CUDA_VISIBLE_DEVICES, or all)",
}
"""The option that selects them, for a control's description."""
INVALID_ARGUMENT = 2
"""The NVML error for a value that the GPU does not offer."""
GONE_CODES = (9, 15)
"""Driver not loaded, GPU lost: neither keeps what was set. A GPU that is not listed may be hidden
from this process (by Slurm or a container) and still be set."""


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


def right_of_root(control: str, root: Path, what: str, remedy: str) -> Right:
    """Whether this user may do ``what`` (a phrase), which NVML lets only root do."""
    if not any(root.glob("dev/nvidia[0-9]*")):
        return Right(control, False, f"{root / 'dev/nvidia0'} does not exist: no NVIDIA GPU")
    if os.geteuid() != 0:
        return Right(control, False, f"NVML lets only root {what}", remedy)
    return Right(control, True, f"root may {what}")


def put_back_gpus(
    root: Path, found: Iterable[tuple[str, Callable[[NvmlLibrary, Gpu], list[NvmlError]], str]]
) -> PutBack:
    """Restore GPUs: of each its UUID, what restores it and returns the failures, and what is said
    once it is done."""
    done: list[str] = []
    gone: list[str] = []
    failed: list[str] = []
    for uuid, restore, said in found:
        try:
            library = open_library(root)
        except NvmlError as error:
            (gone if error.code in GONE_CODES else failed).append(f"{uuid}: {error}")
            continue
        try:
            gpu = find_gpus(library, [uuid])[0]
            errors = restore(library, gpu)
            if not errors:
                done.append(f"{gpu.label}: {said}")
            for failure in errors:
                (gone if failure.code in GONE_CODES else failed).append(failure.what)
        except NvmlError as error:
            (gone if error.code in GONE_CODES else failed).append(f"{uuid}: {error.what}")
        finally:
            library.close()
    return PutBack(tuple(done), tuple(gone), tuple(failed))
