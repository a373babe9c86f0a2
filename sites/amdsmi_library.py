"""AMD's management library (AMD SMI): open it, find GPUs, and explain its errors.

It is called through ROCm's Python package ``amdsmi``, which finds the C library itself. Functions
and codes: the AMD SMI Python API reference.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from sites.described_options import list_option
from sites.gpu_error import GpuError

NO_PERMISSION = 10
"""AMDSMI_STATUS_NO_PERM"""
PACKAGE_REMEDY = (
    "install ROCm's AMD SMI (`apt install amd-smi-lib`), then its package with "
    "`pip install /opt/rocm/share/amd_smi`"
)
PERMISSION_REMEDY = (
    "reading needs your user in its groups: `sudo usermod -aG render,video $USER`; setting needs "
    "root"
)
START_REMEDY = "check `amd-smi list`, and load the driver with `modprobe amdgpu`"
OTHER_REMEDY = "discard the measurement; check `amd-smi metric --power --energy` and `dmesg`"
UNSUPPORTED_REMEDY = "this GPU (or a virtual machine's) does not offer it: see `amd-smi metric`"

DEVICES = {"devices": "indices (default: all; of an MI250, the even dies)"}
"""The option that selects GPUs, for a description."""
TWO_DIES = re.compile(r"\bMI250X?\b")

_LOCK = threading.RLock()
_USERS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Package -> how often it is open: the library does not count, and one shut-down ends all uses."""


class AmdsmiError(GpuError):
    """AMD SMI, a GPU, or one of its functions cannot be used."""

    UNSUPPORTED = (2, 3)
    """AMDSMI_STATUS_NOT_SUPPORTED, _NOT_YET_IMPLEMENTED"""
    ILLEGAL = (1, 17)
    """AMDSMI_STATUS_INVAL, _INPUT_OUT_OF_BOUNDS"""
    GONE = (34,)
    """AMDSMI_STATUS_DRIVER_NOT_LOADED"""


class AbsentAmdsmiError(AmdsmiError):
    """There is no package, or no GPU."""


def unsupported(what: str) -> AmdsmiError:
    """The error for a value that is not available."""
    return AmdsmiError(what, OTHER_REMEDY, AmdsmiError.UNSUPPORTED[0])


@dataclass(frozen=True)
class AmdsmiLibrary:
    """An open AMD SMI. ``amdsmi`` is the package that calls it."""

    amdsmi: Any

    def close(self) -> None:
        """Undo one :func:`open_library`. It is not an error if the driver is gone by then."""
        with _LOCK:
            _USERS[self.amdsmi] -= 1
            if _USERS[self.amdsmi] == 0:
                with suppress(self.amdsmi.AmdSmiException):
                    self.amdsmi.amdsmi_shut_down()

    @contextmanager
    def explained(self, subject: str, remedy: str = OTHER_REMEDY) -> Iterator[None]:
        """Turn the package's errors in the body into :class:`AmdsmiError`, about ``subject``."""
        try:
            yield
        except self.amdsmi.AmdSmiException as error:
            code = error.get_error_code() if hasattr(error, "get_error_code") else None
            if code == NO_PERMISSION:
                remedy = PERMISSION_REMEDY
            raise AmdsmiError(f"{subject}: {' '.join(str(error).split())}", remedy, code) from error


@dataclass(frozen=True)
class AmdGpu:
    """A GPU that this process can use."""

    index: int
    """Its position in amdsmi_get_processor_handles()."""
    name: str
    handle: Any

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"AMD GPU {self.index} ({self.name})"


def open_library() -> AmdsmiLibrary:
    """Load AMD SMI and initialise it; close it with :meth:`AmdsmiLibrary.close`.

    Raises:
        AmdsmiError: the package is missing, or the library does not start.
    """
    try:
        import amdsmi  # noqa: PLC0415
    except Exception as error:  # Importing it loads its library, which may raise anything.
        problem = f"the Python package amdsmi cannot be imported: {error}"
        raise AbsentAmdsmiError(problem, PACKAGE_REMEDY) from error
    library = AmdsmiLibrary(amdsmi)
    with _LOCK:
        if _USERS.get(amdsmi, 0) == 0:
            with library.explained("AMD SMI", START_REMEDY):
                amdsmi.amdsmi_init()
        _USERS[amdsmi] = _USERS.get(amdsmi, 0) + 1
    return library


def find_gpus(library: AmdsmiLibrary, indices: Sequence[int] | None = None) -> tuple[AmdGpu, ...]:
    """The selected GPUs, in the order of selection.

    MI250 and MI250X have two dies on a card, each a device. The even device stands for the whole
    card; the odd one is left out and cannot be selected.

    Args:
        library: from :func:`open_library`.
        indices: of the GPUs; None: all. The library ignores ROCR_VISIBLE_DEVICES and
            HIP_VISIBLE_DEVICES.

    Raises:
        AmdsmiError: there is no GPU, or not the selected one.
    """
    amdsmi = library.amdsmi
    with library.explained("AMD SMI", START_REMEDY):
        handles = list(amdsmi.amdsmi_get_processor_handles())
    if not handles:
        raise AbsentAmdsmiError("AMD SMI lists no GPU", START_REMEDY)
    listed = ", ".join(str(index) for index in range(len(handles)))
    gpus = []
    for index in range(len(handles)) if indices is None else indices:
        if index >= len(handles):
            raise AmdsmiError(f"there is no AMD GPU {index}", f"the AMD GPUs are: {listed}")
        with library.explained(f"AMD GPU {index}"):
            asic = amdsmi.amdsmi_get_gpu_asic_info(handles[index])
        gpu = AmdGpu(index, str(asic.get("market_name", "unknown")), handles[index])
        if TWO_DIES.search(gpu.name) and index % 2 == 1:
            if indices is None:
                continue
            raise AmdsmiError(
                f"{gpu.label} is the odd die of its card, which reports no values",
                f"name the even die, {index - 1}, which reports the whole card",
            )
        gpus.append(gpu)
    return tuple(gpus)


def parse_devices(options: Mapping[str, Any]) -> list[int] | None:
    """The option ``devices``; None where it is not given.

    Raises:
        ValueError: it has a wrong value.
    """
    expected = "a list of different indices, such as [0, 1]"
    devices = list_option(options, "devices", expected, lambda i: type(i) is int and i >= 0)
    if devices is not None and len(set(devices)) < len(devices):
        raise ValueError(f"devices is {expected}, not {devices!r}")
    return devices
