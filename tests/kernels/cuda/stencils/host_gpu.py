"""The program of gpu_stencil on the host, with what it does counted; and a GPU's place taken by it.

One thread of the host for each of a block's; real barriers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.cuda.device import Launch
from kernels.cuda.stencils.stencil import (
    FUNCTION,
    GpuStencilParams,
    line_numbers,
    prism_source,
)
from tests.kernels.cuda.on_host import host_library, together

COUNTED = ("additions", "multiplications", "brought_in", "written_out", "barriers", "unwritten")
"""What the host's program counts, in the order of its source."""


def on_host(variants: Sequence[GpuStencilParams], folder: Path) -> ctypes.CDLL:
    """The source compiled for the host, once for each variant."""
    source = together([prism_source(params) for params in variants], folder / "prisms.cu")
    program = host_library(source, "stencils/stencil_host.cpp", folder)
    program.on_host.restype = ctypes.c_longlong
    return program


class HostGpu:
    """What StencilRun asks of a GPU, by one variant's program on the host. ``counts``: what all
    launches did, int64, in the order of COUNTED; ``outside``: bytes beside the shared memory that
    were written."""

    architecture = "sm_90"
    block_shared_bytes = 227 << 10
    processors = 2

    def __init__(self, program: ctypes.CDLL, number: int) -> None:
        """``number``: the variant's among those that were compiled together."""
        self.program, self.name = program, f"{FUNCTION}_{number}"
        self.counts = np.zeros(len(COUNTED), np.int64)
        self.outside = self.launched = 0

    def function(self, program: object, name: str, shared_bytes: int) -> Any:
        return getattr(self.program, self.name)

    def resident_blocks(self, function: object, threads: int, shared_bytes: int) -> int:
        return 3 * self.processors

    def array(self, data: np.ndarray, size_bytes: int) -> np.ndarray:
        return np.resize(data, size_bytes // data.itemsize)

    def copied(self, buffer: np.ndarray, like: np.ndarray, begin_bytes: int) -> np.ndarray:
        begin = begin_bytes // buffer.itemsize
        return buffer[begin : begin + like.size].reshape(like.shape).copy()

    def recorded(self, launched: Iterable[Launch]) -> list[Launch]:
        return list(launched)

    def replay(self, graph: Sequence[Launch], times: int) -> None:
        for one in list(graph) * times:
            self.launch(one)

    def launch(self, one: Launch) -> None:
        along_2, along_1 = one.threads
        even, odd, *others = one.arguments
        size_1, size_2, line, steps, first, base = map(int, others)
        self.launched += 1
        self.outside += self.program.on_host(
            one.function,
            ctypes.c_uint(one.blocks),
            ctypes.c_uint(along_1),
            ctypes.c_uint(along_2),
            ctypes.c_int(one.shared_bytes),
            ctypes.c_int(self.launched % 2),
            *(ctypes.c_void_p(array.ctypes.data) for array in (self.counts, even, odd)),
            ctypes.c_int(size_1),
            ctypes.c_int(size_2),
            ctypes.c_longlong(line),
            ctypes.c_int(steps),
            ctypes.c_int(first),
            ctypes.c_int(base),
        )

    def close(self) -> None:
        """Nothing to release."""


def whole_grid(params: GpuStencilParams, buffer: np.ndarray) -> np.ndarray:
    """A view of a grid in memory, with its fixed border: (size + 2 of each axis)."""
    lines = buffer.reshape(params.size_1 + 2, line_numbers(params))
    return lines[:, 0] if params.axes == 1 else lines[:, : params.size_2 + 2]
