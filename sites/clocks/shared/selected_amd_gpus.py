"""The AMD GPUs that a control sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

from sites.amdsmi_library import AmdGpu, AmdsmiError, AmdsmiLibrary, find_gpus, open_library
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable
from sites.gpu_error import closed_on_error

Limit = TypeVar("Limit")


def open_gpus(
    indices: list[int] | None, limit_of: Callable[[AmdsmiLibrary, AmdGpu], Limit]
) -> tuple[AmdsmiLibrary, list[Limit]]:
    """AMD SMI, which the caller closes, and the limits of the selected GPUs.

    Raises:
        ClocksError: there is no AMD SMI, or not the selected GPU, or it has no such limits.
    """
    with as_clocks_unavailable():
        library = open_library()
        with closed_on_error(library):
            return library, [limit_of(library, gpu) for gpu in find_gpus(library, indices)]


@contextmanager
def reopened(address: str) -> Iterator[tuple[AmdsmiLibrary, AmdGpu]]:
    """AMD SMI, as long as the context lasts, and the GPU at this address of the bus.

    Raises:
        AmdsmiError: there is no AMD SMI, or no such GPU.
    """
    with closing(open_library()) as library:
        for gpu in find_gpus(library):
            if bus_address(library, gpu) == address:
                yield library, gpu
                return
        raise AmdsmiError("AMD SMI does not list this GPU", "check `amd-smi list`")


def bus_address(library: AmdsmiLibrary, gpu: AmdGpu) -> str:
    """The GPU's address on the bus, such as 0000:c1:00.0; it holds until the next boot.

    Raises:
        AmdsmiError: the library does not report it.
    """
    with library.explained(f"{gpu.label}: its address"):
        return str(library.amdsmi.amdsmi_get_gpu_device_bdf(gpu.handle))
