"""NVIDIA's management library (NVML): open it, find GPUs, and explain its errors.

NVML is the driver's ``libnvidia-ml.so.1``, called through nvidia-ml-py (the module ``pynvml``).
Functions and errors: NVIDIA's NVML API reference. pynvml keeps its library in a variable of the
module, so a library below another root is loaded into a separate copy of the module. Several
libraries can then be open at the same time without affecting other users of pynvml in the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import takewhile
from pathlib import Path
from typing import Any

from sites.described_options import list_option
from sites.gpu_error import GpuError

DEVICES = {"devices": "indices or UUIDs (default: CUDA_VISIBLE_DEVICES, or all)"}
"""The option that selects GPUs, for a description."""
LIBRARY = Path("usr/lib/libnvidia-ml.so.1")
"""Where the library is below a root that is not ``/``."""

ABSENT_REMEDY = (
    "it comes with NVIDIA's driver: run where `nvidia-smi -L` lists a GPU, with `--gres=gpu:1` in "
    "a Slurm job, or with `--nv` (Apptainer) or `--gpus all` (Docker) in a container"
)
PACKAGE_REMEDY = "install it with `pip install nvidia-ml-py`"
DRIVER_REMEDY = "load the driver with `modprobe nvidia`; if that fails, see `dmesg | grep NVRM`"
PERMISSION_REMEDY = (
    "reading needs /dev/nvidia* to be readable (`ls -l /dev/nvidia*`, and --gres=gpu in a Slurm "
    "job); locking clocks needs root: ask for `sudo nvidia-smi`, or for Slurm's --gpu-freq"
)
MISMATCH_REMEDY = (
    "the driver was updated while it was loaded: reboot the node, or unload the nvidia modules "
    "and load them again"
)
LOST_REMEDY = (
    "discard the measurement; the GPU is lost: see `dmesg | grep Xid`, then reset it with "
    " `nvidia-smi --gpu-reset -i INDEX` or reboot the node"
)
UNSUPPORTED_REMEDY = "this GPU or driver does not offer it: see `nvidia-smi -q`"
OLD_DRIVER_REMEDY = "the driver is older than nvidia-ml-py expects: update the driver"
OTHER_REMEDY = "see `nvidia-smi -q` and `dmesg | grep NVRM`"

REMEDIES = {
    3: UNSUPPORTED_REMEDY,
    4: PERMISSION_REMEDY,
    9: DRIVER_REMEDY,
    12: ABSENT_REMEDY,
    13: OLD_DRIVER_REMEDY,
    15: LOST_REMEDY,
    16: LOST_REMEDY,
    18: MISMATCH_REMEDY,
    28: LOST_REMEDY,
}
"""Code of an NVML error (nvmlReturn_t) -> how to fix it."""


class NvmlError(GpuError):
    """NVML, a GPU, or one of its functions cannot be used."""

    UNSUPPORTED = (3, 13)
    """A function or field that a GPU or an older driver does not have."""
    ILLEGAL = (2,)
    GONE = (9, 15)
    """Driver not loaded, GPU lost."""


@dataclass(frozen=True)
class NvmlLibrary:
    """An open NVML. ``nvml`` is the pynvml module (or a copy) that calls it."""

    path: str
    nvml: Any

    def close(self) -> None:
        """Undo one :func:`open_library`. It is not an error if the driver is gone by then."""
        with suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()

    @contextmanager
    def explained(self, subject: str) -> Iterator[None]:
        """Turn pynvml's errors in the body into :class:`NvmlError`, about ``subject``."""
        try:
            yield
        except self.nvml.NVMLError as error:
            raise self.error(subject, error.value) from error
        except self.nvml.NVMLLibraryMismatchError as error:
            raise NvmlError(f"{subject}: {error}", OLD_DRIVER_REMEDY, 13) from error

    def error(self, subject: str, code: int) -> NvmlError:
        """The error for an NVML return code, such as that of a field."""
        text = str(self.nvml.NVMLError(code)).rstrip(".")
        remedy = REMEDIES.get(code, OTHER_REMEDY)
        return NvmlError(f"{subject}: {text} (NVML error {code})", remedy, code)


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process can use."""

    index: int
    """NVML's index: its position on the bus among the GPUs that this process may see."""
    uuid: str
    name: str
    handle: Any

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"GPU {self.index} ({self.name}, {self.uuid})"


def open_library(root: Path) -> NvmlLibrary:
    """Load NVML and initialise it; close it with :meth:`NvmlLibrary.close`.

    Args:
        root: ``/``: the library that the dynamic linker finds; otherwise
            ``usr/lib/libnvidia-ml.so.1`` below this folder.

    Raises:
        NvmlError: pynvml or the library is missing, or the library does not start.
    """
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise NvmlError("the Python package nvidia-ml-py is missing", PACKAGE_REMEDY)
    nvml: Any
    if root == Path("/"):
        import pynvml  # noqa: PLC0415

        nvml = pynvml
        path = "libnvidia-ml.so.1"
    else:
        path = str(root / LIBRARY)
        nvml = _copy_of_pynvml(spec.origin)
        try:
            nvml.nvmlLib = ctypes.CDLL(path)
        except OSError as error:
            raise NvmlError(f"{path} cannot be loaded: {error}", ABSENT_REMEDY) from error
    library = NvmlLibrary(path, nvml)
    with library.explained(path):
        nvml.nvmlInit()
    return library


def _copy_of_pynvml(source: str) -> Any:
    """A separate copy of the module pynvml, with separate variables."""
    # The module looks itself up by name while it is executed, so the copy has a temporary name.
    spec = spec_from_file_location("_copy_of_pynvml", source)
    if spec is None or spec.loader is None:
        raise NvmlError(f"{source} is not a Python module", PACKAGE_REMEDY)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def find_gpus(library: NvmlLibrary, names: Sequence[int | str] | None = None) -> tuple[Gpu, ...]:
    """The selected GPUs, in the order of selection.

    Args:
        library: from :func:`open_library`.
        names: indices in NVML's order, or UUIDs, or unique beginnings of UUIDs. None: the GPUs in
            CUDA_VISIBLE_DEVICES, or all if it is not set. The rules of this variable and of
            CUDA_DEVICE_ORDER are in CUDA's programming guide, appendix on environment variables.

    Raises:
        NvmlError: there is no GPU, or not the selected one; a name is a MIG slice, whose
            power cannot be separated from that of other slices; or CUDA's numbering may differ
            from NVML's.
    """
    gpus = _all_gpus(library)
    if names is not None:
        named = [_find_gpu(gpus, name) for name in names]
        for i, gpu in enumerate(named):
            if gpu in named[:i]:
                raise NvmlError(
                    f"{gpu.label} is named twice in the option `devices`", "once is enough"
                )
        return tuple(named)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        chosen = gpus
    else:
        # CUDA ignores everything after the first word that is not a device.
        words = list(takewhile(_is_device, (word.strip() for word in visible.split(","))))
        indices = [word for word in words if word.isdigit()]
        is_by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        if indices and not is_by_bus and len({gpu.name for gpu in gpus}) > 1:
            raise NvmlError(
                f"CUDA_VISIBLE_DEVICES={visible}: CUDA numbers GPUs by speed, NVML by bus",
                "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs in the option `devices`",
            )
        chosen = tuple(_find_gpu(gpus, int(word) if word.isdigit() else word) for word in words)
    if not chosen:
        shown = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        raise NvmlError(f"{library.path} lists no GPU{shown}", ABSENT_REMEDY)
    return chosen


def _is_device(word: str) -> bool:
    return word.isdigit() or word.startswith(("GPU-", "MIG-"))


def _all_gpus(library: NvmlLibrary) -> tuple[Gpu, ...]:
    nvml = library.nvml
    gpus = []
    with library.explained(library.path):
        count = nvml.nvmlDeviceGetCount()
    for index in range(count):
        with library.explained(f"GPU {index}"):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        gpus.append(Gpu(index, uuid, name, handle))
    return tuple(gpus)


def _find_gpu(gpus: Sequence[Gpu], name: int | str) -> Gpu:
    if isinstance(name, str) and name.startswith("MIG"):
        raise NvmlError(
            f"{name} is a MIG slice of a GPU, and NVML has no energy of single slices",
            "switch it off with `sudo nvidia-smi -mig 0`, or name a whole GPU in `devices`",
        )
    matching = [gpu for gpu in gpus if name == gpu.index]
    if isinstance(name, str) and name:
        matching = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
    if len(matching) != 1:
        shown = ", ".join(f"{gpu.index} = {gpu.uuid}" for gpu in gpus) or "none"
        raise NvmlError(
            f"there is no GPU {name}" if not matching else f"several UUIDs begin with {name}",
            f"the GPUs of this node are: {shown}",
        )
    return matching[0]


def parse_devices(options: Mapping[str, Any]) -> list[int | str] | None:
    """The option ``devices``; None where it is not given.

    Raises:
        ValueError: it has a wrong value.
    """
    devices = list_option(options, "devices", 'a list such as [0, 1] or ["GPU-5f1c"]')
    if devices is None:
        return None
    for device in devices:
        if not (device >= 0 if type(device) is int else isinstance(device, str) and device):
            raise ValueError(f"{device!r} in devices is neither an index nor a UUID")
    if len(set(devices)) < len(devices):
        raise ValueError(f"devices lists a GPU twice: {devices!r}")
    return devices
