"""Shared parts of the GPU benchmarks: finding a GPU, timed kernel runs, readings during them."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from campaign.doctor.gpu_examination import GpuExamination, examine_gpus
from kernels.cuda.device import NO_DRIVER_REMEDY
from kernels.host.ranks import Team
from kernels.registry import find_kernel
from sites.clocks.shared.gpu_clocks import GpuClocks, open_gpu_clocks

READ_EVERY_S = 0.05
NOT_HERE = 2
"""The exit code if nothing could be tried."""


def need_gpu() -> GpuExamination:
    """Return the first GPU that this process may use. Without one, end the program with one
    line."""
    gpus = examine_gpus()
    if gpus is None:
        _nothing_tried(f"no NVIDIA GPU can be used here ({NO_DRIVER_REMEDY})")
    if gpus.problem is not None:
        _nothing_tried(f"GPU kernels cannot run here: {gpus.problem} ({gpus.remedy})")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus.uuids[0]
    return gpus


def _nothing_tried(why: str) -> NoReturn:
    print(f"nothing was tried: {why}")
    sys.exit(NOT_HERE)


class ReadMeanwhile:
    """Reads repeatedly in a thread while the body runs.

    ``readings``: (s of CLOCK_MONOTONIC, value). An error of a reading is raised at the end.
    """

    def __init__(self, read: Callable[[], Any], every_s: float = READ_EVERY_S) -> None:
        self.readings: list[tuple[float, Any]] = []
        self._read, self._every_s = read, every_s
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def _go_on(self) -> None:
        while not self._ended.is_set():
            begin_s = time.monotonic()
            try:
                value = self._read()
            except Exception as error:
                self._error = error
                return
            self.readings.append(((begin_s + time.monotonic()) / 2.0, value))
            self._ended.wait(max(0.0, begin_s + self._every_s - time.monotonic()))

    def __enter__(self) -> ReadMeanwhile:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None and raised[0] is None:
            raise self._error


@dataclass(frozen=True, kw_only=True)
class Run:
    """A kernel's run. ``time_s``, ``counts``: of one iteration; ``core_mhz``: the mean clock of the
    SMs during the run, NaN if NVML shows none."""

    time_s: float
    counts: dict[str, float]
    core_mhz: float

    def rate(self, name: str) -> float:
        """Return the operations or bytes of a class per second."""
        return self.counts[name] / self.time_s


def open_clocks() -> GpuClocks | None:
    """Return NVML's clocks of the chosen GPU."""
    return open_gpu_clocks(Path("/"))


def run_for(name: str, params: dict[str, Any], seconds: float, clocks: GpuClocks | None) -> Run:
    """Run a registered kernel for about ``seconds`` after an equally long warm-up; check its
    result.

    Raises:
        KernelError, ResultError, ValueError: as the kernel and its parameters do.
    """
    kernel = find_kernel(name)
    assert kernel.prepare is not None
    prepared = kernel.prepare(kernel.params.model_validate(params), Team())
    try:
        iterations, one_s = 1, 0.0
        warm_until_s = time.monotonic() + seconds
        while time.monotonic() < warm_until_s:
            begin_s = time.monotonic()
            prepared.run(iterations)
            one_s = (time.monotonic() - begin_s) / iterations
            iterations = max(1, round(min(seconds, 0.25) / one_s))
        iterations = max(1, round(seconds / one_s))
        with ReadMeanwhile(lambda: None if clocks is None else clocks.state()) as watched:
            begin_s = time.monotonic()
            prepared.run(iterations)
            time_s = (time.monotonic() - begin_s) / iterations
        counts = {str(key): float(value) for key, value in prepared.counts().items()}
        prepared.check()
    finally:
        prepared.close()
    # Without the first and the last reading, which may lie outside of the run.
    mhz = [s.setting.core_mhz for _, s in watched.readings[1:-1] if s is not None]
    shown_mhz = [clock_mhz for clock_mhz in mhz if clock_mhz is not None]
    core_mhz = statistics.fmean(shown_mhz) if shown_mhz else float("nan")
    return Run(time_s=time_s, counts=counts, core_mhz=core_mhz)
