"""The AMD GPUs that a control sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sites.amdsmi_library import AmdGpu, AmdsmiError, AmdsmiLibrary, find_gpus, open_library
from sites.clocks.shared.gpu_clocks import as_clocks_unavailable


def open_gpus(indices: list[int] | None) -> tuple[AmdsmiLibrary, tuple[AmdGpu, ...]]:
    """AMD SMI, to be closed, and the selected GPUs.

    Raises:
        ClocksError: there is no AMD SMI, or not the selected GPU.
    """
    with as_clocks_unavailable():
        library = open_library()
        try:
            return library, find_gpus(library, indices)
        except BaseException:
            library.close()
            raise


@contextmanager
def reopened(address: str) -> Iterator[tuple[AmdsmiLibrary, AmdGpu]]:
    """AMD SMI, as long as the context lasts, and the GPU at this address of the bus.

    Raises:
        AmdsmiError: there is no AMD SMI, or no such GPU.
    """
    library = open_library()
    try:
        for gpu in find_gpus(library):
            if bus_address(library, gpu) == address:
                yield library, gpu
                return
        raise AmdsmiError("AMD SMI does not list this GPU", "check `amd-smi list`")
    finally:
        library.close()


def bus_address(library: AmdsmiLibrary, gpu: AmdGpu) -> str:
    """Where the GPU is on the bus, such as 0000:c1:00.0: the same until the next boot.

    Raises:
        AmdsmiError: the library does not report it.
    """
    with library.explained(f"{gpu.label}: its address"):
        return str(library.amdsmi.amdsmi_get_gpu_device_bdf(gpu.handle))
