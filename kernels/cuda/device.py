"""A GPU: its arrays, compiled functions and launches. Errors become
:class:`~kernels.kernel.KernelError`, each with a remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.cuda.program import EXTRA_REMEDY, Program
from kernels.host.ranks import Team
from kernels.kernel import KernelError

NO_DRIVER_REMEDY = (
    "run where `nvidia-smi -L` lists a GPU, with `--gres=gpu:1` in a Slurm job, or with `--nv` "
    "(Apptainer) or `--gpus all` (Docker) in a container"
)
REPORT = "report it with the kernel's parameters"
XID = "see `dmesg | grep Xid`"
REMEDIES = {
    "CUDA_ERROR_NO_DEVICE": f"there is no GPU here: {NO_DRIVER_REMEDY}",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver was updated while it was loaded: reboot the "
    "node, or unload the nvidia modules and load them again",
    "CUDA_ERROR_SYSTEM_NOT_READY": "the driver is not ready: on a system with NVSwitch start "
    "nvidia-fabricmanager",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "the GPU is in exclusive mode and busy, or its mode prohibits "
    "computing: wait for the other process, which `nvidia-smi` names, or see "
    "`nvidia-smi -q -d COMPUTE`",
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU's memory does not suffice: see in `nvidia-smi` who uses "
    "it, or choose a smaller level or size",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the compiled code is of another architecture: remove "
    "~/.cache/dvfs-campaign/cuda",
    "CUDA_ERROR_ILLEGAL_ADDRESS": f"the kernel read or wrote outside its arrays: {REPORT}",
    "CUDA_ERROR_MISALIGNED_ADDRESS": f"the kernel used an address that is not aligned: {REPORT}",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": f"the kernel used an address of another memory: {REPORT}",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "the GPU does not know an instruction of the kernel: remove "
    f"~/.cache/dvfs-campaign/cuda and try again; if it stays, {REPORT}",
    "CUDA_ERROR_INVALID_PC": f"the kernel jumped out of its code: {REPORT}",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": f"the kernel's stack is damaged or too large: {REPORT}",
    "CUDA_ERROR_ASSERT": f"an assertion in the kernel failed: {REPORT}",
    "CUDA_ERROR_LAUNCH_FAILED": f"the kernel was ended by the GPU: {XID}, and {REPORT}",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "the kernel ran longer than the driver allows on a GPU with a "
    "display: use a GPU without one, or choose a smaller size",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the GPU's memory had an error that ECC cannot correct: "
    f"{XID}; reset the GPU or have it replaced",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": f"a link between GPUs had an error: {XID}",
    "CUDA_ERROR_CONTAINED": f"an error of the hardware ended the kernel: {XID}",
    "CUDA_ERROR_UNKNOWN": f"an error that the driver does not name: {XID}, and whether the module "
    "nvidia_uvm is loaded (`lsmod | grep nvidia_uvm`)",
    "CUDA_ERROR_OPERATING_SYSTEM": "the system refused the driver a call: see whether "
    "/dev/nvidia* are readable and writable, and the limits of the job",
    "CUDA_ERROR_STUB_LIBRARY": "the libcuda.so.1 that was found is the toolkit's stub, which only "
    "serves to link: take its folder out of LD_LIBRARY_PATH",
    "CUDA_ERROR_DEVICE_NOT_LICENSED": "the virtual GPU has no license: see `nvidia-smi -q`",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a block needs more registers or shared memory than the "
    "processor has: choose a smaller block",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": f"the driver is too old for the compiler: {EXTRA_REMEDY}",
    "CUDA_ERROR_INVALID_IMAGE": "the driver cannot read the compiled code: remove "
    f"~/.cache/dvfs-campaign/cuda; if it stays, the driver is too old: {EXTRA_REMEDY}",
    "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER": f"the driver is too old: {EXTRA_REMEDY}",
    "CUDA_ERROR_MPS_CONNECTION_FAILED": "CUDA's service MPS does not answer: start it with "
    "`nvidia-cuda-mps-control -d`, or unset CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "the installed library of forward compatibility "
    f"does not support this GPU: remove it from LD_LIBRARY_PATH, or {EXTRA_REMEDY}",
}
"""Name of a driver error -> its meaning and remedy."""
NEEDED_DRIVERS = {12: "525.60", 13: "580.65"}
"""Major version of the CUDA packages -> the oldest driver that they support."""
MISSING_FUNCTION = re.compile(
    r"function \W?(?P<name>(?:cu|nvml)[A-Z]\w*)\W* (?:is )?not found", re.I
)
"""Texts of CUDA for Python for a missing driver function: the driver is older than the packages."""
STATIC_SHARED_BYTES = 48 << 10
"""The most shared memory of a block without an explicit request."""

Extent = int | tuple[int, ...]
"""The number of blocks of a grid, or threads of a block, along x, or along x, y and z."""


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Raise :class:`KernelError` for a CUDA error; its text names the action ``what``."""
    try:
        yield
    except KernelError:
        raise
    except ImportError as error:
        raise KernelError(
            f"GPU kernels need CUDA for Python, which cannot be imported ({error}): {EXTRA_REMEDY}"
        ) from None
    except Exception as error:
        # An error that does not name the missing function may have it as its cause.
        text = f"{error} {error.__cause__ or ''}"
        if type(error).__name__ == "DynamicLibNotFoundError":
            raise KernelError(f"{what}: there is no NVIDIA driver: {NO_DRIVER_REMEDY}") from None
        lacking = MISSING_FUNCTION.search(text)
        if lacking is not None:
            raise KernelError(f"{what}: the driver lacks {lacking['name']}: {_newer()}") from None
        named = re.findall(r"CUDA_ERROR_[A-Z_]+", text)
        name = next((name for name in named if name in REMEDIES), None)
        if name is None:
            raise
        raise KernelError(f"{what}: {name}: {REMEDIES[name]}") from None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of a ``function``: ``blocks`` of ``threads``, its ``arguments``, and
    ``shared_bytes`` of dynamic shared memory for each block."""

    function: Any
    blocks: Extent
    threads: Extent
    arguments: tuple[Any, ...]
    shared_bytes: int = 0


class Gpu:
    """The GPU of one rank: the first rank on a node has the first visible GPU, and so on.

    Attributes:
        architecture: ``sm_90``, for example.
        processors: the number of its processors.
        l2_bytes: the size of the L2 cache.
        block_shared_bytes: the most shared memory of a block.
    """

    def __init__(self, team: Team) -> None:
        """Raises :class:`KernelError` if there is no GPU for this rank."""
        nodes = team.gather(os.uname().nodename)
        place = nodes[: team.rank].count(nodes[team.rank])
        with explained("opening the GPU"):
            from cuda.core import Device  # noqa: PLC0415

            count = _visible_gpus()
            if place >= count:
                raise KernelError(
                    f"{nodes.count(nodes[team.rank])} ranks on this node and {count} GPUs: each "
                    f"rank needs one of its own"
                )
            self._device = Device(place)
            self._device.set_current()
            self._stream = self._device.create_stream()
            major, minor = self._device.compute_capability
            properties = self._device.properties
            self.architecture = f"sm_{major}{minor}"
            self.processors: int = properties.multiprocessor_count
            self.l2_bytes: int = properties.l2_cache_size
            self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin
        self._buffers: list[Any] = []
        self._codes: list[Any] = []
        self._graphs: list[Any] = []

    def function(self, program: Program, name: str, shared_bytes: int = 0) -> Any:
        """A function of a program, ready to be launched.

        ``shared_bytes``: dynamic shared memory of a block.
        """
        with explained(f"loading {name}"):
            from cuda.core import ObjectCode  # noqa: PLC0415

            code = ObjectCode.from_cubin(program.cubin)
            self._codes.append(code)
            function = code.get_kernel(name)
            if shared_bytes > STATIC_SHARED_BYTES:
                self._allow_shared(function, shared_bytes)
            return function

    def _allow_shared(self, function: Any, shared_bytes: int) -> None:
        """Allow the function ``shared_bytes`` bytes of dynamic shared memory in a block."""
        from cuda.bindings import driver  # noqa: PLC0415

        error, device = driver.cuDeviceGet(self._device.device_id)
        _check(error)
        # cuda.core can read this attribute of a kernel, but not set it.
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        kernel = driver.CUkernel(int(function.handle))
        (error,) = driver.cuKernelSetAttribute(attribute, shared_bytes, kernel, device)
        _check(error)

    def resident_blocks(self, function: Any, threads: int, shared_bytes: int = 0) -> int:
        """The number of blocks of ``threads`` threads that all processors run concurrently."""
        with explained("asking how many blocks fit"):
            occupancy = function.occupancy
            each = occupancy.max_active_blocks_per_multiprocessor(threads, shared_bytes)
            return int(each) * self.processors

    def array(self, data: np.ndarray[Any, Any], size_bytes: int | None = None) -> Any:
        """A copy of ``data`` on the GPU, repeated up to ``size_bytes`` if given."""
        size = data.nbytes if size_bytes is None else size_bytes
        with explained(f"allocating {size:,} bytes"):
            from cuda.bindings import driver  # noqa: PLC0415

            data = np.ascontiguousarray(data)
            buffer = self._device.allocate(size, stream=self._stream)
            self._buffers.append(buffer)
            self._stream.sync()
            for begin in range(0, size, data.nbytes):
                part = min(data.nbytes, size - begin)
                (error,) = driver.cuMemcpyHtoD(int(buffer.handle) + begin, data.ctypes.data, part)
                _check(error)
            return buffer

    def copied(
        self, buffer: Any, like: np.ndarray[Any, Any], begin_bytes: int = 0
    ) -> np.ndarray[Any, Any]:
        """The values of a buffer from ``begin_bytes`` on, with the shape and type of ``like``."""
        with explained("copying from the GPU"):
            from cuda.bindings import driver  # noqa: PLC0415

            result = np.empty_like(like)
            begin = int(buffer.handle) + begin_bytes
            (error,) = driver.cuMemcpyDtoH(result.ctypes.data, begin, result.nbytes)
            _check(error)
            return result

    def run(
        self,
        function: Any,
        blocks: Extent,
        threads: Extent,
        *arguments: Any,
        shared_bytes: int = 0,
    ) -> None:
        """Launch a function and wait for its end, without the GIL."""
        one = Launch(
            function=function,
            blocks=blocks,
            threads=threads,
            arguments=arguments,
            shared_bytes=shared_bytes,
        )
        with explained("running the kernel"):
            _enqueue(self._stream, one)
            self._stream.sync()

    def recorded(self, launches: Sequence[Launch]) -> Any:
        """A CUDA graph of consecutive launches, for :meth:`replay`."""
        with explained("recording the launches"):
            builder = self._stream.create_graph_builder()
            builder.begin_building()
            for one in launches:
                _enqueue(builder, one)
            graph = builder.end_building().complete()
            builder.close()
            self._graphs.append(graph)
            return graph

    def replay(self, graph: Any, times: int) -> None:
        """Run all launches of a graph ``times`` times, and wait for their end."""
        with explained("running the kernel"):
            for _ in range(times):
                graph.launch(self._stream)
            self._stream.sync()

    @property
    def stream(self) -> int:
        """The stream's handle, for a library that launches kernels itself."""
        return int(self._stream.handle)

    def wait(self) -> None:
        """Wait for the end of all launches."""
        with explained("running the kernel"):
            self._stream.sync()

    def close(self) -> None:
        """Release the memory.

        After a kernel error the driver refuses this; the end of the process releases the memory.
        """
        with suppress(Exception):
            for graph in self._graphs:
                graph.close()
            for buffer in self._buffers:
                buffer.close(self._stream)
            self._stream.sync()
            self._stream.close()
        self._graphs, self._buffers, self._codes = [], [], []


def _visible_gpus() -> int:
    """The number of GPUs visible to this process, as CUDA_VISIBLE_DEVICES selects them."""
    from cuda.bindings import driver  # noqa: PLC0415

    error, version = driver.cuDriverGetVersion()
    _check(error)
    if version // 1000 < cuda_major():
        offers = f"{version // 1000}.{version % 1000 // 10}"
        raise KernelError(f"opening the GPU: the driver offers CUDA {offers}: {_newer()}")
    (error,) = driver.cuInit(0)
    _check(error)
    error, count = driver.cuDeviceGetCount()
    _check(error)
    return int(count)


def cuda_major() -> int:
    """The major version of the installed CUDA packages; raises ImportError without them."""
    from cuda.bindings import __version__  # noqa: PLC0415

    return int(__version__.partition(".")[0])


def _newer() -> str:
    """The remedy if the driver is too old for the installed CUDA packages."""
    major = cuda_major()
    needed = NEEDED_DRIVERS.get(major, f"of CUDA {major}")
    return (
        f"the installed packages of CUDA {major} need driver {needed} or later "
        f"(`nvidia-smi` shows the installed one); ask for a newer driver, or {EXTRA_REMEDY}"
    )


def _enqueue(stream: Any, one: Launch) -> None:
    from cuda.core import LaunchConfig, launch  # noqa: PLC0415

    config = LaunchConfig(grid=one.blocks, block=one.threads, shmem_size=one.shared_bytes)
    launch(stream, config, one.function, *one.arguments)


def _check(error: Any) -> None:
    if int(error):
        raise RuntimeError(error.name)
