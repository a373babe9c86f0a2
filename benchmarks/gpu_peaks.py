"""What a GPU can do in a cycle, by its compute capability, and how fast it copies its memory."""

from __future__ import annotations

import time
from typing import Any

LANES = {
    "sm_75": (64, 2),
    "sm_80": (64, 32),
    "sm_86": (128, 2),
    "sm_89": (128, 2),
    "sm_90": (128, 64),
    "sm_100": (128, 64),
    "sm_120": (128, 2),
}
"""Architecture -> multiply-adds of a multiprocessor in a cycle, single and double precision:
NVIDIA, CUDA C++ Programming Guide, throughput of native arithmetic instructions."""
TENSOR_BF16 = {"sm_80": 2048, "sm_90": 4096}
"""Architecture -> flops of a multiprocessor's tensor cores in a cycle, bf16 with single-precision
sums, dense: four tensor cores of 256 multiply-adds each on an A100 (NVIDIA A100 white paper: 312
TFLOP/s of 108 multiprocessors at 1,410 MHz), of 512 each on an H100 (NVIDIA H100 white paper)."""
COPIED_BYTES = 4 << 30
COPIES = 20


def multiply_add_peak(architecture: str, number: str, processors: int, mhz: float) -> float | None:
    """flop/s of ``sp`` or ``dp`` at a clock; None where the architecture is not in LANES."""
    lanes = LANES.get(architecture)
    if lanes is None:
        return None
    return 2.0 * lanes[number == "dp"] * processors * mhz * 1e6


def tensor_peak(architecture: str, processors: int, mhz: float) -> float | None:
    """flop/s of bf16 at a clock; None where the architecture is not in TENSOR_BF16."""
    each = TENSOR_BF16.get(architecture)
    return None if each is None else float(each) * processors * mhz * 1e6


def copy_rate() -> float:
    """Bytes read and written in a second by the device's own copy: the best of several."""
    from cuda.bindings import driver
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    free, _ = _done(driver.cuMemGetInfo())
    size = min(COPIED_BYTES, int(free) // 4)
    source, target = (_done(driver.cuMemAlloc(size))[0] for _ in range(2))
    try:
        best_s = float("inf")
        for _ in range(COPIES):
            begin_s = time.perf_counter()
            _done(driver.cuMemcpyDtoD(target, source, size))
            _done(driver.cuCtxSynchronize())  # this copy returns before it has ended
            best_s = min(best_s, time.perf_counter() - begin_s)
    finally:
        for buffer in (source, target):
            _done(driver.cuMemFree(buffer))
    return 2.0 * size / best_s


def _done(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    error, *values = answer
    if int(error):
        raise RuntimeError(f"the copy failed: {error.name}")
    return tuple(values)
